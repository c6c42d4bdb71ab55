//! Avro schemas, values and comparisons, by example.

use std::sync::Arc;

use super::super::{NamedSource, ParsedSchema, SchemaFault, SchemaSource, SchemaType};

fn parse(text: &str) -> ParsedSchema {
    parse_with(text, &[]).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

fn parse_with(text: &str, references: &[(&str, &str)]) -> Result<ParsedSchema, SchemaFault> {
    let references = references.iter().map(|(name, text)| NamedSource {
        name: (*name).to_owned(),
        text: Arc::from(*text),
    });
    ParsedSchema::parse(&SchemaSource {
        kind: SchemaType::Avro,
        text: Arc::from(text),
        references: references.collect(),
    })
}

#[track_caller]
fn round_trip(schema: &str, json: &str, payload: &[u8]) {
    let schema = parse(schema);
    assert_eq!(
        schema.encode_alone(json.as_bytes()).unwrap(),
        payload,
        "{json}"
    );
    assert_eq!(
        String::from_utf8(schema.decode(payload).unwrap()).unwrap(),
        json
    );
}

#[test]
fn values_stand_as_the_specification_says() {
    round_trip("\"null\"", "null", b"");
    round_trip("\"boolean\"", "true", b"\x01");
    round_trip("\"int\"", "-2147483648", b"\xff\xff\xff\xff\x0f");
    round_trip("\"long\"", "-64", b"\x7f");
    round_trip(
        "\"long\"",
        "9223372036854775807",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    );
    round_trip("\"float\"", "1.5", b"\x00\x00\xc0\x3f");
    round_trip("\"double\"", "1e300", &1e300_f64.to_le_bytes());
    round_trip(
        "\"double\"",
        "\"-Infinity\"",
        &f64::NEG_INFINITY.to_le_bytes(),
    );
    round_trip("\"string\"", "\"foo\"", b"\x06foo");
    round_trip("\"bytes\"", "\"\u{ff}a\"", b"\xffa");
    let union = r#"["null",{"type":"array","items":"bytes"},{"type":"map","values":"string"}]"#;
    round_trip(union, "null", b"\x00");
    round_trip(
        union,
        "{\"array\":[\"\u{ff}\",\"\"]}",
        b"\x02\x04\x02\xff\x00\x00",
    );
    round_trip(union, "{\"map\":{\"a\":\"b\"}}", b"\x04\x02\x02a\x02b\x00");
    round_trip(union, "{\"map\":{}}", b"\x04\x00");
    let record = r#"{"type":"record","name":"a.R","fields":[
        {"name":"next","type":["null","R"]},
        {"name":"e","type":{"type":"enum","name":"E","symbols":["X","Y"]}},
        {"name":"f","type":{"type":"fixed","name":"b.F","size":2}}]}"#;
    round_trip(
        record,
        "{\"next\":{\"a.R\":{\"next\":null,\"e\":\"Y\",\"f\":\"\\u0000\u{80}\"}},\"e\":\"X\",\"f\":\"ab\"}",
        b"\x02\x00\x02\x00\x80\x00ab",
    );
}

#[test]
fn values_that_do_not_fit_say_where() {
    let schema = parse(
        r#"{"type":"record","name":"R","fields":[{"name":"n","type":"int","default":7},
        {"name":"u","type":["string","null"],"default":"x"},
        {"name":"m","type":{"type":"map","values":{"type":"array","items":"long"}},"default":{}}]}"#,
    );
    assert_eq!(schema.encode_alone(b"{}").unwrap(), b"\x0e\x00\x02x\x00");
    for (json, reason) in [
        ("{\"n\":\"a\"}", ".n: a text where 'int' is expected"),
        ("{\"n\":2147483648}", ".n: '2147483648' is no int"),
        ("{\"n\":1.0}", ".n: '1.0' is no int"),
        ("{\"x\":1}", "record 'R' has no field 'x'"),
        (
            "{\"u\":{\"int\":1}}",
            ".u: 'int' is no branch of the union of string, null",
        ),
        (
            "{\"m\":{\"k\":[1,null]}}",
            ".m.k[1]: null where 'long' is expected",
        ),
        ("[]", "an array where 'record' is expected"),
    ] {
        assert_eq!(
            schema.encode_alone(json.as_bytes()),
            Err(SchemaFault::Value(reason.to_owned()))
        );
    }
    let bare = schema
        .encode_alone(b"{\"u\":\"x\"}")
        .unwrap_err()
        .to_string();
    assert!(
        bare.contains("names its branch, one of string, null"),
        "{bare}"
    );
}

#[test]
fn canonical_texts_keep_attributes_in_their_usual_order() {
    for (text, canonical) in [
        ("{ \"type\" : \"string\" }", "\"string\""),
        (
            r#"{"logicalType":"decimal", "type":"bytes","precision":4,"scale":2}"#,
            r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#,
        ),
        (
            r#"{"fields":[{"type":["null","S"],"name":"f","default":null,"x":{"b":1,"a":2},"doc":"d","order":"ignore","aliases":["g"]},
              {"name":"e","type":{"type":"enum","name":"E","namespace":"","symbols":["A"],"default":"A"},"order":"ascending"},
              {"name":"h","type":"n.s.S"}],
              "name":"S","namespace":"n.s","type":"record","doc":"D","aliases":["T","o.U"],"z":0}"#,
            r#"{"type":"record","name":"S","namespace":"n.s","doc":"D","fields":[{"name":"f","type":["null","S"],"doc":"d","default":null,"order":"ignore","aliases":["g"],"x":{"b":1,"a":2}},{"name":"e","type":{"type":"enum","name":"E","namespace":"","symbols":["A"],"default":"A"}},{"name":"h","type":"S"}],"z":0,"aliases":["T","o.U"]}"#,
        ),
    ] {
        let schema = parse(text);
        assert_eq!(schema.canonical(), canonical);
        assert_eq!(parse(canonical).canonical(), canonical);
    }
    let [a, b] = [
        r#"{"type":"int","b":{"y":1,"x":2},"a":1}"#,
        r#"{"a":1,"type":"int","b":{"x":2,"y":1}}"#,
    ];
    assert_ne!(parse(a).canonical(), parse(b).canonical());
    assert_eq!(parse(a).normalized(), parse(b).normalized());
}

#[test]
fn references_are_named_and_not_repeated() {
    let address = r#"{"type":"record","name":"Address","namespace":"x","fields":[]}"#;
    let text = r#"{"type":"record","name":"Person","namespace":"y","fields":[{"name":"home","type":"x.Address"}]}"#;
    let person = parse_with(text, &[("x.Address", address)]).unwrap();
    assert_eq!(person.canonical(), text);
    assert_eq!(person.record_name(), Some("y.Person"));
    let missing = parse_with(text, &[]).unwrap_err().to_string();
    assert_eq!(missing, "undefined name: 'x.Address'");
}

#[test]
fn what_is_no_schema_is_refused() {
    for text in [
        "string",
        "\"strin\"",
        "7",
        "{}",
        "{\"type\":\"record\",\"name\":\"R\"}",
        "{\"type\":\"record\",\"name\":\"1R\",\"fields\":[]}",
        "{\"type\":\"record\",\"name\":\"R-S\",\"fields\":[]}",
        "{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"a\",\"type\":\"int\"},{\"name\":\"a\",\"type\":\"int\"}]}",
        "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\",\"A\"]}",
        "{\"type\":\"enum\",\"name\":\"E\",\"symbols\":[\"A\"],\"default\":\"B\"}",
        "{\"type\":\"fixed\",\"name\":\"F\",\"size\":-1}",
        "[\"int\",\"int\"]",
        "[\"int\",[\"null\"]]",
        "[{\"type\":\"fixed\",\"name\":\"F\",\"size\":1},{\"type\":\"fixed\",\"name\":\"F\",\"size\":1}]",
    ] {
        assert!(
            matches!(parse_with(text, &[]), Err(SchemaFault::Schema(_))),
            "{text}"
        );
    }
}

#[test]
fn names_are_letters_and_digits_of_any_script() {
    let text = r#"{"type":"record","name":"Größe_2","namespace":"δ.x","fields":[{"name":"値","type":{"type":"enum","name":"E","symbols":["Ä"]}}]}"#;
    let schema = parse(text);
    assert_eq!(schema.canonical(), text);
    assert_eq!(schema.record_name(), Some("δ.x.Größe_2"));
    assert_eq!(
        schema.encode_alone(r#"{"値":"Ä"}"#.as_bytes()).unwrap(),
        [0]
    );
}

#[test]
fn a_default_that_does_not_fit_is_read_and_told() {
    let text = r#"{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}"#;
    let schema = parse(text);
    assert_eq!(schema.encode_alone(br#"{"a":1}"#).unwrap(), [2]);
    assert!(schema.encode_alone(b"{}").is_err());
    let told = schema.check_defaults().unwrap_err().to_string();
    assert!(told.contains("default of field 'a' of 'R'"), "{told}");
    let own = r#"{"type":"record","name":"O","fields":[{"name":"r","type":"R"}]}"#;
    let own = parse_with(own, &[("R", text)]).unwrap();
    assert_eq!(own.check_defaults(), Ok(()));
}

#[test]
fn hostile_payloads_end_at_once() {
    let nulls = parse(r#"{"type":"array","items":"null"}"#);
    let zero = parse(r#"{"type":"array","items":{"type":"fixed","name":"F","size":0}}"#);
    let empty = parse(r#"{"type":"array","items":{"type":"record","name":"E","fields":[]}}"#);
    // A block of 2^62 items of no bytes.
    let many = b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x00";
    for schema in [nulls, zero, empty] {
        let refused = schema.decode(many).unwrap_err().to_string();
        assert!(refused.contains("too large"), "{refused}");
    }
    let list = parse(r#"{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}"#);
    let refused = list.decode(&vec![2; 1 << 20]).unwrap_err().to_string();
    assert!(refused.contains("nested deeper"), "{refused}");
    let endless = parse(r#"{"type":"record","name":"L","fields":[{"name":"n","type":"L"}]}"#);
    assert!(endless.decode(b"").is_err());
    let string = parse("\"string\"");
    for payload in [
        &b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
        b"\x01",
        b"\x02",
        b"\x02\xff",
        b"\x02ab",
        b"",
    ] {
        assert!(string.decode(payload).is_err(), "{payload:?}");
    }
}

#[test]
fn defaults_of_defaults_do_not_multiply_without_end() {
    let mut types = vec![r#"{"type":"record","name":"R0","fields":[]}"#.to_owned()];
    for level in 1..60 {
        let inner = level - 1;
        types.push(format!(
            r#"{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{inner}","default":{{}}}},{{"name":"b","type":"R{inner}","default":{{}}}}]}}"#
        ));
    }
    let refused = parse(&format!("[{}]", types.join(","))).check_defaults();
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("too large a value")
    );
}
