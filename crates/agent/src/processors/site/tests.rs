//! Agents that send to agents and receive from agents, over real sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::engine::{Engine, Ground};
use crate::net::limits::S2S_CONNECTIONS_MAX;
use crate::s2s::{HttpServer, Server};
use crate::services::ClientAuthentication;
use crate::testing::{Answer, Certificates, HttpPeer, Seen, ground, runtime, start, wait_or_tell};

/// An input port `in` to a folder, and from a generator to an output port `out`.
fn called(out: &Path) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: called}}
Processors:
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: {out}, Conflict Resolution Strategy: fail}}
- name: get
  id: get
  class: GetFile
  scheduling period: 10 ms
  Properties: {{Input Directory: {out}-give}}
Input Ports:
- {{id: in-port, name: in}}
Output Ports:
- {{id: out-port, name: out}}
Connections:
- {{id: came, source id: in-port, destination id: put}}
- {{id: goes, source id: get, source relationship name: success, destination id: out-port}}
",
        out = out.display()
    )
}

/// From a folder to the called one's input port, and from its output port to a folder.
fn caller(dir: &Path, remote: &str, ports: &str, services: &str) -> String {
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: caller}}
{services}
Processors:
- name: get
  id: get
  class: GetFile
  scheduling period: 10 ms
  Properties: {{Input Directory: {dir}-send}}
- name: put
  id: put
  class: PutFile
  scheduling strategy: EVENT_DRIVEN
  auto-terminated relationships list: [success, failure]
  Properties: {{Directory: {dir}-came, Conflict Resolution Strategy: fail}}
Remote Process Groups:
- name: remote
  id: remote
  url: {remote}
  timeout: 5 s
  yield period: 100 ms
  Input Ports:
  - {{id: in-port, name: in{ports}}}
  Output Ports:
  - {{id: out-port, name: out{ports}}}
Connections:
- {{id: sends, source id: get, source relationship name: success, destination id: in-port}}
- {{id: came, source id: out-port, destination id: put}}
",
        dir = dir.display()
    )
}

fn folder(base: &Path, ending: &str) -> std::path::PathBuf {
    let path = std::path::PathBuf::from(format!("{}{ending}", base.display()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A file that is there as a whole or not at all.
fn lay(folder: &Path, name: impl AsRef<str>, content: impl AsRef<[u8]>) {
    let hidden = folder.join(format!(".{}", name.as_ref()));
    std::fs::write(&hidden, content).unwrap();
    std::fs::rename(hidden, folder.join(name.as_ref())).unwrap();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

struct Two {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Two {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Two {
            dir,
            runtime: runtime(),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn ground(&self, name: &str) -> Ground {
        ground(&self.path(name), &self.runtime)
    }
}

/// Files both ways between a caller and a called agent.
fn exchange(ports: &str, services: &str, tls: Option<Arc<rustls::ServerConfig>>, two: &Two) {
    let here = two.path("files");
    let (gives, sends) = (folder(&here, "-give"), folder(&here, "-send"));
    let (kept, came) = (folder(&here, ""), folder(&here, "-came"));
    let ground_b = two.ground("b");
    let server = Server::start(0, tls, ground_b.ports.clone()).unwrap();
    let called = start(&ground_b, &called(&here));
    let ground_a = two.ground("a");
    let port = server.address().port();
    let ports = format!(", Properties: {{Host Name: localhost, Port: {port}{ports}}}");
    let big: Vec<u8> = (0..1_500_000u32).flat_map(u32::to_le_bytes).collect();
    lay(&sends, "big", &big);
    lay(&gives, "big", &big);
    for number in 0..150 {
        lay(&sends, format!("s{number}"), format!("sent {number}"));
        lay(&gives, format!("g{number}"), format!("given {number}"));
    }
    lay(&sends, "empty", "");
    let calling = start(
        &ground_a,
        &caller(&here, "http://unused:1/nifi", &ports, services),
    );
    wait_or_tell(&ground_a, "all was sent and received", || {
        names(&kept).len() == 152 && names(&came).len() == 151
    });
    calling.stop();
    called.stop();
    for (folder, letter, word) in [(&kept, "s", "sent"), (&came, "g", "given")] {
        assert!(
            std::fs::read(folder.join("big")).unwrap() == big,
            "it changed on its way"
        );
        for number in 0..150 {
            let text = std::fs::read_to_string(folder.join(format!("{letter}{number}"))).unwrap();
            assert_eq!(text, format!("{word} {number}"));
        }
    }
    assert!(names(&sends).is_empty() && names(&gives).is_empty());
}

#[test]
fn agents_send_and_receive_files_of_any_size() {
    exchange("", "", None, &Two::new());
}

#[test]
fn agents_send_and_receive_packed() {
    let two = Two::new();
    exchange(", Use Compression: true", "", None, &two);
}

#[test]
fn agents_send_and_receive_by_tls() {
    let two = Two::new();
    let certificates = Certificates::make(two.dir.path(), &["server", "client"]);
    let tls = certificates.server("server", ClientAuthentication::Required);
    let service = certificates.service("client");
    exchange(", SSL Context Service: tls", &service, Some(tls), &two);
}

#[test]
fn where_the_socket_is_and_what_the_port_is_called_is_asked_for() {
    let two = Two::new();
    let here = two.path("files");
    let sends = folder(&here, "-send");
    let kept = folder(&here, "");
    folder(&here, "-give");
    let ground_b = two.ground("b");
    let server = Server::start(0, None, ground_b.ports.clone()).unwrap();
    let called = start(&ground_b, &called(&here));
    let port = server.address().port();
    let nifi = HttpPeer::start(None, move |_: &Seen| {
        Answer::new(
            200,
            format!(
                r#"{{"controller":{{"remoteSiteListeningPort":{port},"siteToSiteSecure":false,
                "inputPorts":[{{"id":"in-port","name":"in"}}],
                "outputPorts":[{{"id":"out-port","name":"out"}}]}}}}"#
            ),
        )
    });
    lay(&sends, "one", "1");
    let url = format!("http://127.0.0.1:{}/nifi", nifi.address().port());
    let text = caller(&here, &url, "", "")
        .replace("id: in-port, name: in}", "id: other, name: in}")
        .replace("destination id: in-port", "destination id: other");
    let ground_a = two.ground("a");
    let calling = start(&ground_a, &text);
    wait_or_tell(&ground_a, "it was sent", || names(&kept) == ["one"]);
    assert_eq!(nifi.seen()[0].target, "/nifi-api/site-to-site");
    calling.stop();
    called.stop();
}

/// A way between the agents that breaks after so many bytes towards the called one.
fn breaking(to: u16, bytes: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let breaks = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&breaks);
    std::thread::spawn(move || {
        for (index, from) in listener.incoming().flatten().enumerate() {
            let to = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || {
                let (mut from, mut to) = (from, to);
                let mut left = bytes * (index + 1);
                let mut buffer = [0; 1_024];
                while let Ok(read) = from.read(&mut buffer)
                    && read > 0
                {
                    let len = read.min(left);
                    left -= len;
                    if to.write_all(&buffer[..len]).is_err() || left == 0 {
                        break;
                    }
                }
                if left == 0 {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                let _ = from.shutdown(std::net::Shutdown::Both);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    (port, breaks)
}

#[test]
fn nothing_is_lost_when_the_line_breaks_again_and_again() {
    let two = Two::new();
    let here = two.path("files");
    let sends = folder(&here, "-send");
    let kept = folder(&here, "");
    folder(&here, "-give");
    let ground_b = two.ground("b");
    let server = Server::start(0, None, ground_b.ports.clone()).unwrap();
    let called = start(&ground_b, &called(&here));
    let (port, breaks) = breaking(server.address().port(), 3_000);
    for number in 0..300 {
        lay(&sends, format!("n{number}"), "x".repeat(100));
    }
    let ports = format!(", Properties: {{Host Name: 127.0.0.1, Port: {port}}}");
    let ground_a = two.ground("a");
    let calling = start(
        &ground_a,
        &caller(&here, "http://unused:1/nifi", &ports, ""),
    );
    wait_or_tell(&ground_a, "all arrived", || names(&kept).len() == 300);
    calling.stop();
    called.stop();
    assert!(breaks.load(Ordering::Relaxed) > 2, "the line hardly broke");
}

fn queued(engine: &Engine, id: &str) -> u64 {
    let queues = engine.queues();
    queues
        .iter()
        .find(|queue| queue.id == id)
        .unwrap()
        .flow_files
}

#[test]
fn a_full_port_holds_the_sender_back() {
    let two = Two::new();
    let here = two.path("files");
    let sends = folder(&here, "-send");
    folder(&here, "-give");
    let ground_b = two.ground("b");
    let server = Server::start(0, None, ground_b.ports.clone()).unwrap();
    // Nobody takes what came: what leads to PutFile is a port that nobody calls.
    let text = called(&here)
        .replace(
            "- {id: came, source id: in-port, destination id: put}\n",
            "",
        )
        .replace(
            "source id: get, source relationship name: success",
            "source id: in-port",
        )
        .replace(
            "destination id: out-port}",
            "destination id: out-port, max work queue size: 10}",
        );
    let text = {
        let start = text.find("- name: put").unwrap();
        let end = text.find("Input Ports:").unwrap();
        format!(
            "{}{}",
            &text[..start].trim_end().trim_end_matches("Processors:"),
            &text[end..]
        )
    };
    let called = start(&ground_b, &text);
    for number in 0..300 {
        lay(&sends, format!("n{number}"), "x");
    }
    let port = server.address().port();
    let ports =
        format!(", batch size: {{count: 5}}, Properties: {{Host Name: localhost, Port: {port}}}");
    let ground_a = two.ground("a");
    let calling = start(
        &ground_a,
        &caller(&here, "http://unused:1/nifi", &ports, ""),
    );
    wait_or_tell(&ground_a, "the port is full", || {
        queued(&called, "goes") >= 10
    });
    std::thread::sleep(Duration::from_millis(700));
    let came = queued(&called, "goes");
    // One transaction's overshoot at most.
    assert!(came <= 15, "{came} came to a port that takes 10");
    calling.stop();
    called.stop();
}

#[test]
fn agents_send_and_receive_over_http() {
    for is_packed in [false, true] {
        let two = Two::new();
        let here = two.path("files");
        let (gives, sends) = (folder(&here, "-give"), folder(&here, "-send"));
        let (kept, came) = (folder(&here, ""), folder(&here, "-came"));
        let ground_b = two.ground("b");
        let runtime = two.runtime.handle();
        let server = HttpServer::start(runtime, 0, None, ground_b.ports.clone(), None).unwrap();
        let called = start(&ground_b, &called(&here));
        let big: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
        lay(&sends, "big", &big);
        lay(&gives, "big", &big);
        for number in 0..40 {
            lay(&sends, format!("s{number}"), format!("sent {number}"));
            lay(&gives, format!("g{number}"), format!("given {number}"));
        }
        let url = format!("http://127.0.0.1:{}/nifi", server.address().port());
        let ports = if is_packed {
            ", use compression: true"
        } else {
            ""
        };
        let text = caller(&here, &url, ports, "")
            .replace("timeout: 5 s", "timeout: 5 s\n  transport protocol: HTTP");
        let ground_a = two.ground("a");
        let calling = start(&ground_a, &text);
        wait_or_tell(&ground_a, "all was sent and received", || {
            names(&kept).len() == 41 && names(&came).len() == 41
        });
        calling.stop();
        called.stop();
        for (folder, letter, word) in [(&kept, "s", "sent"), (&came, "g", "given")] {
            assert!(
                std::fs::read(folder.join("big")).unwrap() == big,
                "it changed"
            );
            for number in 0..40 {
                let text = std::fs::read_to_string(folder.join(format!("{letter}{number}")));
                assert_eq!(text.unwrap(), format!("{word} {number}"));
            }
        }
    }
}

#[test]
fn who_begins_transactions_and_goes_away_locks_nobody_else_out() {
    let two = Two::new();
    let ground_b = two.ground("b");
    let handle = two.runtime.handle().clone();
    let server = HttpServer::start(&handle, 0, None, ground_b.ports.clone(), None).unwrap();
    let called = start(&ground_b, &called(&two.path("files")));
    wait_or_tell(&ground_b, "the ports are open", || {
        ground_b.ports.all().len() == 2
    });
    let port = server.address().port();
    let begin = |from: &str| {
        let from: std::net::IpAddr = from.parse().unwrap();
        let client = reqwest::Client::builder().local_address(from).build();
        let url = format!(
            "http://127.0.0.1:{port}/nifi-api/data-transfer/input-ports/in-port/transactions"
        );
        let asked = client.unwrap().post(url);
        handle.block_on(async { asked.send().await.unwrap().status().as_u16() })
    };
    let answers: Vec<u16> = (0..S2S_CONNECTIONS_MAX)
        .map(|_| begin("127.0.0.1"))
        .collect();
    assert_eq!((answers[0], answers[S2S_CONNECTIONS_MAX - 1]), (201, 503));
    assert_eq!(begin("127.0.0.2"), 201);
    called.stop();
}

#[test]
fn a_port_stops_though_its_peer_goes_on_and_on() {
    let two = Two::new();
    let ground_b = two.ground("b");
    let server = Server::start(0, None, ground_b.ports.clone()).unwrap();
    let called = start(&ground_b, &called(&two.path("files")));
    wait_or_tell(&ground_b, "the ports are open", || {
        ground_b.ports.all().len() == 2
    });
    let mut peer = TcpStream::connect(("127.0.0.1", server.address().port())).unwrap();
    let mut hello = b"NiFi".to_vec();
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u16).to_be_bytes());
        bytes.extend(text.as_bytes());
    };
    text(&mut hello, "SocketFlowFileProtocol");
    hello.extend(5_u32.to_be_bytes());
    text(&mut hello, "me");
    text(&mut hello, "nifi://me");
    hello.extend(1_u32.to_be_bytes());
    text(&mut hello, "PORT_IDENTIFIER");
    text(&mut hello, "in-port");
    text(&mut hello, "SEND_FLOWFILES");
    // A FlowFile without attributes whose content takes for ever.
    hello.extend(0_u32.to_be_bytes());
    hello.extend((1_u64 << 40).to_be_bytes());
    peer.write_all(&hello).unwrap();
    // One byte after the other, until the port has left.
    let trickle = std::thread::spawn(move || {
        while peer.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let node = || called.nodes().into_iter().find(|node| node.id == "in-port");
    wait_or_tell(&ground_b, "the port is at work", || {
        node().is_some_and(|node| node.is_active)
    });
    let stopping = std::thread::spawn(move || called.stop());
    wait_or_tell(&ground_b, "the flow is stopped", || stopping.is_finished());
    trickle.join().unwrap();
}

#[test]
fn over_http_only_what_is_confirmed_counts() {
    let two = Two::new();
    let here = two.path("files");
    let (gives, kept) = (folder(&here, "-give"), folder(&here, ""));
    let ground_b = two.ground("b");
    let handle = two.runtime.handle().clone();
    let server = HttpServer::start(&handle, 0, None, ground_b.ports.clone(), Some(7)).unwrap();
    let called = start(&ground_b, &called(&here));
    wait_or_tell(&ground_b, "the ports are open", || {
        ground_b.ports.all().len() == 2
    });
    let api = format!("http://127.0.0.1:{}/nifi-api", server.address().port());
    let client = reqwest::Client::new();
    let ask = |method: &str, url: String, body: Vec<u8>| {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        handle.block_on(async {
            let asked = client.request(method, url).body(body).send().await.unwrap();
            let place = asked.headers().get("location").cloned();
            let place = place.map(|place| place.to_str().unwrap().to_owned());
            (asked.status().as_u16(), place, asked.bytes().await.unwrap())
        })
    };
    let (_, _, told) = ask("GET", format!("{api}/site-to-site"), vec![]);
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(told["controller"]["inputPorts"][0]["id"], "in-port");
    assert_eq!(told["controller"]["remoteSiteListeningPort"], 7);
    let begin = |port: &str| {
        let (status, place, _) = ask(
            "POST",
            format!("{api}/data-transfer/{port}/transactions"),
            vec![],
        );
        assert_eq!(status, 201);
        api.replace("/nifi-api", &place.unwrap())
    };
    let packet = |name: &str| {
        let (mut bytes, mut crc) = (Vec::new(), flate2::Crc::new());
        let pairs = [("filename", name)].into_iter();
        crate::s2s::transaction::put_packet(&mut bytes, false, &mut crc, pairs, &mut &b"x"[..], 1)
            .unwrap();
        (bytes, crc.sum())
    };
    for (name, code, is_kept) in [("a", "15", false), ("b", "19", false), ("c", "12", true)] {
        let place = begin("input-ports/in-port");
        let (bytes, crc) = packet(name);
        let (status, _, told) = ask("POST", format!("{place}/flow-files"), bytes.clone());
        assert_eq!((status, told), (202, crc.to_string().into()));
        assert_eq!(
            ask("POST", format!("{place}/flow-files"), bytes).0,
            409,
            "once only"
        );
        let (status, _, _) = ask("DELETE", format!("{place}?responseCode={code}"), vec![]);
        assert_eq!(status, 200);
        assert_eq!(
            ask("DELETE", format!("{place}?responseCode=12"), vec![]).0,
            404,
            "over"
        );
        if is_kept {
            wait_or_tell(&ground_b, "it is kept", || names(&kept) == [name]);
        }
    }
    // What is cut short, or nothing, is no transaction.
    for body in [packet("d").0[..10].to_vec(), vec![]] {
        let place = begin("input-ports/in-port");
        assert_eq!(ask("POST", format!("{place}/flow-files"), body).0, 400);
    }
    let unknown = format!("{api}/data-transfer/input-ports/nowhere/transactions");
    assert_eq!(ask("POST", unknown, vec![]).0, 404);
    // What is given and not confirmed is given again.
    let place = begin("output-ports/out-port");
    assert_eq!(ask("GET", format!("{place}/flow-files"), vec![]).0, 204);
    lay(&gives, "given", "x");
    wait_or_tell(&ground_b, "it waits", || queued(&called, "goes") == 1);
    for (is_right, left) in [(false, 1), (true, 0)] {
        let place = begin("output-ports/out-port");
        let (status, _, bytes) = ask("GET", format!("{place}/flow-files"), vec![]);
        assert_eq!(status, 202);
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        let sum = u64::from(crc.sum()) + u64::from(!is_right);
        let (status, _, _) = ask(
            "DELETE",
            format!("{place}?responseCode=12&checksum={sum}"),
            vec![],
        );
        assert_eq!(status, if is_right { 200 } else { 400 });
        wait_or_tell(&ground_b, "it is decided", || {
            queued(&called, "goes") == left
        });
    }
    called.stop();
    assert_eq!(names(&kept), ["c"]);
}

/// A NiFi's HTTP interface, as far as transactions need it.
fn nifi(gives: Vec<u8>, spoils: Arc<AtomicUsize>) -> HttpPeer {
    let given = AtomicUsize::new(0);
    HttpPeer::start(None, move |seen: &Seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        match (seen.method.as_str(), path) {
            ("GET", "/nifi-api/site-to-site") => Answer::new(200, r#"{"controller":{}}"#),
            ("POST", path) if path.ends_with("/transactions") => {
                Answer::new(201, "").with("Location", &format!("{path}/t1"))
            }
            ("POST", _) => {
                let mut crc = flate2::Crc::new();
                crc.update(&seen.body);
                let spoilt = spoils.load(Ordering::Relaxed);
                if spoilt > 0 {
                    spoils.fetch_sub(1, Ordering::Relaxed);
                }
                let sum = u64::from(crc.sum()) + u64::from(spoilt > 0);
                Answer::new(202, sum.to_string())
            }
            ("GET", _) if given.fetch_add(1, Ordering::Relaxed) == 0 => {
                Answer::new(202, gives.clone())
            }
            ("GET", _) => Answer::new(204, ""),
            _ => Answer::new(200, r#"{"responseCode":13}"#),
        }
    })
}

#[test]
fn a_nifi_is_sent_to_and_received_from_over_http() {
    let mut gives = Vec::new();
    let mut crc = flate2::Crc::new();
    for name in ["x", "y"] {
        let pairs = [("filename", name), ("uuid", "theirs")].into_iter();
        let mut content = b"given".as_slice();
        crate::s2s::transaction::put_packet(&mut gives, false, &mut crc, pairs, &mut content, 5)
            .unwrap();
    }
    let spoils = Arc::new(AtomicUsize::new(1));
    let nifi = nifi(gives, Arc::clone(&spoils));
    let two = Two::new();
    let here = two.path("files");
    let (sends, came) = (folder(&here, "-send"), folder(&here, "-came"));
    lay(&sends, "one", "1");
    let url = format!("http://{}/nifi", nifi.address());
    let text = caller(&here, &url, "", "")
        .replace("timeout: 5 s", "timeout: 5 s\n  transport protocol: HTTP");
    let ground_a = two.ground("a");
    let base = "/nifi-api/data-transfer";
    let calling = start(&ground_a, &text);
    wait_or_tell(&ground_a, "both ways are done", || {
        // What a session holds is in no queue: only the last word says that it is through.
        let confirmed = format!("{base}/input-ports/in-port/transactions/t1?responseCode=12");
        names(&came) == ["x", "y"] && nifi.at(&confirmed).len() == 1
    });
    calling.stop();
    assert_eq!(std::fs::read(came.join("x")).unwrap(), b"given");
    let sent = nifi.at(&format!(
        "{base}/input-ports/in-port/transactions/t1/flow-files"
    ));
    assert_eq!(sent.len(), 2, "what was spoilt was not sent again");
    let head = crate::s2s::codec::read_head(&mut sent[1].body.as_slice()).unwrap();
    assert!(
        head.attributes
            .contains(&("filename".to_owned(), "one".to_owned()))
    );
    assert_eq!((head.size, sent[1].body.last()), (1, Some(&b'1')));
    let ended = |port: &str, code: &str| {
        let target = format!("{base}/{port}/transactions/t1?responseCode={code}");
        nifi.at(&target).len()
    };
    assert_eq!(ended("input-ports/in-port", "19"), 1);
    assert_eq!(ended("input-ports/in-port", "12"), 1);
    let told = format!("12&checksum={}", crc.sum());
    assert_eq!(ended("output-ports/out-port", &told), 1);
}
