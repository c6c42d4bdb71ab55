//! MergeContent: what becomes of many, and what becomes of them in a crash.

use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::time::Duration;

use crate::fail_point;
use crate::processors::Next;
use crate::processors::flow_file_stream;
use crate::testing::Rig;

/// What a flow gets that does not say how.
fn packing(more: &[(&str, &str)]) -> Rig {
    Rig::new("MergeContent", more)
}

fn defragmenting(more: &[(&str, &str)]) -> Rig {
    Rig::new(
        "MergeContent",
        &[&[("Merge Strategy", "Defragment")], more].concat(),
    )
}

#[test]
fn a_bin_is_merged_when_it_has_enough_and_its_originals_go_along() {
    let mut rig = packing(&[("Minimum Number of Entries", "3")]);
    for (name, text) in [("a", "one "), ("b", "two "), ("c", "three"), ("d", "four")] {
        rig.put(
            &[
                ("filename", name),
                ("kind", "x"),
                ("mime.type", "text/plain"),
            ],
            text,
        );
    }
    rig.run();
    assert_eq!(rig.counts(), [("merged", 1), ("original", 3)]);
    let merged = rig.one("merged");
    assert_eq!(merged.text(), "one two three");
    assert_eq!(merged.attribute("kind"), "x");
    assert_eq!(merged.attribute("filename"), "");
    assert_eq!(merged.attribute("merge.count"), "3");
    assert_eq!(merged.attribute("mime.type"), "application/octet-stream");
    let originals = rig.out("original");
    let names: Vec<&str> = originals
        .iter()
        .map(|out| out.attribute("filename"))
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn what_waits_in_a_bin_survives_a_crash_at_any_step() {
    let mut rig = packing(&[("Minimum Number of Entries", "3")]);
    rig.put(&[], "one ");
    rig.put(&[], "two ");
    rig.run();
    assert_eq!((rig.waiting(), rig.counts()), (0, vec![]));
    rig.kill();
    assert_eq!(rig.waiting(), 2, "what waited in a bin is lost");
    rig.run();
    rig.put(&[], "three ");
    rig.kill_at("merge_content.merged");
    assert_eq!((rig.waiting(), rig.counts()), (3, vec![]));
    rig.run();
    assert_eq!(rig.one("merged").text(), "one two three ");
    rig.kill();
    assert_eq!((rig.waiting(), rig.count("original")), (0, 3));
}

#[test]
fn a_panic_with_one_bin_leaves_the_others_where_they_are() {
    let more = [
        ("Correlation Attribute Name", "host"),
        ("Minimum Number of Entries", "2"),
        ("Max Bin Age", "10 s"),
    ];
    let mut rig = packing(&more);
    for host in ["a", "b"] {
        rig.put(&[("host", host)], host);
    }
    rig.run();
    // Both are old at once.
    rig.advance(Duration::from_secs(10));
    fail_point::arm(Some(("merge_content.merged", 1)));
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| rig.trigger()));
    fail_point::arm(None);
    assert!(panicked.is_err());
    // As the engine would go on, after a rest.
    rig.advance(Duration::from_secs(10));
    rig.run();
    rig.advance(Duration::from_secs(10));
    rig.run();
    let mut merged: Vec<String> = Vec::new();
    merged.extend(rig.out("merged").iter().map(|out| out.text().to_owned()));
    merged.sort();
    assert_eq!(merged, ["a", "b"]);
}

#[test]
fn waiting_in_a_bin_does_not_hold_back_what_comes() {
    // More than the connection's own threshold of 2,000.
    let mut rig = packing(&[("Minimum Number of Entries", "2500")]);
    for _ in 0..2_500 {
        rig.put(&[], "x");
        rig.trigger().unwrap();
    }
    assert_eq!(rig.one("merged").content.len(), 2_500);
}

#[test]
fn an_old_bin_is_merged_without_company_or_input() {
    let more = [
        ("Minimum Number of Entries", "9"),
        ("Max Bin Age", "10 sec"),
    ];
    let mut rig = packing(&more);
    rig.put(&[("filename", "a")], "alone");
    assert_eq!(
        rig.trigger(),
        Ok(Next::ScheduledOr(Duration::from_secs(10)))
    );
    rig.advance(Duration::from_secs(9));
    assert_eq!(rig.trigger(), Ok(Next::ScheduledOr(Duration::from_secs(1))));
    rig.advance(Duration::from_secs(1));
    assert_eq!(rig.trigger(), Ok(Next::Scheduled));
    let merged = rig.one("merged");
    assert_eq!(
        (merged.text(), merged.attribute("filename")),
        ("alone", "a")
    );
    assert_eq!(merged.attribute("merge.bin.age"), "10000");
}

#[test]
fn groups_are_kept_apart() {
    let more = [
        ("Correlation Attribute Name", "host"),
        ("Minimum Number of Entries", "2"),
    ];
    let mut rig = packing(&more);
    for (host, text) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "4")] {
        rig.put(&[("host", host)], text);
    }
    rig.run();
    let merged = rig.out("merged");
    let seen: Vec<(&str, &str)> = merged
        .iter()
        .map(|out| (out.attribute("host"), out.text()))
        .collect();
    assert_eq!(seen, [("a", "13"), ("b", "24")]);
}

#[test]
fn sizes_and_counts_bound_a_bin() {
    let more = [
        ("Minimum Group Size", "4 B"),
        ("Maximum Group Size", "6 B"),
        ("Maximum number of Bins", "1"),
    ];
    let mut rig = packing(&more);
    for text in ["abc", "defg", "h", "ij"] {
        rig.put(&[], text);
    }
    rig.run();
    let merged = rig.out("merged");
    let texts: Vec<&str> = merged.iter().map(|out| out.text()).collect();
    // "defg" does not fit to "abc" and is enough by itself; then "h" comes to "abc".
    assert_eq!(texts, ["defg", "abch"]);
}

#[test]
fn header_demarcator_and_footer_stand_around_contents() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("demarcator");
    std::fs::write(&file, ", ").unwrap();
    let common = ("Minimum Number of Entries", "3");
    let texts = [
        common,
        ("Delimiter Strategy", "Text"),
        ("Header File", "["),
        ("Demarcator File", ", "),
        ("Footer File", "]"),
    ];
    let files = [common, ("Demarcator File", file.to_str().unwrap())];
    for (more, expected) in [(&texts[..], "[1, , 3]"), (&files[..], "1, , 3")] {
        let mut rig = packing(more);
        for text in ["1", "", "3"] {
            rig.put(&[], text);
        }
        rig.run();
        assert_eq!(rig.one("merged").text(), expected);
    }
    let missing = [("Footer File", "/no/such/file")];
    let made = Rig::try_new("MergeContent", &missing, serde_json::json!({}));
    assert!(made.err().unwrap().contains("Footer File: cannot read"));
}

#[test]
fn unique_attributes_are_those_without_contradiction() {
    let more = [
        ("Attribute Strategy", "Keep All Unique Attributes"),
        ("Minimum Number of Entries", "2"),
    ];
    let mut rig = packing(&more);
    rig.put(&[("same", "1"), ("differs", "1"), ("mine", "1")], "");
    rig.put(&[("same", "1"), ("differs", "2"), ("yours", "2")], "");
    rig.run();
    let merged = rig.one("merged");
    let names: Vec<&str> = merged.attributes.keys().map(String::as_str).collect();
    let expected = [
        "merge.bin.age",
        "merge.count",
        "mime.type",
        "mine",
        "same",
        "yours",
    ];
    assert_eq!(names, expected);
}

#[test]
fn pieces_are_put_together_in_their_order() {
    let mut rig = defragmenting(&[]);
    let piece = |index: &str, text: &str, names: [&str; 3], rig: &mut Rig| {
        let attributes = [
            (names[0], "x"),
            (names[1], index),
            (names[2], "3"),
            ("segment.original.filename", "whole.txt"),
        ];
        rig.put(&attributes, text);
    };
    let names = ["fragment.identifier", "fragment.index", "fragment.count"];
    piece("2", "third", names, &mut rig);
    // As old splitters named them.
    let old = ["segment.identifier", "segment.index", "segment.count"];
    piece("0", "first ", old, &mut rig);
    rig.run();
    assert_eq!(rig.counts(), []);
    rig.kill();
    piece("1", "second ", names, &mut rig);
    rig.run();
    let merged = rig.one("merged");
    assert_eq!(merged.text(), "first second third");
    assert_eq!(merged.attribute("filename"), "whole.txt");
}

#[test]
fn pieces_that_are_no_whole_fail() {
    let mut rig = defragmenting(&[("Max Bin Age", "1 sec")]);
    let piece = |index: &str, identifier: &str, rig: &mut Rig| {
        let attributes = [
            ("fragment.identifier", identifier),
            ("fragment.index", index),
            ("fragment.count", "2"),
        ];
        rig.put(&attributes, "x");
    };
    piece("0", "missing", &mut rig);
    piece("0", "twice", &mut rig);
    piece("0", "twice", &mut rig);
    rig.put(&[("fragment.identifier", "x")], "no piece");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 3)]);
    rig.advance(Duration::from_secs(1));
    rig.trigger().unwrap();
    assert_eq!(rig.counts(), [("failure", 4)]);
    let told = rig.bulletins().join("\n");
    for part in [
        "only 1 pieces came",
        "a piece came twice",
        "is no piece of anything",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

/// Three FlowFiles in one archive, unpacked by the usual tool.
fn unpacked(format: &str, tool: &[&str]) -> Vec<(String, String)> {
    let more = [
        ("Merge Format", format),
        ("Minimum Number of Entries", "3"),
        ("Keep Path", "true"),
    ];
    let mut rig = packing(&more);
    let text = "much of the same ".repeat(1_000);
    rig.put(&[("filename", "a.txt"), ("path", "./")], "one");
    rig.put(&[("filename", "b.txt"), ("path", "x/y/")], &text);
    rig.put(&[("filename", "\u{fc}.txt")], "");
    rig.run();
    let merged = rig.one("merged");
    let mime = format!("application/{}", format.to_ascii_lowercase());
    assert_eq!(merged.attribute("mime.type"), mime);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("archive"), &merged.content).unwrap();
    let done = Command::new(tool[0])
        .args(&tool[1..])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    ["a.txt", "x/y/b.txt", "\u{fc}.txt"]
        .into_iter()
        .map(|name| (name.to_owned(), read(name)))
        .collect()
}

#[test]
fn archives_are_what_the_usual_tools_read() {
    let text = "much of the same ".repeat(1_000);
    let expected: Vec<(String, String)> =
        [("a.txt", "one"), ("x/y/b.txt", &text), ("\u{fc}.txt", "")]
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
    assert_eq!(unpacked("TAR", &["tar", "-xf", "archive"]), expected);
    let python = ["python3", "-m", "zipfile", "-e", "archive", "."];
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    if has_python {
        assert_eq!(unpacked("ZIP", &python), expected);
    } else {
        eprintln!("python3 is not there to unpack the zip");
    }
}

#[test]
fn a_stream_of_flow_files_has_their_attributes() {
    let more = [
        ("Merge Format", "FlowFile Stream, v3"),
        ("Minimum Number of Entries", "2"),
    ];
    let mut rig = packing(&more);
    rig.put(&[("a", "1")], "one");
    rig.put(&[("b", "2")], "second");
    rig.run();
    let merged = rig.one("merged");
    let names: Vec<String> = rig.out("original").into_iter().map(|o| o.uuid).collect();
    assert_eq!(merged.attribute("mime.type"), "application/flowfile-v3");
    let mut rest = &merged.content[..];
    for (index, (name, value, text)) in [("a", "1", "one"), ("b", "2", "second")]
        .into_iter()
        .enumerate()
    {
        let (attributes, size, used) = flow_file_stream::read_header(rest).unwrap().unwrap();
        assert_eq!(attributes.get(name), Some(value));
        assert_eq!(attributes.get("filename"), Some(names[index].as_str()));
        let content = &rest[used..used + size as usize];
        assert_eq!(content, text.as_bytes());
        rest = &rest[used + size as usize..];
    }
    assert!(rest.is_empty());
}
