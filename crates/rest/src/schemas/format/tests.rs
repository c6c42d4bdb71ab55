//! JSON Schema and Protobuf, by example.

use std::sync::Arc;

use super::{NamedSource, ParsedSchema, Policy, SchemaFault, SchemaSource, SchemaType};

fn parse_with(
    kind: SchemaType,
    text: &str,
    references: &[(&str, &str)],
) -> Result<ParsedSchema, SchemaFault> {
    let references = references.iter().map(|(name, text)| NamedSource {
        name: (*name).to_owned(),
        text: Arc::from(*text),
    });
    ParsedSchema::parse(&SchemaSource {
        kind,
        text: Arc::from(text),
        references: references.collect(),
    })
}

fn json(text: &str) -> ParsedSchema {
    parse_with(SchemaType::Json, text, &[]).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

fn proto(text: &str) -> ParsedSchema {
    parse_with(SchemaType::Protobuf, text, &[]).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

fn decoded(schema: &ParsedSchema, payload: &[u8]) -> String {
    String::from_utf8(schema.decode(payload).unwrap()).unwrap()
}

#[test]
fn json_values_are_validated_and_kept_as_they_came() {
    let schema = json(
        r#"{ "type":"object", "title":"Order", "properties":{"id":{"type":"integer"},"s":{"pattern":"^a+$"}},"required":["id"]}"#,
    );
    assert_eq!(schema.record_name(), Some("Order"));
    let text = br#"{"id": 12345678901234567890123,  "s":"aa"}"#;
    assert_eq!(schema.encode_alone(text).unwrap(), text);
    assert_eq!(schema.decode(text).unwrap(), text);
    for (value, reason) in [
        ("{}", "at /: \"id\" is a required property"),
        ("{\"id\":\"x\"}", "at /id: \"x\" is not of type \"integer\""),
        (
            "{\"id\":1,\"s\":\"b\"}",
            "at /s: \"b\" does not match \"^a+$\"",
        ),
    ] {
        let refused = schema.encode_alone(value.as_bytes()).unwrap_err();
        assert_eq!(refused, SchemaFault::Value(reason.to_owned()));
    }
    assert!(schema.decode(b"{").is_err());
    assert_eq!(
        schema.canonical(),
        r#"{"type":"object","title":"Order","properties":{"id":{"type":"integer"},"s":{"pattern":"^a+$"}},"required":["id"]}"#
    );
}

#[test]
fn json_schemas_of_every_draft_are_taken_and_nonsense_is_not() {
    let drafts = [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    ];
    for draft in drafts {
        let schema = json(&format!(r#"{{"$schema":"{draft}","type":"string"}}"#));
        assert!(
            schema.encode_alone(b"\"a\"").is_ok() && schema.encode_alone(b"1").is_err(),
            "{draft}"
        );
    }
    // Without a draft, it is draft 7: the array form of items is that of a tuple.
    let tuple = json(r#"{"items":[{"type":"string"}]}"#);
    assert!(tuple.encode_alone(b"[1]").is_err());
    for text in [
        "7",
        "{",
        r#"{"type":"strin"}"#,
        r#"{"pattern":"("}"#,
        r##"{"$ref":"#/nowhere"}"##,
    ] {
        let refused = parse_with(SchemaType::Json, text, &[]);
        assert!(matches!(refused, Err(SchemaFault::Schema(_))), "{text}");
    }
}

#[test]
fn json_references_are_found_by_name_and_never_fetched() {
    let item = r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#;
    for (id, reference, name) in [
        ("", "item.json", "item.json"),
        (
            "\"$id\":\"http://example.com/order.json\",",
            "item.json",
            "item.json",
        ),
        (
            "\"$id\":\"http://example.com/order.json\",",
            "item.json",
            "http://example.com/item.json",
        ),
        (
            "",
            "http://example.com/item.json",
            "http://example.com/item.json",
        ),
    ] {
        let text = format!(r#"{{{id}"items":{{"$ref":"{reference}"}}}}"#);
        let schema = parse_with(SchemaType::Json, &text, &[(name, item)]).unwrap();
        assert!(schema.encode_alone(b"[{\"n\":\"x\"}]").is_err(), "{text}");
        assert!(schema.encode_alone(b"[{\"n\":1}]").is_ok(), "{text}");
        assert!(parse_with(SchemaType::Json, &text, &[]).is_err(), "{text}");
    }
}

#[test]
fn patterns_that_look_around_work_within_a_bound() {
    let schema = json(r#"{"pattern":"^(?!foo)(a|aa)+$"}"#);
    assert!(schema.encode_alone(b"\"aaa\"").is_ok());
    let long = format!("\"{}b\"", "a".repeat(100_000));
    assert!(schema.encode_alone(long.as_bytes()).is_err());
}

#[test]
fn endless_json_schemas_neither_hang_nor_overflow() {
    let mut doubling =
        String::from("{\"allOf\":[{\"$ref\":\"#/definitions/d0\"}],\"definitions\":{");
    for level in 0..60 {
        let next = level + 1;
        doubling.push_str(&format!(
            r##""d{level}":{{"allOf":[{{"$ref":"#/definitions/d{next}"}},{{"$ref":"#/definitions/d{next}"}}]}},"##
        ));
    }
    doubling.push_str("\"d60\":{}}}");
    for text in [
        r##"{"$ref":"#"}"##,
        r##"{"allOf":[{"$ref":"#"}]}"##,
        r##"{"anyOf":[{"$ref":"#/definitions/a"}],"definitions":{"a":{"not":{"$ref":"#/definitions/b"}},"b":{"allOf":[{"$ref":"#/definitions/a"}]}}}"##,
        &doubling,
    ] {
        if let Ok(schema) = parse_with(SchemaType::Json, text, &[]) {
            let _ = schema.encode_alone(b"{\"a\":1}");
        }
    }
}

#[test]
fn deep_schemas_are_compared_without_overflowing() {
    let chain = |levels: usize, leaf: &str| {
        let mut text = String::from("{\"$ref\":\"#/definitions/d0\",\"definitions\":{");
        for level in 0..levels {
            let next = level + 1;
            text.push_str(&format!(
                r##""d{level}":{{"properties":{{"a":{{"$ref":"#/definitions/d{next}"}}}}}},"##
            ));
        }
        json(&format!("{text}\"d{levels}\":{leaf}}}}}"))
    };
    let (whole, number) = ("{\"type\":\"integer\"}", "{\"type\":\"number\"}");
    let compared = |levels| {
        let (reader, writer) = (chain(levels, number), chain(levels, whole));
        let narrower = ParsedSchema::incompatibilities(&writer, &reader, Policy::Strict);
        (
            ParsedSchema::incompatibilities(&reader, &writer, Policy::Strict).len(),
            narrower.len(),
        )
    };
    assert_eq!(compared(30), (0, 1));
    // Beyond the bound the answer is that they do not fit.
    assert_eq!(compared(1_000), (1, 1));
    let mut types = String::from("{\"type\":\"record\",\"name\":\"R0\",\"fields\":[]}");
    for level in 1..1_000 {
        let inner = level - 1;
        types.push_str(&format!(
            r#",{{"type":"record","name":"R{level}","fields":[{{"name":"a","type":"R{inner}"}}]}}"#
        ));
    }
    let text = format!("[{types}]");
    let avro = parse_with(SchemaType::Avro, &text, &[]).unwrap();
    let again = parse_with(SchemaType::Avro, &text, &[]).unwrap();
    // Each record was compared when the next one needs it, so none is too deep.
    assert_eq!(
        ParsedSchema::incompatibilities(&avro, &again, Policy::Strict),
        [""; 0]
    );
}

const ORDER: &str = r#"syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
// A comment.
message Order {
  int64 id = 1;
  repeated Line lines = 2;
  map<string, int32> counts = 3;
  oneof paid { string card = 4; bool cash = 5; }
  optional string note_text = 6 [json_name = "note"];
  google.protobuf.Timestamp at = 7;
  message Line { string sku = 1; Kind kind = 2; }
  enum Kind { NONE = 0; SOME = 1; }
  reserved 8, 10 to 12; reserved "old";
}
message Other { bytes raw = 1 [deprecated = true]; }
"#;

#[test]
fn protobuf_follows_the_json_mapping_and_names_its_message() {
    let schema = proto(ORDER);
    assert_eq!(schema.record_name(), Some("shop.Order"));
    let json = r#"{"id":"9007199254740993","lines":[{"sku":"a","kind":"SOME"}],"counts":{"x":1},"card":"v","note":"n","at":"2026-01-31T12:00:00Z"}"#;
    let payload = schema.encode_alone(json.as_bytes()).unwrap();
    assert_eq!(payload[..2], [0, 0x08]);
    assert_eq!(decoded(&schema, &payload), json);
    assert_eq!(
        decoded(&schema, b"\x00"),
        r#"{"id":"0","lines":[],"counts":{}}"#
    );
    // Indexes [0], [1] and [0, 0] as a count and its numbers.
    assert_eq!(
        decoded(&schema, b"\x02\x00\x08\x05"),
        r#"{"id":"5","lines":[],"counts":{}}"#
    );
    assert_eq!(
        decoded(&schema, b"\x02\x02\x0a\x01\xff"),
        r#"{"raw":"/w=="}"#
    );
    assert_eq!(
        decoded(&schema, b"\x04\x00\x02\x0a\x01s"),
        r#"{"sku":"s","kind":"NONE"}"#
    );
    for json in [
        "{\"x\":1}",
        "{\"id\":\"x\"}",
        "[]",
        "{} {}",
        "{\"card\":\"a\",\"cash\":true}",
    ] {
        let refused = schema.encode_alone(json.as_bytes());
        assert!(matches!(refused, Err(SchemaFault::Value(_))), "{json}");
    }
    for payload in [
        &b""[..],
        b"\x02",
        b"\x02\x08",
        b"\x00\x08",
        b"\x03",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00\x0b",
    ] {
        assert!(
            matches!(schema.decode(payload), Err(SchemaFault::Payload(_))),
            "{payload:?}"
        );
    }
}

#[test]
fn protobuf_has_one_text_whether_it_came_as_text_or_as_a_descriptor() {
    let schema = proto(ORDER);
    let printed = r#"syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  reserved "old";
  reserved 8;
  reserved 10 to 12;
  int64 id = 1;
  repeated Order.Line lines = 2;
  map<string, int32> counts = 3;
  oneof paid {
    string card = 4;
    bool cash = 5;
  }
  optional string note_text = 6 [json_name = "note"];
  google.protobuf.Timestamp at = 7;
  message Line {
    string sku = 1;
    Order.Kind kind = 2;
  }
  enum Kind {
    NONE = 0;
    SOME = 1;
  }
}
message Other {
  bytes raw = 1 [deprecated = true];
}
"#;
    assert_eq!(schema.canonical(), printed);
    assert_eq!(proto(printed).canonical(), printed);
    assert_eq!(proto(&schema.serialized().unwrap()).canonical(), printed);
}

#[test]
fn protobuf_of_the_second_syntax_keeps_what_it_says() {
    let text = r#"package p;
import "google/protobuf/descriptor.proto";
option java_package = "a.b";
option (tag) = { name: "x\"y" level: 2 };
message Tag {
  optional string name = 1;
  optional int32 level = 2 [default = -3];
}
message M {
  option deprecated = true;
  extensions 100 to max;
  required string a = 1 [default = "q\n"];
  optional bytes b = 2 [default = "\001z"];
  repeated int32 c = 3 [packed = true];
  optional group G = 4 {
    optional E e = 1 [default = B];
  }
  extend M {
    optional int32 inner = 101;
  }
}
enum E {
  option allow_alias = true;
  B = 1;
  A = 0;
  C = 1 [deprecated = true];
}
extend google.protobuf.FileOptions {
  optional Tag tag = 50000;
}
extend M {
  repeated M more = 100;
}
service S {
  rpc Call (M) returns (stream M);
  rpc Old (stream M) returns (M) {
    option deprecated = true;
  }
}
"#;
    let schema = proto(text);
    let printed = schema.canonical();
    assert_eq!(proto(printed).canonical(), printed);
    // Printed, not kept: the option's own name is told in full.
    assert!(
        printed.contains("option (p.tag) = { name: \"x\\\"y\" level: 2 };"),
        "{printed}"
    );
    for line in text.lines().filter(|line| !line.contains("(tag)")) {
        assert!(printed.contains(line.trim()), "{line} is not in\n{printed}");
    }
    assert_eq!(proto(&schema.serialized().unwrap()).canonical(), printed);
}

#[test]
fn protobuf_imports_are_its_references() {
    let common = "syntax = \"proto3\"; package c; message C { int32 n = 1; }";
    let text = "syntax = \"proto3\"; import \"c/common.proto\"; message M { c.C c = 1; }";
    let schema = parse_with(SchemaType::Protobuf, text, &[("c/common.proto", common)]).unwrap();
    assert_eq!(
        schema.encode_alone(b"{\"c\":{\"n\":7}}").unwrap(),
        b"\x00\x0a\x02\x08\x07"
    );
    for (text, reason) in [
        (text, "common.proto"),
        ("syntax = \"proto3\"; message M { X x = 1; }", "X"),
        (
            "syntax = \"proto3\"; message M { int32 a = 1; int32 b = 1; }",
            "1",
        ),
        ("message M {", "reached end of file"),
        ("{}", "line 1"),
        ("AAAA", ""),
    ] {
        let refused = parse_with(SchemaType::Protobuf, text, &[])
            .unwrap_err()
            .to_string();
        assert!(refused.contains(reason), "{text}: {refused}");
    }
}

#[test]
fn protobuf_imports_what_everybody_has_without_a_reference() {
    let text = r#"syntax = "proto3";
package p;
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "google/type/date.proto";
import "google/type/datetime.proto";
import "google/type/dayofweek.proto";
message M {
  option (confluent.message_meta) = { doc: "a bill" params: { key: "k" value: "v" } };
  google.type.Date day = 1 [(confluent.field_meta) = { tags: ["PII"] }];
  google.type.DateTime at = 2;
  google.type.DayOfWeek due = 3;
  confluent.type.Decimal sum = 4;
}
"#;
    let schema = proto(text);
    assert_eq!(schema.canonical(), text);
    assert_eq!(proto(&schema.serialized().unwrap()).canonical(), text);
    let json = r#"{"day":{"year":2026,"month":1,"day":31},"at":{"timeZone":{"id":"UTC"}},"due":"FRIDAY","sum":{"value":"AQ==","precision":3,"scale":2}}"#;
    let payload = schema.encode_alone(json.as_bytes()).unwrap();
    let day = b"\x00\x0a\x07\x08\xea\x0f\x10\x01\x18\x1f";
    assert_eq!(payload[..day.len()], day[..]);
    let read = decoded(&schema, &payload);
    assert!(read.contains(r#""due":"FRIDAY""#), "{read}");
    // What is sent as a reference is taken as it was sent, and named by others before it.
    let own = "syntax = \"proto3\"; package google.type; message Date { string iso = 1; }";
    let user = "syntax = \"proto3\"; import \"google/type/date.proto\"; message U { google.type.Date d = 1; }";
    let sent = [("google/type/date.proto", own), ("u.proto", user)];
    let schema = parse_with(SchemaType::Protobuf, &user.replace("U {", "M {"), &sent).unwrap();
    schema.encode_alone(br#"{"d":{"iso":"x"}}"#).unwrap();
    // Names of theirs are nobody's where nobody imports them.
    proto("syntax = \"proto3\"; package google.type; message Date { string iso = 1; }");
}

#[test]
fn hostile_protobuf_ends_at_once() {
    let nested = format!(
        "syntax = \"proto3\"; {}{}",
        "message M {".repeat(100_000),
        "}".repeat(100_000)
    );
    assert!(parse_with(SchemaType::Protobuf, &nested, &[]).is_err());
    let option = format!(
        "syntax = \"proto3\"; option (x) = {}{};",
        "{a:".repeat(100_000),
        "}".repeat(100_000)
    );
    assert!(parse_with(SchemaType::Protobuf, &option, &[]).is_err());
    let list = proto("syntax = \"proto3\"; message L { L next = 1; }");
    let mut payload = Vec::new();
    for _ in 0..10_000 {
        let mut outer = vec![0x0a];
        let mut length = payload.len();
        while length >= 0x80 {
            outer.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        outer.push(length as u8);
        outer.extend_from_slice(&payload);
        payload = outer;
    }
    payload.insert(0, 0);
    assert!(list.decode(&payload).is_err());
    let deep = format!("{}{}", "{\"next\":".repeat(100_000), "}".repeat(100_000));
    assert!(list.encode_alone(deep.as_bytes()).is_err());
    // Two bytes for a message whose defaults take a thousand.
    let fields: Vec<_> = (1..200)
        .map(|n| format!("int32 a_field_{n} = {n};"))
        .collect();
    let wide = format!(
        "syntax = \"proto3\"; message W {{ repeated V v = 1; }} message V {{ {} }}",
        fields.join("")
    );
    let wide = proto(&wide);
    let mut payload = vec![0];
    payload.extend(std::iter::repeat_n([0x0a, 0x00], 100_000).flatten());
    let refused = wide.decode(&payload).unwrap_err().to_string();
    assert!(refused.contains("too large"), "{refused}");
}
