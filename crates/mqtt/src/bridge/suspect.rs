//! Messages over which the other server ends the connection.
//!
//! A server may refuse a message by closing the connection, with a reason (0x95: too large) or
//! without a word, though nothing in its CONNACK said that it would. As such a message is the first
//! again on the next connection, that would go on for ever. So what was under way at such an end goes
//! one by one on the next connection, and an end with one message alone under way counts against it.
//! After [`BRIDGE_REFUSALS_MAX`] ends with a reason that blames a packet, or [`BRIDGE_CLOSES_MAX`] in
//! all, it is set aside. It goes when its connection has stood for a second: a server that
//! cannot stand that long has other troubles. Ends that say nothing of messages count for nothing: a network that fails,
//! silence, a server that stops or is busy, another client of the same id.
//!
//! Of a packet that was too large its size is remembered for [`BRIDGE_SIZE_REMEMBERED`], so that the
//! next ones like it cost no connection. No IO here, and no clock.

use base::UnixMillis;
use rumqttc::v5::mqttbytes;
use rumqttc::v5::mqttbytes::v5::DisconnectReasonCode;
use rumqttc::v5::{ConnectionError, StateError};

use crate::limits::{BRIDGE_CLOSES_MAX, BRIDGE_REFUSALS_MAX, BRIDGE_SIZE_REMEMBERED};

/// What the end of a connection says of the messages that were under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// The other server says that a packet is too large.
    TooLarge,
    /// It says, or shows by its answer, that it does not take a packet.
    Refused,
    /// It closed without a word.
    Closed,
    /// Nothing.
    Nobody,
}

/// What an end comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All goes again.
    Again,
    /// All goes again; it counts against the first.
    Counted,
    /// The one that was under way does not go again.
    SetAside,
}

/// The numbers of messages that the other server has not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The bytes of its packet, when there is one alone and it was sent.
    pub(super) alone_bytes: Option<usize>,
}

/// What is known of messages over which connections ended.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    first: Option<u64>,
    /// Messages up to this one go one by one.
    alone_to: Option<u64>,
    refusals: u32,
    closes: u32,
    /// Bytes of the smallest packet that was too large, and until when that is believed.
    too_large: Option<(usize, UnixMillis)>,
}

impl Blame {
    /// Of a connection that ended like this.
    pub(super) fn of(error: &ConnectionError) -> Blame {
        match error {
            ConnectionError::Io(error) => Blame::of_io(error),
            ConnectionError::MqttState(error) => match error {
                StateError::ConnectionAborted => Blame::Closed,
                StateError::Io(error) => Blame::of_io(error),
                StateError::Deserialization(mqttbytes::Error::Io(error)) => Blame::of_io(error),
                StateError::ServerDisconnect { reason_code, .. } => Blame::of_reason(*reason_code),
                // The client library knows no acknowledgement with this reason.
                StateError::Deserialization(mqttbytes::Error::InvalidConnectReturnCode(code)) => {
                    match *code == DisconnectReasonCode::PacketTooLarge as u8 {
                        true => Blame::TooLarge,
                        false => Blame::Refused,
                    }
                }
                _ => Blame::Nobody,
            },
            _ => Blame::Nobody,
        }
    }

    fn of_io(error: &std::io::Error) -> Blame {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe => Blame::Closed,
            _ => Blame::Nobody,
        }
    }

    /// Of a DISCONNECT with this reason.
    pub(super) fn of_reason(reason: DisconnectReasonCode) -> Blame {
        use DisconnectReasonCode as Reason;
        match reason {
            Reason::PacketTooLarge => Blame::TooLarge,
            Reason::MalformedPacket
            | Reason::ProtocolError
            | Reason::ImplementationSpecificError
            | Reason::NotAuthorized
            | Reason::TopicNameInvalid
            | Reason::PayloadFormatInvalid
            | Reason::RetainNotSupported
            | Reason::QoSNotSupported => Blame::Refused,
            Reason::UnspecifiedError => Blame::Closed,
            _ => Blame::Nobody,
        }
    }
}

impl Suspects {
    /// Whether the message of this number goes when no other is under way only.
    pub(super) fn goes_alone(&self, number: u64) -> bool {
        self.alone_to.is_some_and(|last| number <= last)
    }

    /// Whether the message of this number goes over a connection that has stood for a while only.
    pub(super) fn needs_quiet(&self, number: u64) -> bool {
        self.first == Some(number) && self.refusals + self.closes > 0
    }

    /// Bytes of the largest packet that is sent.
    pub(super) fn packet_bytes_max(&self, now: UnixMillis) -> usize {
        let believed = self.too_large.filter(|(_, until)| now < *until);
        believed.map_or(usize::MAX, |(bytes, _)| bytes.saturating_sub(1))
    }

    /// Takes note of the end of a connection, with what was under way.
    pub(super) fn ended(
        &mut self,
        now: UnixMillis,
        under_way: Option<UnderWay>,
        blame: Blame,
    ) -> Verdict {
        let Some(under_way) = under_way.filter(|_| blame != Blame::Nobody) else {
            return Verdict::Again;
        };
        let is_known = self.first == Some(under_way.first);
        if !is_known {
            self.first = Some(under_way.first);
            (self.refusals, self.closes) = (0, 0);
        }
        // One silent end is often a network's: only the next one with the same message makes it slow.
        if is_known || blame != Blame::Closed {
            self.alone_to = self.alone_to.max(Some(under_way.last));
        }
        let Some(bytes) = under_way.alone_bytes else {
            return Verdict::Again;
        };
        match blame {
            Blame::TooLarge | Blame::Refused => self.refusals += 1,
            _ => self.closes += 1,
        }
        if self.refusals < BRIDGE_REFUSALS_MAX && self.refusals + self.closes < BRIDGE_CLOSES_MAX {
            return Verdict::Counted;
        }
        if blame == Blame::TooLarge {
            let smallest = self.packet_bytes_max(now).saturating_add(1).min(bytes);
            self.too_large = Some((smallest, now + BRIDGE_SIZE_REMEMBERED));
        }
        self.first = None;
        Verdict::SetAside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn several(first: u64, last: u64) -> Option<UnderWay> {
        Some(UnderWay {
            first,
            last,
            alone_bytes: None,
        })
    }

    fn alone(number: u64, bytes: usize) -> Option<UnderWay> {
        Some(UnderWay {
            first: number,
            last: number,
            alone_bytes: Some(bytes),
        })
    }

    #[test]
    fn a_message_is_set_aside_after_so_many_refusals_of_it_alone() {
        let mut suspects = Suspects::default();
        // Which of them it was is not known yet; from now on they go one by one.
        assert_eq!(
            suspects.ended(NOW, several(3, 9), Blame::TooLarge),
            Verdict::Again
        );
        assert!(suspects.goes_alone(3) && suspects.goes_alone(9) && !suspects.goes_alone(10));
        for _ in 1..BRIDGE_REFUSALS_MAX {
            let verdict = suspects.ended(NOW, alone(4, 5_000), Blame::TooLarge);
            assert_eq!(verdict, Verdict::Counted);
        }
        assert_eq!(suspects.packet_bytes_max(NOW), usize::MAX);
        assert!(suspects.needs_quiet(4) && !suspects.needs_quiet(5));
        let verdict = suspects.ended(NOW, alone(4, 5_000), Blame::TooLarge);
        assert_eq!(verdict, Verdict::SetAside);
        assert!(!suspects.needs_quiet(4));
        // The next ones like it are known by their size, for a while.
        assert_eq!(suspects.packet_bytes_max(NOW), 4_999);
        let later = NOW + BRIDGE_SIZE_REMEMBERED;
        assert_eq!(suspects.packet_bytes_max(later), usize::MAX);
        assert!(suspects.goes_alone(9));
    }

    #[test]
    fn silent_ends_count_where_they_fall_on_one_message_again_and_again() {
        let mut suspects = Suspects::default();
        assert_eq!(
            suspects.ended(NOW, several(0, 200), Blame::Closed),
            Verdict::Again
        );
        assert!(!suspects.goes_alone(0), "one end is a network's");
        assert_eq!(
            suspects.ended(NOW, several(0, 200), Blame::Closed),
            Verdict::Again
        );
        assert!(suspects.goes_alone(200));
        for _ in 1..BRIDGE_CLOSES_MAX {
            assert_eq!(
                suspects.ended(NOW, alone(7, 10), Blame::Closed),
                Verdict::Counted
            );
            // What has nothing to do with messages neither counts nor is forgiven for.
            assert_eq!(
                suspects.ended(NOW, alone(7, 10), Blame::Nobody),
                Verdict::Again
            );
        }
        assert_eq!(
            suspects.ended(NOW, alone(7, 10), Blame::Closed),
            Verdict::SetAside
        );
        // Nothing is known of its size by that.
        assert_eq!(suspects.packet_bytes_max(NOW), usize::MAX);
        // A message that goes on the way takes its count with it.
        assert_eq!(
            suspects.ended(NOW, alone(8, 10), Blame::Refused),
            Verdict::Counted
        );
        assert_eq!(
            suspects.ended(NOW, alone(9, 10), Blame::Refused),
            Verdict::Counted
        );
        assert_eq!(suspects.ended(NOW, None, Blame::Closed), Verdict::Again);
    }

    #[test]
    fn ends_that_say_nothing_of_messages_blame_nobody() {
        use DisconnectReasonCode as Reason;
        for (reason, blame) in [
            (Reason::PacketTooLarge, Blame::TooLarge),
            (Reason::NotAuthorized, Blame::Refused),
            (Reason::UnspecifiedError, Blame::Closed),
            (Reason::SessionTakenOver, Blame::Nobody),
            (Reason::ServerShuttingDown, Blame::Nobody),
            (Reason::QuotaExceeded, Blame::Nobody),
        ] {
            assert_eq!(Blame::of_reason(reason), blame, "{reason:?}");
        }
        let answered = |code| {
            let error = mqttbytes::Error::InvalidConnectReturnCode(code);
            ConnectionError::from(StateError::Deserialization(error))
        };
        let io = |kind: std::io::ErrorKind| ConnectionError::Io(kind.into());
        for (error, blame) in [
            (StateError::ConnectionAborted.into(), Blame::Closed),
            (StateError::AwaitPingResp.into(), Blame::Nobody),
            (answered(0x95), Blame::TooLarge),
            (answered(0x96), Blame::Refused),
            (io(std::io::ErrorKind::ConnectionReset), Blame::Closed),
            (io(std::io::ErrorKind::TimedOut), Blame::Nobody),
        ] {
            assert_eq!(Blame::of(&error), blame, "{error}");
        }
    }
}
