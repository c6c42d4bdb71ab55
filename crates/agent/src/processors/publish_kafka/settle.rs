//! What becomes of a round that was sent.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::round::{Pending, Round};
use super::state::{Doubt, Place, to_bytes};
use super::{FAILURE, PublishKafka, SUCCESS};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::kafka::Outcome;
use crate::processors::ProcessorError;
use crate::session::ProcessSession;

/// What is to be done about batches that are not settled by one try.
#[derive(Default)]
struct Trouble {
    /// Partitions in which a batch was refused: those behind it have other sequences now.
    gaps: HashSet<Place>,
    /// Partitions in which a batch is to be sent again, and with it all behind it.
    open: HashSet<Place>,
    is_unsequenced: bool,
    is_out_of_step: bool,
    reason: Option<String>,
}

impl PublishKafka {
    /// Takes the answers to a round and sends again what is neither stored nor refused, until all
    /// of it is or the processor is stopped; then its session is committed. The round behind it
    /// stays in doubt, with other sequences where that is needed, which it never is when this one
    /// was stored at once: only then it may have been sent already.
    pub(super) fn settle(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        mut round: Round,
        mut behind: Option<&mut Round>,
    ) -> Result<(), ProcessorError> {
        let mut none = Round::default();
        let mut pause = RETRY_FIRST;
        let mut said: Option<Instant> = None;
        let mut trouble = Trouble::default();
        let mut is_renumbered = false;
        while !round.pending.is_empty() {
            if !round.is_sent() {
                self.pack_again(session, &mut round)?;
                self.send(context, &mut round);
            }
            self.take_answers(context, &mut round);
            trouble = Trouble {
                gaps: trouble.gaps,
                ..Trouble::default()
            };
            for (batch, outcome) in round.judged() {
                let left = self.judge(context, session, batch, outcome, &mut trouble);
                round.pending.extend(left);
            }
            if round.pending.is_empty() {
                break;
            }
            if trouble.open.is_empty() {
                // What is left only waited for what is settled now.
                continue;
            }
            let reason = trouble.reason.take().unwrap_or_default();
            if trouble.is_unsequenced {
                context.post(
                    Level::Warning,
                    &format!(
                        "the broker lost this producer's sequence ({reason}); a new producer \
                              sends the batch again, so its records may be there twice"
                    ),
                );
                self.state().producer = None;
            }
            if trouble.is_unsequenced || trouble.is_out_of_step {
                trouble.gaps.clear();
                is_renumbered = true;
                let behind = behind.as_deref_mut().unwrap_or(&mut none);
                if let Err(error) = self.record(context, session, &mut round, behind) {
                    // What is in doubt has no sequences of a new producer yet.
                    self.state().producer = None;
                    return Err(error);
                }
                continue;
            }
            if said.is_none_or(|said| said.elapsed() >= SAID_AGAIN) {
                said = Some(Instant::now());
                context.post(
                    Level::Warning,
                    &format!("not sent yet, trying again: {reason}"),
                );
            }
            if !context.sleep(pause) {
                // Stopped: what is left stays in doubt, on record, and in its queue.
                return Err(ProcessorError::Failed(
                    "stopped while a batch was in doubt".to_owned(),
                ));
            }
            pause = (pause * 2).min(RETRY_MAX);
            for batch in &round.pending {
                self.cluster.forget(&batch.doubt.topic);
            }
        }
        self.end_doubt(session, behind.as_deref())?;
        match behind {
            // Not sent yet, so that it may have other sequences.
            Some(behind) if is_renumbered || !trouble.gaps.is_empty() => {
                self.record(context, session, &mut none, behind)?;
                self.pack_again(session, behind)
            }
            _ => Ok(()),
        }
    }

    /// Commits a settled round; what is in doubt after it is what stands behind it.
    fn end_doubt(
        &mut self,
        session: &mut ProcessSession<'_>,
        behind: Option<&Round>,
    ) -> Result<(), ProcessorError> {
        let is_recorded = self.acks != 0;
        let behind = behind.filter(|_| is_recorded);
        let pending = behind.into_iter().flat_map(|behind| &behind.pending);
        let doubt: Vec<Doubt> = pending.map(|batch| batch.doubt.clone()).collect();
        let state = self.state();
        let doubt = std::mem::replace(&mut state.doubt, doubt);
        let stored = std::mem::take(&mut state.stored);
        // Without acknowledgement there may be a doubt on record from when there was one.
        let is_changed = is_recorded || !doubt.is_empty();
        let bytes = is_changed.then(|| to_bytes(state));
        let noted = bytes.map_or(Ok(()), |bytes| session.set_state(bytes));
        let ended = noted.and_then(|()| session.commit_lazily());
        if ended.is_err() {
            // The FlowFiles are still in their queue: those that are stored are not sent again.
            let state = self.state();
            state.doubt = doubt;
            state.stored = stored;
        }
        ended
    }

    /// What one answer means for its batch, which comes back if it is to be sent again.
    fn judge(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        mut batch: Pending,
        outcome: Outcome,
        trouble: &mut Trouble,
    ) -> Option<Pending> {
        let place = batch.place();
        if trouble.open.contains(&place) && outcome != Outcome::Waits {
            // Whatever was said to it: the broker knows it again when it has it.
            batch.is_tried = true;
            return Some(batch);
        }
        match outcome {
            Outcome::Stored => {
                self.state().advance(&place, batch.next_sequence());
                self.state().stored.extend(&batch.doubt.runs);
                session.transfer_all(batch.flow_files, SUCCESS);
                return None;
            }
            Outcome::Refused(reason) => {
                let (topic, partition) = &place;
                let count = batch.flow_files.len();
                context.post(
                    Level::Error,
                    &format!("{topic}-{partition} refused {count} records: {reason}"),
                );
                // Another batch with the sequences of one that may be stored would be taken for it.
                match batch.is_tried {
                    true => self.state().advance(&place, batch.next_sequence()),
                    false => drop(trouble.gaps.insert(place)),
                }
                session.transfer_all(batch.flow_files, FAILURE);
                return None;
            }
            Outcome::Unsequenced(_) if trouble.gaps.contains(&place) => {
                trouble.is_out_of_step = true;
            }
            Outcome::Unsequenced(reason) => {
                trouble.is_unsequenced = true;
                trouble.reason = Some(reason);
            }
            Outcome::Retry(reason) => trouble.reason = Some(reason),
            Outcome::Waits => return Some(batch),
        }
        trouble.open.insert(place);
        batch.is_tried = true;
        Some(batch)
    }
}

/// First pause before a batch is tried again.
const RETRY_FIRST: Duration = Duration::from_millis(100);

/// Longest pause before a batch is tried again: so long what waits stands still when the broker is
/// back.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How often people are told that a broker is away.
const SAID_AGAIN: Duration = Duration::from_secs(5);
