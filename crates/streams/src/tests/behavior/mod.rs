//! The behaviour of every event store, on the one in this process.
//!
//! The whole-system tests run the same cases on a Kafka cluster.

mod cases;

use base::ByteSize;
use journal::SimDisk;

use self::cases::World;
use crate::config::StreamsConfig;

async fn world() -> World {
    let config = StreamsConfig {
        segment_bytes: ByteSize::mib(8),
        ..StreamsConfig::default()
    };
    let (streams, _) = super::try_open(&SimDisk::new(1), config).unwrap();
    World::new(streams.store(), Box::new(streams))
}
