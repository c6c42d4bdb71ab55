//! What the other server says that it takes, and messages made to fit.
//!
//! A server ends the connection over a message that it said it does not take; as such a message
//! would be the first again on the next one, it must not leave.

use bytes::Bytes;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{ConnAck, Publish, PublishProperties};

use crate::bridge::queue::Parcel;
use crate::message::Qos;

/// What the other server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Takes {
    /// Bytes of the largest packet.
    packet_bytes_max: usize,
    /// Quality 1, besides 0.
    acknowledges: bool,
    /// Messages that are to be retained.
    retains: bool,
}

impl Takes {
    /// What its CONNACK says (5.0 section 3.2.2.3); what that is silent about is taken.
    pub(super) fn told_by(ack: &ConnAck) -> Self {
        let properties = ack.properties.as_ref();
        let bytes = properties.and_then(|told| told.max_packet_size);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        Takes {
            packet_bytes_max: bytes.unwrap_or(usize::MAX),
            acknowledges: properties.and_then(|told| told.max_qos) != Some(0),
            retains: properties.and_then(|told| told.retain_available) != Some(0),
        }
    }

    /// The same, and no packet of more bytes.
    pub(super) fn at_most(self, bytes_max: usize) -> Self {
        Takes {
            packet_bytes_max: self.packet_bytes_max.min(bytes_max),
            ..self
        }
    }

    /// What goes another way than it was meant; empty when nothing does.
    pub(super) fn lacks(self) -> &'static str {
        match (self.acknowledges, self.retains) {
            (true, true) => "",
            (true, false) => "the other server retains no messages: they go as others do",
            (false, true) => {
                "the other server takes quality 0 alone, so what is lost is not noticed"
            }
            (false, false) => {
                "the other server takes quality 0 alone and retains nothing, so what is lost is not \
                 noticed"
            }
        }
    }

    /// The message as this server takes it.
    ///
    /// # Errors
    /// It is larger than this server takes, in words.
    pub(super) fn fit(
        self,
        parcel: Parcel,
        properties: PublishProperties,
    ) -> Result<Publish, String> {
        let is_acknowledged = self.acknowledges && parcel.qos != Qos::AtMostOnce;
        let publish = Publish {
            dup: false,
            qos: match is_acknowledged {
                true => QoS::AtLeastOnce,
                false => QoS::AtMostOnce,
            },
            retain: parcel.retain && self.retains,
            topic: Bytes::from(parcel.topic),
            // The client numbers it; any number takes as many bytes.
            pkid: u16::from(is_acknowledged),
            payload: parcel.payload,
            properties: Some(properties),
        };
        let (bytes, bytes_max) = (publish.size(), self.packet_bytes_max);
        if bytes > bytes_max {
            return Err(format!(
                "the other server takes packets of {bytes_max} bytes at most: one of {bytes} is \
                 refused"
            ));
        }
        Ok(publish)
    }
}

impl Default for Takes {
    fn default() -> Self {
        Takes {
            packet_bytes_max: usize::MAX,
            acknowledges: true,
            retains: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use rumqttc::v5::mqttbytes::v5::{ConnAckProperties, ConnectReturnCode};

    use super::*;

    fn told(max_packet_size: Option<u32>, max_qos: Option<u8>, retain: Option<u8>) -> Takes {
        let properties = ConnAckProperties {
            session_expiry_interval: None,
            receive_max: None,
            max_qos,
            retain_available: retain,
            max_packet_size,
            assigned_client_identifier: None,
            topic_alias_max: None,
            reason_string: None,
            user_properties: Vec::new(),
            wildcard_subscription_available: None,
            subscription_identifiers_available: None,
            shared_subscription_available: None,
            server_keep_alive: None,
            response_information: None,
            server_reference: None,
            authentication_method: None,
            authentication_data: None,
        };
        Takes::told_by(&ConnAck {
            session_present: false,
            code: ConnectReturnCode::Success,
            properties: Some(properties),
        })
    }

    fn parcel(payload: usize) -> Parcel {
        Parcel {
            qos: Qos::AtLeastOnce,
            retain: true,
            expires: None,
            topic: "a/b".to_owned(),
            properties: Bytes::new(),
            payload: Bytes::from(vec![7; payload]),
        }
    }

    #[test]
    fn quality_and_retention_are_those_that_the_server_takes() {
        for (max_qos, retain, qos, retained) in [
            (None, None, QoS::AtLeastOnce, true),
            (Some(1), Some(1), QoS::AtLeastOnce, true),
            (Some(0), Some(1), QoS::AtMostOnce, true),
            (None, Some(0), QoS::AtLeastOnce, false),
            (Some(0), Some(0), QoS::AtMostOnce, false),
        ] {
            let takes = told(None, max_qos, retain);
            let fitted = takes.fit(parcel(5), PublishProperties::default()).unwrap();
            assert_eq!((fitted.qos, fitted.retain), (qos, retained));
            let is_as_meant = qos == QoS::AtLeastOnce && retained;
            assert_eq!(takes.lacks().is_empty(), is_as_meant);
        }
    }

    #[test]
    fn the_largest_packet_fits_and_a_byte_more_does_not() {
        for max_qos in [0, 1] {
            let takes = told(Some(1_000), Some(max_qos), None);
            let said = PublishProperties {
                user_properties: vec![("k".to_owned(), "v".to_owned())],
                ..PublishProperties::default()
            };
            let fit = |payload| takes.fit(parcel(payload), said.clone());
            let most = (0..1_000).rev().find(|n| fit(*n).is_ok()).unwrap();
            let mut bytes = BytesMut::new();
            fit(most).unwrap().write(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 1_000);
            assert!(fit(most + 1).is_err());
        }
    }
}
