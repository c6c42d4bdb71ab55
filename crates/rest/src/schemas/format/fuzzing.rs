//! What fuzz targets drive.

use std::sync::Arc;

use super::{ParsedSchema, Policy, SchemaSource, SchemaType};

/// Reads a schema of the input's choice, or one of a few that are known to be some, compares it with
/// itself, and reads a payload and a JSON text with it.
///
/// The input: a byte for the type and whether the schema is known, then, unless it is, two bytes for
/// the length of its text and the text; the rest is the payload.
pub fn schema_payload(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else {
        return;
    };
    let kinds = [SchemaType::Avro, SchemaType::Json, SchemaType::Protobuf];
    let kind = kinds[usize::from(mode % 3)];
    let known = KNOWN[usize::from(mode % 3)];
    let (text, payload) = match mode / 3 % 2 {
        0 => (known, rest),
        _ => {
            let Some((length, rest)) = rest.split_first_chunk::<2>() else {
                return;
            };
            let length = usize::from(u16::from_be_bytes(*length)).min(rest.len());
            let (text, payload) = rest.split_at(length);
            let Ok(text) = std::str::from_utf8(text) else {
                return;
            };
            (text, payload)
        }
    };
    let source = |text: &str| SchemaSource {
        kind,
        text: Arc::from(text),
        references: Vec::new(),
    };
    let Ok(schema) = ParsedSchema::parse(&source(text)) else {
        return;
    };
    // What the registry stores must be a schema, and the same one.
    match ParsedSchema::parse(&source(schema.canonical())) {
        Ok(again) => assert_eq!(again.canonical(), schema.canonical(), "{text}"),
        Err(fault) => panic!("{text} becomes {}: {fault}", schema.canonical()),
    }
    let _ = (
        schema.normalized(),
        schema.record_name(),
        schema.serialized(),
        schema.check_defaults(),
        schema.field_names(),
    );
    for policy in [Policy::Strict, Policy::Lenient] {
        let _ = ParsedSchema::incompatibilities(&schema, &schema, policy);
    }
    let _ = schema.encode_alone(payload);
    if let Ok(json) = schema.decode(payload)
        && kind == SchemaType::Avro
        && let Ok(back) = schema.encode_alone(&json)
    {
        assert_eq!(schema.decode(&back), Ok(json), "{text}");
    }
}

const KNOWN: [&str; 3] = [
    r#"{"type":"record","name":"R","fields":[{"name":"n","type":["null","R","long","string",
        {"type":"map","values":"double"},{"type":"array","items":"null"}]},
        {"name":"e","type":{"type":"enum","name":"E","symbols":["A","B"]}},
        {"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"b","type":"bytes"},
        {"name":"g","type":"float"},{"name":"t","type":"boolean"}]}"#,
    r##"{"type":["object","array"],"properties":{"a":{"$ref":"#"},"b":{"type":"integer"}},
        "items":{"anyOf":[{"$ref":"#"},{"type":"string","pattern":"^a+$"}]}}"##,
    r#"syntax = "proto3"; import "google/protobuf/struct.proto";
        import "google/protobuf/timestamp.proto"; import "google/protobuf/any.proto";
        message M { M next = 1; repeated sint64 n = 2; map<string, M> m = 3;
          oneof o { string s = 4; E e = 5; } google.protobuf.Struct v = 6;
          google.protobuf.Timestamp t = 7; google.protobuf.Any a = 8; double d = 9;
          message I { bytes b = 1; } }
        enum E { Z = 0; Y = 1; }"#,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of numbers, the same each time.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(self.0 >> 33).unwrap() % bound
        }
    }

    #[test]
    fn random_payloads_and_schemas_neither_panic_nor_change_on_the_way_back() {
        let mut numbers = Numbers(7);
        for round in 0..1_500 {
            let mut input = vec![u8::try_from(round % 3).unwrap()];
            for _ in 0..numbers.below(24) {
                // Small numbers are lengths, branches and ends, which lead further.
                let bound = [4, 16, 256][numbers.below(3)];
                input.push(u8::try_from(numbers.below(bound)).unwrap());
            }
            schema_payload(&input);
        }
        for round in 0..300_usize {
            let mut text = KNOWN[round % 3].as_bytes().to_vec();
            for _ in 0..=numbers.below(3) {
                let at = numbers.below(text.len());
                match numbers.below(3) {
                    0 => drop(text.remove(at)),
                    1 => text[at] = b"{}[]\",:;0aR "[numbers.below(12)],
                    _ => {
                        let end = (at + numbers.below(40)).min(text.len());
                        let part = text[at..end].to_vec();
                        text.splice(at..at, part);
                    }
                }
            }
            let length = u16::try_from(text.len()).unwrap();
            let mut input = vec![u8::try_from(3 + round % 3).unwrap()];
            input.extend(length.to_be_bytes());
            input.extend(text);
            schema_payload(&input);
        }
    }

    #[test]
    fn the_corpus_stays_found() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/schema_payload"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            schema_payload(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "the corpus is empty");
    }
}
