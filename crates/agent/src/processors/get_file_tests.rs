//! GetFile: which files, when they go, and crashes in between.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::processors::Next;
use crate::testing::Rig;

fn rig(dir: &Path, more: &[(&str, &str)]) -> Rig {
    let dir = dir.to_str().unwrap();
    Rig::new("GetFile", &[&[("Input Directory", dir)], more].concat())
}

/// The names of what came out, sorted.
fn names(rig: &mut Rig) -> Vec<String> {
    let all = rig.out("success").into_iter();
    let mut names: Vec<String> = all
        .map(|out| out.attribute("filename").to_owned())
        .collect();
    names.sort();
    names
}

fn left(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn files_become_flow_files_and_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("a.txt"), "one").unwrap();
    fs::write(dir.path().join("sub/b.txt"), "").unwrap();
    let mut rig = rig(dir.path(), &[]);
    rig.run();
    let mut out = rig.out("success");
    out.sort_by_key(|out| out.attribute("filename").to_owned());
    let folder = dir.path().display();
    let seen: Vec<[String; 4]> = out
        .iter()
        .map(|out| {
            let attribute = |name| out.attribute(name).to_owned();
            let content = out.text().to_owned();
            [
                attribute("filename"),
                attribute("path"),
                attribute("absolute.path"),
                content,
            ]
        })
        .collect();
    let expected = [
        ["a.txt", "./", &format!("{folder}/"), "one"],
        ["b.txt", "sub/", &format!("{folder}/sub/"), ""],
    ];
    assert_eq!(seen, expected);
    assert_eq!(left(dir.path()), ["sub"]);
    assert_eq!(left(&dir.path().join("sub")), [""; 0]);
    assert!(rig.state().is_empty());
    let next = rig.trigger().unwrap();
    assert!(matches!(next, Next::Woken(_)), "{next:?} would not rest");
    assert_eq!(rig.counts(), []);
}

#[test]
fn a_batch_is_one_commit_and_the_rest_follows_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for index in 0..25 {
        fs::write(dir.path().join(format!("{index:02}")), "x").unwrap();
    }
    let mut rig = rig(dir.path(), &[]);
    assert_eq!(rig.trigger(), Ok(Next::Again));
    assert_eq!(rig.count("success"), 10);
    rig.run();
    assert_eq!(names(&mut rig).len(), 25);
    assert_eq!(left(dir.path()), [""; 0]);
}

#[test]
fn a_crash_before_the_commit_leaves_the_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "x").unwrap();
    let mut rig = rig(dir.path(), &[]);
    rig.kill_at("files.read");
    assert_eq!(left(dir.path()), ["a"]);
    assert_eq!(rig.counts(), []);
    rig.run();
    assert_eq!(names(&mut rig), ["a"]);
}

#[test]
fn a_crash_after_the_commit_neither_loses_nor_doubles() {
    for place in ["files.committed", "files.settled"] {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let mut rig = rig(dir.path(), &[("Batch Size", "1")]);
        rig.kill_at(place);
        let was_left = if place == "files.committed" { 2 } else { 1 };
        assert_eq!(left(dir.path()).len(), was_left, "{place}");
        rig.run();
        assert_eq!(names(&mut rig), ["a", "b"], "{place}");
        assert_eq!(left(dir.path()), [""; 0], "{place}");
    }
}

#[test]
fn a_file_that_was_written_anew_after_the_crash_is_taken_and_not_just_removed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    fs::write(&file, "old").unwrap();
    let mut rig = rig(dir.path(), &[]);
    rig.kill_at("files.committed");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "newer").unwrap();
    rig.run();
    let out = rig.out("success");
    let texts: Vec<&str> = out.iter().map(|out| out.text()).collect();
    assert_eq!(texts, ["old", "newer"]);
    assert_eq!(left(dir.path()), [""; 0]);
}

#[test]
fn properties_choose_the_files() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::create_dir(dir.path().join(".hidden")).unwrap();
    let hour = Duration::from_secs(3_600);
    for (name, bytes, age) in [
        ("small.log", 1, hour),
        ("large.log", 5_000, hour),
        ("good.log", 100, hour),
        ("young.log", 100, Duration::ZERO),
        ("old.log", 100, 100 * hour),
        (".dot.log", 100, hour),
        ("other.txt", 100, hour),
        ("good.log.bak", 100, hour),
        ("sub/deep.log", 100, hour),
        (".hidden/deep2.log", 100, hour),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, vec![b'x'; bytes]).unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
    symlink("good.log", dir.path().join("link.log")).unwrap();
    symlink(".", dir.path().join("loop")).unwrap();
    let chosen = [
        ("Keep Source File", "true"),
        ("File Filter", r".*\.log"),
        ("Minimum File Age", "1 min"),
        ("Maximum File Age", "1 day"),
        ("Minimum File Size", "10 B"),
        ("Maximum File Size", "1 KB"),
    ];
    let mut all = rig(dir.path(), &chosen);
    all.run();
    assert_eq!(
        names(&mut all),
        ["deep.log", "deep2.log", "good.log", "link.log"]
    );
    let flat = [
        ("Recurse Subdirectories", "false"),
        ("Ignore Hidden Files", "false"),
    ];
    let mut flat = rig(dir.path(), &[chosen.as_slice(), &flat].concat());
    flat.run();
    assert_eq!(names(&mut flat), [".dot.log", "good.log", "link.log"]);
    assert_eq!(left(dir.path()).len(), 12, "something was removed");
}

#[test]
fn kept_files_come_again_but_not_before_the_polling_interval() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "x").unwrap();
    let more = [("Keep Source File", "true"), ("Polling Interval", "10 sec")];
    let mut rig = rig(dir.path(), &more);
    rig.run();
    rig.run();
    assert_eq!(names(&mut rig), ["a"]);
    rig.advance(Duration::from_secs(10));
    rig.run();
    assert_eq!(names(&mut rig), ["a"]);
}

#[test]
fn a_folder_that_is_not_there_is_told_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("later");
    let mut rig = rig(&folder, &[]);
    let error = rig.trigger().unwrap_err();
    assert!(
        error.contains("cannot list") && error.contains("later"),
        "{error}"
    );
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "x").unwrap();
    rig.run();
    assert_eq!(names(&mut rig), ["a"]);
}
