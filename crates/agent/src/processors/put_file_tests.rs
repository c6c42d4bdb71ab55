//! PutFile: names, conflicts, permissions, counts, crashes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::testing::Rig;

fn rig(dir: &Path, more: &[(&str, &str)]) -> Rig {
    let dir = dir.to_str().unwrap();
    Rig::new("PutFile", &[&[("Directory", dir)], more].concat())
}

/// Names and contents of all files in `dir`, hidden ones too.
fn files(dir: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read_to_string(entry.path()).unwrap())
    });
    let mut files: Vec<(String, String)> = entries.collect();
    files.sort();
    files
}

fn pair(name: &str, content: &str) -> (String, String) {
    (name.to_owned(), content.to_owned())
}

#[test]
fn files_are_named_by_their_attribute_or_their_uuid() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("${kind}");
    let mut rig = rig(&folder, &[]);
    rig.put(&[("filename", "a.txt"), ("kind", "x/y")], "one");
    rig.put(&[("kind", "x/y")], "two");
    rig.run();
    let out = rig.out("success");
    let mut expected = vec![pair("a.txt", "one"), pair(&out[1].uuid, "two")];
    expected.sort();
    assert_eq!(files(&dir.path().join("x/y")), expected);
}

#[test]
fn a_conflict_ends_as_told() {
    for (strategy, relationship, content) in [
        ("fail", "failure", "old"),
        ("ignore", "success", "old"),
        ("replace", "success", "new"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "old").unwrap();
        let mut rig = rig(dir.path(), &[("Conflict Resolution Strategy", strategy)]);
        rig.put(&[("filename", "a")], "new");
        rig.run();
        assert_eq!(rig.counts(), [(relationship, 1)], "{strategy}");
        assert_eq!(files(dir.path()), [pair("a", content)], "{strategy}");
    }
}

#[test]
fn a_crash_at_any_step_leaves_one_whole_file_and_one_success() {
    for strategy in ["fail", "ignore", "replace"] {
        for place in ["put_file.written", "put_file.named", "files.committed"] {
            if (strategy, place) == ("replace", "files.committed") {
                // Nothing is left to be settled then.
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            let mut rig = rig(dir.path(), &[("Conflict Resolution Strategy", strategy)]);
            rig.put(&[("filename", "a")], "content");
            rig.kill_at(place);
            rig.run();
            rig.trigger().unwrap();
            let seen = format!("{strategy} at {place}");
            assert_eq!(rig.counts(), [("success", 1)], "{seen}");
            assert_eq!(files(dir.path()), [pair("a", "content")], "{seen}");
        }
    }
}

#[test]
fn permissions_are_set_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let more = [("Permissions", "606"), ("Directory Permissions", "0777")];
    let mut rig = rig(&folder, &more);
    rig.put(&[("filename", "a")], "x");
    rig.run();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.join("a")), mode(&folder)), (0o606, 0o777));
    for bad in ["9", "rw-r--r--", "1777"] {
        let made = Rig::try_new("PutFile", &[("Permissions", bad)], serde_json::json!({}));
        let error = made.err().unwrap();
        assert!(error.contains("three octal digits"), "{error}");
    }
}

#[test]
fn a_full_or_missing_folder_is_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let mut full = rig(dir.path(), &[("Maximum File Count", "2")]);
    for name in ["a", "b", "c"] {
        full.put(&[("filename", name)], "x");
    }
    full.run();
    assert_eq!(full.counts(), [("success", 2), ("failure", 1)]);
    let missing = dir.path().join("missing");
    let mut missing = rig(&missing, &[("Create Missing Directories", "false")]);
    missing.put(&[("filename", "a")], "x");
    missing.run();
    assert_eq!(missing.counts(), [("failure", 1)]);
    assert!(missing.bulletins()[0].contains("cannot write"));
}

#[test]
fn a_name_cannot_leave_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = rig(&dir.path().join("in"), &[]);
    for name in ["../a", "/etc/a", "..", "b/c"] {
        rig.put(&[("filename", name)], "x");
    }
    rig.run();
    assert_eq!(rig.counts(), [("failure", 4)]);
    assert!(!dir.path().join("a").exists());
}
