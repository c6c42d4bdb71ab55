//! Records that a read took from its consumer and did not answer.
//!
//! The consumer is behind them as soon as they are taken, and a read can end in many ways before
//! they are answered: its client hangs up, the instance is deleted, the store fails at the next look.
//! So the reader notes where they begin in the same step that takes them, and whoever uses it next
//! moves it back there first: nothing is committed, noted or passed over that was not answered.
//!
//! Only offsets are kept. Where the group took a partition away meanwhile, nothing is moved: who has
//! it now begins at what is committed.

use std::collections::BTreeMap;

use streams::{ConsumedRecord, SeekTo, StreamsError, TopicName};
use uuid::Uuid;

use super::Reader;

/// The first offset of some records in each of their partitions.
pub(super) type Beginnings = BTreeMap<(TopicName, i32), i64>;

/// What a reader knows of records that it took.
#[derive(Default)]
pub(super) struct Taken {
    /// Where those begin that were not answered.
    unanswered: Beginnings,
    /// What went wrong while there were records to answer first.
    failed: Option<StreamsError>,
    /// The mark of the last read, if it had one, and where its records began.
    latest: Option<(Uuid, Beginnings)>,
}

impl Taken {
    /// Records were taken and are not answered yet.
    pub(super) fn note(&mut self, records: &[ConsumedRecord]) {
        note(&mut self.unanswered, records);
    }

    /// The reader was sent somewhere else: the last read does not come again.
    pub(super) fn moved(&mut self) {
        self.latest = None;
    }

    /// Records of a partition are read again from somewhere else.
    pub(super) fn forget(&mut self, place: &(TopicName, i32)) {
        self.unanswered.remove(place);
    }

    /// An error that came after records; the next read tells it. One that stays is found again.
    pub(super) fn fail_later(&mut self, error: StreamsError) {
        if !matches!(error, StreamsError::Unavailable(_)) {
            self.failed = Some(error);
        }
    }

    /// What the read before could not tell.
    pub(super) fn failure(&mut self) -> Option<StreamsError> {
        self.failed.take()
    }
}

impl Reader {
    /// Goes back to the first record in each partition that was taken and not answered.
    pub(super) async fn put_back(&mut self) -> Result<(), StreamsError> {
        if self.taken.unanswered.is_empty() {
            return Ok(());
        }
        let unanswered = self.taken.unanswered.clone();
        self.go_back(&unanswered).await?;
        self.taken.unanswered.clear();
        Ok(())
    }

    /// Has these records answered, and goes back to those that `left` begins with. Nothing waits
    /// after this notes that they are.
    pub(super) async fn answer(
        &mut self,
        mark: Option<Uuid>,
        answered: &[ConsumedRecord],
        left: Beginnings,
    ) {
        let gone_back = self.go_back(&left).await;
        self.taken.unanswered = match gone_back {
            Ok(()) => Beginnings::new(),
            Err(error) => {
                let error = base::report(&error);
                tracing::debug!(error, "records are put back before the next read");
                left
            }
        };
        self.taken.latest = mark.map(|mark| (mark, beginnings(&[answered])));
        self.uncommitted |= !answered.is_empty();
        if !self.sought.is_empty() {
            for record in answered {
                let place = (record.topic.clone(), record.partition);
                self.sought.remove(&place);
            }
        }
    }

    /// A read comes again whose answer was lost: its records are answered anew.
    pub(super) async fn repeat(&mut self, mark: Option<Uuid>) -> Result<(), StreamsError> {
        match self.taken.latest.take() {
            Some((latest, began)) if Some(latest) == mark => {
                self.taken.unanswered = began;
                self.put_back().await
            }
            _ => Ok(()),
        }
    }

    async fn go_back(&mut self, beginnings: &Beginnings) -> Result<(), StreamsError> {
        let consumer = self.consumer()?;
        for ((topic, partition), offset) in beginnings {
            let position = consumer.position(topic, *partition);
            if position.is_none_or(|position| position <= *offset) {
                // It begins anew, or is there already.
                continue;
            }
            let to = SeekTo::Offset(*offset);
            match consumer.seek(topic, *partition, to).await {
                Ok(()) | Err(StreamsError::NotAssigned { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Where these records begin.
pub(super) fn beginnings(parts: &[&[ConsumedRecord]]) -> Beginnings {
    let mut beginnings = Beginnings::new();
    for records in parts {
        note(&mut beginnings, records);
    }
    beginnings
}

fn note(beginnings: &mut Beginnings, records: &[ConsumedRecord]) {
    for (nth, record) in records.iter().enumerate() {
        let before = nth.checked_sub(1).and_then(|before| records.get(before));
        if before.is_some_and(|it| it.partition == record.partition && it.topic == record.topic) {
            continue;
        }
        let first = beginnings
            .entry((record.topic.clone(), record.partition))
            .or_insert(record.offset);
        *first = record.offset.min(*first);
    }
}
