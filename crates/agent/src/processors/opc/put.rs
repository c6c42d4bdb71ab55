//! PutOPCProcessor: content as the value of an OPC UA server's variable, which is made where it is
//! not there.
//!
//! While the server is away FlowFiles stay where they are. An agent that is killed after a write
//! and before its commit writes the same once more.

use super::common::{Connection, ID_TYPES, Named, SERVER, node, reference};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::{Expression, ExpressionError};
use crate::flowfile::FlowFile;
use crate::net::limits::OPC_MESSAGE_BYTES_MAX;
use crate::opcua::{self, Fault, Kind, NODE_CLASS, NodeId, Place, Session, Status};
use crate::processors::refused::Refused;
use crate::processors::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PutOPCProcessor",
    description: "Writes content as the value of a variable of an OPC UA server, and makes the \
                  variable where it is not there and a parent node is given.",
    properties: &PROPERTIES,
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose content the server has as a value.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that are no value of the type, or that the server refuses.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| PutOpc::new(settings).map(|made| Box::new(made) as _),
};

const PROPERTIES: [PropertyKind; 17] = joined(
    SERVER,
    [
        PropertyKind::new("Parent node ID type", "What Parent node ID is.").allowed(ID_TYPES),
        PropertyKind::new(
            "Parent node ID",
            "The node below which variables are made that are not there; none is made when empty.",
        ),
        PropertyKind::new(
            "Parent node namespace index",
            "The parent's namespace, or that of all names of its path.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
        PropertyKind::new("Value type", "What the content is written as.")
            .required()
            .allowed(&[
                "Int64", "UInt64", "Int32", "UInt32", "Boolean", "Float", "Double", "String",
            ]),
        PropertyKind::new(
            "Target node ID type",
            "What Target node ID is: Int, String or Guid.",
        )
        .required()
        .expressions(Expressions::FlowFile),
        PropertyKind::new("Target node ID", "The variable.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Target node browse name",
            "The name for people of a variable that is made.",
        )
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Target node namespace index",
            "The namespace of the variable, and of its name when it is made.",
        )
        .default("0")
        .required()
        .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Create node reference type",
            "How the parent refers to a variable that is made.",
        )
        .default("HasComponent")
        .allowed(&["Organizes", "HasComponent", "HasProperty", "HasSubtype"]),
    ],
);

struct PutOpc {
    connection: Connection,
    parent: Option<Named>,
    /// The parent's node, in the session that is open.
    resolved: Option<NodeId>,
    kind: Kind,
    kind_name: String,
    id_type: Expression,
    id: Expression,
    browse_name: Option<Expression>,
    namespace: Expression,
    reference: u32,
}

/// Why one FlowFile was not written.
enum Unwritten {
    Refused(Refused),
    Fault(Fault),
}

impl PutOpc {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let parent = match settings.text("Parent node ID")? {
            None => None,
            Some(id) => {
                let parent = Named::parse(
                    "Parent node ID",
                    &settings.needed("Parent node ID type")?,
                    settings.integer("Parent node namespace index")?,
                    &id,
                    settings.text("Path reference types")?.as_deref(),
                );
                Some(parent?)
            }
        };
        let needed = |name: &str| {
            let expression = settings.expression(name)?;
            expression.ok_or_else(|| format!("{name} is required and empty"))
        };
        let kind_name = settings.needed("Value type")?;
        Ok(PutOpc {
            connection: Connection::new(settings)?,
            parent,
            resolved: None,
            kind: match kind_name.as_str() {
                "Int64" => Kind::INT64,
                "UInt64" => Kind::UINT64,
                "Int32" => Kind::INT32,
                "UInt32" => Kind::UINT32,
                "Boolean" => Kind::BOOLEAN,
                "Float" => Kind::FLOAT,
                "Double" => Kind::DOUBLE,
                _ => Kind::STRING,
            },
            kind_name,
            id_type: needed("Target node ID type")?,
            id: needed("Target node ID")?,
            browse_name: settings.expression("Target node browse name")?,
            namespace: needed("Target node namespace index")?,
            reference: reference(&settings.needed("Create node reference type")?)
                .map_err(|why| format!("Create node reference type: {why}"))?,
        })
    }

    /// Writes a FlowFile's content; the parent is known.
    fn put(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(), Unwritten> {
        let scope = session.scope(flow_file);
        let namespace = self.namespace.evaluate(scope)?;
        let namespace = namespace.trim().parse().map_err(|_| {
            Refused::flow_file(format!(
                "Target node namespace index: '{namespace}' is no namespace"
            ))
        })?;
        let id = self.id.evaluate(scope)?;
        if id.is_empty() {
            return Err(Refused::flow_file("Target node ID is empty").into());
        }
        let target = node(self.id_type.evaluate(scope)?.trim(), namespace, &id)
            .map_err(|why| Refused::FlowFile(format!("Target node ID: {why}")))?;
        let no_value = || Refused::FlowFile(format!("the content is no {}", self.kind_name));
        if flow_file.size() > OPC_MESSAGE_BYTES_MAX as u64 {
            return Err(no_value().into());
        }
        let content = session.read(flow_file)?;
        let value = std::str::from_utf8(&content)
            .ok()
            .and_then(|text| opcua::parse(self.kind, text))
            .ok_or_else(no_value)?;
        let browse_name = match &self.browse_name {
            Some(name) => name.evaluate(scope)?.into_owned(),
            None => String::new(),
        };
        let (opc, _) = self.connection.session(context, session)?;
        if exists(opc, &target)? {
            return Ok(opc.write(&target, &value)?);
        }
        let Some(parent) = &self.resolved else {
            let reason = format!("there is no node {target}, and no parent to make it below");
            return Err(Refused::FlowFile(reason).into());
        };
        if browse_name.is_empty() {
            let reason = format!("there is no node {target}, and no browse name to make it with");
            return Err(Refused::FlowFile(reason).into());
        }
        let place = Place {
            parent,
            reference: self.reference,
            browse_name: &browse_name,
        };
        Ok(opc.add_variable(&place, &target, &value)?)
    }

    /// Finds the parent, in a new session again; an error says why there is none.
    fn find_parent(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
    ) -> Result<Result<(), String>, ProcessorError> {
        let (opc, is_new) = self.connection.session(context, session)?;
        if is_new {
            self.resolved = None;
        }
        if self.resolved.is_some() {
            return Ok(Ok(()));
        }
        let nodes = match &self.parent {
            None => return Ok(Ok(())),
            Some(Named::Node(node)) => Ok(vec![node.clone()]),
            Some(Named::Path(path)) => path.resolve(opc),
        };
        let mut nodes = nodes.map_err(|fault| self.connection.failed(&fault))?;
        match (nodes.pop(), nodes.len()) {
            (Some(node), 0) => {
                self.resolved = Some(node);
                Ok(Ok(()))
            }
            (None, _) => Ok(Err("Parent node ID: the path leads nowhere".to_owned())),
            (Some(_), more) => Ok(Err(format!(
                "Parent node ID: the path leads to {} nodes",
                more + 1
            ))),
        }
    }
}

impl Processor for PutOpc {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        if let Err(why) = self.find_parent(context, session)? {
            return Err(ProcessorError::Failed(why));
        }
        let Some(flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let reason = match self.put(context, session, &flow_file) {
            Ok(()) => {
                session.note(&flow_file, EventKind::Send, self.connection.endpoint());
                session.transfer(flow_file, SUCCESS);
                return Ok(Next::Scheduled);
            }
            Err(Unwritten::Refused(Refused::Session(error))) => return Err(error),
            Err(Unwritten::Fault(fault)) if fault.ends_session() => {
                return Err(self.connection.failed(&fault));
            }
            Err(Unwritten::Refused(Refused::FlowFile(reason))) => reason,
            Err(Unwritten::Fault(fault)) => fault.to_string(),
        };
        context.post(Level::Error, &reason);
        session.transfer_penalized(flow_file, FAILURE);
        Ok(Next::Scheduled)
    }

    fn stop(&mut self) {
        self.connection.stop();
    }
}

/// Whether the server has this node.
fn exists(opc: &mut Session, node: &NodeId) -> Result<bool, Fault> {
    let told = opc.read(&[(node, NODE_CLASS)])?;
    match told.first().map(|told| told.status) {
        Some(Status::NODE_ID_UNKNOWN) => Ok(false),
        Some(status) if status.is_bad() => Err(Fault::Declined(status)),
        _ => Ok(true),
    }
}

impl From<Refused> for Unwritten {
    fn from(refused: Refused) -> Self {
        Unwritten::Refused(refused)
    }
}

impl From<ExpressionError> for Unwritten {
    fn from(error: ExpressionError) -> Self {
        Unwritten::Refused(error.into())
    }
}

impl From<ProcessorError> for Unwritten {
    fn from(error: ProcessorError) -> Self {
        Unwritten::Refused(error.into())
    }
}

impl From<Fault> for Unwritten {
    fn from(fault: Fault) -> Self {
        Unwritten::Fault(fault)
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;
