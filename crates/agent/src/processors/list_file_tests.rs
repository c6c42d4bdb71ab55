//! ListFile: each file once, over restarts and changes.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::processors::Next;
use crate::testing::{Out, Rig};

fn rig(dir: &Path, more: &[(&str, &str)]) -> Rig {
    let dir = dir.to_str().unwrap();
    Rig::new("ListFile", &[&[("Input Directory", dir)], more].concat())
}

fn names(out: &[Out]) -> Vec<&str> {
    out.iter().map(|out| out.attribute("filename")).collect()
}

/// Writes a file that changed so many seconds after an arbitrary instant.
fn write(path: &Path, second: u64) {
    fs::write(path, "some").unwrap();
    let file = File::options().append(true).open(path).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second);
    file.set_modified(at).unwrap();
}

#[test]
fn attributes_say_what_the_file_system_says() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let path = dir.path().join("sub/a.txt");
    write(&path, 0);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let mut rig = rig(dir.path(), &[]);
    rig.trigger().unwrap();
    let out = rig.one("success");
    assert_eq!(out.text(), "");
    let folder = format!("{}/sub/", dir.path().display());
    for (name, value) in [
        ("filename", "a.txt"),
        ("path", "sub/"),
        ("absolute.path", folder.as_str()),
        ("file.size", "4"),
        ("file.permissions", "rw-r-----"),
        ("file.lastModifiedTime", "2023-11-14T22:13:20Z"),
    ] {
        assert_eq!(out.attribute(name), value, "{name}");
    }
    let owner = fs::metadata(&path).unwrap().uid();
    if owner == 0 {
        assert_eq!(out.attribute("file.owner"), "root");
    } else {
        assert!(!out.attribute("file.owner").is_empty());
    }
}

#[test]
fn each_file_is_told_of_once_and_again_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = rig(dir.path(), &[]);
    assert_eq!(rig.trigger(), Ok(Next::Woken(super::IDLE)));
    write(&dir.path().join("b"), 1);
    write(&dir.path().join("a"), 2);
    rig.trigger().unwrap();
    assert_eq!(names(&rig.out("success")), ["b", "a"]);
    rig.kill();
    assert_eq!(rig.trigger(), Ok(Next::Woken(super::IDLE)));
    // One that changed at the same instant, and one that changed again.
    write(&dir.path().join("c"), 2);
    write(&dir.path().join("b"), 3);
    rig.trigger().unwrap();
    assert_eq!(names(&rig.out("success")), ["c", "b"]);
}

#[test]
fn files_of_the_newest_instant_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), 1);
    let mut rig = rig(dir.path(), &[]);
    rig.trigger().unwrap();
    write(&dir.path().join("b"), 1);
    rig.kill();
    rig.trigger().unwrap();
    assert_eq!(names(&rig.out("success")), ["a", "b"]);
    assert_eq!(rig.trigger(), Ok(Next::Woken(super::IDLE)));
}

#[test]
fn the_path_filter_is_about_folders_only() {
    let dir = tempfile::tempdir().unwrap();
    for (index, name) in ["top", "x/a", "x/y/b", "z/c"].iter().enumerate() {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        write(&path, index as u64);
    }
    let mut rig = rig(dir.path(), &[("Path Filter", "x(/y)?")]);
    rig.trigger().unwrap();
    assert_eq!(names(&rig.out("success")), ["top", "a", "b"]);
}
