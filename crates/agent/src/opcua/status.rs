//! Status codes: what a server says of a request, of a node, or of a value (Part 4, 7.39).

use std::fmt;

/// A status code; zero is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u32);

impl Status {
    pub(crate) const NODE_ID_UNKNOWN: Status = Status(0x8034_0000);
    pub(crate) const NO_MATCH: Status = Status(0x806f_0000);
    pub(crate) const TOO_MANY_OPERATIONS: Status = Status(0x8010_0000);

    /// Whether it is a failure; what is uncertain is none.
    pub(crate) fn is_bad(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }

    /// Whether it says nothing of what was asked but that the session cannot go on, or that the
    /// server is not up to it now: the same may be asked again later.
    pub(crate) fn is_of_session(self) -> bool {
        let code = self.0 >> 16;
        OF_SESSION.contains(&code)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES
            .iter()
            .find(|(code, _)| code << 16 == self.0 & 0xffff_0000);
        match name {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "status 0x{:08x}", self.0),
        }
    }
}

/// Codes that are the session's, the channel's or the server's own, without their lower halves.
const OF_SESSION: [u32; 21] = [
    0x8003, 0x8004, 0x8005, 0x800a, 0x800c, 0x800d, 0x800e, 0x8022, 0x8025, 0x8026, 0x8027, 0x8056,
    0x807d, 0x807f, 0x8081, 0x8082, 0x8086, 0x8087, 0x8088, 0x80ac, 0x80ae,
];

/// The names of codes that a client of this kind can meet, without their lower halves.
const NAMES: &[(u32, &str)] = &[
    (0x8001, "BadUnexpectedError"),
    (0x8002, "BadInternalError"),
    (0x8003, "BadOutOfMemory"),
    (0x8004, "BadResourceUnavailable"),
    (0x8005, "BadCommunicationError"),
    (0x8006, "BadEncodingError"),
    (0x8007, "BadDecodingError"),
    (0x8008, "BadEncodingLimitsExceeded"),
    (0x8009, "BadUnknownResponse"),
    (0x800a, "BadTimeout"),
    (0x800b, "BadServiceUnsupported"),
    (0x800c, "BadShutdown"),
    (0x800d, "BadServerNotConnected"),
    (0x800e, "BadServerHalted"),
    (0x800f, "BadNothingToDo"),
    (0x8010, "BadTooManyOperations"),
    (0x8011, "BadDataTypeIdUnknown"),
    (0x8012, "BadCertificateInvalid"),
    (0x8013, "BadSecurityChecksFailed"),
    (0x801f, "BadUserAccessDenied"),
    (0x8020, "BadIdentityTokenInvalid"),
    (0x8021, "BadIdentityTokenRejected"),
    (0x8022, "BadSecureChannelIdInvalid"),
    (0x8023, "BadInvalidTimestamp"),
    (0x8024, "BadNonceInvalid"),
    (0x8025, "BadSessionIdInvalid"),
    (0x8026, "BadSessionClosed"),
    (0x8027, "BadSessionNotActivated"),
    (0x802a, "BadRequestHeaderInvalid"),
    (0x8031, "BadNoCommunication"),
    (0x8032, "BadWaitingForInitialData"),
    (0x8033, "BadNodeIdInvalid"),
    (0x8034, "BadNodeIdUnknown"),
    (0x8035, "BadAttributeIdInvalid"),
    (0x8036, "BadIndexRangeInvalid"),
    (0x8037, "BadIndexRangeNoData"),
    (0x803a, "BadNotReadable"),
    (0x803b, "BadNotWritable"),
    (0x803c, "BadOutOfRange"),
    (0x803d, "BadNotSupported"),
    (0x803e, "BadNotFound"),
    (0x804a, "BadContinuationPointInvalid"),
    (0x804b, "BadNoContinuationPoints"),
    (0x804c, "BadReferenceTypeIdInvalid"),
    (0x8054, "BadSecurityModeRejected"),
    (0x8055, "BadSecurityPolicyRejected"),
    (0x8056, "BadTooManySessions"),
    (0x8057, "BadUserSignatureInvalid"),
    (0x805b, "BadParentNodeIdInvalid"),
    (0x805c, "BadReferenceNotAllowed"),
    (0x805d, "BadNodeIdRejected"),
    (0x805e, "BadNodeIdExists"),
    (0x805f, "BadNodeClassInvalid"),
    (0x8060, "BadBrowseNameInvalid"),
    (0x8061, "BadBrowseNameDuplicated"),
    (0x8062, "BadNodeAttributesInvalid"),
    (0x8063, "BadTypeDefinitionInvalid"),
    (0x806f, "BadNoMatch"),
    (0x8073, "BadWriteNotSupported"),
    (0x8074, "BadTypeMismatch"),
    (0x807d, "BadTcpServerTooBusy"),
    (0x807e, "BadTcpMessageTypeInvalid"),
    (0x807f, "BadTcpSecureChannelUnknown"),
    (0x8080, "BadTcpMessageTooLarge"),
    (0x8081, "BadTcpNotEnoughResources"),
    (0x8082, "BadTcpInternalError"),
    (0x8083, "BadTcpEndpointUrlInvalid"),
    (0x8086, "BadSecureChannelClosed"),
    (0x8087, "BadSecureChannelTokenUnknown"),
    (0x8088, "BadSequenceNumberInvalid"),
    (0x8089, "BadConfigurationError"),
    (0x808a, "BadNotConnected"),
    (0x808b, "BadDeviceFailure"),
    (0x808c, "BadSensorFailure"),
    (0x808d, "BadOutOfService"),
    (0x80ab, "BadInvalidArgument"),
    (0x80ac, "BadConnectionRejected"),
    (0x80ae, "BadConnectionClosed"),
    (0x80af, "BadInvalidState"),
    (0x80b1, "BadNoDataAvailable"),
    (0x80b8, "BadRequestTooLarge"),
    (0x80b9, "BadResponseTooLarge"),
    (0x80be, "BadProtocolVersionUnsupported"),
];
