//! What can go wrong in the fleet, and whose fault it is.

use sql::SqlError;

use crate::flow::check::Problem;

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
    /// A flow that the class's agents cannot run; the caller's fault.
    #[error("the flow does not fit the class's agents: {}", told(.0))]
    UnfitFlow(Vec<Problem>),
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
    /// A field of a request's body or a parameter of its address; the caller's fault.
    #[error("{field}: {reason}")]
    BadField {
        /// Its name, such as `args.file`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An agent cannot be asked for this; the caller's fault.
    #[error("the agent '{agent}' cannot be asked for this: {reason}")]
    Unsupported {
        /// The agent.
        agent: String,
        /// Why not.
        reason: String,
    },
    /// An operation is over already; the caller's fault.
    #[error("the operation {id} cannot be cancelled: it is {state}")]
    Finished {
        /// The operation.
        id: String,
        /// How it ended.
        state: &'static str,
    },
    /// Something is in use; the caller's fault.
    #[error("the {what} '{name}' cannot be removed: {reason}")]
    InUse {
        /// Resource or class.
        what: &'static str,
        /// Its id or name.
        name: String,
        /// Who uses it.
        reason: String,
    },
    /// A file is larger than its bound; the sender's fault.
    #[error("the file has more than {max} bytes")]
    TooLarge {
        /// The bound.
        max: u64,
    },
    /// A file broke off; the sender may try again.
    #[error("the file broke off: {0}")]
    Broken(String),
    /// A certificate and what its owner says do not go together; the agent's fault.
    #[error("the client's certificate is {certificate}'s, who is not to speak for {claimed}")]
    WrongCertificate {
        /// Whose it is.
        certificate: String,
        /// The agent or class that the message names.
        claimed: String,
    },
    /// The caller's roles do not reach this.
    #[error("this needs the role {role} for {place}, and there is {roles}")]
    NotAllowed {
        /// The role that it takes.
        role: access::Role,
        /// For what.
        place: String,
        /// What the caller has.
        roles: String,
    },
    /// Of another class than the caller's, or not there: it is not told which.
    #[error("there is no {what} '{name}' in the classes that are yours to see ({roles})")]
    Unseen {
        /// What was asked for.
        what: &'static str,
        /// Its id.
        name: String,
        /// What the caller has.
        roles: String,
    },
    /// A resource that is not for this agent; the agent's fault, or its class lost it meanwhile.
    #[error("the resource {resource} is not for the agent '{agent}': assign it to its class")]
    NotItsResource {
        /// Whose certificate was shown.
        agent: String,
        /// The resource.
        resource: String,
    },
    /// A flow that is not for this agent; the agent's fault, or its class was changed meanwhile.
    #[error("the flow {flow} is not for the agent '{agent}': publish it to its class")]
    NotItsFlow {
        /// Whose certificate was shown.
        agent: String,
        /// The flow.
        flow: String,
    },
    /// As many as may be are under way; the caller may try again.
    #[error("too many {what} are under way: try again")]
    Busy {
        /// Uploads or downloads.
        what: &'static str,
    },
    /// The key of what is sealed cannot be used; the operator's business.
    #[error("the key in {path} cannot be used: {reason}")]
    Key {
        /// The file.
        path: std::path::PathBuf,
        /// Why not.
        reason: String,
    },
    /// A secret cannot be sealed or opened: the key is another one, or the row was changed.
    #[error("a secret in the registry cannot be opened with this installation's key")]
    Sealing,
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

impl FleetError {
    /// A body that is not the JSON that is wanted; the caller's fault.
    pub(crate) fn of_body(error: serde_json::Error) -> FleetError {
        FleetError::BadField {
            field: "the body".to_owned(),
            reason: error.to_string(),
        }
    }
}

/// The first problems in words, and how many more there are.
fn told(problems: &[Problem]) -> String {
    let shown = problems.iter().take(PROBLEMS_SHOWN).map(|problem| {
        let place = match &problem.property {
            Some(property) => format!("{}, property '{property}'", problem.component),
            None => problem.component.clone(),
        };
        format!("{place}: {}", problem.reason)
    });
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if let Some(more) = problems
        .len()
        .checked_sub(PROBLEMS_SHOWN)
        .filter(|n| *n > 0)
    {
        text.push_str(&format!("; and {more} more"));
    }
    text
}

/// Problems that an error's text tells.
const PROBLEMS_SHOWN: usize = 5;
