//! A partition that cannot be read, beside others that can.

use std::time::Duration;

use journal::SimDisk;

use super::*;
use crate::topic_config::ConfigChange;

#[tokio::test]
async fn what_is_old_goes_although_an_earlier_topic_cannot_be_read() {
    let disk = SimDisk::new(21);
    let streams = open(&disk);
    let broken = create(&streams, "a", 1).await;
    let whole = create(&streams, "b", 1).await;
    let hour_ago = SystemClock.now() - Duration::from_secs(3_600);
    for topic in [&broken, &whole] {
        for _ in 0..600 {
            let batch = batch::build(&[Record::of_value("v")], hour_ago, None).unwrap();
            let appended = loop {
                match topic.partitions()[0].append(batch.clone(), Ack::All) {
                    Err(StreamsError::Busy) => streams.room(1_000).await,
                    appended => break appended.unwrap(),
                }
            };
            appended.ack.await.unwrap();
        }
    }
    streams.snapshot(64).unwrap();
    let [broken, whole] = [&broken.partitions()[0], &whole.partitions()[0]];
    damage(&disk, &streams, broken.chunk_away(0).unwrap().position);
    for topic in ["a", "b"] {
        let change = ConfigChange::Set("retention.ms".to_owned(), "1000".to_owned());
        streams.alter_topic(&name(topic), &[change]).await.unwrap();
    }
    // The broken one is told of, and the other had its turn.
    assert!(streams.expire().is_err());
    assert_eq!(whole.log_start_offset(), 600);
    assert_eq!(broken.log_start_offset(), 0);
    streams.close().await;
}
