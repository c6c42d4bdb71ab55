//! Every format read and written; what is no record of it is told.

use std::sync::Arc;

use super::csv::{CsvReaders, CsvWriters};
use super::json::{JsonReaders, JsonWriters};
use super::xml::{ArrayTags, XmlReaders, XmlWriters};
use super::{Create, Open, RecordError};
use crate::json::{Fields, Json};

pub(super) fn read(readers: &impl Open, input: impl AsRef<[u8]>) -> Result<Vec<Fields>, String> {
    let mut reader = readers.open(Box::new(Trickle(input.as_ref())));
    let mut all = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => all.push(record),
            Ok(None) => return Ok(all),
            Err(RecordError::Format(reason)) => return Err(reason),
            Err(RecordError::Content(error)) => panic!("{error}"),
        }
    }
}

/// Gives a few bytes at a time, so that everything lies across a border.
struct Trickle<'b>(&'b [u8]);

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let len = self.0.len().min(into.len()).min(3);
        into[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

pub(super) fn read_text(readers: &impl Open, input: impl AsRef<[u8]>) -> Result<String, String> {
    let records = read(readers, input)?.into_iter().map(Json::Object);
    Ok(Json::List(records.collect()).to_text())
}

fn written(writers: &impl Create, records: &str) -> Result<String, String> {
    Ok(String::from_utf8(written_bytes(writers, records)?).unwrap())
}

pub(super) fn written_bytes(writers: &impl Create, records: &str) -> Result<Vec<u8>, String> {
    let records = read(&JsonReaders, records).unwrap();
    let mut out = Vec::new();
    {
        let mut writer = writers.create(Box::new(&mut out));
        let refused = |error| match error {
            RecordError::Format(reason) => reason,
            RecordError::Content(error) => panic!("{error}"),
        };
        for record in &records {
            writer.write(record).map_err(refused)?;
        }
        writer.finish().map_err(refused)?;
    }
    Ok(out)
}

#[test]
fn json_records_come_as_a_list_or_one_after_the_other() {
    for (input, expected) in [
        (
            r#"[{"a":1},{"b":[1,{"c":"]"}]}]"#,
            r#"[{"a":1},{"b":[1,{"c":"]"}]}]"#,
        ),
        ("{\"a\":1}\n{\"a\":\"\\\"[\"}\n", r#"[{"a":1},{"a":"\"["}]"#),
        ("{\"a\":1}{\"a\":2}", r#"[{"a":1},{"a":2}]"#),
        (" [ ] ", "[]"),
        ("[{\"a\":1}] [{\"a\":2}]", r#"[{"a":1},{"a":2}]"#),
        ("", "[]"),
    ] {
        assert_eq!(
            read_text(&JsonReaders, input).as_deref(),
            Ok(expected),
            "{input}"
        );
    }
    for (input, part) in [
        ("[{\"a\":1}", "does not end"),
        (
            "[{\"a\":1},2]",
            "record 1, counted from 0, is no JSON object",
        ),
        ("[[{\"a\":1}]]", "no JSON object"),
        ("{\"a\":", "record 0"),
        ("{\"a\":1}}", "closes nothing"),
        ("a", "no JSON"),
    ] {
        let error = read_text(&JsonReaders, input).unwrap_err();
        assert!(error.contains(part), "{input}: {error}");
    }
}

#[test]
fn json_is_written_as_a_list_or_by_lines() {
    for (by_lines, is_pretty, records, expected) in [
        (
            false,
            false,
            r#"{"b":1}{"a":null}"#,
            r#"[{"b":1},{"a":null}]"#,
        ),
        (
            false,
            true,
            r#"{"b":1}{"a":2}"#,
            "[\n{\n    \"b\": 1\n},\n{\n    \"a\": 2\n}\n]",
        ),
        (true, true, r#"{"b":1}{"a":2}"#, "{\"b\":1}\n{\"a\":2}\n"),
        (false, false, "", "[]"),
        (true, false, "", ""),
    ] {
        let writers = JsonWriters {
            by_lines,
            is_pretty,
        };
        assert_eq!(written(&writers, records).as_deref(), Ok(expected));
    }
}

fn csv_readers() -> CsvReaders {
    CsvReaders {
        separator: b',',
        quote: Some(b'"'),
        escape: Some(b'\\'),
        comment: None,
        null: None,
        trims: true,
        has_header: true,
        infers: true,
    }
}

#[test]
fn csv_lines_are_records_by_their_header() {
    for (input, expected) in [
        (
            "\u{feff}id,name, ok\r\n1,\"a, \"\"b\"\"\", true\r\n007,\"x\ny\",1.5\n",
            r#"[{"id":1,"name":"a, \"b\"","ok":true},{"id":"007","name":"x\ny","ok":1.5}]"#,
        ),
        ("a,b\n1\n", r#"[{"a":1,"b":null}]"#),
        (
            "a\n-\n1e3\n-5\n18446744073709551615\n+1\n.5\n",
            r#"[{"a":"-"},{"a":1000.0},{"a":-5},{"a":18446744073709551615},{"a":"+1"},{"a":".5"}]"#,
        ),
        ("a\n\"q\\\"r\"\n", r#"[{"a":"q\"r"}]"#),
        ("a,b\n", "[]"),
        ("", "[]"),
    ] {
        assert_eq!(
            read_text(&csv_readers(), input).as_deref(),
            Ok(expected),
            "{input:?}"
        );
    }
    let other = CsvReaders {
        separator: b'\t',
        quote: None,
        comment: Some(b'#'),
        null: Some("-".to_owned()),
        has_header: false,
        infers: false,
        ..csv_readers()
    };
    assert_eq!(
        read_text(&other, "# no\n1\t\"x\"\n-\ttrue\n").as_deref(),
        Ok(r#"[{"column_0":"1","column_1":"\"x\""},{"column_0":null,"column_1":"true"}]"#)
    );
    for (input, part) in [
        ("a,b\n1,2,3\n", "line 2 has 3 fields, the header has 2"),
        ("a,a\n1,2\n", "'a' twice"),
    ] {
        let error = read_text(&csv_readers(), input).unwrap_err();
        assert!(error.contains(part), "{input:?}: {error}");
    }
    let mut reader = csv_readers().open(Box::new(&b"a\n\xff\n"[..]));
    assert!(matches!(reader.next(), Err(RecordError::Format(reason)) if reason.contains("UTF-8")));
}

#[test]
fn csv_is_written_by_the_first_record_s_fields() {
    let writers = CsvWriters {
        separator: b',',
        quote: b'"',
        quotes: csv::QuoteStyle::Necessary,
        terminator: csv::Terminator::Any(b'\n'),
        has_header: true,
        null: "NULL".to_owned(),
    };
    let records = r#"{"a":1,"b":"x,\"y"}{"b":null,"a":[1,{"c":2}]}{"a":true}"#;
    assert_eq!(
        written(&writers, records).as_deref(),
        Ok("a,b\n1,\"x,\"\"y\"\n\"[1,{\"\"c\"\":2}]\",NULL\ntrue,NULL\n")
    );
    let other = CsvWriters {
        separator: b';',
        quotes: csv::QuoteStyle::Always,
        terminator: csv::Terminator::CRLF,
        has_header: false,
        ..writers.clone()
    };
    assert_eq!(
        written(&other, records).as_deref().map(|text| &text[..11]),
        Ok("\"1\";\"x,\"\"y\"")
    );
    let error = written(&writers, r#"{"a":1}{"a":1,"z":2}"#).unwrap_err();
    assert!(
        error.contains("field 'z' that the first has not"),
        "{error}"
    );
}

fn xml_readers(is_wrapped: bool) -> XmlReaders {
    XmlReaders {
        content_field: "value".to_owned(),
        attribute_prefix: None,
        is_wrapped,
    }
}

#[test]
fn xml_elements_are_records() {
    for (is_wrapped, input, expected) in [
        (
            true,
            "<?xml version=\"1.0\"?><!-- c --><all> <r><a>1</a><b>x &lt;&#65;<![CDATA[&]]></b></r>\n<r/></all>",
            r#"[{"a":1,"b":"x <A&"},{}]"#,
        ),
        (
            false,
            "<r id='7'><i>1</i><i>two</i><n><m>true</m>text</n><e></e></r>",
            r#"[{"i":[1,"two"],"n":{"m":true,"value":"text"},"e":""}]"#,
        ),
        (true, "<all></all>", "[]"),
        (false, "", "[]"),
    ] {
        let found = read_text(&xml_readers(is_wrapped), input);
        assert_eq!(found.as_deref(), Ok(expected), "{input}");
    }
    let with_attributes = XmlReaders {
        content_field: "text".to_owned(),
        attribute_prefix: Some("@".to_owned()),
        is_wrapped: false,
    };
    assert_eq!(
        read_text(&with_attributes, "<r id='7'><n k='&quot;'>5</n></r>").as_deref(),
        Ok(r#"[{"@id":7,"n":{"@k":"\"","text":5}}]"#)
    );
    let deep = "<a>".repeat(200);
    for (input, part) in [
        ("<all><r>", "does not end"),
        ("<all><r></all>", "no XML"),
        ("<all><r>&boom;</r></all>", "'boom' is not known"),
        ("<all>", "outer element does not end"),
        (deep.as_str(), "nested more than"),
    ] {
        let error = read_text(&xml_readers(true), input).unwrap_err();
        assert!(error.contains(part), "{input}: {error}");
    }
}

#[test]
fn xml_is_written_with_its_lists() {
    let writers = |arrays, is_pretty| XmlWriters {
        root: "all".to_owned(),
        record: "r".to_owned(),
        arrays,
        has_declaration: is_pretty,
        is_pretty,
    };
    let records = r#"{"a b":"<&>\u0001","l":[1,{"m":null}]}{}"#;
    for (arrays, list) in [
        (ArrayTags::None, "<l>1</l><l><m></m></l>"),
        (
            ArrayTags::Wrapper("w".to_owned()),
            "<w><l>1</l><l><m></m></l></w>",
        ),
        (
            ArrayTags::Elements("w".to_owned()),
            "<l><w>1</w><w><m></m></w></l>",
        ),
    ] {
        let expected = format!("<all><r><a_b>&lt;&amp;&gt;</a_b>{list}</r><r></r></all>");
        assert_eq!(written(&writers(arrays, false), records), Ok(expected));
    }
    assert_eq!(
        written(&writers(ArrayTags::None, true), r#"{"a":1}"#).as_deref(),
        Ok("<?xml version=\"1.0\"?>\n<all>\n  <r>\n    <a>1</a>\n  </r>\n</all>")
    );
    assert_eq!(
        written(&writers(ArrayTags::None, false), "").as_deref(),
        Ok("<all></all>")
    );
}

#[test]
fn readers_take_any_bytes() {
    let mut random = base::Rng::from_seed(9);
    let pieces: [&[u8]; 20] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b"\"",
        b"\\",
        b",",
        b"\n",
        b"a",
        b"1",
        b"<",
        b">",
        b"</",
        b"<a>",
        b"</a>",
        b"&",
        b";",
        b"=",
        b"\xff",
        b"<![CDATA[",
    ];
    let openers: [Arc<dyn Open>; 3] = [
        Arc::new(JsonReaders),
        Arc::new(csv_readers()),
        Arc::new(xml_readers(true)),
    ];
    for _ in 0..20_000 {
        let input: Vec<u8> = (0..random.below(20))
            .flat_map(|_| pieces[random.below(20) as usize].to_vec())
            .collect();
        for opener in &openers {
            let mut reader = opener.open(Box::new(input.as_slice()));
            for _ in 0..100 {
                if !matches!(reader.next(), Ok(Some(_))) {
                    break;
                }
            }
        }
    }
}
