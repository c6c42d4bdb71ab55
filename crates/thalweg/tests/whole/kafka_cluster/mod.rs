//! The event store in a real Kafka cluster: the behaviour that every store has, case by case, and
//! the whole system on it.

// The same cases as in `streams`, which runs them on the store in the process.
#[path = "../../../../streams/src/tests/behavior/cases.rs"]
mod cases;
mod retention;
mod system;

use streams::{Cluster, ClusterConfig, StreamsConfig};

use self::cases::World;
use crate::kafka_broker::kafka;

async fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let kafka = ClusterConfig {
        bootstrap_servers: Some(tokio::task::spawn_blocking(kafka).await.unwrap().to_owned()),
        ..ClusterConfig::default()
    };
    let config = StreamsConfig {
        kafka,
        ..StreamsConfig::default()
    };
    let cluster = Cluster::open(folder.path(), config).unwrap();
    World::new(cluster.store(), Box::new((cluster, folder)))
}
