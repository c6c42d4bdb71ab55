//! Buffers that come back when their bytes are no longer needed: touching fresh memory costs more
//! than filling it.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Buffers of one processor; the one that came back last is lent first, so that it is still in
/// the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer in use.
struct Lent {
    bytes: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// Bytes that `fill` writes: it gets a buffer of `len` bytes, whatever is in them.
    pub(super) fn bytes(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Bytes {
        let mut bytes = self.0.lock().pop().unwrap_or_default();
        bytes.resize(len, 0);
        fill(&mut bytes);
        Bytes::from_owner(Lent {
            bytes,
            home: self.clone(),
        })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut free = self.home.0.lock();
        if free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Buffers that wait to be lent again.
const FREE_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_and_shows_nothing_of_its_past() {
        let buffers = Buffers::default();
        let first = buffers.bytes(4, |bytes| bytes.fill(1));
        let place = first.as_ptr();
        let second = buffers.bytes(4, |bytes| bytes.fill(2));
        assert_eq!((&first[..], &second[..]), (&[1; 4][..], &[2; 4][..]));
        drop(first);
        let third = buffers.bytes(3, |bytes| bytes.fill(3));
        assert_eq!((third.as_ptr(), &third[..]), (place, &[3; 3][..]));
    }
}
