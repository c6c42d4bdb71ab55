//! What can go wrong in a REST call, and the one conversion into HTTP status and error code.
//!
//! Codes are those of kafka-rest: the HTTP status itself, or the status times 100 plus a number
//! for a specific case. The body is always `{"error_code": int, "message": text}`.

use std::time::Duration;

use access::AccessError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use streams::StreamsError;
use streams::groups::GroupError;

/// A REST call's failure; [`RestError::code`] says whose fault it is (4xx the caller's).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestError {
    /// The topic does not exist, and its stream's or the store's policy does not create it.
    #[error("topic '{0}' not found; create it first, or let its stream create topics by itself")]
    TopicNotFound(String),
    /// The topic has no such partition.
    #[error("partition {partition} of topic '{topic}' not found; the topic has {partitions}")]
    PartitionNotFound {
        /// The topic asked for.
        topic: String,
        /// The partition as the request wrote it.
        partition: String,
        /// How many partitions the topic has.
        partitions: i32,
    },
    /// A call that needs its partitions listed came without them.
    #[error("no partitions named; send {{\"partitions\": [{{\"topic\", \"partition\"}}]}}")]
    PartitionsMissing,
    /// No consumer instance of that name in that group: never made, deleted, or expired.
    #[error("consumer instance '{instance}' of group '{group}' not found; create it again")]
    InstanceNotFound {
        /// The group.
        group: String,
        /// The instance.
        instance: String,
    },
    /// An instance of version 1 reads one topic, and this is another.
    #[error("the instance reads another topic already; create one for each topic")]
    SubscribedElsewhere,
    /// The partition has no leader for the moment.
    #[error("partition {partition} of topic '{topic}' has no leader now; retry later")]
    LeaderNotAvailable {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// As many partitions are being read without an instance as may be.
    #[error("{0} partitions are being read, no more are taken now; retry in a moment")]
    TooManyPartitionReads(usize),
    /// The group already has an instance of that name.
    #[error("consumer instance '{0}' already exists in its group; choose another name")]
    InstanceExists(String),
    /// Subscription and assignment exclude each other, and seeking needs an assigned partition.
    #[error("{0}")]
    IllegalState(String),
    /// The process holds as many consumer instances as it may.
    #[error("{0} consumer instances exist, no more are taken; delete some or retry later")]
    TooManyInstances(usize),
    /// The caller has as many consumer instances as one may.
    #[error("you have {0} consumer instances, no more are taken; delete some")]
    TooManyInstancesOfCaller(usize),
    /// As many streams of events are open as may be.
    #[error("too many streams of events are open; close some or retry later")]
    TooManyEventStreams,
    /// As many streams of records are open as may be.
    #[error("too many streams of records are open; close some or retry later")]
    TooManyRecordStreams,
    /// What is being stored takes as much memory as it may.
    #[error("as many records are being stored as may be; retry later, or send fewer at a time")]
    NoRoom,
    /// The read's `Accept` names another format than the instance's.
    #[error("this consumer instance reads '{format}'; send Accept: {accept}")]
    FormatMismatch {
        /// The instance's format.
        format: &'static str,
        /// The media type to ask for.
        accept: &'static str,
    },
    /// No media type that the caller accepts can be produced.
    #[error("none of the types in Accept can be answered; use application/vnd.kafka.v2+json")]
    NotAcceptable,
    /// The body's media type is not taken.
    #[error(
        "content type '{0}' is not supported; use application/vnd.kafka.json.v2+json, or \
         application/json under /v3"
    )]
    UnsupportedMediaType(String),
    /// The body is not what the call needs.
    #[error("{0}")]
    InvalidEntity(String),
    /// Keys came without a schema in a format that needs one.
    #[error("the keys need a schema: send key_schema or key_schema_id")]
    KeySchemaMissing,
    /// Values came without a schema in a format that needs one.
    #[error("the values need a schema: send value_schema or value_schema_id")]
    ValueSchemaMissing,
    /// A key's or value's JSON does not fit its schema.
    #[error("{0}")]
    Conversion(String),
    /// A schema's text is none.
    #[error("{0}")]
    InvalidSchema(String),
    /// The schema registry did not find or did not take a schema.
    #[error("{0}")]
    SchemaRegistry(String),
    /// A stream of records that has none.
    #[error("{0}")]
    Payload(&'static str),
    /// A consumer was configured with a value that it cannot have.
    #[error("{0}")]
    InvalidConsumerConfig(String),
    /// A value is of the right kind but out of its range.
    #[error("{0}")]
    Constraint(String),
    /// The request line or its parameters cannot be read.
    #[error("{0}")]
    BadRequest(String),
    /// The body is larger than the bound.
    #[error("the body is larger than {0} bytes; send fewer records at a time")]
    BodyTooLarge(u64),
    /// The body did not arrive in time.
    #[error("the body did not arrive in time; send it again")]
    BodyTimeout,
    /// No such path.
    #[error("no such path; see GET /topics, POST /topics/{{topic}} and POST /consumers/{{group}}")]
    NotFound,
    /// The path exists, the method does not.
    #[error("this path does not take this method")]
    MethodNotAllowed,
    /// As many topics are being restored as may.
    #[error("{0} topics are being restored, no more are taken; retry when one is done")]
    TooManyRestores(usize),
    /// No such consumer group.
    #[error("group '{0}' not found; GET /api/v1/groups lists them")]
    GroupNotFound(String),
    /// The group's members would commit over what is asked.
    #[error(
        "group '{group}' has {members} active members, who would commit over it; stop them, or wait \
         for their session time-out, and ask again"
    )]
    GroupActive {
        /// The group.
        group: String,
        /// How many members it has.
        members: usize,
    },
    /// No such user.
    #[error("user '{0}' not found")]
    UserNotFound(String),
    /// The caller did not show who they are.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// As many wait for their password to be checked as may.
    #[error("too many are logging in now; try again in a moment, or use an API token")]
    TooManyLogins,
    /// The caller asks for more than they may at a time.
    #[error("this is more than you may ask for in a second; go on in {} s", seconds(*.0))]
    RateLimited(Duration),
    /// No such API token.
    #[error("there is no token '{0}'; GET /api/v1/tokens lists them")]
    TokenNotFound(String),
    /// No such tenant.
    #[error("tenant '{0}' not found; GET /api/v1/tenants lists them")]
    TenantNotFound(String),
    /// A tenant's caller asks for what is not that tenant's alone.
    #[error(
        "a caller of tenant '{0}' may ask for that tenant's only: name it in the path, or by \
         ?tenant={0}"
    )]
    OfTenant(String),
    /// Something of a tenant is left that was to go.
    #[error("what the tenant has imported is not all gone; ask again: {0}")]
    NotPurged(String),
    /// A caller's tenant is not kept, so nothing here is the caller's.
    #[error("there is no tenant '{0}', to which the caller belongs by its name")]
    OfUnknownTenant(String),
    /// Somebody was never granted a role.
    #[error("{0}; GET /api/v1/roles lists them")]
    RoleNotFound(String),
    /// The caller's roles do not reach this.
    #[error(
        "{principal} may not do this: it needs the role {needed} for all classes, and there is \
         {roles}"
    )]
    RoleMissing {
        /// Who.
        principal: String,
        /// The role.
        needed: access::Role,
        /// What they have.
        roles: String,
    },
    /// The caller's roles do not give what it asks of imports.
    #[error("{principal} may not do this: it needs the role {needed}, and there is {roles}")]
    ImporterMissing {
        /// Who.
        principal: String,
        /// The role with its tenant, or what else would do.
        needed: String,
        /// What they have.
        roles: String,
    },
    /// The users lie where they cannot be reached now.
    #[error("{0}")]
    UsersAway(String),
    /// Users or ACLs could not be changed.
    #[error("{0}")]
    Access(String),
    /// The store answered an error.
    #[error(transparent)]
    Store(#[from] StreamsError),
}

impl RestError {
    /// The error code of the body; its HTTP status is [`RestError::status`].
    pub fn code(&self) -> u32 {
        match self {
            RestError::TopicNotFound(_) => 40401,
            RestError::PartitionNotFound { .. } | RestError::PartitionsMissing => 40402,
            RestError::InstanceNotFound { .. } => 40403,
            RestError::LeaderNotAvailable { .. } => 40404,
            RestError::SubscribedElsewhere => 40901,
            RestError::InstanceExists(_) => 40902,
            RestError::IllegalState(_) => 40903,
            RestError::TooManyInstances(_)
            | RestError::TooManyInstancesOfCaller(_)
            | RestError::TooManyRestores(_)
            | RestError::TooManyEventStreams
            | RestError::TooManyRecordStreams
            | RestError::NoRoom
            | RestError::RateLimited(_) => 429,
            RestError::FormatMismatch { .. } => 40601,
            RestError::NotAcceptable => 406,
            RestError::UnsupportedMediaType(_) => 415,
            RestError::InvalidEntity(_) => 422,
            RestError::KeySchemaMissing => 42201,
            RestError::ValueSchemaMissing => 42202,
            RestError::Conversion(_) => 42203,
            RestError::InvalidSchema(_) => 42205,
            RestError::SchemaRegistry(_) => 40801,
            RestError::Payload(_) => 42206,
            RestError::InvalidConsumerConfig(_) => 42204,
            RestError::Constraint(_) => 40001,
            RestError::BadRequest(_) => 400,
            RestError::BodyTooLarge(_) => 413,
            RestError::BodyTimeout => 408,
            RestError::NotFound
            | RestError::UserNotFound(_)
            | RestError::TokenNotFound(_)
            | RestError::TenantNotFound(_)
            | RestError::RoleNotFound(_) => 404,
            RestError::RoleMissing { .. }
            | RestError::ImporterMissing { .. }
            | RestError::OfTenant(_)
            | RestError::OfUnknownTenant(_) => NOT_ALLOWED,
            RestError::GroupNotFound(_) => 40405,
            RestError::GroupActive { .. } => 409,
            RestError::Access(_) | RestError::NotPurged(_) => 500,
            RestError::TooManyPartitionReads(_) => 50301,
            RestError::TooManyLogins | RestError::UsersAway(_) => 503,
            RestError::Unauthenticated(_) => UNAUTHENTICATED,
            RestError::MethodNotAllowed => 405,
            RestError::Store(error) => store_code(error),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        let code = match self {
            // kafka-rest files this code under unprocessable entities, whatever its number says.
            RestError::Constraint(_) => 422,
            _ => self.code(),
        };
        status_of(code)
    }

    /// The text of the body's `message`: the error and its causes.
    pub fn message(&self) -> String {
        base::report(self)
    }
}

impl IntoResponse for RestError {
    fn into_response(self) -> Response {
        let (code, status, message) = (self.code(), self.status(), self.message());
        if status.is_server_error() {
            tracing::warn!(code, message, "a REST call failed");
        }
        let mut response = response(code, status, &message);
        let wait = match &self {
            RestError::RateLimited(wait) => Some(*wait),
            RestError::Store(StreamsError::Throttled { wait, .. }) => Some(*wait),
            _ => None,
        };
        if let Some(wait) = wait {
            let seconds = HeaderValue::from(seconds(wait));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// Whole seconds, rounded up, as `Retry-After` has them.
fn seconds(wait: Duration) -> u64 {
    wait.as_millis()
        .div_ceil(1_000)
        .try_into()
        .unwrap_or(u64::MAX)
}

/// The HTTP status that an error code belongs to.
pub(crate) fn status_of(code: u32) -> StatusCode {
    let status = if code >= 10_000 { code / 100 } else { code };
    u16::try_from(status)
        .ok()
        .and_then(|status| StatusCode::from_u16(status).ok())
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The answer that tells an error.
pub(crate) fn response(code: u32, status: StatusCode, message: &str) -> Response {
    let body = serde_json::json!({"error_code": code, "message": message}).to_string();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if status == StatusCode::UNAUTHORIZED {
        // Browsers ask for name and password when they see this.
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"thalweg\", charset=\"UTF-8\""),
        );
        headers.append(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Bearer realm=\"thalweg\""),
        );
    }
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The code of a record that the store did not take: final failures and those worth a retry.
pub(crate) fn record_code(error: &StreamsError) -> u32 {
    match error {
        StreamsError::NotAllowed { .. } | StreamsError::ForeignTenant { .. } => NOT_ALLOWED,
        StreamsError::TenantFull(_) => TENANT_FULL,
        error if retriable(error) => RECORD_RETRIABLE,
        _ => RECORD_FAILED,
    }
}

/// The one conversion of the store's errors into REST error codes.
fn store_code(error: &StreamsError) -> u32 {
    match error {
        StreamsError::UnknownTopic(_)
        | StreamsError::UnknownTopicId(_)
        | StreamsError::AutoCreateOff(_) => 40401,
        StreamsError::UnknownPartition { .. } => 40402,
        StreamsError::UnknownBroker(_) => 404,
        StreamsError::NotAllowed { .. } | StreamsError::ForeignTenant { .. } => NOT_ALLOWED,
        StreamsError::Throttled { .. } => 429,
        StreamsError::TenantFull(_) => TENANT_FULL,
        StreamsError::TopicExists(_) => 409,
        StreamsError::InvalidTopic(_)
        | StreamsError::InternalTopic(_)
        | StreamsError::InvalidPartitions { .. }
        | StreamsError::PartitionsOnlyGrow { .. }
        | StreamsError::InvalidConfig(_)
        | StreamsError::NotDeletable(_)
        | StreamsError::ReadOnlySetting(_)
        | StreamsError::Unsupported(_)
        | StreamsError::Refused(_)
        | StreamsError::InvalidTimestamp(_)
        | StreamsError::OffsetOutOfRange { .. } => 40002,
        StreamsError::KeyReused => 422,
        StreamsError::MessageTooLarge { .. } => 413,
        StreamsError::Limit { .. } => 429,
        StreamsError::IllegalState(_) | StreamsError::NotAssigned { .. } => 40903,
        StreamsError::Denied(_) => 40301,
        StreamsError::Access(error) => match **error {
            AccessError::Invalid { .. } | AccessError::Limit { .. } => 40002,
            _ => RECORD_FAILED,
        },
        StreamsError::Group { reason, .. } if *reason == GroupError::NotEmpty => 409,
        StreamsError::Closed | StreamsError::Unavailable(_) => 50302,
        error if retriable(error) => RECORD_RETRIABLE,
        _ => RECORD_FAILED,
    }
}

/// Whether the same call may succeed a moment later.
fn retriable(error: &StreamsError) -> bool {
    matches!(
        error,
        StreamsError::UnknownTopic(_)
            | StreamsError::Busy
            | StreamsError::Full
            | StreamsError::Unavailable(_)
            | StreamsError::Throttled { .. }
            | StreamsError::Switching(_)
            | StreamsError::Limit { .. }
            | StreamsError::Group { .. }
    )
}

/// The caller may not do this.
pub(crate) const NOT_ALLOWED: u32 = 40301;
/// The code for who has not said who they are.
pub(crate) const UNAUTHENTICATED: u32 = 40101;
/// Why a stream ends whose caller would not be let in any more.
pub(crate) const LOGGED_OUT: &str = "what let you in has expired, or was taken back: log in again";
/// A tenant keeps as much as it may.
const TENANT_FULL: u32 = 50701;
/// A Kafka error that a retry will not mend (kafka-rest's per-record code).
const RECORD_FAILED: u32 = 50002;
/// A Kafka error that a retry may mend.
const RECORD_RETRIABLE: u32 = 50003;
