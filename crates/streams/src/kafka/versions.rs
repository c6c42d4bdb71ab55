//! ApiVersions: the first question of every client.
//!
//! Since version 5 a client says which node of which cluster it means to talk to, once it knows;
//! one that came to the wrong place is told to start again from its bootstrap addresses. The codec
//! ends at version 4, so these two fields are read here.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{FinalizedFeatureKey, SupportedFeatureKey};
use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
use kafka_protocol::protocol::{Decodable, StrBytes};

use super::api;
use super::reply::{Call, Ending, Reply};

/// Tells the APIs served and their versions.
pub(super) fn api_versions(call: Call) -> Result<Reply, Ending> {
    let body = match refusal(&call)? {
        None => with_features(
            ApiVersionsResponse::default().with_api_keys(api::told()),
            call.version,
        ),
        Some(code) => ApiVersionsResponse::default().with_error_code(code),
    };
    // The answer has not changed since version 4.
    call.answer_in(call.version.min(WRITTEN), &body)
        .map(Reply::Now)
}

/// Tells the protocols that are switched on as a whole; those that may be off cannot be told in
/// the versions whose clients take a zero there for a mistake.
fn with_features(body: ApiVersionsResponse, version: i16) -> ApiVersionsResponse {
    let feature = |name: &'static str| StrBytes::from_static_str(name);
    let supported = FEATURES
        .iter()
        .filter(|_| version >= OFF_FROM)
        .map(|(name, max)| {
            SupportedFeatureKey::default()
                .with_name(feature(name))
                .with_min_version(0)
                .with_max_version(*max)
        });
    let finalized = FEATURES.iter().map(|(name, max)| {
        FinalizedFeatureKey::default()
            .with_name(feature(name))
            .with_min_version_level(*max)
            .with_max_version_level(*max)
    });
    if version < NAMED_FROM {
        return body;
    }
    body.with_supported_features(supported.collect())
        .with_finalized_features_epoch(0)
        .with_finalized_features(finalized.collect())
}

/// Why the client is not told: what it says of itself is malformed, or it looks for another node.
fn refusal(call: &Call) -> Result<Option<i16>, Ending> {
    if call.version < NAMED_FROM {
        return Ok(None);
    }
    let mut body = call.body.clone();
    let undecodable = |reason: String| Ending::Undecodable {
        api: "ApiVersions",
        reason,
    };
    let request = if call.version < ROUTED_FROM {
        let decoded = ApiVersionsRequest::decode(&mut body, call.version);
        let request = decoded.map_err(|error| undecodable(error.to_string()))?;
        Routed {
            name: request.client_software_name.to_string(),
            version: request.client_software_version.to_string(),
            cluster: None,
            node: -1,
        }
    } else {
        Routed::read(&body).map_err(|reason| undecodable(reason.to_owned()))?
    };
    let streams = call.context.streams();
    Ok(request.refusal(streams.cluster_id(), streams.node_id()))
}

/// Whether a body of version 5 ends before its fields do.
pub(super) fn is_cut(body: &[u8]) -> bool {
    Routed::read(body) == Err(CUT)
}

/// What a client says of itself, and where it believes to be.
#[derive(Debug, PartialEq, Eq)]
struct Routed {
    name: String,
    version: String,
    /// None while it only knows its bootstrap addresses.
    cluster: Option<String>,
    /// -1 while it only knows its bootstrap addresses.
    node: i32,
}

impl Routed {
    /// Reads a body of version 5, which the guard has walked; else says what is wrong with it.
    fn read(body: &[u8]) -> Result<Self, &'static str> {
        let mut rest = body;
        Ok(Routed {
            // Null is no name either, and is refused like one.
            name: compact_text(&mut rest)?.unwrap_or_default(),
            version: compact_text(&mut rest)?.unwrap_or_default(),
            cluster: compact_text(&mut rest)?,
            node: i32::from_be_bytes(*rest.first_chunk().ok_or(CUT)?),
        })
    }

    fn refusal(&self, cluster: &str, node: i32) -> Option<i16> {
        if !is_software(&self.name) || !is_software(&self.version) {
            return Some(ResponseError::InvalidRequest.code());
        }
        match (&self.cluster, self.node) {
            (None, -1) => None,
            (None, _) | (Some(_), -1) => Some(ResponseError::InvalidRequest.code()),
            (Some(meant), id) if meant == cluster && id == node => None,
            _ => Some(ResponseError::RebootstrapRequired.code()),
        }
    }
}

/// Letters, digits, `-` and `.`, the latter two not at the ends (KIP-511).
fn is_software(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let is_end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|b| is_inner(*b))
}

/// A compact text, which may be null.
fn compact_text(rest: &mut &[u8]) -> Result<Option<String>, &'static str> {
    let mut length = 0_usize;
    for shift in (0..35).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(CUT)?;
        *rest = tail;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let Some(length) = length.checked_sub(1) else {
        return Ok(None);
    };
    let (text, tail) = rest.split_at_checked(length).ok_or(CUT)?;
    *rest = tail;
    let text = String::from_utf8(text.to_vec());
    text.map(Some).map_err(|_| "a text is not UTF-8")
}

/// What is wrong with a body that the guard should not have passed.
const CUT: &str = "it is cut off";

/// Protocols that clients use as a whole or not at all, with the level served.
const FEATURES: [(&str, i16); 3] = [
    ("group.version", 1),
    ("share.version", 1),
    ("transaction.version", 2),
];

/// The first version whose clients understand that a feature may be off (level zero).
const OFF_FROM: i16 = 4;

/// The first version in which clients say what they are.
const NAMED_FROM: i16 = 3;

/// The first version in which clients say where they believe to be.
const ROUTED_FROM: i16 = 5;

/// The newest layout of the answer.
const WRITTEN: i16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str, cluster: Option<&str>, node: i32) -> Option<i16> {
        let routed = Routed {
            name: name.into(),
            version: "1.0".into(),
            cluster: cluster.map(str::to_owned),
            node,
        };
        routed.refusal("here", 1)
    }

    #[test]
    fn a_body_is_read_as_it_is_written() {
        let body = [
            2, b'a', 3, b'1', b'2', 5, b'h', b'e', b'r', b'e', 0, 0, 0, 1, 0,
        ];
        let routed = Routed::read(&body).unwrap();
        assert_eq!((routed.name.as_str(), routed.version.as_str()), ("a", "12"));
        assert_eq!((routed.cluster.as_deref(), routed.node), (Some("here"), 1));
        for end in 0..body.len() - 1 {
            assert_eq!(Routed::read(&body[..end]), Err(CUT), "cut at {end}");
        }
        // The letter's first byte ends the name, and the next length looks like its second.
        let halved = [2, 0xc6, 0x81, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Routed::read(&halved), Err("a text is not UTF-8"));
        let bootstrapping = [2, b'a', 2, b'1', 0, 0xff, 0xff, 0xff, 0xff, 0];
        let routed = Routed::read(&bootstrapping).unwrap();
        assert_eq!((routed.cluster, routed.node), (None, -1));
    }

    #[test]
    fn a_client_that_looks_for_another_node_starts_again() {
        assert_eq!(refusal("a", None, -1), None);
        assert_eq!(refusal("a", Some("here"), 1), None);
        assert_eq!(refusal("a", Some("there"), 1), Some(129));
        assert_eq!(refusal("a", Some("here"), 2), Some(129));
        assert_eq!(refusal("a", Some("here"), -1), Some(42));
        assert_eq!(refusal("a", None, 1), Some(42));
    }

    #[test]
    fn names_of_software_are_as_kafka_wants_them() {
        for good in ["a", "apache-kafka-java", "librdkafka", "2.0.1-x"] {
            assert!(is_software(good), "{good}");
        }
        for bad in ["", "-a", "a.", "a b", "a_b"] {
            assert!(!is_software(bad), "{bad}");
        }
    }
}
