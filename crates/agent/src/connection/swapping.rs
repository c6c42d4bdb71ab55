//! What of a long queue is written away, and what of it comes back.

use super::{Connection, Queue};
use crate::flowfile::FlowFile;
use crate::limits::{SWAP_BATCH_BYTES, SWAP_BATCH_FLOW_FILES};
use crate::repository::Swapped;

impl Connection {
    /// Whether it is long enough that a batch may have to be written away.
    pub(crate) fn may_swap(&self) -> bool {
        let threshold = self.definition.swap_threshold;
        threshold > 0 && self.count() > threshold
    }

    /// Whether there is a batch to be written away.
    pub(crate) fn is_to_swap_out(&self) -> bool {
        self.may_swap() && self.queue.lock().tail.len() >= self.batch_len()
    }

    /// Takes a batch that is to be written away, the oldest of the tail.
    pub(crate) fn batch_out(&self) -> Vec<FlowFile> {
        let mut queue = self.queue.lock();
        let mut bytes = 0;
        let is_within = |flow_file: &&FlowFile| {
            let views = flow_file.content.views().len();
            bytes += flow_file.attributes.bytes() + views * VIEW_BYTES;
            bytes <= SWAP_BATCH_BYTES
        };
        let waiting = queue.tail.iter().take(self.batch_len());
        let len = waiting.take_while(is_within).count().max(1);
        let len = len.min(queue.tail.len());
        queue.tail.drain(..len).collect()
    }

    /// A batch that could not be written away stays.
    pub(crate) fn batch_stays(&self, batch: Vec<FlowFile>) {
        let mut queue = self.queue.lock();
        for flow_file in batch.into_iter().rev() {
            queue.tail.push_front(flow_file);
        }
    }

    /// A batch was written away.
    pub(crate) fn batch_is_out(&self, swapped: Swapped) {
        self.queue.lock().swapped.push_back(swapped);
    }

    /// Whether a batch must come back before anything can be taken.
    pub(crate) fn is_to_swap_in(&self) -> bool {
        let queue = self.queue.lock();
        queue.ready.is_empty() && !queue.swapped.is_empty()
    }

    /// The batch that comes back next.
    pub(crate) fn next_swapped(&self) -> Option<(journal::Position, u64, u64)> {
        let queue = self.queue.lock();
        let next = queue.swapped.front()?;
        Some((next.position, next.count, next.bytes))
    }

    /// The oldest batch is back, as far as it could be read.
    pub(crate) fn batch_is_in(&self, flow_files: Vec<FlowFile>) {
        let mut queue = self.queue.lock();
        if let Some(swapped) = queue.swapped.pop_front() {
            self.remove(swapped.count as usize, swapped.bytes);
        }
        self.add(
            flow_files.len(),
            flow_files.iter().map(FlowFile::size).sum(),
        );
        queue.ready.extend(flow_files);
        queue.is_unordered = true;
    }

    /// FlowFiles of one batch: as many as a short queue would hold.
    fn batch_len(&self) -> usize {
        let threshold = usize::try_from(self.definition.swap_threshold).unwrap_or(usize::MAX);
        threshold.clamp(1, SWAP_BATCH_FLOW_FILES)
    }

    pub(super) fn is_to_wait(&self, queue: &Queue) -> bool {
        let threshold = self.definition.swap_threshold;
        threshold > 0
            && (!queue.swapped.is_empty()
                || !queue.tail.is_empty()
                || queue.ready.len() as u64 >= threshold)
    }
}

/// Bytes of one view in a frame, about.
const VIEW_BYTES: usize = 24;
