//! Operations that wait for their turn, and the one that is being done.

use std::collections::VecDeque;
use std::sync::Arc;

use c2::{AckState, Operation};
use tokio::task::JoinSet;

use super::acks::{Acks, Outcome};
use super::operations::{Done, Hands, Then};
use crate::limits::PENDING_ACKNOWLEDGEMENTS_MAX;

/// What was asked and is not done yet. Dropping it breaks off what is being done.
#[derive(Default)]
pub(super) struct Work {
    /// In the order in which it was asked; the first one is being done when there is a task.
    asked: VecDeque<Operation>,
    task: JoinSet<Done>,
}

impl Work {
    /// Takes an operation in, unless it waits or is being done already.
    pub(super) fn ask(&mut self, operation: Operation) {
        let id = &operation.identifier;
        let is_it = |known: &Operation| match id.is_empty() {
            true => *known == operation,
            false => known.identifier == *id,
        };
        // What is too much now is asked for again.
        if self.asked.len() < PENDING_ACKNOWLEDGEMENTS_MAX && !self.asked.iter().any(is_it) {
            self.asked.push_back(operation);
        }
    }

    /// Begins the next operation, if none is being done.
    pub(super) fn begin(&mut self, hands: &Arc<Hands>, acks: &mut Acks) {
        let Some(operation) = self.asked.front().filter(|_| self.task.is_empty()) else {
            return;
        };
        if !operation.identifier.is_empty() {
            acks.begin(operation);
        }
        let (hands, operation) = (Arc::clone(hands), operation.clone());
        self.task
            .spawn(async move { hands.perform(&operation).await });
    }

    /// Waits for the end of what is being done, for ever if that is nothing, and puts on record what
    /// became of it; what has no id is not acknowledged.
    pub(super) async fn end(&mut self, acks: &mut Acks) -> Then {
        let Some(ended) = self.task.join_next().await else {
            return std::future::pending().await;
        };
        let (outcome, then) = ended.unwrap_or_else(|error| {
            let details = format!("the operation broke off: {error}");
            (Outcome::new(AckState::NotApplied, details), Then::Nothing)
        });
        if let Some(operation) = self.asked.pop_front()
            && !operation.identifier.is_empty()
        {
            acks.finish(&operation.identifier, outcome);
        }
        then
    }
}
