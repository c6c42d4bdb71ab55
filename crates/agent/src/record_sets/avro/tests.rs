//! Files of every packing read and written, by schemas that are given and found.

use std::sync::Arc;

use super::schema::AvroSchema;
use super::{AvroReaders, AvroWriters, Packing};
use crate::record_sets::tests::{read_text, written_bytes};

const FILES: AvroReaders = AvroReaders { schema: None };

fn schema(text: &str) -> Arc<AvroSchema> {
    Arc::new(AvroSchema::parse(text).unwrap())
}

fn of_fields(fields: &str) -> Arc<AvroSchema> {
    schema(&format!(
        r#"{{"type":"record","name":"r","fields":[{fields}]}}"#
    ))
}

fn bare(schema: &Arc<AvroSchema>) -> AvroWriters {
    AvroWriters {
        schema: Some(Arc::clone(schema)),
        packing: Packing::None,
        is_bare: true,
    }
}

fn found(packing: Packing) -> AvroWriters {
    AvroWriters {
        schema: None,
        packing,
        is_bare: false,
    }
}

#[test]
fn files_of_every_packing_give_back_what_was_written() {
    let records = r#"{"id":1,"name":"pump","at":{"x":1.5,"tags":["a","b"]},"ok":true}
        {"id":null,"name":"","at":{"x":2,"tags":[]},"ok":null}
        {"name":"\u00e4\u20ac","at":null}"#;
    let expected = r#"[{"id":1,"name":"pump","at":{"x":1.5,"tags":["a","b"]},"ok":true},{"id":null,"name":"","at":{"x":2.0,"tags":[]},"ok":null},{"id":null,"name":"ä€","at":null,"ok":null}]"#;
    for packing in [
        Packing::None,
        Packing::Deflate,
        Packing::Snappy,
        Packing::Zstandard,
        Packing::Bzip2,
    ] {
        let file = written_bytes(&found(packing), records).unwrap();
        assert_eq!(
            read_text(&FILES, &file).as_deref(),
            Ok(expected),
            "{packing:?}"
        );
        // Every byte is held by something: the schema, a length, a checksum or the mark.
        for cut in 0..file.len() {
            let read = read_text(&FILES, &file[..cut]);
            let is_whole = cut == 0 || file[..cut].ends_with(&file[file.len() - 16..]);
            assert_eq!(read.is_ok(), is_whole, "{packing:?} cut at {cut}: {read:?}");
        }
    }
}

#[test]
fn nothing_is_lost_by_a_schema_that_was_found() {
    let first = "{\"a\":1}".repeat(1_000);
    for (late, part) in [
        ("{\"a\":2,\"b\":1}", "field 'b' is not in the schema"),
        ("{\"a\":\"x\"}", "branch of its union"),
        ("{\"a\":1.5}", "branch of its union"),
    ] {
        let records = format!("{first}{late}");
        let error = written_bytes(&found(Packing::None), &records).unwrap_err();
        assert!(error.contains(part), "{late}: {error}");
        assert!(error.contains("record 1000"), "{late}: {error}");
    }
}

#[test]
fn files_of_another_implementation_are_read() {
    // Written by fastavro 1.13, two blocks at least.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/record_sets/avro/samples");
    let record = |n: u32, name: &str, value: &str, tags: &str| {
        format!(
            "{{\"id\":{n},\"name\":{name},\"ratio\":1.1,\"value\":{value},\"at\":1767323045000,\
             \"price\":-12.5,\"state\":\"DOWN\",\"raw\":\"\\u0000ÿ\",\"tags\":{tags},\
             \"more\":{{\"p\":{{\"x\":{n},\"y\":{{\"x\":-1,\"y\":null}}}}}}}}"
        )
    };
    let expected = format!(
        "[{},{},{}]",
        record(0, "\"pump 0\"", "null", "[]"),
        record(1, "null", "2.5", "[\"a\"]"),
        record(2, "\"pump 2\"", "\"text\"", "[\"a\",\"b\"]"),
    );
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = std::fs::read(&path).unwrap();
        let read = read_text(&FILES, &file);
        assert_eq!(read.as_deref(), Ok(expected.as_str()), "{}", path.display());
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn many_records_become_many_blocks() {
    let records: String = (0..20_000)
        .map(|n| format!("{{\"id\":{n},\"name\":\"row number {n}\"}}"))
        .collect();
    let file = written_bytes(&found(Packing::Deflate), &records).unwrap();
    let mark = &file[file.len() - 16..];
    let marks = file.windows(16).filter(|window| *window == mark).count();
    assert!(marks > 4, "{marks} marks");
    let read = read_text(&FILES, &file).unwrap();
    assert_eq!(read.replace("},{", "}{"), format!("[{records}]"));
}

#[test]
fn the_bytes_are_the_specification_s() {
    // The examples of the specification: a record of a long and a string, an array of longs.
    let pair = of_fields(r#"{"name":"a","type":"long"},{"name":"b","type":"string"}"#);
    let bytes = written_bytes(&bare(&pair), r#"{"a":27,"b":"foo"}"#).unwrap();
    assert_eq!(bytes, [0x36, 0x06, 0x66, 0x6f, 0x6f]);
    let list = of_fields(r#"{"name":"l","type":{"type":"array","items":"long"}}"#);
    let bytes = written_bytes(&bare(&list), r#"{"l":[3,27]}"#).unwrap();
    assert_eq!(bytes, [0x04, 0x06, 0x36, 0x00]);
    let union = of_fields(r#"{"name":"u","type":["null","string"]}"#);
    let bytes = written_bytes(&bare(&union), r#"{"u":null}{"u":"a"}"#).unwrap();
    assert_eq!(bytes, [0x00, 0x02, 0x02, 0x61]);
    for number in [0, -1, 1, -64, 64, i64::MAX, i64::MIN] {
        let long = of_fields(r#"{"name":"a","type":"long"}"#);
        let text = format!("{{\"a\":{number}}}");
        let bytes = written_bytes(&bare(&long), &text).unwrap();
        let readers = AvroReaders { schema: Some(long) };
        assert_eq!(read_text(&readers, &bytes), Ok(format!("[{text}]")));
    }
}

#[test]
fn a_given_schema_shapes_values() {
    for (fields, record, expected) in [
        // Numbers and texts of other formats fit where they can.
        (
            r#"{"name":"a","type":"string"},{"name":"b","type":"double"},{"name":"c","type":"int"}"#,
            r#"{"a":7,"b":2,"c":"12","left out":1}"#,
            r#"{"a":"7","b":2.0,"c":12}"#,
        ),
        // A union's branch of the value's own kind is taken before one that is wider.
        (
            r#"{"name":"a","type":["null","string","long","double"]},{"name":"b","type":["double","int"]}"#,
            r#"{"a":7,"b":7}"#,
            r#"{"a":7,"b":7}"#,
        ),
        (
            r#"{"name":"a","type":"long","default":3},{"name":"b","type":"string","aliases":["old"]}"#,
            r#"{"old":"x"}"#,
            r#"{"a":3,"b":"x"}"#,
        ),
        (
            r#"{"name":"e","type":{"type":"enum","name":"E","symbols":["UP","DOWN"]}},{"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"b","type":"bytes"},{"name":"m","type":{"type":"map","values":"float"}}"#,
            r#"{"e":"DOWN","f":"\u0000\u00ff","b":"\u00e4","m":{"x":1.1}}"#,
            "{\"e\":\"DOWN\",\"f\":\"\\u0000ÿ\",\"b\":\"ä\",\"m\":{\"x\":1.1}}",
        ),
        (
            r#"{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},{"name":"e","type":{"type":"fixed","name":"F","size":16,"logicalType":"decimal","precision":38,"scale":3}},{"name":"f","type":{"type":"bytes","logicalType":"decimal","precision":5}}"#,
            r#"{"d":-12.5,"e":"12345678901234567890.123","f":-128}"#,
            r#"{"d":-12.5,"e":"12345678901234567890.123","f":-128}"#,
        ),
        // A record within itself, by a union.
        (
            r#"{"name":"v","type":"int"},{"name":"next","type":["null","r"]}"#,
            r#"{"v":1,"next":{"v":2,"next":null}}"#,
            r#"{"v":1,"next":{"v":2,"next":null}}"#,
        ),
    ] {
        let schema = of_fields(fields);
        let bytes = written_bytes(&bare(&schema), record);
        let bytes = bytes.unwrap_or_else(|error| panic!("{record}: {error}"));
        let readers = AvroReaders {
            schema: Some(schema),
        };
        assert_eq!(read_text(&readers, &bytes), Ok(format!("[{expected}]")));
    }
    for (fields, record, part) in [
        (
            r#"{"name":"a","type":"long"}"#,
            "{}",
            "field 'a' is missing",
        ),
        (
            r#"{"name":"a","type":"int"}"#,
            r#"{"a":2147483648}"#,
            "is no int",
        ),
        (
            r#"{"name":"a","type":{"type":"record","name":"s","fields":[{"name":"b","type":"boolean"}]}}"#,
            r#"{"a":{"b":"perhaps"}}"#,
            "field 'a.b' is no boolean",
        ),
        (
            r#"{"name":"a","type":["null","long"]}"#,
            r#"{"a":"x"}"#,
            "branch of its union",
        ),
        (
            r#"{"name":"d","type":{"type":"bytes","logicalType":"decimal","scale":1}}"#,
            r#"{"d":1.25}"#,
            "is no decimal",
        ),
    ] {
        let error = written_bytes(&bare(&of_fields(fields)), record).unwrap_err();
        assert!(error.contains(part), "{record}: {error}");
        assert!(error.contains("record 0"), "{record}: {error}");
    }
}

#[test]
fn schemas_that_cannot_be_are_refused() {
    for (text, part) in [
        ("[", "no JSON"),
        (r#""string""#, "no record"),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":"b"}]}"#,
            "no type 'b'",
        ),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}"#,
            "holds itself",
        ),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}"#,
            "twice",
        ),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":[["int"]]}]}"#,
            "union",
        ),
        (r#"{"type":"record","fields":[]}"#, "no name"),
        (
            r#"{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"enum","name":"r","symbols":["x"]}}]}"#,
            "used twice",
        ),
    ] {
        let error = AvroSchema::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let deep = format!(
        r#"{{"type":"record","name":"r","fields":[{{"name":"a","type":{}"int"{}}}]}}"#,
        r#"{"type":"array","items":"#.repeat(70),
        "}".repeat(70)
    );
    assert!(AvroSchema::parse(&deep).unwrap_err().contains("deeper"));
    let wide = r#"{"a b":1}"#;
    let error = written_bytes(&found(Packing::None), wide).unwrap_err();
    assert!(error.contains("'a b' is no name of Avro"), "{error}");
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let nothing = of_fields(r#"{"name":"n","type":{"type":"array","items":"null"}}"#);
    // An array of 2^62 nulls in ten bytes.
    let mut bytes = Vec::new();
    super::encode::long(1 << 62, &mut bytes);
    let readers = AvroReaders {
        schema: Some(nothing),
    };
    let error = read_text(&readers, &bytes).unwrap_err();
    assert!(error.contains("more than"), "{error}");
    let text = of_fields(r#"{"name":"n","type":"string"}"#);
    let readers = AvroReaders { schema: Some(text) };
    for len in [i64::MAX, -1, 5] {
        let mut bytes = Vec::new();
        super::encode::long(len, &mut bytes);
        let error = read_text(&readers, &bytes).unwrap_err();
        assert!(error.contains("record 0"), "{error}");
    }
    let mut file = written_bytes(&found(Packing::None), r#"{"a":1}"#).unwrap();
    let block = file.len() - 16 - 4;
    // The count of the block, then its length.
    assert_eq!(file[block], 2);
    file[block] = 0xfe;
    file.insert(block + 1, 0x7f);
    let error = read_text(&FILES, &file).unwrap_err();
    assert!(
        error.contains("is no Avro") || error.contains("counts more"),
        "{error}"
    );
}
