//! Writing under a name, as a caller may.

use access::Operation;
use async_trait::async_trait;

use super::Caller;
use crate::error::StreamsError;
use crate::event_store::{Placed, ProduceBatch};
use crate::fenced::FencedWriter;

/// A writer whose every call asks what its caller may write, and for room within its quotas.
pub(super) struct WriterAsCaller {
    pub(super) writer: Box<dyn FencedWriter>,
    pub(super) caller: Caller,
}

#[async_trait]
impl FencedWriter for WriterAsCaller {
    async fn store(&mut self, batches: Vec<ProduceBatch>) -> Result<Vec<Placed>, StreamsError> {
        for batch in &batches {
            self.caller.check_topic(Operation::Write, &batch.topic)?;
        }
        let admitted = self.caller.admit(&batches).await?;
        let placed = self.writer.store(batches).await?;
        admitted.stored();
        Ok(placed)
    }
}
