//! Version 3: resources under `/v3/clusters/{cluster_id}`, in plain JSON.
//!
//! Every object says its `kind`, its own URL and its name as a resource, and points to what belongs
//! to it; a list is an object too. There is exactly one cluster, the store. What needs more servers
//! than one (replicas, reassignments) is told as a cluster of one tells it.

mod clusters;
mod form;
mod groups;
mod reading;
mod records;
mod refusal;
mod splitter;
mod topics;

use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header;
use axum::http::request::Parts;
use axum::routing::{get, post};
use streams::ClusterInfo;

use self::form::Place;
use self::refusal::Refusal;
use crate::answer;
use crate::error::RestError;
use crate::login::Asked;
use crate::routes::Shared;

/// The paths of version 3.
pub(crate) fn routes() -> Router<Arc<Shared>> {
    let cluster = "/v3/clusters/{cluster}";
    let under = |path: &str| format!("{cluster}/{path}");
    Router::new()
        .route("/v3/clusters", get(clusters::list))
        .route(cluster, get(clusters::one))
        .route(&under("brokers"), get(clusters::brokers))
        .route(&under("brokers/{broker}"), get(clusters::broker))
        .route(&under("topics"), get(topics::list).post(topics::create))
        .route(
            &under("topics/{topic}"),
            get(topics::one).patch(topics::grow).delete(topics::delete),
        )
        .route(&under("topics/-/configs"), get(topics::all_configs))
        .route(&under("topics/{topic}/configs"), get(topics::configs))
        .route(
            &under("topics/{topic}/configs:alter"),
            post(topics::alter_configs),
        )
        .route(
            &under("topics/{topic}/configs/{name}"),
            get(topics::config)
                .put(topics::set_config)
                .delete(topics::unset_config),
        )
        .route(&under("topics/{topic}/partitions"), get(topics::partitions))
        .route(
            &under("topics/{topic}/partitions/{partition}"),
            get(topics::partition),
        )
        .route(
            &under("topics/{topic}/partitions/{partition}/offset"),
            get(topics::offset),
        )
        .route(
            &under("topics/{topic}/partitions/{partition}/replicas"),
            get(topics::replicas),
        )
        .route(
            &under("topics/{topic}/partitions/{partition}/replicas/{broker}"),
            get(topics::replica),
        )
        .route(
            &under("topics/{topic}/records"),
            get(reading::of_topic).post(records::stream),
        )
        .route(
            &under("topics/{topic}/partitions/{partition}/records"),
            get(reading::of_partition),
        )
        .route(&under("topics/{topic}/records:batch"), post(records::batch))
        .merge(group_routes(&under("consumer-groups")))
}

fn group_routes(groups: &str) -> Router<Arc<Shared>> {
    let group = format!("{groups}/{{group}}");
    let under = |path: &str| format!("{group}/{path}");
    Router::new()
        .route(groups, get(groups::list))
        .route(&group, get(groups::one))
        .route(&under("consumers"), get(groups::consumers))
        .route(&under("consumers/{consumer}"), get(groups::consumer))
        .route(
            &under("consumers/{consumer}/assignments"),
            get(groups::assignments),
        )
        .route(
            &under("consumers/{consumer}/assignments/{topic}/partitions/{partition}"),
            get(groups::assignment),
        )
        .route(&under("lag-summary"), get(groups::lag_summary))
        .route(&under("lags"), get(groups::lags))
        .route(
            &under("lags/{topic}/partitions/{partition}"),
            get(groups::lag),
        )
}

/// The cluster that a path names, as the request's caller may use it.
pub(crate) struct Here {
    shared: Arc<Shared>,
    cluster: ClusterInfo,
    /// Where its object lies.
    place: Place,
}

impl FromRequestParts<Arc<Shared>> for Here {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Refusal> {
        let Asked(shared) = Asked::from_request_parts(parts, shared).await?;
        let accept = answer::joined(&parts.headers, header::ACCEPT);
        refusal::check_accept(accept.as_deref())?;
        let cluster = shared.store.cluster().await?;
        let params = RawPathParams::from_request_parts(parts, &shared).await;
        let params = params.map_err(|_| answer::not_utf8())?;
        let named = params.iter().find(|(name, _)| *name == "cluster");
        if let Some((_, id)) = named
            && id != cluster.id
        {
            return Err(Refusal::nothing("cluster", id));
        }
        let root = answer::authority(&shared.config, &parts.headers);
        Ok(Here {
            place: Place::of_cluster(&root, &cluster.id),
            shared,
            cluster,
        })
    }
}

impl Here {
    /// The broker that leads everything there is to lead.
    fn leader(&self) -> Result<i32, RestError> {
        let first = || self.cluster.brokers.first().map(|broker| broker.id);
        self.cluster.controller.or_else(first).ok_or_else(|| {
            streams::StreamsError::Unavailable("the cluster has no brokers".to_owned()).into()
        })
    }
}
