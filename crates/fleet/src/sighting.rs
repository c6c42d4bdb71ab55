//! Which agents called when, packed: what a node tells the others of heartbeats that changed
//! nothing.
//!
//! ```text
//! deflate( version u8 = 1 | newest call, milliseconds, varint
//!          | per agent: length of its id, varint | id | milliseconds before the newest call, varint
//!                      | heartbeats, varint )
//! ```
//! What cannot be read, or is larger than its bound, is left out from there on.

use std::io::{Read, Write};
use std::sync::Arc;

use base::UnixMillis;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::limits;

/// An agent's calls since the last sighting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The agent.
    pub agent: Arc<str>,
    /// Its last call.
    pub at: UnixMillis,
    /// How many there were.
    pub heartbeats: u32,
}

/// Packs sightings.
pub fn pack(sightings: &[Sighting]) -> Vec<u8> {
    let newest = sightings
        .iter()
        .map(|seen| seen.at.0)
        .max()
        .unwrap_or(0)
        .max(0);
    let mut bytes = vec![VERSION];
    put(&mut bytes, newest.cast_unsigned());
    for seen in sightings {
        put(&mut bytes, seen.agent.len() as u64);
        bytes.extend_from_slice(seen.agent.as_bytes());
        put(&mut bytes, newest.saturating_sub(seen.at.0).cast_unsigned());
        put(&mut bytes, u64::from(seen.heartbeats));
    }
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing into memory does not fail.
    let _ = packed.write_all(&bytes);
    packed.finish().unwrap_or_default()
}

/// Unpacks sightings.
pub fn unpack(packed: &[u8]) -> Vec<Sighting> {
    let mut bytes = Vec::new();
    let bound = limits::SIGHTINGS_BYTES_MAX as u64;
    let read = DeflateDecoder::new(packed)
        .take(bound)
        .read_to_end(&mut bytes);
    let mut sightings = Vec::new();
    let Some((&VERSION, mut rest)) = bytes.split_first().filter(|_| read.is_ok()) else {
        return sightings;
    };
    let Some(newest) = take(&mut rest) else {
        return sightings;
    };
    while let Some(sighting) = one(&mut rest, newest) {
        sightings.push(sighting);
    }
    sightings
}

fn one(rest: &mut &[u8], newest: u64) -> Option<Sighting> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (id, after) = rest.split_at_checked(length)?;
    *rest = after;
    let agent = Arc::from(std::str::from_utf8(id).ok()?);
    let at = newest.saturating_sub(take(rest)?).cast_signed();
    let heartbeats = u32::try_from(take(rest)?).unwrap_or(u32::MAX);
    Some(Sighting {
        agent,
        at: UnixMillis(at),
        heartbeats,
    })
}

/// Appends a number, seven bits in a byte, low ones first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(agent: &str, at: i64, heartbeats: u32) -> Sighting {
        Sighting {
            agent: Arc::from(agent),
            at: UnixMillis(at),
            heartbeats,
        }
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let all = [
            seen("agent-1", 1_800_000_000_123, 1),
            seen("a", 1_800_000_000_000, 300),
            seen(&"é".repeat(100), 1_799_999_000_000, u32::MAX),
        ];
        assert_eq!(unpack(&pack(&all)), all);
        assert_eq!(unpack(&pack(&[])), []);
    }

    #[test]
    fn a_thousand_agents_take_a_few_bytes_each() {
        let seen = |n: i64| {
            seen(
                &format!("factory-7-line-3-agent-{n}"),
                1_800_000_000_000 + n,
                1,
            )
        };
        let all: Vec<Sighting> = (0..1_000).map(seen).collect();
        let bytes = pack(&all).len();
        assert!(bytes < 12_000, "{bytes}");
    }

    #[test]
    fn no_bytes_are_too_odd() {
        let packed = pack(&[seen("agent-1", 1_800_000_000_123, 1)]);
        for cut in 0..packed.len() {
            assert!(unpack(&packed[..cut]).len() <= 1);
            for value in [0, 0x7f, 0xff] {
                let mut odd = packed.clone();
                odd[cut] = value;
                assert!(unpack(&odd).len() <= 1_000);
            }
        }
    }
}
