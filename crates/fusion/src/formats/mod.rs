//! Payload formats: what arrives becomes one or more JSON texts, which the scanner then reads like
//! any other payload. JSON itself does not come through here: it is read where it lies.
//!
//! | format | events of one message | fields beside the payload's own |
//! | --- | --- | --- |
//! | `json` | one | none |
//! | `senml` | one per record: the old object form (`bn`, `e: […]`) and RFC 8428's array | resolved `n`, `u`, `v`, `vs`, `vb`, `vd`, `s`, `t` (s), `ut`, and `time` (ms) |
//! | `senml-cbor` | as `senml`, by RFC 8428 section 6 | as `senml` |
//! | `observation` | one: OGC SensorThings 1.0 and 1.1 | `id`, `attributeId` (the datastream), `date` (ms), where the payload has none |
//! | `observation097` | one: the old draft with `Time` and `ResultValue` | `result`, `phenomenonTime`, `id`, `attributeId`, `date` |
//! | `cbor` | one: RFC 8949; byte strings become base64url texts, tags are passed over | none |
//! | `raw` | one: JSON as it is, else `{"text": …}`, else `{"base64": …}` | none |
//!
//! No format looks anything up or keeps anything; `now` is the message's arrival.

mod cbor;
mod observation;
mod senml;
mod types;

use base::UnixMillis;
use serde::{Deserialize, Serialize};

pub use types::{EventType, EventTypes};

use crate::json::BadPayload;

/// How payloads are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON, read where it lies.
    #[default]
    Json,
    /// SenML in JSON: the old object form and RFC 8428.
    Senml,
    /// SenML in CBOR, RFC 8428 section 6.
    #[serde(rename = "senml-cbor")]
    SenmlCbor,
    /// SensorThings Observations 1.0 and 1.1.
    Observation,
    /// The Observations of SensorThings' old draft 0.97.
    Observation097,
    /// CBOR, RFC 8949.
    Cbor,
    /// Whatever it is.
    Raw,
}

/// The JSON texts of one message, end to end.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoded {
    /// Forgets the texts and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The texts in order.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let text = &self.bytes[start..*end];
            start = *end;
            text
        })
    }

    fn push(&mut self, value: &serde_json::Value) {
        serde_json::to_writer(&mut self.bytes, value).expect("JSON is written to memory");
        self.ends.push(self.bytes.len());
    }

    fn push_text(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }
}

/// Turns one message into the JSON texts of its events.
///
/// # Errors
/// The payload is not of the format; the sender's fault. `out` is then empty.
pub fn decode(
    format: Format,
    topic: &str,
    payload: &[u8],
    now: UnixMillis,
    out: &mut Decoded,
) -> Result<(), BadPayload> {
    out.clear();
    let decoded = match format {
        Format::Json => {
            out.push_text(payload);
            Ok(())
        }
        Format::Senml => parse(payload).and_then(|value| senml::records(&value, now, out)),
        Format::SenmlCbor => cbor_value(payload).and_then(|value| senml::records(&value, now, out)),
        Format::Observation => {
            parse(payload).and_then(|value| observation::current(value, topic, now, out))
        }
        Format::Observation097 => {
            parse(payload).and_then(|value| observation::draft(value, now, out))
        }
        Format::Cbor => cbor::to_json(payload).map(|text| out.push_text(&text)),
        Format::Raw => {
            raw(payload, out);
            Ok(())
        }
    };
    let decoded = decoded.and_then(|()| match out.ends.is_empty() {
        true => Err("it holds nothing".to_owned()),
        false => Ok(()),
    });
    decoded.map_err(|why| {
        out.clear();
        BadPayload::of(format, &why)
    })
}

fn parse(payload: &[u8]) -> Result<serde_json::Value, String> {
    serde_json::from_slice(payload).map_err(|error| error.to_string())
}

fn cbor_value(payload: &[u8]) -> Result<serde_json::Value, String> {
    parse(&cbor::to_json(payload)?)
}

fn raw(payload: &[u8], out: &mut Decoded) {
    if serde_json::from_slice::<&serde_json::value::RawValue>(payload).is_ok() {
        return out.push_text(payload);
    }
    out.push(&match std::str::from_utf8(payload) {
        Ok(text) => serde_json::json!({ "text": text }),
        Err(_) => serde_json::json!({ "base64": cbor::base64url(payload) }),
    });
}

impl Format {
    /// Its name, as the API and the configuration write it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Senml => "senml",
            Format::SenmlCbor => "senml-cbor",
            Format::Observation => "observation",
            Format::Observation097 => "observation097",
            Format::Cbor => "cbor",
            Format::Raw => "raw",
        }
    }
}

#[cfg(test)]
mod tests;
