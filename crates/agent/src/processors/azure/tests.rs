//! Against a small server that knows containers, blobs, blocks and Shared Key signatures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;

use crate::object_storage::azure::{Signed, authorization};
use crate::object_storage::{base64, base64_bytes};
use crate::testing::{Answer, HttpPeer, Rig, Seen};

const SECRET: &str = "dGhlIGtleSBvZiB0aGUgYWNjb3VudA==";

const SIGNATURE: &str = "sv=2020&sig=the%2Bsignature";

/// What failed is seen after this time.
const PENALTY: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Store {
    /// Content and time by the path of the blob, as it comes.
    blobs: BTreeMap<String, (Vec<u8>, u32)>,
    containers: Vec<String>,
    blocks: BTreeMap<String, Vec<u8>>,
    time: u32,
}

fn is_allowed(seen: &Seen) -> bool {
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let Some(given) = seen.header("authorization") else {
        return query.ends_with(SIGNATURE);
    };
    let query: Vec<(&str, String)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, decoded(value)))
        .collect();
    let len = seen.header("content-length");
    let len = len.map_or(0, |len| len.parse().unwrap());
    let mut headers = seen.headers.clone();
    headers.retain(|(name, _)| name != "content-length");
    let signed = Signed {
        method: &seen.method,
        headers: &headers,
        len,
        path,
        query: &query,
    };
    given == authorization("plant", &base64_bytes(SECRET).unwrap(), &signed)
}

fn decoded(text: &str) -> String {
    let text = text.replace("%2F", "/").replace("%3D", "=");
    text.replace("%20", " ").replace("%26", "&")
}

fn refused(status: u16, code: &str) -> Answer {
    let text =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message></Error>");
    Answer::new(status, text)
}

fn answer(store: &mut Store, seen: &Seen) -> Answer {
    if !is_allowed(seen) {
        return refused(403, "AuthenticationFailed");
    }
    let (path, query) = seen.target.split_once('?').unwrap_or((&seen.target, ""));
    let query: BTreeMap<&str, String> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, decoded(value)))
        .collect();
    let kind = query.get("comp").map_or("", String::as_str);
    match (seen.method.as_str(), kind) {
        ("PUT", _) if query.contains_key("restype") => {
            if store.containers.iter().any(|known| known == path) {
                return refused(409, "ContainerAlreadyExists");
            }
            store.containers.push(path.to_owned());
            Answer::new(201, "")
        }
        ("PUT", "block") => {
            store
                .blocks
                .insert(query["blockid"].clone(), seen.body.clone());
            Answer::new(201, "")
        }
        ("PUT", "blocklist") => {
            let list = String::from_utf8_lossy(&seen.body).into_owned();
            let ids = list.split("<Latest>").skip(1);
            let ids = ids.map(|rest| rest.split('<').next().unwrap());
            let content = ids.flat_map(|id| store.blocks[id].clone()).collect();
            store.put(path, content)
        }
        ("PUT", _) => {
            assert_eq!(seen.header("x-ms-blob-type"), Some("BlockBlob"));
            store.put(path, seen.body.clone())
        }
        ("DELETE", _) => match store.blobs.remove(path) {
            Some(_) => Answer::new(202, ""),
            None => refused(404, "BlobNotFound"),
        },
        ("GET", "list") => list(store, path, &query),
        _ => match store.blobs.get(path) {
            Some((content, _)) => Answer::new(200, ranged(content, seen.header("x-ms-range"))),
            None => Answer::new(404, "").with("x-ms-error-code", "BlobNotFound"),
        },
    }
}

fn ranged(content: &[u8], range: Option<&str>) -> Vec<u8> {
    let Some(range) = range else {
        return content.to_vec();
    };
    let (from, to) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let to = to
        .parse()
        .map_or(content.len(), |to: usize| content.len().min(to + 1));
    content[from.parse().unwrap()..to].to_vec()
}

/// Pages of two.
fn list(store: &Store, path: &str, query: &BTreeMap<&str, String>) -> Answer {
    let from: usize = query.get("marker").map_or(0, |from| from.parse().unwrap());
    let prefix = query.get("prefix").map_or("", String::as_str);
    let wanted = format!("{path}/{prefix}");
    let all: Vec<_> = store
        .blobs
        .iter()
        .filter(|(name, _)| name.starts_with(&wanted))
        .collect();
    let mut text = String::from("<EnumerationResults><Blobs>");
    for (name, (content, time)) in all.iter().skip(from).take(2) {
        let name = decoded(name.strip_prefix(&format!("{path}/")).unwrap());
        text += &format!(
            "<Blob><Name>{}</Name><Properties><Last-Modified>Thu, 01 Jan 2026 00:00:{time:02} GMT\
             </Last-Modified><Etag>0x1</Etag><Content-Length>{}</Content-Length><Content-Type>t/x\
             </Content-Type><Content-Language /><BlobType>BlockBlob</BlobType></Properties></Blob>",
            name.replace('&', "&amp;"),
            content.len()
        );
    }
    text += "</Blobs>";
    text += &match all.len() > from + 2 {
        true => format!("<NextMarker>{}</NextMarker>", from + 2),
        false => "<NextMarker />".to_owned(),
    };
    Answer::new(200, text + "</EnumerationResults>")
}

impl Store {
    fn put(&mut self, path: &str, content: Vec<u8>) -> Answer {
        self.time += 1;
        self.blobs.insert(path.to_owned(), (content, self.time));
        Answer::new(201, "")
            .with("ETag", "\"0x8D\"")
            .with("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
    }
}

fn server() -> (HttpPeer, Arc<Mutex<Store>>) {
    let store = Arc::new(Mutex::new(Store::default()));
    let of_server = Arc::clone(&store);
    let peer = HttpPeer::start(None, move |seen: &Seen| answer(&mut of_server.lock(), seen));
    (peer, store)
}

fn connection(peer: &HttpPeer, right: &str) -> String {
    let address = peer.address();
    format!("AccountName=plant;{right};BlobEndpoint=http://{address}/plant")
}

fn rig(kind: &str, peer: &HttpPeer, more: &[(&str, &str)]) -> Rig {
    let connection = connection(peer, &format!("AccountKey={SECRET}"));
    let mut properties = vec![
        ("Container Name", "box"),
        ("Connection String", connection.as_str()),
    ];
    properties.extend(more);
    Rig::new(kind, &properties)
}

#[test]
fn a_blob_is_put_fetched_in_ranges_and_deleted() {
    let (peer, store) = server();
    let mut put = rig(
        "PutAzureBlobStorage",
        &peer,
        &[("Blob", "in/${filename}"), ("Create Container", "true")],
    );
    for content in ["hello, blobs", ""] {
        put.put(&[("filename", "a & b")], content);
        put.run();
        let out = put.one("success");
        let address = format!("http://{}/plant/box", peer.address());
        for (name, value) in [
            ("azure.container", "box"),
            ("azure.blobname", "in/a & b"),
            ("azure.primaryUri", &address),
            ("azure.etag", "0x8D"),
            ("azure.length", &content.len().to_string()),
            ("azure.timestamp", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ] {
            assert_eq!(out.attribute(name), value, "{name}");
        }
        let stored = store.lock().blobs["/plant/box/in/a%20%26%20b"].clone();
        let len = content.len().to_string();
        let seen = peer.seen();
        assert_eq!(
            seen.last().unwrap().header("content-length"),
            Some(len.as_str())
        );
        assert_eq!(stored.0, content.as_bytes());
    }
    assert_eq!(store.lock().containers, ["/plant/box"]);
    put.put(&[("filename", "a & b")], "hello, blobs");
    put.run();
    let mut fetch = rig(
        "FetchAzureBlobStorage",
        &peer,
        &[("Range Start", "${from}"), ("Range Length", "${len}")],
    );
    for (from, len, content) in [
        ("", "", "hello, blobs"),
        ("0", "5", "hello"),
        ("7", "", "blobs"),
        ("7", "99", "blobs"),
    ] {
        fetch.put(
            &[("filename", "in/a & b"), ("from", from), ("len", len)],
            "old",
        );
        fetch.run();
        assert_eq!(fetch.one("success").text(), content);
    }
    for (name, from, len) in [
        ("absent", "", ""),
        ("in/a & b", "", "0"),
        ("in/a & b", "x", ""),
    ] {
        fetch.put(&[("filename", name), ("from", from), ("len", len)], "kept");
        fetch.run();
        fetch.advance(PENALTY);
        assert_eq!(fetch.one("failure").text(), "kept");
    }
    let told = fetch.bulletins().concat();
    for words in [
        "answers 404: BlobNotFound",
        "no bytes are no range",
        "'x' is no number",
    ] {
        assert!(told.contains(words), "{told}");
    }
    for (option, header) in [
        ("None", None),
        ("Include Snapshots", Some("include")),
        ("Delete Snapshots Only", Some("only")),
    ] {
        let mut delete = rig(
            "DeleteAzureBlobStorage",
            &peer,
            &[("Delete Snapshots Option", option)],
        );
        store.lock().put("/plant/box/gone", Vec::new());
        delete.put(&[("filename", "gone")], "");
        delete.run();
        assert_eq!(delete.out("success").len(), 1);
        let seen = peer.seen();
        assert_eq!(seen.last().unwrap().header("x-ms-delete-snapshots"), header);
        delete.put(&[("filename", "gone")], "");
        delete.run();
        delete.advance(PENALTY);
        assert_eq!(delete.out("failure").len(), 1, "it is not there any more");
    }
}

#[test]
fn large_content_goes_in_blocks() {
    let (peer, store) = server();
    let big: Vec<u8> = (0..5_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut put = rig("PutAzureBlobStorage", &peer, &[]);
    put.put(&[("filename", "big")], &big);
    put.run();
    assert_eq!(put.one("success").attribute("azure.length"), "20000000");
    assert!(
        store.lock().blobs["/plant/box/big"].0 == big,
        "it changed on its way"
    );
    assert_eq!(store.lock().blocks.len(), 3);
    assert!(store.lock().blocks.contains_key(&base64("0000000002")));
}

#[test]
fn a_wrong_right_fails_and_is_told_without_it() {
    let (peer, store) = server();
    for right in [
        "AccountKey=d3Jvbmcga2V5",
        "SharedAccessSignature=sv=2020&sig=d3Jvbmcga2V5",
    ] {
        let connection = connection(&peer, right);
        let properties = [
            ("Container Name", "box"),
            ("Connection String", connection.as_str()),
        ];
        let mut put = Rig::new("PutAzureBlobStorage", &properties);
        put.put(&[("filename", "a")], "hello");
        put.run();
        put.advance(PENALTY);
        assert_eq!(put.one("failure").text(), "hello");
        let told = put.bulletins().concat();
        assert!(
            told.contains("answers 403: AuthenticationFailed no"),
            "{told}"
        );
        assert!(!told.contains("d3Jvbmcga2V5"), "{told}");
    }
    // Nobody is there: the address bears the signature, and is not told.
    let connection = "BlobEndpoint=http://127.0.0.1:9;SharedAccessSignature=sig=d3Jvbmcga2V5";
    let properties = [("Container Name", "box"), ("Connection String", connection)];
    let mut put = Rig::new("PutAzureBlobStorage", &properties);
    put.put(&[("filename", "a")], "hello");
    put.put(&[("filename", "../other/a")], "hello");
    put.run();
    let told = put.bulletins().concat();
    assert!(told.contains("Connection refused"), "{told}");
    assert!(told.contains("'../other/a' is no name"), "{told}");
    assert!(!told.contains("d3Jvbmcga2V5"), "{told}");
    assert!(store.lock().blobs.is_empty());
}

#[test]
fn an_account_comes_from_the_service_too_and_its_signature_goes_along() {
    let (peer, store) = server();
    let connection = connection(&peer, &format!("SharedAccessSignature={SIGNATURE}"));
    let service = json!({ "Controller Services": [{
        "id": "azure", "name": "azure", "class": "AzureStorageCredentialsService",
        "Properties": { "Connection String": connection },
    }] });
    let properties = [
        ("Container Name", "box"),
        ("Azure Storage Credentials Service", "azure"),
    ];
    let mut put = Rig::try_new("PutAzureBlobStorage", &properties, service).unwrap();
    put.put(&[("filename", "a")], "x");
    put.run();
    assert_eq!(put.out("success").len(), 1);
    assert_eq!(store.lock().blobs.len(), 1);
    let nobody = [("Container Name", "box")];
    let error = Rig::try_new("ListAzureBlobStorage", &nobody, json!({}))
        .err()
        .unwrap();
    assert!(error.contains("the account's name is missing"), "{error}");
    let machine = [
        ("Container Name", "box"),
        ("Storage Account Name", "plant"),
        ("Credential Configuration Strategy", "Workload Identity"),
    ];
    let error = Rig::try_new("ListAzureBlobStorage", &machine, json!({}))
        .err()
        .unwrap();
    assert!(error.contains("are not spoken for"), "{error}");
}

#[test]
fn each_blob_is_listed_once_over_pages_and_crashes_or_each_time() {
    let (peer, store) = server();
    let add = |name: &str, time: u32| {
        let path = format!("/plant/box/{name}");
        store.lock().blobs.insert(path, (vec![0; 3], time));
    };
    for (name, time) in [
        ("in/1", 1),
        ("in/2", 2),
        ("in/3", 2),
        ("in/x%26y", 2),
        ("other", 2),
    ] {
        add(name, time);
    }
    let mut list = rig("ListAzureBlobStorage", &peer, &[("Prefix", "in/")]);
    list.kill_before_commit();
    list.trigger().unwrap();
    let first = list.out("success");
    let names = |out: &[crate::testing::Out]| -> Vec<String> {
        let names = out.iter().map(|out| out.attribute("azure.blobname"));
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&first), ["in/1", "in/2", "in/3", "in/x&y"]);
    for (name, value) in [
        ("azure.container", "box"),
        ("azure.etag", "0x1"),
        ("azure.length", "3"),
        ("azure.timestamp", "1767225601000"),
        ("mime.type", "t/x"),
        ("lang", ""),
        ("azure.blobtype", "BlockBlob"),
    ] {
        assert_eq!(first[0].attribute(name), value, "{name}");
    }
    list.trigger().unwrap();
    assert_eq!(names(&list.out("success")), [""; 0]);
    add("in/4", 2);
    add("in/5", 5);
    add("in/1", 6);
    list.kill();
    list.trigger().unwrap();
    assert_eq!(names(&list.out("success")), ["in/4", "in/5", "in/1"]);
    let mut list = rig(
        "ListAzureBlobStorage",
        &peer,
        &[("Listing Strategy", "none")],
    );
    for _ in 0..2 {
        list.run();
        assert_eq!(list.out("success").len(), 7, "all of them, each time");
    }
}

#[test]
fn all_storages_go_out_by_the_proxy_that_a_service_names() {
    let peer = HttpPeer::start(None, |_: &Seen| Answer::new(502, "no way"));
    let services = json!({ "Controller Services": [
        { "id": "proxy", "name": "proxy", "class": "ProxyConfigurationService", "Properties": {
            "Proxy Server Host": "127.0.0.1", "Proxy Server Port": peer.address().port() } },
        { "id": "nobody", "name": "nobody", "class": "GCPCredentialsControllerService",
            "Properties": { "Credentials Location": "Use Anonymous credentials" } },
    ] });
    let azure = "AccountName=n;AccountKey=c2VjcmV0;BlobEndpoint=http://blobs.invalid";
    for (kind, target, properties) in [
        (
            "FetchAzureBlobStorage",
            "http://blobs.invalid/box/a",
            vec![("Container Name", "box"), ("Connection String", azure)],
        ),
        (
            "FetchGCSObject",
            "http://objects.invalid/storage/v1/b/box/o/a?alt=media",
            vec![
                ("Bucket", "box"),
                ("GCP Credentials Provider Service", "nobody"),
                ("Endpoint Override URL", "http://objects.invalid/"),
                ("Number of retries", "0"),
            ],
        ),
        (
            "FetchS3Object",
            "http://box.s3.invalid/a",
            vec![
                ("Bucket", "box"),
                ("Endpoint Override URL", "http://s3.invalid"),
            ],
        ),
    ] {
        let properties = [&properties[..], &[("Proxy Configuration Service", "proxy")]].concat();
        let mut fetch = Rig::try_new(kind, &properties, services.clone()).unwrap();
        fetch.put(&[("filename", "a")], "kept");
        fetch.run();
        fetch.advance(PENALTY);
        assert_eq!(fetch.one("failure").text(), "kept");
        assert_eq!(peer.at(target).len(), 1, "{kind}: {:?}", peer.seen());
    }
}
