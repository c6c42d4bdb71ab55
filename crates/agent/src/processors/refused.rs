//! Why one FlowFile could not be handled: its own fault or not.

use std::io;

use super::ProcessorError;
use crate::expression::ExpressionError;

/// Why one FlowFile could not be handled.
#[derive(Debug)]
pub(super) enum Refused {
    /// Something in it; it goes to `failure`, and this is the bulletin.
    FlowFile(String),
    /// Something that is no fault of it; the session is rolled back.
    Session(ProcessorError),
}

impl Refused {
    /// A FlowFile's fault.
    pub(super) fn flow_file(reason: impl Into<String>) -> Self {
        Refused::FlowFile(reason.into())
    }
}

impl From<ProcessorError> for Refused {
    fn from(error: ProcessorError) -> Self {
        Refused::Session(error)
    }
}

impl From<io::Error> for Refused {
    /// What reading or writing content fails with, which is never the content's own fault.
    fn from(error: io::Error) -> Self {
        let error = match error.downcast::<ProcessorError>() {
            Ok(error) => error,
            Err(error) => ProcessorError::Failed(error.to_string()),
        };
        Refused::Session(error)
    }
}

impl From<ExpressionError> for Refused {
    fn from(error: ExpressionError) -> Self {
        Refused::FlowFile(error.to_string())
    }
}
