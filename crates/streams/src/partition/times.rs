//! The times of records that a topic takes: one that lies far ahead would keep its batch, and all
//! behind it, from growing old.
//!
//! What lies ahead is told by the batch itself, as expiry goes by that; what lies back is looked up
//! record by record, where a topic bounds it.

use base::UnixMillis;
use bytes::Bytes;

use crate::batch::BatchHeader;
use crate::decode::BatchRecords;
use crate::error::StreamsError;
use crate::topic_config::TopicSettings;

/// Refuses a batch with a record whose time lies too far from `now`.
pub(super) fn check(
    batch: &Bytes,
    header: &BatchHeader,
    settings: &TopicSettings,
    now: UnixMillis,
) -> Result<(), StreamsError> {
    let newest = header.max_timestamp.max(header.base_timestamp);
    if newest.saturating_sub(now.0) > settings.newer_ms_max {
        return Err(refused(newest, settings.newer_ms_max, "after"));
    }
    if settings.older_ms_max == i64::MAX {
        return Ok(());
    }
    for record in BatchRecords::of(batch)? {
        let time = record?.timestamp.0;
        if time != NO_TIME && now.0.saturating_sub(time) > settings.older_ms_max {
            return Err(refused(time, settings.older_ms_max, "before"));
        }
    }
    Ok(())
}

fn refused(time: i64, ms_max: i64, side: &str) -> StreamsError {
    StreamsError::InvalidTimestamp(format!(
        "{time} is more than {ms_max} ms {side} now (message.timestamp.{side}.max.ms)"
    ))
}

/// The time of a record that has none.
const NO_TIME: i64 = -1;
