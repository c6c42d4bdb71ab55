//! What the processors of object storages have in common: properties, the way out, content both
//! ways, what was listed, and how failures are told.

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom, Take, Write};
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use serde::{Deserialize, Serialize};

use super::{ProcessorError, PropertyKind, Settings, Shape};
use crate::bulletins::Level;
use crate::content::{Content, ContentReader};
use crate::engine::Context;
use crate::expression::{Expression, Scope};
use crate::flowfile::{Attributes, FlowFile};
use crate::limits::SESSION_FLOW_FILES_MAX;
use crate::net::http_client::{self, ClientSettings, Progress};
use crate::net::limits::STORAGE_LISTED_KEYS_MAX;
use crate::services::ProxyConfiguration;
use crate::session::ProcessSession;

/// The proxy that a service names.
pub(super) const PROXY: PropertyKind =
    PropertyKind::new("Proxy Configuration Service", "The proxy to go out by.")
        .shape(Shape::Service("ProxyConfigurationService"));

pub(super) const SUCCESS: usize = 0;
pub(super) const FAILURE: usize = 1;

/// Bound of one request as a whole; what stands still is given up long before.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The HTTP client by the proxy that a service names, or else by `proxy`.
pub(super) fn client(
    settings: &Settings<'_>,
    wait: Duration,
    proxy: Option<Arc<ProxyConfiguration>>,
) -> Result<reqwest::Client, String> {
    let service = settings.service::<ProxyConfiguration>("Proxy Configuration Service")?;
    http_client::client(&ClientSettings {
        connect_wait: wait,
        proxy: service.or(proxy),
        ..ClientSettings::default()
    })
}

/// What a property says of a FlowFile; empty where it is not set.
pub(super) fn text_of(
    expression: Option<&Expression>,
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
) -> Result<String, String> {
    text_in(expression, session.scope(flow_file))
}

/// What a property says where there is no FlowFile.
pub(super) fn text_alone(
    expression: Option<&Expression>,
    session: &ProcessSession<'_>,
) -> Result<String, String> {
    let scope = Scope {
        attributes: None,
        flow_file: None,
        now: session.now(),
    };
    text_in(expression, scope)
}

fn text_in(expression: Option<&Expression>, scope: Scope<'_>) -> Result<String, String> {
    let text = expression.map(|text| text.evaluate(scope)).transpose();
    let text = text.map_err(|error| error.to_string())?;
    Ok(text.unwrap_or_default().into_owned())
}

/// What goes out of a FlowFile's content, and where that shall end.
pub(super) struct Outgoing<'o, 'n> {
    pub(super) context: &'o Context,
    pub(super) session: &'o ProcessSession<'n>,
    pub(super) flow_file: &'o FlowFile,
    /// How long nothing may move.
    pub(super) wait: Duration,
}

impl Outgoing<'_, '_> {
    /// Reads a range of the content, by offset and length.
    pub(super) fn reader(&self, range: (u64, u64)) -> Result<Take<ContentReader>, String> {
        let mut reader = self.session.reader(self.flow_file);
        reader
            .seek(SeekFrom::Start(range.0))
            .map_err(|error| error.to_string())?;
        Ok(reader.take(range.1))
    }

    /// A body of what `reader` has, `len` bytes in all.
    pub(super) fn body(
        &self,
        reader: impl Read + Send + 'static,
        len: u64,
        progress: &Progress,
    ) -> reqwest::Body {
        let reader: Box<dyn Read + Send> = Box::new(reader);
        http_client::body(self.context.runtime(), reader, Some(len), None, progress)
    }

    /// Waits for what `asking` brings as long as its body moves.
    pub(super) async fn while_moving<T, E: From<String>>(
        &self,
        asking: impl Future<Output = Result<T, E>>,
        progress: &Progress,
    ) -> Result<T, E> {
        tokio::select! {
            answer = asking => answer,
            () = progress.stands_still(self.wait) => {
                Err(format!("nothing moves for {} s", self.wait.as_secs()).into())
            }
        }
    }
}

/// Takes an answer's body as content; `look` sees each piece of it.
pub(super) async fn receive(
    session: &mut ProcessSession<'_>,
    mut answer: Response,
    wait: Duration,
    look: &mut (dyn FnMut(&[u8]) + Send),
) -> Result<Result<Content, String>, ProcessorError> {
    let mut writer = session.writer();
    loop {
        match tokio::time::timeout(wait, answer.chunk()).await {
            Ok(Ok(Some(piece))) => {
                look(&piece);
                writer
                    .write_all(&piece)
                    .map_err(|error| ProcessorError::Failed(base::report(&error)))?;
            }
            Ok(Ok(None)) => break,
            Ok(Err(error)) => return Ok(Err(base::report(&error.without_url()))),
            Err(_) => return Ok(Err("the object broke off".to_owned())),
        }
    }
    Ok(Ok(writer.finish()?))
}

/// Tells why a FlowFile's object was not dealt with, and sends it to `failure`.
pub(super) fn fail(
    context: &Context,
    session: &mut ProcessSession<'_>,
    flow_file: FlowFile,
    what: &str,
    reason: &str,
) {
    context.post(
        Level::Error,
        &format!("the object was not {what}: {reason}"),
    );
    session.transfer_penalized(flow_file, FAILURE);
}

/// A trigger that was stopped while it waited for the server.
pub(super) fn stopped() -> ProcessorError {
    ProcessorError::Failed("stopped before the server had answered".to_owned())
}

/// An object of a listing.
pub(super) struct Entry {
    /// When it changed, as a text whose order is that of time.
    pub(super) time: String,
    pub(super) key: String,
    pub(super) attributes: Vec<(&'static str, String)>,
}

/// What was listed, as the state keeps it: the newest time and the keys of that time. An object
/// that gets an older time than what was listed is not seen.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Listed {
    version: u8,
    /// The newest time, as the server writes it.
    time: String,
    /// The keys of that time.
    keys: BTreeSet<String>,
}

impl Listed {
    /// What the session's state says.
    pub(super) fn read(session: &ProcessSession<'_>) -> Self {
        serde_json::from_slice(&session.state()).unwrap_or_default()
    }

    /// Whether an object is new, or changed.
    pub(super) fn lacks(&self, entry: &Entry) -> bool {
        entry.time > self.time || (entry.time == self.time && !self.keys.contains(&entry.key))
    }

    /// Makes FlowFiles of `fresh`, in order of time, and keeps that they were listed. Whether
    /// there may be more.
    pub(super) fn list(
        mut self,
        session: &mut ProcessSession<'_>,
        fresh: Vec<Entry>,
    ) -> Result<bool, ProcessorError> {
        if fresh.is_empty() {
            return Ok(false);
        }
        let is_full = fresh.len() == SESSION_FLOW_FILES_MAX;
        for entry in fresh {
            let flow_file = session.create(Arc::new(Attributes::new(entry.attributes)));
            session.transfer(flow_file, SUCCESS);
            if entry.time > self.time {
                self.time = entry.time;
                self.keys.clear();
            }
            self.keys.insert(entry.key);
            if self.keys.len() > STORAGE_LISTED_KEYS_MAX {
                return Err(ProcessorError::Failed(format!(
                    "more than {STORAGE_LISTED_KEYS_MAX} objects have the same time; narrow Prefix"
                )));
            }
        }
        let state = serde_json::to_vec(&self).expect("plain texts are always JSON");
        session.set_state(state.into())?;
        Ok(is_full)
    }
}

/// Keeps the oldest, as many as a session takes, once there are twice as many or `is_last`.
pub(super) fn keep_oldest(fresh: &mut Vec<Entry>, is_last: bool) {
    if is_last || fresh.len() > 2 * SESSION_FLOW_FILES_MAX {
        fresh.sort_by(|a, b| (&a.time, &a.key).cmp(&(&b.time, &b.key)));
        fresh.truncate(SESSION_FLOW_FILES_MAX);
    }
}
