//! Two nodes' views of one agent or operation become one, the same whoever joins them.
//!
//! An operation's id is made from its agent, what it is about and the operation for the same before
//! it: two nodes that make the operation for one intent at once give it one id.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::agent::Agent;
use crate::events::Event;
use crate::operation::{FleetOperation, OperationStatus};
use crate::rivalry::Caller;

impl Agent {
    /// Takes over what another node wrote of this agent, where that node heard it later; an event
    /// when that shows two who call by its identifier.
    pub fn join(&mut self, other: &Agent) -> Option<Event> {
        let mut event = None;
        let is_newer = other.last_seen > self.last_seen;
        if other.given_seq() > self.given_seq() {
            self.given.clone_from(&other.given);
            self.class.clone_from(&other.class);
        } else if is_newer && other.given_seq() == self.given_seq() {
            self.class.clone_from(&other.class);
        }
        // What a hash stands for is known where it was described, whatever was heard elsewhere since.
        let takes_manifest = match (self.mark == other.mark, &self.manifest, &other.manifest) {
            (true, None, Some(_)) => true,
            (true, Some(_), None) => false,
            _ => is_newer,
        };
        if takes_manifest {
            self.mark = other.mark;
            self.manifest.clone_from(&other.manifest);
        }
        if is_newer {
            self.hostname.clone_from(&other.hostname);
            let before = Caller {
                device: std::mem::replace(&mut self.device, other.device.clone()),
                ..Caller::default()
            };
            // Rows tell the device alone.
            event = self.note_caller(before, other.last_seen);
            self.flow.clone_from(&other.flow);
        }
        if self.interval_ms == 0 {
            self.interval_ms = other.interval_ms;
        }
        self.first_seen = self.first_seen.min(other.first_seen);
        self.last_seen = self.last_seen.max(other.last_seen);
        self.row_seen = self.row_seen.max(other.row_seen);
        self.heartbeats = self.heartbeats.max(other.heartbeats);
        event
    }
}

impl FleetOperation {
    /// Takes over what another node knows better: an answer, then an end, then the later attempt,
    /// then the later time.
    pub fn join(&mut self, other: &FleetOperation) {
        if rank(other) > rank(self) {
            self.status = other.status;
            self.updated = other.updated;
            self.acknowledged = other.acknowledged;
            self.details.clone_from(&other.details);
        }
        self.handed_out = self.handed_out.max(other.handed_out);
        self.attempts = self.attempts.max(other.attempts);
        self.stored |= other.stored;
    }
}

fn rank(operation: &FleetOperation) -> (bool, bool, u32, i64, &str) {
    let is_over = matches!(
        operation.status,
        OperationStatus::Done | OperationStatus::Failed | OperationStatus::Cancelled
    );
    (
        operation.acknowledged,
        is_over,
        operation.attempts,
        operation.updated.0,
        operation.status.as_str(),
    )
}

/// The id of the operation that brings `agent` to `about`, after `before` for the same.
pub fn operation_id(agent: &str, about: &str, before: Option<&str>) -> Arc<str> {
    let mut digest = Sha256::new();
    for part in [agent, about, before.unwrap_or_default()] {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    let id = uuid::Builder::from_random_bytes(bytes).into_uuid();
    Arc::from(id.to_string())
}

#[cfg(test)]
mod tests {
    use base::{Rng, UnixMillis};
    use c2::{Operand, OperationKind};

    use super::*;

    fn random(rng: &mut Rng) -> FleetOperation {
        let mut operation = FleetOperation::new(
            Arc::from("op"),
            OperationKind::Update,
            Operand::Configuration,
            None,
            UnixMillis(0),
        );
        let states = [
            "queued",
            "deployed",
            "done",
            "failed",
            "timed_out",
            "cancelled",
        ];
        operation.status = states[rng.below(6) as usize].parse().unwrap();
        operation.updated = UnixMillis(rng.below(3) as i64);
        operation.attempts = rng.below(3) as u32;
        operation.acknowledged = rng.below(2) == 1;
        operation.handed_out = Some(UnixMillis(rng.below(3) as i64));
        operation
    }

    fn shown(operation: &FleetOperation) -> String {
        format!("{operation:?}")
    }

    #[test]
    fn who_joins_first_makes_no_difference() {
        let mut rng = Rng::from_seed(7);
        for _ in 0..5_000 {
            let (a, b, c) = (random(&mut rng), random(&mut rng), random(&mut rng));
            let joined = |mut one: FleetOperation, others: [&FleetOperation; 2]| {
                others.into_iter().for_each(|other| one.join(other));
                one
            };
            let one = joined(a.clone(), [&b, &c]);
            assert_eq!(
                shown(&one),
                shown(&joined(one.clone(), [&a, &b])),
                "{a:?} {b:?} {c:?}"
            );
            let acknowledged = [&a, &b, &c].iter().any(|op| op.acknowledged);
            assert_eq!(one.acknowledged, acknowledged, "an answer is never lost");
        }
    }

    #[test]
    fn one_intent_has_one_id() {
        let first = operation_id("agent", "flow", None);
        assert_eq!(first, operation_id("agent", "flow", None));
        assert_ne!(first, operation_id("agent", "flow", Some(&first)));
        assert_ne!(operation_id("a", "bc", None), operation_id("ab", "c", None));
        assert!(uuid::Uuid::parse_str(&first).is_ok());
    }
}
