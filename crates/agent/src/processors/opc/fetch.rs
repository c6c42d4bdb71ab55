//! FetchOPCProcessor: values of an OPC UA server's variables, one FlowFile each.
//!
//! From a node, all that it refers to is followed, and what these refer to; a node is not followed
//! again below itself. What one fetch finds is one session's unless it is large, so that a link that
//! breaks midway leaves nothing half done. With Lazy mode the processor's state has
//! a mark of what each variable last was, committed with the FlowFiles.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::common::{Connection, ID_TYPES, Named, SERVER};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::flowfile::Attributes;
use crate::net::limits::{OPC_NODES_MAX, OPC_TREE_DEPTH_MAX};
use crate::opcua::{
    self, BROWSE_NAME, DataValue, Fault, Identifier, NODE_CLASS, NodeId, OBJECT, Reference,
    Session, VALUE, VARIABLE, Variant,
};
use crate::processors::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchOPCProcessor",
    description: "Reads the variables at and below a node of an OPC UA server: one FlowFile each, \
                  with the value as content. Numbers have the digits that read back to them, a list \
                  is a JSON list; MiNiFi writes six decimals, and a list's first value.",
    properties: &PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "Values of variables.",
        },
        RelationshipKind {
            name: "failure",
            description: "Variables whose type has no text, without content.",
        },
    ],
    writes: &[
        AttributeKind::new("NodeID", "The variable's name in its namespace."),
        AttributeKind::new("NodeID type", "numeric, string, guid or bytestring."),
        AttributeKind::new("Browsename", "Its name for people."),
        AttributeKind::new(
            "Full path",
            "The names that led to it: a path as it was given, and those below it.",
        ),
        AttributeKind::new(
            "Sourcetimestamp",
            "When the value came to be, as 2026-01-31T12:00:00.250Z; absent where the server does \
             not tell.",
        ),
        AttributeKind::new("Typename", "The value's type, as Int32."),
        AttributeKind::new(
            "Datasize",
            "The value's bytes: of numbers their type's, of texts their own, where MiNiFi tells of \
             its memory.",
        ),
    ],
    input: Input::Forbidden,
    make: |settings| FetchOpc::new(settings).map(|made| Box::new(made) as _),
};

const PROPERTIES: [PropertyKind; 13] = joined(
    SERVER,
    [
        PropertyKind::new("Node ID type", "What Node ID is.")
            .required()
            .allowed(ID_TYPES),
        PropertyKind::new(
            "Node ID",
            "The node to begin with; a path is names from the folder of objects, as plant/line/1.",
        )
        .required(),
        PropertyKind::new(
            "Namespace index",
            "The namespace of the node, or of all names of its path.",
        )
        .default("0")
        .required()
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Max depth",
            "How deep nodes are followed: 1 is the node alone, 0 all there is, up to 64.",
        )
        .default("0")
        .required()
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Lazy mode",
            "Which variables are left out: with On those whose source timestamp is the last \
             fetch's, with New Value those whose value is.",
        )
        .default("Off")
        .required()
        .allowed(&["On", "New Value", "Off"]),
    ],
);

struct FetchOpc {
    connection: Connection,
    start: Named,
    /// The node as the flow has it.
    start_text: String,
    /// The nodes of a path, in the session that is open.
    resolved: Option<Vec<NodeId>>,
    depth_max: usize,
    lazy: Lazy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Lazy {
    Off,
    Time,
    Value,
}

/// What variables last were, by marks of both.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    version: u8,
    lazy: Lazy,
    marks: BTreeMap<u64, u64>,
}

/// One fetch.
struct Fetch<'f, 'n> {
    opc: &'f mut Session,
    context: &'f Context,
    session: &'f mut ProcessSession<'n>,
    endpoint: String,
    lazy: Lazy,
    known: Known,
    /// Marks of the variables that are there.
    met: HashSet<u64>,
    nodes: usize,
    variables: usize,
    written: usize,
    /// How many could not be read, and why the first could not.
    unread: usize,
    why: Option<String>,
    is_deeper: bool,
}

/// What ends a fetch early.
enum Broken {
    Fault(Fault),
    Processor(ProcessorError),
}

/// Nodes that one node refers to and that are still to be followed.
struct Branch {
    node: NodeId,
    children: std::vec::IntoIter<(NodeId, String)>,
}

impl FetchOpc {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let start_text = settings.needed("Node ID")?;
        let start = Named::parse(
            "Node ID",
            &settings.needed("Node ID type")?,
            settings.integer("Namespace index")?,
            &start_text,
            settings.text("Path reference types")?.as_deref(),
        );
        Ok(FetchOpc {
            connection: Connection::new(settings)?,
            start: start?,
            start_text,
            resolved: None,
            depth_max: match settings.integer("Max depth")? {
                0 => usize::MAX,
                depth => depth,
            },
            lazy: match settings.needed("Lazy mode")?.as_str() {
                "On" => Lazy::Time,
                "New Value" => Lazy::Value,
                _ => Lazy::Off,
            },
        })
    }

    /// Fetches all; says what is missing where nothing was found.
    fn fetch(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Result<usize, String>, Broken> {
        let known = Known::read(&session.state(), self.lazy)?;
        let endpoint = self.connection.endpoint().to_owned();
        let (opc, is_new) = self.connection.session(context, session)?;
        if is_new {
            self.resolved = None;
        }
        let (nodes, base) = match &self.start {
            Named::Node(node) => (vec![node.clone()], ""),
            Named::Path(path) => {
                let nodes = match self.resolved.take() {
                    Some(nodes) => nodes,
                    None => path.resolve(opc)?,
                };
                self.resolved = Some(nodes.clone());
                (nodes, path.text.as_str())
            }
        };
        let mut fetch = Fetch {
            opc,
            context,
            session,
            endpoint,
            lazy: self.lazy,
            known,
            met: HashSet::new(),
            nodes: 0,
            variables: 0,
            written: 0,
            unread: 0,
            why: None,
            is_deeper: false,
        };
        for node in nodes {
            fetch.walk(node, base, self.depth_max)?;
        }
        fetch.finish()
    }
}

impl<'n> Fetch<'_, 'n> {
    /// Writes what is at and below a node.
    fn walk(&mut self, node: NodeId, base: &str, depth_max: usize) -> Result<(), Broken> {
        if !self.root(&node, base)? || depth_max == 1 {
            return Ok(());
        }
        let children = self.children(&node, base)?;
        let mut levels = vec![Branch { node, children }];
        while let Some(level) = levels.last_mut() {
            let Some((node, path)) = level.children.next() else {
                levels.pop();
                continue;
            };
            let depth = levels.len() + 1;
            if depth == depth_max || levels.iter().any(|above| above.node == node) {
                continue;
            }
            if depth == OPC_TREE_DEPTH_MAX {
                self.is_deeper = true;
                continue;
            }
            let children = self.children(&node, &path)?;
            levels.push(Branch { node, children });
        }
        Ok(())
    }

    /// Writes the node that is begun with; says whether it is there.
    fn root(&mut self, node: &NodeId, base: &str) -> Result<bool, Broken> {
        let told = self.opc.read(&[(node, NODE_CLASS), (node, BROWSE_NAME)])?;
        let [class, name] = told.as_slice() else {
            return Ok(false);
        };
        let (Some(class), Some(browse_name)) = (number(class), name_of(name)) else {
            return Ok(false);
        };
        if browse_name.is_empty() || (class != VARIABLE && class != OBJECT) {
            return Ok(false);
        }
        self.nodes += 1;
        // A path that was given ends with the node already.
        let is_named = base.rsplit('/').find(|part| !part.trim().is_empty());
        let path = match is_named.is_some_and(|last| last.trim() == browse_name) {
            true => base.to_owned(),
            false => format!("{base}/{browse_name}"),
        };
        if class == VARIABLE {
            let root = Reference {
                node: node.clone(),
                is_local: true,
                browse_name,
                class,
            };
            self.variables(&[(&root, path)])?;
        }
        Ok(true)
    }

    /// Writes the variables that a node refers to; gives all nodes that are to be followed.
    fn children(
        &mut self,
        node: &NodeId,
        path: &str,
    ) -> Result<std::vec::IntoIter<(NodeId, String)>, Broken> {
        if self.context.is_stopping() {
            return Err(ProcessorError::Failed("stopped before all was read".to_owned()).into());
        }
        let references = match self.opc.browse(node) {
            Ok(references) => references,
            Err(fault) if fault.ends_session() => return Err(fault.into()),
            Err(fault) => {
                self.unread(path, &fault.to_string());
                Vec::new()
            }
        };
        self.nodes += references.len();
        if self.nodes > OPC_NODES_MAX {
            let message = format!("there are more than {OPC_NODES_MAX} nodes; set Max depth");
            return Err(ProcessorError::Failed(message).into());
        }
        let local = references.iter().filter(|reference| reference.is_local);
        let named = |reference: &Reference| format!("{path}/{}", reference.browse_name);
        let variables = local.clone().filter(|found| found.class == VARIABLE);
        let variables: Vec<(&Reference, String)> =
            variables.map(|found| (found, named(found))).collect();
        self.variables(&variables)?;
        let followed = local.filter(|found| found.class == VARIABLE || found.class == OBJECT);
        let followed: Vec<(NodeId, String)> = followed
            .map(|found| (found.node.clone(), named(found)))
            .collect();
        Ok(followed.into_iter())
    }

    fn variables(&mut self, variables: &[(&Reference, String)]) -> Result<(), Broken> {
        let asked: Vec<(&NodeId, u32)> = variables
            .iter()
            .map(|(found, _)| (&found.node, VALUE))
            .collect();
        let told = self.opc.read(&asked)?;
        self.variables += variables.len();
        for ((found, path), told) in variables.iter().zip(told) {
            let mark = mark(format!("{} {path}", found.node).as_bytes());
            self.met.insert(mark);
            match &told.value {
                _ if told.status.is_bad() => self.unread(path, &told.status.to_string()),
                None => self.unread(path, "it has no value"),
                Some(value) => self.variable(mark, found, path, value, told.source_time)?,
            }
        }
        Ok(())
    }

    fn variable(
        &mut self,
        mark_of_it: u64,
        found: &Reference,
        path: &str,
        value: &Variant,
        time: Option<i64>,
    ) -> Result<(), Broken> {
        let content = opcua::text(value);
        let last = match self.lazy {
            Lazy::Off => None,
            Lazy::Time => time.map(|time| mark(&time.to_le_bytes())),
            Lazy::Value => content.as_deref().map(mark),
        };
        if let Some(last) = last
            && self.known.marks.insert(mark_of_it, last) == Some(last)
        {
            return Ok(());
        }
        let (id_type, id) = match &found.node.name {
            Identifier::Number(number) => ("numeric", number.to_string()),
            Identifier::Text(text) => ("string", text.clone()),
            Identifier::Guid(guid) => ("guid", guid.to_string()),
            Identifier::Bytes(bytes) => ("bytestring", String::from_utf8_lossy(bytes).into_owned()),
        };
        let mut attributes = Attributes::new([
            ("NodeID", id.as_str()),
            ("NodeID type", id_type),
            ("Browsename", &found.browse_name),
            ("Full path", path),
            ("Typename", value.kind.name()),
        ]);
        if let Some(time) = time {
            attributes.set("Sourcetimestamp", opcua::time(time));
        }
        if content.is_some() {
            attributes.set("Datasize", opcua::size(value).to_string());
        }
        let mut flow_file = self.session.create(Arc::new(attributes));
        self.session
            .note(&flow_file, EventKind::Receive, &self.endpoint);
        match content {
            Some(content) => {
                self.session.write(&mut flow_file, Bytes::from(content))?;
                self.session.transfer(flow_file, SUCCESS);
            }
            None => self.session.transfer(flow_file, FAILURE),
        }
        self.written += 1;
        if self.session.is_large() {
            self.keep()?;
            self.session.commit()?;
        }
        Ok(())
    }

    /// Says what was amiss, and puts the marks on record.
    fn finish(mut self) -> Result<Result<usize, String>, Broken> {
        if self.is_deeper {
            let message = format!("nodes deeper than {OPC_TREE_DEPTH_MAX} are left out");
            self.context.post(Level::Warning, &message);
        }
        if let Some(why) = &self.why {
            let message = format!("{} could not be read, the first of them {why}", self.unread);
            self.context.post(Level::Warning, &message);
        }
        if self.nodes == 0 {
            return Ok(Err("there is no object or variable".to_owned()));
        }
        if self.variables == 0 {
            return Ok(Err("there are no variables".to_owned()));
        }
        let met = std::mem::take(&mut self.met);
        self.known.marks.retain(|mark, _| met.contains(mark));
        self.keep()?;
        Ok(Ok(self.written))
    }

    fn keep(&mut self) -> Result<(), ProcessorError> {
        match self.lazy {
            Lazy::Off => Ok(()),
            _ => self.session.set_state(self.known.to_bytes()),
        }
    }

    fn unread(&mut self, path: &str, why: &str) {
        self.unread += 1;
        self.why.get_or_insert_with(|| format!("{path}: {why}"));
    }
}

impl Known {
    fn read(bytes: &[u8], lazy: Lazy) -> Result<Self, ProcessorError> {
        let none = Known {
            version: 1,
            lazy,
            marks: BTreeMap::new(),
        };
        if bytes.is_empty() {
            return Ok(none);
        }
        let known: Known = serde_json::from_slice(bytes)
            .map_err(|error| ProcessorError::Failed(format!("its state is no state: {error}")))?;
        // Marks of values say nothing of times.
        Ok(if known.lazy == lazy { known } else { none })
    }

    fn to_bytes(&self) -> Bytes {
        let text = serde_json::to_vec(self).expect("plain numbers are always JSON");
        Bytes::from(text)
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Broken::Fault(fault)
    }
}

impl From<ProcessorError> for Broken {
    fn from(error: ProcessorError) -> Self {
        Broken::Processor(error)
    }
}

impl Processor for FetchOpc {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        match self.fetch(context, session) {
            Ok(Ok(0)) => Ok(Next::Yield),
            Ok(Ok(_)) => Ok(Next::Scheduled),
            Ok(Err(missing)) => {
                // It may have moved.
                self.resolved = None;
                let message = format!("{missing} at '{}'", self.start_text);
                context.post(Level::Warning, &message);
                Ok(Next::Yield)
            }
            Err(Broken::Fault(fault)) => Err(self.connection.failed(&fault)),
            Err(Broken::Processor(error)) => Err(error),
        }
    }

    fn stop(&mut self) {
        self.connection.stop();
    }
}

/// A node's class, where it was told.
fn number(told: &DataValue) -> Option<u32> {
    told.value.as_ref().and_then(Variant::as_number)
}

/// A node's name for people, where it was told.
fn name_of(told: &DataValue) -> Option<String> {
    told.value.as_ref().and_then(Variant::as_text)
}

/// So much of a hash that no two are the same.
fn mark(bytes: &[u8]) -> u64 {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;
