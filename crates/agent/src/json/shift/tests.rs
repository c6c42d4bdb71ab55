//! Shifts by the examples that Jolt explains itself with, in our words.

use super::*;

fn shifted(specification: &str, input: &str) -> Result<String, String> {
    let shift = Shift::parse(specification)?;
    Ok(shift.apply(&Json::parse(input).unwrap())?.to_text())
}

#[test]
fn values_go_where_the_specification_says() {
    let rating = r#"{"rating":{"primary":{"value":3},"quality":{"value":4}}}"#;
    for (specification, input, expected) in [
        (r#"{"a":"x.y"}"#, r#"{"a":1,"b":2}"#, r#"{"x":{"y":1}}"#),
        (
            r#"{"a":["x","y"]}"#,
            r#"{"a":{"b":1}}"#,
            r#"{"x":{"b":1},"y":{"b":1}}"#,
        ),
        (r#"{"a|b":"x"}"#, r#"{"a":1,"b":2}"#, r#"{"x":[1,2]}"#),
        (
            r#"{"*":"all.&"}"#,
            r#"{"a":1,"b":[2]}"#,
            r#"{"all":{"a":1,"b":[2]}}"#,
        ),
        (
            r#"{"a":"first","*":"rest.&0"}"#,
            r#"{"b":2,"a":1}"#,
            r#"{"rest":{"b":2},"first":1}"#,
        ),
        (
            r#"{"rating":{"primary":{"value":"Rating"},"*":{"value":"Secondary.&1.Value"}}}"#,
            rating,
            r#"{"Rating":3,"Secondary":{"quality":{"Value":4}}}"#,
        ),
        (
            r#"{"tag-*-*":"tags.&(0,2).&(0,1)"}"#,
            r#"{"tag-a-b":1}"#,
            r#"{"tags":{"b":{"a":1}}}"#,
        ),
        (
            r#"{"rating":{"*":{"$":"keys[]"}}}"#,
            rating,
            r#"{"keys":["primary","quality"]}"#,
        ),
        (
            r#"{"rating":{"*":{"@":"all[]"}}}"#,
            rating,
            r#"{"all":[{"value":3},{"value":4}]}"#,
        ),
        (
            r#"{"rating":{"*":{"value":"r[#2].v","$":"r[#2].k"}}}"#,
            rating,
            r#"{"r":[{"k":"primary","v":3},{"k":"quality","v":4}]}"#,
        ),
        (
            r#"{"l":{"*":{"id":"ids[&1]"}}}"#,
            r#"{"l":[{"id":5},{"id":6}]}"#,
            r#"{"ids":[5,6]}"#,
        ),
        (
            r#"{"l":{"*":"l[].v"}}"#,
            r#"{"l":[1,2]}"#,
            r#"{"l":[{"v":1},{"v":2}]}"#,
        ),
        (r#"{"l":{"*":"[&]"}}"#, r#"{"l":[1,2]}"#, "[1,2]"),
        (
            r#"{"l":{"*":{"v":"@(1,k)"}}}"#,
            r#"{"l":[{"k":"a","v":1},{"k":"b","v":2}]}"#,
            r#"{"a":1,"b":2}"#,
        ),
        (
            r##"{"kind":{"a":{"#yes":"is_a"},"*":{"#no":"is_a"}}}"##,
            r#"{"kind":"b"}"#,
            r#"{"is_a":"no"}"#,
        ),
        (
            r#"{"a":{"&1":"x"}}"#,
            r#"{"a":{"root":1,"a":2}}"#,
            r#"{"x":1}"#,
        ),
        (r#"{"a\\.b":"x\\.y"}"#, r#"{"a.b":1}"#, r#"{"x.y":1}"#),
        (r#"{"a":null,"*":"&"}"#, r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
        (r#"{"none":"x"}"#, r#"{"a":1}"#, "null"),
    ] {
        let found = shifted(specification, input);
        assert_eq!(found.as_deref(), Ok(expected), "{specification}");
    }
}

#[test]
fn specifications_that_are_none_say_why() {
    for (specification, part) in [
        ("[]", "no JSON object"),
        (r#"{"a":1}"#, "1 is no path"),
        (r#"{"a":"x[0"}"#, "']' is missing"),
        (r#"{"a":"&(1"}"#, "')' is missing"),
        (r#"{"a":"@(1,b"}"#, "')' is missing"),
        (r#"{"a":"x[0]y"}"#, "'.' is missing"),
        (r#"{"a":"&(99999999999999999999)"}"#, "too large"),
    ] {
        let error = Shift::parse(specification).unwrap_err();
        assert!(error.contains(part), "{specification}: {error}");
    }
    for (specification, part) in [
        (r#"{"a":"&5"}"#, "no 5 levels"),
        (r#"{"a":"&(0,3)"}"#, "part 3"),
        (r#"{"a":"x[&]"}"#, "'a' is no place"),
        (r#"{"a":"x[1000000000]"}"#, "more than a list takes"),
    ] {
        let error = shifted(specification, r#"{"a":1}"#).unwrap_err();
        assert!(error.contains(part), "{specification}: {error}");
    }
}
