//! Every decoder by what it makes of examples, and all of them by random bytes.

use base::{Rng, UnixMillis};
use serde_json::{Value, json};

use super::{Decoded, EventType, EventTypes, Format, decode};

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

fn events(format: Format, topic: &str, payload: &[u8]) -> Result<Vec<Value>, String> {
    let mut out = Decoded::default();
    decode(format, topic, payload, NOW, &mut out).map_err(|bad| bad.to_string())?;
    let texts = out.texts();
    Ok(texts
        .map(|text| serde_json::from_slice(text).unwrap())
        .collect())
}

fn senml(message: &Value) -> Result<Vec<Value>, String> {
    events(Format::Senml, "t", message.to_string().as_bytes())
}

#[test]
fn senml_base_fields_hold_from_their_record_on() {
    let message = json!([
        {"bn": "urn:dev:ow:10e2073a01080063:", "bt": 1.320_067_464e9, "bu": "%RH", "bver": 5, "v": 20},
        {"n": "lat", "u": "lat", "v": 24.30621, "t": 60},
        {"bn": "other:", "bv": 100, "n": "x", "v": 1, "bs": 2, "s": 3},
        {"n": "state", "vb": true},
        {"n": "label", "vs": "on", "ut": 10},
    ]);
    let events = senml(&message).unwrap();
    assert_eq!(events.len(), 5);
    assert_eq!(
        events[0],
        json!({"n": "urn:dev:ow:10e2073a01080063:", "u": "%RH", "v": 20,
               "t": 1_320_067_464.0, "time": 1_320_067_464_000_i64})
    );
    assert_eq!(events[1]["n"], "urn:dev:ow:10e2073a01080063:lat");
    assert_eq!(
        (&events[1]["u"], &events[1]["time"]),
        (&json!("lat"), &json!(1_320_067_524_000_i64))
    );
    assert_eq!((&events[2]["v"], &events[2]["s"]), (&json!(101), &json!(5)));
    assert_eq!(
        (&events[2]["n"], &events[3]["n"]),
        (&json!("other:x"), &json!("other:state"))
    );
    assert_eq!(
        (&events[3]["vb"], &events[3]["v"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(
        (&events[4]["vs"], &events[4]["ut"]),
        (&json!("on"), &json!(10))
    );
}

#[test]
fn a_small_senml_time_is_relative_to_the_arrival() {
    let events = senml(&json!([{"n": "a", "v": 1, "t": -5}, {"n": "a", "v": 1}])).unwrap();
    assert_eq!(events[0]["time"], 1_699_999_995_000_i64);
    assert_eq!(events[1]["time"], NOW.0);
}

#[test]
fn the_old_object_form_of_senml_reads_alike() {
    let message = json!({"bn": "dev/", "bt": 1_300_000_000, "bu": "Cel", "ver": 1, "e": [
        {"n": "t", "v": 21.5, "t": 1}, {"n": "s", "sv": "text"}, {"n": "b", "bv": false},
    ]});
    let events = senml(&message).unwrap();
    assert_eq!(
        (&events[0]["n"], &events[0]["v"]),
        (&json!("dev/t"), &json!(21.5))
    );
    assert_eq!(
        (&events[0]["u"], &events[0]["time"]),
        (&json!("Cel"), &json!(1_300_000_001_000_i64))
    );
    assert_eq!(events[1]["vs"], "text");
    assert_eq!(events[2]["vb"], false);
}

#[test]
fn senml_in_cbor_reads_by_its_labels() {
    // [{-2: "dev:", 0: "t", 1: "Cel", 2: 21.5}]
    let mut payload = vec![0x81, 0xa4, 0x21, 0x64];
    payload.extend_from_slice(b"dev:");
    payload.extend_from_slice(&[0x00, 0x61, b't', 0x01, 0x63]);
    payload.extend_from_slice(b"Cel");
    payload.extend_from_slice(&[0x02, 0xf9, 0x4d, 0x60]);
    let events = events(Format::SenmlCbor, "t", &payload).unwrap();
    assert_eq!(events[0]["n"], "dev:t");
    assert_eq!(
        (&events[0]["u"], &events[0]["v"]),
        (&json!("Cel"), &json!(21.5))
    );
}

#[test]
fn what_is_no_senml_says_why() {
    for (message, says) in [
        (json!(3), "neither an array"),
        (json!([3]), "no object"),
        (json!([{"v": 1}]), "no name"),
        (json!([{"n": "a"}]), "needs one of"),
        (json!([{"n": "a", "v": 1, "vs": "b"}]), "needs one of"),
        (json!([{"n": "a", "v": "1"}]), "v is no number"),
        (json!([{"n": "a", "v": 1, "b_": 2}]), "must be understood"),
        (json!([{"bver": 11, "n": "a", "v": 1}]), "newer"),
        (
            json!(vec![json!({"n": "a", "v": 1}); 5_000]),
            "5000 records",
        ),
    ] {
        let error = senml(&message).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn observations_tell_whose_and_when_they_are() {
    let topic = "LS/x/agent/OGC/1.0/Datastreams/ds-7";
    let message = json!({"result": 21.5, "phenomenonTime": "2026-01-31T12:00:00Z"});
    let read = events(Format::Observation, topic, message.to_string().as_bytes()).unwrap();
    let [event] = read.as_slice() else {
        panic!("{read:?}")
    };
    assert_eq!(
        (&event["id"], &event["attributeId"]),
        (&json!("ds-7"), &json!("ds-7"))
    );
    assert_eq!(
        (&event["result"], &event["date"]),
        (&json!(21.5), &json!(1_769_860_800_000_i64))
    );

    let message = json!({
        "@iot.id": 42, "result": {"a": 1}, "resultTime": null,
        "phenomenonTime": "2026-01-31T12:00:00Z/2026-01-31T13:00:00Z",
        "Datastream": {"@iot.id": 9}, "parameters": {"p": 1},
    });
    let topic = "v1.1/Datastreams(3)/Observations";
    let read = events(Format::Observation, topic, message.to_string().as_bytes()).unwrap();
    let event = &read[0];
    assert_eq!(
        (&event["id"], &event["attributeId"]),
        (&json!(42), &json!(9))
    );
    assert_eq!(
        (&event["date"], &event["parameters"]["p"]),
        (&json!(1_769_860_800_000_i64), &json!(1))
    );
    let read = events(Format::Observation, topic, b"{\"result\":1}").unwrap();
    assert_eq!(
        (&read[0]["id"], &read[0]["date"]),
        (&json!("3"), &json!(NOW.0))
    );
    assert!(
        events(Format::Observation, topic, b"{}")
            .unwrap_err()
            .contains("no result")
    );
}

#[test]
fn the_old_draft_reads_under_the_new_names() {
    let message = json!({
        "Time": "2016-12-01T00:00:00Z", "ResultValue": 5, "ResultType": "Measure",
        "Datastream": {"id": "d"}, "Sensor": {"id": "s"},
    });
    let read = events(Format::Observation097, "t", message.to_string().as_bytes()).unwrap();
    let event = &read[0];
    assert_eq!(
        (&event["result"], &event["id"], &event["attributeId"]),
        (&json!(5), &json!("s"), &json!("d"))
    );
    assert_eq!(event["date"], 1_480_550_400_000_i64);
}

#[test]
fn cbor_becomes_json() {
    // Examples of RFC 8949, appendix A.
    for (hex, expected) in [
        ("00", json!(0)),
        ("1bffffffffffffffff", json!(18_446_744_073_709_551_615_u64)),
        ("3903e7", json!(-1000)),
        ("f93e00", json!(1.5)),
        ("f90400", json!(0.000_061_035_156_25)),
        ("fb3ff199999999999a", json!(1.1)),
        ("f97e00", Value::Null),
        ("f6", Value::Null),
        ("4401020304", json!("AQIDBA")),
        ("64f0908591", json!("\u{10151}")),
        ("826161a161626163", json!(["a", {"b": "c"}])),
        ("9f018202039f0405ffff", json!([1, [2, 3], [4, 5]])),
        ("bf61610161629f0203ffff", json!({"a": 1, "b": [2, 3]})),
        ("7f657374726561646d696e67ff", json!("streaming")),
        ("a201020304", json!({"1": 2, "3": 4})),
        ("c11a514b67b0", json!(1_363_896_240)),
    ] {
        let read = events(Format::Cbor, "t", &bytes(hex)).unwrap();
        assert_eq!(read, [expected], "{hex}");
    }
    for hex in [
        "",
        "18",
        "ff",
        "7f6161",
        "5bffffffffffffffff00",
        "0000",
        "61ff",
        "a1f600",
        "f800",
    ] {
        assert!(events(Format::Cbor, "t", &bytes(hex)).is_err(), "{hex}");
    }
    let deep = vec![0x81; 100_000];
    assert!(
        events(Format::Cbor, "t", &deep)
            .unwrap_err()
            .contains("too deep")
    );
}

#[test]
fn raw_takes_everything() {
    for (payload, expected) in [
        (&b"{\"a\":1}"[..], json!({"a": 1})),
        (b"21.5 C", json!({"text": "21.5 C"})),
        (b"\xff\x00", json!({"base64": "_wA"})),
    ] {
        assert_eq!(events(Format::Raw, "t", payload).unwrap(), [expected]);
    }
}

#[test]
fn types_are_found_by_name_and_by_what_covers_a_filter() {
    let mut types = EventTypes::default();
    assert_eq!(types.named("SenML").unwrap().format, Format::Senml);
    assert_eq!(
        types.format_of("LS/a/b/OGC/1.0/Datastreams/+"),
        Format::Observation
    );
    assert_eq!(
        types.format_of("LS/+/+/OGC/1.0/Datastreams/#"),
        Format::Observation
    );
    assert_eq!(types.format_of("LS/#"), Format::Json);
    assert_eq!(types.format_of("/raw"), Format::Raw);
    assert_eq!(types.format_of("other"), Format::Json);
    let row = EventType {
        alias: "Meter".to_owned(),
        filter: "meters/+".to_owned(),
        format: Format::Cbor,
    };
    types.set(row.clone()).unwrap();
    assert_eq!(types.format_of("meters/7"), Format::Cbor);
    assert_eq!(types.format_of("meters/#"), Format::Json);
    assert!(
        types
            .set(EventType {
                filter: "a#".to_owned(),
                ..row.clone()
            })
            .is_err()
    );
    assert!(
        types
            .set(EventType {
                alias: "a b".to_owned(),
                ..row
            })
            .is_err()
    );
    assert!(types.remove("Meter") && !types.remove("Meter"));
    assert_eq!(types.problems(), [""; 0]);
}

#[test]
fn random_bytes_are_read_or_refused() {
    let mut rng = Rng::from_seed(7);
    for round in 0..20_000 {
        let mut payload = vec![0; usize::try_from(rng.below(64)).unwrap()];
        rng.fill(&mut payload);
        crate::fuzzing::formats(&payload);
        if round % 2 == 0 {
            // Most random bytes are no JSON: mended ones reach further.
            let text = format!(
                "[{{\"n\":\"{round}\",\"v\":{},\"t\":{}}}]",
                rng.below(99),
                rng.below(1 << 40)
            );
            let mut text = text.into_bytes();
            let at = usize::try_from(rng.below(text.len() as u64)).unwrap();
            text[at] = payload.first().copied().unwrap_or(b'"');
            crate::fuzzing::formats(&text);
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .map(|digit| (digit as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
