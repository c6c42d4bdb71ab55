//! SplitText, SplitContent and SegmentContent: what the pieces are, and that no byte is copied.

use crate::testing::{Out, Rig};

fn texts(pieces: &[Out]) -> Vec<&str> {
    pieces.iter().map(Out::text).collect()
}

fn split(properties: &[(&str, &str)], content: &str) -> (Vec<String>, Vec<String>) {
    let mut rig = Rig::new("SplitText", properties);
    rig.put(&[("filename", "a.txt")], content);
    rig.run();
    let pieces = rig.out("splits");
    assert_eq!(rig.out("original").len(), 1);
    let lines = pieces
        .iter()
        .map(|piece| piece.attribute("text.line.count").to_owned());
    (
        texts(&pieces).into_iter().map(str::to_owned).collect(),
        lines.collect(),
    )
}

#[test]
fn text_is_split_by_lines_by_size_and_behind_headers() {
    for (properties, content, pieces, lines) in [
        (
            &[("Line Split Count", "2")][..],
            "a\nb\r\nc\n",
            &["a\nb", "c"][..],
            &["2", "1"][..],
        ),
        (
            &[
                ("Line Split Count", "2"),
                ("Remove Trailing Newlines", "false"),
            ],
            "a\nb\r\nc\n",
            &["a\nb\r\n", "c\n"],
            &["2", "1"],
        ),
        // Empty lines at the end go, those in between stay; a piece of nothing else is left out.
        (
            &[("Line Split Count", "3")],
            "a\n\n\n\n\n\nb",
            &["a", "b"],
            &["1", "1"],
        ),
        (
            &[
                ("Line Split Count", "3"),
                ("Remove Trailing Newlines", "false"),
            ],
            "a\n\nb\n\n\n\n",
            &["a\n\nb\n", "\n\n\n"],
            &["2", "0"],
        ),
        (
            &[("Line Split Count", "1"), ("Header Line Count", "2")],
            "h1\nh2\na\nb",
            &["h1\nh2\na", "h1\nh2\nb"],
            &["1", "1"],
        ),
        (
            &[
                ("Line Split Count", "1"),
                ("Header Line Marker Characters", "##"),
            ],
            "## h\n# a\n## b\n",
            &["## h\n# a", "## h\n## b"],
            &["1", "1"],
        ),
        // Headers alone come only where a piece was nothing but line endings.
        (
            &[("Line Split Count", "1"), ("Header Line Count", "1")],
            "h\n\nb\n",
            &["h", "h\nb"],
            &["0", "1"],
        ),
        (
            &[("Line Split Count", "0"), ("Maximum Fragment Size", "6 B")],
            "ab\ncd\nlonger than six\ne\n",
            &["ab\ncd", "longer than six", "e"],
            &["2", "1", "1"],
        ),
        (
            &[
                ("Line Split Count", "9"),
                ("Maximum Fragment Size", "6 B"),
                ("Header Line Count", "1"),
                ("Remove Trailing Newlines", "false"),
            ],
            "h\na\nb\nc\n",
            &["h\na\nb\n", "h\nc\n"],
            &["2", "1"],
        ),
        (&[("Line Split Count", "1")], "", &[], &[]),
    ] {
        let (found, counts) = split(properties, content);
        assert_eq!(found, pieces, "{properties:?} {content:?}");
        assert_eq!(counts, lines, "{properties:?} {content:?}");
    }
}

#[test]
fn pieces_of_text_say_where_they_come_from() {
    let mut rig = Rig::new("SplitText", &[("Line Split Count", "1")]);
    rig.put(&[("filename", "a.txt"), ("kind", "log")], "one\ntwo\n");
    rig.run();
    let pieces = rig.out("splits");
    let identifier = pieces[0].attribute("fragment.identifier").to_owned();
    assert_eq!(identifier.len(), 36);
    for (index, piece) in pieces.iter().enumerate() {
        let number = index + 1;
        for (name, value) in [
            ("fragment.identifier", identifier.as_str()),
            ("fragment.index", &number.to_string()),
            ("fragment.count", "2"),
            ("fragment.size", "3"),
            ("segment.original.filename", "a.txt"),
            ("kind", "log"),
            ("filename", &format!("a.txt.fragment.{identifier}.{number}")),
        ] {
            assert_eq!(piece.attribute(name), value, "{name}");
        }
    }
    assert_eq!(rig.one("original").attribute("fragment.index"), "");
}

#[test]
fn text_that_cannot_be_split_fails_whole() {
    for (properties, content, part) in [
        (
            &[("Line Split Count", "1"), ("Header Line Count", "3")][..],
            "a\nb",
            "fewer lines than its 3 headers",
        ),
        (
            &[
                ("Line Split Count", "1"),
                ("Header Line Count", "1"),
                ("Maximum Fragment Size", "2 B"),
            ],
            "abc\nd",
            "headers are longer",
        ),
    ] {
        let mut rig = Rig::new("SplitText", properties);
        rig.put(&[], content);
        rig.run();
        assert_eq!(rig.counts(), [("failure", 1)]);
        assert!(rig.bulletins()[0].contains(part), "{:?}", rig.bulletins());
    }
    let none = Rig::try_new(
        "SplitText",
        &[("Line Split Count", "0")],
        serde_json::json!({}),
    );
    assert!(none.err().unwrap().contains("Maximum Fragment Size"));
}

#[test]
fn a_large_text_is_split_without_copying_it() {
    let mut rig = Rig::new("SplitText", &[("Line Split Count", "1000")]);
    // Over several pieces of content, with a line ending across two of them.
    let line = format!("{}\r\n", "x".repeat(97));
    let content = line.repeat(30_000);
    rig.put(&[("filename", "big")], &content);
    let before = rig.bytes_written();
    rig.run();
    assert_eq!(rig.bytes_written(), before, "bytes of content were written");
    let pieces = rig.out("splits");
    assert_eq!(pieces.len(), 30);
    let whole = line.repeat(1_000);
    for piece in &pieces {
        assert_eq!(piece.text(), whole.trim_end());
    }
}

#[test]
fn a_killed_split_is_made_again_whole() {
    let mut rig = Rig::new("SplitText", &[("Line Split Count", "1")]);
    rig.put(&[("filename", "a")], "1\n2\n3\n");
    rig.kill_before_commit();
    assert_eq!(rig.counts(), []);
    rig.run();
    rig.kill();
    assert_eq!(texts(&rig.out("splits")), ["1", "2", "3"]);
    assert_eq!(rig.count("original"), 1);
}

#[test]
fn content_is_split_at_bytes() {
    for (properties, content, pieces) in [
        (
            &[("Byte Sequence", "2c")][..],
            "a,b,,c,",
            &["a", "b", "c"][..],
        ),
        (
            &[
                ("Byte Sequence", ", "),
                ("Byte Sequence Format", "Text"),
                ("Keep Byte Sequence", "true"),
            ],
            "a, b, , c",
            &["a, ", "b, ", ", ", "c"],
        ),
        (
            &[
                ("Byte Sequence", "--"),
                ("Byte Sequence Format", "Text"),
                ("Keep Byte Sequence", "true"),
                ("Byte Sequence Location", "Leading"),
            ],
            "a--b----c",
            &["a", "--b", "--", "--c"],
        ),
        (&[("Byte Sequence", "0D 0A")], "none", &["none"]),
        (
            &[("Byte Sequence", "aab"), ("Byte Sequence Format", "Text")],
            "aaab",
            &["a"],
        ),
        (&[("Byte Sequence", "00")], "", &[]),
    ] {
        let mut rig = Rig::new("SplitContent", properties);
        rig.put(&[("filename", "a")], content);
        rig.run();
        let found = rig.out("splits");
        assert_eq!(texts(&found), pieces, "{properties:?} {content:?}");
        let count = pieces.len().to_string();
        for (index, piece) in found.iter().enumerate() {
            assert_eq!(piece.attribute("fragment.index"), (index + 1).to_string());
            assert_eq!(piece.attribute("fragment.count"), count);
        }
        assert_eq!(rig.count("original"), 1);
    }
    for bad in ["", "0", "xy"] {
        let made = Rig::try_new(
            "SplitContent",
            &[("Byte Sequence", bad)],
            serde_json::json!({}),
        );
        assert!(made.is_err(), "'{bad}' was taken");
    }
}

#[test]
fn sequences_across_pieces_of_content_are_found() {
    let mut rig = Rig::new(
        "SplitContent",
        &[("Byte Sequence", "<end>"), ("Byte Sequence Format", "Text")],
    );
    // The content is read in pieces; at any length one sequence lies across their border.
    let item = format!("{}<end>", "y".repeat(1_018));
    let content = item.repeat(3_000);
    rig.put(&[], &content);
    rig.run();
    let pieces = rig.out("splits");
    assert_eq!(pieces.len(), 3_000);
    assert!(pieces.iter().all(|piece| piece.content.len() == 1_018));
}

#[test]
fn content_is_segmented_by_size() {
    let mut rig = Rig::new(
        "SegmentContent",
        &[("Segment Size", "${size:replaceNull('2 B')}")],
    );
    rig.put(&[], "abcde");
    rig.put(&[("size", "1 KB")], "small");
    rig.put(&[], "");
    rig.run();
    let segments = rig.out("segments");
    assert_eq!(texts(&segments), ["ab", "cd", "e", "small", ""]);
    assert_eq!(segments[2].attribute("fragment.index"), "3");
    assert_eq!(segments[3].attribute("fragment.count"), "1");
    let wholes = rig.out("original");
    for (segment, whole) in [(0, 0), (2, 0), (3, 1)] {
        let told = segments[segment].attribute("fragment.identifier");
        assert_eq!(told, wholes[whole].uuid);
    }
    rig.put(&[("size", "many")], "abc");
    let error = rig.trigger().unwrap_err();
    assert!(error.contains("'many' is no size"), "{error}");
    let zero = Rig::try_new(
        "SegmentContent",
        &[("Segment Size", "0")],
        serde_json::json!({}),
    );
    assert!(zero.err().unwrap().contains("above zero"));
}
