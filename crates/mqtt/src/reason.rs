//! Reason codes: what one side tells the other about how something ended.
//!
//! The numbers are those of MQTT 5.0, table 2-6. 3.1 and 3.1.1 know five refusals of a CONNECT
//! and one of a filter; [`ReasonCode::connect_return`] is the only place that translates.

/// A reason code of MQTT 5.0; 0x80 and above are failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
#[allow(missing_docs)] // The names are the specification's own.
pub enum ReasonCode {
    Success = 0x00,
    GrantedQos1 = 0x01,
    GrantedQos2 = 0x02,
    DisconnectWithWill = 0x04,
    NoMatchingSubscribers = 0x10,
    NoSubscriptionExisted = 0x11,
    ContinueAuthentication = 0x18,
    ReAuthenticate = 0x19,
    UnspecifiedError = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    ImplementationSpecificError = 0x83,
    UnsupportedProtocolVersion = 0x84,
    ClientIdentifierNotValid = 0x85,
    BadUserNameOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerUnavailable = 0x88,
    ServerBusy = 0x89,
    Banned = 0x8a,
    ServerShuttingDown = 0x8b,
    BadAuthenticationMethod = 0x8c,
    KeepAliveTimeout = 0x8d,
    SessionTakenOver = 0x8e,
    TopicFilterInvalid = 0x8f,
    TopicNameInvalid = 0x90,
    PacketIdentifierInUse = 0x91,
    PacketIdentifierNotFound = 0x92,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    MessageRateTooHigh = 0x96,
    QuotaExceeded = 0x97,
    AdministrativeAction = 0x98,
    PayloadFormatInvalid = 0x99,
    RetainNotSupported = 0x9a,
    QosNotSupported = 0x9b,
    UseAnotherServer = 0x9c,
    ServerMoved = 0x9d,
    SharedSubscriptionsNotSupported = 0x9e,
    ConnectionRateExceeded = 0x9f,
    MaximumConnectTime = 0xa0,
    SubscriptionIdentifiersNotSupported = 0xa1,
    WildcardSubscriptionsNotSupported = 0xa2,
}

impl ReasonCode {
    /// The byte as it travels in 5.0.
    pub fn byte(self) -> u8 {
        self as u8
    }

    /// Whether it tells of a failure.
    pub fn is_failure(self) -> bool {
        self.byte() >= 0x80
    }

    /// The return code of a refused CONNECT in 3.1 and 3.1.1 (section 3.2.2.3), which tells a
    /// client less.
    pub(crate) fn connect_return(self) -> u8 {
        match self {
            ReasonCode::Success => 0,
            ReasonCode::UnsupportedProtocolVersion => 1,
            ReasonCode::ClientIdentifierNotValid => 2,
            ReasonCode::BadUserNameOrPassword => 4,
            ReasonCode::NotAuthorized
            | ReasonCode::Banned
            | ReasonCode::BadAuthenticationMethod => 5,
            _ => 3,
        }
    }
}
