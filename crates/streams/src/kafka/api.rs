//! Dispatches requests by the one table of the APIs served, and answers ApiVersions from it.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guard::{self, Field};
use super::limits::{ASIDE_REQUEST_BYTES_MIN, ASIDE_TOPICS_MIN};
use super::permissions::{AskedPermissions, Asks};
use super::reply::{Call, Ending, Reply, begun_aside};
use super::table::APIS;
use super::throttle::{Told, Toll};
use super::{Context, sasl};

/// One API.
pub(super) struct Api {
    /// Its name in Kafka's protocol guide, also the metrics' label.
    pub(super) name: &'static str,
    pub(super) key: i16,
    /// The lowest version told to clients.
    pub(super) told_from: i16,
    /// The lowest version served.
    pub(super) from: i16,
    /// The highest version told and served.
    pub(super) to: i16,
    /// The first version with compact lengths and tagged fields.
    pub(super) flexible_from: i16,
    pub(super) shape: &'static [Field],
    /// What it asks of its callers.
    pub(super) asks: Asks,
    /// Where its answer says for how long the client is held back.
    pub(super) told: Told,
    pub(super) begin: fn(Call) -> Result<Reply, Ending>,
}

/// A request that was begun, and what it costs its client where that is counted.
pub(super) struct Begun {
    pub(super) reply: Reply,
    pub(super) toll: Option<Toll>,
    pub(super) timing: Timing,
}

/// When a request came, for the metrics.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    /// Its place in the table; none for a step of a login without Kafka's headers.
    pub(super) api: Option<usize>,
    pub(super) began: Instant,
    /// How long it took until it was read and had its effect in memory.
    pub(super) local: Duration,
}

impl Timing {
    /// Whether the request was one of this API.
    pub(super) fn is_of(self, key: i16) -> bool {
        self.api.is_some_and(|index| APIS[index].key == key)
    }
}

/// Begins the request in `frame`: what it changes has changed on return.
pub(super) fn begin(context: &Arc<Context>, frame: Bytes) -> Result<Begun, Ending> {
    let began = Instant::now();
    let mut begun = begin_any(context, frame, began)?;
    begun.timing.local = began.elapsed();
    Ok(begun)
}

fn begin_any(context: &Arc<Context>, frame: Bytes, began: Instant) -> Result<Begun, Ending> {
    let free = |api| {
        let local = Duration::ZERO;
        let timing = Timing { api, began, local };
        move |reply| Begun {
            reply,
            toll: None,
            timing,
        }
    };
    if let Some(login) = context.session.raw_login() {
        return sasl::raw_token(context, login, frame).map(free(None));
    }
    let (header, mut head_bytes) = guard::read_header(&frame)?;
    let found = APIS
        .iter()
        .enumerate()
        .find(|(_, api)| api.key == header.key);
    let Some((index, api)) = found else {
        return Err(Ending::UnknownApi {
            key: header.key,
            version: header.version,
        });
    };
    context.shared.telemetry().apis[index].requests.increment(1);
    if !api.asks.is_before_login() {
        context.session.admit(api.name)?;
    }
    let mut call = Call {
        context: Arc::clone(context),
        version: header.version,
        correlation: header.correlation,
        asks: api.asks,
        // Apart from the frame, which it would keep in memory.
        client_id: StrBytes::from_string(header.client_id.to_owned()),
        body: Bytes::new(),
    };
    if !(api.from..=api.to).contains(&header.version) {
        if api.key == API_VERSIONS_KEY {
            return answer_unknown_version(&call).map(free(Some(index)));
        }
        return Err(Ending::UnknownApi {
            key: header.key,
            version: header.version,
        });
    }
    let is_flexible = header.version >= api.flexible_from;
    if is_flexible {
        head_bytes += guard::header_tags(&frame[head_bytes..])?;
    }
    guard::check(api.shape, header.version, is_flexible, &frame[head_bytes..])?;
    call.body = frame.slice(head_bytes..);
    let toll = Toll::of(&call, api, frame.len());
    if is_long(&call, api.key, frame.len()) {
        let reply = begun_aside(call, api.begin);
        return Ok(Begun {
            toll,
            ..free(Some(index))(reply)
        });
    }
    let Some(mut toll) = toll else {
        return (api.begin)(call).map(free(Some(index)));
    };
    let started = Instant::now();
    let reply = (api.begin)(call)?;
    toll.add_time(context, started.elapsed());
    let begun = free(Some(index))(reply);
    Ok(Begun {
        toll: Some(toll),
        ..begun
    })
}

/// Whether a request may describe so much that its lane has other things to do meanwhile.
fn is_long(call: &Call, key: i16, bytes: usize) -> bool {
    DESCRIBING_KEYS.contains(&key)
        && (bytes > ASIDE_REQUEST_BYTES_MIN
            || call.context.streams().topics().read().count() > ASIDE_TOPICS_MIN)
}

/// What ApiVersions tells: every API with its versions.
pub(super) fn told() -> Vec<ApiVersion> {
    APIS.iter().map(Api::told).collect()
}

/// What each API asks of its callers where ACLs are followed, in the order of the APIs' keys.
pub fn asked_permissions() -> impl Iterator<Item = AskedPermissions> {
    APIS.iter().map(|api| AskedPermissions {
        api: api.name,
        permissions: api.asks.permissions(),
        open_because: api.asks.reason(),
    })
}

/// A client that asks in a version from the future learns, in the oldest layout, which versions of
/// this very API it may ask in; it cannot know that before.
fn answer_unknown_version(call: &Call) -> Result<Reply, Ending> {
    let own = APIS
        .iter()
        .filter(|api| api.key == API_VERSIONS_KEY)
        .map(Api::told);
    let body = ApiVersionsResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_api_keys(own.collect());
    call.answer_in(0, &body).map(Reply::Now)
}

/// Metadata, DescribeGroups, ListGroups, DescribeConfigs, DescribeLogDirs and
/// DescribeTopicPartitions: what describes many things at once, and waits for nothing.
const DESCRIBING_KEYS: [i16; 6] = [3, 15, 16, 32, 35, 75];

pub(super) const PRODUCE_KEY: i16 = 0;
pub(super) const API_VERSIONS_KEY: i16 = 18;
pub(super) const SASL_HANDSHAKE_KEY: i16 = 17;
pub(super) const SASL_AUTHENTICATE_KEY: i16 = 36;

impl Api {
    fn told(&self) -> ApiVersion {
        ApiVersion::default()
            .with_api_key(self.key)
            .with_min_version(self.told_from)
            .with_max_version(self.to)
    }
}
