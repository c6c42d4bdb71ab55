//! What can be wrong with a message.

/// A body that is no C2 message; the sender's fault, a retry of the same bytes cannot help.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum C2Error {
    /// The bytes are not JSON, or not a JSON object at the top.
    #[error("the {message} is not a JSON object that C2 knows")]
    Malformed {
        /// Which message was expected: `heartbeat`, `acknowledge`, `response` or `manifest`.
        message: &'static str,
        /// Line, column and reason.
        #[source]
        source: serde_json::Error,
    },
    /// A message could not be written as JSON.
    #[error("the {message} cannot be written as JSON")]
    Unwritable {
        /// Which message.
        message: &'static str,
        /// The reason.
        #[source]
        source: serde_json::Error,
    },
}
