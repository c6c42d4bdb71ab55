//! Every bound of access, with unit and reason.

use std::time::Duration;

/// Users with credentials: the file is written whole at each change, about 400 bytes each.
pub const USERS_MAX: usize = 10_000;

/// ACLs: as above, about 150 bytes each.
pub const ACLS_MAX: usize = 10_000;

/// Entities with quotas of their own.
pub const QUOTAS_MAX: usize = 10_000;

/// Longest name of a user, principal, host or resource, in bytes: a certificate's subject fits.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Longest password taken, in bytes: hashing costs time by its length only once.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// Longest salt of a credential that somebody else made, in bytes.
pub const SALT_BYTES_MAX: usize = 1_024;

/// Fewest rounds of a credential: RFC 7677 and Kafka set it for SHA-256.
pub const ITERATIONS_MIN: u32 = 4_096;

/// Most rounds of a credential: Kafka's own bound, as a login must not become a way to burn the
/// server's time.
pub const ITERATIONS_MAX: u32 = 16_384;

/// Longest message of a login, in bytes: names and nonces are far shorter.
pub const LOGIN_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Largest access file read, in bytes: what the bounds above can add up to, with room.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// How long a TLS handshake may take before the connection is closed.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(15);

/// Bytes of a TLS key or certificate file: chains of a few certificates are a few KiB.
pub const TLS_FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a file of revoked certificates, about 55 each: a fleet of a million may have lost some.
pub const CRL_FILE_BYTES_MAX: u64 = 32 << 20;

/// How long a name and a password that were right need not be hashed again.
pub const VERIFIED_FOR: Duration = Duration::from_secs(60);

/// How many names with passwords are remembered as right, about 150 bytes each.
pub const VERIFIED_MAX: usize = 1_000;

/// Passwords that are hashed for logins at one time, on machines of many cores: 19 MiB each.
pub const HASHED_AT_ONCE_MAX: usize = 4;

/// API tokens, about 300 bytes each in the file.
pub const TOKENS_MAX: usize = 10_000;

/// How long an API token is good for unless somebody says how long: one that is lost does not open
/// doors for ever.
pub const TOKEN_GOOD_FOR: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Longest description of an API token, in bytes.
pub const TOKEN_DESCRIPTION_BYTES_MAX: usize = 256;

/// Callers with roles of their own.
pub const GRANTED_MAX: usize = 10_000;

/// Roles of one caller: one for each class, for hundreds of classes.
pub const GRANTS_OF_ONE_MAX: usize = 1_000;

/// Groups that are read from a JSON Web Token; what is behind them is left out.
pub const JWT_GROUPS_MAX: usize = 200;

/// Longest time for which somebody is held back at once; who is still over is held back again by
/// what they send next.
pub const THROTTLE_MAX: Duration = Duration::from_secs(300);

/// Callers with a bound whose use is known at one time, about 150 bytes each; more share a meter.
pub const METERS_MAX: usize = 10_000;

/// Longest JSON Web Token read, in bytes: those with many claims are a few KiB.
pub const JWT_BYTES_MAX: usize = 16 << 10;

/// Largest file of keys (JWKS) read, in bytes, and the most keys taken from it: an issuer has a
/// handful.
pub const JWKS_BYTES_MAX: u64 = 1 << 20;
/// See [`JWKS_BYTES_MAX`].
pub const JWKS_KEYS_MAX: usize = 100;

/// JSON Web Tokens remembered as good, about 200 bytes each: checking a signature takes some 50
/// microseconds.
pub const JWTS_VERIFIED_MAX: usize = 10_000;

/// Tenants: the file is written whole at each change, about 200 bytes each.
pub const TENANTS_MAX: usize = 10_000;

/// Names of removed tenants that are remembered, about 30 bytes each.
pub const TENANTS_REMOVED_MAX: usize = 100_000;

/// Members of one tenant; more are told by the tenant's name before theirs.
pub const TENANT_MEMBERS_MAX: usize = 1_000;

/// Largest weight of a tenant; the smallest is 1.
pub const TENANT_WEIGHT_MAX: u32 = 1_000;

/// Shortest time for which a tenant's records are kept, in ms: it is looked once a second.
pub const TENANT_RETENTION_MS_MIN: u64 = 1_000;

/// Largest quota: what a number in JSON holds exactly in every language, 2^53 - 1.
pub const TENANT_QUOTA_MAX: u64 = (1 << 53) - 1;

/// What a tenant's rate gives in this time may be used at once: short, so that quotas hold within
/// five per cent over ten seconds, and long beside the time of a request.
pub const TENANT_WINDOW: Duration = Duration::from_millis(200);

/// Seconds that a tenant's rates are the means of, and the one under way.
pub const TENANT_RATE_SLOTS: usize = 11;

/// Refusals kept of each tenant, about 300 bytes each.
pub const TENANT_REFUSALS_MAX: usize = 50;

/// Refusals of one tenant that are logged in a minute: a client that tries over and over must not
/// fill the disk.
pub const TENANT_REFUSALS_LOGGED_PER_MINUTE: usize = 60;

/// Collections of topics that tenants share, about 10 bytes each; a producer's sequence is looked
/// for in each of them after a switch.
pub const COLLECTIONS_MAX: usize = 100;
