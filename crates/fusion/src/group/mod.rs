//! One statement run by many processes: a consumer group shares the partitions of its topic, and each
//! partition's state goes where the partition goes.
//!
//! Every partition has a machine of its own ([`share`]), so that its state can be taken from one
//! process and given to another. What a partition has come to is one transaction of the store, under
//! a name that only its latest owner may write by: the rows, and in a topic beside ([`log`]) the
//! state with the position behind the last record that it holds. Whoever gets the partition next
//! takes the name, which ends what the one before still had open and refuses it from then on, reads
//! the state and goes on at its position. So each record counts once and each row is stored once,
//! whoever dies, and whoever believes to hold a partition that it has lost ([`member`]).
//!
//! The group says who should hold a partition; that only one can write is the names' doing. Offsets
//! are committed to the group for those who look at its lag; nothing is read by them.
//!
//! Left out: sources that are no topic of the store, and targets that are none, since only those can
//! be written together with the state; windows over all partitions together, which a second
//! statement over the rows makes.

mod form;
mod log;
mod member;
mod share;

pub use member::{Member, run};

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::FusionError;
use crate::lane::Lane;
use crate::limits::GROUP_NAME_BYTES_MAX;
use crate::plan::{Backpressure, Plan, Policies, Sink, Source, Stage};
use crate::statement::GroupInfo;

/// A statement's group as this process knows it.
pub struct Group {
    name: String,
    /// The partitions that it holds.
    shares: Mutex<BTreeMap<i32, Arc<Lane>>>,
    stop: Mutex<CancellationToken>,
    /// Held by this process's part: a new one begins when the one before has ended.
    turn: tokio::sync::Mutex<()>,
}

impl Group {
    /// A group of that name in which this process does not take part yet.
    pub fn new(name: &str) -> Arc<Group> {
        Arc::new(Group {
            name: name.to_owned(),
            shares: Mutex::default(),
            stop: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// The lanes of the partitions that it holds.
    pub fn shares(&self) -> BTreeMap<i32, Arc<Lane>> {
        self.shares.lock().clone()
    }

    /// As it is shown.
    pub fn info(&self) -> GroupInfo {
        GroupInfo {
            name: self.name.clone(),
            partitions: self.shares.lock().keys().copied().collect(),
        }
    }

    /// A token that ends a new part in the group, before `parent` does.
    pub fn starts(&self, parent: &CancellationToken) -> CancellationToken {
        let token = parent.child_token();
        *self.stop.lock() = token.clone();
        token
    }

    /// Ends this process's part: what it has is written, and others get its partitions.
    pub fn stop(&self) {
        self.stop.lock().cancel();
    }

    /// What the group is called among the store's groups.
    fn consumer_group(&self) -> String {
        format!("thalweg.statement.{}", self.name)
    }

    /// The name under which a partition is written.
    fn writer(&self, partition: i32) -> String {
        format!("thalweg.statement.{}.{partition}", self.name)
    }

    /// The topic of its state.
    fn log(&self) -> String {
        format!("__thalweg_statement.{}", self.name)
    }
}

/// Refuses a statement that a group cannot run.
///
/// # Errors
/// `Refused`, and says why.
pub fn check(policies: &Policies, plan: &Plan, sinks: &[Sink]) -> Result<(), FusionError> {
    let Some(name) = &policies.group else {
        return Ok(());
    };
    let refused = |why: &str| Err(FusionError::Refused(format!("policies.group: {why}")));
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX || !name.bytes().all(is_legal) {
        return refused(&format!(
            "a name has 1 to {GROUP_NAME_BYTES_MAX} letters, digits, '.', '_' and '-'"
        ));
    }
    if !matches!(plan.sources()[..], [Source::Kafka(_)]) {
        return refused(
            "the statement has to read one topic of the event store and nothing else, since the \
             group shares that topic's partitions: bring MQTT messages into a topic by a rule",
        );
    }
    if matches!(plan.stage, Stage::Create(_)) || plan.changes().is_some() {
        return refused("a named window or table is one process's own");
    }
    if !sinks.iter().all(|sink| matches!(sink, Sink::Kafka(_))) {
        return refused(
            "its rows have to go to topics of the event store, which alone can be written \
             together with the state (INSERT INTO kafka.\"topic\"): carry them on by a topic rule \
             or a second statement",
        );
    }
    if policies.backpressure != Backpressure::Block {
        return refused("its rows are not dropped: leave out policies.backpressure");
    }
    Ok(())
}

/// How the store lists this reader.
const CLIENT_ID: &str = "thalweg-statements";
