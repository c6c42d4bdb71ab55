//! Reads that end before they answer, on a consumer that does what it is told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::UnixMillis;
use bytes::Bytes;
use parking_lot::Mutex;
use streams::{ConsumedRecord, Consumer, SeekTo, StreamsError, TopicName};
use tokio::time::Instant;
use uuid::Uuid;

use super::read::collect;
use super::taking::Resuming;
use super::unanswered::{Taken, beginnings};
use super::{Interest, Reader};
use crate::error::RestError;
use crate::limits;

/// A consumer of topic `t` that answers polls as told, and waits when nothing is left to tell.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    polls: VecDeque<Result<Vec<ConsumedRecord>, StreamsError>>,
    positions: BTreeMap<i32, i64>,
    /// Partitions that the group took away.
    lost: Vec<i32>,
    is_away: bool,
}

impl Told {
    fn of(polls: impl IntoIterator<Item = Result<Vec<ConsumedRecord>, StreamsError>>) -> Told {
        let told = Told::default();
        told.0.lock().polls.extend(polls);
        told
    }

    fn reader(&self) -> Reader {
        Reader {
            consumer: Some(Box::new(self.clone())),
            interest: Interest::Partitions,
            uncommitted: false,
            committed_at: UnixMillis(0),
            sought: BTreeMap::new(),
            resuming: Resuming::default(),
            taken: Taken::default(),
        }
    }

    fn positions(&self) -> Vec<(i32, i64)> {
        let script = self.0.lock();
        script.positions.iter().map(|(at, to)| (*at, *to)).collect()
    }
}

#[async_trait]
impl Consumer for Told {
    async fn subscribe(&mut self, _: Vec<TopicName>) -> Result<(), StreamsError> {
        Ok(())
    }

    async fn assign(&mut self, _: Vec<(TopicName, i32)>) -> Result<(), StreamsError> {
        Ok(())
    }

    fn assignment(&self) -> Vec<(TopicName, i32)> {
        let script = self.0.lock();
        script.positions.keys().map(|at| (topic(), *at)).collect()
    }

    async fn poll(
        &mut self,
        max_wait: Duration,
        _: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError> {
        let told = self.0.lock().polls.pop_front();
        let Some(told) = told else {
            tokio::time::sleep(max_wait).await;
            return Ok(Vec::new());
        };
        let mut script = self.0.lock();
        for record in told.iter().flatten() {
            script.positions.insert(record.partition, record.offset + 1);
        }
        told
    }

    async fn commit(
        &mut self,
        _: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError> {
        Ok(Vec::new())
    }

    fn position(&self, _: &TopicName, partition: i32) -> Option<i64> {
        self.0.lock().positions.get(&partition).copied()
    }

    fn is_at_end(&self, _: &TopicName, _: i32) -> bool {
        false
    }

    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        let mut script = self.0.lock();
        if script.is_away {
            return Err(away());
        }
        if script.lost.contains(&partition) {
            let topic = topic.clone();
            return Err(StreamsError::NotAssigned { topic, partition });
        }
        let SeekTo::Offset(offset) = to else {
            panic!("nothing goes to {to:?}");
        };
        script.positions.insert(partition, offset);
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<(), StreamsError> {
        Ok(())
    }
}

fn topic() -> TopicName {
    "t".parse().unwrap()
}

/// A record of 9 KiB, more than half of what is taken without asking.
fn record(partition: i32, offset: i64) -> ConsumedRecord {
    ConsumedRecord {
        topic: topic(),
        partition,
        offset,
        timestamp: UnixMillis(0),
        key: None,
        value: Some(Bytes::from(vec![b'1'; 9 << 10])),
        headers: Vec::new(),
    }
}

fn away() -> StreamsError {
    StreamsError::Unavailable("it is away".to_owned())
}

/// Reads for so long, one byte or more; answers offsets.
async fn read(reader: &mut Reader, wait: Duration) -> Result<Vec<i64>, RestError> {
    let deadline = Instant::now() + wait;
    let (records, fitting) = collect(
        reader,
        UnixMillis(0),
        deadline..deadline,
        1..limits::READ_BYTES_DEFAULT,
        &mut None,
    )
    .await?;
    reader
        .answer(
            None,
            &records[..fitting],
            beginnings(&[&records[fitting..]]),
        )
        .await;
    Ok(records[..fitting].iter().map(|it| it.offset).collect())
}

#[tokio::test]
async fn records_before_a_failure_are_answered_and_the_failure_after_them() {
    let broken = StreamsError::IllegalState("broken");
    let told = Told::of([Ok(vec![record(0, 4)]), Err(broken), Ok(vec![record(0, 5)])]);
    let mut reader = told.reader();
    assert_eq!(read(&mut reader, Duration::ZERO).await.unwrap(), [4]);
    assert!(read(&mut reader, Duration::ZERO).await.is_err());
    assert_eq!(read(&mut reader, Duration::ZERO).await.unwrap(), [5]);
}

#[tokio::test]
async fn a_store_that_is_back_is_not_told_to_have_been_away() {
    let told = Told::of([Ok(vec![record(0, 4)]), Err(away()), Ok(vec![record(0, 5)])]);
    let mut reader = told.reader();
    assert_eq!(read(&mut reader, Duration::ZERO).await.unwrap(), [4]);
    assert_eq!(read(&mut reader, Duration::ZERO).await.unwrap(), [5]);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_is_given_up_is_put_back_to_its_first_records() {
    let taken = vec![record(0, 4), record(0, 5), record(1, 7), record(0, 6)];
    let told = Told::of([Ok(taken)]);
    let mut reader = told.reader();
    let deadline = Instant::now() + Duration::from_secs(10);
    // It waits for more than there is.
    let mut share = None;
    let wanted = 1 << 20..1 << 20;
    let reading = collect(
        &mut reader,
        UnixMillis(0),
        deadline..deadline,
        wanted,
        &mut share,
    );
    let given_up = tokio::time::timeout(Duration::from_secs(1), reading).await;
    assert!(given_up.is_err());
    assert_eq!(told.positions(), [(0, 7), (1, 8)]);
    // While the store is away it stays to be done.
    told.0.lock().is_away = true;
    assert!(reader.put_back().await.is_err());
    told.0.lock().is_away = false;
    reader.put_back().await.unwrap();
    assert_eq!(told.positions(), [(0, 4), (1, 7)]);
}

#[tokio::test]
async fn a_partition_that_the_group_took_away_is_not_in_the_way_of_others() {
    let told = Told::of([Ok(vec![record(0, 4), record(1, 7)])]);
    let mut reader = told.reader();
    let (records, _) = collect(
        &mut reader,
        UnixMillis(0),
        Instant::now()..Instant::now(),
        1..limits::READ_BYTES_DEFAULT,
        &mut None,
    )
    .await
    .unwrap();
    told.0.lock().lost.push(0);
    // Only the first fits into the answer.
    reader
        .answer(None, &records[..1], beginnings(&[&records[1..]]))
        .await;
    assert_eq!(told.positions(), [(0, 5), (1, 7)]);
    assert!(reader.uncommitted);
}

#[tokio::test]
async fn a_call_that_comes_again_is_answered_alike() {
    let told = Told::of([Ok(vec![record(0, 4), record(1, 7)])]);
    let mut reader = told.reader();
    let call = Uuid::new_v4();
    let records = [record(0, 4), record(1, 7)];
    reader
        .consumer()
        .unwrap()
        .poll(Duration::ZERO, 1)
        .await
        .unwrap();
    reader.answer(Some(call), &records, beginnings(&[])).await;
    assert_eq!(told.positions(), [(0, 5), (1, 8)]);
    reader.repeat(Some(Uuid::new_v4())).await.unwrap();
    assert_eq!(told.positions(), [(0, 5), (1, 8)]);
    reader.answer(Some(call), &records, beginnings(&[])).await;
    reader.repeat(Some(call)).await.unwrap();
    assert_eq!(told.positions(), [(0, 4), (1, 7)]);
}
