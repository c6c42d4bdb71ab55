//! Reads of a partition without an instance, as version 1 has them: from an offset, so many records.
//!
//! Nothing is kept between calls and nothing is waited for: what is not there yet is not answered.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use streams::{
    ConsumedRecord, ConsumerConfig, Isolation, PartitionReplicas, SeekTo, StreamsError, TopicName,
};

use crate::answer::{self, Parameters, Segments};
use crate::answers::{Answers, kept};
use crate::consumers::{Shape, encoded_beside, readers, record_bytes};
use crate::error::RestError;
use crate::limits;
use crate::login::Asked;
use crate::media::{self, ApiVersion};
use crate::produce::existing_partition;
use crate::routes::Shared;

#[derive(Deserialize)]
pub(crate) struct MessageParameters {
    #[serde(default)]
    offset: i64,
    #[serde(default = "one")]
    count: i64,
    /// Which records are shown; without it as the configuration says.
    isolation: Option<Isolation>,
}

/// `GET /topics/{topic}/partitions/{partition}/messages?offset=&count=&isolation=`
pub(crate) async fn messages(
    Asked(shared): Asked,
    Segments((topic, partition)): Segments<(String, String)>,
    Parameters(asked): Parameters<MessageParameters>,
    headers: HeaderMap,
) -> Result<Response, RestError> {
    let accept = answer::joined(&headers, header::ACCEPT);
    let format = media::read_format(accept.as_deref(), ApiVersion::V1)?;
    let topic = shared.config.topic_name(&topic)?;
    let info = shared.store.topic(&topic).await?;
    let partition = existing_partition(&topic, info.partitions, &partition)?;
    let lying = shared.store.replicas(Some(&topic)).await?;
    led(lying.values().flatten(), &topic, partition)?;
    let count = usize::try_from(asked.count).ok().filter(|count| *count > 0);
    let count = count.ok_or_else(|| RestError::BadRequest("count is 1 or more".to_owned()))?;
    let count = count.min(limits::RECORDS_MAX);
    let held = usize::try_from(partition).ok();
    let held = held.and_then(|index| info.partition_offsets.get(index));
    if let Some(held) = held
        && !(held.start..=held.end).contains(&asked.offset)
    {
        return Err(RestError::Store(StreamsError::OffsetOutOfRange {
            offset: asked.offset,
            start: held.start,
            end: held.end,
        }));
    }
    let end = held.map_or(i64::MAX, |held| held.end);
    let place = tokio::time::timeout(
        limits::PARTITION_READ_PLACE_WAIT,
        shared.partition_reads.acquire(),
    );
    let Ok(Ok(_place)) = place.await else {
        let max = limits::PARTITION_READS_MAX;
        return Err(RestError::TooManyPartitionReads(max));
    };
    let share = Answers::of_process().for_records(limits::READ_BYTES_DEFAULT);
    let Some(mut share) = share.await else {
        let max = limits::PARTITION_READS_MAX;
        return Err(RestError::TooManyPartitionReads(max));
    };
    let config = ConsumerConfig {
        isolation: asked.isolation.unwrap_or(shared.config.isolation),
        ..ConsumerConfig::alone("rest")
    };
    let offsets = asked.offset..end;
    let records = read(&shared, config, &topic, partition, offsets, count).await?;
    let shape = Shape {
        topic: false,
        ..Shape::USUAL
    };
    let media = format.read_type(ApiVersion::V1);
    let readers = readers(&shared, &records, format).await;
    // What does not fit into one answer is not answered: whoever reads on asks for it again.
    let (body, _) = encoded_beside(&records, format, shape, &readers).await;
    share.shrink(body.len());
    let answer = answer::bytes(StatusCode::OK, media, body);
    Ok(kept(answer, Some(share)))
}

/// The records of these offsets, at most so many, and within the bound of an answer.
async fn read(
    shared: &Shared,
    config: ConsumerConfig,
    topic: &TopicName,
    partition: i32,
    offsets: std::ops::Range<i64>,
    count: usize,
) -> Result<Vec<ConsumedRecord>, StreamsError> {
    let mut records: Vec<ConsumedRecord> = Vec::new();
    if offsets.is_empty() {
        return Ok(records);
    }
    let mut consumer = shared.store.consumer(config).await?;
    consumer.assign(vec![(topic.clone(), partition)]).await?;
    let from = SeekTo::Offset(offsets.start);
    consumer.seek(topic, partition, from).await?;
    let mut bytes_left = limits::READ_BYTES_DEFAULT;
    while records.len() < count && bytes_left > 0 {
        let more = consumer.poll(POLL_WAIT, bytes_left).await?;
        let Some(last) = more.last() else { break };
        let is_end = last.offset + 1 >= offsets.end;
        let bytes: usize = more.iter().map(record_bytes).sum();
        bytes_left = bytes_left.saturating_sub(bytes);
        records.extend(more);
        if is_end {
            break;
        }
    }
    records.truncate(count);
    Ok(records)
}

/// Refuses a partition that has no leader for the moment.
fn led<'a>(
    lying: impl IntoIterator<Item = &'a PartitionReplicas>,
    topic: &TopicName,
    partition: i32,
) -> Result<(), RestError> {
    let mut lying = lying.into_iter().zip(0..);
    match lying.any(|(lies, index)| index == partition && lies.leader.is_none()) {
        false => Ok(()),
        true => Err(RestError::LeaderNotAvailable {
            topic: topic.display().to_owned(),
            partition,
        }),
    }
}

fn one() -> i64 {
    1
}

/// How long records may take that are known to be there; offsets at the end of a partition may
/// also belong to none, and then this is waited out.
const POLL_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_a_leader_is_40404() {
        let lies = |leader| PartitionReplicas {
            leader,
            replicas: vec![1, 2],
            in_sync: vec![2],
        };
        let lying = [lies(Some(1)), lies(None)];
        let topic = "t".parse().unwrap();
        assert!(led(&lying, &topic, 0).is_ok());
        assert_eq!(led(&lying, &topic, 1).unwrap_err().code(), 40404);
    }
}
