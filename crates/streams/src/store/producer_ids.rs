//! Producer ids, each given once.

use journal::Frame;

use super::Streams;
use crate::error::StreamsError;
use crate::frames::VERSION;
use crate::limits::PRODUCER_ID_BLOCK;
use crate::partition::storage;

/// Producer ids: given, and those that the disk knows to be given.
#[derive(Debug)]
pub(super) struct ProducerIds {
    next: i64,
    /// Up to here the disk knows that ids were given.
    reserved: i64,
    /// Up to here it is about to know; a snapshot must not fall behind a frame that it hides.
    pub(super) promised: i64,
}

impl ProducerIds {
    /// The ids from `next` on are free.
    pub(super) fn starting_at(next: i64) -> Self {
        ProducerIds {
            next,
            reserved: next,
            promised: next,
        }
    }

    fn take(&mut self) -> Option<i64> {
        if self.next >= self.reserved {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }
}

impl Streams {
    /// A producer id that nobody had before and nobody will get again.
    pub async fn next_producer_id(&self) -> Result<i64, StreamsError> {
        if let Some(id) = self.producer_ids.lock().take() {
            return Ok(id);
        }
        let _alone = self.reserving.lock().await;
        loop {
            let reserved = {
                let mut ids = self.producer_ids.lock();
                if let Some(id) = ids.take() {
                    return Ok(id);
                }
                ids.promised = ids.reserved + PRODUCER_ID_BLOCK;
                ids.promised
            };
            self.reserve_producer_ids(reserved).await?;
            self.producer_ids.lock().reserved = reserved;
        }
    }

    async fn reserve_producer_ids(&self, up_to: i64) -> Result<(), StreamsError> {
        let next_partition = self.topics.read().next_partition;
        let (kind, payload) = self.standing(next_partition, up_to).encode();
        let parts: [&[u8]; 1] = [&payload];
        let frame = Frame {
            kind,
            version: VERSION,
            parts: &parts,
        };
        let frames = [frame];
        let appended = self
            .shared
            .journal
            .append_wait(&frames, journal::Durability::Disk);
        appended.await.map(drop).map_err(storage)
    }
}
