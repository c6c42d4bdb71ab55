//! FetchGCSObject: an object's content into the FlowFile that names it, its checksum compared.

use reqwest::{Method, Response};

use super::common::{
    ACCOUNT, FAILED, GENERATION, OBJECT, Way, encryption_of, fail_by, generation_of, writes,
};
use crate::content::Content;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::net::run_until_stop;
use crate::object_storage::gcs::{Ask, object_path};
use crate::object_storage::{Refusal, base64, header};
use crate::processors::object_storage::{SUCCESS, receive, stopped};
use crate::processors::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind,
    RelationshipKind, Settings, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "FetchGCSObject",
    description: "Gives each FlowFile the content of the object that it names.",
    properties: &joined::<4, 4, 8>(joined::<3, 1, 4>(OBJECT, [GENERATION]), ACCOUNT),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with the object's content.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles whose object could not be had.",
        },
    ],
    writes: &writes::<6, 6>(
        [
            AttributeKind::new("gcs.generation", "Its content's generation."),
            AttributeKind::new("gcs.metageneration", "Its metadata's generation."),
            AttributeKind::new("gcs.storage.class", "How it is stored."),
            FAILED[0],
            FAILED[1],
            FAILED[2],
        ],
        false,
    ),
    input: Input::Required,
    make: |settings| FetchGcsObject::new(settings).map(|made| Box::new(made) as _),
};

struct FetchGcsObject {
    way: Way,
    generation: Option<Expression>,
    encryption: Vec<(&'static str, String)>,
}

/// An object with what the server says of it.
type Fetched = (Content, Vec<(&'static str, String)>);

impl FetchGcsObject {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(FetchGcsObject {
            way: Way::new(settings, true)?,
            generation: settings.expression("Object Generation")?,
            encryption: encryption_of(settings)?,
        })
    }

    fn wanted(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(Ask, String), String> {
        let (bucket, key) = self.way.object(session, flow_file)?;
        let mut ask = Ask::new(Method::GET, object_path(&bucket, &key)?);
        ask.query.push(("alt", "media".to_owned()));
        let generation = generation_of(self.generation.as_ref(), session, flow_file)?;
        ask.query.extend(generation);
        ask.headers.clone_from(&self.encryption);
        Ok((ask, format!("gs://{bucket}/{key}")))
    }

    async fn fetch(
        &self,
        session: &mut ProcessSession<'_>,
        ask: &Ask,
    ) -> Result<Result<Fetched, Refusal>, ProcessorError> {
        let storage = &self.way.storage;
        let answer = match storage.ask(session.now(), ask).await {
            Ok(answer) => answer,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut facts = Vec::new();
        for (attribute, name) in [
            ("gcs.generation", "x-goog-generation"),
            ("gcs.metageneration", "x-goog-metageneration"),
            ("gcs.storage.class", "x-goog-storage-class"),
        ] {
            facts.extend(header(&answer, name).map(|value| (attribute, value)));
        }
        let expected = checksum(&answer);
        let mut found = 0;
        let mut look = |piece: &[u8]| found = crc32c::crc32c_append(found, piece);
        let content = match receive(session, answer, storage.wait, &mut look).await? {
            Ok(content) => content,
            Err(reason) => return Ok(Err(reason.into())),
        };
        let found = base64(found.to_be_bytes());
        Ok(match expected.is_some_and(|expected| expected != found) {
            true => Err("the content has another CRC32C than the server says"
                .to_owned()
                .into()),
            false => Ok((content, facts)),
        })
    }
}

/// The CRC32C of what comes, if the server says it. What is stored compressed comes unpacked, and
/// the server says that of what is stored.
fn checksum(answer: &Response) -> Option<String> {
    let stored = header(answer, "x-goog-stored-content-encoding");
    if stored.is_some_and(|stored| stored != "identity") {
        return None;
    }
    let hashes = answer.headers().get_all("x-goog-hash").iter();
    let mut hashes = hashes
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    hashes.find_map(|hash| Some(hash.trim().strip_prefix("crc32c=")?.to_owned()))
}

impl Processor for FetchGcsObject {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let outcome = match self.wanted(session, &flow_file) {
            Ok((ask, transit)) => {
                let fetching = self.fetch(session, &ask);
                let fetched = run_until_stop(context, fetching).ok_or_else(stopped)??;
                fetched.map(|fetched| (fetched, transit))
            }
            Err(reason) => Err(reason.into()),
        };
        match outcome {
            Ok(((content, facts), transit)) => {
                let mut attributes = Attributes::clone(flow_file.attributes());
                for (name, value) in facts {
                    attributes.set(name, value);
                }
                session.set_content(&mut flow_file, content)?;
                session.set_attributes(&mut flow_file, attributes.into());
                session.note(&flow_file, EventKind::Fetch, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(refusal) => fail_by(context, session, flow_file, "fetched", &refusal),
        }
        Ok(Next::Scheduled)
    }
}
