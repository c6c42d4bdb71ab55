//! The bucket, the object and who asks, as properties; what the server says, as attributes.

use std::time::Duration;

use serde_json::Value;

use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::object_storage::Refusal;
use crate::object_storage::gcs::{Identity, Storage, encryption, text};
use crate::processors::object_storage::{PROXY, client, fail, text_of};
use crate::processors::{AttributeKind, Expressions, PropertyKind, Settings, Shape};
use crate::session::ProcessSession;

/// Who asks, where and by which way: properties that every one has.
pub(super) const ACCOUNT: [PropertyKind; 4] = [
    PropertyKind::new("GCP Credentials Provider Service", "Who the agent is.")
        .required()
        .shape(Shape::Service("GCPCredentialsControllerService")),
    PropertyKind::new(
        "Number of retries",
        "How often what failed in passing is tried again, after rests of 500 ms to 8 s.",
    )
    .default("6")
    .required()
    .shape(Shape::Integer(0)),
    PropertyKind::new(
        "Endpoint Override URL",
        "Address of another server than Google's: scheme, host, port and path.",
    )
    .expressions(Expressions::Once),
    PROXY,
];

/// The object: properties of those that deal with one.
pub(super) const OBJECT: [PropertyKind; 3] = [
    PropertyKind::new("Bucket", "The bucket.")
        .default("${gcs.bucket}")
        .expressions(Expressions::FlowFile),
    PropertyKind::new("Key", "The object's name.")
        .default("${filename}")
        .expressions(Expressions::FlowFile),
    PropertyKind::new(
        "Server Side Encryption Key",
        "32 bytes in Base64 that the server encrypts and decrypts the object with; deleting needs \
         none.",
    )
    .expressions(Expressions::Once)
    .sensitive(),
];

pub(super) const GENERATION: PropertyKind = PropertyKind::new(
    "Object Generation",
    "The object's generation; the newest when empty.",
)
.expressions(Expressions::FlowFile);

/// What a server says of an object, as far as it does. Beside each attribute's place in the
/// server's answer.
pub(super) const FACTS: [(AttributeKind, &str); 22] = [
    fact("gcs.bucket", "The bucket.", "/bucket"),
    fact("gcs.key", "The object's name.", "/name"),
    fact("gcs.size", "Its bytes.", "/size"),
    fact("gcs.crc32c", "Its CRC32C, in Base64.", "/crc32c"),
    fact("gcs.md5", "Its MD5, in Base64.", "/md5Hash"),
    fact("gcs.owner.entity", "Whose it is.", "/owner/entity"),
    fact("gcs.owner.entity.id", "The owner's id.", "/owner/entityId"),
    fact(
        "gcs.content.encoding",
        "How it is encoded.",
        "/contentEncoding",
    ),
    fact("gcs.content.language", "Its language.", "/contentLanguage"),
    fact(
        "gcs.content.disposition",
        "How it is shown.",
        "/contentDisposition",
    ),
    fact("gcs.media.link", "Where its content is.", "/mediaLink"),
    fact("gcs.self.link", "Where it is.", "/selfLink"),
    fact("gcs.etag", "The server's tag of it.", "/etag"),
    fact("gcs.generated.id", "The server's id of it.", "/id"),
    fact("gcs.generation", "Its content's generation.", "/generation"),
    fact(
        "gcs.metageneration",
        "Its metadata's generation.",
        "/metageneration",
    ),
    fact("gcs.storage.class", "How it is stored.", "/storageClass"),
    fact(
        "gcs.encryption.algorithm",
        "What it is encrypted by.",
        ALGORITHM,
    ),
    fact(
        "gcs.encryption.sha256",
        "Its key's SHA-256.",
        "/customerEncryption/keySha256",
    ),
    fact(
        "gcs.create.time",
        "When it was made, in milliseconds since 1970.",
        "/timeCreated",
    ),
    fact(
        "gcs.update.time",
        "When it was changed, in milliseconds since 1970.",
        "/updated",
    ),
    fact(
        "gcs.delete.time",
        "When it was deleted, in milliseconds since 1970.",
        "/timeDeleted",
    ),
];

/// What is told of a failure.
pub(super) const FAILED: [AttributeKind; 3] = [
    AttributeKind::new("gcs.status.message", "What the server says, on failure."),
    AttributeKind::new("gcs.error.reason", "The server's word for it, on failure."),
    AttributeKind::new("gcs.error.domain", "What the word belongs to, on failure."),
];

const ALGORITHM: &str = "/customerEncryption/encryptionAlgorithm";

const fn fact(
    name: &'static str,
    description: &'static str,
    place: &'static str,
) -> (AttributeKind, &'static str) {
    (AttributeKind::new(name, description), place)
}

/// What facts, failures and `own` write, all together.
pub(super) const fn writes<const OWN: usize, const ALL: usize>(
    own: [AttributeKind; OWN],
    has_facts: bool,
) -> [AttributeKind; ALL] {
    let mut all = [AttributeKind::new("", ""); ALL];
    let mut at = 0;
    while at < OWN {
        all[at] = own[at];
        at += 1;
    }
    let mut fact = 0;
    while has_facts && fact < FACTS.len() {
        all[at] = FACTS[fact].0;
        (at, fact) = (at + 1, fact + 1);
    }
    assert!(at == ALL, "that are not so many attributes");
    all
}

/// The way to Google's storage.
pub(super) struct Way {
    pub(super) storage: Storage,
    bucket: Option<Expression>,
    key: Option<Expression>,
}

impl Way {
    /// Reads the properties that every one has, the bucket's and the key's.
    pub(super) fn new(settings: &Settings<'_>, has_key: bool) -> Result<Self, String> {
        let identity = settings.service::<Identity>("GCP Credentials Provider Service")?;
        let endpoint = settings.text("Endpoint Override URL")?;
        let endpoint = endpoint.as_deref().unwrap_or(GOOGLE).trim_end_matches('/');
        let parsed: Result<reqwest::Url, _> = endpoint.parse();
        if !parsed.is_ok_and(|url| url.has_host() && matches!(url.scheme(), "http" | "https")) {
            return Err(format!("Endpoint Override URL: '{endpoint}' is no address"));
        }
        Ok(Way {
            storage: Storage {
                client: client(settings, WAIT, None)?,
                endpoint: endpoint.to_owned(),
                identity: identity.ok_or("GCP Credentials Provider Service is empty")?,
                retries: settings.integer("Number of retries")?,
                wait: WAIT,
            },
            bucket: settings.expression("Bucket")?,
            key: match has_key {
                true => settings.expression("Key")?,
                false => None,
            },
        })
    }

    /// The bucket and the key of a FlowFile.
    pub(super) fn object(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(String, String), String> {
        let bucket = text_of(self.bucket.as_ref(), session, flow_file)?;
        let key = text_of(self.key.as_ref(), session, flow_file)?;
        match bucket.is_empty() || key.is_empty() {
            true => Err("Bucket or Key is empty".to_owned()),
            false => Ok((bucket, key)),
        }
    }

    /// The bucket's property.
    pub(super) fn bucket(&self) -> Option<&Expression> {
        self.bucket.as_ref()
    }
}

/// The headers of the key that objects are encrypted with, if there is one.
pub(super) fn encryption_of(
    settings: &Settings<'_>,
) -> Result<Vec<(&'static str, String)>, String> {
    match settings.text("Server Side Encryption Key")? {
        Some(key) => encryption(&key),
        None => Ok(Vec::new()),
    }
}

/// The generation that a FlowFile means, as part of a query.
pub(super) fn generation_of(
    expression: Option<&Expression>,
    session: &ProcessSession<'_>,
    flow_file: &FlowFile,
) -> Result<Option<(&'static str, String)>, String> {
    let text = text_of(expression, session, flow_file)?;
    match text.trim() {
        "" => Ok(None),
        number if number.parse::<u64>().is_ok() => Ok(Some(("generation", number.to_owned()))),
        _ => Err(format!("Object Generation: '{text}' is no generation")),
    }
}

/// Sets what a server says of an object.
pub(super) fn set_facts(attributes: &mut Attributes, object: &Value) {
    for (kind, place) in &FACTS {
        let (path, member) = place.rsplit_once('/').unwrap_or(("", place));
        let told = object.pointer(path).and_then(|value| text(value, member));
        let told = match kind.name.ends_with(".time") {
            true => told
                .and_then(|time| time.parse::<jiff::Timestamp>().ok())
                .map(|time| time.as_millisecond().to_string()),
            false => told,
        };
        if let Some(told) = told {
            attributes.set(kind.name, told);
        }
    }
}

/// Tells why a FlowFile's object was not dealt with, in attributes too, and sends it to `failure`.
pub(super) fn fail_by(
    context: &Context,
    session: &mut ProcessSession<'_>,
    mut flow_file: FlowFile,
    what: &str,
    refusal: &Refusal,
) {
    let mut attributes = Attributes::clone(flow_file.attributes());
    let told = [&refusal.message, &refusal.code, &refusal.domain];
    for (kind, text) in FAILED.iter().zip(told) {
        let text: String = text.chars().take(ATTRIBUTE_CHARS_MAX).collect();
        attributes.set(kind.name, text);
    }
    session.set_attributes(&mut flow_file, attributes.into());
    fail(context, session, flow_file, what, &refusal.to_string());
}

const GOOGLE: &str = "https://storage.googleapis.com";

/// Longest wait for the server.
const WAIT: Duration = Duration::from_secs(30);

/// Characters of a server's words in an attribute.
const ATTRIBUTE_CHARS_MAX: usize = 2_000;
