//! What an operator can set, under `mqtt.` in the configuration.

use std::path::PathBuf;
use std::time::Duration;

use access::TlsConfig;
use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

use crate::bridge::BridgeConfig;
use crate::error::MqttError;
use crate::gatekeeping::{
    Gatekeeping, RatesConfig, SecurityConfig, TenantsConfig, WebSocketConfig,
};
use crate::guard::GuardSettings;
use crate::limits::{REMAINING_BYTES_MAX, TOPIC_ALIASES_MAX};
use crate::topic::check_name;

/// Settings of the MQTT server; every key has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MqttConfig {
    /// Address and port for MQTT over TCP; port 0 picks a free one.
    pub listen: String,
    /// Address and port for MQTT over TLS; no such listener when absent.
    pub tls_listen: Option<String>,
    /// Links open at once; the next one is refused with "server unavailable".
    pub clients_max: usize,
    /// Links of one address at a time; one more is closed. 0 is no bound.
    pub max_connections_per_ip: usize,
    /// The largest packet taken from a client, its fixed header not counted.
    pub packet_bytes_max: ByteSize,
    /// Filters of one client, of a kilobyte each on average at most; the next one is refused in
    /// its SUBACK.
    pub subscriptions_per_client_max: usize,
    /// Messages waiting for one client, connected or away.
    pub queue_messages_max: usize,
    /// Bytes waiting for one client, connected or away.
    pub queue_bytes_max: ByteSize,
    /// Messages of QoS 1 and 2 sent to one client and not acknowledged yet.
    pub inflight_max: u16,
    /// Messages of QoS 1 and 2 that a client of MQTT 5.0 may send before the first is
    /// acknowledged; one that sends more is disconnected.
    pub receive_maximum: u16,
    /// Topics that one client may give a number to; "0" for none.
    pub topic_aliases_max: u16,
    /// The longest keep-alive that a client of MQTT 5.0 may have; "0" leaves it to the client.
    pub keep_alive_max: HumanDuration,
    /// What the server answers when a client of MQTT 5.0 asks for response information: this, and
    /// the client's id. Empty: nothing.
    pub response_topic_prefix: String,
    /// Persistent sessions, also of clients that are away.
    pub sessions_max: usize,
    /// How long a persistent session outlives its last link; "0" keeps it for ever.
    pub session_expiry: HumanDuration,
    /// Retained messages in all.
    pub retained_messages_max: usize,
    /// Topic and payload bytes of all retained messages, which are also kept in memory.
    pub retained_bytes_max: ByteSize,
    /// How long publishers are held back for a client whose queue is full. After that its QoS 0
    /// messages are dropped and counted until its queue is empty again, and a client that also
    /// has QoS 1 messages coming is disconnected.
    pub slow_subscriber_grace: HumanDuration,
    /// A client that takes no byte for so long while some wait for it is disconnected.
    pub stalled_subscriber_timeout: HumanDuration,
    /// How long a new link may take to send its CONNECT.
    pub connect_timeout: HumanDuration,
    /// What a PUBACK promises for messages that are stored (retained, or for persistent
    /// sessions): "memory", "os" (the process may die) or "disk" (the machine may die).
    pub durability: StoreDurability,
    /// How often `$SYS` topics are published while someone subscribes to them.
    pub sys_interval: HumanDuration,
    /// TLS of the listeners that speak it.
    pub tls: TlsConfig,
    /// MQTT over WebSocket.
    pub websocket: WebSocketConfig,
    /// Who clients are and what they may do.
    pub security: SecurityConfig,
    /// What one client or user may use.
    pub rates: RatesConfig,
    /// What tenants' clients see.
    pub tenants: TenantsConfig,
    /// Connections to other brokers.
    pub bridges: Vec<BridgeConfig>,
    /// Folders whose files bridges may name that are added at run time: passwords, certificates, keys.
    pub bridge_files: Vec<PathBuf>,
}

/// The level at which a stored message counts as stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreDurability {
    /// Promises nothing beyond the process.
    Memory,
    /// Survives the process.
    Os,
    /// Survives the machine.
    #[default]
    Disk,
}

impl MqttConfig {
    /// Seconds that a session may outlive its link; `u32::MAX` for ever.
    pub(crate) fn session_expiry_s(&self) -> u32 {
        match self.session_expiry.0.as_secs() {
            0 => u32::MAX,
            seconds => u32::try_from(seconds).unwrap_or(u32::MAX),
        }
    }

    /// Checks the relations between keys.
    ///
    /// # Errors
    /// [`MqttError::Config`] names the first key that cannot work.
    pub fn check(&self) -> Result<(), MqttError> {
        let wrong = |key, problem: String| Err(MqttError::Config { key, problem });
        let packet = self.packet_bytes_max.0;
        if packet < 1024 || packet > REMAINING_BYTES_MAX as u64 {
            return wrong(
                "packet_bytes_max",
                format!("must lie between 1KiB and {REMAINING_BYTES_MAX}"),
            );
        }
        if self.queue_bytes_max.0 < packet {
            return wrong(
                "queue_bytes_max",
                "must be at least mqtt.packet_bytes_max".to_owned(),
            );
        }
        for (key, value) in [
            ("clients_max", self.clients_max),
            ("queue_messages_max", self.queue_messages_max),
            ("inflight_max", usize::from(self.inflight_max)),
            ("receive_maximum", usize::from(self.receive_maximum)),
            ("sessions_max", self.sessions_max),
        ] {
            if value == 0 {
                return wrong(key, "must be at least 1".to_owned());
            }
        }
        for (key, value) in [
            ("connect_timeout", self.connect_timeout),
            (
                "stalled_subscriber_timeout",
                self.stalled_subscriber_timeout,
            ),
            ("sys_interval", self.sys_interval),
        ] {
            if value.0.is_zero() {
                return wrong(key, "must be longer than 0".to_owned());
            }
        }
        for bridge in &self.bridges {
            if let Err(error) = bridge.check() {
                return wrong("bridges", format!("cannot be used: {error}"));
            }
        }
        if let Some((key, problem)) = self.gatekeeping().problem() {
            return wrong(key, problem);
        }
        if self.topic_aliases_max > TOPIC_ALIASES_MAX {
            return wrong(
                "topic_aliases_max",
                format!("must be at most {TOPIC_ALIASES_MAX}"),
            );
        }
        if self.keep_alive_max.0.as_secs() > u64::from(u16::MAX) {
            return wrong("keep_alive_max", format!("must be at most {}s", u16::MAX));
        }
        let prefix = &self.response_topic_prefix;
        if !prefix.is_empty() && check_name(prefix).is_err() {
            return wrong(
                "response_topic_prefix",
                "must be the front of a topic, without '+' and '#'".to_owned(),
            );
        }
        Ok(())
    }

    /// What clients are judged by; none when everybody is let in and may do everything.
    pub fn guard(&self) -> Option<GuardSettings> {
        self.gatekeeping().guard()
    }

    /// Whether everybody who comes to a listener, with TLS or without, shows who they are, and no
    /// password travels in the clear.
    pub fn knows_every_client(&self, is_tls: bool) -> bool {
        self.gatekeeping().knows_every_client(is_tls)
    }

    fn gatekeeping(&self) -> Gatekeeping<'_> {
        Gatekeeping {
            tls_listen: self.tls_listen.as_deref(),
            tls: &self.tls,
            websocket: &self.websocket,
            security: &self.security,
            rates: &self.rates,
            tenants: &self.tenants,
        }
    }
}

impl Default for MqttConfig {
    fn default() -> Self {
        let seconds = |n| HumanDuration(Duration::from_secs(n));
        MqttConfig {
            listen: "127.0.0.1:1883".to_owned(),
            tls_listen: None,
            clients_max: 20_000,
            max_connections_per_ip: 0,
            packet_bytes_max: ByteSize::mib(1),
            subscriptions_per_client_max: 1_000,
            queue_messages_max: 100_000,
            queue_bytes_max: ByteSize::mib(8),
            inflight_max: 128,
            receive_maximum: 1_024,
            topic_aliases_max: 64,
            keep_alive_max: seconds(0),
            response_topic_prefix: String::new(),
            sessions_max: 100_000,
            session_expiry: seconds(7 * 24 * 3_600),
            retained_messages_max: 1_000_000,
            retained_bytes_max: ByteSize::mib(256),
            slow_subscriber_grace: seconds(5),
            stalled_subscriber_timeout: seconds(60),
            connect_timeout: seconds(10),
            durability: StoreDurability::Disk,
            sys_interval: seconds(10),
            tls: TlsConfig::default(),
            websocket: WebSocketConfig::default(),
            security: SecurityConfig::default(),
            rates: RatesConfig::default(),
            tenants: TenantsConfig::default(),
            bridges: Vec::new(),
            bridge_files: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_agree_with_each_other() {
        MqttConfig::default().check().unwrap();
    }

    #[test]
    fn a_queue_smaller_than_a_packet_is_refused() {
        let config = MqttConfig {
            queue_bytes_max: ByteSize::kib(2),
            ..MqttConfig::default()
        };
        let error = config.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "mqtt.queue_bytes_max must be at least mqtt.packet_bytes_max"
        );
    }

    #[test]
    fn listeners_with_tls_need_a_certificate() {
        let config = MqttConfig {
            tls_listen: Some("127.0.0.1:0".to_owned()),
            ..MqttConfig::default()
        };
        let error = config.check().unwrap_err().to_string();
        assert_eq!(
            error,
            "mqtt.tls_listen needs mqtt.tls.certificate and mqtt.tls.key"
        );
    }

    #[test]
    fn topics_are_mounted_for_those_who_say_who_they_are() {
        let text = r#"{"tenants": {"mount": true}}"#;
        let config: MqttConfig = serde_json::from_str(text).unwrap();
        let error = config.check().unwrap_err().to_string();
        assert!(error.starts_with("mqtt.tenants.mount needs"), "{error}");
        let text = r#"{"tenants": {"mount": true}, "security": {"logins": true}}"#;
        let config: MqttConfig = serde_json::from_str(text).unwrap();
        config.check().unwrap();
        assert!(config.guard().unwrap().mounts_tenants);
    }

    #[test]
    fn clients_are_judged_and_known_where_the_settings_say_so() {
        assert!(MqttConfig::default().guard().is_none());
        let text = r#"{"security": {"logins": true, "authorization": "acl"}}"#;
        let config: MqttConfig = serde_json::from_str(text).unwrap();
        let guard = config.guard().unwrap();
        assert!(guard.logins && guard.policy.is_some());
        assert!(config.knows_every_client(true) && !config.knows_every_client(false));
        let text = r#"{"rates": {"client_bytes_per_second": "1KiB"}}"#;
        let config: MqttConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.guard().unwrap().client_byte_rate, 1_024);
        assert!(!config.knows_every_client(true));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = r#"{"lisen": "127.0.0.1:1"}"#;
        assert!(serde_json::from_str::<MqttConfig>(text).is_err());
        let text = r#"{"packet_bytes_max": "64KiB", "durability": "os"}"#;
        let config: MqttConfig = serde_json::from_str(text).unwrap();
        assert_eq!(config.packet_bytes_max, ByteSize::kib(64));
        assert_eq!(config.durability, StoreDurability::Os);
    }
}
