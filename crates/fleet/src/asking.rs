//! Operators' operations: from the management API to the registry, durable before they are answered,
//! and from the registry to the agents.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use base::UnixMillis;
use c2::{Operand, Operation, OperationKind};
use metrics::counter;
use serde_json::Value as Json;
use sql::SqlError;

use crate::capability::Profile;
use crate::error::FleetError;
use crate::fleet::{Fleet, Inner, Reached, unknown_class};
use crate::limits;
use crate::progress::unknown_request;
use crate::registry::{Handout, unknown_operation};
use crate::request::{Request, Target};
use crate::rights::Rights;
use crate::seal::Sealer;
use crate::shape::{self, Place, Wanted};
use crate::showing::view;
use crate::tables::{Found, Statement, Tables, Value};
use crate::views::{AskedView, OperationView, RefusedView};

/// Reads requests; what is given follows the table's name.
macro_rules! requests {
    ($rest:literal) => {
        concat!(
            "SELECT id, scope, target, operation, operand, args, at_once, created_ms FROM operation_requests",
            $rest
        )
    };
}

/// The requests' tables. Arguments lie sealed: among them are properties with passwords.
#[derive(Debug)]
pub struct Requests {
    tables: Tables,
    sealer: Arc<Sealer>,
}

impl Requests {
    /// The requests in these tables.
    pub fn new(tables: Tables, sealer: Arc<Sealer>) -> Requests {
        Requests { tables, sealer }
    }

    /// Reads all of them; those that cannot be handed out are left out.
    pub async fn all(&self) -> Result<Vec<Request>, FleetError> {
        let mut requests = Vec::new();
        let rows = self
            .tables
            .rows("read the requests", (requests!(""), vec![]))
            .await?;
        for row in rows {
            match self.request(&row) {
                Ok(request) => requests.push(request),
                // Under another key than this one: its operations cannot be handed out.
                Err(FleetError::Sealing) => {
                    tracing::error!(request = row.text("id")?, "{}", FleetError::Sealing);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(requests)
    }

    /// One request, which another node may have made.
    pub async fn find(&self, id: &str) -> Result<Option<Request>, FleetError> {
        let text = requests!(" WHERE id = ?");
        let rows = self
            .tables
            .rows("read a request", (text, vec![id.into()]))
            .await?;
        rows.first().map(|row| self.request(row)).transpose()
    }

    /// Writes a request, and removes old ones: durable when this returns.
    async fn add(&self, request: &Request, gone: &[Arc<str>]) -> Result<(), FleetError> {
        let args = serde_json::to_vec(&request.args).unwrap_or_default();
        let sealed = self.sealer.seal(&owner_of(&request.id), &args)?;
        let mut statements: Vec<Statement> = gone.iter().map(|id| delete(id)).collect();
        let values = vec![
            (&*request.id).into(),
            request.target.scope().into(),
            request.target.name().into(),
            request.kind.as_str().into(),
            request.operand.as_str().into(),
            Value::from(sealed),
            i64::from(request.at_once).into(),
            request.created.0.into(),
        ];
        let insert = "INSERT INTO operation_requests
            (id, scope, target, operation, operand, args, at_once, created_ms)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        statements.push((insert, values));
        self.tables.write("write a request", statements).await?;
        Ok(())
    }

    async fn remove(&self, id: &str) -> Result<(), SqlError> {
        let removed = self
            .tables
            .write("remove a request", vec![delete(id)])
            .await;
        removed.map(|_| ())
    }

    fn request(&self, row: &Found<'_>) -> Result<Request, FleetError> {
        let id = row.text("id")?;
        let args = self
            .sealer
            .open_sealed(&owner_of(&id), &row.bytes("args")?)?;
        let bad = || FleetError::BadRow {
            what: "request",
            value: id.clone(),
        };
        let args: BTreeMap<String, Json> = serde_json::from_slice(&args).map_err(|_| bad())?;
        let target = row.text("target")?;
        let target = match row.text("scope")?.as_str() {
            "agent" => Target::Agent(target),
            "class" => Target::Class(target),
            _ => return Err(bad()),
        };
        let kind = OperationKind::from(row.text("operation")?.as_str());
        let operand = Operand::from(row.text("operand")?.as_str());
        // Nodes of former versions say nothing of it.
        let at_once = u32::try_from(row.number("at_once")?);
        let at_once = at_once.unwrap_or_else(|_| target.at_once(&kind, &operand));
        Ok(Request {
            target,
            kind,
            operand,
            args,
            at_once,
            created: UnixMillis(row.number("created_ms")?),
            id: Arc::from(id),
        })
    }
}

impl Fleet {
    /// Asks an agent, or all agents of a class that can be asked; durable when this returns.
    ///
    /// # Errors
    /// What is wrong with the request, or why the one agent cannot be asked; [`FleetError::NotStored`].
    pub(crate) async fn ask(
        &self,
        rights: &Rights,
        target: Target,
        body: &[u8],
    ) -> Result<AskedView, FleetError> {
        let inner = &self.inner;
        let request = Arc::new(Request::parse(body, target, inner.clock.now())?);
        self.check_seen(rights, &request)?;
        let agents = inner.agents_to_ask(&request)?;
        let gone = inner.begin_request(&request)?;
        if let Err(error) = inner.requests.add(&request, &gone).await {
            inner.registry.lock().forget_request(&request.id);
            return Err(error);
        }
        // A caller that goes away leaves no half of a class asked.
        let all = tokio::spawn({
            let (inner, request) = (inner.clone(), request.clone());
            async move { inner.ask_all(&request, &agents).await }
        });
        let all = all.await;
        let asked = all.map_err(|error| FleetError::Broken(error.to_string()))??;
        if asked.operation_ids.is_empty() {
            inner.registry.lock().forget_request(&request.id);
            inner.requests.remove(&request.id).await?;
            return Ok(asked);
        }
        tracing::info!(request = &*request.id, target = request.target.name(),
            kind = %request.kind, operand = %request.operand,
            operations = asked.operation_ids.len(), refused = asked.refused_total,
            "an operator asked for an operation");
        counter!("thalweg_fleet_operations_asked_total")
            .increment(asked.operation_ids.len() as u64);
        Ok(asked)
    }

    /// Refuses what names a flow or a resource that the caller may not see.
    fn check_seen(&self, rights: &Rights, request: &Request) -> Result<(), FleetError> {
        let named = |name: &str| request.args.get(name).and_then(Json::as_str);
        if let Some(id) = named("flowId") {
            self.check_flow_seen(rights, id)?;
        }
        match named("resourceId") {
            Some(id) => self.check_resource_seen(rights, id),
            None => Ok(()),
        }
    }

    /// Refuses a flow that the caller may not see; one that is not there is told as such elsewhere.
    pub(crate) fn check_flow_seen(&self, rights: &Rights, id: &str) -> Result<(), FleetError> {
        let registry = self.inner.registry.lock();
        let class = registry.flows.get(id).map(|flow| flow.class.clone());
        match rights.sees_all() || class.is_some_and(|class| rights.sees(Some(&class))) {
            true => Ok(()),
            false => Err(rights.unseen("flow", id)),
        }
    }

    /// The same of a manifest: agents that have it are of classes that the caller may see.
    pub(crate) fn check_manifest_seen(
        &self,
        rights: &Rights,
        hash: &str,
    ) -> Result<(), FleetError> {
        let key = self.inner.registry.lock().manifest_named(hash);
        let mut is_seen = rights.sees_all();
        if !is_seen && key.is_some() {
            self.inner.each_agent(|_, agent| {
                is_seen |= agent.manifest == key && rights.sees(agent.class.as_deref());
            });
        }
        match is_seen {
            true => Ok(()),
            false => Err(rights.unseen("manifest", hash)),
        }
    }

    /// The same of a resource.
    pub(crate) fn check_resource_seen(&self, rights: &Rights, id: &str) -> Result<(), FleetError> {
        let found = self.resource(id);
        let is_seen = found.is_ok_and(|found| rights.sees_resource(&found.classes));
        match rights.sees_all() || is_seen {
            true => Ok(()),
            false => Err(rights.unseen("resource", id)),
        }
    }

    /// Gives an operation up; durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Finished`], [`FleetError::NotStored`].
    pub(crate) async fn cancel(&self, id: &str) -> Result<OperationView, FleetError> {
        let inner = &self.inner;
        inner.learn_of(id).await?;
        let generation = inner.registry.lock().cancel(inner.clock.now(), id)?;
        if !inner.settle(Some(generation)).await {
            return Err(FleetError::NotStored);
        }
        self.operation(id)
    }

    /// Gives up what is under way of a request; tells how many operations.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::NotStored`].
    pub(crate) async fn cancel_request(&self, id: &str) -> Result<usize, FleetError> {
        let inner = &self.inner;
        if inner.store.is_shared() {
            // Another node may have made some of them a moment ago.
            inner.catch_up().await?;
        }
        let mut operations: Vec<Arc<str>> = Vec::new();
        inner.each_agent(|_, agent| {
            let of_agent = agent.operations.iter();
            let of_request = of_agent.filter(|op| op.request.as_deref() == Some(id));
            operations.extend(of_request.map(|op| op.id.clone()));
        });
        if operations.is_empty() {
            return Err(unknown_request(id));
        }
        let (mut cancelled, mut generation) = (0, None);
        for some in operations.chunks(limits::ASKED_AT_ONCE) {
            let mut registry = inner.registry.lock();
            for operation in some {
                // Those that are over by now stay as they are.
                if let Ok(at) = registry.cancel(inner.clock.now(), operation) {
                    cancelled += 1;
                    generation = Some(at);
                }
            }
        }
        match inner.settle(generation).await {
            true => Ok(cancelled),
            false => Err(FleetError::NotStored),
        }
    }

    /// One operation.
    pub(crate) fn operation(&self, id: &str) -> Result<OperationView, FleetError> {
        let registry = self.inner.registry.lock();
        let (agent, operation) = registry
            .operation(id)
            .ok_or_else(|| unknown_operation(id))?;
        Ok(view(&registry, agent, operation))
    }

    /// Whose operation this is, if it is known.
    pub(crate) fn owner_of(&self, id: &str) -> Option<String> {
        let registry = self.inner.registry.lock();
        registry
            .operation(id)
            .map(|(agent, _)| agent.id.to_string())
    }

    /// The same, as another node may have it.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn owner_heard_of(&self, id: &str) -> Result<Option<String>, FleetError> {
        self.inner.learn_of(id).await?;
        Ok(self.owner_of(id))
    }
}

impl Inner {
    /// The agents that a request is for; the one, only where it can be asked.
    fn agents_to_ask(&self, request: &Request) -> Result<Vec<Arc<str>>, FleetError> {
        let mut agents = Vec::new();
        match &request.target {
            Target::Agent(id) => {
                self.registry.lock().may_ask(id, request)?;
                agents.push(Arc::from(id.as_str()));
            }
            Target::Class(name) => {
                if !self.registry.lock().classes.contains_key(name.as_str()) {
                    return Err(unknown_class(name));
                }
                self.each_agent_of(name, |_, agent| agents.push(agent.id.clone()));
            }
        }
        Ok(agents)
    }

    /// Keeps a request; tells which old ones have to make room for it.
    pub(crate) fn begin_request(
        &self,
        request: &Arc<Request>,
    ) -> Result<Vec<Arc<str>>, FleetError> {
        let mut needed = None;
        loop {
            {
                let mut registry = self.registry.lock();
                let gone = match &needed {
                    Some(needed) => Some(registry.room_for_request(self.clock.now(), needed)?),
                    None => registry.has_room_for_request().then(Vec::new),
                };
                if let Some(gone) = gone {
                    registry.keep_request(request.clone());
                    return Ok(gone);
                }
            }
            needed = Some(self.requests_needed());
        }
    }

    /// The requests with operations that may still be handed out.
    fn requests_needed(&self) -> HashSet<Arc<str>> {
        let mut needed = HashSet::new();
        self.each_agent(|_, agent| {
            let open = agent.operations.iter().filter(|op| op.is_open());
            for request in open.filter_map(|op| op.request.as_ref()) {
                if !needed.contains(request) {
                    needed.insert(request.clone());
                }
            }
        });
        needed
    }

    /// Makes the operations of a request, each durable when this returns: some agents at a time, so that
    /// neither the registry's lock nor a transaction is held for all of a class.
    ///
    /// # Errors
    /// [`FleetError::NotStored`]; the agents that come after are not asked then.
    async fn ask_all(
        &self,
        request: &Arc<Request>,
        agents: &[Arc<str>],
    ) -> Result<AskedView, FleetError> {
        let mut asked = AskedView {
            request_id: request.id.to_string(),
            at_once: request.at_once,
            operation: format!("{} {}", request.kind, request.operand)
                .trim_end()
                .to_owned(),
            ..AskedView::default()
        };
        for some in agents.chunks(limits::ASKED_AT_ONCE) {
            let generation = self.ask_some(request, some, &mut asked);
            if !self.settle(generation).await {
                return Err(FleetError::NotStored);
            }
        }
        Ok(asked)
    }

    fn ask_some(
        &self,
        request: &Arc<Request>,
        agents: &[Arc<str>],
        asked: &mut AskedView,
    ) -> Option<u64> {
        let mut generation = None;
        let now = self.clock.now();
        let mut registry = self.registry.lock();
        for agent in agents {
            match registry.ask(now, agent, request) {
                Ok((operation, at)) => {
                    asked.operation_ids.push(operation.to_string());
                    generation = Some(at);
                }
                Err(error) => {
                    asked.refused_total += 1;
                    if asked.refused.len() < limits::REFUSALS_SHOWN_MAX {
                        asked.refused.push(RefusedView {
                            agent_id: agent.to_string(),
                            reason: error.to_string(),
                        });
                    }
                }
            }
        }
        generation
    }

    /// The operation as the agent can read it; none when it turned out not to fit any more.
    pub(crate) async fn operation_for(
        &self,
        agent: &str,
        reached: &Reached,
        handout: &Handout,
    ) -> Option<Operation> {
        let asked = match (&handout.asked, &handout.request) {
            (Some(asked), _) => Some(asked.clone()),
            (None, None) => None,
            (None, Some(id)) => match self.requests.find(id).await {
                Ok(found) => found.map(Arc::new),
                Err(error) => {
                    // It is sent again later, or times out.
                    tracing::error!(
                        operation = &*handout.id,
                        error = base::report(&error),
                        "cannot read what an operator asked for"
                    );
                    return None;
                }
            },
        };
        let place = Place {
            origin: &reached.origin,
            prefix: &reached.prefix,
            agent,
        };
        let wanted = Wanted {
            id: &handout.id,
            kind: &handout.kind,
            operand: &handout.operand,
            args: asked.as_ref().map(|asked| &asked.args),
            flow: handout.flow.as_deref(),
            resources: handout.resources.as_deref(),
            runs: None,
        };
        match shape::shape(Profile::of(handout.head.as_deref()), place, wanted) {
            Ok(operation) => {
                tracing::debug!(agent, id = &*handout.id, kind = %handout.kind,
                    operand = %handout.operand, "handed out an operation");
                counter!("thalweg_fleet_operations_handed_out_total").increment(1);
                Some(operation)
            }
            Err(reason) => {
                let now = self.clock.now();
                self.registry.lock().refuse(now, &handout.id, reason);
                self.signals.change();
                None
            }
        }
    }
}

fn delete(id: &str) -> Statement {
    (
        "DELETE FROM operation_requests WHERE id = ?",
        vec![id.into()],
    )
}

/// What a sealed row belongs to: the requests' and the operations' ids are all different.
pub(crate) fn owner_of(id: &str) -> String {
    format!("operation/{id}")
}
