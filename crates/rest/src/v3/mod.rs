//! Version 3: resources under `/v3/clusters/{cluster_id}`, in plain JSON.
//!
//! Every object says its `kind`, its own URL and its name as a resource, and points to what belongs
//! to it; a list is an object too. There is exactly one cluster, the store. What needs more servers
//! than one (replicas, reassignments) is told as a cluster of one tells it.

mod acls;
mod bounds;
mod broker_configs;
mod clusters;
mod configs;
mod datum;
mod form;
mod groups;
mod partitions;
mod reading;
mod receipts;
mod record_object;
mod records;
#[cfg(test)]
mod records_tests;
mod refusal;
mod schemas;
mod splitter;
mod streaming;
mod topic_configs;
mod topics;

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header;
use axum::http::request::Parts;
use axum::routing::{get, post};
use streams::ClusterInfo;

pub(crate) use self::datum::Form;
use self::form::Place;
pub(crate) use self::record_object::{DatumObject, Format};
use self::refusal::Refusal;
use crate::answer;
use crate::error::RestError;
use crate::login::Asked;
use crate::routes::{Paths, Shared};

/// The paths of version 3.
pub(crate) fn routes(paths: Paths) -> Paths {
    let paths = paths
        .route("/v3/clusters", get(clusters::list))
        .route(CLUSTER, get(clusters::one));
    let paths = topic_routes(paths);
    let paths = partition_routes(paths);
    let paths = broker_routes(paths);
    let paths = group_routes(paths);
    let acls = get(acls::list).post(acls::create).delete(acls::delete);
    paths
        .route(&under("acls"), acls)
        .route(&under("acls:batch"), post(acls::create_all))
}

fn under(path: &str) -> String {
    format!("{CLUSTER}/{path}")
}

fn topic_routes(paths: Paths) -> Paths {
    let topics = get(topics::list).post(topics::create);
    let topic = get(topics::one).patch(topics::grow).delete(topics::delete);
    let config = get(topic_configs::one)
        .put(topic_configs::set)
        .delete(topic_configs::unset);
    let records = get(reading::of_topic).post(streaming::stream);
    paths
        .route(&under("topics"), topics)
        .route(&under("topics/{topic}"), topic)
        .route(&under("topics/-/configs"), get(topic_configs::all))
        .route(
            &under("topics/-/configs:alter"),
            post(topic_configs::alter_all),
        )
        .route(
            &under("topics/{topic}/default-configs"),
            get(topic_configs::defaults),
        )
        .route(&under("topics/{topic}/configs"), get(topic_configs::list))
        .route(
            &under("topics/{topic}/configs:alter"),
            post(topic_configs::alter),
        )
        .route(&under("topics/{topic}/configs/{name}"), config)
        .route(&under("topics/{topic}/records"), records)
        .route(&under("topics/{topic}/records:batch"), post(records::batch))
}

fn partition_routes(paths: Paths) -> Paths {
    let all = under("topics/{topic}/partitions");
    let at = |path: &str| format!("{all}/{{partition}}/{path}");
    paths
        .route(&all, get(partitions::list))
        .route(&format!("{all}/{{partition}}"), get(partitions::one))
        .route(&at("offset"), get(partitions::offset))
        .route(&at("replicas"), get(partitions::replicas))
        .route(&at("replicas/{broker}"), get(partitions::replica))
        .route(&at("reassignment"), get(partitions::reassignment))
        .route(&at("records"), get(reading::of_partition))
        .route(
            &format!("{all}/-/reassignment"),
            get(partitions::reassignments_of_topic),
        )
        .route(
            &under("topics/-/partitions/-/reassignment"),
            get(partitions::reassignments),
        )
}

fn broker_routes(paths: Paths) -> Paths {
    let of_all = get(broker_configs::one_of_all)
        .put(broker_configs::set_of_all)
        .delete(broker_configs::unset_of_all);
    let of_one = get(broker_configs::one)
        .put(broker_configs::set)
        .delete(broker_configs::unset);
    paths
        .route(&under("broker-configs"), get(broker_configs::list_of_all))
        .route(
            &under("broker-configs:alter"),
            post(broker_configs::alter_of_all),
        )
        .route(&under("broker-configs/{name}"), of_all)
        .route(&under("brokers"), get(clusters::brokers))
        .route(&under("brokers/{broker}"), get(clusters::broker))
        .route(
            &under("brokers/-/configs"),
            get(broker_configs::list_of_each),
        )
        .route(
            &under("brokers/{broker}/configs"),
            get(broker_configs::list),
        )
        .route(
            &under("brokers/{broker}/configs:alter"),
            post(broker_configs::alter),
        )
        .route(&under("brokers/{broker}/configs/{name}"), of_one)
        .route(
            &under("brokers/{broker}/partition-replicas"),
            get(partitions::replicas_of_broker),
        )
}

fn group_routes(paths: Paths) -> Paths {
    let group = under("consumer-groups/{group}");
    let under_group = |path: &str| format!("{group}/{path}");
    paths
        .route(&under("consumer-groups"), get(groups::list))
        .route(&group, get(groups::one))
        .route(&under_group("consumers"), get(groups::consumers))
        .route(&under_group("consumers/{consumer}"), get(groups::consumer))
        .route(
            &under_group("consumers/{consumer}/assignments"),
            get(groups::assignments),
        )
        .route(
            &under_group("consumers/{consumer}/assignments/{topic}/partitions/{partition}"),
            get(groups::assignment),
        )
        .route(&under_group("lag-summary"), get(groups::lag_summary))
        .route(&under_group("lags"), get(groups::lags))
        .route(
            &under_group("lags/{topic}/partitions/{partition}"),
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

/// The path of the only cluster.
const CLUSTER: &str = "/v3/clusters/{cluster}";
