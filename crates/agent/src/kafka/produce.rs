//! Sending batches: several of one partition may be under way, in their order.
//!
//! A broker obeys what comes over one connection in its order, so a partition's batches go out one
//! behind the other and their answers are taken later. When a link breaks, none of those behind the
//! break is known to be stored; their sequences tell the broker when they come again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use super::batch::Batch;
use super::cluster::{ANSWER_WAIT, Cluster, topic_name};
use super::link::{Asked, KafkaError};

/// A batch to send.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) batch: Batch,
    /// Not to be sent yet.
    pub(crate) waits: bool,
}

/// What a broker said to a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is stored, now or before.
    Stored,
    /// Not now; the same batch may be sent again.
    Retry(String),
    /// The producer's sequence is not known there any more.
    Unsequenced(String),
    /// Never.
    Refused(String),
    /// It was not to be sent yet.
    Waits,
}

/// Batches that were sent, until their answers are taken.
#[derive(Debug)]
pub(crate) struct UnderWay {
    requests: Vec<Requested>,
    outcomes: Vec<Outcome>,
    /// Topic and partition of each batch.
    places: Vec<(String, i32)>,
}

/// One request, and which of the batches are in it.
#[derive(Debug)]
struct Requested {
    address: String,
    asked: Asked,
    indexes: Vec<usize>,
}

impl Cluster {
    /// Sends batches, those of one partition in their order, and does not wait for answers.
    pub(crate) fn begin_produce(
        &mut self,
        acks: i16,
        wait: Duration,
        batches: &[Sent],
        stops: &dyn Fn() -> bool,
    ) -> UnderWay {
        let place = |sent: &Sent| (sent.topic.clone(), sent.partition);
        let mut under_way = UnderWay {
            requests: Vec::new(),
            outcomes: vec![Outcome::Retry("not sent".to_owned()); batches.len()],
            places: batches.iter().map(place).collect(),
        };
        // By broker, then by how many batches of its partition go before.
        let mut by_broker: BTreeMap<String, Vec<Vec<usize>>> = BTreeMap::new();
        let mut before: HashMap<(&str, i32), usize> = HashMap::new();
        let mut leaderless: HashSet<(&str, i32)> = HashSet::new();
        for (index, sent) in batches.iter().enumerate() {
            let place = (sent.topic.as_str(), sent.partition);
            if sent.waits {
                under_way.outcomes[index] = Outcome::Waits;
                continue;
            }
            if leaderless.contains(&place) {
                continue;
            }
            match self.leader(&sent.topic, sent.partition, stops) {
                Ok(address) => {
                    let turn = before.entry(place).or_default();
                    let turns = by_broker.entry(address).or_default();
                    if turns.len() <= *turn {
                        turns.resize_with(*turn + 1, Vec::new);
                    }
                    turns[*turn].push(index);
                    *turn += 1;
                }
                Err(error) => {
                    under_way.outcomes[index] = Outcome::Retry(error.to_string());
                    leaderless.insert(place);
                }
            }
        }
        for (address, turns) in by_broker {
            for (turn, indexes) in turns.iter().enumerate() {
                let sent = self.request(&address, acks, wait, batches, indexes, stops);
                match sent {
                    Ok(None) => indexes
                        .iter()
                        .for_each(|&index| under_way.outcomes[index] = Outcome::Stored),
                    Ok(Some(asked)) => under_way.requests.push(Requested {
                        address: address.clone(),
                        asked,
                        indexes: indexes.clone(),
                    }),
                    Err(error) => {
                        let rest: Vec<usize> = turns[turn..].concat();
                        self.lose(&address, &rest, &mut under_way, &error);
                        break;
                    }
                }
            }
        }
        under_way
    }

    /// Waits for the answers, and says what became of each batch, in their order.
    pub(crate) fn end_produce(
        &mut self,
        mut under_way: UnderWay,
        wait: Duration,
        stops: &dyn Fn() -> bool,
    ) -> Vec<Outcome> {
        for Requested {
            address,
            asked,
            indexes,
        } in std::mem::take(&mut under_way.requests)
        {
            let link = self.links.get_mut(&address);
            let Some(link) = link.filter(|link| link.awaits(asked)) else {
                for &index in &indexes {
                    under_way.outcomes[index] = Outcome::Retry(format!("lost {address}"));
                }
                continue;
            };
            match link.answer(asked, wait + ANSWER_WAIT, stops) {
                Ok(answer) => under_way.take(&answer, &indexes),
                Err(error) => self.lose(&address, &indexes, &mut under_way, &error),
            }
            for &index in &indexes {
                if matches!(under_way.outcomes[index], Outcome::Retry(_)) {
                    self.forget(&under_way.places[index].0);
                }
            }
        }
        under_way.outcomes
    }

    /// Gives up batches that were sent: what is said to them is not waited for.
    pub(crate) fn abandon(&mut self, under_way: UnderWay) {
        for requested in under_way.requests {
            // Its answers would come ahead of others.
            self.links.remove(&requested.address);
        }
    }

    /// Sends one request; nothing is answered to one without acknowledgement.
    fn request(
        &mut self,
        address: &str,
        acks: i16,
        wait: Duration,
        batches: &[Sent],
        indexes: &[usize],
        stops: &dyn Fn() -> bool,
    ) -> Result<Option<Asked>, KafkaError> {
        let mut topics: Vec<TopicProduceData> = Vec::new();
        for &index in indexes {
            let sent = &batches[index];
            let partition = PartitionProduceData::default()
                .with_index(sent.partition)
                .with_records(Some(sent.batch.bytes.clone()));
            match topics
                .iter_mut()
                .find(|topic| topic.name.as_str() == sent.topic)
            {
                Some(topic) => topic.partition_data.push(partition),
                None => topics.push(
                    TopicProduceData::default()
                        .with_name(topic_name(&sent.topic))
                        .with_partition_data(vec![partition]),
                ),
            }
        }
        let request = ProduceRequest::default()
            .with_acks(acks)
            .with_timeout_ms(i32::try_from(wait.as_millis()).unwrap_or(i32::MAX))
            .with_topic_data(topics);
        let link = self.link(address, stops)?;
        let version = link.version::<ProduceRequest>(PRODUCE_VERSION_MAX)?;
        if acks == 0 {
            link.send(&request, version)?;
            return Ok(None);
        }
        link.ask(&request, version).map(Some)
    }

    /// The link's state is not known any more.
    fn lose(
        &mut self,
        address: &str,
        indexes: &[usize],
        under_way: &mut UnderWay,
        error: &KafkaError,
    ) {
        self.links.remove(address);
        for &index in indexes {
            self.forget(&under_way.places[index].0);
            under_way.outcomes[index] = Outcome::Retry(error.to_string());
        }
    }
}

impl UnderWay {
    fn take(&mut self, answer: &ProduceResponse, indexes: &[usize]) {
        for topic in &answer.responses {
            for partition in &topic.partition_responses {
                let found = indexes.iter().find(|&&index| {
                    let (name, number) = &self.places[index];
                    name == topic.name.as_str() && *number == partition.index
                });
                if let Some(&index) = found {
                    self.outcomes[index] = outcome(partition.error_code);
                }
            }
        }
    }
}

fn outcome(code: i16) -> Outcome {
    let Some(error) = ResponseError::try_from_code(code) else {
        return Outcome::Stored;
    };
    match error {
        ResponseError::DuplicateSequenceNumber => Outcome::Stored,
        ResponseError::OutOfOrderSequenceNumber
        | ResponseError::UnknownProducerId
        | ResponseError::InvalidProducerEpoch
        | ResponseError::InvalidProducerIdMapping => Outcome::Unsequenced(error.to_string()),
        error if error.is_retriable() => Outcome::Retry(error.to_string()),
        error => Outcome::Refused(error.to_string()),
    }
}

/// From 13 on topics go by id, which a producer by name would have to ask for.
const PRODUCE_VERSION_MAX: i16 = 9;
