//! WriteTxnMarkers: ends what a producer has open in single partitions.
//!
//! Kafka's brokers use it between themselves; people do by `kafka-transactions abort`, for a
//! transaction that no coordinator knows and that holds readers of committed records back.

use access::Operation;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::write_txn_markers_request::WritableTxnMarker;
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
};
use kafka_protocol::messages::{WriteTxnMarkersRequest, WriteTxnMarkersResponse};
use tokio::task::consume_budget;

use super::error::streams_error_code;
use super::reply::{Call, Ending, Reply};
use crate::marker::Marker;
use crate::store::CHANGE_ROOM_BYTES;
use crate::{StreamsError, TopicName};

/// Writes the markers; they are durable when the answer says so.
pub(super) fn write_txn_markers(call: Call) -> Result<Reply, Ending> {
    let request: WriteTxnMarkersRequest = call.decode("WriteTxnMarkers")?;
    let is_allowed = call.may_of_all(Operation::ClusterAction) || call.may_of_all(Operation::Alter);
    Reply::later(async move {
        let mut results = Vec::with_capacity(request.markers.len());
        for asked in request.markers {
            let producer_id = asked.producer_id;
            let topics = write(&call, is_allowed, asked).await;
            results.push(
                WritableTxnMarkerResult::default()
                    .with_producer_id(producer_id)
                    .with_topics(topics),
            );
        }
        let answer = WriteTxnMarkersResponse::default().with_markers(results);
        let durable = match call.context.streams().barrier() {
            Ok(durable) => durable.await,
            Err(error) => Err(error),
        };
        call.answer(&match durable {
            Ok(()) => answer,
            Err(error) => all_failed(answer, streams_error_code(&error)),
        })
    })
}

async fn write(
    call: &Call,
    is_allowed: bool,
    asked: WritableTxnMarker,
) -> Vec<WritableTxnMarkerTopicResult> {
    let streams = call.context.streams();
    let now = streams.clock().now();
    let marker = Marker {
        producer_id: asked.producer_id.0,
        producer_epoch: asked.producer_epoch,
        is_commit: asked.transaction_result,
    };
    let mut topics = Vec::with_capacity(asked.topics.len());
    for topic in asked.topics {
        let name = topic.name.as_str().parse::<TopicName>().ok();
        let found = name.and_then(|name| streams.topic_by_name(&name));
        let mut partitions = Vec::with_capacity(topic.partition_indexes.len());
        for index in &topic.partition_indexes {
            let partition = found.as_ref().and_then(|topic| topic.partition(*index));
            let code = match partition {
                _ if !is_allowed => ResponseError::ClusterAuthorizationFailed.code(),
                None => ResponseError::UnknownTopicOrPartition.code(),
                Some(partition) => loop {
                    match partition.append_marker(now, marker) {
                        Ok(()) => break 0,
                        Err(StreamsError::Busy) => streams.room(CHANGE_ROOM_BYTES).await,
                        Err(error) => break streams_error_code(&error),
                    }
                },
            };
            partitions.push(
                WritableTxnMarkerPartitionResult::default()
                    .with_partition_index(*index)
                    .with_error_code(code),
            );
            consume_budget().await;
        }
        topics.push(
            WritableTxnMarkerTopicResult::default()
                .with_name(topic.name)
                .with_partitions(partitions),
        );
    }
    topics
}

/// What could not be made durable failed for all.
fn all_failed(mut answer: WriteTxnMarkersResponse, code: i16) -> WriteTxnMarkersResponse {
    let topics = answer
        .markers
        .iter_mut()
        .flat_map(|marker| &mut marker.topics);
    for partition in topics.flat_map(|topic| &mut topic.partitions) {
        partition.error_code = code;
    }
    answer
}
