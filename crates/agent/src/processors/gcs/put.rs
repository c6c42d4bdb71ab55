//! PutGCSObject: content of any size as objects; what is larger than a part goes in parts, and
//! goes on where it broke off.

use std::io::Read;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::common::{
    ACCOUNT, FACTS, FAILED, OBJECT, Way, encryption_of, fail_by, set_facts, writes,
};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::Attributes;
use crate::net::http_client::Progress;
use crate::net::run_until_stop;
use crate::object_storage::gcs::{Ask, json_of, json_words};
use crate::object_storage::{Refusal, base64, good, header, path_of};
use crate::processors::object_storage::{Outgoing, SUCCESS, stopped, text_of};
use crate::processors::{
    Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PutGCSObject",
    description: "Puts each FlowFile's content into a bucket, in parts of 8 MB when it is larger.",
    properties: &joined::<8, 4, 12>(
        joined::<3, 5, 8>(
            OBJECT,
            [
                PropertyKind::new("Content Type", "What the object is.")
                    .default("${mime.type}")
                    .expressions(Expressions::FlowFile),
                PropertyKind::new(
                    "MD5 Hash",
                    "The content's MD5 in Base64, which the server compares.",
                )
                .expressions(Expressions::FlowFile),
                PropertyKind::new(
                    "CRC32C Checksum",
                    "The content's CRC32C in Base64, which the server compares; the agent's own \
                     when empty.",
                )
                .expressions(Expressions::FlowFile),
                PropertyKind::new(
                    "Object ACL",
                    "Who may read it; as the bucket says when empty.",
                )
                .allowed(&[
                    "authenticatedRead",
                    "bucketOwnerFullControl",
                    "bucketOwnerRead",
                    "private",
                    "projectPrivate",
                    "publicRead",
                    "publicReadWrite",
                ]),
                PropertyKind::new(
                    "Overwrite Object",
                    "Whether an object that is there already is replaced; it fails otherwise.",
                )
                .default("true")
                .shape(Shape::Flag),
            ],
        ),
        ACCOUNT,
    ),
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles whose object is stored.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles that could not be stored.",
        },
    ],
    writes: &writes::<3, { 3 + FACTS.len() }>(FAILED, true),
    input: Input::Required,
    make: |settings| PutGcsObject::new(settings).map(|made| Box::new(made) as _),
};

struct PutGcsObject {
    way: Way,
    content_type: Option<Expression>,
    md5: Option<Expression>,
    crc32c: Option<Expression>,
    acl: Option<String>,
    overwrites: bool,
    encryption: Vec<(&'static str, String)>,
}

impl PutGcsObject {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(PutGcsObject {
            way: Way::new(settings, true)?,
            content_type: settings.expression("Content Type")?,
            md5: settings.expression("MD5 Hash")?,
            crc32c: settings.expression("CRC32C Checksum")?,
            acl: settings.text("Object ACL")?,
            overwrites: settings.flag("Overwrite Object")?,
            encryption: encryption_of(settings)?,
        })
    }

    /// What the server is told of the object.
    fn described(&self, outgoing: &Outgoing<'_, '_>, key: &str) -> Result<Value, String> {
        let Outgoing {
            session, flow_file, ..
        } = outgoing;
        let mut described = json!({ "name": key });
        for (member, expression) in [
            ("contentType", &self.content_type),
            ("md5Hash", &self.md5),
            ("crc32c", &self.crc32c),
        ] {
            let text = text_of(expression.as_ref(), session, flow_file)?;
            if !text.is_empty() {
                described[member] = text.into();
            }
        }
        if described["crc32c"].is_null() {
            let mut reader = outgoing.reader((0, flow_file.size()))?;
            let mut buffer = vec![0; 64 << 10];
            let mut found = 0;
            loop {
                match reader.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(read) => found = crc32c::crc32c_append(found, &buffer[..read]),
                    Err(error) => return Err(error.to_string()),
                }
            }
            described["crc32c"] = base64(found.to_be_bytes()).into();
        }
        Ok(described)
    }

    fn upload(&self, bucket: &str, kind: &str) -> Result<Ask, String> {
        let path = format!("/upload/storage/v1/b/{}/o", path_of(bucket, false)?);
        let mut ask = Ask::new(Method::POST, path);
        ask.query.push(("uploadType", kind.to_owned()));
        ask.query
            .extend(self.acl.clone().map(|acl| ("predefinedAcl", acl)));
        if !self.overwrites {
            ask.query.push(("ifGenerationMatch", "0".to_owned()));
        }
        ask.headers.clone_from(&self.encryption);
        Ok(ask)
    }

    /// Stores a FlowFile; what the server says of the object.
    async fn store(
        &self,
        outgoing: &Outgoing<'_, '_>,
        bucket: &str,
        key: &str,
    ) -> Result<Value, Refusal> {
        let described = self.described(outgoing, key)?;
        if outgoing.flow_file.size() > PART_BYTES {
            return self
                .store_in_parts(outgoing, bucket, described.to_string())
                .await;
        }
        let mut tries = 0;
        loop {
            let stored = match self.store_whole(outgoing, bucket, &described).await {
                Ok(answer) => good(answer, json_words).await,
                Err(refusal) => Err(refusal),
            };
            match stored {
                Ok(answer) => return Ok(json_of(answer).await?),
                Err(refusal) => self.way.storage.rest(&mut tries, refusal).await?,
            }
        }
    }

    /// Description and content in one request.
    async fn store_whole(
        &self,
        outgoing: &Outgoing<'_, '_>,
        bucket: &str,
        described: &Value,
    ) -> Result<Response, Refusal> {
        let size = outgoing.flow_file.size();
        let boundary = uuid::Uuid::new_v4();
        let kind = described["contentType"].as_str().unwrap_or_default();
        // What a header cannot say stands in the description alone.
        let kind = match kind.is_empty() || kind.contains(|c: char| !matches!(c, ' '..='~')) {
            true => "application/octet-stream",
            false => kind,
        };
        let head = format!(
            "--{boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n{described}\r\n\
             --{boundary}\r\ncontent-type: {kind}\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let len = size + (head.len() + tail.len()) as u64;
        let content = outgoing.reader((0, size))?;
        let reader = std::io::Cursor::new(head)
            .chain(content)
            .chain(std::io::Cursor::new(tail));
        let mut ask = self.upload(bucket, "multipart")?;
        let kind = format!("multipart/related; boundary={boundary}");
        ask.headers.push(("content-type", kind));
        let progress = Progress::new();
        let body = outgoing.body(reader, len, &progress);
        let asking = self
            .way
            .storage
            .once(outgoing.session.now(), ask, Some(body));
        outgoing.while_moving(asking, &progress).await
    }

    /// Part after part. What broke off goes on from what the server has.
    async fn store_in_parts(
        &self,
        outgoing: &Outgoing<'_, '_>,
        bucket: &str,
        described: String,
    ) -> Result<Value, Refusal> {
        let part = self.begin(outgoing, bucket, described).await?;
        let mut tries = 0;
        // None when it is for the server to say.
        let mut offset = Some(0);
        loop {
            let answer = match self.send_part(outgoing, part.clone(), offset).await {
                Ok(answer) if answer.status().as_u16() == MORE => {
                    let got = got(&answer).min(outgoing.flow_file.size());
                    if offset.is_some_and(|offset| got <= offset) {
                        Err("the server takes nothing of a part".to_owned().into())
                    } else {
                        // A question is no progress.
                        tries = offset.map_or(tries, |_| 0);
                        offset = Some(got);
                        continue;
                    }
                }
                Ok(answer) => good(answer, json_words).await,
                Err(refusal) => Err(refusal),
            };
            match answer {
                Ok(answer) => return Ok(json_of(answer).await?),
                Err(refusal) => self.way.storage.rest(&mut tries, refusal).await?,
            }
            offset = None;
        }
    }

    /// Begins an upload; its parts are asked for with this.
    async fn begin(
        &self,
        outgoing: &Outgoing<'_, '_>,
        bucket: &str,
        described: String,
    ) -> Result<Ask, Refusal> {
        let storage = &self.way.storage;
        let mut begin = self.upload(bucket, "resumable")?;
        let kind = "application/json; charset=UTF-8".to_owned();
        begin.headers.push(("content-type", kind));
        let mut tries = 0;
        loop {
            let body = Some(described.clone().into());
            let asking = storage.once(outgoing.session.now(), begin.clone(), body);
            let begun = match outgoing.while_moving(asking, &Progress::new()).await {
                Ok(answer) => good(answer, json_words).await,
                Err(refusal) => Err(refusal),
            };
            match begun {
                Ok(answer) => {
                    let place = header(&answer, "location").unwrap_or_default();
                    let place: Result<reqwest::Url, _> = place.parse();
                    let place = place.map_err(|_| "the server names no upload".to_owned())?;
                    // Always by the address that we know: credentials go nowhere else.
                    let mut path = place.path().to_owned();
                    path.extend(place.query().map(|query| format!("?{query}")));
                    let mut part = Ask::new(Method::PUT, path);
                    part.headers.clone_from(&self.encryption);
                    return Ok(part);
                }
                Err(refusal) => storage.rest(&mut tries, refusal).await?,
            }
        }
    }

    /// Sends the part at `offset`, or asks how far the upload is.
    async fn send_part(
        &self,
        outgoing: &Outgoing<'_, '_>,
        mut part: Ask,
        offset: Option<u64>,
    ) -> Result<Response, Refusal> {
        let size = outgoing.flow_file.size();
        let offset_or_end = offset.unwrap_or(size);
        let len = PART_BYTES.min(size.saturating_sub(offset_or_end));
        let range = match len {
            0 => format!("bytes */{size}"),
            len => format!("bytes {offset_or_end}-{}/{size}", offset_or_end + len - 1),
        };
        part.headers.push(("content-range", range));
        let progress = Progress::new();
        let reader = outgoing.reader((offset_or_end, len))?;
        let body = outgoing.body(reader, len, &progress);
        let asking = self
            .way
            .storage
            .once(outgoing.session.now(), part, Some(body));
        outgoing.while_moving(asking, &progress).await
    }
}

/// Bytes of an upload that a server has.
fn got(answer: &Response) -> u64 {
    let range = header(answer, "range").unwrap_or_default();
    let last = range.rsplit_once('-').map(|(_, last)| last.parse::<u64>());
    last.and_then(Result::ok)
        .map_or(0, |last| last.saturating_add(1))
}

impl Processor for PutGcsObject {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let Some(mut flow_file) = session.take_one() else {
            return Ok(Next::Scheduled);
        };
        let outcome = match self.way.object(session, &flow_file) {
            Ok((bucket, key)) => {
                let outgoing = Outgoing {
                    context,
                    session,
                    flow_file: &flow_file,
                    wait: self.way.storage.wait,
                };
                let storing = self.store(&outgoing, &bucket, &key);
                let stored = run_until_stop(context, storing).ok_or_else(stopped)?;
                stored.map(|object| (object, format!("gs://{bucket}/{key}")))
            }
            Err(reason) => Err(reason.into()),
        };
        match outcome {
            Ok((object, transit)) => {
                let mut attributes = Attributes::clone(flow_file.attributes());
                set_facts(&mut attributes, &object);
                session.set_attributes(&mut flow_file, attributes.into());
                session.note(&flow_file, EventKind::Send, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(refusal) => fail_by(context, session, flow_file, "stored", &refusal),
        }
        Ok(Next::Scheduled)
    }
}

/// Bytes of a part: a multiple of 256 KiB, as the server wants it.
const PART_BYTES: u64 = 8 << 20;

/// What the server answers to a part that is not the last.
const MORE: u16 = 308;
