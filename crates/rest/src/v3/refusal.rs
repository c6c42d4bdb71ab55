//! What can go wrong in a call of version 3, where some codes differ from the older versions'.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use streams::StreamsError;

use crate::error::{self, RestError};
use crate::media;

/// Why a call is refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// As in the older versions, but for its code.
    Rest(RestError),
    /// The path names something that is not there.
    Nothing {
        /// What kind of thing.
        what: &'static str,
        /// Its name in the path.
        name: String,
    },
    /// A batch that is none.
    Batch(String),
}

impl Refusal {
    /// There is no `what` of this name.
    pub fn nothing(what: &'static str, name: &str) -> Refusal {
        Refusal::Nothing {
            what,
            name: name.chars().take(NAME_SHOWN).collect(),
        }
    }

    /// The error code of the body, and the HTTP status.
    pub fn code(&self) -> (u32, StatusCode) {
        match self {
            Refusal::Nothing { .. } => (404, StatusCode::NOT_FOUND),
            Refusal::Batch(_) => (42208, StatusCode::UNPROCESSABLE_ENTITY),
            Refusal::Rest(RestError::InvalidEntity(_)) => (400, StatusCode::BAD_REQUEST),
            Refusal::Rest(RestError::Store(StreamsError::TopicExists(_))) => {
                (40002, StatusCode::BAD_REQUEST)
            }
            Refusal::Rest(error) => match (error.code(), error.status()) {
                // Here it is the broker that does not know the topic.
                (40401 | 40402, status) => (40403, status),
                told => told,
            },
        }
    }

    /// The text of the body's `message`.
    pub fn message(&self) -> String {
        match self {
            Refusal::Rest(error) => error.message(),
            Refusal::Nothing { what, name } => format!("there is no {what} '{name}'"),
            Refusal::Batch(reason) => reason.clone(),
        }
    }
}

/// What was looked for under a name of the path.
pub(super) trait OrNothing<T> {
    /// What was found, or the refusal that there is no `what` of this name.
    fn or_nothing(self, what: &'static str, name: &str) -> Result<T, Refusal>;
}

impl<T> OrNothing<T> for Option<T> {
    fn or_nothing(self, what: &'static str, name: &str) -> Result<T, Refusal> {
        self.ok_or_else(|| Refusal::nothing(what, name))
    }
}

impl<E: Into<RestError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Refusal::Rest(error.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (code, status) = self.code();
        error::response(code, status, &self.message())
    }
}

/// Refuses a caller who takes neither plain JSON nor events.
pub(super) fn check_accept(accept: Option<&str>) -> Result<(), RestError> {
    match accept {
        Some(accept) if !media::accepts_json(accept) && !media::accepts_events(accept) => {
            Err(RestError::NotAcceptable)
        }
        _ => Ok(()),
    }
}

/// How much of a name is repeated to the caller, in characters.
const NAME_SHOWN: usize = 300;
