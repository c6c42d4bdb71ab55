//! Records as callers in this process see them; on disk and on the wire they are batches.

use base::UnixMillis;
use bytes::Bytes;

use crate::topic::TopicName;

/// A record to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The key; none is Kafka's null key.
    pub key: Option<Bytes>,
    /// The value; none is Kafka's null value (a tombstone in compacted topics).
    pub value: Option<Bytes>,
    /// Headers in order; a name may repeat.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// When it was created; none takes the store's clock.
    pub timestamp: Option<UnixMillis>,
}

/// A record as read from a partition; key, value and headers are slices of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumedRecord {
    /// The topic that it was read from.
    pub topic: TopicName,
    /// The partition, from zero.
    pub partition: i32,
    /// Its offset in the partition.
    pub offset: i64,
    /// Its creation time as the producer gave it.
    pub timestamp: UnixMillis,
    /// The key; none is Kafka's null key.
    pub key: Option<Bytes>,
    /// The value; none is Kafka's null value.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl Record {
    /// A record of `value` alone.
    pub fn of_value(value: impl Into<Bytes>) -> Self {
        Record {
            value: Some(value.into()),
            ..Record::default()
        }
    }

    /// The same record under `key`.
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }
}
