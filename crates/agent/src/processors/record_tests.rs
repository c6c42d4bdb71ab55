//! ConvertRecord, SplitRecord and QueryRecord with the services that flows configure.

use serde_json::{Value, json};

use crate::testing::{Out, Rig};

/// A rig with every kind of reader and writer: `json`, `csv`, `xml` and `avro`, and `lines` to
/// write.
fn rig(kind: &str, properties: &[(&str, &str)]) -> Rig {
    Rig::try_new(kind, properties, services()).unwrap_or_else(|error| panic!("{error}"))
}

fn services() -> Value {
    let service = |id: &str, class: &str, properties: Value| json!({ "id": id, "name": id, "class": class, "Properties": properties });
    json!({ "Controller Services": [
        service("json in", "JsonTreeReader", json!({})),
        service("json out", "JsonRecordSetWriter", json!({})),
        service("lines out", "JsonRecordSetWriter", json!({ "Output Grouping": "One Line Per Object" })),
        service("csv in", "CSVReader", json!({})),
        service("csv out", "CSVRecordSetWriter", json!({ "Value Separator": ";" })),
        service("avro in", "AvroReader", json!({})),
        service("avro out", "AvroRecordSetWriter", json!({ "Compression Format": "SNAPPY" })),
        service("xml in", "XMLReader", json!({ "Expect Records as Array": "true" })),
        service("xml out", "XMLRecordSetWriter", json!({
            "Name of Root Tag": "all",
            "Name of Record Tag": "r",
            "Omit XML Declaration": "true",
        })),
    ] })
}

const CSV: &str = "id,name\n1,pump\n2,\"valve, red\"\n";

#[test]
fn records_are_converted_between_all_formats() {
    let in_json = r#"[{"id":1,"name":"pump"},{"id":2,"name":"valve, red"}]"#;
    let in_csv = "id;name\n1;pump\n2;valve, red\n";
    let in_xml = "<all><r><id>1</id><name>pump</name></r>\
                  <r><id>2</id><name>valve, red</name></r></all>";
    for (reader, input) in [("json in", in_json), ("csv in", CSV), ("xml in", in_xml)] {
        for (writer, output, mime_type) in [
            ("json out", in_json, "application/json"),
            ("csv out", in_csv, "text/csv"),
            ("xml out", in_xml, "application/xml"),
        ] {
            let mut rig = rig(
                "ConvertRecord",
                &[("Record Reader", reader), ("Record Writer", writer)],
            );
            rig.put(&[("kept", "1")], input);
            rig.run();
            let out = rig.one("success");
            assert_eq!(out.text(), output, "{reader} {writer}");
            for (name, value) in [
                ("record.count", "2"),
                ("mime.type", mime_type),
                ("kept", "1"),
            ] {
                assert_eq!(out.attribute(name), value, "{name}");
            }
        }
    }
}

/// The records of `content`, through a processor `kind` between Avro and `writer`.
fn through(kind: &str, more: &[(&str, &str)], reader: &str, writer: &str, content: &[u8]) -> Out {
    let own = [("Record Reader", reader), ("Record Writer", writer)];
    let mut rig = rig(kind, &[&own[..], more].concat());
    rig.put(&[], content);
    rig.run();
    rig.one(if kind == "QueryRecord" {
        "q"
    } else {
        "success"
    })
}

#[test]
fn avro_is_converted_and_queried_like_any_other_format() {
    let file = through("ConvertRecord", &[], "csv in", "avro out", CSV.as_bytes());
    assert!(file.content.starts_with(b"Obj\x01"));
    assert_eq!(file.attribute("mime.type"), "application/avro-binary");
    let back = through("ConvertRecord", &[], "avro in", "lines out", &file.content);
    let lines = "{\"id\":1,\"name\":\"pump\"}\n{\"id\":2,\"name\":\"valve, red\"}\n";
    assert_eq!(back.text(), lines);
    let sql = [("q", "SELECT count(*) AS n, max(id) AS m FROM FLOWFILE")];
    let answer = through("QueryRecord", &sql, "avro in", "avro out", &file.content);
    let answer = through(
        "ConvertRecord",
        &[],
        "avro in",
        "lines out",
        &answer.content,
    );
    assert_eq!(answer.text(), "{\"n\":2,\"m\":2}\n");
    let own = [("Record Reader", "avro in"), ("Record Writer", "json out")];
    let mut rig = rig("ConvertRecord", &own);
    rig.put(&[], "Object");
    rig.run();
    let refused = rig.one("failure");
    let why = refused.attribute("record.error.message");
    assert!(why.contains("no Avro file"), "{why}");
}

#[test]
fn what_is_no_record_fails_unchanged() {
    let own = [("Record Reader", "json in"), ("Record Writer", "json out")];
    let mut rig = rig("ConvertRecord", &own);
    rig.put(&[], "[{\"a\":1},{\"a\":");
    rig.run();
    let out = rig.one("failure");
    assert_eq!(out.text(), "[{\"a\":1},{\"a\":");
    assert!(
        out.attribute("record.error.message")
            .contains("does not end")
    );
    rig.put(&[], "[{\"a\":1},{\"a\":}]");
    rig.run();
    let out = rig.one("failure");
    assert!(
        out.attribute("record.error.message")
            .contains("record 1, counted from 0")
    );
    rig.put(&[], "[]");
    rig.run();
    assert_eq!(rig.one("success").attribute("record.count"), "0");
    let own = [&own[..], &[("Include Zero Record FlowFiles", "false")]].concat();
    let mut rig = self::rig("ConvertRecord", &own);
    rig.put(&[], "[]");
    rig.run();
    assert_eq!((rig.counts(), rig.waiting()), (vec![], 0));
    let wrong = [("Record Reader", "json out"), ("Record Writer", "json out")];
    assert!(Rig::try_new("ConvertRecord", &wrong, services()).is_err());
}

#[test]
fn records_are_split_by_their_number() {
    let mut rig = rig(
        "SplitRecord",
        &[
            ("Record Reader", "csv in"),
            ("Record Writer", "lines out"),
            ("Records Per Split", "${n}"),
        ],
    );
    rig.put(&[("filename", "a.csv"), ("n", "2")], "id\n1\n2\n3\n");
    rig.run();
    let pieces = rig.out("splits");
    let texts: Vec<&str> = pieces.iter().map(Out::text).collect();
    assert_eq!(texts, ["{\"id\":1}\n{\"id\":2}\n", "{\"id\":3}\n"]);
    for (index, count) in ["2", "1"].into_iter().enumerate() {
        for (name, value) in [
            ("record.count", count),
            ("fragment.index", &index.to_string()),
            ("fragment.count", "2"),
            ("segment.original.filename", "a.csv"),
        ] {
            assert_eq!(pieces[index].attribute(name), value, "{name}");
        }
    }
    assert_eq!(rig.one("original").attribute("record.count"), "");
    rig.put(&[("n", "0")], "id\n1\n");
    rig.put(&[("n", "1")], "id\n1,2\n");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 2)]);
}

#[test]
fn large_sets_are_converted_record_by_record() {
    let mut rig = rig(
        "ConvertRecord",
        &[("Record Reader", "csv in"), ("Record Writer", "lines out")],
    );
    let rows: String = (0..60_000)
        .map(|n| format!("{n},row number {n}\n"))
        .collect();
    rig.put(&[], format!("id,name\n{rows}"));
    rig.run();
    let out = rig.one("success");
    assert_eq!(out.attribute("record.count"), "60000");
    let expected: String = (0..60_000)
        .map(|n| format!("{{\"id\":{n},\"name\":\"row number {n}\"}}\n"))
        .collect();
    assert!(out.content == expected.as_bytes());
}

fn queried(sql: &str, input: &str) -> Result<String, String> {
    let mut rig = rig(
        "QueryRecord",
        &[
            ("Record Reader", "json in"),
            ("Record Writer", "lines out"),
            ("found", sql),
        ],
    );
    rig.put(&[("least", "2")], input);
    rig.run();
    if rig.count("failure") > 0 {
        return Err(rig.bulletins().join("; "));
    }
    let out = rig.one("found");
    assert_eq!(out.attribute("QueryRecord.Route"), "found");
    assert_eq!(
        out.attribute("record.count"),
        out.text().lines().count().to_string()
    );
    assert_eq!(rig.count("original"), 1);
    Ok(out.text().replace('\n', " ").trim_end().to_owned())
}

#[test]
fn queries_select_filter_group_and_sort() {
    let rows = r#"{"id":1,"kind":"a","v":1.5,"at":{"x":1}}
        {"id":2,"kind":"b","v":null,"tags":["t"]}
        {"id":3,"kind":"a","v":4}
        {"id":4,"kind":"B","v":-2}"#;
    for (sql, expected) in [
        (
            "SELECT id FROM FLOWFILE WHERE v > 1",
            r#"{"id":1} {"id":3}"#,
        ),
        (
            "select ID as n, upper(kind) k from flowfile where id in (2, 3)",
            r#"{"n":2,"k":"B"} {"n":3,"k":"A"}"#,
        ),
        (
            "SELECT * FROM FLOWFILE WHERE kind = 'b'",
            r#"{"id":2,"kind":"b","v":null,"tags":["t"]}"#,
        ),
        (
            "SELECT id FROM FLOWFILE WHERE v IS NULL OR NOT kind LIKE '_'",
            r#"{"id":2}"#,
        ),
        (
            "SELECT id FROM FLOWFILE WHERE id >= ${least} ORDER BY v DESC",
            r#"{"id":2} {"id":3} {"id":4}"#,
        ),
        (
            "SELECT id FROM FLOWFILE ORDER BY kind, id DESC LIMIT 2 OFFSET 1",
            r#"{"id":3} {"id":1}"#,
        ),
        ("SELECT id FROM FLOWFILE LIMIT 1", r#"{"id":1}"#),
        (
            "SELECT kind, COUNT(*) AS n, SUM(v) AS s, AVG(v) m FROM FLOWFILE GROUP BY kind ORDER BY n DESC, kind",
            r#"{"kind":"a","n":2,"s":5.5,"m":2.75} {"kind":"B","n":1,"s":-2,"m":-2.0} {"kind":"b","n":1,"s":null,"m":null}"#,
        ),
        (
            "SELECT COUNT(*) c, COUNT(v) v, MIN(v) lo, MAX(v) hi, COUNT(DISTINCT kind) k FROM FLOWFILE",
            r#"{"c":4,"v":3,"lo":-2,"hi":4,"k":3}"#,
        ),
        ("SELECT COUNT(*) c FROM FLOWFILE WHERE id > 9", r#"{"c":0}"#),
        (
            "SELECT kind FROM FLOWFILE GROUP BY kind HAVING COUNT(*) > 1",
            r#"{"kind":"a"}"#,
        ),
        (
            "SELECT DISTINCT lower(kind) AS k FROM FLOWFILE",
            r#"{"k":"a"} {"k":"b"}"#,
        ),
        (
            "SELECT f.at.x AS x, id * 2 + 1 AS y FROM FLOWFILE f WHERE f.id = 1",
            r#"{"x":1,"y":3}"#,
        ),
        (
            "SELECT CASE WHEN v > 2 THEN 'high' WHEN v IS NULL THEN 'none' ELSE 'low' END AS c FROM FLOWFILE",
            r#"{"c":"low"} {"c":"none"} {"c":"high"} {"c":"low"}"#,
        ),
        (
            "SELECT COALESCE(v, 0) AS v, kind || '-' || id AS k FROM FLOWFILE WHERE id = 2",
            r#"{"v":0,"k":"b-2"}"#,
        ),
        (
            "SELECT CAST(id AS VARCHAR) a, CAST('12' AS INTEGER) b, CAST(v AS DOUBLE) c FROM FLOWFILE WHERE id = 3",
            r#"{"a":"3","b":12,"c":4.0}"#,
        ),
        (
            "SELECT id FROM FLOWFILE WHERE id BETWEEN 2 AND 3 AND kind <> 'a'",
            r#"{"id":2}"#,
        ),
        (
            "SELECT SUBSTRING(kind FROM 1 FOR 1) s, LENGTH('äö') l, TRIM(' x ') t, ROUND(v) r, ABS(-v) p FROM FLOWFILE WHERE id = 1",
            r#"{"s":"a","l":2,"t":"x","r":2,"p":1.5}"#,
        ),
        (
            "SELECT JSON_VALUE(tags, '$[0]') AS t FROM FLOWFILE WHERE tags IS NOT NULL",
            r#"{"t":"t"}"#,
        ),
    ] {
        assert_eq!(queried(sql, rows).as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn queries_that_cannot_be_answered_say_why() {
    for (sql, part) in [
        (
            "SELECT id FROM FLOWFILE WHERE id / 0 > 1",
            "division by zero",
        ),
        ("SELECT id + 'x' FROM FLOWFILE", "no number"),
        ("SELECT CAST('x' AS INTEGER) FROM FLOWFILE", "'x'"),
        ("SELECT id FROM FLOWFILE WHERE id > ${nothing}", "no SQL"),
    ] {
        let error = queried(sql, "{\"id\":1}").unwrap_err();
        assert!(error.contains(part), "{sql}: {error}");
    }
    for (sql, part) in [
        ("SELECT id FROM other", "FLOWFILE"),
        ("SELECT frobnicate(id) FROM FLOWFILE", "frobnicate"),
        ("DELETE FROM FLOWFILE", "SELECT"),
        ("DROP TABLE FLOWFILE", "SELECT"),
        ("SELECT id FROM FLOWFILE; SELECT 1", "follow"),
        ("SELECT id FROM FLOWFILE a JOIN FLOWFILE b ON true", "join"),
        ("SELECT SUM(COUNT(*)) FROM FLOWFILE", "aggregate"),
        ("SELECT id FROM FLOWFILE WHERE COUNT(*) > 1", "aggregate"),
        ("SELECT (SELECT 1) FROM FLOWFILE", "not supported"),
        ("SELECT", "no SQL"),
    ] {
        let own = [
            ("Record Reader", "json in"),
            ("Record Writer", "json out"),
            ("found", sql),
        ];
        let error = Rig::try_new("QueryRecord", &own, services()).err().unwrap();
        assert!(error.contains(part), "{sql}: {error}");
    }
}

#[test]
fn one_flow_file_answers_several_queries() {
    let mut rig = rig(
        "QueryRecord",
        &[
            ("Record Reader", "csv in"),
            ("Record Writer", "csv out"),
            ("Include Zero Record FlowFiles", "false"),
            ("low", "SELECT * FROM FLOWFILE WHERE id < 2"),
            ("high", "SELECT name FROM FLOWFILE WHERE id >= 2"),
            ("none", "SELECT name FROM FLOWFILE WHERE id > 9"),
        ],
    );
    rig.put(&[], CSV);
    rig.run();
    assert_eq!(rig.one("low").text(), "id;name\n1;pump\n");
    assert_eq!(rig.one("high").text(), "name\nvalve, red\n");
    assert_eq!(rig.counts(), [("original", 1)]);
}
