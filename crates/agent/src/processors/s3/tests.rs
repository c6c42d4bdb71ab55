//! Against a small server that knows objects, uploads in parts and signatures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use crate::object_storage::s3::{Credentials, Signed, authorization, hash};
use crate::testing::{Answer, HttpPeer, Rig, Seen};

const SECRET: &str = "the secret";

const EXPIRATION: &str = "expiry-date=\"Fri, 01 Jan 2027 00:00:00 GMT\", rule-id=\"a year\"";

/// What failed is seen after this time.
const PENALTY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Store {
    /// Content, type and time by `/bucket/key`.
    objects: BTreeMap<String, (Vec<u8>, String, u32)>,
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
    aborted: usize,
    breaks_parts: bool,
    time: u32,
}

/// Whether a request bears the right signature of the right body.
fn is_signed(seen: &Seen) -> bool {
    let header = |name: &str| seen.header(name).unwrap_or_default().to_owned();
    let given = header("authorization");
    let Some((_, names)) = given.split_once("SignedHeaders=") else {
        return false;
    };
    let names = names.split(',').next().unwrap_or_default();
    let headers: Vec<(String, String)> = names
        .split(';')
        .map(|name| (name.to_owned(), header(name)))
        .collect();
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let credentials = Credentials {
        access_key: "key".to_owned(),
        secret_key: SECRET.to_owned(),
        session_token: None,
    };
    let payload = hash(&seen.body);
    let signed = Signed {
        method: &seen.method,
        path,
        query,
        headers: &headers,
        payload: &payload,
        time: &header("x-amz-date"),
        region: "us-west-2",
    };
    let has_all = ["host", "x-amz-date", "x-amz-content-sha256"]
        .iter()
        .all(|needed| names.split(';').any(|name| name == *needed));
    has_all
        && header("x-amz-content-sha256") == payload
        && given == authorization(&credentials, &signed)
}

fn answer(store: &mut Store, seen: &Seen) -> Answer {
    if !is_signed(seen) {
        let text = "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>";
        return Answer::new(403, text);
    }
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let query: BTreeMap<&str, &str> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .collect();
    let part = query
        .get("partNumber")
        .and_then(|number| number.parse::<u32>().ok());
    let id = query.get("uploadId").map(|id| (*id).to_owned());
    match (seen.method.as_str(), part, id) {
        ("POST", _, None) if query.contains_key("uploads") => {
            store.uploads.insert("up1".to_owned(), BTreeMap::new());
            Answer::new(200, "<R><UploadId>up1</UploadId></R>")
        }
        ("PUT", Some(_), Some(_)) if store.breaks_parts => Answer::new(500, ""),
        ("PUT", Some(part), Some(id)) => {
            store
                .uploads
                .get_mut(&id)
                .unwrap()
                .insert(part, seen.body.clone());
            Answer::new(200, "").with("ETag", &format!("\"part{part}\""))
        }
        ("POST", _, Some(id)) => {
            let parts = store.uploads.remove(&id).unwrap();
            let names: String = parts.keys().map(|part| format!("part{part};")).collect();
            let text = String::from_utf8_lossy(&seen.body).into_owned();
            assert!(
                parts
                    .keys()
                    .all(|part| text.contains(&format!("\"part{part}\""))),
                "{text}"
            );
            let content = parts.into_values().flatten().collect();
            store.time += 1;
            let (path, time) = (path.to_owned(), store.time);
            store
                .objects
                .insert(path, (content, "multi".to_owned(), time));
            Answer::new(200, format!("<R><ETag>\"{names}\"</ETag></R>"))
        }
        ("DELETE", _, Some(id)) => {
            store.uploads.remove(&id);
            store.aborted += 1;
            Answer::new(204, "")
        }
        ("PUT", ..) => {
            store.time += 1;
            let kind = seen.header("content-type").unwrap_or_default().to_owned();
            let object = (seen.body.clone(), kind, store.time);
            store.objects.insert(path.to_owned(), object);
            Answer::new(200, "")
                .with("ETag", "\"whole\"")
                .with("x-amz-version-id", "v7")
                .with("x-amz-server-side-encryption", "aws:kms")
                .with("x-amz-expiration", EXPIRATION)
        }
        ("DELETE", ..) => {
            store.objects.remove(path);
            Answer::new(204, "")
        }
        ("GET", ..) if query.contains_key("list-type") => list(store, path, &query),
        _ => match store.objects.get(path) {
            Some((content, kind, _)) => Answer::new(200, content.clone())
                .with("content-type", kind)
                .with("x-amz-expiration", EXPIRATION)
                .with("ETag", "\"e\""),
            None => Answer::new(404, "<Error><Code>NoSuchKey</Code></Error>"),
        },
    }
}

/// Pages of two.
fn list(store: &Store, path: &str, query: &BTreeMap<&str, &str>) -> Answer {
    let from: usize = query
        .get("continuation-token")
        .map_or(0, |from| from.parse().unwrap());
    let prefix = query.get("prefix").unwrap_or(&"").replace("%2F", "/");
    let wanted = format!("{path}{prefix}");
    let all: Vec<_> = store
        .objects
        .iter()
        .filter(|(key, _)| key.starts_with(&wanted))
        .collect();
    let mut text = String::from("<ListBucketResult>");
    for (key, (content, _, time)) in all.iter().skip(from).take(2) {
        text += &format!(
            "<Contents><Key>{}</Key><LastModified>2026-01-01T00:00:{time:02}.000Z</LastModified>\
             <ETag>\"e\"</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            key.strip_prefix(path).unwrap().replace("%26", "&amp;"),
            content.len()
        );
    }
    let is_cut = all.len() > from + 2;
    text += &format!("<IsTruncated>{is_cut}</IsTruncated>");
    if is_cut {
        text += &format!(
            "<NextContinuationToken>{}</NextContinuationToken>",
            from + 2
        );
    }
    Answer::new(200, text + "</ListBucketResult>")
}

fn server() -> (HttpPeer, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(Store::default()));
    let of_server = Arc::clone(&store);
    let peer = HttpPeer::start(None, move |seen: &Seen| answer(&mut of_server.lock(), seen));
    (peer, store)
}

fn rig(kind: &str, peer: &HttpPeer, secret: &str, more: &[(&str, &str)]) -> Rig {
    let endpoint = format!("http://{}", peer.address());
    let mut properties = vec![
        ("Bucket", "box"),
        ("Access Key", "key"),
        ("Secret Key", secret),
        ("Endpoint Override URL", endpoint.as_str()),
    ];
    properties.extend(more);
    Rig::new(kind, &properties)
}

#[test]
fn an_object_is_put_listed_fetched_and_deleted() {
    let (peer, store) = server();
    let mut put = rig(
        "PutS3Object",
        &peer,
        SECRET,
        &[
            ("Content Type", "text/x"),
            ("Object Key", "in/${filename}"),
            ("Storage Class", "StandardIA"),
            ("Origin", "at  ${filename}"),
        ],
    );
    put.put(&[("filename", "a & b")], "hello");
    put.run();
    let out = put.one("success");
    assert_eq!(
        (out.attribute("s3.bucket"), out.attribute("s3.key")),
        ("box", "in/a & b")
    );
    assert_eq!(
        (out.attribute("s3.etag"), out.attribute("s3.version")),
        ("whole", "v7")
    );
    for (name, value) in [
        ("s3.sseAlgorithm", "aws_kms"),
        ("s3.expiration", "Fri, 01 Jan 2027 00:00:00 GMT"),
        ("s3.usermetadata", "origin=at  a & b"),
    ] {
        assert_eq!(out.attribute(name), value, "{name}");
    }
    assert_eq!(
        peer.seen()[0].header("x-amz-meta-origin"),
        Some("at  a & b")
    );
    let (content, kind, _) = store.lock().objects["/box/in/a%20%26%20b"].clone();
    assert_eq!(
        (content.as_slice(), kind.as_str()),
        (&b"hello"[..], "text/x")
    );
    assert_eq!(
        peer.seen()[0].header("x-amz-storage-class"),
        Some("STANDARD_IA")
    );
    let mut fetch = rig("FetchS3Object", &peer, SECRET, &[]);
    fetch.put(&[("filename", "in/a & b")], "old");
    fetch.put(&[("filename", "absent")], "kept");
    fetch.run();
    let out = fetch.one("success");
    assert_eq!(
        (out.text(), out.attribute("mime.type")),
        ("hello", "text/x")
    );
    assert_eq!(
        (out.attribute("path"), out.attribute("filename")),
        ("in", "a & b")
    );
    for (name, value) in [
        ("s3.expirationTime", "Fri, 01 Jan 2027 00:00:00 GMT"),
        ("s3.expirationTimeRuleId", "a year"),
    ] {
        assert_eq!(out.attribute(name), value, "{name}");
    }
    fetch.advance(PENALTY);
    assert_eq!(fetch.one("failure").text(), "kept");
    assert!(
        fetch
            .bulletins()
            .iter()
            .any(|text| text.contains("NoSuchKey"))
    );
    let mut delete = rig("DeleteS3Object", &peer, SECRET, &[]);
    delete.put(&[("filename", "in/a & b")], "");
    delete.put(&[("filename", "absent")], "");
    delete.run();
    assert_eq!(delete.out("success").len(), 2);
    assert!(store.lock().objects.is_empty());
}

#[test]
fn a_wrong_secret_fails_and_is_told_without_it() {
    let (peer, store) = server();
    let mut put = rig("PutS3Object", &peer, "another secret", &[]);
    put.put(&[("filename", "a")], "hello");
    put.run();
    put.advance(PENALTY);
    assert_eq!(put.one("failure").text(), "hello");
    let told = put.bulletins();
    assert!(
        told.iter()
            .any(|text| text.contains("SignatureDoesNotMatch")),
        "{told:?}"
    );
    assert!(
        !told.iter().any(|text| text.contains("another secret")),
        "{told:?}"
    );
    assert!(store.lock().objects.is_empty());
}

#[test]
fn large_content_goes_in_parts_and_a_broken_upload_is_ended() {
    let (peer, store) = server();
    let sizes = [
        ("Multipart Threshold", "5 MB"),
        ("Multipart Part Size", "5 MB"),
    ];
    let mut put = rig("PutS3Object", &peer, SECRET, &sizes);
    let big: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    put.put(&[("filename", "big")], &big);
    put.run();
    assert_eq!(
        put.one("success").attribute("s3.etag"),
        "part1;part2;part3;"
    );
    assert!(
        store.lock().objects["/box/big"].0 == big,
        "it changed on its way"
    );
    let mut fetch = rig("FetchS3Object", &peer, SECRET, &[]);
    fetch.put(&[("filename", "big")], "");
    fetch.run();
    assert!(fetch.one("success").content == big);
    store.lock().breaks_parts = true;
    put.put(&[("filename", "broken")], &big);
    put.run();
    put.advance(PENALTY);
    assert_eq!(put.out("failure").len(), 1);
    let store = store.lock();
    assert_eq!(
        (store.aborted, store.uploads.len(), store.objects.len()),
        (1, 0, 1)
    );
}

#[test]
fn each_object_is_listed_once_over_pages_and_crashes() {
    let (peer, store) = server();
    let add = |key: &str, time: u32| {
        let object = (vec![0; 3], String::new(), time);
        store.lock().objects.insert(format!("/box/{key}"), object);
    };
    for (key, time) in [
        ("in/1", 1),
        ("in/2", 2),
        ("in/3", 2),
        ("in/x%26y", 2),
        ("other", 2),
    ] {
        add(key, time);
    }
    let mut list = rig("ListS3", &peer, SECRET, &[("Prefix", "in/")]);
    list.kill_before_commit();
    list.trigger().unwrap();
    let names = |list: &mut Rig| {
        let out = list.out("success");
        out.iter()
            .map(|out| out.attribute("filename").to_owned())
            .collect::<Vec<_>>()
    };
    let first = list.out("success");
    let listed: Vec<&str> = first.iter().map(|out| out.attribute("filename")).collect();
    assert_eq!(listed, ["in/1", "in/2", "in/3", "in/x&y"]);
    assert_eq!(first[0].attribute("s3.length"), "3");
    assert_eq!(first[0].attribute("s3.storeClass"), "Standard");
    assert_eq!(first[0].attribute("s3.lastModified"), "1767225601000");
    list.trigger().unwrap();
    assert_eq!(names(&mut list), [""; 0]);
    // Of the same time, newer, changed.
    add("in/4", 2);
    add("in/5", 5);
    add("in/1", 6);
    list.kill();
    list.trigger().unwrap();
    assert_eq!(names(&mut list), ["in/4", "in/5", "in/1"]);
}

#[test]
fn an_object_that_nothing_names_is_called_by_the_uuid() {
    let (peer, store) = server();
    let mut put = rig("PutS3Object", &peer, SECRET, &[]);
    put.put(&[], "x");
    put.run();
    let key = format!("/box/{}", put.one("success").uuid);
    assert!(store.lock().objects.contains_key(&key));
}

#[test]
fn who_may_do_what_is_said_as_the_server_reads_it() {
    let (peer, _) = server();
    let more = [
        ("Canned ACL", "BucketOwnerFullControl"),
        ("Read Permission User List", "a1, b@example.com"),
        ("Write ACL User List", "${nobody}"),
        ("Storage Class", "GlacierIR"),
    ];
    let mut put = rig("PutS3Object", &peer, SECRET, &more);
    put.put(&[], "x");
    put.run();
    assert_eq!(put.count("success"), 1);
    let seen = peer.seen();
    let header = |name: &str| seen[0].header(name);
    assert_eq!(header("x-amz-acl"), Some("bucket-owner-full-control"));
    let users = "id=\"a1\", emailAddress=\"b@example.com\"";
    assert_eq!(header("x-amz-grant-read"), Some(users));
    assert_eq!(header("x-amz-grant-write-acp"), None);
    assert_eq!(header("x-amz-storage-class"), Some("GLACIER_IR"));
}

#[test]
fn keys_come_from_the_service_too() {
    let (peer, _) = server();
    let endpoint = format!("http://{}", peer.address());
    let service = json!({ "Controller Services": [{
        "id": "aws", "name": "aws", "class": "AWSCredentialsService",
        "Properties": { "Access Key": "key", "Secret Key": SECRET },
    }] });
    let properties = [
        ("Bucket", "box"),
        ("AWS Credentials Provider service", "aws"),
        ("Endpoint Override URL", endpoint.as_str()),
    ];
    let mut put = Rig::try_new("PutS3Object", &properties, service).unwrap();
    put.put(&[("filename", "a")], "x");
    put.run();
    assert_eq!(put.out("success").len(), 1);
    let half = [("Bucket", "box"), ("Access Key", "key")];
    let error = Rig::try_new("PutS3Object", &half, json!({})).err().unwrap();
    assert!(error.contains("need each other"), "{error}");
}
