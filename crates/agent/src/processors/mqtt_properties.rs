//! What ConsumeMQTT and PublishMQTT have in common: the server, the session, the will, TLS.

use rumqttc::QoS;

use super::{Expressions, PropertyKind, Settings, Shape, tls_files};
use crate::mqtt::{MqttSettings, Version, Will};

pub(super) const BROKER_URI: PropertyKind = PropertyKind::new(
    "Broker URI",
    "mqtt://host:port or tcp://host:port, or with TLS mqtts:// or ssl://; the port may be left \
     out.",
)
.required()
.expressions(Expressions::Once);

pub(super) const CLIENT_ID: PropertyKind =
    PropertyKind::new("Client ID", "The session's name; made up when empty.")
        .expressions(Expressions::Once);

pub(super) const QUALITY: PropertyKind = PropertyKind::new(
    "Quality of Service",
    "0: at most once. 1: at least once. 2: once between agent and server; over a crash of the \
     agent as 1.",
)
.default("0")
.allowed(&["0", "1", "2"]);

pub(super) const VERSION: PropertyKind =
    PropertyKind::new("MQTT Version", "3.x AUTO and 3.1.0 speak 3.1.1.")
        .default("3.x AUTO")
        .allowed(&["3.x AUTO", "3.1.0", "3.1.1", "5.0"]);

pub(super) const KEEP_ALIVE: PropertyKind = PropertyKind::new(
    "Keep Alive Interval",
    "Time after which a silent link is looked after; with 5.0 five seconds at least.",
)
.default("60 sec")
.shape(Shape::Duration);

pub(super) const TIMEOUT: PropertyKind = PropertyKind::new(
    "Connection Timeout",
    "Longest wait for the server's answer.",
)
.default("10 sec")
.shape(Shape::Duration);

pub(super) const WILL_TOPIC: PropertyKind = PropertyKind::new(
    "Last Will Topic",
    "Where the server tells that the agent was lost; nowhere when empty.",
)
.expressions(Expressions::Once);

pub(super) const WILL_MESSAGE: PropertyKind =
    PropertyKind::new("Last Will Message", "What the server tells then.")
        .expressions(Expressions::Once);

pub(super) const WILL_QUALITY: PropertyKind =
    PropertyKind::new("Last Will QoS", "The will's quality of service.")
        .default("0")
        .allowed(&["0", "1", "2"]);

pub(super) const WILL_RETAIN: PropertyKind =
    PropertyKind::new("Last Will Retain", "Whether the server keeps the will.")
        .default("false")
        .shape(Shape::Flag);

pub(super) const WILL_CONTENT_TYPE: PropertyKind =
    PropertyKind::new("Last Will Content Type", "What the will is; 5.0 only.")
        .expressions(Expressions::Once);

pub(super) const USERNAME: PropertyKind =
    PropertyKind::new("Username", "Who the agent is to the server.").expressions(Expressions::Once);

pub(super) const PASSWORD: PropertyKind = PropertyKind::new("Password", "The user's password.")
    .expressions(Expressions::Once)
    .sensitive();

pub(super) const SECURITY_PROTOCOL: PropertyKind = PropertyKind::new(
    "Security Protocol",
    "plaintext or ssl; mqtts:// and ssl:// in Broker URI mean ssl too.",
)
.default("plaintext")
.allowed(&["plaintext", "ssl"]);

pub(super) const SSL_CONTEXT: PropertyKind = PropertyKind::new(
    "SSL Context Service",
    "The agent's certificate and the authorities that the server is checked with, instead of \
     the next four.",
)
.shape(Shape::Service("SSLContextService"));

/// Reads the properties above; a session is clean unless the caller says otherwise.
pub(super) fn settings(settings: &Settings<'_>) -> Result<MqttSettings, String> {
    let uri = settings.needed("Broker URI")?;
    let (host, port, is_secure) = address(&uri)?;
    let is_secure = is_secure || settings.needed("Security Protocol")? == "ssl";
    let client_id = settings
        .text("Client ID")?
        .unwrap_or_else(|| format!("thalweg-{}", uuid::Uuid::new_v4().simple()));
    if client_id.starts_with(' ') {
        return Err("Client ID: it starts with a blank".to_owned());
    }
    let user = settings.text("Username")?;
    let password = settings.text("Password")?.unwrap_or_default();
    let will = match settings.text("Last Will Topic")? {
        Some(topic) if !is_legal(&topic) => {
            return Err(format!(
                "Last Will Topic: '{topic}' is no topic to publish to"
            ));
        }
        Some(topic) => Some(Will {
            topic,
            message: settings
                .text("Last Will Message")?
                .unwrap_or_default()
                .into(),
            qos: quality(settings, "Last Will QoS")?,
            is_retained: settings.flag("Last Will Retain")?,
            content_type: settings.text("Last Will Content Type")?,
        }),
        None => None,
    };
    Ok(MqttSettings {
        host,
        port,
        tls: match is_secure {
            true => Some(tls_files::client(settings)?),
            false => None,
        },
        version: match settings.needed("MQTT Version")?.as_str() {
            "5.0" => Version::V5,
            _ => Version::V3,
        },
        client_id,
        is_clean: true,
        session_expiry: std::time::Duration::ZERO,
        receive_max: u16::MAX,
        keep_alive: settings.duration("Keep Alive Interval")?,
        connect_wait: settings.duration("Connection Timeout")?,
        user: user.map(|user| (user, password)),
        will,
    })
}

/// Reads a quality of service.
pub(super) fn quality(settings: &Settings<'_>, name: &str) -> Result<QoS, String> {
    Ok(match settings.needed(name)?.as_str() {
        "2" => QoS::ExactlyOnce,
        "1" => QoS::AtLeastOnce,
        _ => QoS::AtMostOnce,
    })
}

/// Whether a message can be published to `topic`.
pub(super) fn is_legal(topic: &str) -> bool {
    !topic.is_empty() && topic.len() <= usize::from(u16::MAX) && !topic.contains(['+', '#', '\0'])
}

/// Host, port, and whether it is to be TLS.
fn address(uri: &str) -> Result<(String, u16, bool), String> {
    let (plain, is_secure) = match uri.split_once("://") {
        Some(("mqtt" | "tcp", rest)) => (rest, false),
        Some(("mqtts" | "ssl" | "tls", rest)) => (rest, true),
        Some((scheme, _)) => {
            return Err(format!(
                "Broker URI: {scheme}:// is not supported; write mqtt://host:port or mqtts://"
            ));
        }
        None => (uri, false),
    };
    let plain = plain.trim_end_matches('/');
    let (host, port) = match plain.rsplit_once(':') {
        Some((host, port)) => (
            host,
            port.parse()
                .map_err(|_| format!("Broker URI: '{port}' is no port"))?,
        ),
        None => (plain, if is_secure { SECURE_PORT } else { PLAIN_PORT }),
    };
    if host.is_empty() {
        return Err(format!("Broker URI: '{uri}' names no host"));
    }
    Ok((host.to_owned(), port, is_secure))
}

/// MQTT's registered ports.
const PLAIN_PORT: u16 = 1883;
const SECURE_PORT: u16 = 8883;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_flows_write_them() {
        assert_eq!(address("mqtt://h:1"), Ok(("h".to_owned(), 1, false)));
        assert_eq!(address("tcp://h/"), Ok(("h".to_owned(), 1883, false)));
        assert_eq!(address("h:2"), Ok(("h".to_owned(), 2, false)));
        assert_eq!(address("ssl://h:3"), Ok(("h".to_owned(), 3, true)));
        assert_eq!(address("mqtts://h"), Ok(("h".to_owned(), 8883, true)));
        for bad in ["ws://h:1", "mqtt://:1", "h:x", "mqtt://"] {
            assert!(address(bad).is_err(), "{bad} was taken");
        }
    }
}
