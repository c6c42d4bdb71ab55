//! FetchAzureBlobStorage: a blob's content, or a range of it, into the FlowFile that names it.

use reqwest::Method;

use super::common::{ACCOUNT, BLOB, WAIT, Way};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::net::run_until_stop;
use crate::object_storage::azure::Ask;
use crate::processors::object_storage::{SUCCESS, fail, receive, stopped, text_of};
use crate::processors::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchAzureBlobStorage",
    description: "Gives each FlowFile the content of the blob that it names.",
    properties: &joined::<3, 11, 14>(
        [
            BLOB,
            PropertyKind::new("Range Start", "The first byte; 0 when empty.")
                .expressions(Expressions::FlowFile),
            PropertyKind::new(
                "Range Length",
                "Bytes from there on; all when empty, or when there are not so many.",
            )
            .expressions(Expressions::FlowFile),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with the blob's content.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose blob could not be had.",
        },
    ],
    writes: &[],
    input: Input::Required,
    make: |settings| FetchAzureBlobStorage::new(settings).map(|made| Box::new(made) as _),
};

struct FetchAzureBlobStorage {
    way: Way,
    start: Option<Expression>,
    len: Option<Expression>,
}

impl FetchAzureBlobStorage {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(FetchAzureBlobStorage {
            way: Way::new(settings, true)?,
            start: settings.expression("Range Start")?,
            len: settings.expression("Range Length")?,
        })
    }

    /// The header for the range that a FlowFile wants.
    fn range(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Option<String>, String> {
        let number = |name: &str, expression: &Option<Expression>| {
            let text = text_of(expression.as_ref(), session, flow_file)?;
            let number = Some(text.trim()).filter(|text| !text.is_empty());
            let number = number.map(str::parse::<u64>).transpose();
            number.map_err(|_| format!("{name}: '{text}' is no number of bytes"))
        };
        let start = number("Range Start", &self.start)?.unwrap_or_default();
        Ok(match number("Range Length", &self.len)? {
            Some(0) => return Err("Range Length: no bytes are no range".to_owned()),
            Some(len) => Some(format!("bytes={start}-{}", start.saturating_add(len - 1))),
            None if start > 0 => Some(format!("bytes={start}-")),
            None => None,
        })
    }

    async fn fetch(
        &self,
        session: &mut ProcessSession<'_>,
        named: &(String, String),
        range: Option<String>,
    ) -> Result<Result<Content, String>, ProcessorError> {
        let mut ask = Ask::new(Method::GET, &named.0, &named.1);
        ask.headers.extend(range.map(|range| ("x-ms-range", range)));
        let Way {
            client, account, ..
        } = &self.way;
        match account.ask(client, session.now(), ask, WAIT).await {
            Ok(answer) => receive(session, answer, WAIT, &mut |_| ()).await,
            Err(refusal) => Ok(Err(refusal.into())),
        }
    }
}

impl Processor for FetchAzureBlobStorage {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let wanted = self.way.object(session, &flow_file);
        let wanted = wanted.and_then(|named| Ok((named, self.range(session, &flow_file)?)));
        let outcome = match wanted {
            Ok((named, range)) => {
                let fetching = self.fetch(session, &named, range);
                let fetched = run_until_stop(context, fetching).ok_or_else(stopped)??;
                fetched.map(|content| (named, content))
            }
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok(((container, blob), content)) => {
                session.set_content(&mut flow_file, content)?;
                let transit = format!("{}/{container}/{blob}", self.way.account.endpoint);
                session.note(&flow_file, EventKind::Fetch, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(reason) => fail(context, session, flow_file, "fetched", &reason),
        }
        Ok(Next::Scheduled)
    }
}
