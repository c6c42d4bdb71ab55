//! What a link is made with.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rumqttc::{LastWill, MqttOptions, QoS, TlsConfiguration, Transport, v5};
use rustls::ClientConfig;

use super::translate::to_v5;
use crate::limits::MQTT_IN_FLIGHT_MAX;
use crate::net::limits::MQTT_PACKET_BYTES_MAX;

/// A version of MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// 3.1.1.
    V3,
    /// 5.0.
    V5,
}

/// What a link is made with.
#[derive(Clone)]
pub(crate) struct MqttSettings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) version: Version,
    pub(crate) client_id: String,
    /// Whether the server forgets what it kept for the client.
    pub(crate) is_clean: bool,
    /// How long a 5.0 server keeps the session after the link.
    pub(crate) session_expiry: Duration,
    /// Messages that a 5.0 server may have in flight to the client.
    pub(crate) receive_max: u16,
    pub(crate) keep_alive: Duration,
    pub(crate) connect_wait: Duration,
    pub(crate) user: Option<(String, String)>,
    pub(crate) will: Option<Will>,
}

/// What the server publishes when the client is lost.
#[derive(Clone, Debug)]
pub(crate) struct Will {
    pub(crate) topic: String,
    pub(crate) message: Bytes,
    pub(crate) qos: QoS,
    pub(crate) is_retained: bool,
    /// Only 5.0 tells it.
    pub(crate) content_type: Option<String>,
}

impl MqttSettings {
    /// Host and port, for messages and attributes.
    pub(crate) fn address(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn v3(&self) -> MqttOptions {
        let mut options = MqttOptions::new(&self.client_id, &self.host, self.port);
        // The client must have a name for a session that is kept; `client_id` is never empty.
        options.set_clean_session(self.is_clean);
        options.set_keep_alive(self.keep_alive.max(Duration::from_secs(1)));
        options.set_inflight(MQTT_IN_FLIGHT_MAX);
        options.set_max_packet_size(MQTT_PACKET_BYTES_MAX, MQTT_PACKET_BYTES_MAX);
        options.set_manual_acks(true);
        options.set_transport(self.transport());
        if let Some((user, password)) = &self.user {
            options.set_credentials(user, password);
        }
        if let Some(will) = &self.will {
            let message = will.message.clone();
            options.set_last_will(LastWill::new(
                &will.topic,
                message,
                will.qos,
                will.is_retained,
            ));
        }
        options
    }

    pub(super) fn v5(&self) -> v5::MqttOptions {
        let mut options = v5::MqttOptions::new(&self.client_id, &self.host, self.port);
        options.set_clean_start(self.is_clean);
        options.set_keep_alive(self.keep_alive.max(KEEP_ALIVE_V5_MIN));
        options.set_outgoing_inflight_upper_limit(MQTT_IN_FLIGHT_MAX);
        options.set_max_packet_size(u32::try_from(MQTT_PACKET_BYTES_MAX).ok());
        options.set_manual_acks(true);
        options.set_transport(self.transport());
        options.set_connection_timeout(self.connect_wait.as_secs().max(1));
        options.set_receive_maximum(Some(self.receive_max.max(1)));
        let expiry = u32::try_from(self.session_expiry.as_secs()).unwrap_or(u32::MAX);
        options.set_session_expiry_interval(Some(expiry));
        if let Some((user, password)) = &self.user {
            options.set_credentials(user, password);
        }
        if let Some(will) = &self.will {
            let properties = will.content_type.clone().map(|content_type| {
                v5::mqttbytes::v5::LastWillProperties {
                    delay_interval: None,
                    payload_format_indicator: None,
                    message_expiry_interval: None,
                    content_type: Some(content_type),
                    response_topic: None,
                    correlation_data: None,
                    user_properties: Vec::new(),
                }
            });
            options.set_last_will(v5::mqttbytes::v5::LastWill::new(
                &will.topic,
                will.message.clone(),
                to_v5(will.qos),
                will.is_retained,
                properties,
            ));
        }
        options
    }

    fn transport(&self) -> Transport {
        match &self.tls {
            Some(tls) => Transport::tls_with_config(TlsConfiguration::Rustls(Arc::clone(tls))),
            None => Transport::tcp(),
        }
    }
}

impl fmt::Debug for MqttSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the password: this goes into logs.
        let user = self.user.as_ref().map(|(user, _)| user);
        write!(
            f,
            "MqttSettings({}, {:?}, user {user:?})",
            self.address(),
            self.version
        )
    }
}

/// The client library takes no shorter one for 5.0.
const KEEP_ALIVE_V5_MIN: Duration = Duration::from_secs(5);
