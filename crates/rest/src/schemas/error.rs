//! What can go wrong in the schema registry, and the one conversion into its HTTP codes.
//!
//! Codes are those of Confluent's registry: the HTTP status itself, or the status times 100 plus a
//! number. The body is always `{"error_code": int, "message": text}`.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use streams::StreamsError;

use super::compatibility::Level;
use super::limits::SCHEMA_BYTES_MAX;
use crate::error::{self, RestError};

/// A failure of the schema registry; [`SchemaError::code`] says whose fault it is (4xx the caller's).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// No version of the subject is there, or none that is not deleted.
    #[error("subject '{0}' not found")]
    SubjectNotFound(String),
    /// The subject has no such version.
    #[error("version {version} of subject '{subject}' not found")]
    VersionNotFound {
        /// The subject, which is there.
        subject: String,
        /// The version asked for.
        version: String,
    },
    /// Nothing has the id, or the subject does not have the schema.
    #[error("schema not found: {0}")]
    SchemaNotFound(String),
    /// The subject is soft-deleted already.
    #[error("subject '{0}' is soft-deleted already; add permanent=true to delete it for good")]
    SubjectSoftDeleted(String),
    /// A subject is soft-deleted before it is deleted for good.
    #[error("subject '{0}' is not soft-deleted; delete it without permanent=true first")]
    SubjectNotSoftDeleted(String),
    /// The version is soft-deleted already.
    #[error(
        "version {version} of subject '{subject}' is soft-deleted already; add permanent=true to \
         delete it for good"
    )]
    VersionSoftDeleted {
        /// The subject.
        subject: String,
        /// Its version.
        version: i32,
    },
    /// A version is soft-deleted before it is deleted for good.
    #[error(
        "version {version} of subject '{subject}' is not soft-deleted; delete it without \
         permanent=true first"
    )]
    VersionNotSoftDeleted {
        /// The subject.
        subject: String,
        /// Its version.
        version: i32,
    },
    /// Nobody set a compatibility for the subject.
    #[error("no compatibility is set for subject '{0}'; defaultToGlobal=true tells what holds")]
    CompatibilityNotSet(String),
    /// Nobody set a mode for the subject.
    #[error("no mode is set for subject '{0}'; defaultToGlobal=true tells what holds")]
    ModeNotSet(String),
    /// The schema may not follow those before it.
    #[error("schema does not fit earlier ones of subject '{subject}': {}", reasons.join("; "))]
    Incompatible {
        /// The subject.
        subject: String,
        /// Why, one reason each.
        reasons: Vec<String>,
    },
    /// The schema, or one that it names, cannot be read.
    #[error("schema is not valid: {0}")]
    InvalidSchema(String),
    /// A version is a number from 1 on, or the last one.
    #[error("'{0}' is no version: write a number from 1 on, or latest")]
    InvalidVersion(String),
    /// No level has this name.
    #[error("'{given}' is no compatibility: write one of {}", levels())]
    InvalidCompatibility {
        /// What was written.
        given: String,
    },
    /// No mode has this name.
    #[error("'{0}' is no mode: write READWRITE, READONLY, READONLY_OVERRIDE or IMPORT")]
    InvalidMode(String),
    /// The mode of the subject, or its state, does not allow it.
    #[error("{0}")]
    NotPermitted(String),
    /// Other schemas name this one.
    #[error("version {version} of subject '{subject}' is named by schemas with the ids {ids:?}")]
    Referenced {
        /// The subject.
        subject: String,
        /// Its version.
        version: i32,
        /// Who names it.
        ids: Vec<i32>,
    },
    /// A schema that is registered already was sent with another id than it has.
    #[error("the schema has the id {found}, not {given}")]
    OtherId {
        /// The id that it has.
        found: i32,
        /// The id that was sent.
        given: i32,
    },
    /// A rule set that serializers could not follow.
    #[error("rules are not valid: {0}")]
    InvalidRules(String),
    /// A name that no subject has.
    #[error("'{0}' is no subject's name")]
    InvalidSubject(String),
    /// Larger than a record of the topic can be.
    #[error("schema has {0} bytes; at most {SCHEMA_BYTES_MAX} are taken")]
    TooLarge(usize),
    /// The body is not what the call needs.
    #[error("{0}")]
    InvalidEntity(String),
    /// The path, or a parameter.
    #[error("{0}")]
    BadRequest(String),
    /// The caller may not do this.
    #[error("{0}")]
    NotAllowed(String),
    /// A bound of the registry is reached.
    #[error("{0}")]
    Limit(String),
    /// The topic that holds the schemas cannot be used; the operator's fault.
    #[error("the topic '{topic}' cannot hold schemas: {why}")]
    Topic {
        /// The topic.
        topic: String,
        /// What is wrong with it.
        why: String,
    },
    /// The store answered an error.
    #[error("the schemas' topic cannot be used")]
    Store(#[from] StreamsError),
    /// A write was not read back in time; it may have been done all the same.
    #[error("the write was not read back in time; it may have been done: ask again")]
    TimedOut,
    /// Other processes' writes came first every time.
    #[error("other writes came first {0} times; ask again")]
    Contended(usize),
    /// The registry is being closed.
    #[error("the registry is closed")]
    Closed,
}

impl SchemaError {
    /// The error code of the body; its HTTP status is [`SchemaError::status`].
    pub fn code(&self) -> u32 {
        match self {
            SchemaError::SubjectNotFound(_) => 40401,
            SchemaError::VersionNotFound { .. } => 40402,
            SchemaError::SchemaNotFound(_) => 40403,
            SchemaError::SubjectSoftDeleted(_) => 40404,
            SchemaError::SubjectNotSoftDeleted(_) => 40405,
            SchemaError::VersionSoftDeleted { .. } => 40406,
            SchemaError::VersionNotSoftDeleted { .. } => 40407,
            SchemaError::CompatibilityNotSet(_) => 40408,
            SchemaError::ModeNotSet(_) => 40409,
            SchemaError::Incompatible { .. } => 409,
            SchemaError::InvalidSchema(_) => 42201,
            SchemaError::InvalidVersion(_) => 42202,
            SchemaError::InvalidCompatibility { .. } => 42203,
            SchemaError::InvalidMode(_) => 42204,
            SchemaError::NotPermitted(_) => 42205,
            SchemaError::Referenced { .. } => 42206,
            SchemaError::OtherId { .. } => 42207,
            SchemaError::InvalidSubject(_) => 42208,
            SchemaError::TooLarge(_) => 42209,
            SchemaError::InvalidRules(_) => 42210,
            SchemaError::InvalidEntity(_) => 422,
            SchemaError::BadRequest(_) => 400,
            SchemaError::NotAllowed(_) | SchemaError::Store(StreamsError::NotAllowed { .. }) => {
                error::NOT_ALLOWED
            }
            SchemaError::Limit(_) => 429,
            SchemaError::Topic { .. } | SchemaError::Store(_) | SchemaError::Closed => 50001,
            SchemaError::TimedOut => 50002,
            SchemaError::Contended(_) => 50003,
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        error::status_of(self.code())
    }

    /// The text of the body's `message`: the error and its causes.
    pub fn message(&self) -> String {
        base::report(self)
    }
}

impl IntoResponse for SchemaError {
    fn into_response(self) -> Response {
        let (code, status, message) = (self.code(), self.status(), self.message());
        if status.is_server_error() {
            tracing::warn!(code, message, "a call of the schema registry failed");
        }
        error::response(code, status, &message)
    }
}

impl From<RestError> for SchemaError {
    fn from(error: RestError) -> Self {
        match error {
            RestError::Store(StreamsError::NotAllowed { .. }) => {
                SchemaError::NotAllowed(error.message())
            }
            RestError::Store(error) => SchemaError::Store(error),
            RestError::InvalidEntity(text) => SchemaError::InvalidEntity(text),
            other => SchemaError::BadRequest(other.message()),
        }
    }
}

fn levels() -> String {
    Level::ALL.map(Level::name).join(", ")
}
