//! What the fuzz targets throw bytes at, and what must hold whatever the bytes are.

use base::UnixMillis;

use crate::formats::{Decoded, Format, decode};

/// Payload formats: whatever is read is JSON, and what is refused leaves nothing behind.
pub fn formats(payload: &[u8]) {
    let mut out = Decoded::default();
    for format in [
        Format::Senml,
        Format::SenmlCbor,
        Format::Observation,
        Format::Observation097,
        Format::Cbor,
        Format::Raw,
    ] {
        let read = decode(
            format,
            "a/Datastreams(1)/b",
            payload,
            UnixMillis(1),
            &mut out,
        );
        assert!(
            read.is_ok() || out.texts().next().is_none(),
            "a refused message left events"
        );
        for text in out.texts() {
            let value: Result<&serde_json::value::RawValue, _> = serde_json::from_slice(text);
            assert!(value.is_ok(), "{} gave what is no JSON", format.name());
        }
    }
}
