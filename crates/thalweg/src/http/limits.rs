//! Every bound of the HTTP ports' transport, each with its unit and its reason.

use std::time::Duration;

/// Open connections per HTTP port where nobody has set it; each idle one costs a few KiB.
pub(super) const CONNECTIONS_MAX: usize = 10_000;

/// What a port's idle time-out is where nobody has set it: agents call once a minute at the most
/// usual setting and keep their connections, so it is longer than that.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The shortest idle time-out that may be set: a request's head has to come within it.
pub(super) const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Bytes of a request's head, by either version of HTTP: tokens and long URLs fit several times.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;

/// A TLS handshake must be over within this time.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(15);

/// How long a body may be silent where its handler does not bound that itself.
pub(super) const BODY_IDLE_MAX: Duration = Duration::from_secs(60);

/// Who does not take [`WRITTEN_BYTES_MIN`] of a waiting answer within this time is disconnected:
/// answers are held in memory until they are read.
pub(super) const WRITE_STALL_MAX: Duration = Duration::from_secs(30);

/// See [`WRITE_STALL_MAX`]: some 500 bytes a second, below any link that still works.
pub(super) const WRITTEN_BYTES_MIN: usize = 16 << 10;

/// How long running requests may take to end at a stop; long polls end by themselves before.
pub(super) const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Requests under way on one HTTP/2 connection: what browsers and clients usually ask for.
pub(super) const HTTP2_STREAMS_MAX: u32 = 256;

/// Requests that a client may take back before the server has looked at them; one more ends the
/// connection (hyper's default, said here so that nobody has to look it up).
pub(super) const HTTP2_PENDING_RESETS_MAX: usize = 20;

/// Requests that the server itself may have to take back on one connection before it ends (hyper's
/// default): a client that provokes it works against the server.
pub(super) const HTTP2_LOCAL_RESETS_MAX: usize = 1_024;

/// Bytes that may come of one request, and on one connection, before a handler has read them.
pub(super) const HTTP2_STREAM_WINDOW_BYTES: u32 = 512 << 10;
/// See [`HTTP2_STREAM_WINDOW_BYTES`].
pub(super) const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// How often an HTTP/2 connection is looked at: for answers that nobody reads, and whether there
/// was no request since the last look, which ends it.
pub(super) const HTTP2_LOOK: Duration = Duration::from_secs(30);

/// Answers below this size go out as they are: they fit one packet anyway.
pub(super) const PACKED_BYTES_MIN: u64 = 1_400;

/// Answers above this size are packed on a thread of their own, as it takes a millisecond.
pub(super) const PACKED_INLINE_BYTES_MAX: u64 = 128 << 10;

/// Packed bodies of requests are unpacked in one go up to this size, packed and unpacked: a
/// heartbeat's, and more than most requests'.
pub(super) const UNPACKED_AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Large answers packed at a time; while there are more, the others go out as they are.
pub(super) const PACKED_AT_ONCE_MAX: usize = 4;

/// Time between two questions for an issuer's keys that nothing calls for.
pub(super) const ISSUER_ASKED_EVERY: Duration = Duration::from_secs(600);

/// Least time between two questions for an issuer's keys: whoever shows wrong tokens must not have
/// the issuer asked at each.
pub(super) const ISSUER_PAUSE: Duration = Duration::from_secs(30);

/// How long an issuer may take to tell its keys.
pub(super) const ISSUER_WAIT: Duration = Duration::from_secs(10);

/// How long an issuer may take to tell where people sign out of it.
pub(super) const SIGN_OUT_WAIT: Duration = Duration::from_secs(2);

/// How long people may take at the issuer's before they have to begin to sign in again.
pub(super) const SIGN_IN_WAIT: Duration = Duration::from_secs(600);

/// How long before its end a login's token is replaced by a new one; half of its time where that is
/// less.
pub(super) const RENEWED_BEFORE: Duration = Duration::from_secs(60);

/// When a page asks again for a new token after the issuer could not be asked.
pub(super) const RENEWAL_PAUSE: Duration = Duration::from_secs(15);

/// Codes and tokens that an issuer is asked about at a time.
pub(super) const SIGN_INS_AT_ONCE_MAX: usize = 16;
