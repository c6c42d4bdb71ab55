//! Records under keys: stored once whatever is sent again.

use streams::transactions::TransactionError;
use streams::{FencedWriter, ProduceOnce, Run, StoredOnce};

use super::*;

/// A request of two values for each of these partitions.
fn asked(world: &World, topic: &TopicName, key: u8, partitions: &[i32]) -> ProduceOnce {
    let mut hash = [key; 32];
    // Keys are one space for all of a store's tests.
    for (at, byte) in world.run.bytes().enumerate() {
        hash[8 + at % 24] ^= byte.rotate_left(u32::from(at >= 24));
    }
    let batch = |partition: &i32| ProduceBatch {
        topic: topic.clone(),
        partition: *partition,
        records: vec![
            Record::of_value(format!("{key}.{partition}.a")),
            Record::of_value(format!("{key}.{partition}.b")),
        ],
        sequence: None,
    };
    ProduceOnce {
        key: hash,
        fingerprint: [key; 32],
        partitions: 3,
        at: SystemClock.now(),
        batches: partitions.iter().map(batch).collect(),
    }
}

impl World {
    /// Stores, and again as long as the store is not there: a young cluster may not know yet who
    /// coordinates.
    async fn once(&self, asked: &ProduceOnce) -> StoredOnce {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.store.produce_once(asked.clone()).await {
                Err(StreamsError::Unavailable(reason)) => {
                    assert!(Instant::now() < deadline, "still unavailable: {reason}");
                }
                outcome => return outcome.unwrap(),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_again_under_its_key_is_stored_once_and_told_the_same() {
    let world = world().await;
    let topic = world.created("once", 3).await;
    world.produce(&topic, 0, &["before"]).await;
    let request = asked(&world, &topic, 1, &[0, 2, 0]);
    let first = world.once(&request).await;
    assert!(!first.is_recalled);
    // Tries that were taken back may have taken offsets too.
    let told: Vec<(i32, u32)> = first
        .runs
        .iter()
        .map(|it| (it.partition, it.count))
        .collect();
    assert_eq!(told, [(0, 2), (2, 2), (0, 2)]);
    let offsets: Vec<i64> = first.runs.iter().map(|it| it.base_offset).collect();
    assert!(
        offsets[0] > 0 && offsets[2] == offsets[0] + 2,
        "{offsets:?}"
    );
    for _ in 0..2 {
        let mut late = request.clone();
        late.at = SystemClock.now() + Duration::from_secs(60);
        late.partitions = 9;
        let again = world.once(&late).await;
        assert!(again.is_recalled);
        assert_eq!((again.at, again.partitions), (request.at, 3));
        assert_eq!(again.runs, first.runs);
    }
    let mut other = request.clone();
    other.fingerprint = [9; 32];
    let refused = world.store.produce_once(other).await;
    assert!(
        matches!(refused, Err(StreamsError::KeyReused)),
        "{refused:?}"
    );
    // Sent by many at once it is stored once, beside others.
    let mut under_way = tokio::task::JoinSet::new();
    for n in 0..24_u8 {
        let (store, request) = (
            Arc::clone(&world.store),
            asked(&world, &topic, 2 + n % 3, &[1]),
        );
        under_way.spawn(async move { (n % 3, store.produce_once(request).await.unwrap()) });
    }
    let mut told: Vec<(u8, Vec<Run>)> = Vec::new();
    let mut fresh = 0;
    for (key, stored) in under_way.join_all().await {
        fresh += usize::from(!stored.is_recalled);
        told.push((key, stored.runs));
    }
    told.sort_by_key(|(key, runs)| (*key, runs[0].base_offset));
    told.dedup();
    assert_eq!((fresh, told.len()), (3, 3), "{told:?}");
    let config = ConsumerConfig {
        isolation: Isolation::Committed,
        ..ConsumerConfig::alone("test")
    };
    let mut consumer = world.store.consumer(config).await.unwrap();
    let all = (0..3).map(|partition| (topic.clone(), partition));
    consumer.assign(all.collect()).await.unwrap();
    let mut found = texts(&poll_many(&mut consumer, 13).await);
    found.sort();
    let mut expected = vec!["before".to_owned()];
    expected.extend(["1.0.a", "1.0.a", "1.0.b", "1.0.b", "1.2.a", "1.2.b"].map(str::to_owned));
    for key in 2..5 {
        expected.extend([format!("{key}.1.a"), format!("{key}.1.b")]);
    }
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_fails_leaves_its_key_free() {
    let world = world().await;
    let topic = world.created("once-free", 3).await;
    let refused = world
        .store
        .produce_once(asked(&world, &topic, 1, &[7]))
        .await;
    assert!(
        matches!(refused, Err(StreamsError::UnknownPartition { .. })),
        "{refused:?}"
    );
    let mut large = asked(&world, &topic, 2, &[0]);
    large.batches[0].records[0] = Record::of_value(vec![b'x'; 2 << 20]);
    let refused = world.store.produce_once(large).await;
    assert!(
        matches!(refused, Err(StreamsError::MessageTooLarge { .. })),
        "{refused:?}"
    );
    for key in [1, 2] {
        let mut request = asked(&world, &topic, key, &[0]);
        request.fingerprint = [77; 32];
        assert!(!world.once(&request).await.is_recalled);
    }
}

impl World {
    /// Takes a name; a young cluster may not know yet who coordinates.
    async fn taken(&self, name: &str) -> Box<dyn FencedWriter> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.store.fenced_writer(name).await {
                Err(StreamsError::Unavailable(reason)) => {
                    assert!(Instant::now() < deadline, "still unavailable: {reason}");
                }
                taken => return taken.unwrap(),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_to_take_a_name_writes_under_it_alone_and_all_or_nothing() {
    let world = world().await;
    let (topic, other) = (
        world.created("fenced", 2).await,
        world.created("fenced-too", 1).await,
    );
    let batch = |topic: &TopicName, partition, values: &[&str]| ProduceBatch {
        topic: topic.clone(),
        partition,
        records: values
            .iter()
            .map(|v| Record::of_value(v.to_string()))
            .collect(),
        sequence: None,
    };
    let name = format!("fenced-{}", world.run);
    let mut first = world.taken(&name).await;
    for n in 0..3 {
        let value = n.to_string();
        let batches = vec![
            batch(&topic, 0, &[&value, "x"]),
            batch(&other, 0, &[&value]),
            batch(&topic, 0, &["y"]),
        ];
        let placed = first.store(batches).await.unwrap();
        assert_eq!(placed.len(), 3);
        assert_eq!(placed[2].base_offset, placed[0].base_offset + 2);
    }
    let mut second = world.taken(&name).await;
    let refused = first.store(vec![batch(&other, 0, &["late"])]).await;
    let is_fenced = |error: &StreamsError| {
        let reason = &TransactionError::Fenced;
        matches!(error, StreamsError::Transaction { reason: is, .. } if is == reason)
    };
    assert!(refused.as_ref().is_err_and(is_fenced), "{refused:?}");
    let over = first.store(vec![batch(&other, 0, &["later"])]).await;
    assert!(
        matches!(over, Err(StreamsError::IllegalState(_))),
        "{over:?}"
    );
    second
        .store(vec![batch(&other, 0, &["second"])])
        .await
        .unwrap();
    // What cannot be stored whole is not stored at all.
    let large = vec![b'x'; 2 << 20];
    let mut half = vec![batch(&other, 0, &["half"]), batch(&topic, 1, &[""])];
    half[1].records[0] = Record::of_value(large);
    let refused = second.store(half).await;
    assert!(
        matches!(refused, Err(StreamsError::MessageTooLarge { .. })),
        "{refused:?}"
    );
    let mut third = world.taken(&name).await;
    third
        .store(vec![batch(&other, 0, &["third"])])
        .await
        .unwrap();
    let mut consumer = world.assigned(&other).await;
    let found = texts(&poll_many(&mut consumer, 5).await);
    assert_eq!(found, ["0", "1", "2", "second", "third"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_does_not_read_holds_partitions_and_commits() {
    let world = world().await;
    let topic = world.created("held", 2).await;
    world.produce(&topic, 0, &["v0", "v1"]).await;
    let config = ConsumerConfig {
        reads: false,
        ..ConsumerConfig::in_group(world.group(), "test")
    };
    let mut member = world.store.consumer(config).await.unwrap();
    member.subscribe(vec![topic.clone()]).await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while member.assignment().len() < 2 {
        let polled = member.poll(Duration::from_millis(200), 1_000).await;
        assert!(polled.unwrap().is_empty());
        assert!(Instant::now() < deadline, "it got no partitions");
    }
    let polled = member.poll(Duration::from_secs(1), 1_000).await.unwrap();
    assert!(polled.is_empty());
    let offsets = vec![(topic.clone(), 0, 1, String::new())];
    member.commit(Some(offsets)).await.unwrap();
    let committed = world.store.committed(&world.group(), &[(topic, 0)]).await;
    let committed = committed.unwrap().remove(0).unwrap();
    assert_eq!(committed.offset, 1);
    member.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_ends_in_marks_of_transactions_is_seen_to_end() {
    let world = world().await;
    let topic = world.created("marked", 1).await;
    let mut writer = world.taken(&format!("marked-{}", world.run)).await;
    let mut consumer = world.assigned(&topic).await;
    assert!(!consumer.is_at_end(&topic, 0), "nobody has looked");
    for value in ["a", "b"] {
        let batch = ProduceBatch {
            topic: topic.clone(),
            partition: 0,
            records: vec![Record::of_value(value)],
            sequence: None,
        };
        writer.store(vec![batch]).await.unwrap();
        let records = consumer.poll(PATIENCE, 1_000).await.unwrap();
        assert_eq!(texts(&records), [value]);
        let deadline = Instant::now() + PATIENCE;
        while !consumer.is_at_end(&topic, 0) {
            assert!(Instant::now() < deadline, "behind {value}");
            let records = consumer.poll(Duration::from_millis(20), 1_000).await;
            assert!(records.unwrap().is_empty());
        }
    }
    let from = SeekTo::Beginning;
    consumer.seek(&topic, 0, from).await.unwrap();
    assert!(!consumer.is_at_end(&topic, 0), "it was moved");
}
