//! Does what the control plane asks, and says truthfully what became of it.

use std::sync::Arc;

use c2::{AckState, Operand, Operation, OperationKind};
use serde_json::Value;

use super::ControlConfig;
use super::acks::Outcome;
use super::link::{Link, control_error};
use super::report::METRICS;
use crate::AgentError;
use crate::assets::{Asset, Assets, Wanted};
use crate::limits::FLOW_TEXT_BYTES_MAX;
use crate::properties::{Change, Told};
use crate::supervisor::{Stop, Supervisor, Updated};

/// What is to be done when the acknowledgement has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    /// A whole heartbeat at once.
    Beat,
    /// The agent starts anew.
    Restart,
}

/// What became of an operation, and what comes after it.
pub(super) type Done = (Outcome, Then);

/// What operations are done with.
pub(super) struct Hands {
    pub(super) config: ControlConfig,
    pub(super) link: Link,
    pub(super) supervisor: Arc<Supervisor>,
    pub(super) assets: Arc<Assets>,
    pub(super) told: Arc<Told>,
}

impl Hands {
    /// Does one operation.
    pub(super) async fn perform(&self, operation: &Operation) -> Done {
        let done = self.attempt(operation).await;
        let (outcome, then) = done.unwrap_or_else(|error| {
            let outcome = Outcome::new(AckState::NotApplied, base::report(&error));
            (outcome, Then::Nothing)
        });
        tracing::info!(
            operation = operation.kind.as_str(),
            operand = operation.operand.as_ref().map(Operand::as_str),
            id = operation.identifier,
            state = outcome.state().as_str(),
            details = outcome.details,
            "operation of the control plane"
        );
        (outcome, then)
    }

    async fn attempt(&self, operation: &Operation) -> Result<Done, AgentError> {
        use Operand as Of;
        use OperationKind as Do;
        let updated = |updated: Updated| (plain(updated, "it is so already"), Then::Nothing);
        match (&operation.kind, &operation.operand) {
            (Do::Heartbeat, _) => Ok((applied(""), Then::Beat)),
            (Do::Unknown(word), _) if word.eq_ignore_ascii_case("acknowledge") => {
                let nothing =
                    Outcome::new(AckState::NoOperation, "there is nothing to acknowledge");
                Ok((nothing, Then::Nothing))
            }
            (Do::Describe, Some(what)) => Ok((describe(what, operation), Then::Nothing)),
            (Do::Update, Some(Of::Configuration)) => {
                let same = "the flow runs already";
                Ok((plain(self.update(operation).await?, same), Then::Nothing))
            }
            (Do::Update, Some(Of::Asset)) => {
                let same = "the file is there already; forceDownload fetches it again";
                Ok((plain(self.asset(operation).await?, same), Then::Nothing))
            }
            (Do::Update, Some(Of::Properties)) => self.properties(operation),
            (Do::Update, Some(Of::Unknown(word))) if word.eq_ignore_ascii_case("c2") => {
                self.properties(operation)
            }
            (Do::Sync, Some(Of::Resource)) => Ok((self.sync(operation).await?, Then::Nothing)),
            (Do::Transfer, Some(Of::Debug)) => {
                self.transfer(operation).await?;
                Ok((applied(""), Then::Nothing))
            }
            (Do::Restart, _) => Ok((applied(""), Then::Restart)),
            (Do::Start, operand) => {
                let what = Component::of(operand.as_ref(), operation)?;
                self.with_flow(move |flow| what.start(flow))
                    .await
                    .map(updated)
            }
            (Do::Stop, operand) => {
                let what = Component::of(operand.as_ref(), operation)?;
                self.with_flow(move |flow| what.stop(flow))
                    .await
                    .map(updated)
            }
            (Do::Pause, _) => self.with_flow(|flow| flow.pause(true)).await.map(updated),
            (Do::Resume, _) => self.with_flow(|flow| flow.pause(false)).await.map(updated),
            (Do::Clear, Some(what)) => Ok((self.clear(what, operation).await?, Then::Nothing)),
            _ => Ok((not_understood(operation), Then::Nothing)),
        }
    }

    /// Fetches a flow and has it run.
    async fn update(&self, operation: &Operation) -> Result<Updated, AgentError> {
        let flow_id = operation.arg("flowId");
        let text = match operation.arg("configuration_data") {
            Some(inline) if inline.len() <= FLOW_TEXT_BYTES_MAX => inline,
            Some(_) => {
                let reason =
                    format!("a flow of more than {FLOW_TEXT_BYTES_MAX} bytes is not taken");
                return Err(AgentError::Refused(reason));
            }
            None => {
                let names = ["flowUrl", "location", "relativeFlowUrl"];
                let url = self.link.address(&address(operation, &names)?);
                self.link
                    .text(&url, FLOW_FORMATS, FLOW_TEXT_BYTES_MAX)
                    .await?
            }
        };
        self.with_flow(move |flow| flow.update(flow_id, &text))
            .await
    }

    async fn asset(&self, operation: &Operation) -> Result<Updated, AgentError> {
        let file = argument(operation, "file")?;
        let url = address(operation, &["url", "relativeUrl"])?;
        let digest = operation.arg("digest");
        let kind = operation
            .arg("hashType")
            .unwrap_or_else(|| "SHA-256".to_owned());
        let asset = Asset {
            file: &file,
            url: &url,
            digest: digest.as_deref().map(|digest| (digest, kind.as_str())),
        };
        let is_forced = operation
            .arg("forceDownload")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let wait = self.config.asset_wait;
        self.assets.fetch(&self.link, asset, is_forced, wait).await
    }

    async fn sync(&self, operation: &Operation) -> Result<Outcome, AgentError> {
        let args = serde_json::to_value(&operation.args)
            .map_err(|error| control_error("read the list of assets", error))?;
        if args.get("resourceList").is_none() {
            let reason = "the operation names no resourceList".to_owned();
            return Err(AgentError::Refused(reason));
        }
        let wanted: Wanted = serde_json::from_value(args)
            .map_err(|error| control_error("read the list of assets", error))?;
        let wait = self.config.asset_wait;
        let synced = self.assets.sync(&self.link, &wanted, wait).await?;
        let state = match (synced.failed.is_empty(), synced.changed) {
            (true, 0) => AckState::NoOperation,
            (true, _) => AckState::FullyApplied,
            (false, 0) => AckState::NotApplied,
            (false, _) => AckState::PartiallyApplied,
        };
        Ok(Outcome::new(state, synced.failed.join("; ")))
    }

    /// Settings take effect by a start of the agent; only those with which it can start are taken.
    fn properties(&self, operation: &Operation) -> Result<Done, AgentError> {
        let mut refused = Vec::new();
        let mut changes = Vec::new();
        let policy = self.supervisor.update_policy()?;
        for (key, value) in &operation.args {
            let mut change = change_of(key, value);
            change.persists &= policy.as_ref().is_none_or(|policy| policy.persists);
            if policy.as_ref().is_some_and(|policy| !policy.allows(key)) {
                refused.push(format!("the flow does not let {key} be changed"));
            } else if self.told.decided.contains(&key.as_str()) {
                refused.push(format!("{key} is set on the agent's command line"));
            } else if let Err(error) = self.told.check(std::slice::from_ref(&change)) {
                refused.push(base::report(&error));
            } else if self.told.differs(&change) {
                changes.push(change);
            }
        }
        if changes.is_empty() {
            let state = match refused.is_empty() {
                true => AckState::NoOperation,
                false => AckState::NotApplied,
            };
            return Ok((Outcome::new(state, refused.join("; ")), Then::Nothing));
        }
        // Each may be good alone and all of them together not.
        self.told.check(&changes)?;
        self.told.record(&changes)?;
        let state = match refused.is_empty() {
            true => AckState::FullyApplied,
            false => AckState::PartiallyApplied,
        };
        Ok((Outcome::new(state, refused.join("; ")), Then::Restart))
    }

    async fn transfer(&self, operation: &Operation) -> Result<(), AgentError> {
        let url = self
            .link
            .address(&address(operation, &["target", "relativeTarget"])?);
        let (supervisor, told) = (Arc::clone(&self.supervisor), Arc::clone(&self.told));
        let made = tokio::task::spawn_blocking(move || crate::bundle::make(&supervisor, &told));
        let bundle = made
            .await
            .map_err(|error| control_error("make a debug bundle", error))??;
        self.link.upload(&url, crate::bundle::NAME, &bundle).await
    }

    async fn clear(&self, what: &Operand, operation: &Operation) -> Result<Outcome, AgentError> {
        let names = names(operation);
        if names.is_empty() && *what != Operand::Repositories && *what != Operand::Repository {
            let reason = format!("the operation names nothing of kind {what} to clear");
            return Err(AgentError::Refused(reason));
        }
        let cleared = |count: u64| match count {
            0 => Outcome::new(AckState::NoOperation, "nothing was queued"),
            count => applied(&format!("{count} FlowFiles were dropped")),
        };
        match what {
            Operand::Connection => {
                let count = self.with_flow(move |flow| flow.clear(&names)).await?;
                Ok(cleared(count))
            }
            Operand::Repositories | Operand::Repository => {
                let count = self.with_flow(Supervisor::clear_all).await?;
                Ok(cleared(count))
            }
            Operand::CoreComponentState => {
                self.with_flow(move |flow| flow.clear_state(&names)).await?;
                Ok(applied(""))
            }
            _ => Ok(not_understood(operation)),
        }
    }

    /// Changes of a flow wait for its processors, so they have a thread of their own.
    async fn with_flow<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Supervisor) -> Result<T, AgentError> + Send + 'static,
    ) -> Result<T, AgentError> {
        let supervisor = Arc::clone(&self.supervisor);
        tokio::task::spawn_blocking(move || work(&supervisor))
            .await
            .map_err(|error| control_error("change the flow", error))?
    }
}

/// What START and STOP are about.
enum Component {
    Flow,
    Processor(String),
}

impl Component {
    /// The word flow, or C++'s FlowController; a processor by argument or, as older C++ agents
    /// are asked, as the operand itself.
    fn of(operand: Option<&Operand>, operation: &Operation) -> Result<Component, AgentError> {
        match operand {
            Some(Operand::Flow) | None => Ok(Component::Flow),
            Some(Operand::Unknown(word)) if word.eq_ignore_ascii_case("FlowController") => {
                Ok(Component::Flow)
            }
            Some(Operand::Processor) => {
                Ok(Component::Processor(argument(operation, "processorId")?))
            }
            Some(Operand::Unknown(word)) if word.eq_ignore_ascii_case("c2") => {
                Err(AgentError::Refused(
                    "an agent that stopped its calls could not be asked to begin again".to_owned(),
                ))
            }
            Some(other) => Ok(Component::Processor(other.as_str().to_owned())),
        }
    }

    fn start(self, flow: &Supervisor) -> Result<Updated, AgentError> {
        match self {
            Component::Flow => flow.start_for(Stop::Operator),
            Component::Processor(name) => flow.set_processor(&name, true),
        }
    }

    fn stop(self, flow: &Supervisor) -> Result<Updated, AgentError> {
        match self {
            Component::Flow => Ok(flow.stop_for(Stop::Operator)),
            Component::Processor(name) => flow.set_processor(&name, false),
        }
    }
}

fn describe(what: &Operand, operation: &Operation) -> Outcome {
    match what {
        Operand::Manifest
        | Operand::Configuration
        | Operand::Jstack
        | Operand::CoreComponentState => Outcome::describing(what.as_str()),
        Operand::Metrics => match operation
            .arg("metricsClass")
            .filter(|class| !class.is_empty())
        {
            None => Outcome::describing("metrics"),
            Some(class) if METRICS.contains(&class.as_str()) => {
                Outcome::describing(&format!("metrics {class}"))
            }
            Some(class) => {
                let known = METRICS.join(", ");
                let details = format!("there is no metrics class '{class}'; there are {known}");
                Outcome::new(AckState::NotApplied, details)
            }
        },
        _ => not_understood(operation),
    }
}

fn applied(details: &str) -> Outcome {
    Outcome::new(AckState::FullyApplied, details)
}

fn plain(updated: Updated, same: &str) -> Outcome {
    match updated {
        Updated::Applied => applied(""),
        Updated::Same => Outcome::new(AckState::NoOperation, same),
    }
}

fn not_understood(operation: &Operation) -> Outcome {
    let operand = operation.operand.as_ref().map_or("", Operand::as_str);
    let details = format!("{} {operand} is not supported", operation.kind.as_str());
    Outcome::new(AckState::OperationNotUnderstood, details)
}

fn argument(operation: &Operation, name: &str) -> Result<String, AgentError> {
    let found = operation.arg(name).filter(|value| !value.is_empty());
    found.ok_or_else(|| AgentError::Refused(format!("the operation names no {name}")))
}

/// The first address that the operation names.
fn address(operation: &Operation, names: &[&str]) -> Result<String, AgentError> {
    let found = names.iter().filter_map(|name| operation.arg(name));
    let mut filled = found.filter(|url| !url.is_empty());
    filled.next().ok_or_else(|| {
        AgentError::Refused(format!("the operation names no {}", names.join(" and no ")))
    })
}

/// The names that CLEAR brings: texts, one by one or in lists.
fn names(operation: &Operation) -> Vec<String> {
    let mut names = Vec::new();
    for value in operation.args.values() {
        match value {
            Value::String(name) if !name.is_empty() => names.push(name.clone()),
            Value::Array(all) => {
                names.extend(all.iter().filter_map(|v| v.as_str().map(str::to_owned)))
            }
            _ => {}
        }
    }
    names
}

/// A text lasts; `{"value": …, "persist": false}` is for the next start alone.
fn change_of(key: &str, value: &Value) -> Change {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let persists = match value.get("persist") {
        Some(Value::Bool(persists)) => *persists,
        Some(Value::String(persists)) => persists.eq_ignore_ascii_case("true"),
        _ => true,
    };
    Change {
        key: key.to_owned(),
        value: text(value.get("value").unwrap_or(value)),
        persists,
    }
}

/// What a flow may come as.
const FLOW_FORMATS: &str = "application/json, text/yml, application/vnd.minifi-c2+yaml;version=2";
