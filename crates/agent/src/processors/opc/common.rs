//! The server, who logs in, and how flows name nodes.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use crate::bulletins::Level;
use crate::engine::Context;
use crate::opcua::{
    Certificate, Fault, Identifier, Identity, Login, NodeId, ORGANIZES, REFERENCES, Security,
    Server, Session, Stops,
};
use crate::processors::{ProcessorError, PropertyKind, Settings};
use crate::session::ProcessSession;

/// The properties that both have.
pub(super) const SERVER: [PropertyKind; 8] = [
    PropertyKind::new(
        "OPC server endpoint",
        "The server's address, opc.tcp://host:port/path; without a port it is 4840.",
    )
    .required(),
    PropertyKind::new(
        "Application URI",
        "Who the agent says it is; urn:unconfigured:application when empty.",
    ),
    PropertyKind::new("Username", "Who logs in; nobody by name when empty."),
    PropertyKind::new(
        "Password",
        "The user's password; encrypted wherever the server has a way to that, with a warning \
         where it has none.",
    )
    .sensitive(),
    PropertyKind::new(
        CERTIFICATE,
        "The agent's certificate, a file in DER or PEM with an RSA key. With it all is signed and \
         encrypted, by the best policy of the server's that is spoken: Aes256_Sha256_RsaPss, \
         Aes128_Sha256_RsaOaep or Basic256Sha256. Needs the certificate's Application URI.",
    ),
    PropertyKind::new(KEY, "The certificate's key, a file in DER or PEM."),
    PropertyKind::new(
        TRUSTED,
        "The server's certificate, or that of who issued it, a file in DER or PEM; of several \
         files, with commas, any. Where it is empty any server is taken, with a warning.",
    ),
    PropertyKind::new(
        "Path reference types",
        "With a path: the type of the reference from each of its nodes to the next, as \
         Organizes/HasComponent; Organizes when empty. HasProperty and HasSubtype are the others.",
    ),
];

/// The kinds of names that a node can have in a flow.
pub(super) const ID_TYPES: &[&str] = &["Path", "Int", "String", "Guid"];

/// A server and the session with it, if there is one.
pub(super) struct Connection {
    server: Server,
    session: Option<Session>,
}

/// A node as a flow names it.
pub(super) enum Named {
    Node(NodeId),
    Path(Names),
}

/// Names that lead to a node from the folder of objects.
pub(super) struct Names {
    /// As the flow has it.
    pub(super) text: String,
    namespace: u16,
    /// Each name and the type of the reference to it.
    steps: Vec<(u32, String)>,
}

impl Connection {
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let login = match (settings.text("Username")?, settings.text("Password")?) {
            (Some(user), Some(password)) => Some(Login { user, password }),
            (None, None) => None,
            _ => return Err("Username and Password: one is there without the other".to_owned()),
        };
        let endpoint = settings.needed("OPC server endpoint")?;
        let application = settings.text("Application URI")?;
        let security = security(settings, application.is_some(), login.is_some())?;
        let server = Server::new(&endpoint, application, login, security)
            .map_err(|why| format!("OPC server endpoint: {why}"))?;
        Ok(Connection {
            server,
            session: None,
        })
    }

    /// The server's address as the flow has it.
    pub(super) fn endpoint(&self) -> &str {
        self.server.endpoint()
    }

    /// The session that is there or a new one, and whether it is new.
    ///
    /// # Errors
    /// When the server cannot be reached or does not let the agent in; nothing was taken yet.
    pub(super) fn session(
        &mut self,
        context: &Context,
        session: &ProcessSession<'_>,
    ) -> Result<(&mut Session, bool), ProcessorError> {
        let is_new = !self.session.as_ref().is_some_and(Session::is_fresh);
        if is_new {
            self.stop();
            let warn = |what: &str| context.post(Level::Warning, what);
            let stops: Stops = Arc::new(context.stop_look());
            let opened = self.server.open(session.now(), &stops, &warn);
            self.session = Some(opened.map_err(|fault| self.failed(&fault))?);
        }
        match &mut self.session {
            Some(session) => Ok((session, is_new)),
            None => unreachable!("it was just opened"),
        }
    }

    /// Lets go of the session where `fault` is its end, and says what went wrong.
    pub(super) fn failed(&mut self, fault: &Fault) -> ProcessorError {
        if fault.ends_session() {
            self.session = None;
        }
        ProcessorError::Failed(format!("{}: {fault}", self.endpoint()))
    }

    /// Logs out.
    pub(super) fn stop(&mut self) {
        if let Some(session) = self.session.take() {
            session.close();
        }
    }
}

/// Reads who the agent is and who the server has to be.
fn security(
    settings: &Settings<'_>,
    has_application: bool,
    has_login: bool,
) -> Result<Security, String> {
    let identity = match (settings.text(CERTIFICATE)?, settings.text(KEY)?) {
        (Some(certificate), Some(key)) => {
            if !has_application {
                return Err(format!(
                    "Application URI: {CERTIFICATE} needs it; servers compare it with the \
                     certificate's own"
                ));
            }
            let identity = Identity::read(Path::new(&certificate), Path::new(&key));
            Some(Arc::new(
                identity.map_err(|why| format!("{CERTIFICATE} and {KEY}: {why}"))?,
            ))
        }
        (None, None) => None,
        _ => {
            return Err(format!(
                "{CERTIFICATE} and {KEY}: one is there without the other"
            ));
        }
    };
    let trusted = match settings.text(TRUSTED)? {
        Some(_) if identity.is_none() && !has_login => {
            return Err(format!(
                "{TRUSTED}: it checks nothing where there is neither {CERTIFICATE} nor Username"
            ));
        }
        Some(files) => {
            let read = |file: &str| Certificate::read(Path::new(file.trim()));
            let trusted: Result<Vec<_>, _> = files.split(',').map(read).collect();
            trusted.map_err(|why| format!("{TRUSTED}: {why}"))?
        }
        None => Vec::new(),
    };
    Ok(Security { identity, trusted })
}

impl Named {
    /// Reads a node's name, which `property` has; `references` are the types of a path's references.
    pub(super) fn parse(
        property: &str,
        id_type: &str,
        namespace: u16,
        id: &str,
        references: Option<&str>,
    ) -> Result<Self, String> {
        match id_type {
            "Path" => Names::parse(property, namespace, id, references).map(Named::Path),
            _ => node(id_type, namespace, id)
                .map(Named::Node)
                .map_err(|why| format!("{property}: {why}")),
        }
    }
}

impl Names {
    fn parse(
        property: &str,
        namespace: u16,
        text: &str,
        references: Option<&str>,
    ) -> Result<Self, String> {
        let names = parts(text);
        if names.is_empty() {
            return Err(format!("{property}: '{text}' is no path"));
        }
        // The folder of objects organizes what is in it.
        let mut types = vec![ORGANIZES; names.len()];
        if let Some(told) = references {
            let told = parts(told);
            if told.len() + 1 != names.len() {
                return Err(format!(
                    "Path reference types: there are {} for the {} between the path's nodes",
                    told.len(),
                    names.len() - 1
                ));
            }
            for (kind, name) in types[1..].iter_mut().zip(told) {
                *kind = reference(name).map_err(|why| format!("Path reference types: {why}"))?;
            }
        }
        let names = names.into_iter().map(str::to_owned);
        Ok(Names {
            text: text.to_owned(),
            namespace,
            steps: types.into_iter().zip(names).collect(),
        })
    }

    /// The nodes that it leads to.
    pub(super) fn resolve(&self, session: &mut Session) -> Result<Vec<NodeId>, Fault> {
        session.translate(self.namespace, &self.steps)
    }
}

/// The node of this name, which is no path.
pub(super) fn node(id_type: &str, namespace: u16, id: &str) -> Result<NodeId, String> {
    let name = match id_type {
        "Int" => Identifier::Number(
            id.trim()
                .parse()
                .map_err(|_| format!("'{id}' is no number of a node"))?,
        ),
        "String" => Identifier::Text(id.to_owned()),
        "Guid" => Identifier::Guid(
            Uuid::parse_str(id.trim()).map_err(|_| format!("'{id}' is no GUID of a node"))?,
        ),
        other => return Err(format!("'{other}' is none of Int, String, Guid")),
    };
    Ok(NodeId { namespace, name })
}

/// The number of a reference's type.
pub(super) fn reference(name: &str) -> Result<u32, String> {
    let known = REFERENCES.iter().find(|(known, _)| *known == name);
    known.map(|(_, number)| *number).ok_or_else(|| {
        let all = REFERENCES.map(|(known, _)| known).join(", ");
        format!("'{name}' is none of {all}")
    })
}

fn parts(text: &str) -> Vec<&str> {
    let parts = text.split('/').map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

const CERTIFICATE: &str = "Certificate path";
const KEY: &str = "Key path";
const TRUSTED: &str = "Trusted server certificate path";
