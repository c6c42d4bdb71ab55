//! ListenTCP, ListenUDP, ListenSyslog, GetTCP, PutTCP and PutUDP over real sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::json;

use crate::net::socket::Socket;
use crate::repository::{ContentKind, RepositoryOptions};
use crate::testing::{self, Certificates, Out, Rig, wait_until};

fn free_port() -> String {
    testing::free_port().to_string()
}

/// Triggers until so many FlowFiles came out by `relationship`.
fn take(rig: &mut Rig, relationship: &str, count: usize) -> Vec<Out> {
    let mut all = Vec::new();
    wait_until("the messages came", || {
        rig.trigger().unwrap();
        all.extend(rig.out(relationship));
        all.len() >= count
    });
    all
}

fn texts(all: &[Out]) -> Vec<&str> {
    all.iter().map(Out::text).collect()
}

#[test]
fn tcp_messages_are_cut_by_their_delimiter() {
    let port = free_port();
    let mut rig = Rig::new(
        "ListenTCP",
        &[
            ("Listening Port", port.as_str()),
            ("Message Delimiter", "\\n"),
            ("Max Batch Size", "2"),
        ],
    );
    rig.trigger().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(b"one\ntwo\nthr").unwrap();
    let first = take(&mut rig, "success", 2);
    assert_eq!(texts(&first), ["one", "two"]);
    assert_eq!(first[0].attribute("tcp.port"), port);
    assert_eq!(first[0].attribute("tcp.sender"), "127.0.0.1");
    stream.write_all(b"ee\nrest").unwrap();
    drop(stream);
    assert_eq!(texts(&take(&mut rig, "success", 2)), ["three", "rest"]);
}

#[test]
fn a_tcp_flow_that_does_not_run_holds_its_peers_back() {
    let port = free_port();
    let mut rig = Rig::new(
        "ListenTCP",
        &[
            ("Listening Port", port.as_str()),
            ("Max Size of Message Queue", "10"),
        ],
    );
    rig.trigger().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let line = [vec![b'x'; 999], vec![b'\n']].concat();
    let mut sent = 0;
    // Until the queue, the task's buffer and both sockets' buffers are full.
    while sent < 100_000 && stream.write_all(&line).is_ok() {
        sent += 1;
    }
    assert!(
        sent < 100_000,
        "100 MB were taken by a flow that does not run"
    );
    drop(stream);
    let taken = take(&mut rig, "success", sent);
    assert!(taken.iter().take(sent).all(|out| out.content.len() == 999));
}

/// Content in memory, of which sources may take 750 bytes.
fn small_memory() -> RepositoryOptions {
    RepositoryOptions {
        content: ContentKind::Volatile {
            bytes_max: 1_000,
            count_max: 100,
        },
        ..RepositoryOptions::default()
    }
}

#[test]
fn what_finds_no_room_in_the_repository_comes_when_there_is_some() {
    let port = free_port();
    let mut rig = Rig::new("ListenTCP", &[("Listening Port", port.as_str())]);
    rig.kill_into(small_memory());
    rig.trigger().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let line = |letter: &str| letter.repeat(600) + "\n";
    stream.write_all(line("a").as_bytes()).unwrap();
    wait_until("the first one came", || {
        rig.trigger().unwrap();
        rig.count("success") == 1
    });
    stream.write_all(line("b").as_bytes()).unwrap();
    stream.write_all(line("c").as_bytes()).unwrap();
    for _ in 0..2 {
        wait_until("there is no room", || rig.trigger().is_err());
    }
    assert_eq!(texts(&rig.out("success")), ["a".repeat(600)]);
    for letter in ["b", "c"] {
        wait_until("the next one came", || {
            // Both together never fit; the other one waits for the room of this.
            let _ = rig.trigger();
            rig.count("success") == 1
        });
        assert_eq!(texts(&rig.out("success")), [letter.repeat(600)]);
    }
}

#[test]
fn a_message_that_never_fits_is_told_and_does_not_hold_up_the_others() {
    let port = free_port();
    let mut rig = Rig::new("ListenTCP", &[("Listening Port", port.as_str())]);
    rig.kill_into(small_memory());
    rig.trigger().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    let lines = format!("one\n{}\ntwo\n", "x".repeat(1_001));
    stream.write_all(lines.as_bytes()).unwrap();
    let mut told = Vec::new();
    wait_until("the others came", || {
        told.extend(rig.trigger().err());
        rig.count("success") == 2
    });
    assert_eq!(texts(&rig.out("success")), ["one", "two"]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("1001 bytes"), "{told:?}");
}

#[test]
fn tls_is_by_the_service() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path(), &["server", "client"]);
    let service = |name: &str| {
        json!({ "Controller Services": [{
            "id": "tls", "name": "tls", "class": "SSLContextService",
            "Properties": {
                "Client Certificate": certificates.path(&format!("{name}.pem")),
                "CA Certificate": certificates.path("ca.pem"),
            },
        }] })
    };
    let port = free_port();
    let properties = [
        ("Listening Port", port.as_str()),
        ("SSL Context Service", "tls"),
        ("Client Auth", "REQUIRED"),
    ];
    let mut listen = Rig::try_new("ListenTCP", &properties, service("server")).unwrap();
    listen.trigger().unwrap();
    let properties = [
        ("Hostname", "localhost"),
        ("Port", port.as_str()),
        ("Outgoing Message Delimiter", "\\n"),
        ("SSL Context Service", "tls"),
    ];
    let mut put = Rig::try_new("PutTCP", &properties, service("client")).unwrap();
    put.put(&[], "secret");
    put.run();
    assert_eq!(put.counts(), [("success", 1)]);
    assert_eq!(texts(&take(&mut listen, "success", 1)), ["secret"]);
    // Without a certificate nobody is let in.
    let wait = Duration::from_secs(2);
    let nobody = crate::net::tls::client(None, false).unwrap();
    let address = format!("localhost:{port}");
    if let Ok(mut socket) = Socket::connect(&address, Some(&nobody), wait, wait, wait) {
        let _ = socket
            .write_all(b"intruder\n")
            .and_then(|()| socket.flush());
    }
    std::thread::sleep(Duration::from_millis(200));
    listen.trigger().unwrap();
    assert_eq!(listen.out("success").len(), 0);
}

#[test]
fn udp_datagrams_over_a_full_queue_are_counted() {
    let port = free_port();
    let mut rig = Rig::new(
        "ListenUDP",
        &[
            ("Listening Port", port.as_str()),
            ("Max Size of Message Queue", "5"),
        ],
    );
    rig.trigger().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..20 {
        socket
            .send_to(format!("n{number}").as_bytes(), format!("127.0.0.1:{port}"))
            .unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    let taken = take(&mut rig, "success", 5);
    assert_eq!(texts(&taken), ["n0", "n1", "n2", "n3", "n4"]);
    assert_eq!(taken[0].attribute("udp.sender"), "127.0.0.1");
    let sender = socket.local_addr().unwrap().port().to_string();
    assert_eq!(taken[0].attribute("udp.sender.port"), sender);
    let told = rig.bulletins();
    assert!(
        told.iter().any(|text| text.starts_with("15 messages")),
        "{told:?}"
    );
}

#[test]
fn syslog_is_read_into_attributes_by_both_ways() {
    for protocol in ["UDP", "TCP"] {
        let port = free_port();
        let mut rig = Rig::new(
            "ListenSyslog",
            &[
                ("Listening Port", port.as_str()),
                ("Protocol", protocol),
                ("Parse Messages", "true"),
            ],
        );
        rig.trigger().unwrap();
        let good = "<34>1 2003-10-11T22:14:15.003Z host su 12 ID47 [a b=\"c\"] it failed";
        let old = "<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!";
        if protocol == "UDP" {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for text in [good, old, "nonsense"] {
                socket
                    .send_to(text.as_bytes(), format!("127.0.0.1:{port}"))
                    .unwrap();
            }
        } else {
            let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
            let counted = format!("{} {good}{old}\nnonsense\n", good.len());
            stream.write_all(counted.as_bytes()).unwrap();
        }
        let read = take(&mut rig, "success", 2);
        assert_eq!(read[0].text(), good);
        for (name, value) in [
            ("syslog.protocol", protocol),
            ("syslog.valid", "true"),
            ("syslog.priority", "34"),
            ("syslog.facility", "4"),
            ("syslog.severity", "2"),
            ("syslog.version", "1"),
            ("syslog.hostname", "host"),
            ("syslog.app_name", "su"),
            ("syslog.proc_id", "12"),
            ("syslog.msg_id", "ID47"),
            ("syslog.structured_data", "[a b=\"c\"]"),
            ("syslog.msg", "it failed"),
        ] {
            assert_eq!(read[0].attribute(name), value, "{name}");
        }
        assert_eq!(read[1].attribute("syslog.timestamp"), "Feb  5 17:32:18");
        assert_eq!(read[1].attribute("syslog.msg"), "Use the BFG!");
        let invalid = take(&mut rig, "invalid", 1);
        assert_eq!(
            (invalid[0].text(), invalid[0].attribute("syslog.valid")),
            ("nonsense", "false")
        );
    }
}

#[test]
fn a_server_s_messages_are_taken_again_when_it_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let mut rig = Rig::new(
        "GetTCP",
        &[
            ("Endpoint List", endpoint.as_str()),
            ("Maximum Message Size", "8 B"),
            ("Reconnection Interval", "50 ms"),
        ],
    );
    rig.trigger().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"one\nmuch too long\nbroken").unwrap();
    drop(stream);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"two\n").unwrap();
    let mut whole = Vec::new();
    let mut partial = Vec::new();
    wait_until("all is there", || {
        rig.trigger().unwrap();
        whole.extend(rig.out("success"));
        partial.extend(rig.out("partial"));
        whole.len() >= 3 && partial.len() >= 2
    });
    assert_eq!(texts(&whole), ["one", " long", "two"].map(|text| text));
    assert_eq!(texts(&partial), ["much too", "broken"]);
    assert_eq!(whole[0].attribute("source.endpoint"), endpoint);
}

#[test]
fn content_goes_over_one_connection_or_one_each() {
    for single in ["false", "true"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let mut rig = Rig::new(
            "PutTCP",
            &[
                ("Hostname", "127.0.0.1"),
                ("Port", "${port}"),
                ("Connection Per FlowFile", single),
                ("Outgoing Message Delimiter", "\\r\\n"),
            ],
        );
        let big = vec![b'b'; 6 << 20];
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let connections = if single == "true" { 3 } else { 1 };
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                stream.read_to_end(&mut all).unwrap();
            }
            all
        });
        rig.put(&[("port", port.as_str())], "one");
        rig.put(&[("port", port.as_str())], &big);
        rig.put(&[("port", port.as_str())], "three");
        rig.put(&[("port", "no port")], "lost");
        rig.run();
        assert_eq!(rig.counts(), [("success", 3), ("failure", 1)]);
        drop(rig);
        let all = reader.join().unwrap();
        let expected = [&b"one\r\n"[..], &big, b"\r\nthree\r\n"].concat();
        assert!(all == expected, "{} bytes came", all.len());
    }
}

#[test]
fn a_connection_that_the_receiver_closed_is_made_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut rig = Rig::new(
        "PutTCP",
        &[("Hostname", "127.0.0.1"), ("Port", port.as_str())],
    );
    for text in ["one", "two"] {
        rig.put(&[], text);
        rig.run();
        let (mut stream, _) = listener.accept().unwrap();
        let mut came = vec![0; text.len()];
        stream.read_exact(&mut came).unwrap();
        assert_eq!(came, text.as_bytes());
        drop(stream);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(rig.counts(), [("success", 2)]);
    drop(listener);
    rig.put(&[], "three");
    rig.run();
    assert_eq!(rig.count("failure"), 1, "nobody listens");
}

#[test]
fn datagrams_carry_what_fits() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let mut rig = Rig::new(
        "PutUDP",
        &[("Hostname", "127.0.0.1"), ("Port", port.as_str())],
    );
    rig.put(&[], "hello");
    rig.put(&[], vec![0; 65_508]);
    rig.run();
    assert_eq!(rig.counts(), [("success", 1), ("failure", 1)]);
    let mut buffer = [0; 100];
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let len = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"hello");
}
