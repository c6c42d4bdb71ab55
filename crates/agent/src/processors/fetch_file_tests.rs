//! FetchFile: contents, where FlowFiles go, what becomes of files.

use std::fs;
use std::path::Path;

use crate::testing::Rig;

/// A folder with a file `a` of `content`, and the properties for the rest.
fn fetch(dir: &Path, more: &[(&str, &str)]) -> Rig {
    fs::write(dir.join("a"), "content").unwrap();
    let mut rig = Rig::new("FetchFile", more);
    put(&mut rig, dir, "a");
    rig
}

fn put(rig: &mut Rig, dir: &Path, name: &str) {
    let folder = format!("{}/", dir.display());
    rig.put(&[("absolute.path", &folder), ("filename", name)], "before");
}

#[test]
fn the_content_is_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = fetch(dir.path(), &[]);
    rig.run();
    let out = rig.one("success");
    assert_eq!((out.text(), out.attribute("filename")), ("content", "a"));
    assert!(dir.path().join("a").exists());
}

#[test]
fn flow_files_go_where_their_trouble_leads() {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("{}/${{name}}", dir.path().display());
    let mut rig = fetch(dir.path(), &[("File to Fetch", &file)]);
    fs::create_dir(dir.path().join("folder")).unwrap();
    for name in ["a", "missing", "folder"] {
        rig.put(&[("name", name)], "before");
    }
    rig.run();
    // The first has no attribute 'name', so the folder itself is meant.
    let counts = [("success", 1), ("not.found", 3)];
    assert_eq!(rig.counts(), counts);
    assert_eq!(rig.out("not.found")[0].text(), "before");
    assert!(
        rig.bulletins()[0].contains("cannot fetch"),
        "{:?}",
        rig.bulletins()
    );
}

#[test]
fn a_missing_file_is_told_as_loud_as_asked() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::new("FetchFile", &[("Log level when file not found", "OFF")]);
    put(&mut rig, dir.path(), "missing");
    rig.run();
    assert_eq!(
        (rig.counts(), rig.bulletins().len()),
        (vec![("not.found", 1)], 0)
    );
}

#[test]
fn a_deleted_file_is_gone_after_the_commit_whatever_crashes() {
    for place in ["files.committed", "files.settled"] {
        let dir = tempfile::tempdir().unwrap();
        let mut rig = fetch(dir.path(), &[("Completion Strategy", "Delete File")]);
        rig.kill_at(place);
        assert_eq!(dir.path().join("a").exists(), place == "files.committed");
        rig.trigger().unwrap();
        assert!(!dir.path().join("a").exists(), "{place}");
        assert_eq!(rig.one("success").text(), "content");
    }
}

#[test]
fn moved_files_meet_others_as_told() {
    for (conflict, relationship, kept, there) in [
        ("Rename", "success", false, vec!["content", "other"]),
        ("Replace File", "success", false, vec!["content"]),
        ("Keep Existing", "success", false, vec!["other"]),
        ("Fail", "failure", true, vec!["other"]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("done/today");
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("a"), "other").unwrap();
        let more = [
            ("Completion Strategy", "Move File"),
            ("Move Destination Directory", to.to_str().unwrap()),
            ("Move Conflict Strategy", conflict),
        ];
        let mut rig = fetch(dir.path(), &more);
        rig.run();
        assert_eq!(rig.counts(), [(relationship, 1)], "{conflict}");
        assert_eq!(dir.path().join("a").exists(), kept, "{conflict}");
        let entries = fs::read_dir(&to).unwrap();
        let mut contents: Vec<String> = entries
            .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        contents.sort();
        assert_eq!(contents, there, "{conflict}");
    }
}

#[test]
fn a_file_is_moved_into_a_folder_that_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("done/today");
    let more = [
        ("Completion Strategy", "Move File"),
        ("Move Destination Directory", to.to_str().unwrap()),
    ];
    let mut rig = fetch(dir.path(), &more);
    rig.run();
    assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "content");
}

#[test]
fn moving_needs_a_place() {
    let properties = [("Completion Strategy", "Move File")];
    let made = Rig::try_new("FetchFile", &properties, serde_json::json!({}));
    let error = made.err().unwrap();
    assert!(
        error.contains("Move Destination Directory is needed"),
        "{error}"
    );
}
