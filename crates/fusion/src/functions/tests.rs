//! Every function by name: what it gives, and null where it cannot.

use super::*;

#[track_caller]
fn check(name: &str, arguments: &[Value<'static>], expected: Value<'static>) {
    let function = scalar_function(name).unwrap();
    let mut arguments = arguments.to_vec();
    assert_eq!((function.run)(&mut arguments), expected, "{name}");
}

fn text(text: &'static str) -> Value<'static> {
    Value::text(text)
}

#[test]
fn names_are_in_order_and_fit_the_arguments() {
    for pair in SCALAR_FUNCTIONS.windows(2) {
        assert!(
            pair[0].name < pair[1].name,
            "{} stands before {}",
            pair[0].name,
            pair[1].name
        );
    }
    for function in SCALAR_FUNCTIONS {
        let (least, most) = function.arguments;
        assert!(least <= most && most <= ARGUMENTS_MAX, "{}", function.name);
        for count in least..=most {
            let mut nulls = vec![Value::Null; count];
            assert_eq!(
                (function.run)(&mut nulls),
                Value::Null,
                "{} of null",
                function.name
            );
            let mut wrong = vec![Value::Bool(true); count];
            (function.run)(&mut wrong);
        }
    }
}

#[test]
fn texts_are_cut_by_characters() {
    check(
        "substring",
        &[text("ab\u{e9}cd"), Value::Int(3)],
        text("\u{e9}cd"),
    );
    check(
        "substring",
        &[text("abcd"), Value::Int(0), Value::Int(2)],
        text("a"),
    );
    check(
        "substring",
        &[text("abcd"), Value::Int(9), Value::Int(2)],
        text(""),
    );
    check(
        "substring",
        &[text("abcd"), Value::Int(2), Value::Int(i64::MAX)],
        text("bcd"),
    );
    check(
        "slice",
        &[text("\u{e9}bcd"), Value::Int(1), Value::Int(3)],
        text("bc"),
    );
    check("slice", &[text("abcd"), Value::Int(2)], text("cd"));
    check(
        "slice",
        &[text("abcd"), Value::Int(3), Value::Int(9)],
        Value::Null,
    );
    check("left", &[text("abcd"), Value::Int(2)], text("ab"));
    check("right", &[text("abcd"), Value::Int(3)], text("bcd"));
    check("right", &[text("ab"), Value::Int(3)], text("ab"));
    check(
        "split_part",
        &[text("a/b/c"), text("/"), Value::Int(2)],
        text("b"),
    );
    check(
        "split_part",
        &[text("a/b/c"), text("/"), Value::Int(4)],
        text(""),
    );
    check("index_of", &[text("\u{e9}ab"), text("b")], Value::Int(2));
    check("index_of", &[text("ab"), text("x")], Value::Int(-1));
    check(
        "replace",
        &[text("a-b-c"), text("-"), text("+")],
        text("a+b+c"),
    );
    check("trim", &[text("  a ")], text("a"));
    check("starts_with", &[text("abc"), text("ab")], Value::Bool(true));
    check("ends_with", &[text("abc"), text("ab")], Value::Bool(false));
}

#[test]
fn times_are_taken_apart_by_the_calendar() {
    // 2024-02-29T23:59:58.5Z, a Thursday.
    let time = Value::Int(1_709_251_198_500);
    for (name, expected) in [
        ("year", 2024),
        ("month", 2),
        ("day", 29),
        ("day_of_week", 5),
        ("hour", 23),
        ("minute", 59),
        ("second", 58),
    ] {
        check(name, std::slice::from_ref(&time), Value::Int(expected));
    }
    check("year", &[Value::Int(-1)], Value::Int(1969));
    check("day", &[text("1900-03-01T00:00:00Z")], Value::Int(1));
    check("month", &[text("2000-12-31T23:00:00-02:00")], Value::Int(1));
    check(
        "parse_time",
        &[text("1970-01-01T00:00:01Z")],
        Value::Int(1_000),
    );
    check("hour", &[text("noon")], Value::Null);
}

#[test]
fn numbers_compare_and_round() {
    check(
        "greatest",
        &[Value::Int(1), Value::Float(2.5), Value::Int(2)],
        Value::Float(2.5),
    );
    check("least", &[Value::Int(1), Value::Null], Value::Null);
    check("sign", &[Value::Float(-0.5)], Value::Int(-1));
    check("trunc", &[Value::Float(-1.7)], Value::Float(-1.0));
    check("ln", &[Value::Int(0)], Value::Null);
    check("log10", &[Value::Int(1_000)], Value::Float(3.0));
    check("atan2", &[Value::Int(0), Value::Int(1)], Value::Float(0.0));
}
