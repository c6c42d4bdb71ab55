//! The server on a disk that is slow, busy or full.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use journal::{Disk, DiskLock, File, JournalError, LockError, SimDisk};
use parking_lot::{Condvar, Mutex};

use super::client::Client;
use super::five::Connect;
use super::{Running, until};
use crate::config::MqttConfig;
use crate::error::MqttError;
use crate::gate::OpenGate;
use crate::message::Qos;
use crate::records::tests::put;
use crate::records::{Change, Recovered};
use crate::server::Server;
use crate::topic::TopicName;
use crate::upkeep;

/// A disk in memory that gives no room while it is held: then the journal stays busy.
#[derive(Clone)]
pub(super) struct HeldDisk {
    disk: SimDisk,
    held: Arc<(Mutex<bool>, Condvar)>,
}

struct HeldFile {
    file: Arc<dyn File>,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl HeldDisk {
    pub(super) fn new() -> Self {
        HeldDisk {
            disk: SimDisk::new(1),
            held: Arc::default(),
        }
    }

    pub(super) fn hold(&self, is_held: bool) {
        *self.held.0.lock() = is_held;
        self.held.1.notify_all();
    }

    fn file(&self, file: io::Result<Arc<dyn File>>) -> io::Result<Arc<dyn File>> {
        let held = Arc::clone(&self.held);
        file.map(|file| Arc::new(HeldFile { file, held }) as Arc<dyn File>)
    }
}

impl Disk for HeldDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.create_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DiskLock>, LockError> {
        self.disk.lock(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.file(self.disk.create(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.file(self.disk.open(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

impl File for HeldFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let (held, let_go) = &*self.held;
        let_go.wait_while(&mut held.lock(), |held| *held);
        self.file.allocate(offset, len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

pub(super) fn open(disk: &Arc<impl Disk>) -> Server {
    let disk: Arc<dyn Disk> = disk.clone();
    let (config, clock) = (MqttConfig::default(), Arc::new(SystemClock));
    Server::open_on(disk, Path::new("/mqtt"), config, clock, Arc::new(OpenGate)).unwrap()
}

/// Retains a value, as soon as the journal takes it.
async fn retain(server: &Server, topic: &str, bytes: usize) -> Result<(), MqttError> {
    let topic: TopicName = topic.parse().unwrap();
    loop {
        match server.publish(&topic, &vec![7; bytes], Qos::AtLeastOnce, true) {
            Err(MqttError::Busy) => server.room(&topic).await,
            outcome => return outcome,
        }
    }
}

/// Retains 40 MB of values that replace each other.
async fn retain_in_vain(server: &Server) {
    for _ in 0..400 {
        retain(server, "often", 100_000).await.unwrap();
    }
}

#[tokio::test]
async fn condensing_waits_while_the_journal_is_busy() {
    let disk = Arc::new(HeldDisk::new());
    let server = open(&disk);
    disk.hold(true);
    make_busy(&server);
    {
        let condensing = server.condense();
        tokio::pin!(condensing);
        tokio::select! {
            biased;
            outcome = &mut condensing => panic!("ended before there was room: {outcome:?}"),
            () = std::future::ready(()) => {}
        }
        disk.hold(false);
        condensing.await.unwrap();
    }
    server.close().await;
}

/// Fills the journal, which the disk gives no room, until it is busy.
fn make_busy(server: &Server) {
    let large = "x".repeat(60_000);
    for change in [Change::RetainedCleared(&large), Change::Mark] {
        let refused = loop {
            if let Err(error) = server.core.store.put_again(&[change]) {
                break error;
            }
        };
        assert!(matches!(refused, JournalError::Busy), "{refused}");
    }
}

#[tokio::test]
async fn a_client_with_a_session_to_keep_waits_while_the_journal_is_busy() {
    let disk = Arc::new(HeldDisk::new());
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let running = Running::of(dir, open(&disk)).await;
    disk.hold(true);
    make_busy(&running.server);
    let mut keeper = Client::open(running.port).await;
    keeper.send(&Connect::kept("keeper", 600).bytes()).await;
    // Who has nothing to keep is let in meanwhile.
    let passing = Connect::new("passing").go(running.port).await;
    let mut one = [0];
    let early = tokio::time::timeout(Duration::from_millis(100), keeper.stream.peek(&mut one));
    assert!(early.await.is_err(), "answered before its session is kept");
    disk.hold(false);
    assert_eq!(keeper.connack().await.reason, 0);
    drop(passing);
    running.stop().await;
}

#[tokio::test]
async fn a_session_is_put_again_however_little_the_journal_takes_at_a_time() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("keeper", 600).go(running.port).await;
    let filters: Vec<String> = (0..30).map(|n| format!("other/{n}")).collect();
    for filter in &filters {
        keeper.subscribe5(&[], &[(filter, 1)]).await;
    }
    keeper.subscribe5(&[], &[("k", 2)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher
        .send(&super::five::publish(0x34, "k", 4, &[], "first"))
        .await;
    publisher.packet().await;
    // The first one is under way, and its client has it.
    let first = keeper.got().await;
    keeper.ack(0x50, first.id).await;
    assert_eq!(keeper.packet().await.0, 0x62);
    keeper.leave().await;
    for n in 0..200 {
        publisher.publish5("k", &n.to_string(), &[]).await;
    }
    let session = running.server.core.sessions();
    let session = session.iter().find(|s| &*s.client_id == "keeper").unwrap();
    let (mut rest, mut recovered, mut tries) = (session.remainder(), Recovered::new(), 0);
    loop {
        tries += 1;
        let mut room = 5;
        let outcome = session.put_again(&mut rest, &mut |changes| {
            room -= 1;
            if room == 0 {
                return Err(JournalError::Busy);
            }
            changes
                .iter()
                .for_each(|change| put(&mut recovered, *change));
            Ok(())
        });
        if outcome.is_ok() {
            break;
        }
        assert!(tries < 1_000, "it begins again and again");
    }
    assert!(tries > 50, "{tries}");
    let (_, again) = recovered.sessions.into_iter().next().unwrap();
    assert_eq!(again.client_id, "keeper");
    assert_eq!(again.subscriptions.len(), 31);
    let payloads: Vec<_> = again.queue.values().map(|m| &*m.message.payload).collect();
    let numbers: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let expected = std::iter::once("first").chain(numbers.iter().map(String::as_str));
    assert!(payloads.into_iter().eq(expected.map(str::as_bytes)));
    let first = again.queue.values().next().unwrap();
    assert!(first.sent.is_some() && first.received);
    running.stop().await;
}

#[tokio::test]
async fn condensing_frees_space_on_a_full_disk() {
    let disk = Arc::new(SimDisk::new(2));
    let server = open(&disk);
    retain(&server, "kept", 1_000).await.unwrap();
    retain_in_vain(&server).await;
    disk.set_capacity(Some(disk.used()));
    let full = loop {
        if let Err(error) = retain(&server, "often", 100_000).await {
            break error;
        }
    };
    assert!(
        matches!(
            &full,
            MqttError::Journal {
                source: JournalError::Full { .. },
                ..
            }
        ),
        "{full}"
    );
    server.condense().await.unwrap();
    assert!(disk.used() < 30_000_000, "{} bytes", disk.used());
    let topic: TopicName = "often".parse().unwrap();
    until("it takes more", || {
        let said = server.publish(&topic, &[7; 100_000], Qos::AtLeastOnce, true);
        said.is_ok()
    })
    .await;
    server.close().await;
}

#[tokio::test]
async fn condensing_that_found_no_room_is_tried_again() {
    let disk = Arc::new(SimDisk::new(3));
    let server = open(&disk);
    // More than is kept for condensing alone.
    for n in 0..120 {
        retain(&server, &format!("kept/{n}"), 100_000)
            .await
            .unwrap();
    }
    retain_in_vain(&server).await;
    let used = disk.used();
    disk.set_capacity(Some(used));
    server.condense().await.unwrap_err();
    let condensing = tokio::spawn({
        let core = Arc::clone(&server.core);
        async move { upkeep::snapshots(&core, Duration::from_millis(1)).await }
    });
    let before = disk.operations();
    server.core.store.snapshot_wanted.notify_one();
    until("it fails", || disk.operations() > before + 10).await;
    disk.set_capacity(None);
    until("it is condensed", || disk.used() < used - 20_000_000).await;
    condensing.abort();
    server.close().await;
}

#[tokio::test]
async fn a_lost_members_messages_are_handed_over_as_fast_as_the_journal_takes_them() {
    let disk = Arc::new(HeldDisk::new());
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let running = Running::of(dir, open(&disk)).await;
    let mut lost = Connect::kept("lost", 600).go(running.port).await;
    lost.subscribe5(&[], &[("$share/g/t", 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    let numbers: Vec<String> = (0..400).map(|n| format!("{n:015000}")).collect();
    for number in &numbers {
        publisher.publish5("t", number, &[]).await;
    }
    let mut other = Connect::kept("other", 600).go(running.port).await;
    other.subscribe5(&[], &[("$share/g/t", 1)]).await;
    disk.hold(true);
    drop(lost);
    until("it is gone", || {
        let clients = running.server.clients();
        let waits = |id| clients.iter().find(|c| c.client_id == id).unwrap();
        !waits("lost").connected && waits("other").queued + waits("other").inflight > 0
    })
    .await;
    disk.hold(false);
    for number in &numbers {
        let got = other.got().await;
        assert_eq!(got.payload, *number);
        other.ack(0x40, got.id).await;
    }
    other.expect_nothing().await;
    assert_eq!(running.server.stats().dropped_total, 0);
    running.stop().await;
}
