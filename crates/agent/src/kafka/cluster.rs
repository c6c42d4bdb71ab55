//! A cluster: which broker leads which partition, and the links to brokers.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    FindCoordinatorRequest, InitProducerIdRequest, MetadataRequest, MetadataResponse, ProducerId,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::link::{KafkaError, Link};
use super::security::Security;

/// What is known of a cluster, and the links that are open.
#[derive(Debug)]
pub(crate) struct Cluster {
    bootstrap: Vec<String>,
    client: String,
    security: Security,
    brokers: HashMap<i32, String>,
    /// Leaders by partition.
    topics: HashMap<String, BTreeMap<i32, i32>>,
    pub(super) links: HashMap<String, Link>,
}

/// Makes links to one broker.
#[derive(Clone, Debug)]
pub(crate) struct Linker {
    address: String,
    client: String,
    security: Security,
}

impl Cluster {
    /// A cluster behind these addresses; nothing is connected yet.
    pub(crate) fn new(bootstrap: Vec<String>, client: String, security: Security) -> Self {
        Cluster {
            bootstrap,
            client,
            security,
            brokers: HashMap::new(),
            topics: HashMap::new(),
            links: HashMap::new(),
        }
    }

    /// Partitions of `topic`, asked for when they are not known.
    pub(crate) fn partitions(
        &mut self,
        topic: &str,
        stops: &dyn Fn() -> bool,
    ) -> Result<i32, KafkaError> {
        if !self.topics.contains_key(topic) {
            self.refresh(topic, stops)?;
        }
        // Bounded by what a broker's answer can hold.
        Ok(self
            .topics
            .get(topic)
            .map_or(0, |partitions| partitions.len() as i32))
    }

    /// Forgets where a topic's partitions are.
    pub(crate) fn forget(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// A fresh producer id and epoch.
    pub(crate) fn producer_id(
        &mut self,
        stops: &dyn Fn() -> bool,
    ) -> Result<(i64, i16), KafkaError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let (answer, address) = self.ask(stops, |link| {
            link.call(&request, 4, ANSWER_WAIT, stops).map(|(a, _)| a)
        })?;
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok((answer.producer_id.0, answer.producer_epoch)),
            Some(error) => Err(KafkaError::Unable {
                address,
                reason: format!("gives no producer id: {error}"),
            }),
        }
    }

    /// The address of a partition's leader.
    pub(crate) fn leader(
        &mut self,
        topic: &str,
        partition: i32,
        stops: &dyn Fn() -> bool,
    ) -> Result<String, KafkaError> {
        self.partitions(topic, stops)?;
        let leader = self
            .topics
            .get(topic)
            .and_then(|partitions| partitions.get(&partition));
        let address = leader.and_then(|leader| self.brokers.get(leader));
        address.cloned().ok_or_else(|| KafkaError::Unable {
            address: self.bootstrap.join(","),
            reason: format!("knows no leader of {topic}-{partition} now"),
        })
    }

    /// Every topic's name and count of partitions.
    pub(crate) fn all_topics(
        &mut self,
        stops: &dyn Fn() -> bool,
    ) -> Result<Vec<(String, usize)>, KafkaError> {
        let request = MetadataRequest::default().with_topics(None);
        let (answer, _) = self.metadata(&request, stops)?;
        let there = answer
            .topics
            .into_iter()
            .filter(|topic| topic.error_code == 0);
        let mut topics = Vec::new();
        for topic in there.filter(|topic| !topic.is_internal) {
            if let Some(name) = topic.name {
                topics.push((name.to_string(), topic.partitions.len()));
            }
        }
        Ok(topics)
    }

    /// The address of a group's coordinator.
    pub(crate) fn coordinator(
        &mut self,
        group: &str,
        stops: &dyn Fn() -> bool,
    ) -> Result<String, KafkaError> {
        let request =
            FindCoordinatorRequest::default().with_key(StrBytes::from_string(group.to_owned()));
        let (answer, address) = self.ask(stops, |link| {
            link.call(&request, COORDINATOR_VERSION_MAX, ANSWER_WAIT, stops)
                .map(|(a, _)| a)
        })?;
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok(format!("{}:{}", answer.host, answer.port)),
            Some(error) => Err(KafkaError::Unable {
                address,
                reason: format!("knows no coordinator of the group '{group}': {error}"),
            }),
        }
    }

    /// Asks the broker at `address`; a link that failed is not used again.
    pub(crate) fn at<T>(
        &mut self,
        address: &str,
        stops: &dyn Fn() -> bool,
        question: impl FnOnce(&mut Link) -> Result<T, KafkaError>,
    ) -> Result<T, KafkaError> {
        let answer = self.link(address, stops).and_then(question);
        if answer.is_err() {
            self.links.remove(address);
        }
        answer
    }

    /// What makes further links to the broker at `address`.
    pub(crate) fn linker(&self, address: &str) -> Linker {
        Linker {
            address: address.to_owned(),
            client: self.client.clone(),
            security: self.security.clone(),
        }
    }

    fn refresh(&mut self, topic: &str, stops: &dyn Fn() -> bool) -> Result<(), KafkaError> {
        let wanted = MetadataRequestTopic::default().with_name(Some(topic_name(topic)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![wanted]))
            .with_allow_auto_topic_creation(true);
        let (answer, address) = self.metadata(&request, stops)?;
        for found in answer.topics {
            if let Some(error) = ResponseError::try_from_code(found.error_code) {
                let reason = format!("has no topic '{topic}' for the agent: {error}");
                return Err(KafkaError::Unable { address, reason });
            }
            let leaders: BTreeMap<i32, i32> = found
                .partitions
                .iter()
                .map(|p| (p.partition_index, p.leader_id.0))
                .collect();
            if leaders.is_empty() {
                let reason = format!("has no partitions of '{topic}' yet");
                return Err(KafkaError::Unable { address, reason });
            }
            self.topics.insert(topic.to_owned(), leaders);
        }
        Ok(())
    }

    fn metadata(
        &mut self,
        request: &MetadataRequest,
        stops: &dyn Fn() -> bool,
    ) -> Result<(MetadataResponse, String), KafkaError> {
        let (answer, address) = self.ask(stops, |link| {
            link.call(request, METADATA_VERSION_MAX, ANSWER_WAIT, stops)
                .map(|(a, _)| a)
        })?;
        self.brokers = answer
            .brokers
            .iter()
            .map(|broker| (broker.node_id.0, format!("{}:{}", broker.host, broker.port)))
            .collect();
        Ok((answer, address))
    }

    /// Asks any broker: one that is linked, else the first that can be reached.
    fn ask<T>(
        &mut self,
        stops: &dyn Fn() -> bool,
        mut question: impl FnMut(&mut Link) -> Result<T, KafkaError>,
    ) -> Result<(T, String), KafkaError> {
        let mut addresses: Vec<String> = self.links.keys().cloned().collect();
        addresses.extend(self.bootstrap.iter().cloned());
        let mut last = KafkaError::Stopped;
        for address in addresses {
            if stops() {
                return Err(KafkaError::Stopped);
            }
            match self.link(&address, stops).and_then(&mut question) {
                Ok(answer) => return Ok((answer, address)),
                Err(error) => {
                    self.links.remove(&address);
                    last = error;
                }
            }
        }
        Err(last)
    }

    pub(super) fn link(
        &mut self,
        address: &str,
        stops: &dyn Fn() -> bool,
    ) -> Result<&mut Link, KafkaError> {
        use std::collections::hash_map::Entry;
        match self.links.entry(address.to_owned()) {
            Entry::Occupied(open) => Ok(open.into_mut()),
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(Link::connect(address, &self.client, &self.security, stops)?))
            }
        }
    }
}

impl Linker {
    /// A new link.
    pub(crate) fn connect(&self, stops: &dyn Fn() -> bool) -> Result<Link, KafkaError> {
        Link::connect(&self.address, &self.client, &self.security, stops)
    }
}

/// A topic's name as messages hold it.
pub(super) fn topic_name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// Enough to name topics and to have them made.
const METADATA_VERSION_MAX: i16 = 9;
/// One group in a request.
const COORDINATOR_VERSION_MAX: i16 = 3;
/// Longest wait for an answer beyond what the broker itself may wait.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(10);
