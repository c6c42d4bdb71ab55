//! What can go wrong in the fleet, and whose fault it is.

use sql::SqlError;

/// A failure of the fleet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FleetError {
    /// A message is no C2 message; the agent's fault.
    #[error(transparent)]
    Message(#[from] c2::C2Error),
    /// A heartbeat does not say who sends it; the agent's fault.
    #[error("the heartbeat has no agentInfo.identifier: give the agent an identifier")]
    NoIdentifier,
    /// An acknowledge does not say what it is about; the agent's fault.
    #[error("the acknowledge has no operationId")]
    NoOperation,
    /// A name is too long or not printable; the caller's fault.
    #[error("'{name}' is no name for {what}: use 1 to 255 bytes without control characters")]
    BadName {
        /// An agent or a class.
        what: &'static str,
        /// The beginning of the name.
        name: String,
    },
    /// A flow that cannot be one; the caller's fault.
    #[error("the flow is not valid at {place}: {reason}")]
    BadFlow {
        /// Where, such as `Processors[2].class` or `line 3 column 7`.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// Nobody by this name; the caller's fault.
    #[error("there is no {what} '{name}': GET {list} lists what there is")]
    Unknown {
        /// Agent, class, flow or manifest.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// The path of the list.
        list: &'static str,
    },
    /// A roll-out cannot be as it is asked for; the caller's fault.
    #[error("no such roll-out: {0}")]
    BadRollout(String),
    /// A roll-out is in another state than the call needs, or was changed at the same time.
    #[error("the roll-out is {state}, so it cannot be {wish}")]
    RolloutState {
        /// Its state.
        state: &'static str,
        /// What was asked for.
        wish: &'static str,
    },
    /// A bound of `limits.rs` is reached; the operator's business.
    #[error("no room for one more {what}: there are {max} already, remove some first")]
    Full {
        /// Agent, class, manifest or flow.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// What was said could not be made durable in time; the caller may try again.
    #[error("the database did not take the change in time: try again")]
    NotStored,
    /// The database failed.
    #[error("the fleet's registry failed")]
    Store(#[from] SqlError),
    /// A row that this binary did not write.
    #[error("the registry holds a {what} that cannot be read: {value}")]
    BadRow {
        /// What the row holds.
        what: &'static str,
        /// What stands there.
        value: String,
    },
}
