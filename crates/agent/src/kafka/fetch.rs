//! Reading partitions: where they begin and end, and what is in them.

use std::collections::BTreeMap;
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, FetchRequest, ListOffsetsRequest};

use super::cluster::{Cluster, topic_name};
use super::group::Offsets;
use super::link::KafkaError;
use super::records::{self, Record};

/// How partitions are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Whether records of transactions count only when they are committed.
    pub(crate) is_committed_only: bool,
    /// Records of one answer at most.
    pub(crate) records_max: usize,
}

/// An end of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Earliest,
    Latest,
}

/// What was read of one partition.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) outcome: ReadOutcome,
}

/// What a partition's leader gave.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// Records, and where to go on.
    Records(Vec<Record>, i64),
    /// The offset is not there any more, or not yet.
    OutOfRange,
}

/// The offset at an end of a partition.
pub(crate) fn end_of(
    cluster: &mut Cluster,
    reading: Reading,
    topic: &str,
    partition: i32,
    end: End,
    stops: &dyn Fn() -> bool,
) -> Result<i64, KafkaError> {
    let address = cluster.leader(topic, partition, stops)?;
    let wanted = ListOffsetsPartition::default()
        .with_partition_index(partition)
        .with_current_leader_epoch(-1)
        .with_timestamp(match end {
            End::Earliest => -2,
            End::Latest => -1,
        });
    let wanted = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![wanted]);
    let request = ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(i8::from(reading.is_committed_only))
        .with_topics(vec![wanted]);
    let answer = cluster.at(&address, stops, |link| {
        link.call(&request, LIST_OFFSETS_VERSION_MAX, ANSWER_WAIT, stops)
            .map(|(a, _)| a)
    })?;
    let mut partitions = answer.topics.into_iter().flat_map(|topic| topic.partitions);
    let found = partitions.find(|found| found.partition_index == partition);
    let unable = |reason: String| KafkaError::Unable {
        address: address.clone(),
        reason: format!("does not tell where {topic}-{partition} {reason}"),
    };
    let found = found.ok_or_else(|| unable("is".to_owned()))?;
    match ResponseError::try_from_code(found.error_code) {
        None => Ok(found.offset),
        Some(error) => {
            cluster.forget(topic);
            Err(unable(format!("begins or ends: {error}")))
        }
    }
}

/// Reads what is behind `offsets`, from one leader after the other; waits up to `wait` for the
/// first record where there is none.
pub(crate) fn read(
    cluster: &mut Cluster,
    reading: Reading,
    offsets: &Offsets,
    wait: Duration,
    stops: &dyn Fn() -> bool,
) -> Result<Vec<Read>, KafkaError> {
    let mut by_leader: BTreeMap<String, Offsets> = BTreeMap::new();
    for ((topic, partition), offset) in offsets {
        let leader = cluster.leader(topic, *partition, stops)?;
        let key = (topic.clone(), *partition);
        by_leader.entry(leader).or_default().insert(key, *offset);
    }
    let is_alone = by_leader.len() == 1;
    let mut all = Vec::new();
    for (address, offsets) in &by_leader {
        // With several leaders nobody is waited for while another may have something.
        let wait = if is_alone { wait } else { Duration::ZERO };
        all.extend(read_at(cluster, address, reading, offsets, wait, stops)?);
    }
    if all.is_empty() && !is_alone && !wait.is_zero() {
        for (address, offsets) in &by_leader {
            let wait = wait / by_leader.len().max(1) as u32;
            all.extend(read_at(cluster, address, reading, offsets, wait, stops)?);
            if !all.is_empty() || stops() {
                break;
            }
        }
    }
    Ok(all)
}

fn read_at(
    cluster: &mut Cluster,
    address: &str,
    reading: Reading,
    offsets: &Offsets,
    wait: Duration,
    stops: &dyn Fn() -> bool,
) -> Result<Vec<Read>, KafkaError> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for ((topic, partition), offset) in offsets {
        let wanted = FetchPartition::default()
            .with_partition(*partition)
            .with_current_leader_epoch(-1)
            .with_fetch_offset(*offset)
            .with_log_start_offset(-1)
            .with_partition_max_bytes(PARTITION_BYTES_MAX);
        match topics
            .last_mut()
            .filter(|last| last.topic.as_str() == topic)
        {
            Some(last) => last.partitions.push(wanted),
            None => topics.push(
                FetchTopic::default()
                    .with_topic(topic_name(topic))
                    .with_partitions(vec![wanted]),
            ),
        }
    }
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX))
        .with_min_bytes(1)
        .with_max_bytes(FETCH_BYTES_MAX)
        .with_isolation_level(i8::from(reading.is_committed_only))
        .with_session_epoch(-1)
        .with_topics(topics);
    let answer = cluster.at(address, stops, |link| {
        link.call(&request, FETCH_VERSION_MAX, wait + ANSWER_WAIT, stops)
            .map(|(a, _)| a)
    })?;
    let mut all = Vec::new();
    for topic in answer.responses {
        let name = topic.topic.to_string();
        for data in topic.partitions {
            let key = (name.clone(), data.partition_index);
            let Some(from) = offsets.get(&key) else {
                continue;
            };
            if let Some(read) = take(cluster, reading, key, *from, data)? {
                all.push(read);
            }
        }
    }
    Ok(all)
}

fn take(
    cluster: &mut Cluster,
    reading: Reading,
    (topic, partition): (String, i32),
    from: i64,
    data: PartitionData,
) -> Result<Option<Read>, KafkaError> {
    let unable = |reason: String| KafkaError::Unable {
        address: format!("{topic}-{partition}"),
        reason,
    };
    match ResponseError::try_from_code(data.error_code) {
        None => {}
        Some(ResponseError::OffsetOutOfRange) => {
            let outcome = ReadOutcome::OutOfRange;
            return Ok(Some(Read {
                topic,
                partition,
                outcome,
            }));
        }
        Some(error) => {
            cluster.forget(&topic);
            return Err(unable(format!("cannot be read: {error}")));
        }
    }
    let aborted = data.aborted_transactions.into_iter().flatten();
    let aborted = aborted
        .filter(|_| reading.is_committed_only)
        .map(|aborted| (aborted.producer_id.0, aborted.first_offset));
    let bytes = data.records.unwrap_or_default();
    let fetched = records::read(bytes, from, aborted.collect(), reading.records_max)
        .map_err(|reason| unable(format!("at offset {from}: {reason}")))?;
    Ok(fetched.next.map(|next| Read {
        topic: topic.clone(),
        partition,
        outcome: ReadOutcome::Records(fetched.records, next),
    }))
}

/// Topics by name; from 13 on they go by id.
const FETCH_VERSION_MAX: i16 = 11;
const LIST_OFFSETS_VERSION_MAX: i16 = 5;

/// Bytes of one partition in one answer, beyond its first batch.
const PARTITION_BYTES_MAX: i32 = 1 << 20;

/// Bytes of one answer, beyond its first batch.
const FETCH_BYTES_MAX: i32 = 4 << 20;

/// Longest wait for an answer beyond what the broker itself may wait.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
