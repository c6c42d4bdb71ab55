//! This node at work on control messages and desired state: hears them on its MQTT server, works
//! them off one after another, and answers.

use std::path::Path;
use std::sync::Arc;

use metrics::counter;
use mqtt::{Delivery, Message, MessageSink, Qos, Room, Server, SubscriptionId};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::desired::{self, Desired};
use super::dfm::{self, Asked, Life, Operation, Outcome, Request, Surroundings};
use super::fresh::Fresh;
use super::later::Later;
use super::marks::Marks;
use super::{Keys, Refused};
use crate::digest;
use crate::error::FusionError;
use crate::fusion::Fusion;
use crate::http::status_of;
use crate::limits::{CONTROL_BYTES_MAX, CONTROL_WAITING_MAX};
use crate::statement::{NewStatement, Origin, ReplacedState, Replacement};

/// A node that takes statements from others.
pub struct Node {
    fusion: Arc<Fusion>,
    server: Option<Server>,
    keys: Keys,
    fresh: Mutex<Fresh>,
    marks: Mutex<Option<Marks>>,
    heard: Vec<SubscriptionId>,
    stop: CancellationToken,
    work: Mutex<Option<JoinHandle<()>>>,
}

/// A control message that waits.
pub struct Heard {
    /// Its topic.
    pub topic: String,
    /// Its payload, as it came.
    pub payload: Vec<u8>,
}

/// Takes control messages off the server.
struct Ear {
    waiting: mpsc::Sender<Heard>,
    room: Arc<Notify>,
    /// Whether what was retained counts too.
    takes_retained: bool,
}

impl Node {
    /// Starts to hear, where there is a server; generations are kept in the file `marks`.
    ///
    /// # Errors
    /// `Refused` for keys that are none, and where the file cannot be read.
    pub fn open(
        fusion: Arc<Fusion>,
        server: Option<Server>,
        marks: &Path,
    ) -> Result<Arc<Node>, FusionError> {
        let keys = Keys::new(&fusion.config().control.keys).map_err(FusionError::Refused)?;
        let marks = Marks::open(marks).map_err(|error| {
            FusionError::Refused(format!("cannot read {}: {error}", marks.display()))
        })?;
        let fresh = Fresh::new(fusion.now(), fusion.config().control.max_age.0);
        let (waiting, taken) = mpsc::channel(CONTROL_WAITING_MAX);
        let room = Arc::new(Notify::new());
        let ear = |takes_retained| {
            Arc::new(Ear {
                waiting: waiting.clone(),
                room: room.clone(),
                takes_retained,
            })
        };
        let mut heard = Vec::new();
        if let Some(server) = &server {
            for filter in [DFM_FILTER, DFM_FILTER_2016] {
                let filter = filter.parse().expect("the filter is one");
                heard.push(server.subscribe(filter, ear(false)));
            }
            let filter = desired::FILTER.parse().expect("the filter is one");
            heard.push(server.subscribe(filter, ear(true)));
        }
        let node = Arc::new(Node {
            fusion,
            server,
            keys,
            fresh: Mutex::new(fresh),
            marks: Mutex::new(Some(marks)),
            heard,
            stop: CancellationToken::new(),
            work: Mutex::default(),
        });
        let working = tokio::spawn(node.clone().work(taken, room));
        *node.work.lock() = Some(working);
        Ok(node)
    }

    /// The statements of this node.
    pub fn fusion(&self) -> &Arc<Fusion> {
        &self.fusion
    }

    /// The server that this node hears on.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Hears nothing more, and ends what is under way.
    pub async fn close(&self) {
        if let Some(server) = &self.server {
            for id in &self.heard {
                server.unsubscribe(*id);
            }
        }
        self.stop.cancel();
        let working = self.work.lock().take();
        if let Some(working) = working {
            let _ = working.await;
        }
    }

    async fn work(self: Arc<Self>, mut taken: mpsc::Receiver<Heard>, room: Arc<Notify>) {
        let interval = self.fusion.config().node.books_interval.0;
        let mut tick = (!interval.is_zero()).then(|| tokio::time::interval(interval));
        let mut later = Later::default();
        loop {
            let heard = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                heard = taken.recv() => heard,
                () = ticked(&mut tick) => {
                    self.tell_books().await;
                    continue;
                }
                heard = later.due() => {
                    self.desire(heard, &mut later, true).await;
                    continue;
                }
            };
            let Some(heard) = heard else { return };
            room.notify_waiters();
            match desired::name(&heard.topic) {
                Some(_) => self.desire(heard, &mut later, false).await,
                None => self.control(&heard).await,
            }
        }
    }

    /// Publishes the books of every statement.
    async fn tell_books(&self) {
        let node = &self.fusion.config().node.id;
        let mut infos = self.fusion.statements();
        self.fusion.tell_lags(&mut infos).await;
        for info in infos {
            let topic = format!("thalweg/books/{node}/{}", info.id);
            self.publish(&topic, &json!(info), false).await;
        }
    }

    /// A message on a control topic of the DFM.
    async fn control(&self, heard: &Heard) {
        let Some(operation) = dfm::operation(&heard.topic) else {
            return;
        };
        let id = &self.fusion.config().node.id;
        let opened = self.keys.open(&heard.topic, &heard.payload);
        let allows = self.fusion.config().control.allow_unsigned;
        let (payload, is_signed, refused) = match opened {
            Ok((payload, _)) => (payload, true, None),
            Err(Refused::Unsigned) if allows => (heard.payload.clone(), false, None),
            // Read all the same, to know who is meant.
            Err(why @ Refused::Unsigned) => (heard.payload.clone(), false, Some(why)),
            // Whoever pretends to be somebody is not answered.
            Err(why) => return self.audit(&heard.topic, &why.to_string()).await,
        };
        let (mut request, outcome) = match dfm::request(&payload, id) {
            Ok(request) => (request, None),
            Err(wrong) => {
                let (why, request) = *wrong;
                (request, Some(Outcome::new(None, 400, why)))
            }
        };
        if !request.is_meant {
            return;
        }
        if is_signed {
            let digest = digest::of(&[heard.topic.as_bytes(), b"\n", payload.as_slice()].concat());
            let now = self.fusion.now();
            let taken = self.fresh.lock().take(now, digest, request.issued_ms);
            // Who sends again what another signed is not answered.
            if let Err(why) = taken {
                return self.audit(&heard.topic, &why).await;
            }
        }
        let outcome = match (refused, outcome) {
            (Some(why), _) => {
                self.audit(&heard.topic, &why.to_string()).await;
                // Nobody says on whose behalf it comes: it names no topic, and nothing of it is said again.
                (request.id, request.answer_to, request.error_to) = (None, None, None);
                Outcome::new(None, 403, why.to_string())
            }
            (None, Some(outcome)) => outcome,
            (None, None) => self.execute(operation, request.resource.as_ref()).await,
        };
        counter!("thalweg_fusion_control_total", "outcome" => outcome_label(&outcome)).increment(1);
        self.answer(&request, &outcome).await;
    }

    /// Does what the DFM's API asks, by whatever way it came.
    pub async fn execute(
        &self,
        operation: Operation,
        resource: Option<&Map<String, Value>>,
    ) -> Outcome {
        let done = match operation {
            Operation::Get(id) => self.tell(id),
            Operation::Delete(id) => match self.fusion.remove(&id).await {
                Ok(()) => Ok(Outcome::new(Some(id), 200, "the statement was removed")),
                Err(error) => Err((Some(id), error)),
            },
            Operation::Add(id) => return self.put(id, resource, false).await,
            Operation::Update(id) => return self.put(Some(id), resource, true).await,
        };
        done.unwrap_or_else(|(id, error)| refused(id, &error))
    }

    async fn put(
        &self,
        id: Option<String>,
        resource: Option<&Map<String, Value>>,
        may_replace: bool,
    ) -> Outcome {
        let Some(resource) = resource else {
            return Outcome::new(id, 400, "the message brings no statement");
        };
        let config = self.fusion.config();
        let around = Surroundings {
            node: &config.node,
            servers: &config.control.servers,
            has_bridge: &|name| self.fusion.has_bridge(name),
        };
        let asked = match dfm::asked(resource, id.as_deref(), &around) {
            Ok(asked) => asked,
            Err(why) => return Outcome::new(id, 400, why),
        };
        let id = asked.new.id.clone().unwrap_or_default();
        match self.take(asked, may_replace).await {
            Ok(outcome) => outcome,
            Err(error) => refused(Some(id), &error),
        }
    }

    async fn take(&self, asked: Asked, may_replace: bool) -> Result<Outcome, FusionError> {
        let Asked { new, life, origin } = asked;
        let id = new.id.clone().unwrap_or_default();
        let known = self.fusion.definition_of(&id);
        match (life, known) {
            (Life::Remove, _) => {
                self.fusion.remove(&id).await?;
                Ok(Outcome::new(Some(id), 200, "the statement was removed"))
            }
            (Life::Once, _) => {
                let rows = self.fusion.query(&new.text).await?;
                let mut outcome = Outcome::new(Some(id.clone()), 200, "the query was run");
                outcome.resources.insert(id, Value::Array(rows));
                Ok(outcome)
            }
            (_, Some(_)) if !may_replace => Err(FusionError::NameTaken(id)),
            (life, Some(known)) => {
                let (before, after) = (dfm::polled(&known.origin), dfm::polled(&origin));
                if before.is_some() != after.is_some() {
                    return Err(FusionError::Refused(
                        "an update does not change the publisher: remove the statement and add it \
                         anew"
                            .to_owned(),
                    ));
                }
                let is_same =
                    known.text == new.text && known.targets == new.targets && before == after;
                if !is_same {
                    let named = NewStatement {
                        name: Some(self.free_name(&new, &id)),
                        ..new
                    };
                    let replacement = Replacement {
                        new: named,
                        state: ReplacedState::Auto,
                        origin: Some(origin),
                    };
                    self.fusion.replace(&id, replacement).await?;
                }
                let is_paused = life == Life::Pause;
                match (is_paused, known.is_paused) {
                    (true, false) => self.fusion.pause(&id).await.map(drop)?,
                    (false, true) => self.fusion.resume(&id).await.map(drop)?,
                    _ if is_same => {
                        return Ok(self.with(id, 304, "the statement is like that already"));
                    }
                    _ => {}
                }
                Ok(self.with(id, 200, "the statement was updated"))
            }
            (life, None) => {
                let named = NewStatement {
                    name: Some(self.free_name(&new, &id)),
                    ..new
                };
                let is_paused = life == Life::Pause;
                self.fusion.add_from(named, origin, is_paused).await?;
                Ok(self.with(id, 201, "the statement was added"))
            }
        }
    }

    /// The statement's name, made another where somebody else has it: the DFM's need not differ.
    fn free_name(&self, new: &NewStatement, id: &str) -> String {
        let name = new.name.clone().unwrap_or_else(|| id.to_owned());
        match self.fusion.statement(&name) {
            Ok(known) if known.id != id => id.to_owned(),
            _ => name,
        }
    }

    fn tell(&self, id: Option<String>) -> Result<Outcome, (Option<String>, FusionError)> {
        let Some(id) = id else {
            let mut outcome = Outcome::new(None, 200, "these are all statements");
            for definition in self.fusion.definitions() {
                let told = dfm::told(&definition);
                outcome.resources.insert(definition.id, told);
            }
            return Ok(outcome);
        };
        match self.fusion.definition_of(&id) {
            Some(_) => Ok(self.with(id, 200, "this is the statement")),
            None => Err((Some(id.clone()), FusionError::Unknown(id))),
        }
    }

    fn with(&self, id: String, status: u16, message: &str) -> Outcome {
        let mut outcome = Outcome::new(Some(id.clone()), status, message);
        if let Some(definition) = self.fusion.definition_of(&id) {
            outcome.resources.insert(id, dfm::told(&definition));
        }
        outcome
    }

    async fn answer(&self, request: &Request, outcome: &Outcome) {
        let node = &self.fusion.config().node.id;
        let statement = outcome.statement.as_deref().unwrap_or_default();
        let topic = match (outcome.is_good(), request.is_raw) {
            (true, false) => request.answer_to.clone(),
            (false, false) => {
                let to = request
                    .error_to
                    .clone()
                    .or_else(|| request.answer_to.clone());
                Some(to.unwrap_or_else(|| "/statement/errors/".to_owned()))
            }
            (true, true) => Some(format!("statement/{statement}{node}/")),
            (false, true) => Some(format!("statement/errors/{node}/")),
        };
        let mut body = outcome.body(node);
        if let Some(id) = &request.id {
            body["id"] = json!(id);
        }
        if let Some(topic) = topic {
            self.publish(&topic, &body, false).await;
        }
    }

    /// A message of desired state, heard now or tried again. What cannot be followed yet is not kept
    /// as seen.
    async fn desire(&self, heard: Heard, later: &mut Later, is_again: bool) {
        let topic = heard.topic.clone();
        let Some(name) = desired::name(&topic) else {
            return;
        };
        // An empty message clears what was retained, and asks nothing.
        if heard.payload.is_empty() {
            return;
        }
        let (payload, key) = match self.keys.open(&heard.topic, &heard.payload) {
            Ok(opened) => opened,
            Err(why) => return self.audit(&topic, &why.to_string()).await,
        };
        let desired: Desired = match serde_json::from_slice(&payload) {
            Ok(desired) => desired,
            Err(error) => return self.audit(&topic, &error.to_string()).await,
        };
        if desired.name != name {
            let why = format!("it is about '{}', and its topic is not", desired.name);
            return self.audit(&topic, &why).await;
        }
        let seen = self
            .marks
            .lock()
            .as_ref()
            .map_or(0, |marks| marks.seen(name))
            .max(later.generation(name).unwrap_or(0));
        if desired.generation <= seen {
            if desired.generation < seen {
                let why = format!("generation {} was followed by {seen}", desired.generation);
                self.audit(&topic, &why).await;
            }
            return;
        }
        let outcome = self.follow(&desired).await;
        let (status, message) = match outcome {
            Err(error) if error.is_passing() => {
                let is_waiting = later.put(name, desired.generation, heard);
                if is_again && is_waiting {
                    return;
                }
                (503, base::report(&error))
            }
            outcome => {
                later.forget(name);
                later.went_well();
                let is_kept = self.see(name.to_owned(), desired.generation).await;
                match (outcome, is_kept) {
                    (Ok(message), Ok(())) => (200, message.to_owned()),
                    (Err(error), Ok(())) => (status_of(&error).as_u16(), base::report(&error)),
                    (_, Err(why)) => (503, why),
                }
            }
        };
        counter!("thalweg_fusion_control_total", "outcome" => if status < 400 { "done" } else { "failed" })
            .increment(1);
        tracing::info!(
            name,
            generation = desired.generation,
            key,
            status,
            "desired state"
        );
        let node = &self.fusion.config().node.id;
        let answer = json!({
            "node": node,
            "name": name,
            "generation": desired.generation,
            "status": status,
            "message": message,
        });
        self.publish(&format!("thalweg/answers/{name}/{node}"), &answer, false)
            .await;
    }

    /// Makes things as they are desired; a form that cannot be leaves the one before.
    async fn follow(&self, desired: &Desired) -> Result<&'static str, FusionError> {
        let config = &self.fusion.config().node;
        let is_selected = desired.selector.selects(&config.id, &config.labels);
        let id = format!("desired.{}", desired.name);
        let known = self.fusion.definition_of(&id).is_some();
        let form = desired.statement.clone().filter(|_| is_selected);
        let Some(form) = form else {
            if known {
                self.fusion.remove(&id).await?;
            }
            return Ok(if is_selected {
                "removed"
            } else {
                "not selected"
            });
        };
        let new: NewStatement = serde_json::from_value(form)
            .map_err(|error| FusionError::Refused(format!("the statement is none: {error}")))?;
        let new = NewStatement {
            id: Some(id.clone()),
            name: Some(id.clone()),
            ..new
        };
        let origin = Origin::Desired(desired.name.clone(), desired.generation);
        if !known {
            self.fusion.add_from(new, origin, false).await?;
            return Ok("added");
        }
        let replacement = Replacement {
            new,
            state: ReplacedState::Auto,
            origin: Some(origin),
        };
        self.fusion.replace(&id, replacement).await?;
        Ok("replaced")
    }

    /// Keeps a generation, on a thread that may wait for the disk.
    async fn see(&self, name: String, generation: u64) -> Result<(), String> {
        let Some(mut marks) = self.marks.lock().take() else {
            return Err("the node is closing".to_owned());
        };
        let seen = tokio::task::spawn_blocking(move || {
            let seen = marks.see(&name, generation);
            (marks, seen)
        });
        let (marks, seen) = seen.await.map_err(|error| error.to_string())?;
        *self.marks.lock() = Some(marks);
        seen.map_err(|error| format!("cannot keep the generation: {error}"))
    }

    /// Writes down what was refused.
    async fn audit(&self, topic: &str, why: &str) {
        tracing::warn!(topic, why, "a control message was refused");
        counter!("thalweg_fusion_control_total", "outcome" => "refused").increment(1);
        let node = &self.fusion.config().node.id;
        let entry = json!({
            "node": node,
            "time_ms": self.fusion.now(),
            "topic": topic,
            "why": why,
        });
        self.publish(&format!("thalweg/audit/{node}"), &entry, false)
            .await;
    }

    /// Publishes, waiting for subscribers that are behind until the node closes.
    async fn publish(&self, topic: &str, body: &Value, retain: bool) {
        let (Some(server), Ok(topic)) = (&self.server, topic.parse::<mqtt::TopicName>()) else {
            return;
        };
        let body = body.to_string();
        loop {
            match server.publish(&topic, body.as_bytes(), Qos::AtLeastOnce, retain) {
                Ok(()) => return,
                Err(mqtt::MqttError::Busy) => tokio::select! {
                    () = server.room(&topic) => {}
                    () = self.stop.cancelled() => return,
                },
                Err(error) => {
                    return tracing::warn!(error = %base::report(&error), "an answer is lost");
                }
            }
        }
    }
}

impl MessageSink for Ear {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        for (taken, message) in batch.iter().enumerate() {
            let is_old = message.retain && !self.takes_retained;
            let is_control =
                desired::name(message.topic).is_some() || dfm::operation(message.topic).is_some();
            if is_old || !is_control || message.payload.len() > CONTROL_BYTES_MAX {
                continue;
            }
            let heard = Heard {
                topic: message.topic.to_owned(),
                payload: message.payload.to_vec(),
            };
            if let Err(mpsc::error::TrySendError::Full(_)) = self.waiting.try_send(heard) {
                return Delivery::HoldBack { taken };
            }
        }
        Delivery::Taken
    }

    fn room(&self) -> Room<'_> {
        Box::pin(async {
            let room = self.room.notified();
            let mut room = std::pin::pin!(room);
            room.as_mut().enable();
            if self.waiting.capacity() == 0 && !self.waiting.is_closed() {
                room.await;
            }
        })
    }
}

async fn ticked(tick: &mut Option<tokio::time::Interval>) {
    match tick {
        Some(tick) => {
            tick.tick().await;
        }
        None => std::future::pending().await,
    }
}

fn refused(id: Option<String>, error: &FusionError) -> Outcome {
    Outcome::new(id, status_of(error).as_u16(), base::report(error))
}

fn outcome_label(outcome: &Outcome) -> &'static str {
    match outcome.status {
        403 => "refused",
        status if status < 400 => "done",
        _ => "failed",
    }
}

/// The DFM's control topics, from version 1 on, and in 2016.
const DFM_FILTER: &str = "/statement/#";
const DFM_FILTER_2016: &str = "statement/#";
