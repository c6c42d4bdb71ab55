//! The bucket, who asks, and by which way; as properties.

use std::sync::Arc;
use std::time::Duration;

use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::object_storage::header;
use crate::object_storage::s3::{Bucket, Identity};
use crate::processors::object_storage::{PROXY, client, text_alone, text_of};
use crate::processors::{Expressions, PropertyKind, Settings, Shape};
use crate::services::{ProxyConfiguration, ProxyType, aws_source};
use crate::session::ProcessSession;

/// What an answer says of an object's version and encryption, and of how long it is kept: `until`
/// are attributes and their names in the header.
pub(super) fn facts_of(
    answer: &reqwest::Response,
    until: &[(&'static str, &str)],
) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    facts.extend(header(answer, "x-amz-version-id").map(|version| ("s3.version", version)));
    // As the property has it: aws_kms.
    let encryption = header(answer, "x-amz-server-side-encryption");
    facts.extend(encryption.map(|name| ("s3.sseAlgorithm", name.replace(':', "_"))));
    let expiration = header(answer, "x-amz-expiration").unwrap_or_default();
    for (attribute, name) in until {
        let value = expiration.split_once(&format!("{name}=\""));
        let value = value.and_then(|(_, rest)| rest.split('"').next());
        facts.extend(value.map(|value| (*attribute, value.to_owned())));
    }
    facts
}

/// Storage classes, by MiNiFi's names and by S3's.
pub(super) const CLASSES: [(&str, &str); 11] = [
    ("Standard", "STANDARD"),
    ("ReducedRedundancy", "REDUCED_REDUNDANCY"),
    ("StandardIA", "STANDARD_IA"),
    ("OnezoneIA", "ONEZONE_IA"),
    ("IntelligentTiering", "INTELLIGENT_TIERING"),
    ("Glacier", "GLACIER"),
    ("DeepArchive", "DEEP_ARCHIVE"),
    ("Outposts", "OUTPOSTS"),
    ("GlacierIR", "GLACIER_IR"),
    ("Snow", "SNOW"),
    ("ExpressOneZone", "EXPRESS_ONEZONE"),
];

pub(super) const KEY: PropertyKind = PropertyKind::new(
    "Object Key",
    "The object's key; the attribute filename when empty.",
)
.expressions(Expressions::FlowFile);

pub(super) const BUCKET: PropertyKind = PropertyKind::new("Bucket", "The bucket.")
    .required()
    .expressions(Expressions::FlowFile);

const ACCESS_KEY: PropertyKind =
    PropertyKind::new("Access Key", "The account's access key.").expressions(Expressions::Once);

const SECRET_KEY: PropertyKind = PropertyKind::new("Secret Key", "The account's secret key.")
    .expressions(Expressions::Once)
    .sensitive();

const CREDENTIALS_FILE: PropertyKind = PropertyKind::new(
    "Credentials File",
    "File with lines `accessKey=…` and `secretKey=…`, instead of the keys.",
);

const CREDENTIALS_SERVICE: PropertyKind = PropertyKind::new(
    "AWS Credentials Provider service",
    "The account, instead of all that.",
)
.shape(Shape::Service("AWSCredentialsService"));

const DEFAULT_CREDENTIALS: PropertyKind = PropertyKind::new(
    "Use Default Credentials",
    "Whether AWS's default chain is asked for keys when none are set; see AWSCredentialsService.",
)
.default("false")
.shape(Shape::Flag);

const REGION: PropertyKind = PropertyKind::new("Region", "The region of the bucket.")
    .default("us-west-2")
    .required();

const TIMEOUT: PropertyKind =
    PropertyKind::new("Communications Timeout", "Longest wait for the server.")
        .default("30 sec")
        .shape(Shape::Duration);

const ENDPOINT: PropertyKind = PropertyKind::new(
    "Endpoint Override URL",
    "Address of another server than AWS's: scheme, host, port and path.",
)
.expressions(Expressions::Once);

const VIRTUAL: PropertyKind = PropertyKind::new(
    "Use Virtual Addressing",
    "Whether the bucket stands in the host's name; never with an address or localhost.",
)
.default("true")
.shape(Shape::Flag);

const PROXY_HOST: PropertyKind =
    PropertyKind::new("Proxy Host", "The proxy's host.").expressions(Expressions::Once);

const PROXY_PORT: PropertyKind =
    PropertyKind::new("Proxy Port", "The proxy's port.").expressions(Expressions::Once);

const PROXY_USER: PropertyKind =
    PropertyKind::new("Proxy Username", "Who the agent is to the proxy.")
        .expressions(Expressions::Once);

const PROXY_PASSWORD: PropertyKind = PropertyKind::new("Proxy Password", "That user's password.")
    .expressions(Expressions::Once)
    .sensitive();

/// Who asks, where and by which way: properties that every processor of object storage has last.
pub(super) const ACCOUNT: [PropertyKind; 14] = [
    ACCESS_KEY,
    SECRET_KEY,
    CREDENTIALS_FILE,
    CREDENTIALS_SERVICE,
    DEFAULT_CREDENTIALS,
    REGION,
    TIMEOUT,
    ENDPOINT,
    VIRTUAL,
    PROXY,
    PROXY_HOST,
    PROXY_PORT,
    PROXY_USER,
    PROXY_PASSWORD,
];

/// Whether the account pays.
pub(super) const REQUESTER_PAYS: PropertyKind = PropertyKind::new(
    "Requester Pays",
    "Whether the account pays for what it reads.",
)
.default("false")
.shape(Shape::Flag);

/// The way to object storage.
pub(super) struct Way {
    pub(super) client: reqwest::Client,
    pub(super) wait: Duration,
    bucket: Bucket,
    bucket_name: Expression,
    key: Option<Expression>,
}

impl Way {
    /// Reads the properties above.
    pub(super) fn new(settings: &Settings<'_>, has_key: bool) -> Result<Self, String> {
        let service = settings.service::<Identity>("AWS Credentials Provider service")?;
        let identity = match service {
            Some(identity) => Some(identity),
            None => aws_source(settings)?.map(|source| Arc::new(Identity::new(source))),
        };
        let wait = settings.duration("Communications Timeout")?;
        let client = client(settings, wait, proxy(settings)?)?;
        let key = match has_key {
            true => settings.expression("Object Key")?,
            false => None,
        };
        Ok(Way {
            client,
            wait,
            bucket: Bucket {
                name: String::new(),
                region: settings.needed("Region")?,
                endpoint: settings.text("Endpoint Override URL")?,
                is_virtual: match settings.text("Use Path Style Access")?.as_deref() {
                    Some(is_path) => is_path != "true",
                    None => settings.flag("Use Virtual Addressing")?,
                },
                identity,
                requester_pays: false,
            },
            bucket_name: settings.expression("Bucket")?.ok_or("Bucket is empty")?,
            key,
        })
    }

    /// The bucket and the key of a FlowFile.
    pub(super) fn object(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(Bucket, String), String> {
        let name = text_of(Some(&self.bucket_name), session, flow_file)?;
        let mut key = text_of(self.key.as_ref(), session, flow_file)?;
        if key.is_empty() {
            key = session.filename(flow_file).into_owned();
        }
        if name.is_empty() || key.is_empty() {
            return Err("Bucket or Object Key and filename are empty".to_owned());
        }
        Ok((self.named(name), key))
    }

    /// The bucket where no FlowFile says which.
    pub(super) fn alone(&self, session: &ProcessSession<'_>) -> Result<Bucket, String> {
        text_alone(Some(&self.bucket_name), session).map(|name| self.named(name))
    }

    fn named(&self, name: String) -> Bucket {
        Bucket {
            name,
            ..self.bucket.clone()
        }
    }
}

fn proxy(settings: &Settings<'_>) -> Result<Option<Arc<ProxyConfiguration>>, String> {
    let Some(host) = settings.text("Proxy Host")? else {
        return Ok(None);
    };
    let port = match settings.text("Proxy Port")? {
        Some(_) => settings.integer("Proxy Port")?,
        None => 8080,
    };
    let user = settings.text("Proxy Username")?;
    let password = settings.text("Proxy Password")?.unwrap_or_default();
    Ok(Some(Arc::new(ProxyConfiguration {
        kind: ProxyType::Http,
        host,
        port,
        user: user.map(|user| (user, password)),
    })))
}
