//! Two servers and a bridge between them, over sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{ByteSize, Clock, SystemClock};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use journal::{Disk, Durability, SimDisk};

use super::queue::{Bounds, Queue};
use super::sink::Outlet;
use super::{Bridge, BridgeConfig, Bridges};
use crate::config::MqttConfig;
use crate::message::{Delivery, Message, MessageSink, Qos};
use crate::server::Server;

struct Node {
    server: Server,
    port: u16,
    _dir: TempDir,
}

impl Node {
    async fn start() -> Node {
        Node::start_on(0).await
    }

    /// A server on this port, which was given up a moment ago.
    async fn start_on(port: u16) -> Node {
        Node::start_with(port, MqttConfig::default()).await
    }

    async fn start_with(port: u16, config: MqttConfig) -> Node {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let server = Server::open(dir.path(), config, clock).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn({
            let server = server.clone();
            async move { server.serve(listener, CancellationToken::new()).await }
        });
        Node {
            server,
            port,
            _dir: dir,
        }
    }

    fn bridges(&self, dir: &Path) -> Arc<Bridges> {
        let config = MqttConfig::default();
        Bridges::open(dir, self.server.clone(), &config, Arc::new(SystemClock)).unwrap()
    }

    fn hear(&self, filter: &str) -> Heard {
        let heard = Heard::default();
        let sink = Arc::new(heard.clone());
        self.server.subscribe(filter.parse().unwrap(), sink);
        heard
    }

    async fn say(&self, topic: &str, payload: &str, retain: bool) {
        let topic = topic.parse().unwrap();
        let (payload, qos) = (payload.as_bytes(), Qos::AtLeastOnce);
        while let Err(error) = self.server.publish(&topic, payload, qos, retain) {
            assert!(matches!(error, crate::MqttError::Busy), "{error}");
            self.server.room(&topic).await;
        }
    }
}

/// Topics and payloads, in the order in which they came.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<(String, String)>>>);

impl MessageSink for Heard {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let heard = batch.iter().map(|m| (m.topic.to_owned(), text(m.payload)));
        self.0.lock().extend(heard);
        Delivery::Taken
    }
}

impl Heard {
    fn all(&self) -> Vec<(String, String)> {
        self.0.lock().clone()
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain until {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn config(name: &str, port: u16, topics: &str) -> BridgeConfig {
    let text = format!(
        r#"{{"name": "{name}", "address": "mqtt://127.0.0.1:{port}", "keep_alive": "5s", "topics": {topics}}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn pair(topic: &str, payload: &str) -> (String, String) {
    (topic.to_owned(), payload.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_go_both_ways_with_prefixes_and_never_back() {
    let (here, there) = (Node::start().await, Node::start().await);
    let dir = tempfile::tempdir().unwrap();
    let bridges = here.bridges(dir.path());
    let topics = r##"[
        {"filter": "t/#", "direction": "both", "local_prefix": "plant/", "remote_prefix": "site1/"},
        {"filter": "commands/+", "direction": "in"}
    ]"##;
    let added = bridges
        .add(config("cloud", there.port, topics))
        .await
        .unwrap();
    assert!(!added.configured);
    let (heard_here, heard_there) = (here.hear("#"), there.hear("#"));
    until("it is connected", || bridges.list()[0].connected).await;
    until("it has subscribed", || {
        there.server.stats().subscriptions == 3
    })
    .await;
    here.say("plant/t/a", "out", false).await;
    until("it arrives there", || heard_there.count() == 1).await;
    there.say("site1/t/b", "in", false).await;
    there.say("commands/x", "stop", false).await;
    there.say("commands/x/y", "not meant", false).await;
    until("both arrive here", || heard_here.count() == 3).await;
    // What came in is not sent out again, and what went out did not come back.
    here.say("plant/t/end", "end", false).await;
    until("the last one arrives", || {
        heard_there.all().contains(&pair("site1/t/end", "end"))
    })
    .await;
    let here_all = [
        pair("plant/t/a", "out"),
        pair("plant/t/b", "in"),
        pair("commands/x", "stop"),
        pair("plant/t/end", "end"),
    ];
    assert_eq!(heard_here.all(), here_all);
    assert_eq!(heard_there.count(), 5, "{:?}", heard_there.all());
    until("both are acknowledged", || {
        bridges.list()[0].sent_total == 2
    })
    .await;
    let status = &bridges.list()[0];
    assert_eq!((status.received_total, status.dropped_total), (2, 0));
    bridges.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_while_the_other_is_away_arrives_in_order_after_a_restart() {
    let here = Node::start().await;
    let dir = tempfile::tempdir().unwrap();
    // A port that nobody has: the other server is away.
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let topics = r##"[{"filter": "t/#"}]"##;
    let bridges = here.bridges(dir.path());
    bridges.add(config("cloud", port, topics)).await.unwrap();
    for n in 0..500 {
        here.say("t/n", &n.to_string(), n == 499).await;
    }
    until("all wait", || bridges.list()[0].queued == 500).await;
    assert!(!bridges.list()[0].connected);
    // The process ends and comes again: the bridge is kept with what waits.
    bridges.close().await;
    assert_eq!(bridges.list().len(), 0);
    let bridges = here.bridges(dir.path());
    // A retained message is told to every new subscriber, so to the bridge too.
    until("the retained one is told again", || {
        bridges.list()[0].queued == 501
    })
    .await;
    let there = Node::start_on(port).await;
    let heard = there.hear("t/#");
    until("nothing waits", || bridges.list()[0].queued == 0).await;
    until("all are heard", || heard.count() >= 501).await;
    let expected: Vec<_> = (0..500)
        .chain([499])
        .map(|n| pair("t/n", &n.to_string()))
        .collect();
    assert_eq!(heard.all(), expected);
    // Retained there as it is here.
    let retained = there.server.retained(&"#".parse().unwrap(), 10);
    assert_eq!(retained.len(), 1);
    assert_eq!(retained[0].payload, b"499");
    bridges.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_ring_of_bridges_a_message_comes_to_rest() {
    let nodes = [
        Node::start().await,
        Node::start().await,
        Node::start().await,
    ];
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let topics = r##"[{"filter": "r/#", "direction": "both"}]"##;
    let mut rings = Vec::new();
    for at in 0..3 {
        let bridges = nodes[at].bridges(dirs[at].path());
        let next = nodes[(at + 1) % 3].port;
        bridges.add(config("next", next, topics)).await.unwrap();
        rings.push(bridges);
    }
    until("all are connected", || {
        rings.iter().all(|ring| ring.list()[0].connected)
    })
    .await;
    until("all have subscribed", || {
        nodes
            .iter()
            .all(|node| node.server.stats().subscriptions == 2)
    })
    .await;
    let heard: Vec<Heard> = nodes.iter().map(|node| node.hear("r/#")).collect();
    nodes[0].say("r/x", "once", false).await;
    until("all hear it", || {
        heard.iter().all(|heard| heard.count() >= 1)
    })
    .await;
    let looped = || {
        rings
            .iter()
            .map(|ring| ring.list()[0].looped_total)
            .sum::<u64>()
    };
    until("it comes back and is dropped", || looped() >= 1).await;
    // Around both ways, and then no further: nothing is under way for a while.
    let counts = || heard.iter().map(Heard::count).collect::<Vec<_>>();
    let mut before = counts();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = counts();
        assert!(now.iter().all(|count| *count <= 4), "{now:?}");
        if now == before {
            break;
        }
        before = now;
    }
    for ring in rings {
        ring.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_too_large_for_the_other_server_is_refused_and_the_next_one_goes() {
    let here = Node::start().await;
    let small = MqttConfig {
        packet_bytes_max: ByteSize::kib(2),
        ..MqttConfig::default()
    };
    let there = Node::start_with(0, small).await;
    let heard = there.hear("t/#");
    let dir = tempfile::tempdir().unwrap();
    let bridges = here.bridges(dir.path());
    let topics = r##"[{"filter": "t/#"}]"##;
    bridges
        .add(config("cloud", there.port, topics))
        .await
        .unwrap();
    here.say("t/x", &"7".repeat(10_000), false).await;
    here.say("t/x", "after", false).await;
    until("the next one is heard", || heard.count() == 1).await;
    assert_eq!(heard.all(), [pair("t/x", "after")]);
    until("nothing waits", || bridges.list()[0].queued == 0).await;
    let status = &bridges.list()[0];
    assert_eq!(
        (
            status.sent_total,
            status.dropped_total,
            status.connects_total
        ),
        (1, 1, 1)
    );
    assert!(status.problem.contains("2048 bytes"), "{}", status.problem);
    bridges.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bridges_are_added_and_removed_and_names_are_taken_once() {
    let here = Node::start().await;
    let dir = tempfile::tempdir().unwrap();
    let bridges = here.bridges(dir.path());
    let topics = r##"[{"filter": "t/#"}]"##;
    bridges.add(config("a", 1, topics)).await.unwrap();
    let again = bridges.add(config("a", 1, topics)).await.unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");
    assert!(bridges.remove("b").await.is_err());
    bridges.remove("a").await.unwrap();
    assert!(!dir.path().join("a").exists());
    bridges.close().await;
    assert_eq!(here.bridges(dir.path()).list().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_is_added_names_files_of_the_operators_folders_alone() {
    let here = Node::start().await;
    let dir = tempfile::tempdir().unwrap();
    let (files, others) = (dir.path().join("files"), dir.path().join("others"));
    for folder in [&files, &others] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("password"), "secret\n").unwrap();
    }
    std::os::unix::fs::symlink(others.join("password"), files.join("link")).unwrap();
    let topics = r##"[{"filter": "t/#"}]"##;
    let naming = |file: PathBuf| BridgeConfig {
        username: Some("site1".to_owned()),
        password_file: Some(file),
        ..config("a", 1, topics)
    };
    let open = |bridge_files: &[PathBuf]| {
        let config = MqttConfig {
            bridge_files: bridge_files.to_vec(),
            ..MqttConfig::default()
        };
        let (server, clock) = (here.server.clone(), Arc::new(SystemClock));
        Bridges::open(&dir.path().join("bridges"), server, &config, clock).unwrap()
    };
    let bridges = open(&[]);
    let own = files.join("password");
    let refused = bridges.add(naming(own.clone())).await.unwrap_err();
    assert!(
        refused.to_string().contains("mqtt.bridge_files"),
        "{refused}"
    );
    bridges.close().await;

    let bridges = open(std::slice::from_ref(&files));
    for file in [
        others.join("password"),
        files.join("link"),
        files.join("../others/password"),
        files.join("nothing"),
    ] {
        assert!(bridges.add(naming(file.clone())).await.is_err(), "{file:?}");
    }
    let of_key = BridgeConfig {
        certificate: Some(own.clone()),
        key: Some(others.join("password")),
        ..config("a", 1, topics)
    };
    assert!(bridges.add(of_key).await.is_err());
    assert_eq!(bridges.list().len(), 0);
    bridges.add(naming(own)).await.unwrap();
    bridges.close().await;
    // What was added before is kept, whatever folders are named since.
    let bridges = open(&[]);
    assert_eq!(bridges.list().len(), 1);
    bridges.close().await;
}

/// A bridge's way out whose queue lies on `disk`; its link does not run, and there is no grace time.
fn way_out(disk: &SimDisk) -> (Arc<Bridge>, Outlet) {
    let bounds = Bounds {
        messages_max: 10_000,
        bytes_max: 1 << 30,
        packet_bytes_max: 64 << 10,
        grace: Duration::ZERO,
    };
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let queue = Queue::open(shared, Path::new("/queue"), bounds, Durability::Disk).unwrap();
    let (id, clock) = (Arc::from("here"), Arc::new(SystemClock));
    let config = config("cloud", 1, r##"[{"filter": "t/#"}]"##);
    let topic = config.topics[0].clone();
    let bridge = Arc::new(Bridge::new(
        config,
        id,
        queue,
        clock,
        bounds.packet_bytes_max,
    ));
    let outlet = Outlet::new(Arc::clone(&bridge), topic);
    (bridge, outlet)
}

fn large(qos: Qos) -> Message<'static> {
    Message {
        topic: "t/x",
        payload: &[7; 30_000],
        qos,
        received: SystemClock.now(),
        ..Message::default()
    }
}

#[tokio::test]
async fn a_full_disk_holds_publishers_back_and_nothing_is_lost() {
    let disk = SimDisk::new(1);
    let (bridge, outlet) = way_out(&disk);
    disk.set_capacity(Some(disk.used()));
    let message = large(Qos::AtLeastOnce);
    let held = Delivery::HoldBack { taken: 0 };
    let mut taken = 0;
    while outlet.deliver(&[message]) == Delivery::Taken || !bridge.queue.is_on_full_disk() {
        taken = bridge.queue.depth().0;
        outlet.room().await;
    }
    assert!(taken > 0, "nothing had room");
    // However long it lasts. What nobody is told of goes after the grace time, which is none here.
    for _ in 0..3 {
        assert_eq!(outlet.deliver(&[message, message]), held);
    }
    assert_eq!(bridge.queue.depth().0, taken);
    assert_eq!(bridge.queue.dropped.load(Ordering::Relaxed), 0);
    let unacknowledged = large(Qos::AtMostOnce);
    assert_eq!(outlet.deliver(&[unacknowledged]), Delivery::Taken);
    assert_eq!(bridge.queue.dropped.load(Ordering::Relaxed), 1);
    disk.set_capacity(None);
    while outlet.deliver(&[message]) == held {
        outlet.room().await;
    }
    assert_eq!(bridge.queue.depth().0, taken + 1);
    if let Some(settled) = outlet.settled() {
        settled.await;
    }
    assert!(outlet.settled().is_none());
}

#[tokio::test]
async fn a_journal_that_has_failed_costs_its_bridge_alone() {
    let node = Node::start().await;
    let disk = SimDisk::new(2);
    let (bridge, outlet) = way_out(&disk);
    let server = &node.server;
    server.subscribe("t/#".parse().unwrap(), Arc::new(outlet));
    let heard = node.hear("#");
    node.say("t/x", "kept", false).await;
    server.all_stored().await.unwrap();
    disk.fail_next_sync();
    disk.fail_next_write();
    node.say("t/x", "lost", false).await;
    until("the journal has failed", || bridge.queue.is_poisoned()).await;
    // Nobody waits for what did not reach the disk, nor for room.
    server.all_stored().await.unwrap();
    for n in 0..100 {
        node.say("t/x", &n.to_string(), false).await;
    }
    node.say("elsewhere", "x", false).await;
    server.all_stored().await.unwrap();
    assert_eq!(heard.count(), 103);
    assert_eq!(bridge.queue.dropped.load(Ordering::Relaxed), 100);
    // What was in the journal can be read, and would go.
    let (_, parcel) = bridge.queue.next(|_| true).unwrap().unwrap();
    assert_eq!(parcel.payload, b"kept"[..]);
}

/// How a server refuses a packet that is too large.
#[derive(Clone, Copy)]
enum Closes {
    /// It says so and closes.
    WithReason,
    /// It says so in an acknowledgement that the client library does not know.
    ByAcknowledgement,
    /// It closes without a word.
    Silently,
}

/// A server that takes no packets of more than `bytes_max`, and never said so; `took` has the payloads
/// of the others.
async fn closes_on_large(listener: TcpListener, bytes_max: usize, how: Closes, took: Heard) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        while let Ok(first) = stream.read_u8().await {
            let (mut length, mut shift) = (0, 0);
            while let Ok(byte) = stream.read_u8().await {
                length |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            let mut body = vec![0; length];
            if stream.read_exact(&mut body).await.is_err() {
                break;
            }
            let answer = match first >> 4 {
                1 => vec![0x20, 3, 0, 0, 0],
                3 => {
                    let topic = usize::from(u16::from_be_bytes([body[0], body[1]]));
                    let (id, rest) = body[2 + topic..].split_at(2);
                    match (length > bytes_max, how) {
                        (true, Closes::Silently) => break,
                        (true, Closes::WithReason) => {
                            let _ = stream.write_all(&[0xe0, 2, 0x95, 0]).await;
                            break;
                        }
                        (true, Closes::ByAcknowledgement) => vec![0x40, 3, id[0], id[1], 0x95],
                        (false, _) => {
                            let payload = &rest[1 + usize::from(rest[0])..];
                            let text = String::from_utf8(payload.to_vec()).unwrap();
                            took.0.lock().push((String::new(), text));
                            vec![0x40, 2, id[0], id[1]]
                        }
                    }
                }
                12 => vec![0xd0, 0],
                _ => continue,
            };
            if stream.write_all(&answer).await.is_err() {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_which_the_other_server_closes_is_set_aside_and_the_others_go() {
    for how in [Closes::WithReason, Closes::ByAcknowledgement] {
        let here = Node::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let took = Heard::default();
        let there = tokio::spawn(closes_on_large(listener, 2_000, how, took.clone()));
        let dir = tempfile::tempdir().unwrap();
        let bridges = here.bridges(dir.path());
        let topics = r##"[{"filter": "t/#"}]"##;
        bridges.add(config("cloud", port, topics)).await.unwrap();
        here.say("t/x", "before", false).await;
        here.say("t/x", &"7".repeat(10_000), false).await;
        here.say("t/x", "after", false).await;
        until("nothing waits", || bridges.list()[0].queued == 0).await;
        let status = &bridges.list()[0];
        assert_eq!((status.set_aside_total, status.dropped_total), (1, 1));
        let texts: Vec<String> = took.all().into_iter().map(|(_, text)| text).collect();
        assert!(texts.iter().any(|text| text == "before"));
        assert_eq!(texts.last().map(String::as_str), Some("after"));
        // Another one like it costs no connection.
        here.say("t/x", &"7".repeat(10_000), false).await;
        until("it is refused", || bridges.list()[0].dropped_total == 2).await;
        assert_eq!(bridges.list()[0].connects_total, status.connects_total);
        assert_eq!(bridges.list()[0].set_aside_total, 1);
        bridges.close().await;
        there.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_without_a_word_is_asked_more_and_more_slowly() {
    let here = Node::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let took = Heard::default();
    let how = Closes::Silently;
    let there = tokio::spawn(closes_on_large(listener, 2_000, how, took.clone()));
    let dir = tempfile::tempdir().unwrap();
    let bridges = here.bridges(dir.path());
    let topics = r##"[{"filter": "t/#"}]"##;
    bridges.add(config("cloud", port, topics)).await.unwrap();
    here.say("t/x", &"7".repeat(10_000), false).await;
    here.say("t/x", "after", false).await;
    // Nothing is given up for few of them, which a restart there would cause too.
    until("it was tried again", || {
        bridges.list()[0].connects_total >= 4
    })
    .await;
    let status = &bridges.list()[0];
    assert_eq!((status.queued, status.dropped_total), (2, 0));
    assert_eq!(took.count(), 0);
    bridges.close().await;
    there.abort();
}
