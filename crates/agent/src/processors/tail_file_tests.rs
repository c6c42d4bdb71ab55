//! TailFile: every line once, over all that can become of files and of the agent.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::processors::packing::Format;
use crate::testing::{Rig, wait_until};

fn single(path: &Path, more: &[(&str, &str)]) -> Rig {
    let path = path.to_str().unwrap();
    Rig::new("TailFile", &[&[("File to Tail", path)], more].concat())
}

fn multiple(dir: &Path, names: &str, more: &[(&str, &str)]) -> Rig {
    let own = [
        ("tail-mode", "Multiple file"),
        ("tail-base-directory", dir.to_str().unwrap()),
        ("File to Tail", names),
        ("Keep Delimiter", "false"),
    ];
    Rig::new("TailFile", &[&own, more].concat())
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A tail whose lines leave without their delimiters.
fn bare(path: &Path, more: &[(&str, &str)]) -> Rig {
    single(path, &[&[("Keep Delimiter", "false")], more].concat())
}

/// Lines with these numbers, long enough that many of them have bytes of their own.
fn lines(numbers: std::ops::Range<usize>) -> String {
    numbers.map(|n| format!("line {n} of the log\n")).collect()
}

fn expected(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| format!("line {n} of the log")).collect()
}

/// Runs until so many FlowFiles came out, and a little longer, and takes them.
fn collect(rig: &mut Rig, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut calm = None;
    loop {
        rig.run();
        texts.extend(rig.out("success").iter().map(|out| out.text().to_owned()));
        if texts.len() >= count {
            let since = *calm.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_millis(50) {
                return texts;
            }
        }
        assert!(
            Instant::now() < deadline,
            "only {} came: {texts:?}",
            texts.len()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn app() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.log");
    (dir, path)
}

#[test]
fn lines_are_cut_and_an_unfinished_one_waits() {
    let (_dir, path) = app();
    append(&path, "one\n\ntwo\nthr");
    let mut rig = bare(&path, &[]);
    assert_eq!(collect(&mut rig, 3), ["one", "", "two"]);
    append(&path, "ee\n");
    rig.run();
    let out = rig.one("success");
    assert_eq!(out.text(), "three");
    assert_eq!(out.attribute("filename"), "app.9-13.log");
    assert_eq!(out.attribute("TextFragmentAttribute.base_name"), "");
    assert_eq!(out.attribute("absolute.path"), path.to_str().unwrap());
}

#[test]
fn lines_keep_their_delimiters_and_say_where_they_stood() {
    let (_dir, path) = app();
    append(&path, "one\n\ntwo\n");
    let mut rig = single(&path, &[]);
    rig.run();
    append(&path, "three\n");
    rig.run();
    // What the queue holds comes back from the disk.
    rig.kill();
    let out = rig.out("success");
    let seen: Vec<[&str; 4]> = out
        .iter()
        .map(|out| {
            let part = |name: &str| out.attribute(&format!("TextFragmentAttribute.{name}"));
            assert_eq!(part("base_name"), "app");
            assert_eq!(out.attributes.len(), 6, "{:?}", out.attributes);
            let name = out.attribute("filename");
            [out.text(), name, part("offset"), part("post_name")]
        })
        .collect();
    assert_eq!(
        seen,
        [
            ["one\n", "app.0-3.log", "0", "log"],
            ["\n", "app.4-4.log", "4", "log"],
            ["two\n", "app.5-8.log", "5", "log"],
            ["three\n", "app.9-14.log", "9", "log"],
        ]
    );
}

#[test]
fn a_kill_before_the_commit_reads_again_and_after_it_goes_on() {
    let (_dir, path) = app();
    append(&path, &lines(0..10));
    let mut rig = bare(&path, &[]);
    rig.kill();
    assert_eq!(collect(&mut rig, 10), expected(0..10));
    rig.kill();
    append(&path, &lines(10..12));
    assert_eq!(collect(&mut rig, 2), expected(10..12));
}

#[test]
fn batches_are_bounded_and_can_stay_together() {
    let (_dir, path) = app();
    append(&path, "a\nb\nc\n");
    let mut rig = single(&path, &[("Batch Size", "2")]);
    rig.trigger().unwrap();
    assert_eq!(rig.count("success"), 2);
    let more = [("Result Mode", "Flow file per batch"), ("Batch Size", "2")];
    let mut rig = bare(&path, &more);
    rig.run();
    let out = rig.out("success");
    let seen: Vec<(&str, &str)> = out
        .iter()
        .map(|out| (out.attribute("filename"), out.text()))
        .collect();
    assert_eq!(seen, [("app.0-3.log", "a\nb\n"), ("app.4-5.log", "c\n")]);
}

#[test]
fn delimiters_may_be_longer_and_may_be_missing() {
    let (_dir, path) = app();
    append(&path, "a\r\nb\nc\r\nd");
    let mut rig = bare(&path, &[("Input Delimiter", "\\r\\n")]);
    assert_eq!(collect(&mut rig, 2), ["a", "b\nc"]);
    let mut rig = bare(&path, &[("Input Delimiter", "")]);
    assert_eq!(collect(&mut rig, 1), ["a\r\nb\nc\r\nd"]);
}

#[test]
fn the_start_is_where_it_was_asked_for() {
    for (start, first) in [
        ("Beginning of Time", 0),
        ("Beginning of File", 10),
        ("Current Time", 20),
    ] {
        let (dir, path) = app();
        append(&dir.path().join("app.log.1"), &lines(0..10));
        std::thread::sleep(Duration::from_millis(20));
        append(&path, &lines(10..20));
        let mut rig = bare(&path, &[("Initial Start Position", start)]);
        rig.run();
        // Killed before the first line was read, it does not forget where it began.
        if start == "Current Time" {
            rig.kill();
        }
        append(&path, &lines(20..25));
        let count = 25 - first;
        assert_eq!(collect(&mut rig, count), expected(first..25), "{start}");
    }
}

#[test]
fn a_file_that_comes_later_is_read_whole_even_from_now_on() {
    let (_dir, path) = app();
    let mut rig = bare(&path, &[("Initial Start Position", "Current Time")]);
    rig.run();
    append(&path, &lines(0..3));
    assert_eq!(collect(&mut rig, 3), expected(0..3));
}

/// What rotation does to `path`, which `other` is made of.
type Rotation = fn(path: &Path, other: &Path);

fn rename(path: &Path, other: &Path) {
    fs::rename(path, other).unwrap();
}

fn copy_truncate(path: &Path, other: &Path) {
    fs::copy(path, other).unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(0).unwrap();
}

fn compress(path: &Path, other: &Path) {
    let mut plain = fs::File::open(path).unwrap();
    let other = format!("{}.gz", other.display());
    let mut packed = fs::File::create(other).unwrap();
    Format::Gzip.pack(6, &mut plain, &mut packed).unwrap();
    fs::remove_file(path).unwrap();
}

const ROTATIONS: [(&str, Rotation); 3] = [
    ("rename", rename),
    ("copy and truncate", copy_truncate),
    ("compress", compress),
];

#[test]
fn rotation_loses_nothing_while_it_runs_and_while_it_is_away() {
    for (name, rotate) in ROTATIONS {
        for is_away in [false, true] {
            let (dir, path) = app();
            append(&path, &lines(0..40));
            let mut rig = bare(&path, &[]);
            let mut seen = collect(&mut rig, 40);
            // Not seen before the file is rotated, with an unfinished line at the end.
            append(&path, &lines(40..45));
            append(&path, "line 45 of the log");
            rotate(&path, &dir.path().join("app.log.1"));
            if is_away {
                rig.kill();
            }
            append(&path, &lines(46..50));
            seen.append(&mut collect(&mut rig, 10));
            assert_eq!(seen, expected(0..50), "{name}, away: {is_away}");
        }
    }
}

#[test]
fn a_file_that_was_truncated_and_has_grown_past_what_was_read_is_seen_as_another() {
    for is_away in [false, true] {
        let (dir, path) = app();
        append(&path, &lines(0..100));
        let mut rig = bare(&path, &[]);
        let mut seen = collect(&mut rig, 100);
        // Held back meanwhile: what the copy has more than that is not read yet.
        append(&path, &lines(100..120));
        copy_truncate(&path, &dir.path().join("app.log.1"));
        append(&path, &lines(120..300));
        if is_away {
            rig.kill();
        }
        seen.append(&mut collect(&mut rig, 200));
        assert_eq!(seen, expected(0..300), "away: {is_away}");
    }
}

#[test]
fn two_rotations_while_it_is_away_are_both_read() {
    for (name, rotate) in ROTATIONS {
        let (dir, path) = app();
        append(&path, &lines(0..40));
        let mut rig = bare(&path, &[]);
        let mut seen = collect(&mut rig, 40);
        append(&path, &lines(40..50));
        rotate(&path, &dir.path().join("app.log.1"));
        std::thread::sleep(Duration::from_millis(20));
        append(&path, &lines(50..60));
        rotate(&path, &dir.path().join("app.log.2"));
        std::thread::sleep(Duration::from_millis(20));
        rig.kill();
        append(&path, &lines(60..70));
        seen.append(&mut collect(&mut rig, 30));
        assert_eq!(seen, expected(0..70), "{name}");
    }
}

#[test]
fn from_the_beginning_of_time_on_a_file_is_read_that_was_rolled_before_it_was_seen() {
    let (dir, path) = app();
    let mut rig = bare(&path, &[("Initial Start Position", "Beginning of Time")]);
    rig.run();
    append(&path, &lines(0..10));
    rename(&path, &dir.path().join("app.log.1"));
    append(&path, &lines(10..20));
    assert_eq!(collect(&mut rig, 20), expected(0..20));
}

#[test]
fn files_rolled_at_one_moment_come_in_the_order_in_which_they_were_made() {
    let (dir, path) = app();
    let mut rig = bare(&path, &[]);
    let moment = std::time::SystemTime::now();
    for (at, name) in ["app.log.8", "app.log.9", "app.log.10"]
        .into_iter()
        .enumerate()
    {
        append(&path, &lines(at * 10..at * 10 + 10));
        if at == 0 {
            assert_eq!(collect(&mut rig, 10), expected(0..10));
        }
        let rolled = dir.path().join(name);
        rename(&path, &rolled);
        let file = OpenOptions::new().write(true).open(rolled).unwrap();
        file.set_modified(moment).unwrap();
        // Only what they were last written at is the same.
        std::thread::sleep(Duration::from_millis(20));
    }
    append(&path, &lines(30..40));
    assert_eq!(collect(&mut rig, 30), expected(10..40));
}

#[test]
fn a_new_file_with_the_old_ones_inode_is_not_taken_for_it() {
    let (_dir, path) = app();
    // The same first bytes, as a header has them, and more of them than were read.
    let header = "# header of every file of this application\n".repeat(8);
    append(&path, &header);
    append(&path, &lines(0..5));
    let mut rig = bare(&path, &[]);
    assert_eq!(collect(&mut rig, 13).len(), 13);
    rig.kill();
    // Written over in place: as if the number had been given to another file.
    let text = format!("{header}{}", lines(100..120));
    fs::write(&path, text).unwrap();
    let seen = collect(&mut rig, 28);
    assert_eq!(seen[8..], expected(100..120));
}

#[test]
fn several_files_are_followed_and_rolled_ones_are_theirs() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["a.log", "b.log", "sub/c.log", "other.txt"] {
        append(&path(name), &format!("{name} 1\n"));
    }
    append(&path("a.log.1"), "old\n");
    let mut rig = multiple(dir.path(), r".*\.log(\.\d+)?", &[]);
    let mut seen = collect(&mut rig, 2);
    seen.sort();
    assert_eq!(seen, ["a.log 1", "b.log 1"]);
    // Rotated, and a new one appears; the kernel or the lookup tells.
    append(&path("a.log"), "a.log 2\n");
    fs::rename(path("a.log"), path("a.log.2")).unwrap();
    append(&path("a.log"), "a.log 3\n");
    append(&path("new.log"), "new.log 1\n");
    rig.advance(Duration::from_secs(600));
    let mut seen = collect(&mut rig, 3);
    seen.sort();
    assert_eq!(seen, ["a.log 2", "a.log 3", "new.log 1"]);
    rig.kill();
    append(&path("b.log"), "b.log 2\n");
    append(&path("new.log"), "new.log 2\n");
    let mut seen = collect(&mut rig, 2);
    seen.sort();
    assert_eq!(seen, ["b.log 2", "new.log 2"]);
}

#[test]
fn lookup_goes_into_folders_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("x/y")).unwrap();
    append(&dir.path().join("x/y/a.log"), "deep\n");
    let mut rig = multiple(dir.path(), "a.log", &[("Recursive lookup", "true")]);
    rig.run();
    let out = rig.one("success");
    assert_eq!(out.text(), "deep");
    let folder = dir.path().join("x/y");
    assert_eq!(out.attribute("path"), folder.to_str().unwrap());
}

#[test]
fn a_removed_file_leaves_with_its_last_line_and_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    append(&path, "one\ntwo");
    let mut rig = multiple(dir.path(), ".*", &[("Lookup frequency", "0 sec")]);
    assert_eq!(collect(&mut rig, 1), ["one"]);
    assert!(String::from_utf8_lossy(&rig.state()).contains("a.log"));
    fs::remove_file(&path).unwrap();
    assert_eq!(collect(&mut rig, 1), ["two"]);
    let deadline = Instant::now() + Duration::from_secs(10);
    while String::from_utf8_lossy(&rig.state()).contains("a.log") {
        assert!(Instant::now() < deadline, "it is remembered for ever");
        rig.run();
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_state_of_the_first_version_is_understood() {
    let (_dir, path) = app();
    append(&path, &lines(0..2));
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
    let old = format!(
        r#"{{"version":1,"device":1,"inode":{inode},"fingerprint":0,"fingerprint_bytes":0,"position":18}}"#
    );
    let known = super::known::from_bytes(old.as_bytes(), &path).unwrap();
    assert_eq!(
        (known[0].0.as_path(), known[0].1.position),
        (path.as_path(), 18)
    );
    let again = super::known::to_bytes(known.iter().map(|(path, known)| (path.as_path(), known)));
    assert_eq!(
        super::known::from_bytes(&again, Path::new("")).unwrap(),
        known
    );
}

#[test]
fn mistakes_are_told_at_the_start() {
    for (properties, part) in [
        (
            vec![("File to Tail", "x"), ("tail-mode", "Multiple file")],
            "tail-base-directory is needed",
        ),
        (vec![("File to Tail", "/")], "names no file"),
        (
            vec![
                ("File to Tail", "("),
                ("tail-mode", "Multiple file"),
                ("tail-base-directory", "/tmp"),
            ],
            "File to Tail: ",
        ),
    ] {
        let made = Rig::try_new("TailFile", &properties, serde_json::json!({}));
        let error = made.err().unwrap();
        assert!(error.contains(part), "{error}");
    }
}

/// Logs of pods as the kubelet keeps them.
fn log_of(pods: &Path, pod: &str, container: &str, text: &str) {
    let folder = pods.join(pod).join(container);
    fs::create_dir_all(&folder).unwrap();
    append(&folder.join("0.log"), text);
}

#[test]
fn containers_logs_tell_whose_they_are_also_of_pods_that_come_later() {
    let dir = tempfile::tempdir().unwrap();
    let pods = dir.path().join("pods");
    log_of(&pods, "shop_web-1_u1", "app", "one\n");
    log_of(&pods, "shop_web-1_u1", "istio", "filtered\n");
    log_of(&pods, "shop_db-0_u2", "app", "filtered\n");
    log_of(&pods, "kube-system_web-2_u3", "app", "filtered\n");
    log_of(&pods, "no pod", "app", "filtered\n");
    log_of(&pods, "shop_web-9_u_4", "app", "filtered\n");
    fs::write(pods.join("shop_web-8_u8"), "a file").unwrap();
    let base = format!(
        "{}/${{namespace}}_${{pod}}_${{uid}}/${{container}}",
        pods.display()
    );
    let services = json!({ "Controller Services": [{
        "id": "node",
        "name": "node",
        "class": "KubernetesControllerService",
        "Properties": {
            "Namespace Filter": "shop",
            "Pod Name Filter": "web-.*",
            "Container Name Filter": "ap",
            "Pod Log Directory": pods.to_str().unwrap(),
        },
    }] });
    let own = [
        ("tail-mode", "Multiple file"),
        ("tail-base-directory", base.as_str()),
        ("File to Tail", r".*\.log"),
        ("Keep Delimiter", "false"),
        ("Attribute Provider Service", "node"),
    ];
    let mut rig = Rig::try_new("TailFile", &own, services.clone()).unwrap();
    rig.run();
    // A filter is of the whole name.
    assert_eq!(rig.count("success"), 0);
    let text = services.to_string().replace("\"ap\"", "\"app?\"");
    let services = serde_json::from_str(&text).unwrap();
    let mut rig = Rig::try_new("TailFile", &own, services).unwrap();
    let next = |rig: &mut Rig, line: &str, pod: &str, uid: &str| {
        wait_until("a line comes", || {
            rig.run();
            rig.count("success") > 0
        });
        let out = rig.one("success");
        assert_eq!(out.text(), line);
        for (name, value) in [
            ("kubernetes.namespace", "shop"),
            ("kubernetes.pod", pod),
            ("kubernetes.uid", uid),
            ("kubernetes.container", "app"),
        ] {
            assert_eq!(out.attribute(name), value, "{name} of {line}");
        }
    };
    next(&mut rig, "one", "web-1", "u1");
    // Nothing but the kernel tells of it: files are looked for each ten minutes.
    fs::create_dir(pods.join("shop_web-3_u5")).unwrap();
    rig.run();
    log_of(&pods, "shop_web-3_u5", "app", "two\n");
    next(&mut rig, "two", "web-3", "u5");
    rig.kill();
    log_of(&pods, "shop_web-1_u1", "app", "three\n");
    next(&mut rig, "three", "web-1", "u1");
    // What a pod said last is its own, though it is gone from the node.
    log_of(&pods, "shop_web-3_u5", "app", "four\n");
    fs::remove_dir_all(pods.join("shop_web-3_u5")).unwrap();
    log_of(&pods, "shop_web-4_u6", "app", "");
    next(&mut rig, "four", "web-3", "u5");
}

#[test]
fn logrotate_itself_loses_nothing() {
    let has_it = Command::new("logrotate").arg("--version").output().is_ok();
    if !has_it {
        eprintln!("logrotate is not there to be tried");
        return;
    }
    let (dir, path) = app();
    let config = dir.path().join("logrotate.conf");
    let mut rig = bare(&path, &[]);
    let mut seen = Vec::new();
    for (round, how) in ["", "copytruncate", "compress", "compress\ndelaycompress"]
        .iter()
        .enumerate()
    {
        let text = format!("{} {{\nrotate 9\n{how}\n}}\n", path.display());
        fs::write(&config, text).unwrap();
        let first = round * 20;
        append(&path, &lines(first..first + 20));
        if round % 2 == 1 {
            seen.append(&mut collect(&mut rig, 20));
        }
        let status = dir.path().join("status");
        let done = Command::new("logrotate")
            .args(["--force", "--state"])
            .args([&status, &config])
            .status();
        assert!(done.unwrap().success());
    }
    append(&path, &lines(80..81));
    let left = 81 - seen.len();
    seen.append(&mut collect(&mut rig, left));
    seen.sort();
    let mut all = expected(0..81);
    all.sort();
    assert_eq!(seen, all);
}
