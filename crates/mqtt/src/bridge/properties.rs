//! The properties of messages on their way over a bridge: what the client library makes of them,
//! and the path that shows loops.

use base::UnixMillis;
use bytes::Bytes;
use rumqttc::v5::mqttbytes::v5::PublishProperties;

use crate::bridge::PATH;
use crate::codec::{Properties, PropertyBlock};
use crate::limits::BRIDGE_HOPS_MAX;

/// What a message's path says about going out by a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It may go.
    Free,
    /// It came in by this bridge.
    Back,
    /// It went out from this installation before, and came around.
    Loop,
}

/// The way of a message out by the bridge of this name of this installation.
pub(super) fn way_out(properties: &Properties<'_>, id: &str, bridge: &str) -> Way {
    if properties.is_empty() {
        return Way::Free;
    }
    let paths = properties.user().filter(|(name, _)| *name == PATH);
    for step in paths.flat_map(|(_, path)| path.split(',')) {
        if step == id {
            return Way::Loop;
        }
        if step.split_once('/') == Some((id, bridge)) {
            return Way::Back;
        }
    }
    Way::Free
}

/// What goes out beside the payload: the message's own properties, and its path with this
/// installation at its end.
pub(super) fn outgoing(
    properties: &Properties<'_>,
    id: &str,
    expires: Option<UnixMillis>,
    now: UnixMillis,
) -> PublishProperties {
    let expiry = expires.map(|at| {
        let left_ms = at.since(now).as_millis();
        u32::try_from(left_ms.div_ceil(1_000)).unwrap_or(u32::MAX)
    });
    let (own, path) = parted(properties.user());
    PublishProperties {
        payload_format_indicator: properties.is_text().then_some(1),
        message_expiry_interval: expiry,
        topic_alias: None,
        response_topic: properties.response_topic().map(str::to_owned),
        correlation_data: properties.correlation_data().map(Bytes::copy_from_slice),
        user_properties: with_path(own, &path, id),
        subscription_identifiers: Vec::new(),
        content_type: properties.content_type().map(str::to_owned),
    }
}

/// What comes in beside the payload, as a block of MQTT 5.0, with the bridge at the end of its
/// path; none when the message was here before, or came through too many.
pub(super) fn incoming(properties: &PublishProperties, id: &str, bridge: &str) -> Option<Vec<u8>> {
    let pairs = properties.user_properties.iter();
    let (own, path) = parted(pairs.map(|(name, value)| (name.as_str(), value.as_str())));
    let is_here = |step: &str| step.split('/').next() == Some(id);
    if path.split(',').any(is_here) || path.split(',').count() > BRIDGE_HOPS_MAX {
        return None;
    }
    let mut block = PropertyBlock::default();
    if let Some(format) = properties.payload_format_indicator {
        block.payload_is_text(format & 1 != 0);
    }
    if let Some(expiry) = properties.message_expiry_interval {
        block.message_expiry_s(expiry);
    }
    if let Some(kind) = &properties.content_type {
        block.content_type(kind);
    }
    if let Some(topic) = &properties.response_topic {
        block.response_topic(topic);
    }
    if let Some(data) = &properties.correlation_data {
        block.correlation_data(data);
    }
    for (name, value) in with_path(own, &path, &format!("{id}/{bridge}")) {
        block.user(&name, &value);
    }
    Some(block.into_bytes())
}

/// The user properties without the path, and the path.
fn parted<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> (Vec<(String, String)>, String) {
    let (mut own, mut path) = (Vec::new(), String::new());
    for (name, value) in pairs {
        if name == PATH {
            value.clone_into(&mut path);
        } else {
            own.push((name.to_owned(), value.to_owned()));
        }
    }
    (own, path)
}

fn with_path(mut own: Vec<(String, String)>, path: &str, step: &str) -> Vec<(String, String)> {
    let path = match path {
        "" => step.to_owned(),
        path => format!("{path},{step}"),
    };
    own.push((PATH.to_owned(), path));
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_goes_out_elsewhere_and_never_back() {
        let there = PublishProperties {
            payload_format_indicator: Some(1),
            message_expiry_interval: Some(30),
            response_topic: Some("answers".to_owned()),
            correlation_data: Some(Bytes::from_static(b"42")),
            user_properties: vec![
                ("k".to_owned(), "1".to_owned()),
                ("k".to_owned(), "2".to_owned()),
            ],
            content_type: Some("text/plain".to_owned()),
            ..PublishProperties::default()
        };
        let block = incoming(&there, "here", "cloud").unwrap();
        let properties = Properties::stored(&block);
        assert!(properties.is_text());
        assert_eq!(properties.content_type(), Some("text/plain"));
        assert_eq!(properties.message_expiry_s(), Some(30));
        assert_eq!(way_out(&properties, "here", "cloud"), Way::Back);
        assert_eq!(way_out(&properties, "here", "other"), Way::Free);
        assert_eq!(way_out(&properties, "there", "cloud"), Way::Free);
        let now = UnixMillis(1_000);
        let out = outgoing(&properties, "here", Some(UnixMillis(3_500)), now);
        assert_eq!(out.message_expiry_interval, Some(3));
        assert_eq!(out.correlation_data.as_deref(), Some(&b"42"[..]));
        let expected = [("k", "1"), ("k", "2"), (PATH, "here/cloud,here")];
        let got: Vec<(&str, &str)> = out
            .user_properties
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(got, expected);
        // Back here by another way.
        assert_eq!(incoming(&out, "here", "other"), None);
        // Published here by another server, it does not go out again.
        let came = incoming(&out, "there", "up").unwrap();
        let around = Properties::stored(&came);
        assert_eq!(way_out(&around, "here", "other"), Way::Loop);
        // Elsewhere it is welcome.
        assert!(incoming(&out, "there", "up").is_some());
    }

    #[test]
    fn a_path_that_grows_without_end_ends() {
        let path = vec!["x"; BRIDGE_HOPS_MAX + 1].join(",");
        let there = PublishProperties {
            user_properties: vec![(PATH.to_owned(), path)],
            ..PublishProperties::default()
        };
        assert_eq!(incoming(&there, "here", "cloud"), None);
    }
}
