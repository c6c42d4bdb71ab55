//! Extensions in Python, the example that is shipped among them, as processors of a flow.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use super::manifest;
use crate::processors;
use crate::testing::Rig;

/// Extensions are read once in a process: all that the tests need lie in one folder.
pub(super) fn extensions() {
    static READ: OnceLock<tempfile::TempDir> = OnceLock::new();
    READ.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let example = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/agent/extension-example"
        );
        let text = std::fs::read_to_string(format!("{example}/extension.json")).unwrap();
        let program = std::fs::read_to_string(format!("{example}/reverse.py")).unwrap();
        put(
            dir.path(),
            "example",
            serde_json::from_str(&text).unwrap(),
            &program,
        );
        put(dir.path(), "odd", odd(), ODD);
        #[cfg(feature = "wasm")]
        let modules = super::module_tests::put_all(dir.path());
        #[cfg(not(feature = "wasm"))]
        let modules = 0;
        // Who an extension runs as must be able to read it.
        open(dir.path());
        assert_eq!(super::load(dir.path()).unwrap(), 2 + modules);
        assert!(super::load(dir.path()).is_err(), "they are read once");
        dir
    });
}

fn put(dir: &Path, name: &str, mut told: Value, program: &str) {
    if !rustix::process::geteuid().is_root() {
        told.as_object_mut().unwrap().remove("user");
    }
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    let file = told["command"][1].as_str().unwrap().to_owned();
    std::fs::write(folder.join(file), program).unwrap();
    std::fs::write(folder.join(manifest::FILE), told.to_string()).unwrap();
    open(&folder);
}

fn open(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A program that does what its property says, as wrong as can be.
fn odd() -> Value {
    json!({
        "version": 1,
        "command": ["python3", "odd.py"],
        "user": "nobody",
        "memory": "200 MB",
        "answerWait": "1 sec",
        "processors": [{
            "name": "OddOne",
            "description": "Does what it is told.",
            "input": "allowed",
            "properties": [{ "name": "What", "description": "What it does.", "isRequired": true }],
            "relationships": [{ "name": "success", "description": "What it gives." }],
        }],
    })
}

const ODD: &str = r#"
import json, os, struct, sys
source, sink = sys.stdin.buffer, sys.stdout.buffer
def read():
    head = source.read(5)
    if len(head) < 5:
        sys.exit(0)
    return head[:1], source.read(struct.unpack(">I", head[1:])[0])
def say(letter, body=b"{}"):
    sink.write(letter + struct.pack(">I", len(body)) + body)
    sink.flush()
what = json.loads(read()[1])["properties"]["What"]
if what == "refuse":
    say(b"E", b'{"message": "not like this"}')
say(b"R")
while True:
    trigger = json.loads(read()[1])
    if trigger["flowFile"]:
        while read()[0] != b"Z":
            pass
    if what == "die":
        sys.exit(3)
    if what == "hang":
        import time
        time.sleep(60)
    if what == "long":
        sink.write(b"O\xff\xff\xff\xff")
        sink.flush()
    if what == "nowhere":
        say(b"O", b'{"relationship": "nowhere"}')
    if what == "swallow":
        data = bytearray(400 << 20)
    if what == "tell":
        status = open("/proc/self/status").read()
        told = {
            "user": os.getuid(),
            "groups": os.getgroups(),
            "privileges": "NoNewPrivs:\t1" in status,
            "environment": sorted(os.environ),
            "folder": os.path.basename(os.getcwd()),
        }
        say(b"L", b'{"level": "warning", "message": "I tell"}')
        say(b"O", b'{"relationship": "success", "content": "new"}')
        say(b"C", json.dumps(told).encode())
        say(b"Z", b"")
    say(b"D", b'{"yields": false}')
"#;

fn odd_rig(what: &str) -> Rig {
    extensions();
    Rig::new("OddOne", &[("What", what)])
}

#[test]
fn an_extension_is_a_processor_like_any_other() {
    extensions();
    let kind = processors::find("ReverseText").unwrap();
    assert_eq!(kind.properties[1].default, Some("false"));
    let known = processors::all().any(|known| known.name == "ReverseText");
    assert!(known, "it is listed and in the manifest");
    let properties = [("Prefix", "${mark}"), ("Original", "true")];
    let mut rig = Rig::new("ReverseText", &properties);
    for text in ["one\ntwo", "drei\n"] {
        rig.put(&[("mark", "> "), ("dropped", "1"), ("kept", "2")], text);
    }
    rig.put(&[], b"\xff");
    rig.run();
    assert_eq!(
        rig.counts(),
        [("success", 2), ("original", 2), ("failure", 1)]
    );
    let out = rig.out("success");
    assert_eq!(out[0].text(), "> eno\n> owt\n");
    assert_eq!(out[1].text(), "> ierd\n");
    let expected = [("kept", "2"), ("mark", "> "), ("reversed.lines", "2")];
    let expected: BTreeMap<String, String> = expected
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    assert_eq!(out[0].attributes, expected);
    let originals = rig.out("original");
    assert_eq!(originals[0].text(), "one\ntwo");
    assert_ne!(originals[0].uuid, out[0].uuid);
    let refused = rig.one("failure");
    assert!(
        refused
            .attribute("extension.error.message")
            .contains("no UTF-8")
    );
    assert!(Rig::try_new("ReverseText", &[("Original", "perhaps")], json!({})).is_err());
}

#[test]
fn content_of_any_size_goes_both_ways_at_once() {
    extensions();
    let mut rig = Rig::new("ReverseText", &[]);
    let lines: String = (0..300_000).map(|n| format!("{n:07}\n")).collect();
    rig.put(&[], &lines);
    rig.run();
    let expected: String = (0..300_000)
        .map(|n| format!("{}\n", format!("{n:07}").chars().rev().collect::<String>()))
        .collect();
    assert!(rig.one("success").text() == expected);
}

#[test]
fn a_program_is_confined() {
    let mut rig = odd_rig("tell");
    rig.put(&[], "");
    rig.trigger().unwrap_or_else(|error| panic!("{error}"));
    let told: Value = serde_json::from_str(rig.one("success").text()).unwrap();
    assert_eq!(told["privileges"], true);
    // The shell that sets the bounds has a few of its own.
    let known = ["LANG", "PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    for name in told["environment"].as_array().unwrap() {
        assert!(known.contains(&name.as_str().unwrap()), "{told}");
    }
    assert_eq!(told["folder"], "odd");
    if rustix::process::geteuid().is_root() {
        assert_ne!(told["user"], 0);
        assert!(
            !told["groups"].as_array().unwrap().contains(&json!(0)),
            "{told}"
        );
    }
    assert_eq!(rig.bulletins(), ["I tell"]);
}

#[test]
fn what_a_program_does_wrong_costs_one_trigger() {
    for (what, part) in [
        ("die", "it ended"),
        ("hang", "it was silent for 1 s"),
        ("long", "a frame of 4294967295 bytes"),
        ("nowhere", "it gives to 'nowhere'"),
        ("swallow", "it ended"),
        ("refuse", "not like this"),
    ] {
        let mut rig = odd_rig(what);
        rig.put(&[], "kept");
        for _ in 0..2 {
            let error = rig.trigger().unwrap_err();
            assert!(error.contains(part), "{what}: {error}");
            assert_eq!((rig.counts(), rig.waiting()), (vec![], 1), "{what}");
        }
        rig.advance(Duration::from_secs(1));
    }
}

#[test]
fn manifests_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(manifest::FILE);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut told = odd();
        change(&mut told);
        std::fs::write(&file, told.to_string()).unwrap();
        match manifest::read(dir.path()) {
            Ok(_) => panic!("{told} was taken"),
            Err(why) => why,
        }
    };
    for (change, part) in [
        (
            &(|it: &mut Value| it["version"] = json!(2)) as &dyn Fn(&mut Value),
            "version 2",
        ),
        (&|it| it["command"] = json!([]), "no command"),
        (
            &|it| it["module"] = json!("x.wasm"),
            "no command and no user",
        ),
        (&|it| it["memory"] = json!("much"), "memory"),
        (&|it| it["answerWait"] = json!("0 sec"), "answerWait"),
        (&|it| it["processors"] = json!([]), "no processor"),
        (
            &|it| it["processors"][0]["name"] = json!("Odd One"),
            "letters",
        ),
        (
            &|it| it["processors"][0]["relationships"] = json!([]),
            "no relationship",
        ),
        (&|it| it["processors"][0]["colour"] = json!("red"), "colour"),
        (
            &|it| {
                it["processors"][0]["properties"][0] =
                    json!({ "name": "n", "description": "d", "shape": "integer", "default": "x" });
            },
            "default of n",
        ),
    ] {
        let why = refused(change);
        assert!(why.contains(part), "{part}: {why}");
    }
}
