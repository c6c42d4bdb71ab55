//! A buffer that grows and, once it is large, lies in large pages of memory.
//!
//! What passes the system's cache goes to the disk from where it lies. The disk is told of each
//! stretch of memory by itself: of 4 MiB in pages of 4 KiB that is a thousand, in pages of 2 MiB two.
//! On a virtual disk that is half of the time that a write takes (decision 26).
//!
//! A byte keeps its place within a page when the buffer grows, so that what is laid out for the
//! disk stays so. Where the system has no large pages to give, small ones do.

use std::ops::Deref;

use memmap2::{Advice, MmapMut};

use crate::limits::{DIRECT_BLOCK_BYTES, LARGE_PAGE_BYTES, SMALL_BUFFER_BYTES_MAX};

/// Bytes to which more can be added behind.
pub(crate) enum Buffer {
    Small(Vec<u8>),
    Large(Large),
}

/// Bytes in memory of its own.
pub(crate) struct Large {
    map: MmapMut,
    /// Where in the memory the bytes begin; within its first page.
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Buffer::Small(bytes) => bytes.capacity(),
            Buffer::Large(large) => large.map.len() - large.start,
        }
    }

    /// Makes room for `more` bytes.
    pub(crate) fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        if needed <= self.capacity() {
            return;
        }
        match self {
            Buffer::Small(bytes) if needed <= SMALL_BUFFER_BYTES_MAX => bytes.reserve(more),
            _ => match self.grown(needed) {
                Ok(large) => *self = Buffer::Large(large),
                // There is no memory to map; the last word is the allocator's.
                Err(_) => {
                    let mut bytes = Vec::with_capacity(needed.max(2 * self.capacity()));
                    bytes.extend_from_slice(self);
                    *self = Buffer::Small(bytes);
                }
            },
        }
    }

    pub(crate) fn extend_from_slice(&mut self, more: &[u8]) {
        self.reserve(more.len());
        match self {
            Buffer::Small(bytes) => bytes.extend_from_slice(more),
            Buffer::Large(large) => {
                let end = large.start + large.len;
                large.map[end..end + more.len()].copy_from_slice(more);
                large.len += more.len();
            }
        }
    }

    /// Removes all bytes; the room stays.
    pub(crate) fn clear(&mut self) {
        match self {
            Buffer::Small(bytes) => bytes.clear(),
            Buffer::Large(large) => large.len = 0,
        }
    }

    fn grown(&self, needed: usize) -> std::io::Result<Large> {
        let start = match self {
            Buffer::Small(bytes) if bytes.is_empty() => 0,
            Buffer::Small(bytes) => bytes.as_ptr().addr() % DIRECT_BLOCK_BYTES,
            Buffer::Large(large) => large.start,
        };
        let room = (start + needed).max(2 * self.capacity());
        let mut map = MmapMut::map_anon(room.next_multiple_of(LARGE_PAGE_BYTES))?;
        // A wish; the system may be told not to have such pages.
        let _ = map.advise(Advice::HugePage);
        map[start..start + self.len()].copy_from_slice(self);
        Ok(Large {
            map,
            start,
            len: self.len(),
        })
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::Small(Vec::new())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Small(bytes) => bytes,
            Buffer::Large(large) => &large.map[large.start..large.start + large.len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_added_and_keeps_places_within_pages() {
        let mut rng = base::Rng::from_seed(11);
        for _ in 0..20 {
            let (mut buffer, mut expected) = (Buffer::default(), Vec::new());
            let mut place = None;
            while expected.len() < 3 * LARGE_PAGE_BYTES {
                let below = [100, 5_000, SMALL_BUFFER_BYTES_MAX as u64][rng.below(3) as usize];
                let mut piece = vec![0; rng.below(below) as usize + 1];
                rng.fill(&mut piece);
                let was_large = matches!(buffer, Buffer::Large(_));
                buffer.extend_from_slice(&piece);
                expected.extend_from_slice(&piece);
                let now = buffer.as_ptr().addr() % DIRECT_BLOCK_BYTES;
                assert!(!was_large || place == Some(now), "{place:?} was its place");
                place = Some(now);
            }
            assert!(matches!(buffer, Buffer::Large(_)));
            assert!(*buffer == *expected);
            buffer.clear();
            assert!(buffer.is_empty() && buffer.capacity() >= expected.len());
            buffer.extend_from_slice(&expected[..7]);
            assert!(*buffer == expected[..7]);
        }
    }

    #[test]
    fn a_place_within_a_page_survives_the_move_to_large_pages() {
        let mut buffer = Buffer::default();
        buffer.extend_from_slice(&[3; 5_000]);
        let place = buffer.as_ptr().addr() % DIRECT_BLOCK_BYTES;
        buffer.reserve(2 * SMALL_BUFFER_BYTES_MAX);
        assert!(matches!(buffer, Buffer::Large(_)));
        assert_eq!(buffer.as_ptr().addr() % DIRECT_BLOCK_BYTES, place);
        assert!(*buffer == [3; 5_000]);
    }

    #[test]
    fn a_small_one_stays_where_others_are() {
        let mut buffer = Buffer::default();
        buffer.extend_from_slice(&vec![1; SMALL_BUFFER_BYTES_MAX]);
        assert!(matches!(buffer, Buffer::Small(_)));
    }
}
