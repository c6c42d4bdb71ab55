//! Extensions that are WebAssembly modules: the example that is shipped, and some that are bad.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::tests::extensions;
use crate::testing::Rig;

/// Puts the modules of these tests into the folder of extensions; how many.
pub(super) fn put_all(dir: &Path) -> usize {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/agent/extension-example-wasm"
    );
    let read = |name: &str| std::fs::read_to_string(format!("{example}/{name}")).unwrap();
    let shout = read("shout.wat");
    put(dir, "shout", &read("extension.json"), &shout);
    let mut all = 1;
    for (name, function) in [
        ("Endless", "(loop $for_ever (br $for_ever))"),
        (
            "Greedy",
            "(if (i32.eq (memory.grow (i32.const 1000)) (i32.const -1)) (then (call $exit (i32.const 3))))",
        ),
        ("Outside", "(call $give (i32.const -8) (i32.const 4096))"),
        (
            "Silent",
            "(drop (call $frame)) (drop (call $frame)) (drop (call $frame))",
        ),
        ("Reached", "(unreachable)"),
    ] {
        // The example's, but for what it does to a FlowFile.
        let start = shout.find("(func (export \"_start\")").unwrap();
        let module = format!(
            "{} (func (export \"_start\") (drop (call $frame)) (call $give (i32.const 64) \
             (i32.const 7)) (drop (call $frame)) {function}))",
            &shout[..start]
        );
        put(dir, name, &told(name), &module);
        all += 1;
    }
    put(
        dir,
        "Wanting",
        &told("Wanting"),
        "(module (import \"env\" \"socket\" (func)) (memory (export \"memory\") 1) \
         (func (export \"_start\")))",
    );
    all + 1
}

fn told(name: &str) -> String {
    json!({
        "version": 1,
        "module": "shout.wasm",
        "memory": "2 MB",
        "answerWait": "5 sec",
        "fuel": 10_000_000,
        "processors": [{
            "name": name,
            "description": "Does what it should not.",
            "input": "required",
            "relationships": [{ "name": "success", "description": "What it gives." }],
        }],
    })
    .to_string()
}

fn put(dir: &Path, name: &str, told: &str, module: &str) {
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    let module = wat::parse_str(module).unwrap_or_else(|error| panic!("{name}: {error}"));
    std::fs::write(folder.join("shout.wasm"), module).unwrap();
    std::fs::write(folder.join("extension.json"), told).unwrap();
}

#[test]
fn a_module_is_a_processor_like_any_other() {
    extensions();
    let mut rig = Rig::new("ShoutText", &[]);
    for text in ["one, two!", "", "äöü and Z"] {
        rig.put(&[("kept", "1")], text);
    }
    rig.run();
    let out = rig.out("success");
    let texts: Vec<&str> = out.iter().map(|out| out.text()).collect();
    assert_eq!(texts, ["ONE, TWO!", "", "äöü AND Z"]);
    assert!(out.iter().all(|out| out.attribute("kept") == "1"));
}

#[test]
fn content_of_any_size_goes_through_a_module() {
    extensions();
    let mut rig = Rig::new("ShoutText", &[]);
    let long = "abcdefgh".repeat(400_000);
    rig.put(&[], &long);
    rig.run();
    assert!(rig.one("success").text() == long.to_uppercase());
}

#[test]
fn what_a_module_does_wrong_costs_one_trigger() {
    extensions();
    for (name, part) in [
        ("Endless", "it used up its fuel"),
        ("Greedy", "it exited with 3"),
        ("Outside", "outside of its memory"),
        ("Silent", "it was silent for 5 s"),
        ("Reached", "unreachable"),
        ("Wanting", "socket"),
    ] {
        let mut rig = Rig::new(name, &[]);
        rig.put(&[], "kept");
        let began = Instant::now();
        let error = rig.trigger().unwrap_err();
        assert!(error.contains(part), "{name}: {error}");
        assert!(error.contains("the extension 'shout.wasm'"), "{error}");
        assert_eq!((rig.counts(), rig.waiting()), (vec![], 1), "{name}");
        assert!(began.elapsed() < Duration::from_secs(20), "{name}");
    }
}
