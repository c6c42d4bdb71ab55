//! What fuzzing reaches of the network's decoders.

use bytes::Bytes;

use crate::kafka;
use crate::net::frames::{Frames, Framing};
use crate::s2s::codec;
use crate::syslog;

/// Reads `input` by one of the network decoders, as its first byte says.
pub fn network(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 4 {
        0 => codec::read_anything(rest),
        1 => {
            let read = kafka::read_records(Bytes::copy_from_slice(rest), 0, vec![(1, 0)], 1_000);
            drop(read);
        }
        2 => {
            if let Ok(text) = std::str::from_utf8(rest) {
                let _ = syslog::parse(text);
            }
        }
        _ => {
            let mut frames = Frames::new(Framing::Syslog, 100);
            for piece in rest.chunks(7) {
                frames.buffer().extend_from_slice(piece);
                while frames.next().is_some() {}
            }
            drop(frames.rest());
        }
    }
}
