//! Against a small server that knows objects, uploads in parts and access tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::object_storage::base64;
use crate::testing::{Answer, HttpPeer, Rig, Seen};

/// What failed is seen after this time.
const PENALTY: Duration = Duration::from_secs(60);

const KEY: &str = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

#[derive(Default)]
struct Store {
    /// Content and what is told of it, by name.
    objects: BTreeMap<String, (Vec<u8>, Value)>,
    upload: Option<(Value, Vec<u8>)>,
    /// Answers 503 to so many requests, after having taken half of a part.
    fails: usize,
    breaks_checksum: bool,
    /// The token that is wanted, and how many were given.
    token: Option<String>,
    given: u32,
    public_key: Vec<u8>,
}

fn refused(status: u16, reason: &str) -> Answer {
    let error = json!({ "error": {
        "code": status, "message": format!("it is {reason}"),
        "errors": [{ "domain": "global", "reason": reason, "message": "no" }],
    } });
    Answer::new(status, error.to_string())
}

fn answer(store: &mut Store, seen: &Seen) -> Answer {
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    if path == "/token" {
        return give_token(store, seen);
    }
    let bearer = store.token.as_ref().map(|token| format!("Bearer {token}"));
    if seen.header("authorization") != bearer.as_deref() {
        return refused(401, "required");
    }
    let query: BTreeMap<&str, &str> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let name = path
        .strip_prefix("/storage/v1/b/box/o/")
        .unwrap_or_default();
    let name = name.replace("%2F", "/").replace("%20", " ");
    match (seen.method.as_str(), query.get("uploadType").copied()) {
        ("POST", Some("resumable")) => {
            let described = serde_json::from_slice(&seen.body).unwrap();
            store.upload = Some((described, Vec::new()));
            // Another host than the one that was asked.
            Answer::new(200, "").with("Location", "http://elsewhere.invalid/up?upload_id=u1")
        }
        ("PUT", _) => part(store, seen),
        _ if store.fails > 0 => {
            store.fails -= 1;
            Answer::new(503, "")
        }
        ("POST", Some("multipart")) => {
            let kind = seen.header("content-type").unwrap();
            let boundary = kind.strip_prefix("multipart/related; boundary=").unwrap();
            let (described, content) = taken_apart(&seen.body, boundary);
            match query.get("ifGenerationMatch") {
                Some(_)
                    if store
                        .objects
                        .contains_key(described["name"].as_str().unwrap()) =>
                {
                    refused(412, "conditionNotMet")
                }
                _ => store.put(described, content),
            }
        }
        ("DELETE", _) => match store.objects.remove(&name) {
            Some(_) => Answer::new(204, ""),
            None => refused(404, "notFound"),
        },
        ("GET", _) if query.contains_key("alt") => match store.objects.get(&name) {
            Some((content, told)) => {
                let crc32c = told["crc32c"].as_str().unwrap();
                let crc32c = if store.breaks_checksum {
                    "AAAAAA=="
                } else {
                    crc32c
                };
                Answer::new(200, content.clone())
                    .with("x-goog-generation", "7")
                    .with("x-goog-storage-class", "STANDARD")
                    .with("x-goog-hash", &format!("crc32c={crc32c},md5=x"))
            }
            // As Google does it where content was asked for.
            None => Answer::new(404, format!("No such object: box/{name}")),
        },
        _ => list(store, &query),
    }
}

/// A part; what is sent whole is taken whole, except where it fails.
fn part(store: &mut Store, seen: &Seen) -> Answer {
    assert_eq!(seen.target, "/up?upload_id=u1");
    let (described, mut content) = store.upload.take().unwrap();
    let range = seen.header("content-range").unwrap();
    let (range, size) = range
        .strip_prefix("bytes ")
        .unwrap()
        .split_once('/')
        .unwrap();
    if range != "*" {
        let from: usize = range.split_once('-').unwrap().0.parse().unwrap();
        assert_eq!(from, content.len(), "it goes on from what is there");
        if store.fails > 0 {
            store.fails -= 1;
            content.extend_from_slice(&seen.body[..seen.body.len() / 2]);
            store.upload = Some((described, content));
            return Answer::new(503, "");
        }
        content.extend_from_slice(&seen.body);
    }
    if content.len().to_string() == size {
        return store.put(described, content);
    }
    let answer = Answer::new(308, "").with("Range", &format!("bytes=0-{}", content.len() - 1));
    store.upload = Some((described, content));
    answer
}

fn taken_apart(body: &[u8], boundary: &str) -> (Value, Vec<u8>) {
    let find = |bytes: &[u8], what: &str| {
        let mut windows = bytes.windows(what.len());
        windows
            .position(|window| window == what.as_bytes())
            .unwrap()
    };
    let json = find(body, "\r\n\r\n") + 4;
    let end = json + find(&body[json..], &format!("\r\n--{boundary}"));
    let described = serde_json::from_slice(&body[json..end]).unwrap();
    let content = end + find(&body[end..], "\r\n\r\n") + 4;
    let end = content + find(&body[content..], &format!("\r\n--{boundary}--"));
    (described, body[content..end].to_vec())
}

/// Pages of two.
fn list(store: &Store, query: &BTreeMap<&str, &str>) -> Answer {
    let from: usize = query
        .get("pageToken")
        .map_or(0, |from| from.parse().unwrap());
    let items: Vec<&Value> = store.objects.values().map(|(_, told)| told).collect();
    let mut page = json!({ "items": items.iter().skip(from).take(2).collect::<Vec<_>>() });
    if items.len() > from + 2 {
        page["nextPageToken"] = json!((from + 2).to_string());
    }
    Answer::new(200, page.to_string())
}

/// A token for a statement that the account signed.
fn give_token(store: &mut Store, seen: &Seen) -> Answer {
    let form = String::from_utf8(seen.body.clone()).unwrap();
    let statement = form
        .strip_prefix("assertion=")
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let (said, signature) = statement.rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &store.public_key);
    if key.verify(said.as_bytes(), &signature).is_err() {
        let error = json!({ "error": "invalid_grant", "error_description": "Invalid signature." });
        return Answer::new(400, error.to_string());
    }
    let claims = URL_SAFE_NO_PAD
        .decode(said.split_once('.').unwrap().1)
        .unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["iss"], "plant@example.iam.gserviceaccount.com");
    assert!(claims["aud"].as_str().unwrap().ends_with("/token"));
    store.given += 1;
    let token = format!("token-{}", store.given);
    store.token = Some(token.clone());
    Answer::new(
        200,
        json!({ "access_token": token, "expires_in": 3_600 }).to_string(),
    )
}

impl Store {
    fn put(&mut self, mut told: Value, content: Vec<u8>) -> Answer {
        let crc32c = base64(crc32c::crc32c(&content).to_be_bytes());
        if told["crc32c"] != json!(crc32c) {
            return refused(400, "invalid");
        }
        told["size"] = json!(content.len().to_string());
        told["bucket"] = json!("box");
        told["generation"] = json!("7");
        told["owner"] = json!({ "entity": "user-ann" });
        told["timeCreated"] = json!("2026-01-01T00:00:01.000Z");
        let answer = Answer::new(200, told.to_string());
        let name = told["name"].as_str().unwrap().to_owned();
        self.objects.insert(name, (content, told));
        answer
    }
}

fn server() -> (HttpPeer, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(Store::default()));
    let of_server = Arc::clone(&store);
    let peer = HttpPeer::start(None, move |seen: &Seen| answer(&mut of_server.lock(), seen));
    (peer, store)
}

fn try_rig(
    kind: &str,
    peer: &HttpPeer,
    credentials: Value,
    more: &[(&str, &str)],
) -> Result<Rig, String> {
    let endpoint = format!("http://{}", peer.address());
    let service = json!({ "Controller Services": [{
        "id": "gcp", "name": "gcp", "class": "GCPCredentialsControllerService",
        "Properties": credentials,
    }] });
    let mut properties = vec![
        ("Bucket", "box"),
        ("GCP Credentials Provider Service", "gcp"),
        ("Endpoint Override URL", endpoint.as_str()),
    ];
    properties.extend(more);
    Rig::try_new(kind, &properties, service)
}

fn rig(kind: &str, peer: &HttpPeer, more: &[(&str, &str)]) -> Rig {
    let anonymous = json!({ "Credentials Location": "Use Anonymous credentials" });
    try_rig(kind, peer, anonymous, more).unwrap()
}

#[test]
fn an_object_is_put_fetched_and_deleted() {
    let (peer, store) = server();
    let mut put = rig(
        "PutGCSObject",
        &peer,
        &[
            ("Key", "in/${filename}"),
            ("Object ACL", "publicRead"),
            ("Overwrite Object", "false"),
            ("Server Side Encryption Key", KEY),
        ],
    );
    let attributes = [("filename", "a b"), ("mime.type", "text/x")];
    put.put(&attributes, "hello");
    put.put(&attributes, "hello again");
    put.run();
    let out = put.one("success");
    for (name, value) in [
        ("gcs.bucket", "box"),
        ("gcs.key", "in/a b"),
        ("gcs.size", "5"),
        ("gcs.crc32c", "mnG7TA=="),
        ("gcs.generation", "7"),
        ("gcs.owner.entity", "user-ann"),
        ("gcs.create.time", "1767225601000"),
    ] {
        assert_eq!(out.attribute(name), value, "{name}");
    }
    put.advance(PENALTY);
    let failed = put.one("failure");
    assert_eq!(failed.attribute("gcs.error.reason"), "conditionNotMet");
    assert_eq!(failed.attribute("gcs.error.domain"), "global");
    assert_eq!(
        failed.attribute("gcs.status.message"),
        "it is conditionNotMet"
    );
    assert_eq!(store.lock().objects["in/a b"].1["contentType"], "text/x");
    let seen = &peer.seen()[0];
    assert!(
        seen.target.contains("predefinedAcl=publicRead"),
        "{}",
        seen.target
    );
    assert_eq!(seen.header("x-goog-encryption-algorithm"), Some("AES256"));
    assert_eq!(seen.header("x-goog-encryption-key"), Some(KEY));
    let mut fetch = rig(
        "FetchGCSObject",
        &peer,
        &[("Object Generation", "${generation}")],
    );
    fetch.put(&[("filename", "in/a b"), ("generation", "7")], "old");
    fetch.run();
    let out = fetch.one("success");
    assert_eq!(
        (out.text(), out.attribute("gcs.generation")),
        ("hello", "7")
    );
    assert!(
        peer.seen()
            .last()
            .unwrap()
            .target
            .ends_with("?alt=media&generation=7")
    );
    store.lock().breaks_checksum = true;
    for (name, generation) in [("in/a b", ""), ("absent", ""), ("in/a b", "x"), ("..", "")] {
        fetch.put(&[("filename", name), ("generation", generation)], "kept");
        fetch.run();
        fetch.advance(PENALTY);
        assert_eq!(fetch.one("failure").text(), "kept");
    }
    let told = fetch.bulletins().concat();
    for words in [
        "another CRC32C than the server says",
        "answers 404: No such object: box/absent",
        "'x' is no generation",
        "'..' is no name",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let mut delete = rig("DeleteGCSObject", &peer, &[]);
    delete.put(&[("filename", "in/a b")], "");
    delete.put(&[("filename", "in/a b")], "");
    delete.run();
    assert_eq!(delete.out("success").len(), 1);
    delete.advance(PENALTY);
    assert_eq!(
        delete.one("failure").attribute("gcs.error.reason"),
        "notFound"
    );
    assert!(store.lock().objects.is_empty());
}

#[test]
fn large_content_goes_in_parts_and_goes_on_where_it_broke_off() {
    let (peer, store) = server();
    store.lock().fails = 2;
    let big: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut put = rig("PutGCSObject", &peer, &[]);
    put.put(&[("filename", "big")], &big);
    put.run();
    assert_eq!(put.one("success").attribute("gcs.size"), "20000000");
    assert!(
        store.lock().objects["big"].0 == big,
        "it changed on its way"
    );
    let mut fetch = rig("FetchGCSObject", &peer, &[]);
    fetch.put(&[("filename", "big")], "");
    fetch.run();
    assert!(fetch.one("success").content == big);
}

#[test]
fn what_fails_in_passing_is_tried_again_as_often_as_is_said() {
    let (peer, store) = server();
    for (retries, relationship, asked) in [("1", "success", 2), ("0", "failure", 3)] {
        store.lock().fails = 1;
        let mut put = rig("PutGCSObject", &peer, &[("Number of retries", retries)]);
        put.put(&[("filename", "a")], "x");
        put.run();
        put.advance(PENALTY);
        assert_eq!(put.out(relationship).len(), 1);
        assert_eq!(peer.seen().len(), asked);
    }
    // A checksum that is wrong is no passing thing.
    let mut put = rig("PutGCSObject", &peer, &[("CRC32C Checksum", "AAAAAA==")]);
    store.lock().fails = 0;
    put.put(&[("filename", "a")], "x");
    put.run();
    put.advance(PENALTY);
    assert_eq!(put.one("failure").attribute("gcs.error.reason"), "invalid");
}

#[test]
fn objects_are_listed_each_time_page_by_page() {
    let (peer, _) = server();
    let mut put = rig("PutGCSObject", &peer, &[]);
    for name in ["a", "b", "c"] {
        put.put(&[("filename", name)], name);
    }
    put.run();
    let mut list = rig("ListGCSBucket", &peer, &[("List all versions", "true")]);
    for _ in 0..2 {
        list.run();
        let out = list.out("success");
        let names: Vec<&str> = out.iter().map(|out| out.attribute("filename")).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(out[2].attribute("gcs.key"), "c");
    }
    assert!(peer.seen().last().unwrap().target.contains("versions=true"));
}

/// A service account's file, by an RSA key of openssl's, and its public key.
fn service_account(peer: &HttpPeer) -> (String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let run = |text: &str| {
        let mut command = std::process::Command::new("openssl");
        let command = command
            .current_dir(dir.path())
            .args(text.split_whitespace());
        assert!(command.output().unwrap().status.success(), "{text}");
    };
    run("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem");
    run("rsa -in key.pem -RSAPublicKey_out -outform DER -out public.der");
    let pem = std::fs::read_to_string(dir.path().join("key.pem")).unwrap();
    let file = json!({
        "type": "service_account",
        "client_email": "plant@example.iam.gserviceaccount.com",
        "private_key_id": "k1",
        "private_key": pem,
        "token_uri": format!("http://{}/token", peer.address()),
    });
    (
        file.to_string(),
        std::fs::read(dir.path().join("public.der")).unwrap(),
    )
}

#[test]
fn a_service_account_gets_tokens_and_keeps_each_until_it_is_about_to_end() {
    let (peer, store) = server();
    let (file, public_key) = service_account(&peer);
    store.lock().public_key = public_key;
    store.lock().token = Some("none yet".to_owned());
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &file).unwrap();
    let by_file = json!({
        "Credentials Location": "Service Account JSON File",
        "Service Account JSON File": path.path(),
    });
    let by_contents = json!({
        "Credentials Location": "Service Account JSON",
        "Service Account JSON": file,
    });
    for credentials in [by_file, by_contents] {
        let before = store.lock().given;
        let mut put = try_rig("PutGCSObject", &peer, credentials, &[]).unwrap();
        for (minutes, tokens) in [(0, 1), (58, 1), (2, 2)] {
            put.advance(Duration::from_secs(minutes * 60));
            put.put(&[("filename", "a")], "x");
            put.run();
            assert_eq!(put.out("success").len(), 1, "{:?}", put.bulletins());
            assert_eq!(
                store.lock().given - before,
                tokens,
                "after {minutes} minutes more"
            );
        }
        // The server takes it no more: the next one is asked for anew.
        store.lock().token = Some("revoked".to_owned());
        put.put(&[("filename", "a")], "x");
        put.run();
        put.advance(PENALTY);
        assert_eq!(put.one("failure").attribute("gcs.error.reason"), "required");
        put.put(&[("filename", "a")], "x");
        put.run();
        assert_eq!(put.out("success").len(), 1);
        // Nor the account's signature.
        let key = std::mem::take(&mut store.lock().public_key);
        put.advance(Duration::from_secs(3_600));
        put.put(&[("filename", "a")], "x");
        put.run();
        put.advance(PENALTY);
        assert_eq!(
            put.one("failure").attribute("gcs.error.reason"),
            "invalid_grant"
        );
        let told = put.bulletins().concat();
        assert!(
            told.contains("Invalid signature. (for an access token)"),
            "{told}"
        );
        assert!(
            !told.contains("token-") && !told.contains("PRIVATE"),
            "{told}"
        );
        store.lock().public_key = key;
    }
}

#[test]
fn credentials_and_keys_that_are_none_are_refused_without_being_told() {
    let (peer, _) = server();
    let of_contents = |contents: &str| {
        json!({
            "Credentials Location": "Service Account JSON",
            "Service Account JSON": contents,
        })
    };
    let no_key = r#"{"type": "service_account", "client_email": "a", "private_key": "secret"}"#;
    for (contents, message) in [
        ("{\"secret\"", "Service Account JSON: EOF"),
        ("{}", "'type' is missing"),
        (
            r#"{"type": "external_account"}"#,
            "'external_account' are not spoken for",
        ),
        (
            r#"{"type": "service_account"}"#,
            "'client_email' is missing",
        ),
        (no_key, "'private_key' is no RSA key"),
    ] {
        let tried = try_rig("ListGCSBucket", &peer, of_contents(contents), &[]);
        let error = tried.err().unwrap();
        assert!(error.contains(message), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let absent = json!({
        "Credentials Location": "Service Account JSON File",
        "Service Account JSON File": "/nowhere/key.json",
    });
    let error = try_rig("ListGCSBucket", &peer, absent, &[]).err().unwrap();
    assert!(error.contains("/nowhere/key.json"), "{error}");
    let short = [("Server Side Encryption Key", "c2VjcmV0")];
    let anonymous = json!({ "Credentials Location": "Use Anonymous credentials" });
    let error = try_rig("PutGCSObject", &peer, anonymous, &short)
        .err()
        .unwrap();
    assert!(error.contains("no 32 bytes in Base64"), "{error}");
    assert!(!error.contains("c2VjcmV0"), "{error}");
}
