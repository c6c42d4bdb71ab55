//! The DFM's control messages and statements, read tolerantly; no IO.
//!
//! | topic | what it asks |
//! | --- | --- |
//! | `/statement/add` | add, with the id that the statement names or a made one |
//! | `/statement/new/ID` | add under that id |
//! | `/statement/get`, `/statement/get/ID` | tell all, tell one |
//! | `/statement/update/ID` | replace, or add where there is none |
//! | `/statement/delete/ID` | remove |
//!
//! An engine's name may stand before the operation, and the first slash may be missing (2016). The
//! payload is an envelope ([`Request`]) or, as in 2016, the statement itself. Of an envelope's
//! `targets`: absent, nobody takes it; empty, everybody; else those that are listed.

use serde_json::{Map, Value, json};

use crate::plan::Source;
use crate::polls::Polled;
use crate::sinks::OutputForm;
use crate::statement::{Definition, Language, NewStatement, Origin, Start};

/// What a control message asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Add a statement, under an id where one is given.
    Add(Option<String>),
    /// Tell one statement, or all.
    Get(Option<String>),
    /// Replace one.
    Update(String),
    /// Remove one.
    Delete(String),
}

/// An envelope, or what stands for one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The asker's own number for it.
    pub id: Option<String>,
    /// The statement.
    pub resource: Option<Map<String, Value>>,
    /// Where the answer goes.
    pub answer_to: Option<String>,
    /// Where an error goes.
    pub error_to: Option<String>,
    /// When it says that it was issued.
    pub issued_ms: Option<i64>,
    /// Whether this node is meant.
    pub is_meant: bool,
    /// Whether it is the form of 2016.
    pub is_raw: bool,
}

/// The operation of a control topic; none for others.
pub fn operation(topic: &str) -> Option<Operation> {
    let path = topic.strip_prefix('/').unwrap_or(topic);
    let path = path.strip_prefix("statement/")?;
    let mut levels = path.trim_end_matches('/').split('/');
    let mut name = levels.next()?;
    if !OPERATIONS.contains(&name) {
        name = levels.next()?;
    }
    let id = levels.next().map(str::to_owned);
    if levels.next().is_some() {
        return None;
    }
    match (name, id) {
        ("add", None) => Some(Operation::Add(None)),
        ("new", id) => Some(Operation::Add(id)),
        ("get", id) => Some(Operation::Get(id)),
        ("update", Some(id)) => Some(Operation::Update(id)),
        ("delete", Some(id)) => Some(Operation::Delete(id)),
        _ => None,
    }
}

/// Reads a control message as node `node` understands it.
///
/// # Errors
/// What is wrong with it, and where that may be said.
pub fn request(payload: &[u8], node: &str) -> Result<Request, Box<(String, Request)>> {
    let nowhere = || Request {
        is_meant: true,
        ..Request::default()
    };
    if payload.is_empty() {
        return Ok(Request {
            is_raw: true,
            ..nowhere()
        });
    }
    let message: Value = serde_json::from_slice(payload)
        .map_err(|error| Box::new((format!("the message is no JSON: {error}"), nowhere())))?;
    let Value::Object(message) = message else {
        return Err(Box::new((
            "the message is no JSON object".to_owned(),
            nowhere(),
        )));
    };
    let message = lowered(message);
    let issued_ms = message.get("issued_ms").and_then(Value::as_i64);
    if message.contains_key("statement") {
        return Ok(Request {
            issued_ms,
            resource: Some(message),
            is_raw: true,
            ..nowhere()
        });
    }
    let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut request = Request {
        id: text("id"),
        answer_to: text("returnendpoint"),
        error_to: text("returnerrorendpoint"),
        issued_ms,
        is_meant: is_meant(message.get("targets"), node),
        is_raw: false,
        resource: None,
    };
    let is_servers = |to: &Option<String>| to.as_ref().is_some_and(|to| to.starts_with('$'));
    if is_servers(&request.answer_to) || is_servers(&request.error_to) {
        (request.answer_to, request.error_to) = (None, None);
        let why = "an answer goes to no topic that begins with $".to_owned();
        return Err(Box::new((why, request)));
    }
    let resource = match message.get("resource") {
        None | Some(Value::Null) => return Ok(request),
        Some(resource) => resource_of(resource),
    };
    match resource {
        Some(resource) => {
            request.resource = Some(lowered(resource));
            Ok(request)
        }
        None => {
            let why = "the resource is no statement: write the JSON of one in base64".to_owned();
            Err(Box::new((why, request)))
        }
    }
}

/// A statement as a REST body brings it.
///
/// # Errors
/// It is no JSON object.
pub fn resource(body: &[u8]) -> Result<Map<String, Value>, String> {
    let read: Result<Map<String, Value>, _> = serde_json::from_slice(body);
    read.map(lowered)
        .map_err(|error| format!("the body is no statement: {error}"))
}

/// What a DFM statement asks for, beside the statement itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The statement.
    pub new: NewStatement,
    /// Its life cycle.
    pub life: Life,
    /// What is kept of it, to tell it as it came.
    pub origin: Origin,
}

/// The life cycle that a statement asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Taken into service.
    Run,
    /// Kept, and paused.
    Pause,
    /// Run once over what named windows and tables hold.
    Once,
    /// Removed.
    Remove,
}

/// What a node adds to a statement that leaves it open.
pub struct Surroundings<'s> {
    /// Who the node is.
    pub node: &'s super::NodeConfig,
    /// HTTP servers by alias.
    pub servers: &'s std::collections::BTreeMap<String, String>,
    /// Whether a bridge of that name leads to another broker.
    pub has_bridge: &'s (dyn Fn(&str) -> bool + Sync),
}

/// A DFM statement as one of ours. `id` is the one that the request names.
///
/// # Errors
/// What it lacks, or asks for that does not exist here.
pub fn asked(
    resource: &Map<String, Value>,
    id: Option<&str>,
    around: &Surroundings<'_>,
) -> Result<Asked, String> {
    let text_of = |name: &str| {
        let text = resource.get(name).and_then(Value::as_str);
        text.filter(|text| !text.is_empty())
    };
    let text = text_of("statement").ok_or("the statement has no text: 'statement' is missing")?;
    let name = text_of("name").ok_or("the statement has no name")?;
    let id = match id.or_else(|| text_of("id")) {
        Some(id) => id.to_owned(),
        None => made_id(name, text),
    };
    let life = match text_of("statelifecycle").unwrap_or("RUN") {
        "RUN" => Life::Run,
        "PAUSE" => Life::Pause,
        "ONCE" | "SYNCHRONOUS" => Life::Once,
        "REMOVE" => Life::Remove,
        other => {
            return Err(format!(
                "the life cycle {other} is not known: RUN, PAUSE, REMOVE"
            ));
        }
    };
    let targets = targets(resource, &id, around)?;
    let mut kept = resource.clone();
    kept.insert("id".to_owned(), json!(id));
    let new = NewStatement {
        id: Some(id),
        name: Some(name.to_owned()),
        text: text.to_owned(),
        language: language(text),
        start: Start::Latest,
        lateness: base::HumanDuration(std::time::Duration::ZERO),
        format: None,
        output: OutputForm::Observations,
        targets,
        policies: None,
    };
    Ok(Asked {
        new,
        life,
        origin: Origin::Dfm(kept),
    })
}

/// What a DFM statement gets from HTTP servers; none where its rows go somewhere instead.
pub fn polled(origin: &Origin) -> Option<Polled> {
    match origin {
        Origin::Dfm(kept) if matches!(publisher(kept), Ok(Publisher::Get)) => places(kept).ok(),
        _ => None,
    }
}

/// The topic of a statement that names none.
pub fn own_topic(node: &super::NodeConfig, id: &str) -> String {
    format!("LS/{}/{}/OGC/1.0/Datastreams/{id}", node.code, node.id)
}

/// What becomes of the rows of a DFM statement.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publisher {
    /// They are published.
    Mqtt,
    /// They are posted.
    Post,
    /// They ask for events.
    Get,
}

fn publisher(resource: &Map<String, Value>) -> Result<Publisher, String> {
    let publisher = resource.get("publisher").and_then(Value::as_str);
    match publisher.unwrap_or("MQTT_PUB") {
        "MQTT_PUB" | "MQTT" => Ok(Publisher::Mqtt),
        "HTTP_POST" | "REST_POST" | "HTTP" | "REST" => Ok(Publisher::Post),
        "HTTP_GET" | "REST_GET" => Ok(Publisher::Get),
        other => Err(format!(
            "the publisher {other} is not known: MQTT_PUB, HTTP_POST, HTTP_GET"
        )),
    }
}

/// Aliases of servers or brokers, and the paths or topics there.
fn places(resource: &Map<String, Value>) -> Result<Polled, String> {
    let list = |name: &str| -> Result<Vec<String>, String> {
        match resource.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::String(one)) => Ok(vec![one.clone()]),
            Some(Value::Array(all)) => {
                let texts = all.iter().map(|text| text.as_str().map(str::to_owned));
                texts
                    .collect::<Option<_>>()
                    .ok_or(format!("{name} is no list of texts"))
            }
            Some(_) => Err(format!("{name} is no list of texts")),
        }
    };
    Ok(Polled {
        paths: list("output")?,
        scopes: list("scope")?,
    })
}

/// Where the rows of a DFM statement go, as our targets' texts.
fn targets(
    resource: &Map<String, Value>,
    id: &str,
    around: &Surroundings<'_>,
) -> Result<Vec<String>, String> {
    let places = places(resource)?;
    match publisher(resource)? {
        Publisher::Mqtt => {}
        Publisher::Post => {
            let addresses = places.addresses(around.servers)?.into_iter();
            return Ok(addresses.map(String::from).collect());
        }
        // They are looked up again when it starts.
        Publisher::Get => return places.addresses(around.servers).map(|_| Vec::new()),
    }
    let outputs = match places.paths.is_empty() {
        true => vec![own_topic(around.node, id)],
        false => places.paths,
    };
    let scopes = match places.scopes.is_empty() {
        true => vec![BROKERS[0].to_owned()],
        false => places.scopes,
    };
    let mut targets = Vec::new();
    for scope in &scopes {
        let broker = match BROKERS.contains(&scope.as_str()) {
            true => "mqtt".to_owned(),
            false if (around.has_bridge)(scope) => format!("mqtt@{scope}"),
            false => {
                return Err(format!(
                    "the scope '{scope}' is no broker of this node: {}, and the names of its bridges",
                    BROKERS.join(", ")
                ));
            }
        };
        targets.extend(outputs.iter().map(|output| format!("{broker}:{output}")));
    }
    targets.dedup();
    Ok(targets)
}

/// A statement as the DFM's API tells it; one that came another way is put into that form.
pub fn told(definition: &Definition) -> Value {
    let mut told = match &definition.origin {
        Origin::Dfm(kept) => renamed(kept),
        _ => {
            let mut told = Map::new();
            told.insert("id".to_owned(), json!(definition.id));
            told.insert("name".to_owned(), json!(definition.name));
            told.insert("output".to_owned(), json!(definition.targets));
            told
        }
    };
    let life = if definition.is_paused { "PAUSE" } else { "RUN" };
    told.insert("statement".to_owned(), json!(definition.text));
    told.insert("stateLifecycle".to_owned(), json!(life));
    Value::Object(told)
}

/// One response of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Whom it is about.
    pub statement: Option<String>,
    /// Like an HTTP status.
    pub status: u16,
    /// What happened.
    pub message: String,
    /// What there is to tell, by id.
    pub resources: Map<String, Value>,
}

impl Outcome {
    /// Nothing to tell but what happened.
    pub fn new(statement: Option<String>, status: u16, message: impl Into<String>) -> Self {
        Outcome {
            statement,
            status,
            message: message.into(),
            resources: Map::new(),
        }
    }

    /// True when what was asked is so now.
    pub fn is_good(&self) -> bool {
        self.status < 400
    }

    /// The answer's body.
    pub fn body(&self, node: &str) -> Value {
        let kind = match self.status {
            200..=299 => "SUCCESS",
            300..=399 => "REDIRECTION",
            400..=499 => "CLIENT_ERROR",
            500.. => "ERROR",
            _ => "INFORMATIVE",
        };
        json!({
            "resources": self.resources,
            "responses": [{
                "headline": format!("{} {}", self.status, kind),
                "agentID": node,
                "producerID": self.statement,
                "producerName": "statement",
                "message": self.message,
                "status": self.status,
                "messageType": kind,
                "topics": [],
            }],
        })
    }
}

/// The id of a statement without one: the same for the same name and text.
fn made_id(name: &str, text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, format!("{name}{text}").as_bytes());
    digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The language of a text that does not say: SQL where it is that alone, else the DFM's own, EPL.
fn language(text: &str) -> Language {
    let epl = crate::epl::compile(text, &crate::epl::Catalog::default());
    let is_surely_epl = epl.is_ok_and(|plan| !matches!(plan.source, Source::Stream(_)));
    match !is_surely_epl && crate::sql::compile(text).is_ok() {
        true => Language::Sql,
        false => Language::Epl,
    }
}

fn is_meant(targets: Option<&Value>, node: &str) -> bool {
    match targets {
        Some(Value::Array(targets)) => {
            targets.is_empty() || targets.iter().any(|target| target == node)
        }
        _ => false,
    }
}

/// The statement of an envelope: JSON in base64, an array of bytes, a text of JSON, or JSON.
fn resource_of(resource: &Value) -> Option<Map<String, Value>> {
    let bytes = match resource {
        Value::Object(resource) => return Some(resource.clone()),
        Value::String(text) => match text.trim_start().starts_with('{') {
            true => text.clone().into_bytes(),
            false => super::seal::from_base64(text)?,
        },
        Value::Array(bytes) => {
            // Java's bytes are signed.
            let byte = |value: &Value| value.as_i64().map(|byte| byte.rem_euclid(256) as u8);
            bytes.iter().map(byte).collect::<Option<Vec<u8>>>()?
        }
        _ => return None,
    };
    serde_json::from_slice(&bytes).ok()
}

/// The names of a message in lower case: they were written in several ways over the years.
fn lowered(message: Map<String, Value>) -> Map<String, Value> {
    let lower = |(name, value): (String, Value)| (name.to_lowercase(), value);
    message.into_iter().map(lower).collect()
}

/// The names of a statement as version 1.8 writes them.
fn renamed(kept: &Map<String, Value>) -> Map<String, Value> {
    let rename = |(name, value): (&String, &Value)| {
        let known = NAMES.iter().find(|known| known.eq_ignore_ascii_case(name));
        let name = known.map_or(name.as_str(), |known| *known);
        (name.to_owned(), value.clone())
    };
    kept.iter().map(rename).collect()
}

const OPERATIONS: [&str; 5] = ["add", "new", "get", "update", "delete"];

/// The aliases of this node's own server.
const BROKERS: [&str; 4] = ["outgoing", "incoming", "control", "default"];

const NAMES: [&str; 8] = [
    "stateLifecycle",
    "resultType",
    "discardDataOnFailPolicyOn",
    "logEventEvery",
    "agentID",
    "synchronousResponse",
    "isRestOutput",
    "TargetAgents",
];
