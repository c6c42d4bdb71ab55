//! The paths of the proxy, and what surrounds every call: metrics and the form of errors.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use base::Clock;
use metrics::Counter;
use streams::{Caller, EventStore};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::answer;
use crate::body::Gate;
use crate::config::RestConfig;
use crate::consumers::{self, Consumers, Peers, Roll};
use crate::embedded::Embedding;
use crate::error::RestError;
use crate::login::{self, Logins};
use crate::media::ApiVersion;
use crate::partitioner::KeylessTurns;
use crate::rate::{RateLimit, rate_limited};
use crate::schemas::SchemaRegistry;
use crate::straight::Straight;
use crate::wall::walled;
use crate::{bridge, limits, on_behalf, openapi, partition_reads, produce, topics, v3};

/// What the handlers of one proxy share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub store: Arc<dyn EventStore>,
    pub config: Arc<RestConfig>,
    pub clock: Arc<dyn Clock>,
    pub gate: Gate,
    pub consumers: Arc<Consumers>,
    /// For calls on consumer instances of other proxies.
    pub peers: Arc<Peers>,
    /// Schemas of keys and values.
    pub embedding: Arc<Embedding>,
    /// Who calls, where callers are asked.
    pub caller: Option<Caller>,
    /// For the partition of records without a key.
    pub turns: Arc<KeylessTurns>,
    /// Places for reads of partitions without an instance.
    pub partition_reads: Arc<Semaphore>,
    /// Places for streams of events.
    pub event_streams: Arc<Semaphore>,
    /// Places for streams of records.
    pub record_streams: Arc<Semaphore>,
    /// Ends streams of events and of records, and reads that wait.
    pub closing: CancellationToken,
    /// Records stored, and their bytes.
    pub records_in: Counter,
    pub bytes_in: Counter,
}

/// Holds what a proxy keeps between requests: its consumer instances, and streams of events.
#[derive(Clone)]
pub struct RestHandle {
    consumers: Arc<Consumers>,
    #[cfg(test)]
    pub(crate) shared: Arc<Shared>,
    closing: CancellationToken,
    straight: Option<Straight>,
}

/// The proxy's routes over `store`, to be served on a port of their own, and the handle that
/// closes its consumer instances. With `logins` every request acts as the user that it names; with
/// `rates` each caller is held to them. Formats with schemas need a `registry`.
pub fn routes(
    store: Arc<dyn EventStore>,
    config: RestConfig,
    clock: Arc<dyn Clock>,
    logins: Option<Arc<Logins>>,
    registry: Option<Arc<SchemaRegistry>>,
    rates: Option<Arc<RateLimit>>,
) -> (Router, RestHandle) {
    let roll = store.is_shared().then(|| {
        let address = config.peer_address.as_deref().unwrap_or(&config.listen);
        let address = match address.contains("://") {
            true => address.to_owned(),
            false if config.is_tls => format!("https://{address}"),
            false => format!("http://{address}"),
        };
        let idle_max = config.consumer_instance_timeout.0;
        Roll::new(store.clone(), clock.clone(), address, idle_max)
    });
    let consumers = Arc::new(Consumers::new(&config, clock.clone(), roll.clone()));
    if let Some(roll) = roll {
        let consumers = Arc::downgrade(&consumers);
        tokio::spawn(async move { roll.begin_if_there(&consumers).await });
    }
    let closing = CancellationToken::new();
    let partition_reads = Arc::new(Semaphore::new(limits::PARTITION_READS_MAX));
    let gate = Gate::new(config.body_bytes_max.0);
    let (peers, proxies) = (Peers::new(&config), config.peers());
    let shared = Shared {
        store,
        config: Arc::new(config),
        clock,
        gate,
        consumers,
        peers: Arc::new(peers),
        embedding: Arc::new(Embedding::new(registry)),
        caller: None,
        turns: Arc::default(),
        partition_reads,
        event_streams: Arc::new(Semaphore::new(limits::EVENT_STREAMS_MAX)),
        record_streams: Arc::new(Semaphore::new(limits::RECORD_STREAMS_MAX)),
        closing: closing.clone(),
        records_in: metrics::counter!("thalweg_rest_records_in_total"),
        bytes_in: metrics::counter!("thalweg_rest_bytes_in_total"),
    };
    let shared = Arc::new(shared);
    let is_open = logins.is_none() && rates.is_none();
    let handle = RestHandle {
        consumers: Arc::clone(&shared.consumers),
        #[cfg(test)]
        shared: Arc::clone(&shared),
        closing,
        straight: is_open.then(|| Straight::new(Arc::clone(&shared))),
    };
    let router = paths()
        .router
        .fallback(async || RestError::NotFound)
        .method_not_allowed_fallback(async || RestError::MethodNotAllowed)
        .with_state(Arc::clone(&shared));
    // Only a store that other proxies work on has instances elsewhere.
    let router = match shared.consumers.roll() {
        None => router,
        Some(_) => router.layer(middleware::from_fn_with_state(shared, consumers::located)),
    };
    // Within the logins, as they ask who calls.
    let router = match &logins {
        Some(_) => walled(router),
        None => router,
    };
    let router = match rates {
        Some(rates) => rate_limited(router, rates),
        None => router,
    };
    let router = match logins {
        Some(logins) => on_behalf::believed(login::identified(router, logins), proxies),
        None => router,
    };
    // Around the logins, so that refusals are counted and written like all errors.
    let router = router.layer(middleware::from_fn(observe));
    (router, handle)
}

impl RestHandle {
    /// The short way for records, to be asked before the routes; none where callers are asked who
    /// they are, or held to rates.
    pub fn straight(&self) -> Option<Straight> {
        self.straight.clone()
    }

    /// Ends streams of events and of records, which would not end by themselves: each is told so.
    pub fn end_streams(&self) {
        self.closing.cancel();
    }

    /// Ends streams of events and closes all consumer instances: they leave their groups at once, reads that wait end with
    /// 40403, and what auto-committing instances have answered is committed.
    pub async fn close(&self) {
        self.closing.cancel();
        self.consumers.close().await;
    }

    /// Closes the instances that are past their idle time now; the proxy does so by itself.
    pub async fn expire(&self, now: base::UnixMillis) -> usize {
        self.consumers.expire(now).await
    }

    /// How many consumer instances there are.
    pub fn consumer_instances(&self) -> usize {
        self.consumers.count()
    }
}

/// Paths with their handlers; tests compare what is documented with them.
#[derive(Default)]
pub(crate) struct Paths {
    router: Router<Arc<Shared>>,
    #[cfg(test)]
    pub(crate) all: Vec<String>,
}

impl Paths {
    /// The same with one more, which may be called with a slash behind it too, as published
    /// examples do.
    pub(crate) fn route(mut self, path: &str, methods: MethodRouter<Arc<Shared>>) -> Self {
        #[cfg(test)]
        self.all.push(path.to_owned());
        if !path.ends_with('/') {
            let slashed = format!("{path}/");
            self.router = self.router.route(&slashed, methods.clone());
        }
        self.router = self.router.route(path, methods);
        self
    }
}

/// Every path of the proxy.
pub(crate) fn paths() -> Paths {
    let paths = Paths::default()
        .route("/", get(topics::root).post(topics::root))
        .route("/brokers", get(topics::brokers))
        .route("/openapi.json", get(openapi::document))
        .route("/openapi", get(openapi::document))
        .route("/openapi/v3", get(openapi::document))
        .route("/healthy", get(bridge::healthy))
        .route("/ready", get(bridge::ready))
        .route("/admin/topics", post(bridge::create_topic));
    v3::routes(consumer_routes(topic_routes(paths)))
}

fn topic_routes(paths: Paths) -> Paths {
    let topic = get(topics::topic).post(produce::to_topic);
    let partition = get(topics::partition).post(produce::to_partition);
    let at = "/topics/{topic}/partitions/{partition}";
    paths
        .route("/topics", get(topics::list))
        .route("/topics/{topic}", topic)
        .route("/topics/{topic}/partitions", get(topics::partitions))
        .route(at, partition)
        .route(&format!("{at}/offsets"), get(topics::offsets))
        .route(&format!("{at}/messages"), get(partition_reads::messages))
}

fn consumer_routes(paths: Paths) -> Paths {
    let instance = "/consumers/{group}/instances/{instance}";
    let under = |path: &str| format!("{instance}/{path}");
    let subscription = get(consumers::subscription)
        .post(consumers::subscribe)
        .delete(consumers::unsubscribe);
    let assignments = get(consumers::assignments).post(consumers::assign);
    let to_beginning = post(consumers::seek_to_beginning);
    let offsets = get(consumers::committed).post(consumers::commit);
    paths
        .route("/consumers/{group}", post(consumers::create))
        .route(instance, delete(consumers::delete))
        .route(&under("subscription"), subscription)
        .route(&under("assignments"), assignments)
        .route(&under("positions"), post(consumers::seek))
        .route(&under("positions/beginning"), to_beginning)
        .route(&under("positions/end"), post(consumers::seek_to_end))
        .route(&under("records"), get(consumers::records))
        .route(&under("topics/{topic}"), get(consumers::read_v1))
        .route(&under("offsets"), offsets)
}

/// Counts and times a call, and gives an error the media type that its caller speaks.
async fn observe(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let operation = operation(&request);
    let spoken = answer::named(request.headers());
    let is_plain = request.uri().path().starts_with("/v3/");
    let mut response = next.run(request).await;
    if !is_plain {
        response = in_form(response, || spoken);
    }
    let status = response.status();
    let labels = [("operation", operation), ("outcome", outcome_of(status))];
    metrics::counter!("thalweg_rest_requests_total", &labels).increment(1);
    metrics::histogram!("thalweg_rest_request_seconds", "operation" => operation)
        .record(started.elapsed().as_secs_f64());
    response
}

/// Gives an error the media type that its caller speaks, in the versions that have their own.
pub(crate) fn in_form(
    mut response: Response,
    spoken: impl FnOnce() -> Option<ApiVersion>,
) -> Response {
    let status = response.status();
    let is_of_transport = [
        StatusCode::NOT_ACCEPTABLE,
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
    ]
    .contains(&status);
    let is_error = status.is_client_error() || status.is_server_error();
    let plain = HeaderValue::from_static("application/json");
    if is_error && !is_of_transport && response.headers().get(header::CONTENT_TYPE) == Some(&plain)
    {
        let media = ApiVersion::answer_type(spoken().unwrap_or(ApiVersion::V2));
        let media = HeaderValue::from_static(media);
        response.headers_mut().insert(header::CONTENT_TYPE, media);
    }
    response
}

/// What became of a call, in metrics.
pub(crate) fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..400 => "ok",
        400..500 => "refused",
        _ => "failed",
    }
}

/// The call's name in metrics, from a closed set.
fn operation(request: &Request) -> &'static str {
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str);
    let path = path.trim_end_matches('/');
    let produces = request.method() == axum::http::Method::POST;
    match path {
        "/topics/{topic}" | "/topics/{topic}/partitions/{partition}" if produces => "produce",
        path if path.starts_with("/v3/") && path.contains("/records") && produces => "produce",
        path if path.ends_with("/records") => "read",
        path if path.starts_with("/consumers") => "consumer",
        "" if request.uri().path() != "/" => "unknown",
        _ => "metadata",
    }
}
