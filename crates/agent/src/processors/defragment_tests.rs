//! DefragmentText: messages whole, whatever pieces they came in, and nothing lost over crashes.

use std::time::Duration;

use crate::testing::{Out, Rig};

fn texts(pieces: &[Out]) -> Vec<&str> {
    pieces.iter().map(Out::text).collect()
}

fn rig(more: &[(&str, &str)]) -> Rig {
    Rig::new(
        "DefragmentText",
        &[&[("Pattern", "<[0-9]+>")], more].concat(),
    )
}

#[test]
fn messages_that_begin_with_the_pattern_are_put_together() {
    let mut rig = rig(&[]);
    for piece in ["<1> one", " still one", "<2> two <3> th", "ree", "<4> four"] {
        rig.put(&[("absolute.path", "/a")], piece);
        rig.run();
    }
    let out = rig.out("success");
    assert_eq!(texts(&out), ["<1> one still one<2> two ", "<3> three"]);
    rig.advance(Duration::from_secs(601));
    rig.trigger().unwrap();
    assert_eq!(rig.one("success").text(), "<4> four");
    assert_eq!((rig.counts(), rig.waiting()), (vec![], 0));
}

#[test]
fn messages_that_end_with_the_pattern_fail_when_they_do_not_end() {
    let mut rig = rig(&[
        ("Pattern Location", "End of Message"),
        ("Max Buffer Age", "1 sec"),
    ]);
    for piece in ["one", "<1>tw", "o<2>", "three"] {
        rig.put(&[], piece);
    }
    rig.run();
    assert_eq!(texts(&rig.out("success")), ["one<1>", "two<2>"]);
    rig.advance(Duration::from_secs(2));
    rig.trigger().unwrap();
    assert_eq!(rig.one("failure").text(), "three");
}

#[test]
fn sources_do_not_mix() {
    let mut rig = rig(&[]);
    for (path, piece) in [
        ("/a", "<1>a"),
        ("/b", "<1>b"),
        ("/a", "a<2>"),
        ("/b", "b<2>"),
    ] {
        rig.put(&[("absolute.path", path)], piece);
    }
    rig.run();
    let out = rig.out("success");
    assert_eq!(texts(&out), ["<1>aa", "<1>bb"]);
    assert_eq!(out[1].attribute("absolute.path"), "/b");
}

#[test]
fn pieces_that_do_not_follow_fail() {
    let mut rig = rig(&[]);
    let piece = |offset: &str| {
        let name = [
            ("absolute.path", "/a"),
            ("TextFragmentAttribute.base_name", "a"),
        ];
        let more = [("TextFragmentAttribute.post_name", "log")];
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, value) in name.iter().chain(&more) {
            all.push(((*name).to_owned(), (*value).to_owned()));
        }
        all.push(("TextFragmentAttribute.offset".to_owned(), offset.to_owned()));
        all
    };
    let put = |rig: &mut Rig, offset: &str, text: &str| {
        let attributes = piece(offset);
        let attributes: Vec<(&str, &str)> = attributes
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        rig.put(&attributes, text);
        rig.run();
    };
    put(&mut rig, "0", "<1>ab");
    put(&mut rig, "5", "c<2>d");
    let out = rig.one("success");
    assert_eq!(
        (out.text(), out.attribute("filename")),
        ("<1>abc", "a.0-5.log")
    );
    put(&mut rig, "10", "<3>");
    let out = rig.one("success");
    assert_eq!(
        (out.text(), out.attribute("TextFragmentAttribute.offset")),
        ("<2>d", "6")
    );
    put(&mut rig, "99", "gap");
    assert_eq!(texts(&rig.out("failure")), ["<3>", "gap"]);
    // The file was rotated.
    put(&mut rig, "102", "<4>");
    put(&mut rig, "0", "<5>");
    assert_eq!(texts(&rig.out("success")), ["<4>"]);
    assert!(rig.bulletins()[0].contains("does not follow"));
}

#[test]
fn what_grows_too_large_fails() {
    let mut rig = rig(&[("Max Buffer Size", "10 B")]);
    rig.put(&[], "<1>123456");
    rig.run();
    assert_eq!(rig.counts(), []);
    rig.put(&[], "78");
    rig.run();
    assert_eq!(rig.one("failure").text(), "<1>12345678");
    assert!(Rig::try_new("DefragmentText", &[("Pattern", "(")], serde_json::json!({})).is_err());
}

#[test]
fn no_byte_is_lost_or_doubled_over_kills() {
    let mut rig = rig(&[]);
    let mut all = String::new();
    for number in 0..30 {
        let piece = format!("tail of {number} <{number}> head <{number}0> rest");
        all += &piece;
        rig.put(&[("absolute.path", "/a")], &piece);
        match number % 4 {
            0 => rig.kill_before_commit(),
            1 => {
                rig.run();
                rig.kill();
            }
            _ => rig.run(),
        }
    }
    rig.run();
    rig.advance(Duration::from_secs(601));
    rig.trigger().unwrap();
    let out: String = rig.out("success").iter().map(Out::text).collect();
    assert_eq!(out, all);
}
