//! Files by their URL, from a server that breaks off, sends on, changes its file and stands still.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A server of one file under several names, each with a vice of its own.
struct FileServer {
    address: SocketAddr,
    /// The range that each request asked for; empty without one.
    ranges: Arc<Mutex<Vec<String>>>,
    /// Whether the file of `slow` comes to its end, and `busy` was busy.
    may_end: Arc<AtomicBool>,
}

impl FileServer {
    async fn start(file: Vec<u8>) -> FileServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = FileServer {
            address: listener.local_addr().unwrap(),
            ranges: Arc::default(),
            may_end: Arc::default(),
        };
        let (ranges, may_end) = (server.ranges.clone(), server.may_end.clone());
        tokio::spawn(async move {
            let file: Arc<[u8]> = file.into();
            while let Ok((link, _)) = listener.accept().await {
                let (file, ranges, may_end) = (file.clone(), ranges.clone(), may_end.clone());
                tokio::spawn(async move {
                    // Whoever goes away early goes away.
                    let _ = answer(link, &file, &ranges, &may_end).await;
                });
            }
        });
        server
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    fn config(&self) -> ImportsConfig {
        ImportsConfig {
            urls: vec![self.url("files/")],
            ..small_slices(50)
        }
    }
}

async fn answer(
    mut link: TcpStream,
    file: &[u8],
    ranges: &Mutex<Vec<String>>,
    may_end: &AtomicBool,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(link.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.to_owned()))
    };
    let range = header("range").unwrap_or_default();
    ranges.lock().push(range.clone());
    let to = |place: &str| {
        format!("HTTP/1.1 302 Found\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n")
    };
    let name = path.strip_prefix("/files/").unwrap_or_default();
    let text = match name {
        "moved.mrc" => to("broken.mrc"),
        "away.mrc" => to("/private/secret.mrc"),
        "round.mrc" => to("round.mrc"),
        "missing.mrc" => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => String::new(),
    };
    if !text.is_empty() {
        return link.write_all(text.as_bytes()).await;
    }
    if name == "busy.mrc" && !may_end.swap(true, Ordering::Relaxed) {
        let text = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        return link.write_all(text).await;
    }
    let from = range
        .strip_prefix("bytes=")
        .and_then(|range| range.strip_suffix('-'));
    let from = from.map_or(0, |from| from.parse::<usize>().unwrap());
    let is_same = header("if-range").as_deref() == Some("\"one\"");
    let tag = match name {
        "unmarked.mrc" => "",
        "changed.mrc" if from > 0 => "ETag: \"two\"\r\n",
        _ => "ETag: \"one\"\r\n",
    };
    let (from, status) = match from {
        0 => (0, "200 OK".to_owned()),
        from if is_same && name != "changed.mrc" => {
            let range = format!("bytes {from}-{}/{}", file.len() - 1, file.len());
            (
                from,
                format!("206 Partial Content\r\nContent-Range: {range}"),
            )
        }
        _ => (0, "200 OK".to_owned()),
    };
    let rest = &file[from..];
    let head = format!(
        "HTTP/1.1 {status}\r\n{tag}Content-Length: {}\r\n\r\n",
        rest.len()
    );
    link.write_all(head.as_bytes()).await?;
    if name == "slow.mrc" {
        link.write_all(&rest[..rest.len() / 2]).await?;
        while !may_end.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        return link.write_all(&rest[rest.len() / 2..]).await;
    }
    let is_whole = ["whole.mrc", "busy.mrc"].contains(&name);
    let most = if is_whole { rest.len() } else { file.len() / 3 };
    link.write_all(&rest[..most.min(rest.len())]).await
}

/// What became of the import of a URL.
async fn imported(service: &Service, url: &str, tenant: &str) -> Value {
    let query = format!(
        "format=marc&tenant={tenant}&sink=records&url={}",
        escaped(url)
    );
    let id = service.import(&query, Body::empty()).await;
    service.ended(&id).await
}

fn escaped(url: &str) -> String {
    url.replace(':', "%3A")
        .replace('/', "%2F")
        .replace('?', "%3F")
        .replace('=', "%3D")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_goes_on_where_it_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let file = books(0..700);
    let server = FileServer::start(file.clone()).await;
    let service = Service::open(folder.path(), server.config()).await;
    let url = format!("{}?signature=secret", server.url("files/moved.mrc"));
    let job = imported(&service, &url, "t").await;
    assert_eq!(job["state"], "completed", "{job}");
    assert_eq!(
        (&job["records_done"], &job["bytes_total"]),
        (&700.into(), &file.len().into())
    );
    // The secret of its query is not told.
    assert_eq!(
        (&job["url"], &job["path"]),
        (&server.url("files/moved.mrc").into(), &Value::Null)
    );
    assert_eq!(sink(folder.path(), "t").await.len(), 700);
    let third = file.len() / 3;
    let asked: Vec<String> = server
        .ranges
        .lock()
        .iter()
        .filter(|one| !one.is_empty())
        .cloned()
        .collect();
    // Each step behind the redirect asks for the rest again.
    assert!(asked.contains(&format!("bytes={third}-")), "{asked:?}");
    assert!(
        asked.contains(&format!("bytes={}-", 2 * third)),
        "{asked:?}"
    );
    let job = imported(&service, &server.url("files/busy.mrc"), "busy").await;
    assert_eq!(job["state"], "completed", "{job}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_fetched_whole_fails_its_job_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let server = FileServer::start(books(0..300)).await;
    let config = server.config();
    let service = Service::open(folder.path(), config.clone()).await;
    for (name, reason) in [
        ("missing.mrc", "404"),
        ("away.mrc", "imports.urls does not allow"),
        ("round.mrc", "more than 5 times"),
        ("changed.mrc", "it changed while it was fetched"),
        ("unmarked.mrc", "does not say"),
    ] {
        let job = imported(&service, &server.url(&format!("files/{name}")), "t").await;
        assert_eq!(job["state"], "failed", "{name}: {job}");
        assert!(
            job["error"].as_str().unwrap().contains(reason),
            "{name}: {job}"
        );
    }
    assert!(
        sink(folder.path(), "t").await.is_empty(),
        "nothing of a part of a file is imported"
    );
    service.close().await;
    let small = ImportsConfig {
        upload_bytes_max: ByteSize(10_000),
        ..config
    };
    let service = Service::open(folder.path(), small).await;
    let job = imported(&service, &server.url("files/whole.mrc"), "t").await;
    assert!(
        job["error"]
            .as_str()
            .unwrap()
            .contains("larger than 10000 bytes"),
        "{job}"
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_addresses_that_the_operator_allows_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let server = FileServer::start(books(0..3)).await;
    for (urls, name, status) in [
        (Vec::new(), "files/whole.mrc", 400),
        (vec![server.url("files/")], "private/whole.mrc", 400),
        (
            vec![server.url("files/")],
            "files/..%2Fprivate/whole.mrc",
            400,
        ),
        (vec![server.url("files/")], "files/whole.mrc", 201),
    ] {
        let config = ImportsConfig {
            urls,
            ..small_slices(5)
        };
        let service = Service::open(folder.path(), config).await;
        let url = escaped(&server.url(name).replace('%', "%25"));
        let path = format!("/api/v1/imports?format=marc&url={url}");
        let (answered, told) = service.post(&path).await;
        assert_eq!(answered, status, "{name}: {told}");
        let both = format!("{path}&resumable=true");
        assert_eq!(service.post(&both).await.0, 400);
        if status == 201 {
            service.ended(told["id"].as_str().unwrap()).await;
        }
        service.close().await;
    }
    assert_eq!(server.ranges.lock().len(), 1, "nobody else was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_outlives_a_restart_and_ends_with_its_cancel() {
    let folder = tempfile::tempdir().unwrap();
    let server = FileServer::start(books(0..300)).await;
    let service = Service::open(folder.path(), server.config()).await;
    let begin = |tenant: &str| {
        let url = escaped(&server.url("files/slow.mrc"));
        format!("format=marc&tenant={tenant}&sink=records&url={url}")
    };
    let id = service.import(&begin("t"), Body::empty()).await;
    let job = service.get(&format!("/api/v1/imports/{id}")).await;
    assert_eq!(job["state"], "uploading", "{job}");
    let other = service.import(&begin("u"), Body::empty()).await;
    let (status, cancelled) = service
        .call("DELETE", &format!("/api/v1/imports/{other}"), Body::empty())
        .await;
    assert_eq!(
        (status, &cancelled["state"]),
        (200, &"cancelled".into()),
        "{cancelled}"
    );
    service.close().await;
    server.may_end.store(true, Ordering::Relaxed);
    let service = Service::open(folder.path(), server.config()).await;
    let job = service.ended(&id).await;
    assert_eq!(
        (&job["state"], &job["records_done"]),
        (&"completed".into(), &300.into()),
        "{job}"
    );
    assert_eq!(sink(folder.path(), "t").await.len(), 300);
    assert!(sink(folder.path(), "u").await.is_empty());
    service.close().await;
}
