//! What can go wrong with an import, and the one conversion into HTTP status and error code.

use std::path::PathBuf;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sql::SqlError;
use streams::StreamsError;

/// A failure of the import service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportsError {
    /// No job of that id.
    #[error("import '{0}' not found; GET /api/v1/imports lists them")]
    NotFound(String),
    /// The tenant has no profile of that name.
    #[error("profile '{0}' not found; PUT /api/v1/profiles/NAME makes one")]
    NoProfile(String),
    /// The tenant has no record of that id.
    #[error("record '{0}' not found; GET /api/v1/search finds records by their words")]
    NoRecord(String),
    /// Somebody has the record already.
    #[error("record '{0}' is checked out; check it in first")]
    CheckedOut(String),
    /// Nobody has the record.
    #[error("record '{0}' is not checked out")]
    NotCheckedOut(String),
    /// A piece of an upload that does not follow the one before.
    #[error("the upload goes on at byte {expected}, not at {found}; send the rest from there")]
    Offset {
        /// Where it goes on.
        expected: u64,
        /// Where the piece begins.
        found: u64,
    },
    /// A parameter is missing or cannot be what it is; the caller's fault.
    #[error("{0}")]
    Invalid(String),
    /// The idempotency key was used for a job of another kind; the caller's fault.
    #[error(
        "the idempotency key was used before for import '{0}', of another format, file, topic or \
         sink; use another key"
    )]
    KeyReused(String),
    /// The job is in a state in which this cannot be done.
    #[error("import '{id}' is {state} and cannot be {wanted}")]
    State {
        /// The job.
        id: String,
        /// Its state.
        state: &'static str,
        /// What was asked.
        wanted: &'static str,
    },
    /// The upload is larger than the bound.
    #[error("the file is larger than {0} bytes; split it, or raise imports.upload_bytes_max")]
    TooLarge(u64),
    /// The upload ended before its end, or stood still.
    #[error("the upload broke off after {0} bytes; send the file again")]
    Broken(u64),
    /// As many jobs or uploads as the process takes; retry later.
    #[error("{what}: {max} at a time are taken; retry later")]
    Busy {
        /// What there are too many of.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The tenant has as many jobs or uploads as one may have; retry when one is done.
    #[error("{what}: the tenant has {max}, as many as one may have; retry when one is done")]
    ShareTaken {
        /// What it has too many of.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The jobs or uploads that are left are for tenants that have none; retry when one is done.
    #[error("{what}: the last {left} are for tenants that have none; retry when one is done")]
    Reserved {
        /// What there are too many of.
        what: &'static str,
        /// How many are kept.
        left: usize,
    },
    /// A file could not be read or written.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was to be done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The file of a URL could not be fetched.
    #[error("the file could not be fetched: {0}")]
    Fetch(String),
    /// The server that has the search index does not do its part; retry later.
    #[error("the search index at {place} cannot be used: {reason}; it is tried again")]
    SearchAway {
        /// Its address, without name and password.
        place: String,
        /// Why not.
        reason: String,
    },
    /// The job's file has another size than what was uploaded.
    #[error("the job's file has {found} bytes instead of {expected}; upload it again")]
    FileChanged {
        /// Bytes that are there.
        found: u64,
        /// Bytes that were uploaded.
        expected: u64,
    },
    /// A part of the job's file could not be read.
    #[error("cannot read the job's file")]
    Read(#[source] std::io::Error),
    /// The file is not of its format at all; the caller's fault.
    #[error("{0}; send a file of the format that the job names")]
    Unreadable(&'static str),
    /// The registry of jobs or the sink failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The event store refused.
    #[error("the event store refused")]
    Store(#[from] StreamsError),
    /// The service is shutting down.
    #[error("the import service is shutting down; retry later")]
    Closed,
}

impl ImportsError {
    /// The HTTP status; the body's `error_code` is the same number.
    pub fn status(&self) -> StatusCode {
        match self {
            ImportsError::NotFound(_) | ImportsError::NoProfile(_) | ImportsError::NoRecord(_) => {
                StatusCode::NOT_FOUND
            }
            ImportsError::Invalid(_) | ImportsError::Broken(_) | ImportsError::Unreadable(_) => {
                StatusCode::BAD_REQUEST
            }
            ImportsError::State { .. }
            | ImportsError::CheckedOut(_)
            | ImportsError::NotCheckedOut(_)
            | ImportsError::Offset { .. } => StatusCode::CONFLICT,
            ImportsError::KeyReused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ImportsError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            ImportsError::Busy { .. }
            | ImportsError::ShareTaken { .. }
            | ImportsError::Reserved { .. } => StatusCode::TOO_MANY_REQUESTS,
            ImportsError::Closed
            | ImportsError::Store(StreamsError::Unavailable(_))
            | ImportsError::Sql(SqlError::NewerSchema { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            ImportsError::File { source, .. } if is_full(source) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            ImportsError::Sql(SqlError::DiskFull { .. })
            | ImportsError::Store(StreamsError::Full) => StatusCode::INSUFFICIENT_STORAGE,
            ImportsError::Store(StreamsError::UnknownTopic(_) | StreamsError::AutoCreateOff(_)) => {
                StatusCode::NOT_FOUND
            }
            ImportsError::Store(
                StreamsError::NotAllowed { .. } | StreamsError::ForeignTenant { .. },
            ) => StatusCode::FORBIDDEN,
            ImportsError::Store(StreamsError::TenantFull(_)) => StatusCode::INSUFFICIENT_STORAGE,
            ImportsError::Store(_)
            | ImportsError::Sql(_)
            | ImportsError::File { .. }
            | ImportsError::Read(_)
            | ImportsError::FileChanged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            ImportsError::Fetch(_) => StatusCode::BAD_GATEWAY,
            ImportsError::SearchAway { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Whether the same slice may succeed later without anybody changing the job.
    pub(crate) fn may_retry(&self) -> bool {
        match self {
            ImportsError::Sql(error) => error.may_retry() || error.is_of_server(),
            ImportsError::Store(error) => {
                matches!(
                    error,
                    StreamsError::Busy
                        | StreamsError::Full
                        | StreamsError::Closed
                        | StreamsError::Unavailable(_)
                )
            }
            ImportsError::File { source, .. } => is_full(source),
            _ => false,
        }
    }

    pub(crate) fn file(
        what: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(std::io::Error) -> ImportsError + use<> {
        let path = path.to_owned();
        move |source| ImportsError::File { what, path, source }
    }
}

impl IntoResponse for ImportsError {
    fn into_response(self) -> Response {
        let (status, message) = (self.status(), base::report(&self));
        if status.is_server_error() {
            tracing::warn!(message, "an import call failed");
        }
        let body =
            serde_json::json!({"error_code": status.as_u16(), "message": message}).to_string();
        let json = HeaderValue::from_static("application/json");
        (status, [(header::CONTENT_TYPE, json)], body).into_response()
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}
