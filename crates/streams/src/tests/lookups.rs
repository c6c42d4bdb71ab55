//! Looks into a partition by time, and at how much of it there is to read.

use std::sync::LazyLock;

use journal::{JournalError, SimDisk};

use super::*;

/// A partition with a batch of each of these times, in ms from [`BEGAN`].
async fn with_times(streams: &Streams, times: impl Iterator<Item = i64>) -> Arc<Partition> {
    let topic = create(streams, "t", 1).await;
    let partition = Arc::clone(&topic.partitions()[0]);
    let mut last = None;
    for time in times {
        let records = [Record::of_value("v")];
        let batch = batch::build(&records, at(time), None).unwrap();
        let appended = loop {
            match partition.append(batch.clone(), Ack::All) {
                Err(StreamsError::Busy) => streams.room(1_000).await,
                appended => break appended.unwrap(),
            }
        };
        last = Some(appended);
    }
    last.unwrap().ack.await.unwrap();
    partition
}

fn at(ms: i64) -> UnixMillis {
    UnixMillis(*BEGAN + ms)
}

/// So late that nothing is deleted for its age, and so early that all times are taken.
static BEGAN: LazyLock<i64> = LazyLock::new(|| SystemClock.now().0 - 24 * 3_600_000);

#[tokio::test]
async fn the_newest_record_is_found_when_a_newer_one_has_gone_from_its_chunk() {
    let streams = open(&SimDisk::new(7));
    // The first has a wrong clock; many others follow, some of them in later chunks.
    let times = (0..1_500).map(|nth| if nth == 0 { 9_000_000 } else { 1_000 + nth });
    let partition = with_times(&streams, times).await;
    let newest = |expected| {
        let found = partition.offset_of_max_time(Isolation::Uncommitted);
        assert_eq!(found.unwrap(), Some(expected));
    };
    newest((0, at(9_000_000)));
    let deleted = streams.delete_records(&name("t"), 0, Some(5)).await;
    assert_eq!(deleted.unwrap(), 5);
    newest((1_499, at(2_499)));
    // What the chunk tells of itself once it has gone out of memory is older than its batches.
    streams.snapshot(64).unwrap();
    newest((1_499, at(2_499)));
    streams.close().await;
}

#[tokio::test]
async fn the_newest_record_needs_no_look_at_what_follows_its_chunk() {
    let disk = SimDisk::new(8);
    let streams = open(&disk);
    let times = (0..3_000).map(|nth| if nth == 3 { 9_000_000 } else { 1_000 });
    let partition = with_times(&streams, times).await;
    streams.snapshot(64).unwrap();
    // Whoever looks at the chunk behind it fails.
    let behind = partition.chunk_away(1_000).unwrap();
    damage(&disk, &streams, behind.position);
    let counted = partition.count_readable(Isolation::Uncommitted, 1_000, usize::MAX);
    assert!(counted.is_err());
    let found = partition.offset_of_max_time(Isolation::Uncommitted);
    assert_eq!(found.unwrap(), Some((3, at(9_000_000))));
    streams.close().await;
}

#[tokio::test]
async fn a_chunk_that_went_while_it_was_to_come_back_is_no_error() {
    let disk = SimDisk::new(10);
    let streams = open(&disk);
    let partition = with_times(&streams, (0..3_000).map(|_| 1_000)).await;
    streams.snapshot(64).unwrap();
    let away = [0, 1_000].map(|offset| partition.chunk_away(offset).unwrap());
    damage(&disk, &streams, away[1].position);
    assert!(partition.bring_back(away[1]).is_err());
    // Whoever was to bring one back was outrun by somebody else, until its place was free again.
    let deleted = streams.delete_records(&name("t"), 0, None).await;
    assert_eq!(deleted.unwrap(), 3_000);
    streams.reclaim().unwrap();
    let freed = streams.shared().journal.read_frame(away[0].position);
    assert!(matches!(freed, Err(JournalError::Reclaimed { .. })));
    partition.bring_back(away[0]).unwrap();
    streams.close().await;
}

#[tokio::test]
async fn readable_bytes_are_counted_until_they_are_enough() {
    let streams = open(&SimDisk::new(9));
    let partition = with_times(&streams, (0..3_000).map(|_| 1_000)).await;
    let one = partition.bytes_stored() as usize / 3_000;
    let readable = |offset, enough| {
        let counted = partition.readable_bytes(Isolation::Uncommitted, offset, enough);
        counted.unwrap()
    };
    for is_away in [false, true] {
        for offset in [0, 1, 700, 2_999] {
            let left = (3_000 - usize::try_from(offset).unwrap()) * one;
            assert_eq!(readable(offset, usize::MAX), left, "{offset} {is_away}");
            for enough in [1, one, one + 1, 100 * one + 1, 2_000 * one] {
                let counted = readable(offset, enough);
                assert!(counted >= enough.min(left), "{offset} {enough} {is_away}");
                assert!(counted <= left);
            }
        }
        assert_eq!(readable(3_000, 1), 0);
        streams.snapshot(64).unwrap();
    }
    streams.close().await;
}

#[tokio::test]
async fn a_marker_answers_as_a_record_does() {
    let streams = open(&SimDisk::new(10));
    let topic = create(&streams, "t", 1).await;
    let partition = &topic.partitions()[0];
    committed(partition, 300, at(1_000), at(2_000)).await;
    let found = |isolation, ms| partition.offset_for_time(isolation, at(ms)).unwrap();
    for isolation in [Isolation::Uncommitted, Isolation::Committed] {
        assert_eq!(found(isolation, 1_000), Some((0, at(1_000))));
        assert_eq!(found(isolation, 1_500), Some((1, at(2_000))));
        assert_eq!(found(isolation, 2_001), None);
    }
    streams.close().await;
}

#[tokio::test]
async fn a_lookup_that_has_read_its_share_answers_too_early_and_not_that_all_are_older() {
    let streams = open(&SimDisk::new(11));
    let partition = with_times(&streams, std::iter::once(1_000)).await;
    for nth in 1..=300 {
        let last = nth == 300;
        let time = at(if last { 5_000 } else { 1_000 });
        let batch = batch::build(&[Record::of_value("v")], time, None).unwrap();
        let appended = partition.append(claiming(batch, at(5_000)), Ack::All);
        appended.unwrap().ack.await.unwrap();
    }
    let found = partition.offset_for_time(Isolation::Uncommitted, at(4_000));
    assert_eq!(found.unwrap(), Some((256, at(5_000))));
    let found = partition.offset_for_time(Isolation::Uncommitted, at(5_001));
    assert_eq!(found.unwrap(), None);
    streams.close().await;
}

/// The batch with another greatest time than its records have.
fn claiming(batch: Bytes, time: UnixMillis) -> Bytes {
    let mut claiming = batch.to_vec();
    claiming[35..43].copy_from_slice(&time.0.to_be_bytes());
    batch::seal(&mut claiming);
    Bytes::from(claiming)
}
