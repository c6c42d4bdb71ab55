//! Requests of Kafka's protocol, one connection at a time: for loads of thousands of connections or
//! topics, which no client library carries at a cost that leaves the server visible.

use base::UnixMillis;
use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, IncrementalAlterConfigsRequest, ProduceRequest,
    ProduceResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::experiment::LabError;
use crate::limits::ANSWER_BYTES_MAX;

/// A connection to a server.
pub struct Wire {
    stream: TcpStream,
    sent: i32,
    answered: i32,
    out: BytesMut,
}

/// A topic to be created.
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Its number of partitions.
    pub partitions: i32,
    /// Its settings.
    pub configs: Vec<(&'static str, &'static str)>,
}

impl Wire {
    /// Connects to `address`.
    pub async fn connect(address: &str) -> Result<Wire, LabError> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(LabError::system(format!("cannot reach {address}")))?;
        stream
            .set_nodelay(true)
            .map_err(LabError::system("cannot set up a connection"))?;
        Ok(Wire {
            stream,
            sent: 0,
            answered: 0,
            out: BytesMut::new(),
        })
    }

    /// Sends a request and waits for its answer.
    pub async fn ask<Q: Request>(
        &mut self,
        request: &Q,
        version: i16,
    ) -> Result<Q::Response, LabError> {
        self.send(request, version).await?;
        self.answer::<Q>(version).await
    }

    /// Sends a request; its answer comes after those of all before it.
    pub async fn send<Q: Request>(&mut self, request: &Q, version: i16) -> Result<(), LabError> {
        let header = RequestHeader::default()
            .with_request_api_key(Q::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.sent)
            .with_client_id(Some(StrBytes::from_static_str("lab")));
        self.out.clear();
        self.out.extend_from_slice(&[0; 4]);
        header
            .encode(&mut self.out, Q::header_version(version))
            .and_then(|()| request.encode(&mut self.out, version))
            .map_err(|error| LabError::Failed(format!("cannot encode a request: {error}")))?;
        let length = u32::try_from(self.out.len() - 4).unwrap_or(u32::MAX);
        self.out[..4].copy_from_slice(&length.to_be_bytes());
        self.sent += 1;
        self.stream
            .write_all(&self.out)
            .await
            .map_err(LabError::system("cannot send a request"))
    }

    /// Waits for the answer to the oldest request that has none.
    pub async fn answer<Q: Request>(&mut self, version: i16) -> Result<Q::Response, LabError> {
        let mut frame = self.frame().await?;
        let unread = |error| LabError::Failed(format!("cannot read an answer: {error}"));
        let header = ResponseHeader::decode(&mut frame, Q::Response::header_version(version))
            .map_err(unread)?;
        if header.correlation_id != self.answered {
            return Err(LabError::Failed(format!(
                "answer {} came in the place of {}",
                header.correlation_id, self.answered
            )));
        }
        self.answered += 1;
        Q::Response::decode(&mut frame, version).map_err(unread)
    }

    /// How many requests wait for their answers.
    pub fn in_flight(&self) -> i32 {
        self.sent - self.answered
    }

    /// Creates topics with one request; fails with the first that was refused.
    pub async fn create_topics(&mut self, topics: &[NewTopic]) -> Result<(), LabError> {
        let asked = topics.iter().map(|topic| {
            let configs = topic.configs.iter().map(|&(name, value)| {
                CreatableTopicConfig::default()
                    .with_name(StrBytes::from_static_str(name))
                    .with_value(Some(StrBytes::from_static_str(value)))
            });
            CreatableTopic::default()
                .with_name(topic_name(&topic.name))
                .with_num_partitions(topic.partitions)
                .with_replication_factor(1)
                .with_configs(configs.collect())
        });
        let request = CreateTopicsRequest::default()
            .with_topics(asked.collect())
            .with_timeout_ms(60_000);
        let answer = self.ask(&request, CREATE_TOPICS_VERSION).await?;
        match answer.topics.iter().find(|topic| topic.error_code != 0) {
            None => Ok(()),
            Some(refused) => Err(LabError::Failed(format!(
                "topic {} was refused with error {}: {}",
                refused.name.as_str(),
                refused.error_code,
                refused.error_message.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// Deletes a topic.
    pub async fn delete_topic(&mut self, name: &str) -> Result<(), LabError> {
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(name)])
            .with_timeout_ms(60_000);
        let answer = self.ask(&request, DELETE_TOPICS_VERSION).await?;
        match answer.responses.iter().find(|topic| topic.error_code != 0) {
            None => Ok(()),
            Some(refused) => Err(LabError::Failed(format!(
                "topic {name} was not deleted: error {}",
                refused.error_code
            ))),
        }
    }

    /// Sets one setting of a group.
    pub async fn set_group_config(
        &mut self,
        group: &str,
        name: &'static str,
        value: &'static str,
    ) -> Result<(), LabError> {
        let config = AlterableConfig::default()
            .with_name(StrBytes::from_static_str(name))
            .with_value(Some(StrBytes::from_static_str(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(GROUP_RESOURCE)
            .with_resource_name(StrBytes::from_string(group.to_owned()))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let answer = self.ask(&request, ALTER_CONFIGS_VERSION).await?;
        match answer.responses.iter().find(|group| group.error_code != 0) {
            None => Ok(()),
            Some(refused) => Err(LabError::Failed(format!(
                "{name} of group {group} was refused with error {}: {}",
                refused.error_code,
                refused.error_message.as_deref().unwrap_or_default()
            ))),
        }
    }

    /// Sends one batch to the first partition of each topic, acknowledged by all.
    pub async fn send_batches(
        &mut self,
        topics: impl Iterator<Item = &str>,
        batch: &Bytes,
    ) -> Result<(), LabError> {
        let data = topics.map(|topic| {
            TopicProduceData::default()
                .with_name(topic_name(topic))
                .with_partition_data(vec![
                    PartitionProduceData::default().with_records(Some(batch.clone())),
                ])
        });
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(60_000)
            .with_topic_data(data.collect());
        self.send(&request, PRODUCE_VERSION).await
    }

    /// Waits for the acknowledgement of the oldest batches; fails if one was refused.
    pub async fn acknowledged(&mut self) -> Result<(), LabError> {
        let answer: ProduceResponse = self.answer::<ProduceRequest>(PRODUCE_VERSION).await?;
        let refused = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .find(|partition| partition.error_code != 0);
        match refused {
            None => Ok(()),
            Some(partition) => Err(LabError::Failed(format!(
                "a batch was refused with error {}",
                partition.error_code
            ))),
        }
    }

    async fn frame(&mut self) -> Result<Bytes, LabError> {
        let lost = || LabError::system("the server went away");
        let length = self.stream.read_u32().await.map_err(lost())? as usize;
        if length > ANSWER_BYTES_MAX {
            return Err(LabError::Failed(format!("an answer of {length} bytes")));
        }
        let mut frame = BytesMut::with_capacity(length);
        while frame.len() < length {
            let mut rest = (&mut self.stream).take((length - frame.len()) as u64);
            if rest.read_buf(&mut frame).await.map_err(lost())? == 0 {
                return Err(LabError::Failed(
                    "the server closed a connection".to_owned(),
                ));
            }
        }
        Ok(frame.copy_to_bytes(length))
    }
}

/// A name as the protocol's messages carry it.
pub fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

/// A batch of one record of the time `now` with a value of so many bytes.
pub fn batch_of_one(now: UnixMillis, bytes: usize) -> Result<Bytes, LabError> {
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: -1,
        producer_id: -1,
        producer_epoch: -1,
        sequence: -1,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        timestamp: now.0,
        key: None,
        value: Some(Bytes::from(vec![7; bytes])),
        headers: Default::default(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut batch = BytesMut::new();
    RecordBatchEncoder::encode(&mut batch, [&record], &options)
        .map_err(|error| LabError::Failed(format!("cannot encode a batch: {error}")))?;
    Ok(batch.freeze())
}

/// Versions that both servers speak; of deleting the last with names alone.
const CREATE_TOPICS_VERSION: i16 = 5;
const DELETE_TOPICS_VERSION: i16 = 5;
const PRODUCE_VERSION: i16 = 9;
const ALTER_CONFIGS_VERSION: i16 = 1;
/// Groups among what has settings.
const GROUP_RESOURCE: i8 = 32;
