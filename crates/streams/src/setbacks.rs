//! Failures of single partitions in work that passes over all of them.
//!
//! One partition that cannot be read must not keep the others from their turn: the work goes on
//! with the next one, and fails at its end.

use crate::error::StreamsError;
use crate::partition::Partition;

/// What has failed on the way.
#[derive(Debug, Default)]
pub(crate) struct Setbacks {
    first: Option<StreamsError>,
}

impl Setbacks {
    /// The outcome of one partition's turn; none when it failed. Fails when the store is closed, as
    /// no other will have a turn then.
    pub(crate) fn pass<T>(
        &mut self,
        partition: &Partition,
        outcome: Result<T, StreamsError>,
    ) -> Result<Option<T>, StreamsError> {
        match outcome {
            Ok(done) => Ok(Some(done)),
            Err(StreamsError::Closed) => Err(StreamsError::Closed),
            Err(error) => {
                let reported = base::report(&error);
                tracing::warn!(error = reported, ?partition, "left a partition out");
                self.first.get_or_insert(error);
                Ok(None)
            }
        }
    }

    /// The first failure, if there was any.
    pub(crate) fn result(self) -> Result<(), StreamsError> {
        self.first.map_or(Ok(()), Err)
    }
}
