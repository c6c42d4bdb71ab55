//! Bodies that mean harm to the REST proxy: each gets its documented error, memory stays within
//! bounds, and another connection is served.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Up, folder};
use crate::watched::Watched;

/// A proxy with a topic, and the folder that it goes with.
fn start() -> (Watched, tempfile::TempDir) {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "t"]);
    let probe = |watched: &Watched| {
        let body = r#"{"records":[{"value":1}]}"#.as_bytes();
        let (status, told) = watched.post("/topics/t", JSON_V2, body);
        assert_eq!(status, 200, "{told}");
    };
    (Watched::over(up, "rest", probe), dir)
}

impl Watched {
    fn refused(&self, path: &str, content_type: &str, body: &[u8], code: u64) {
        let (status, told) = self.post(path, content_type, body);
        assert_eq!(told["error_code"], code, "{status} {told}");
        assert!(told["message"].is_string(), "{told}");
        self.check();
    }
}

#[test]
fn hostile_bodies_get_their_error_and_hold_up_nobody() {
    let (watched, _dir) = start();
    let nested =
        |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    for deep in [nested("[", "]"), nested("{\"a\":", "}")] {
        // As a body it does not fit; as a value it is a value, and comes back as it went.
        watched.refused("/topics/t", JSON_V2, deep.as_bytes(), 422);
        let body = format!("{{\"records\":[{{\"value\":{deep}}}]}}");
        let (status, told) = watched.post("/topics/t", JSON_V2, body.as_bytes());
        assert_eq!(
            (status, &told["offsets"][0]["error"]),
            (200, &Value::Null),
            "{told}"
        );
        watched.check();
        let body = format!("{{\"records\":[{{\"value\":1}}],\"key_schema\":{deep}}}");
        let (_, told) = watched.post("/topics/t", JSON_V2, body.as_bytes());
        assert!(told.is_object(), "no answer");
        watched.check();
        let body = format!("{{\"name\":{deep}}}");
        watched.refused("/consumers/g", V2, body.as_bytes(), 422);
    }
    let bad_text = b"{\"records\":[{\"value\":\"\xc3\x28\"}]}";
    watched.refused("/topics/t", JSON_V2, bad_text, 422);
    watched.refused("/topics/t", JSON_V2, b"{\"records\":[{\"value\":1}", 422);
    let binary = "application/vnd.kafka.binary.v2+json";
    for data in ["***", "YQ===", "a", "YWJj\u{e4}"] {
        let body = json!({"records": [{"value": data}]}).to_string();
        watched.refused("/topics/t", binary, body.as_bytes(), 422);
    }
    // Half of a large value is fine, and the other half is not base64.
    let mut long = STANDARD.encode(vec![7; 4 << 20]);
    long.push('!');
    let body = json!({"records": [{"value": long}]}).to_string();
    watched.refused("/topics/t", binary, body.as_bytes(), 422);
    let many = format!("{{\"records\":[{}{{}}]}}", "{},".repeat(2_000_000));
    watched.refused("/topics/t", JSON_V2, many.as_bytes(), 422);
}

#[test]
fn a_gigabyte_is_413_by_length_and_by_chunks() {
    let (watched, _dir) = start();
    watched.refuses_a_gigabyte("/topics/t", JSON_V2, 128 << 20);
    let grown = watched.grown();
    assert!(grown < 300 << 20, "{} MiB more", grown >> 20);
}

const JSON_V2: &str = "application/vnd.kafka.json.v2+json";
const V2: &str = "application/vnd.kafka.v2+json";
