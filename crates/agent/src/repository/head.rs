//! How a frame of records begins: its operations and their length, sealed where there is a key.

use std::borrow::Cow;

use bytes::Bytes;

use super::Repository;
use crate::records::{RecordError, Writer};
use crate::sealing::{Keyring, Piece, SealError};

/// What stands before a frame's content.
pub(super) struct Head {
    header: [u8; 4],
    operations: Vec<u8>,
}

/// Why a frame says nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// It was written by something else, or rotted.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It does not open.
    #[error("a frame of the repository does not open")]
    Seal(#[from] SealError),
}

impl Head {
    pub(super) fn new(keyring: &Keyring, operations: Vec<u8>) -> Head {
        let mut mark = 0;
        let operations = match keyring.seals() && !operations.is_empty() {
            true => {
                mark = SEALED;
                keyring.seal(Piece::Operations, &operations)
            }
            false => operations,
        };
        let len = u32::try_from(operations.len()).ok();
        let len = len.filter(|len| len & SEALED == 0);
        let len = len.expect("operations are bounded far below 2 GiB");
        Head {
            header: (len | mark).to_le_bytes(),
            operations,
        }
    }

    /// Bytes of it, before the content.
    pub(super) fn len(&self) -> u64 {
        (self.header.len() + self.operations.len()) as u64
    }

    pub(super) fn parts(&self) -> [&[u8]; 2] {
        [&self.header, &self.operations]
    }
}

impl Repository {
    /// The head of a frame with these operations.
    pub(super) fn head(&self, writer: Writer) -> Head {
        Head::new(&self.keyring, writer.into_operations())
    }
}

/// Splits a frame's payload into its operations and where its content begins.
pub(super) fn split<'p>(
    keyring: &Keyring,
    payload: &'p [u8],
) -> Result<(Cow<'p, [u8]>, u64), FrameError> {
    let (operations, content) = raw(payload)?;
    if !is_sealed(payload) {
        return Ok((Cow::Borrowed(operations), content));
    }
    let sealed = Bytes::copy_from_slice(operations);
    let operations = keyring.open(Piece::Operations, sealed)?;
    Ok((Cow::Owned(operations.into()), content))
}

/// Whether a frame's operations are those that would be written now: sealed by the newest key, or
/// plain where there is none.
pub(super) fn is_current(keyring: &Keyring, payload: &[u8]) -> bool {
    match raw(payload) {
        Ok(([], _)) | Err(_) => true,
        Ok((operations, _)) if is_sealed(payload) => keyring.is_current(operations),
        Ok(_) => !keyring.seals(),
    }
}

fn is_sealed(payload: &[u8]) -> bool {
    payload.get(3).is_some_and(|byte| byte & 0x80 != 0)
}

/// A frame's operations as they stand there, and where its content begins.
fn raw(payload: &[u8]) -> Result<(&[u8], u64), RecordError> {
    let header = payload.split_first_chunk::<4>();
    let (header, rest) = header.ok_or(RecordError::new("it is shorter than its header"))?;
    let len = (u32::from_le_bytes(*header) & !SEALED) as usize;
    let operations = rest.get(..len);
    let operations = operations.ok_or(RecordError::new("its operations are cut short"))?;
    Ok((operations, 4 + len as u64))
}

/// Of a head's length: the operations are sealed.
const SEALED: u32 = 1 << 31;
