//! Why one FlowFile could not be handled: its own fault or not.

use std::io;

use super::ProcessorError;
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::ExpressionError;

/// Why one FlowFile could not be handled.
#[derive(Debug)]
pub(super) enum Refused {
    /// Something in it; it goes to `failure`, and this is the bulletin.
    FlowFile(String),
    /// Something that is no fault of it; the session is rolled back.
    Session(ProcessorError),
}

/// What came of handling a FlowFile, with a bulletin instead where it is the FlowFile's own fault.
///
/// # Errors
/// What is no fault of it.
pub(super) fn taken<T>(
    context: &Context,
    handled: Result<T, Refused>,
) -> Result<Option<T>, ProcessorError> {
    match handled {
        Ok(value) => Ok(Some(value)),
        Err(Refused::FlowFile(reason)) => {
            context.post(Level::Error, &reason);
            Ok(None)
        }
        Err(Refused::Session(error)) => Err(error),
    }
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
