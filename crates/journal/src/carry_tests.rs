//! Appends that their callers carry: who does the writer's work, and that nothing is left undone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::carry::Trust;
use crate::done::{Done, DurableWait, OnDone};
use crate::error::JournalError;
use crate::format::{Frame, FrameRef};
use crate::journal::Journal;
use crate::limits;
use crate::options::{Durability, JournalOptions};
use crate::sim::SimDisk;
use crate::state::Parked;

const DIR: &str = "/carried";

/// However slow the machine is that the tests run on.
const OPTIONS: JournalOptions = JournalOptions {
    segment_bytes: 1 << 20,
    preallocate_bytes: 512 << 10,
    pending_bytes_max: 1 << 20,
    reserve_bytes: 0,
    spares_max: 0,
    unasked_rest: Duration::ZERO,
    unasked_bytes: 1 << 20,
    sync_interval: Duration::ZERO,
    carried_time_max: Duration::from_secs(3_600),
};

fn open_with(disk: &SimDisk, options: JournalOptions) -> (Journal, Vec<Vec<u8>>) {
    let mut payloads = Vec::new();
    let mut visit = |frame: FrameRef<'_>| -> Result<(), JournalError> {
        payloads.push(frame.payload.to_vec());
        Ok(())
    };
    let opened = Journal::open(Arc::new(disk.clone()), Path::new(DIR), options, &mut visit);
    (opened.unwrap().0, payloads)
}

/// A journal whose writer sleeps.
fn asleep(disk: &SimDisk) -> Journal {
    let (journal, _) = open_with(disk, OPTIONS);
    until_asleep(&journal);
    journal
}

fn until_asleep(journal: &Journal) {
    until("the writer's sleep", || {
        matches!(journal.shared().state.lock().parked, Parked::Asleep(_))
    });
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_micros(100));
    }
}

fn append(journal: &Journal, payload: &[u8], need: Durability, done: Done) {
    let frame = Frame {
        kind: 1,
        version: 1,
        parts: &[payload],
    };
    journal.append(&[frame], need, done).unwrap();
}

fn append_durable(journal: &Journal, payload: &[u8]) -> DurableWait {
    let (done, wait) = Done::channel(Durability::Disk);
    append(journal, payload, Durability::Disk, done);
    wait
}

/// Notes the thread on which it is called.
fn noting(threads: &Arc<Mutex<Vec<ThreadId>>>) -> OnDone {
    let threads = Arc::clone(threads);
    Box::new(move |outcome| {
        outcome.unwrap();
        threads.lock().push(thread::current().id());
    })
}

#[test]
fn a_lone_append_is_carried_by_its_caller_with_one_sync() {
    let disk = SimDisk::new(1);
    let journal = asleep(&disk);
    let (told, here) = (Arc::default(), thread::current().id());
    for round in 1..=100 {
        let syncs = disk.syncs();
        let carrier = journal.carrier();
        let done = Done {
            os: None,
            disk: Some(noting(&told)),
        };
        append(&journal, b"lone", Durability::Disk, done);
        assert_eq!(told.lock().len(), round - 1, "before it was carried");
        assert!(carrier.carry());
        assert_eq!(told.lock()[round - 1..], [here]);
        assert_eq!(disk.syncs(), syncs + 1);
        assert_eq!(journal.durable_end(), journal.end());
    }
    // What needs no sync gets none.
    let (syncs, carrier) = (disk.syncs(), journal.carrier());
    let done = Done {
        os: Some(noting(&told)),
        disk: None,
    };
    append(&journal, b"with the system", Durability::Os, done);
    assert!(carrier.carry());
    assert_eq!((told.lock()[100], disk.syncs()), (here, syncs));
    // What is synced is there after a power cut.
    disk.crash();
    drop(journal);
    assert!(open_with(&disk, OPTIONS).1.len() >= 100);
}

#[test]
fn several_appends_of_a_request_are_carried_together() {
    let disk = SimDisk::new(2);
    let journal = asleep(&disk);
    let (syncs, carrier) = (disk.syncs(), journal.carrier());
    let waits: Vec<DurableWait> = (0..limits::CARRIED_APPENDS_MAX)
        .map(|_| append_durable(&journal, b"one of some"))
        .collect();
    assert!(carrier.carry());
    assert_eq!(disk.syncs(), syncs + 1);
    for wait in waits {
        wait.wait_blocking().unwrap();
    }
}

#[test]
fn the_writer_does_what_its_caller_does_not() {
    let journal = asleep(&SimDisk::new(3));
    let carrier = journal.carrier();
    let given_up = append_durable(&journal, b"given up");
    drop(carrier);
    given_up.wait_blocking().unwrap();
    until_asleep(&journal);
    // Who waits on the thread that was to carry it would wait for ever.
    let carrier = journal.carrier();
    append_durable(&journal, b"waited for")
        .wait_blocking()
        .unwrap();
    assert!(!carrier.carry());
    until_asleep(&journal);
    let carrier = journal.carrier();
    assert!(!carrier.carry(), "there is nothing to carry");
    append_durable(&journal, b"without")
        .wait_blocking()
        .unwrap();
}

#[test]
fn much_and_what_others_append_beside_it_is_the_writers() {
    let journal = asleep(&SimDisk::new(4));
    let carrier = journal.carrier();
    let large = append_durable(&journal, &[7; limits::CARRIED_BYTES_MAX]);
    assert!(!carrier.carry());
    large.wait_blocking().unwrap();
    until_asleep(&journal);
    let carrier = journal.carrier();
    let many: Vec<DurableWait> = (0..=limits::CARRIED_APPENDS_MAX)
        .map(|_| append_durable(&journal, b"one of many"))
        .collect();
    assert!(!carrier.carry());
    for wait in many {
        wait.wait_blocking().unwrap();
    }
    until_asleep(&journal);
    let carrier = journal.carrier();
    let own = append_durable(&journal, b"own");
    let others = journal.clone();
    let other = thread::spawn(move || append_durable(&others, b"another's").wait_blocking());
    other.join().unwrap().unwrap();
    assert!(!carrier.carry());
    own.wait_blocking().unwrap();
}

#[test]
fn who_is_to_hear_of_it_before_the_sync_does_not_wait_for_that() {
    let journal = asleep(&SimDisk::new(14));
    let carrier = journal.carrier();
    let threads = Arc::default();
    let done = Done {
        os: Some(noting(&threads)),
        disk: Some(noting(&threads)),
    };
    append(&journal, b"early", Durability::Disk, done);
    assert!(!carrier.carry());
    append_durable(&journal, b"later").wait_blocking().unwrap();
    assert_eq!(threads.lock().len(), 2);
    assert!(!threads.lock().contains(&thread::current().id()));
}

#[test]
fn a_carrier_is_for_one_journal() {
    let (one, other) = (asleep(&SimDisk::new(5)), asleep(&SimDisk::new(5)));
    let carrier = one.carrier();
    let wait = append_durable(&other, b"the other");
    let other_wait = thread::spawn(move || wait.wait_blocking());
    other_wait.join().unwrap().unwrap();
    assert!(!carrier.carry());
}

#[test]
fn what_comes_while_an_append_is_carried_is_the_writers() {
    let journal = asleep(&SimDisk::new(6));
    let carrier = journal.carrier();
    let nested = Arc::new(Mutex::new(None));
    let (inner, slot) = (journal.clone(), nested.clone());
    let done = Done {
        os: Some(Box::new(move |_| {
            *slot.lock() = Some(append_durable(&inner, b"nested"));
        })),
        disk: None,
    };
    append(&journal, b"outer", Durability::Os, done);
    assert!(carrier.carry());
    let nested = nested.lock().take().unwrap();
    nested.wait_blocking().unwrap();
    until_asleep(&journal);
    // Somebody else appended meanwhile: the next ones are the writer's.
    for _ in 0..limits::DECLINED_MIN {
        let carrier = journal.carrier();
        let wait = append_durable(&journal, b"declined");
        assert!(!carrier.carry());
        wait.wait_blocking().unwrap();
        until_asleep(&journal);
    }
    let carrier = journal.carrier();
    append_durable(&journal, b"carried");
    assert!(carrier.carry());
}

#[test]
fn what_nobody_waits_for_is_synced_in_time_though_it_was_carried() {
    let disk = SimDisk::new(7);
    let options = JournalOptions {
        unasked_rest: Duration::from_secs(1),
        ..OPTIONS
    };
    let (journal, _) = open_with(&disk, options);
    let began = Instant::now();
    append_durable(&journal, b"first").wait_blocking().unwrap();
    until_asleep(&journal);
    for _ in 0..20 {
        let carrier = journal.carrier();
        append(&journal, b"nobody waits", Durability::Disk, Done::none());
        assert!(carrier.carry());
        until_asleep(&journal);
    }
    until("the sync", || journal.durable_end() == journal.end());
    assert!(began.elapsed() >= options.unasked_rest, "no rest");
}

#[test]
fn who_carries_is_tried_for_a_pace_of_its_own_as_others_are() {
    let options = JournalOptions {
        sync_interval: Duration::from_secs(3_600),
        ..OPTIONS
    };
    let (journal, _) = open_with(&SimDisk::new(13), options);
    for _ in 0..limits::TRIAL_AFTER_MIN {
        until_asleep(&journal);
        let carrier = journal.carrier();
        append_durable(&journal, b"lone");
        assert!(carrier.carry());
    }
    // The writer rests now, until many have gathered.
    let carrier = journal.carrier();
    let waits: Vec<DurableWait> = (0..limits::RESTING_APPENDS_MAX)
        .map(|_| append_durable(&journal, b"one of many"))
        .collect();
    assert!(!carrier.carry());
    for wait in waits {
        wait.wait_blocking().unwrap();
    }
    let calls = journal.telemetry().commit_calls.read();
    assert_eq!(calls.count, u64::from(limits::TRIAL_AFTER_MIN) + 1);
}

#[test]
fn carried_appends_go_through_many_segments() {
    let disk = SimDisk::new(8);
    let options = JournalOptions {
        segment_bytes: 4 << 10,
        preallocate_bytes: 1 << 10,
        ..OPTIONS
    };
    let (journal, _) = open_with(&disk, options);
    let mut carried = 0;
    for number in 0..2_000u32 {
        let carrier = journal.carrier();
        let wait = loop {
            let (done, wait) = Done::channel(Durability::Disk);
            let number = number.to_le_bytes();
            let frame = Frame {
                kind: 1,
                version: 1,
                parts: &[&number, &[7; 100]],
            };
            match journal.append(&[frame], Durability::Disk, done) {
                Ok(_) => break wait,
                Err(JournalError::Busy) => journal.room_blocking(200),
                Err(error) => panic!("{error}"),
            }
        };
        carried += u32::from(carrier.carry());
        wait.wait_blocking().unwrap();
    }
    assert!(carried > 100, "only {carried} were carried");
    assert!(journal.segments().len() > 50);
    disk.crash();
    drop(journal);
    let (_, payloads) = open_with(&disk, options);
    for (number, payload) in (0..2_000u32).zip(&payloads) {
        assert_eq!(payload[..4], number.to_le_bytes());
    }
    assert_eq!(payloads.len(), 2_000);
}

#[test]
fn a_write_or_sync_that_fails_ends_the_journal_for_all() {
    for fail in [SimDisk::fail_next_write, SimDisk::fail_next_sync] {
        let disk = SimDisk::new(9);
        let journal = asleep(&disk);
        let carrier = journal.carrier();
        let wait = append_durable(&journal, b"lost");
        fail(&disk);
        assert!(carrier.carry());
        let told = wait.wait_blocking().unwrap_err();
        assert!(matches!(told, JournalError::Poisoned { .. }), "{told}");
        assert!(journal.is_poisoned());
        assert!(journal.close().is_err());
    }
}

#[test]
fn a_callback_that_panics_ends_the_journal_and_not_its_caller() {
    let journal = asleep(&SimDisk::new(10));
    let carrier = journal.carrier();
    let done = Done {
        os: None,
        disk: Some(Box::new(|_| panic!("a callback of this test"))),
    };
    append(&journal, b"whose callback panics", Durability::Disk, done);
    let wait = append_durable(&journal, b"behind it");
    assert!(!carrier.carry());
    assert!(journal.is_poisoned());
    assert!(wait.wait_blocking().is_err());
    assert!(journal.close().is_err());
}

#[test]
fn a_callback_that_is_carried_may_close_its_journal() {
    let disk = SimDisk::new(11);
    let journal = asleep(&disk);
    let carrier = journal.carrier();
    let inner = journal.clone();
    let done = Done {
        os: None,
        disk: Some(Box::new(move |_| inner.close().unwrap())),
    };
    append(&journal, b"the last one", Durability::Disk, done);
    assert!(carrier.carry());
    journal.close().unwrap();
    drop(journal);
    assert_eq!(open_with(&disk, OPTIONS).1.len(), 1);
}

#[test]
fn callers_that_carry_beside_each_other_lose_nothing() {
    let carried = Arc::new(AtomicU64::new(0));
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let options = JournalOptions {
            segment_bytes: 16 << 10,
            preallocate_bytes: 2 << 10,
            unasked_rest: Duration::from_micros(300),
            sync_interval: Duration::from_micros(100),
            ..OPTIONS
        };
        let (journal, _) = open_with(&disk, options);
        disk.crash_after(50 + seed * 20);
        let callers: Vec<_> = (0..3u8)
            .map(|caller| {
                let (journal, carried) = (journal.clone(), Arc::clone(&carried));
                thread::spawn(move || call_until_down(&journal, caller, &carried))
            })
            .collect();
        let answered: Vec<u32> = callers.into_iter().map(|c| c.join().unwrap()).collect();
        disk.power_on();
        drop(journal);
        let mut next = [0u32; 3];
        for payload in open_with(&disk, options).1 {
            let caller = usize::from(payload[0]);
            let number = u32::from_le_bytes(payload[1..5].try_into().unwrap());
            assert_eq!(number, next[caller], "seed {seed}: out of order");
            next[caller] += 1;
        }
        for (caller, answered) in answered.into_iter().enumerate() {
            assert!(next[caller] >= answered, "seed {seed}: {caller} lost one");
        }
    }
    let carried = carried.load(Ordering::Relaxed);
    assert!(carried > 100, "only {carried} were carried");
}

/// Appends, mostly as one that carries, and now and then rests so that others find the writer asleep;
/// answers how many are durable.
fn call_until_down(journal: &Journal, caller: u8, carried: &AtomicU64) -> u32 {
    let mut answered = 0u32;
    loop {
        let mut payload = vec![caller; 40 + usize::from(caller) * 100];
        payload[1..5].copy_from_slice(&answered.to_le_bytes());
        let carrier = (!answered.is_multiple_of(5)).then(|| journal.carrier());
        let (done, wait) = Done::channel(Durability::Disk);
        let frame = Frame {
            kind: 1,
            version: 1,
            parts: &[&payload],
        };
        match journal.append(&[frame], Durability::Disk, done) {
            Ok(_) => {}
            Err(JournalError::Busy) => {
                drop(carrier);
                journal.room_blocking(500);
                continue;
            }
            Err(_) => return answered,
        }
        if !answered.is_multiple_of(7)
            && let Some(carrier) = carrier
        {
            carried.fetch_add(u64::from(carrier.carry()), Ordering::Relaxed);
        }
        if wait.wait_blocking().is_err() {
            return answered;
        }
        answered += 1;
        if answered.is_multiple_of(11) {
            thread::sleep(Duration::from_micros(200 * u64::from(caller)));
        }
    }
}

#[test]
fn a_disk_that_keeps_its_callers_is_left_to_the_writer() {
    let options = JournalOptions {
        carried_time_max: Duration::ZERO,
        ..OPTIONS
    };
    let (journal, _) = open_with(&SimDisk::new(12), options);
    let mut carried = Vec::new();
    for number in 0..=3 * limits::DECLINED_MIN + 2 {
        until_asleep(&journal);
        let carrier = journal.carrier();
        let wait = append_durable(&journal, b"slow");
        if carrier.carry() {
            carried.push(number);
        }
        wait.wait_blocking().unwrap();
    }
    let first = limits::DECLINED_MIN;
    assert_eq!(carried, [0, first + 1, 3 * first + 2]);
}

#[test]
fn who_is_kept_long_carries_ever_more_seldom() {
    let mut trust = Trust::new();
    let mut declined_before = |was_good| {
        let declined = std::iter::repeat_with(|| trust.grants()).take_while(|grants| !grants);
        let declined = declined.count();
        trust.note(was_good);
        declined
    };
    let bad: Vec<usize> = (0..9).map(|_| declined_before(false)).collect();
    assert_eq!(bad, [0, 16, 32, 64, 128, 256, 512, 1_024, 1_024]);
    assert_eq!(declined_before(true), 1_024);
    assert_eq!(declined_before(false), 0);
    assert_eq!(
        declined_before(true),
        16,
        "what was good once is tried again soon"
    );
}
