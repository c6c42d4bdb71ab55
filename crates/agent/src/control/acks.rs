//! What became of operations: on record before it is owed, told until it is heard, and known
//! afterwards, so that an operation that comes again is answered and not done again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use c2::{AckState, Operation};
use serde::{Deserialize, Serialize};

use crate::limits::{KNOWN_OPERATIONS_MAX, PENDING_ACKNOWLEDGEMENTS_MAX};
use crate::supervisor::Supervisor;

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// The operation's id.
    pub(super) operation: String,
    state: String,
    pub(super) details: String,
    /// What is described with it; empty for nothing.
    #[serde(default)]
    pub(super) describes: String,
}

/// All outcomes that are not forgotten.
pub(super) struct Acks {
    supervisor: Arc<Supervisor>,
    book: Book,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Book {
    /// What is being done now; after a crash, what may be half done.
    doing: Option<Doing>,
    /// Not heard yet, in order.
    pending: VecDeque<Outcome>,
    /// Heard, the newest last.
    known: VecDeque<Outcome>,
}

/// An operation that was begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Doing {
    pub(super) operation: String,
    pub(super) words: String,
    /// The flow of an update.
    pub(super) flow_id: Option<String>,
}

impl Outcome {
    pub(super) fn new(state: AckState, details: impl Into<String>) -> Outcome {
        Outcome {
            operation: String::new(),
            state: state.as_str().to_owned(),
            details: details.into(),
            describes: String::new(),
        }
    }

    pub(super) fn describing(what: &str) -> Outcome {
        Outcome {
            describes: what.to_owned(),
            ..Outcome::new(AckState::FullyApplied, "")
        }
    }

    pub(super) fn state(&self) -> AckState {
        AckState::from(self.state.as_str())
    }
}

impl Acks {
    /// What the repository kept. An operation that was broken off by a crash is decided now.
    pub(super) fn open(supervisor: Arc<Supervisor>) -> Acks {
        let kept = supervisor.repository().state(STATE);
        let book = kept.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let mut acks = Acks {
            supervisor,
            book: book.unwrap_or_default(),
        };
        if let Some(doing) = acks.book.doing.take() {
            let outcome = acks.broken_off(&doing);
            acks.finish(&doing.operation, outcome);
        }
        acks
    }

    /// Whether the operation was done before; if so its outcome is told again.
    pub(super) fn is_known(&mut self, operation: &str) -> bool {
        let is = |outcome: &Outcome| outcome.operation == operation;
        if self.book.pending.iter().any(is) {
            return true;
        }
        let Some(index) = self.book.known.iter().position(is) else {
            return false;
        };
        if let Some(again) = self.book.known.remove(index) {
            self.owe(again);
        }
        true
    }

    /// Puts on record that an operation begins.
    pub(super) fn begin(&mut self, operation: &Operation) {
        let operand = operation.operand.as_ref().map_or("", c2::Operand::as_str);
        self.book.doing = Some(Doing {
            operation: operation.identifier.clone(),
            words: format!("{} {operand}", operation.kind),
            flow_id: operation.arg("flowId"),
        });
        self.save();
    }

    /// Puts on record what became of it.
    pub(super) fn finish(&mut self, operation: &str, mut outcome: Outcome) {
        operation.clone_into(&mut outcome.operation);
        self.book.doing = None;
        self.owe(outcome);
        self.save();
    }

    /// The oldest outcome that is not heard.
    pub(super) fn first(&self) -> Option<&Outcome> {
        self.book.pending.front()
    }

    /// The oldest one was heard.
    pub(super) fn heard(&mut self) {
        if let Some(outcome) = self.book.pending.pop_front() {
            if self.book.known.len() == KNOWN_OPERATIONS_MAX {
                self.book.known.pop_front();
            }
            self.book.known.push_back(outcome);
        }
        self.save();
    }

    fn owe(&mut self, outcome: Outcome) {
        if self.book.pending.len() == PENDING_ACKNOWLEDGEMENTS_MAX {
            self.book.pending.pop_front();
        }
        self.book.pending.push_back(outcome);
    }

    /// An update has happened if its flow is the one that runs; of others nobody can tell.
    fn broken_off(&self, doing: &Doing) -> Outcome {
        if doing.flow_id.is_some() && doing.flow_id == self.supervisor.flow_id() {
            return Outcome::new(AckState::FullyApplied, "");
        }
        let details = format!(
            "the agent ended in the middle of {}; ask again",
            doing.words.trim_end()
        );
        Outcome::new(AckState::NotApplied, details)
    }

    fn save(&self) {
        let bytes = match serde_json::to_vec(&self.book) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::error!(%error, "acknowledgements cannot be put on record");
                return;
            }
        };
        let repository = self.supervisor.repository();
        if let Err(error) = repository.save_state(STATE, Bytes::from(bytes)) {
            tracing::error!(
                error = base::report(&error),
                "acknowledgements are not on record"
            );
            self.supervisor.note_failure(error);
        }
    }
}

/// The repository's key of what became of operations.
const STATE: &str = "$operations";
