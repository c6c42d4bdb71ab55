//! Records into a producer's queue, and out to the cluster: the calls of librdkafka's that the wrapper
//! has not, or makes once for each record where once for a batch will do.

use std::ffi::{CString, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::bindings::{
    RD_KAFKA_MSG_F_COPY, rd_kafka_flush, rd_kafka_message_t, rd_kafka_produce_batch,
    rd_kafka_resp_err_t, rd_kafka_topic_destroy, rd_kafka_topic_new,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::types::RDKafkaTopic;

use super::round::RoundProducer;
use crate::event_store::ProduceBatch;
use crate::record::Record;

/// Enqueues all records of a batch; `place_of` gives what comes back with the delivery of each.
///
/// # Errors
/// The first failure; what was enqueued before it is sent all the same.
pub(super) fn enqueue(
    producer: &RoundProducer,
    batch: &ProduceBatch,
    place_of: impl Fn(usize) -> usize,
    now: UnixMillis,
) -> Result<(), KafkaError> {
    let is_plain = |record: &Record| record.headers.is_empty() && record.timestamp.is_none();
    if batch.records.iter().all(is_plain) {
        return enqueue_plain(producer, batch, place_of);
    }
    for (nth, record) in batch.records.iter().enumerate() {
        let mut sent = BaseRecord::with_opaque_to(batch.topic.wire_name(), place_of(nth))
            .partition(batch.partition)
            .timestamp(record.timestamp.unwrap_or(now).0);
        if let Some(key) = &record.key {
            sent = sent.key(&key[..]);
        }
        if let Some(value) = &record.value {
            sent = sent.payload(&value[..]);
        }
        if !record.headers.is_empty() {
            let mut headers = OwnedHeaders::new_with_capacity(record.headers.len());
            for (name, value) in &record.headers {
                headers = headers.insert(Header {
                    key: name,
                    value: value.as_deref(),
                });
            }
            sent = sent.headers(headers);
        }
        producer.send(sent).map_err(|(error, _)| error)?;
    }
    Ok(())
}

/// Has everything that is enqueued sent now, linger or not, and waits until it is answered and the
/// callbacks have run. Then the producer holds nothing, and what was lent to it is given back.
///
/// The wrapper's own flush waits in steps of 100 ms; librdkafka's ends with the last answer, as long
/// as another thread runs the callbacks.
#[allow(unsafe_code)]
pub(super) fn flush(producer: &RoundProducer, timeout: Duration) -> Result<(), KafkaError> {
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let client = producer.client().native_ptr();
    // SAFETY: the pointer is that of a producer which lives; the call takes nothing over.
    match unsafe { rd_kafka_flush(client, timeout_ms) } {
        rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {
            producer.lent().give_back();
            Ok(())
        }
        outcome => Err(KafkaError::Flush(outcome.into())),
    }
}

/// Enqueues records of key and value only, whose time is that of their sending: the topic is looked
/// up once, and librdkafka takes many at a call. Small values it copies; large ones are lent to it.
#[allow(unsafe_code)]
fn enqueue_plain(
    producer: &RoundProducer,
    batch: &ProduceBatch,
    place_of: impl Fn(usize) -> usize,
) -> Result<(), KafkaError> {
    let topic = Handle::of(producer, batch)?;
    let mut messages: Vec<rd_kafka_message_t> = Vec::new();
    let mut first = 0;
    let alike = batch.records.chunk_by(|a, b| is_large(a) == is_large(b));
    for records in alike.flat_map(|records| records.chunks(CHUNK_RECORDS)) {
        let is_lent = records.first().is_some_and(is_large);
        if is_lent {
            let values = records.iter().filter_map(|record| record.value.as_ref());
            producer.lent().take(values);
        }
        messages.clear();
        messages.extend(records.iter().enumerate().map(|(nth, record)| {
            let (payload, len) = raw(&record.value);
            let (key, key_len) = raw(&record.key);
            rd_kafka_message_t {
                err: rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                rkt: ptr::null_mut(),
                partition: batch.partition,
                payload,
                len,
                key,
                key_len,
                offset: 0,
                // A number in a pointer's place; nobody reads where it would point.
                _private: ptr::without_provenance_mut(place_of(first + nth)),
            }
        }));
        let count = i32::try_from(messages.len()).unwrap_or(i32::MAX);
        // SAFETY: the handle is that of a producer which lives. The array has `count` messages, which
        // the call reads and whose `err` it sets. Their keys and values lie in `batch`, which outlives
        // the call. The call copies keys always, and values by the flag. Without it librdkafka reads
        // the values until it has told of their delivery or is destroyed: `Lent` holds them, where
        // they lie, until a flush has found that the producer holds nothing any more, or else until
        // the producer is gone.
        let enqueued = unsafe {
            rd_kafka_produce_batch(
                topic.0.as_ptr(),
                batch.partition,
                match is_lent {
                    true => 0,
                    false => RD_KAFKA_MSG_F_COPY,
                },
                messages.as_mut_ptr(),
                count,
            )
        };
        if enqueued != count {
            let mut errors = messages.iter().map(|message| Code::from(message.err));
            let error = errors.find(|code| *code != Code::NoError);
            return Err(KafkaError::MessageProduction(error.unwrap_or(Code::Fail)));
        }
        first += records.len();
    }
    Ok(())
}

/// Whether a record's value is lent rather than copied.
fn is_large(record: &Record) -> bool {
    let value = record.value.as_ref();
    value.is_some_and(|value| value.len() >= LENT_BYTES_MIN)
}

/// Values that librdkafka reads where they lie.
///
/// Nothing but a flush that has found the producer empty gives them back; whoever owns a producer
/// lets go of it first and of this behind it.
#[derive(Clone, Default)]
pub(super) struct Lent(Arc<Mutex<Vec<Bytes>>>);

impl Lent {
    fn take<'v>(&self, values: impl Iterator<Item = &'v Bytes>) {
        self.0.lock().extend(values.cloned());
    }

    fn give_back(&self) {
        self.0.lock().clear();
    }
}

/// Where bytes lie, and how many: no place for none, and some place for none of them.
fn raw(bytes: &Option<Bytes>) -> (*mut c_void, usize) {
    match bytes {
        Some(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
        None => (ptr::null_mut(), 0),
    }
}

/// A producer's handle of a topic, given back when it goes.
struct Handle<'p>(NonNull<RDKafkaTopic>, PhantomData<&'p RoundProducer>);

impl<'p> Handle<'p> {
    #[allow(unsafe_code)]
    fn of(producer: &'p RoundProducer, batch: &ProduceBatch) -> Result<Self, KafkaError> {
        let name = CString::new(batch.topic.wire_name())?;
        let client = producer.client().native_ptr();
        // SAFETY: the producer lives as long as the handle does, and `name` as long as the call, which
        // copies it. Without a configuration of its own the topic takes the producer's.
        let topic = unsafe { rd_kafka_topic_new(client, name.as_ptr(), ptr::null_mut()) };
        match NonNull::new(topic) {
            Some(topic) => Ok(Handle(topic, PhantomData)),
            None => Err(KafkaError::MessageProduction(Code::InvalidArgument)),
        }
    }
}

impl Drop for Handle<'_> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the handle came from `rd_kafka_topic_new`, and is given back once.
        unsafe { rd_kafka_topic_destroy(self.0.as_ptr()) }
    }
}

/// Records that librdkafka is given at a call: enough that the call costs nothing, few enough that
/// what describes them stays in the processor's cache.
const CHUNK_RECORDS: usize = 256;

/// Values of so many bytes are lent: holding one costs about what copying a few hundred bytes does.
const LENT_BYTES_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rdkafka::mocking::MockCluster;

    use super::super::calls::Trouble;
    use super::super::round::Deliveries;
    use super::super::tests::config;
    use super::*;

    #[test]
    fn what_is_lent_is_held_until_it_is_delivered_or_the_producer_is_gone() {
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic("t", 1, 1).unwrap();
        mock.broker_down(1).unwrap();
        let client = config(&mock).kafka.producer();
        let producer = RoundProducer::new(&client, Deliveries::new(Trouble::default())).unwrap();
        let large = Bytes::from(vec![7; LENT_BYTES_MIN]);
        let send = || {
            let values = [Bytes::from_static(b"small"), large.clone()];
            let batch = ProduceBatch {
                topic: "t".parse().unwrap(),
                partition: 0,
                records: values.map(Record::of_value).into(),
                sequence: None,
            };
            enqueue(&producer, &batch, |_| 0, UnixMillis(0)).unwrap();
        };
        send();
        assert!(flush(&producer, Duration::ZERO).is_err());
        assert!(!large.is_unique(), "it is under way");
        mock.broker_up(1).unwrap();
        flush(&producer, Duration::from_secs(60)).unwrap();
        assert!(large.is_unique(), "it is delivered");
        mock.broker_down(1).unwrap();
        send();
        assert!(!large.is_unique(), "it waits");
        drop(producer);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !large.is_unique() {
            assert!(Instant::now() < deadline, "it is held for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
