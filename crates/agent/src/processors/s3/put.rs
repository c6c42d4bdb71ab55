//! PutS3Object: content of any size as objects, in parts when it is large.

use reqwest::Method;
use reqwest::header::HeaderName;

use super::common::{ACCOUNT, BUCKET, CLASSES, KEY, Way, facts_of};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::net::http_client::Progress;
use crate::net::run_until_stop;
use crate::object_storage::header;
use crate::object_storage::s3::{self, Ask, Bucket};
use crate::processors::object_storage::{LONGEST, Outgoing, SUCCESS, fail, stopped, text_of};
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings, Shape, joined,
};
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "PutS3Object",
    description: "Puts each FlowFile's content into a bucket, in parts when it is large.",
    properties: &joined::<16, 14, 30>(
        [
            KEY,
            BUCKET,
            PropertyKind::new("Content Type", "What the object is.")
                .default("application/octet-stream")
                .expressions(Expressions::FlowFile),
            PropertyKind::new("Storage Class", "How the object is stored.")
                .default("Standard")
                .allowed(&[
                    "Standard",
                    "ReducedRedundancy",
                    "StandardIA",
                    "OnezoneIA",
                    "IntelligentTiering",
                    "Glacier",
                    "DeepArchive",
                    "Outposts",
                    "GlacierIR",
                    "Snow",
                    "ExpressOneZone",
                ]),
            PropertyKind::new("Server Side Encryption", "Whether the server encrypts it.")
                .default("None")
                .allowed(&["None", "AES256", "aws_kms", "aws_kms_dsse"]),
            PropertyKind::new(
                "Canned ACL",
                "Who may do what, as PublicRead or public-read.",
            )
            .expressions(Expressions::FlowFile),
            PropertyKind::new(
                FULL_CONTROL,
                "Who may do all: ids and mail addresses of users, separated by commas.",
            )
            .expressions(Expressions::FlowFile),
            PropertyKind::new(READ, "Who may read it.").expressions(Expressions::FlowFile),
            PropertyKind::new(READ_ACL, "Who may read who may do what.")
                .expressions(Expressions::FlowFile),
            PropertyKind::new(WRITE_ACL, "Who may say who may do what.")
                .expressions(Expressions::FlowFile),
            PropertyKind::new("Multipart Threshold", "What is larger goes in parts.")
                .default("5 GB")
                .shape(Shape::Size),
            PropertyKind::new("Multipart Part Size", "Bytes of one part; 5 MB to 5 GB.")
                .default("5 GB")
                .shape(Shape::Size),
            PropertyKind::new(
                "Multipart Upload AgeOff Interval",
                "Has no meaning: an upload that breaks off is ended at once.",
            )
            .default("60 min")
            .shape(Shape::Duration),
            PropertyKind::new(
                "Multipart Upload Max Age Threshold",
                "Has no meaning, as the one before.",
            )
            .default("7 days")
            .shape(Shape::Duration),
            PropertyKind::new(
                "Checksum Algorithm",
                "Has no meaning: the server checks the SHA-256 that is signed.",
            )
            .default("CRC64NVME")
            .allowed(&["CRC32", "CRC32C", "SHA1", "SHA256", "CRC64NVME"]),
            PropertyKind::new(
                "Use Path Style Access",
                "Where it is set: whether the bucket stands in the path, whatever Use Virtual \
                 Addressing says.",
            )
            .shape(Shape::Flag),
        ],
        ACCOUNT,
    ),
    dynamic: Dynamic::Named {
        prefix: "",
        meaning: "metadata of the object, by its name",
    },
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
    writes: &[
        AttributeKind::new("s3.bucket", "The bucket."),
        AttributeKind::new("s3.key", "The object's key."),
        AttributeKind::new("s3.contenttype", "What the object is."),
        AttributeKind::new("s3.etag", "The server's tag of its content."),
        AttributeKind::new("s3.version", "Its version, where the bucket keeps them."),
        AttributeKind::new("s3.sseAlgorithm", "How the server encrypts it."),
        AttributeKind::new("s3.expiration", "Until when it is kept."),
        AttributeKind::new("s3.usermetadata", "Its metadata, name=value with commas."),
    ],
    input: Input::Required,
    make: |settings| PutS3Object::new(settings).map(|made| Box::new(made) as _),
};

struct PutS3Object {
    way: Way,
    content_type: Expression,
    acl: Option<Expression>,
    /// Headers that say who may do what, and the users.
    grants: Vec<(&'static str, Expression)>,
    /// Headers of the object's metadata.
    metadata: Vec<(String, Expression)>,
    storage_class: &'static str,
    encryption: Option<&'static str>,
    threshold: u64,
    part_size: u64,
}

/// What the server says of a stored object.
struct Stored {
    etag: String,
    facts: Vec<(&'static str, String)>,
}

impl PutS3Object {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let size = |name: &str| {
            let size = settings.size(name)?;
            match (PART_MIN..=PART_MAX).contains(&size) {
                true => Ok(size),
                false => Err(format!("{name}: 5 MB to 5 GB are possible")),
            }
        };
        let mut grants = Vec::new();
        for (name, header) in [
            (FULL_CONTROL, "x-amz-grant-full-control"),
            (READ, "x-amz-grant-read"),
            (READ_ACL, "x-amz-grant-read-acp"),
            (WRITE_ACL, "x-amz-grant-write-acp"),
        ] {
            grants.extend(settings.expression(name)?.map(|users| (header, users)));
        }
        let mut metadata = Vec::new();
        for (name, value) in settings.dynamic()? {
            let header = format!("{METADATA}{}", name.to_ascii_lowercase());
            HeaderName::from_bytes(header.as_bytes())
                .map_err(|_| format!("'{name}' cannot be a name of metadata"))?;
            metadata.push((header, value));
        }
        let class = settings.needed("Storage Class")?;
        Ok(PutS3Object {
            grants,
            metadata,
            way: Way::new(settings, true)?,
            content_type: settings
                .expression("Content Type")?
                .unwrap_or_else(|| Expression::literal("application/octet-stream")),
            acl: settings.expression("Canned ACL")?,
            storage_class: CLASSES
                .into_iter()
                .find(|(name, _)| *name == class)
                .map_or("STANDARD", |(_, wire)| wire),
            encryption: match settings.needed("Server Side Encryption")?.as_str() {
                "AES256" => Some("AES256"),
                "aws_kms" => Some("aws:kms"),
                "aws_kms_dsse" => Some("aws:kms:dsse"),
                _ => None,
            },
            threshold: size("Multipart Threshold")?,
            part_size: size("Multipart Part Size")?,
        })
    }

    fn headers(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<Vec<(&str, String)>, String> {
        let kind = text_of(Some(&self.content_type), session, flow_file)?;
        let mut headers = vec![
            ("content-type", kind),
            ("x-amz-storage-class", self.storage_class.to_owned()),
        ];
        if let Some(encryption) = self.encryption {
            headers.push(("x-amz-server-side-encryption", encryption.to_owned()));
        }
        if self.acl.is_some() {
            let acl = text_of(self.acl.as_ref(), session, flow_file)?;
            headers.push(("x-amz-acl", wire_acl(&acl)));
        }
        for (header, users) in &self.grants {
            let users = text_of(Some(users), session, flow_file)?;
            headers.push((*header, grantees(&users)));
        }
        for (header, value) in &self.metadata {
            headers.push((header.as_str(), text_of(Some(value), session, flow_file)?));
        }
        headers.retain(|(_, value)| !value.is_empty());
        Ok(headers)
    }

    /// One request with a range of the content, which is read twice: for its hash, then to go.
    async fn send(
        &self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        bucket: &Bucket,
        mut ask: Ask<'_>,
        range: (u64, u64),
    ) -> Result<Stored, String> {
        let outgoing = Outgoing {
            context,
            session,
            flow_file,
            wait: self.way.wait,
        };
        let hash = s3::hash_of(&mut outgoing.reader(range)?);
        ask.payload = hash.map_err(|error| error.to_string())?;
        let progress = Progress::new();
        ask.body = Some(outgoing.body(outgoing.reader(range)?, range.1, &progress));
        let asking = bucket.ask(&self.way.client, session.now(), ask, LONGEST);
        let answer = outgoing.while_moving(asking, &progress).await?;
        Ok(Stored {
            etag: header(&answer, "etag").unwrap_or_default(),
            facts: facts_of(&answer, UNTIL),
        })
    }

    async fn store(
        &self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        bucket: &Bucket,
        key: &str,
    ) -> Result<Stored, String> {
        let headers = self.headers(session, flow_file)?;
        let size = flow_file.size();
        if size <= self.threshold {
            let mut ask = Ask::new(Method::PUT, key);
            ask.headers = headers;
            return self
                .send(context, session, flow_file, bucket, ask, (0, size))
                .await;
        }
        let mut ask = Ask::new(Method::POST, key);
        ask.query.push(("uploads", String::new()));
        ask.headers = headers;
        let (client, wait) = (&self.way.client, self.way.wait);
        let begun = bucket.ask(client, session.now(), ask, wait).await?;
        let id = s3::upload_id(begun).await?;
        let stored = self
            .upload(context, session, flow_file, bucket, key, &id)
            .await;
        if stored.is_err() {
            // Parts without a whole cost money; the server may still tidy up by itself.
            let mut abort = Ask::new(Method::DELETE, key);
            abort.query.push(("uploadId", id));
            if let Err(error) = bucket.ask(client, session.now(), abort, wait).await {
                tracing::debug!(error, "an upload was not ended");
            }
        }
        stored
    }

    async fn upload(
        &self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        bucket: &Bucket,
        key: &str,
        id: &str,
    ) -> Result<Stored, String> {
        let size = flow_file.size();
        let mut etags = Vec::new();
        let mut offset = 0;
        while offset < size {
            let len = self.part_size.min(size - offset);
            let mut ask = Ask::new(Method::PUT, key);
            ask.query
                .push(("partNumber", (etags.len() + 1).to_string()));
            ask.query.push(("uploadId", id.to_owned()));
            let part = self
                .send(context, session, flow_file, bucket, ask, (offset, len))
                .await?;
            etags.push(format!("\"{}\"", part.etag));
            offset += len;
        }
        let body = s3::parts(&etags);
        let mut ask = Ask::new(Method::POST, key);
        ask.query.push(("uploadId", id.to_owned()));
        ask.payload = s3::hash(body.as_bytes());
        ask.body = Some(body.into());
        let (client, wait) = (&self.way.client, self.way.wait);
        let answer = bucket.ask(client, session.now(), ask, wait).await?;
        let facts = facts_of(&answer, UNTIL);
        Ok(Stored {
            etag: s3::completed(answer).await?,
            facts,
        })
    }
}

impl Processor for PutS3Object {
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
                let storing = self.store(context, session, &flow_file, &bucket, &key);
                let stored = run_until_stop(context, storing).ok_or_else(stopped)?;
                stored.map(|stored| (bucket, key, stored))
            }
            Err(reason) => Err(reason),
        };
        match outcome {
            Ok((bucket, key, stored)) => {
                let mut attributes = Attributes::clone(flow_file.attributes());
                let kind = text_of(Some(&self.content_type), session, &flow_file);
                let kind = kind.unwrap_or_default();
                attributes.set("s3.contenttype", kind);
                attributes.set("s3.bucket", bucket.name.as_str());
                attributes.set("s3.key", key.as_str());
                attributes.set("s3.etag", stored.etag);
                for (name, value) in stored.facts {
                    attributes.set(name, value);
                }
                let headers = self.headers(session, &flow_file).unwrap_or_default();
                let metadata = headers.iter().filter_map(|(name, value)| {
                    let name = name.strip_prefix(METADATA)?;
                    Some(format!("{name}={value}"))
                });
                let metadata: Vec<String> = metadata.collect();
                if !metadata.is_empty() {
                    attributes.set("s3.usermetadata", metadata.join(","));
                }
                session.set_attributes(&mut flow_file, attributes.into());
                let transit = format!("s3://{}/{key}", bucket.name);
                session.note(&flow_file, EventKind::Send, &transit);
                session.transfer(flow_file, SUCCESS);
            }
            Err(reason) => fail(context, session, flow_file, "stored", &reason),
        }
        Ok(Next::Scheduled)
    }
}

/// A canned ACL as S3 writes it: `public-read` for PublicRead.
fn wire_acl(name: &str) -> String {
    let mut wire = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !wire.is_empty() {
            wire.push('-');
        }
        wire.push(c.to_ascii_lowercase());
    }
    wire
}

/// Users as S3 writes them.
fn grantees(users: &str) -> String {
    let users = users
        .split(',')
        .map(str::trim)
        .filter(|user| !user.is_empty());
    let users = users.map(|user| match user.contains('@') {
        true => format!("emailAddress=\"{user}\""),
        false => format!("id=\"{user}\""),
    });
    users.collect::<Vec<_>>().join(", ")
}

/// What headers of metadata begin with.
const METADATA: &str = "x-amz-meta-";

/// The attribute that says until when an object is kept.
const UNTIL: &[(&str, &str)] = &[("s3.expiration", "expiry-date")];

const FULL_CONTROL: &str = "FullControl User List";
const READ: &str = "Read Permission User List";
const READ_ACL: &str = "Read ACL User List";
const WRITE_ACL: &str = "Write ACL User List";

/// What S3 takes as one part, all but the last.
const PART_MIN: u64 = 5 << 20;
const PART_MAX: u64 = 5 << 30;
