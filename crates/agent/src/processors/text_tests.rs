//! ReplaceText, RouteText and ExtractText.

use serde_json::json;

use crate::testing::{Out, Rig};

fn replaced(properties: &[(&str, &str)], content: &str) -> String {
    let mut rig = Rig::new("ReplaceText", properties);
    rig.put(&[("color", "red"), ("dots", "...")], content);
    rig.run();
    rig.one("success").text().to_owned()
}

const WHOLE: (&str, &str) = ("Evaluation Mode", "Entire text");
const SEARCH: &str = "Search Value";
const VALUE: &str = "Replacement Value";
const STRATEGY: &str = "Replacement Strategy";

#[test]
fn each_strategy_changes_lines_and_leaves_their_endings() {
    for (properties, expected) in [
        (
            &[(STRATEGY, "Prepend"), (VALUE, "> ")][..],
            "> one\r\n> two\n> \n> three",
        ),
        (
            &[(STRATEGY, "Append"), (VALUE, "${color}")],
            "onered\r\ntwored\nred\nthreered",
        ),
        (
            &[(SEARCH, "[aeiou]"), (VALUE, "<$&>")],
            "<o>n<e>\r\ntw<o>\n\nthr<e><e>",
        ),
        (
            &[(SEARCH, "(.)(e)"), (VALUE, "$2$1$3$$1")],
            "oen$1\r\ntwo\n\nther$1e",
        ),
        (&[(SEARCH, "^"), (VALUE, "-\n")], "-one\r\n-two\n-\n-three"),
        (
            &[(STRATEGY, "Literal Replace"), (SEARCH, "e"), (VALUE, "$1")],
            "on$1\r\ntwo\n\nthr$1$1",
        ),
        (
            &[(STRATEGY, "Always Replace"), (VALUE, "x")],
            "x\r\nx\nx\nx",
        ),
    ] {
        let found = replaced(properties, "one\r\ntwo\n\nthree");
        assert_eq!(found, expected, "{properties:?}");
    }
}

#[test]
fn the_whole_text_is_changed_as_one() {
    for (properties, expected) in [
        (
            &[WHOLE, (STRATEGY, "Prepend"), (VALUE, "> ")][..],
            "> one\ntwo\n",
        ),
        (&[WHOLE, (STRATEGY, "Append"), (VALUE, "!")], "one\ntwo!\n"),
        (&[WHOLE, (SEARCH, "e\\nt"), (VALUE, "+")], "on+wo\n"),
        (&[WHOLE, (STRATEGY, "Always Replace"), (VALUE, "")], "\n"),
        (
            &[
                WHOLE,
                (STRATEGY, "Literal Replace"),
                (SEARCH, "o"),
                (VALUE, "0"),
            ],
            "0ne\ntw0\n",
        ),
    ] {
        assert_eq!(
            replaced(properties, "one\ntwo\n"),
            expected,
            "{properties:?}"
        );
    }
}

#[test]
fn lines_are_chosen_and_variables_substituted() {
    for (mode, expected) in [
        ("First-Line", "x\nb\nc"),
        ("Last-Line", "a\nb\nx"),
        ("Except-First-Line", "a\nx\nx"),
        ("Except-Last-Line", "x\nx\nc"),
        ("All", "x\nx\nx"),
    ] {
        let properties = [
            ("Line-by-Line Evaluation Mode", mode),
            (STRATEGY, "Always Replace"),
            (VALUE, "x"),
        ];
        assert_eq!(replaced(&properties, "a\nb\nc"), expected, "{mode}");
    }
    let found = replaced(
        &[(STRATEGY, "Substitute Variables")],
        "${color} ${none} ${dots}\n${color",
    );
    assert_eq!(found, "red ${none} ...\n${color");
}

#[test]
fn what_cannot_be_replaced_is_told() {
    let without = Rig::try_new("ReplaceText", &[(VALUE, "x")], json!({}));
    assert!(without.err().unwrap().contains("Search Value is missing"));
    let bad = Rig::try_new("ReplaceText", &[(SEARCH, "("), (VALUE, "x")], json!({}));
    assert!(bad.err().unwrap().contains("no regular expression"));
    let properties = [
        (STRATEGY, "Literal Replace"),
        (SEARCH, "${none}"),
        (VALUE, "x"),
    ];
    let mut rig = Rig::new("ReplaceText", &properties);
    rig.put(&[], "abc");
    rig.run();
    assert_eq!(rig.one("failure").text(), "abc");
    // Bytes that are no text pass through.
    let mut rig = Rig::new("ReplaceText", &[(SEARCH, "b"), (VALUE, "c")]);
    rig.put(&[], b"a\xffb\n\xfe");
    rig.run();
    assert_eq!(&rig.one("success").content[..], b"a\xffc\n\xfe");
}

#[test]
fn a_text_of_many_pieces_is_changed_line_by_line() {
    let mut rig = Rig::new("ReplaceText", &[(SEARCH, "x$"), (VALUE, "y")]);
    let line = format!("{}x\n", "z".repeat(99));
    rig.put(&[], line.repeat(30_000));
    rig.run();
    let expected = format!("{}y\n", "z".repeat(99)).repeat(30_000);
    assert!(rig.one("success").content == expected.as_bytes());
}

const MATCHING: &str = "Matching Strategy";

#[test]
fn lines_go_where_their_properties_say() {
    for (matching, more, low, high, unmatched) in [
        ("Starts With", ("low", "a"), "ab\nac\n", "", " Bd\nxa"),
        ("Ends With", ("low", "d"), " Bd\n", "", "ab\nac\nxa"),
        ("Contains", ("low", "${letter}"), "ab\nac\nxa", "", " Bd\n"),
        ("Equals", ("low", "Bd"), " Bd\n", "", "ab\nac\nxa"),
        ("Matches Regex", ("low", "a."), "ab\nac\n", "", " Bd\nxa"),
        ("Contains Regex", ("low", "^.a"), "xa", "", "ab\nac\n Bd\n"),
        (
            "Satisfies Expression",
            ("low", "${lineNo:gt(2):and(${line:contains('d')})}"),
            " Bd\n",
            "",
            "ab\nac\nxa",
        ),
    ] {
        let mut rig = Rig::new(
            "RouteText",
            &[(MATCHING, matching), more, ("high", "never")],
        );
        rig.put(&[("letter", "a")], "ab\nac\n Bd\nxa");
        let before = rig.bytes_written();
        rig.run();
        assert_eq!(rig.bytes_written(), before, "bytes of content were written");
        let text = |out: Vec<Out>| out.iter().map(Out::text).collect::<String>();
        assert_eq!(text(rig.out("low")), low, "{matching}");
        assert_eq!(text(rig.out("high")), high, "{matching}");
        assert_eq!(text(rig.out("unmatched")), unmatched, "{matching}");
        assert_eq!(rig.one("original").text(), "ab\nac\n Bd\nxa");
    }
}

#[test]
fn case_blanks_and_strategies_count() {
    let content = "Alpha\n beta\nalpha beta\n";
    for (more, matched) in [
        (
            &[("Routing Strategy", "Route On Any")][..],
            " beta\nalpha beta\n",
        ),
        (&[("Routing Strategy", "Route On All")], "alpha beta\n"),
        (
            &[
                ("Routing Strategy", "Route On Any"),
                ("Ignore Case", "true"),
            ],
            content,
        ),
        (
            &[
                ("Routing Strategy", "Route On All"),
                ("Segmentation Strategy", "Full Text"),
            ],
            content,
        ),
    ] {
        let own = [(MATCHING, "Contains"), ("one", "alpha"), ("two", "beta")];
        let mut rig = Rig::new("RouteText", &[&own[..], more].concat());
        rig.put(&[], content);
        rig.run();
        assert_eq!(rig.one("matched").text(), matched, "{more:?}");
    }
    let own = [(MATCHING, "Equals"), ("one", " beta")];
    let blanks = ("Ignore Leading/Trailing Whitespace", "false");
    let mut rig = Rig::new("RouteText", &[&own[..], &[blanks]].concat());
    rig.put(&[], content);
    rig.run();
    assert_eq!(rig.one("one").text(), " beta\n");
}

#[test]
fn lines_of_one_group_become_one_flow_file() {
    let mut rig = Rig::new(
        "RouteText",
        &[
            (MATCHING, "Contains"),
            ("any", ""),
            ("Grouping Regular Expression", "(.*?),(.*?),.*"),
            ("Grouping Fallback Value", "rest"),
        ],
    );
    rig.put(&[], "a,1,x\nb,1,y\na,1,z\nnone\n");
    rig.run();
    let groups: Vec<(String, String)> = rig
        .out("any")
        .iter()
        .map(|out| {
            (
                out.attribute("RouteText.Group").to_owned(),
                out.text().to_owned(),
            )
        })
        .collect();
    let expected = [
        ("a, 1", "a,1,x\na,1,z\n"),
        ("b, 1", "b,1,y\n"),
        ("rest", "none\n"),
    ];
    assert_eq!(groups, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    let made = Rig::try_new(
        "RouteText",
        &[(MATCHING, "Contains"), ("Grouping Regular Expression", "a")],
        json!({}),
    );
    assert!(made.err().unwrap().contains("has no group"));
}

#[test]
fn content_and_matches_become_attributes() {
    let mut rig = Rig::new("ExtractText", &[("Attribute", "all"), ("Size Limit", "5")]);
    rig.put(&[("kept", "1")], "content");
    rig.run();
    let out = rig.one("success");
    assert_eq!(
        (out.attribute("all"), out.attribute("kept")),
        ("conte", "1")
    );
    let text = "key=one key=two";
    for (more, expected) in [
        (
            &[][..],
            &[
                ("k", "key=one"),
                ("k.0", "key=one"),
                ("k.1", "one"),
                ("k.2", ""),
            ][..],
        ),
        (
            &[("Include Capture Group 0", "false")],
            &[("k", "one"), ("k.0", "one"), ("k.1", "")],
        ),
        (
            &[
                ("Include Capture Group 0", "false"),
                ("Enable repeating capture group", "true"),
                ("Maximum Capture Group Length", "2"),
            ],
            &[("k", "on"), ("k.0", "on"), ("k.1", "tw")],
        ),
    ] {
        let own = [
            ("Regex Mode", "true"),
            ("k", "key=(\\w+)"),
            ("none", "nothing"),
        ];
        let mut rig = Rig::new("ExtractText", &[&own[..], more].concat());
        rig.put(&[], text);
        rig.run();
        let out = rig.one("success");
        for (name, value) in expected {
            assert_eq!(out.attribute(name), *value, "{name} {more:?}");
        }
        assert!(!out.attributes.contains_key("none"));
    }
    for properties in [
        &[][..],
        &[("Regex Mode", "true")],
        &[("Regex Mode", "true"), ("a", "(")],
    ] {
        assert!(Rig::try_new("ExtractText", properties, json!({})).is_err());
    }
}

#[test]
fn patterns_of_content_may_look_around_and_give_up_at_their_bound() {
    let grouped = [WHOLE, (SEARCH, r"(?<=\d)(?=(\d{3})+\b)"), (VALUE, ",")];
    assert_eq!(replaced(&grouped, "1234567 12"), "1,234,567 12");
    let mut rig = Rig::new(
        "RouteText",
        &[
            ("Matching Strategy", "Matches Regex"),
            ("other", "(?!.*secret).+"),
        ],
    );
    rig.put(&[], "plain\na secret\n");
    rig.run();
    assert_eq!(rig.one("other").text(), "plain\n");
    let mut rig = Rig::new(
        "ExtractText",
        &[("Regex Mode", "true"), ("price", r"\d+(?= EUR)")],
    );
    rig.put(&[], "7 USD 5 EUR");
    rig.run();
    assert_eq!(rig.one("success").attribute("price"), "5");
    // Too many steps are the FlowFile's fault.
    let hostile = r"(?=(a+)+\1b)a";
    let long = "a".repeat(5_000);
    let mut rig = Rig::new("ReplaceText", &[(SEARCH, hostile), (VALUE, "x")]);
    rig.put(&[], &long);
    rig.run();
    assert_eq!(rig.one("failure").text(), long);
    let mut rig = Rig::new("ExtractText", &[("Regex Mode", "true"), ("found", hostile)]);
    rig.put(&[], &long);
    rig.run();
    assert_eq!(rig.one("success").text(), long);
}
