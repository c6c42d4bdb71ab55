//! The cluster and its brokers.

use axum::response::Response;
use serde::Serialize;

use super::Here;
use super::form::{Object, Place, Related, json, list_at};
use super::refusal::{OrNothing, Refusal};
use crate::answer::Segments;
use axum::http::StatusCode;
use serde::Deserialize;
use streams::BrokerInfo;

/// `GET /v3/clusters`
pub(super) async fn list(here: Here) -> Response {
    let cluster = here.object();
    list_at(here.place.parent_url(), "KafkaCluster", vec![cluster])
}

/// `GET /v3/clusters/{cluster}`
pub(super) async fn one(here: Here) -> Response {
    json(StatusCode::OK, &here.object())
}

/// `GET …/brokers`
pub(super) async fn brokers(here: Here) -> Response {
    let brokers = here.cluster.brokers.iter();
    let brokers = brokers.map(|broker| here.broker(broker)).collect();
    here.place.list("brokers", "KafkaBroker", brokers)
}

/// `GET …/brokers/{broker}`
pub(super) async fn broker(
    here: Here,
    Segments(BrokerPath { broker }): Segments<BrokerPath>,
) -> Result<Response, Refusal> {
    let found = here.broker_named(&broker)?;
    Ok(json(StatusCode::OK, &here.broker(found)))
}

#[derive(Deserialize)]
pub(super) struct BrokerPath {
    pub broker: String,
}

#[derive(Serialize)]
struct Cluster {
    cluster_id: String,
    controller: Option<Related>,
    acls: Related,
    brokers: Related,
    broker_configs: Related,
    consumer_groups: Related,
    topics: Related,
    partition_reassignments: Related,
}

#[derive(Serialize)]
struct Broker {
    cluster_id: String,
    broker_id: i32,
    host: Option<String>,
    port: Option<u16>,
    rack: Option<String>,
    configs: Related,
    partition_replicas: Related,
}

impl Here {
    fn object(&self) -> Object<Cluster> {
        let at = &self.place;
        let controller = self.cluster.controller;
        at.object(
            "KafkaCluster",
            Cluster {
                cluster_id: self.cluster.id.clone(),
                controller: controller.map(|id| broker_place(at, id).related()),
                acls: at.related_under("acls"),
                brokers: at.related_under("brokers"),
                broker_configs: at.related_under("broker-configs"),
                consumer_groups: at.related_under("consumer-groups"),
                topics: at.related_under("topics"),
                partition_reassignments: at.related_under("topics/-/partitions/-/reassignment"),
            },
        )
    }

    /// The broker that a path names.
    pub(super) fn broker_named(&self, name: &str) -> Result<&BrokerInfo, Refusal> {
        let mut brokers = self.cluster.brokers.iter();
        let found = brokers.find(|known| known.id.to_string() == name);
        found.or_nothing("broker", name)
    }

    fn broker(&self, broker: &BrokerInfo) -> Object<Broker> {
        let at = broker_place(&self.place, broker.id);
        let (host, port) = broker.address.clone().unzip();
        let fields = Broker {
            cluster_id: self.cluster.id.clone(),
            broker_id: broker.id,
            host,
            port,
            rack: None,
            configs: at.related_under("configs"),
            partition_replicas: at.related_under("partition-replicas"),
        };
        at.object("KafkaBroker", fields)
    }
}

/// Where a broker's object lies.
pub(super) fn broker_place(cluster: &Place, id: i32) -> Place {
    cluster.under("brokers", "broker", id)
}
