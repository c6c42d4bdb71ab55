//! Parameters at flow, class and agent level, in the database; and flows as agents fetch them.
//!
//! Sensitive values lie sealed and are shown to nobody but the agents that fetch a flow with them.
//! They are read at each fetch, so every node gives the same. A change reaches agents with the next
//! publication: an agent takes no flow twice under one id.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::UnixMillis;
use bytes::Bytes;
use metrics::counter;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::FleetError;
use crate::fleet::{Fleet, Inner, unknown_class};
use crate::flow::parameters::{self, Values};
use crate::flow::{self, FlowShape};
use crate::limits;
use crate::manifest::hex;
use crate::registry::{check_name, unknown_agent};
use crate::tables::{Found, Statement, Value};

/// Reads parameters; what is given follows the table's name.
macro_rules! parameters {
    ($rest:literal) => {
        concat!(
            "SELECT level, owner, name, is_secret, value, changed_ms FROM parameters",
            $rest
        )
    };
}

/// Whose a parameter is; a later one goes before an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Flow,
    Class,
    Agent,
}

/// A parameter as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParameterView {
    /// Its name.
    pub name: String,
    /// Its value; null when it is sensitive.
    pub value: Option<String>,
    /// Whether it is nobody's to see.
    pub sensitive: bool,
    /// When it was last set, milliseconds since 1970.
    pub changed_ms: i64,
}

/// What an operator wants of a parameter; none removes it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewParameter {
    /// Its value.
    pub value: String,
    /// Whether it is nobody's to see.
    #[serde(default)]
    pub sensitive: bool,
}

/// A flow as an agent gets it.
pub struct Fetched {
    pub text: Bytes,
    pub shape: FlowShape,
    /// SHA-256 of the text, lower-case hexadecimal.
    pub sha256: String,
}

impl Level {
    /// The word in the database.
    fn as_str(self) -> &'static str {
        match self {
            Level::Flow => "flow",
            Level::Class => "class",
            Level::Agent => "agent",
        }
    }
}

impl Fleet {
    /// The parameters of a flow, a class or an agent, by name.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn parameters(
        &self,
        level: Level,
        owner: &str,
    ) -> Result<Vec<ParameterView>, FleetError> {
        self.inner.check_owner(level, owner)?;
        let select = parameters!(" WHERE level = ? AND owner = ? ORDER BY name");
        let values = vec![level.as_str().into(), owner.into()];
        let rows = self
            .inner
            .tables
            .rows("read parameters", (select, values))
            .await?;
        let mut all = Vec::new();
        for row in &rows {
            let sensitive = row.number("is_secret")? != 0;
            let value = match sensitive {
                true => None,
                false => Some(self.inner.value_of(row)?),
            };
            all.push(ParameterView {
                name: row.text("name")?,
                value,
                sensitive,
                changed_ms: row.number("changed_ms")?,
            });
        }
        Ok(all)
    }

    /// Sets and removes parameters, all or none of them; durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::BadField`], [`FleetError::Full`], [`FleetError::Store`].
    pub(crate) async fn set_parameters(
        &self,
        level: Level,
        owner: &str,
        wanted: BTreeMap<String, Option<NewParameter>>,
    ) -> Result<Vec<ParameterView>, FleetError> {
        let inner = &self.inner;
        let _one = inner.publishing.lock().await;
        let now = inner.clock.now();
        let before = self.parameters(level, owner).await?.len();
        let added = wanted.values().flatten().count();
        if before + added > limits::PARAMETERS_MAX {
            return Err(FleetError::Full {
                what: "parameter",
                max: limits::PARAMETERS_MAX,
            });
        }
        let mut statements = Vec::new();
        for (name, new) in &wanted {
            check_name("a parameter", name)?;
            statements.push(remove(level, owner, name));
            if let Some(new) = new {
                if new.value.len() > limits::ARG_BYTES_MAX {
                    return Err(FleetError::BadField {
                        field: name.clone(),
                        reason: format!("it has more than {} bytes", limits::ARG_BYTES_MAX),
                    });
                }
                statements.push(inner.insert(level, owner, name, new, now)?);
            }
        }
        inner.tables.write("write parameters", statements).await?;
        self.parameters(level, owner).await
    }

    /// A flow as this agent gets it, `accept` being its request's header; without an agent, as it was
    /// published, with its class's parameters.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`], [`FleetError::Sealing`].
    pub(crate) async fn flow_for(
        &self,
        id: &str,
        agent: Option<&str>,
        accept: Option<&str>,
    ) -> Result<Fetched, FleetError> {
        self.inner.learn_of_flow(id, agent).await?;
        let (text, shape, sha256) = self.shaped_text(id, agent, accept).await?;
        counter!("thalweg_fleet_flows_fetched_total").increment(1);
        let as_it_is = Fetched {
            text,
            shape,
            sha256,
        };
        let values = self.inner.values_for(id, agent).await?;
        if values.is_empty() {
            return Ok(as_it_is);
        }
        let text = as_it_is.text.clone();
        let work = move || -> Result<Option<Bytes>, FleetError> {
            let (shape, mut flow) = flow::read(&text)?;
            match parameters::substitute(&mut flow, &values) {
                true => flow::write(shape, &flow).map(Some),
                false => Ok(None),
            }
        };
        // A large flow takes milliseconds to read and write.
        let done = tokio::task::spawn_blocking(work).await;
        let done = done.map_err(|error| FleetError::Broken(error.to_string()))??;
        Ok(match done {
            Some(text) => Fetched {
                sha256: hex(&Sha256::digest(&text)),
                text,
                shape,
            },
            None => as_it_is,
        })
    }
}

impl Inner {
    /// Keeps the secrets that stood in a flow's own text.
    pub(crate) async fn keep_secrets(
        &self,
        flow: &str,
        secrets: &Values,
    ) -> Result<(), FleetError> {
        if secrets.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        let mut statements = Vec::new();
        for (name, value) in secrets {
            let new = NewParameter {
                value: value.clone(),
                sensitive: true,
            };
            statements.push(self.insert(Level::Flow, flow, name, &new, now)?);
        }
        self.tables.write("write parameters", statements).await?;
        Ok(())
    }

    /// Gives a new version of a flow the parameters of an old one.
    pub(crate) async fn copy_parameters(&self, from: &str, to: &str) -> Result<(), FleetError> {
        let select = parameters!(" WHERE level = 'flow' AND owner = ?");
        let rows = self
            .tables
            .rows("read parameters", (select, vec![from.into()]))
            .await?;
        let now = self.clock.now();
        let mut statements = Vec::new();
        for row in &rows {
            let new = NewParameter {
                value: self.value_of(row)?,
                sensitive: row.number("is_secret")? != 0,
            };
            statements.push(self.insert(Level::Flow, to, &row.text("name")?, &new, now)?);
        }
        self.tables.write("copy parameters", statements).await?;
        Ok(())
    }

    /// What parameters come to for an agent that fetches a flow.
    async fn values_for(&self, flow: &str, agent: Option<&str>) -> Result<Values, FleetError> {
        let (class, agent) = {
            let registry = self.registry.lock();
            let found = agent.and_then(|id| registry.agents.get(id));
            let own = found.and_then(|agent| agent.class.clone());
            let of_flow = registry.flows.get(flow).map(|flow| flow.class.clone());
            // An agent that changed its class, or never had one, gets what the flow was made for.
            (own.or(of_flow), found.map(|agent| agent.id.clone()))
        };
        let text = |name: Option<Arc<str>>| Value::from(name.as_deref().unwrap_or_default());
        let select = parameters!(
            " WHERE (level = 'flow' AND owner = ?) OR (level = 'class' AND owner = ?)
              OR (level = 'agent' AND owner = ?)"
        );
        let marks = vec![flow.into(), text(class), text(agent)];
        let rows = self.tables.rows("read parameters", (select, marks)).await?;
        let mut found = Vec::new();
        for row in &rows {
            let level = match row.text("level")?.as_str() {
                "agent" => Level::Agent,
                "class" => Level::Class,
                _ => Level::Flow,
            };
            found.push((level, row.text("name")?, self.value_of(row)?));
        }
        found.sort_by_key(|(level, _, _)| *level);
        Ok(found
            .into_iter()
            .map(|(_, name, value)| (name, value))
            .collect())
    }

    fn check_owner(&self, level: Level, owner: &str) -> Result<(), FleetError> {
        let registry = self.registry.lock();
        match level {
            Level::Flow if !registry.flows.contains_key(owner) => Err(FleetError::Unknown {
                what: "flow",
                name: owner.to_owned(),
                list: "/api/v1/classes",
            }),
            Level::Class if !registry.classes.contains_key(owner) => Err(unknown_class(owner)),
            Level::Agent if !registry.agents.contains_key(owner) => Err(unknown_agent(owner)),
            _ => Ok(()),
        }
    }

    fn insert(
        &self,
        level: Level,
        owner: &str,
        name: &str,
        new: &NewParameter,
        now: UnixMillis,
    ) -> Result<Statement, FleetError> {
        let value = match new.sensitive {
            true => self
                .sealer
                .seal(&place(level.as_str(), owner, name), new.value.as_bytes())?,
            false => new.value.as_bytes().to_vec(),
        };
        let insert = "INSERT INTO parameters (level, owner, name, is_secret, value, changed_ms)
                      VALUES (?, ?, ?, ?, ?, ?)";
        let values = vec![
            level.as_str().into(),
            owner.into(),
            name.into(),
            i64::from(new.sensitive).into(),
            Value::from(value),
            now.0.into(),
        ];
        Ok((insert, values))
    }

    fn value_of(&self, row: &Found<'_>) -> Result<String, FleetError> {
        let stored = row.bytes("value")?;
        let bytes = match row.number("is_secret")? {
            0 => stored,
            _ => {
                let place = place(&row.text("level")?, &row.text("owner")?, &row.text("name")?);
                self.sealer.open_sealed(&place, &stored)?
            }
        };
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn remove(level: Level, owner: &str, name: &str) -> Statement {
    let text = "DELETE FROM parameters WHERE level = ? AND owner = ? AND name = ?";
    (text, vec![level.as_str().into(), owner.into(), name.into()])
}

/// Removes all parameters of an owner.
pub fn remove_all(level: Level, owner: &str) -> Statement {
    let text = "DELETE FROM parameters WHERE level = ? AND owner = ?";
    (text, vec![level.as_str().into(), owner.into()])
}

/// What a sealed value belongs to; lengths keep names with separators in them apart.
fn place(level: &str, owner: &str, name: &str) -> String {
    format!("parameter/{level}/{}/{owner}/{name}", owner.len())
}
