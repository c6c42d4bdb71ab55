//! EvaluateJsonPath, SplitJson, AttributesToJSON and JoltTransformJSON.

use serde_json::json;

use crate::testing::{Out, Rig};

const DOCUMENT: &str = r#"{"name":"pump","n":1.50,"none":null,"list":[{"id":1},{"id":"b"},null],"deep":{"z":1,"a":2}}"#;

fn evaluated(properties: &[(&str, &str)]) -> (String, Out, Vec<String>) {
    let mut rig = Rig::new("EvaluateJsonPath", properties);
    rig.put(&[], DOCUMENT);
    rig.run();
    let relationship = rig.counts()[0].0.to_owned();
    let out = rig.one(&relationship);
    (relationship, out, rig.bulletins())
}

#[test]
fn paths_fill_attributes() {
    let (relationship, out, bulletins) = evaluated(&[
        ("name", "$.name"),
        ("n", "$.n"),
        ("id", "$.list[?(@.id == 'b')].id"),
        ("nothing", "$.nothing"),
        ("null", "$.none"),
    ]);
    assert_eq!(relationship, "matched");
    for (name, value) in [("name", "pump"), ("n", "1.5"), ("id", "b"), ("null", "")] {
        assert_eq!(out.attribute(name), value, "{name}");
    }
    assert_eq!(out.attributes.get("nothing").map(String::as_str), Some(""));
    assert_eq!((out.text(), bulletins), (DOCUMENT, vec![]));
    let skip = ("Path Not Found Behavior", "skip");
    let (_, out, _) = evaluated(&[("nothing", "$.nothing"), skip]);
    assert!(!out.attributes.contains_key("nothing"));
    let warn = ("Path Not Found Behavior", "warn");
    let (_, _, bulletins) = evaluated(&[("nothing", "$.nothing"), warn]);
    assert_eq!(bulletins, ["nothing: the path finds nothing"]);
    let null = ("Null Value Representation", "the string 'null'");
    let (_, out, _) = evaluated(&[("null", "$.none"), null]);
    assert_eq!(out.attribute("null"), "null");
}

#[test]
fn trees_are_taken_where_they_are_asked_for() {
    let (relationship, _, bulletins) = evaluated(&[("deep", "$.deep")]);
    assert_eq!(relationship, "failure");
    assert!(bulletins[0].contains("set Return Type to json"));
    let (_, out, _) = evaluated(&[("deep", "$.deep"), ("Return Type", "json")]);
    assert_eq!(out.attribute("deep"), r#"{"z":1,"a":2}"#);
    let content = ("Destination", "flowfile-content");
    let (relationship, out, _) = evaluated(&[("x", "$..id"), content]);
    assert_eq!(
        (relationship.as_str(), out.text()),
        ("matched", r#"[1,"b"]"#)
    );
    let (relationship, out, _) = evaluated(&[("x", "$.nothing"), content]);
    assert_eq!((relationship.as_str(), out.text()), ("unmatched", DOCUMENT));
    let (relationship, _, _) = evaluated(&[("x", "$.deep"), content, ("Return Type", "scalar")]);
    assert_eq!(relationship, "failure");
    for properties in [
        &[content][..],
        &[content, ("a", "$.a"), ("b", "$.b")],
        &[("a", "a.b")],
    ] {
        assert!(Rig::try_new("EvaluateJsonPath", properties, json!({})).is_err());
    }
    let mut rig = Rig::new("EvaluateJsonPath", &[("a", "$.a")]);
    rig.put(&[], "{\"a\":");
    rig.put(&[], "");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 2)]);
}

#[test]
fn items_of_a_list_become_flow_files() {
    for (path, items) in [
        ("$.list", &[r#"{"id":1}"#, r#"{"id":"b"}"#, ""][..]),
        ("$.list[*].id", &["1", "b"]),
        ("$..id", &["1", "b"]),
    ] {
        let mut rig = Rig::new("SplitJson", &[("JsonPath Expression", path)]);
        rig.put(&[("filename", "a.json")], DOCUMENT);
        rig.run();
        let found = rig.out("split");
        let texts: Vec<&str> = found.iter().map(Out::text).collect();
        assert_eq!(texts, items, "{path}");
        let original = rig.one("original");
        for (index, item) in found.iter().enumerate() {
            assert_eq!(item.attribute("fragment.index"), index.to_string());
            assert_eq!(item.attribute("fragment.count"), items.len().to_string());
            assert_eq!(item.attribute("segment.original.filename"), "a.json");
            assert_ne!(item.attribute("filename"), "a.json");
            let identifier = original.attribute("fragment.identifier");
            assert_eq!(item.attribute("fragment.identifier"), identifier);
        }
        assert_eq!(
            original.attribute("fragment.count"),
            items.len().to_string()
        );
    }
    for (path, content) in [("$.deep", DOCUMENT), ("$.nothing", DOCUMENT), ("$", "[1,")] {
        let mut rig = Rig::new("SplitJson", &[("JsonPath Expression", path)]);
        rig.put(&[], content);
        rig.run();
        assert_eq!(rig.counts(), [("failure", 1)], "{path}");
    }
    let mut rig = Rig::new(
        "SplitJson",
        &[
            ("JsonPath Expression", "$"),
            ("Null Value Representation", "the string 'null'"),
        ],
    );
    rig.put(&[], "[null]");
    rig.run();
    assert_eq!(rig.one("split").text(), "null");
}

#[test]
fn attributes_become_an_object() {
    let attributes = [
        ("filename", "f"),
        ("b", "\"2\""),
        ("a.x", "1"),
        ("path", "/p"),
    ];
    for (properties, expected) in [
        (
            &[("Attributes List", "b, missing,filename")][..],
            r#"{"b":"\"2\"","filename":"f","missing":""}"#,
        ),
        (
            &[
                ("Attributes List", "missing"),
                ("Attributes Regular Expression", "a\\..*"),
                ("Null Value", "true"),
            ],
            r#"{"a.x":"1","missing":null}"#,
        ),
        (
            &[("Include Core Attributes", "false")],
            r#"{"a.x":"1","b":"\"2\""}"#,
        ),
    ] {
        let mut rig = Rig::new("AttributesToJSON", properties);
        rig.put(&attributes, "content");
        rig.run();
        let out = rig.one("success");
        assert_eq!(out.attribute("JSONAttributes"), expected, "{properties:?}");
        assert_eq!(out.text(), "content");
    }
    let mut rig = Rig::new("AttributesToJSON", &[("Destination", "flowfile-content")]);
    rig.put(&attributes, "content");
    rig.run();
    let out = rig.one("success");
    let object: serde_json::Value = serde_json::from_str(out.text()).unwrap();
    assert_eq!(object["uuid"].as_str().map(str::len), Some(36));
    assert_eq!(
        (object["path"].as_str(), object.as_object().unwrap().len()),
        (Some("/p"), 5)
    );
    assert!(!out.attributes.contains_key("JSONAttributes"));
    let mut rig = Rig::new("AttributesToJSON", &[("Attributes List", "filename")]);
    rig.put(&[], "content");
    rig.run();
    let out = rig.one("success");
    let expected = format!(r#"{{"filename":"{}"}}"#, out.uuid);
    assert_eq!(out.attribute("JSONAttributes"), expected);
}

#[test]
fn json_gets_another_shape() {
    let specification = r#"{"list":{"*":{"id":"ids[]"}},"*":"rest.&"}"#;
    let mut rig = Rig::new(
        "JoltTransformJSON",
        &[("Jolt Specification", specification)],
    );
    rig.put(
        &[("kept", "1")],
        r#"{"list":[{"id":1},{"id":"b"}],"name":"pump"}"#,
    );
    rig.run();
    let out = rig.one("success");
    assert_eq!(out.text(), r#"{"ids":[1,"b"],"rest":{"name":"pump"}}"#);
    assert_eq!(out.attribute("kept"), "1");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shift.json");
    std::fs::write(&file, r#"{"a":"x[&]"}"#).unwrap();
    let path = file.to_str().unwrap();
    let mut rig = Rig::new("JoltTransformJSON", &[("Jolt Specification", path)]);
    rig.put(&[], "{\"a\":1}");
    rig.put(&[], "{");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 2)]);
    assert!(
        rig.bulletins()[0].contains("'a' is no place"),
        "{:?}",
        rig.bulletins()
    );
    for bad in ["{\"a\":1}", "/no/such/file"] {
        let made = Rig::try_new(
            "JoltTransformJSON",
            &[("Jolt Specification", bad)],
            json!({}),
        );
        assert!(made.is_err(), "{bad}");
    }
}
