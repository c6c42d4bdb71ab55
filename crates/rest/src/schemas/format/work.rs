//! How much work values with schemas may be.
//!
//! A schema can ask for any amount of it for a value of three bytes: by referring to itself many times,
//! or by defaults that are far larger than what they stand for. So work is counted, in steps of half a
//! microsecond or so, and in bytes of payloads; who runs out of either is told so.

use super::SchemaFault;
use crate::limits::VALIDATION_STEPS_MAX;

/// Work that may still be done.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    steps_left: u64,
    bytes_left: usize,
    is_spent: bool,
}

impl Work {
    /// So many steps, and payloads of so many bytes together.
    pub fn of(steps: u64, bytes: usize) -> Self {
        Work {
            steps_left: steps,
            bytes_left: bytes,
            is_spent: false,
        }
    }

    /// The same bytes, and so many steps anew.
    pub fn renew(&mut self, steps: u64) {
        self.steps_left = steps;
        self.is_spent = false;
    }

    /// Whether something was not done for want of work.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Steps that one value may take.
    pub(super) fn steps_of_value(&self) -> u64 {
        self.steps_left.min(VALIDATION_STEPS_MAX)
    }

    /// Bytes that one payload may have.
    pub(super) fn bytes_of_payload(&self) -> usize {
        self.bytes_left
    }

    /// Says that a payload would have more.
    pub(super) fn spend(&mut self) {
        self.is_spent = true;
    }

    /// Takes steps.
    ///
    /// # Errors
    /// There are not as many.
    pub fn step(&mut self, steps: u64) -> Result<(), SchemaFault> {
        match self.steps_left.checked_sub(steps) {
            Some(left) if !self.is_spent => {
                self.steps_left = left;
                Ok(())
            }
            _ => Err(self.refuse()),
        }
    }

    /// Takes the steps for a text or a payload of so many bytes.
    ///
    /// # Errors
    /// There are not as many.
    pub(super) fn walk(&mut self, bytes: usize) -> Result<(), SchemaFault> {
        self.step(1 + bytes as u64 / BYTES_A_STEP)
    }

    /// Takes the bytes of a payload.
    ///
    /// # Errors
    /// There are not as many.
    pub(super) fn write(&mut self, bytes: usize) -> Result<(), SchemaFault> {
        self.walk(bytes)?;
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => Err(self.refuse()),
        }
    }

    fn refuse(&mut self) -> SchemaFault {
        self.is_spent = true;
        let reason = "this and what came with it are too much work; send fewer at a time";
        SchemaFault::Value(reason.to_owned())
    }
}

/// Bytes of JSON that are read in about the time of a step.
const BYTES_A_STEP: u64 = 64;
