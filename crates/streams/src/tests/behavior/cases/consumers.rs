//! Consumers, alone and in groups, and what people see of groups and do to them.

use streams::GroupOffset;
use streams::groups::GroupError;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_assigned_consumer_reads_everything_within_max_bytes() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    for nth in 0..40 {
        let texts: Vec<String> = (0..3)
            .map(|k| format!("{}-{}", nth * 3 + k, "x".repeat(90)))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        world.produce(&topic, 0, &texts).await;
    }
    let mut consumer = world.assigned(&topic).await;
    let mut read = Vec::new();
    while read.len() < 120 {
        // Less than one record: one at a time all the same; else as many as fit.
        let max_bytes = if read.len() < 10 { 1 } else { 1_000 };
        let records = consumer.poll(PATIENCE, max_bytes).await.unwrap();
        assert!(!records.is_empty());
        assert!(records.len() == 1 || max_bytes == 1_000 && records.len() <= 10);
        read.extend(records);
    }
    let offsets: Vec<i64> = read.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, (0..120).collect::<Vec<_>>());
    assert_eq!(consumer.position(&topic, 0), Some(120));
    let refused = consumer.commit(None).await;
    assert!(
        matches!(refused, Err(StreamsError::IllegalState(_))),
        "without a group: {refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_is_answered_by_a_record_and_else_ends_in_time() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let mut consumer = world.assigned(&topic).await;
    assert!(
        consumer
            .poll(Duration::from_millis(20), 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    let poll = tokio::spawn(async move {
        let records = consumer.poll(PATIENCE, 1_000).await.unwrap();
        texts(&records)
    });
    tokio::task::yield_now().await;
    world.produce(&topic, 0, &["now"]).await;
    assert_eq!(poll.await.unwrap(), ["now"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_is_given_up_loses_nothing() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let texts: Vec<String> = (0..200).map(|nth| nth.to_string()).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    world.produce(&topic, 0, &texts).await;
    let mut consumer = world.assigned(&topic).await;
    // Begun in peace: where to begin is asked for at the first poll.
    let first = consumer.poll(PATIENCE, 1).await.unwrap();
    let mut offsets: Vec<i64> = first.iter().map(|record| record.offset).collect();
    let deadline = Instant::now() + PATIENCE;
    while offsets.len() < 200 {
        assert!(Instant::now() < deadline, "{} of 200 came", offsets.len());
        // Both may be ready at once, or either first.
        tokio::select! {
            () = tokio::task::yield_now() => {}
            polled = consumer.poll(PATIENCE, 100) => {
                offsets.extend(polled.unwrap().iter().map(|record| record.offset));
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(offsets, (0..200).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_can_be_moved() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    world.produce(&topic, 0, &["v0", "v1", "v2"]).await;
    let config = ConsumerConfig {
        auto_offset_reset: OffsetReset::Latest,
        ..ConsumerConfig::alone("c")
    };
    let mut consumer = world.store.consumer(config).await.unwrap();
    consumer.assign(vec![(topic.clone(), 0)]).await.unwrap();
    assert!(
        consumer
            .poll(Duration::ZERO, 1_000)
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(consumer.position(&topic, 0), Some(3));
    for _ in 0..10 {
        for (to, first) in [
            (SeekTo::Beginning, "v0"),
            (SeekTo::Offset(1), "v1"),
            (SeekTo::Offset(2), "v2"),
        ] {
            consumer.seek(&topic, 0, to).await.unwrap();
            let records = consumer.poll(PATIENCE, 1_000).await.unwrap();
            assert_eq!(texts(&records)[0], first);
        }
    }
    // Out of range falls back to the reset, which is the end here.
    for to in [SeekTo::Offset(99), SeekTo::End] {
        consumer.seek(&topic, 0, to).await.unwrap();
        assert!(
            consumer
                .poll(Duration::ZERO, 1_000)
                .await
                .unwrap()
                .is_empty()
        );
        assert_eq!(consumer.position(&topic, 0), Some(3));
    }
    let elsewhere = world.topic("u");
    let refused = consumer.seek(&elsewhere, 0, SeekTo::End).await;
    assert!(
        matches!(refused, Err(StreamsError::NotAssigned { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_records_are_gone_and_the_rest_stays() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    world.produce(&topic, 0, &["v0", "v1", "v2"]).await;
    assert_eq!(
        world
            .store
            .delete_records(&topic, 0, Some(2))
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        world
            .store
            .delete_records(&topic, 0, Some(1))
            .await
            .unwrap(),
        2
    );
    let refused = world.store.delete_records(&topic, 0, Some(9)).await;
    assert!(
        matches!(
            refused,
            Err(StreamsError::OffsetOutOfRange {
                offset: 9,
                end: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    let mut consumer = world.assigned(&topic).await;
    assert_eq!(texts(&poll_many(&mut consumer, 1).await), ["v2"]);
    assert_eq!(
        world.store.delete_records(&topic, 0, None).await.unwrap(),
        3
    );
    let refused = world.store.delete_records(&topic, 7, None).await;
    assert!(
        matches!(refused, Err(StreamsError::UnknownPartition { .. })),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_goes_on_from_what_it_committed() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    world.produce(&topic, 0, &["v0", "v1", "v2", "v3"]).await;
    let mut first = world.member().await;
    first.subscribe(vec![topic.clone()]).await.unwrap();
    assert_eq!(
        texts(&poll_many(&mut first, 4).await),
        ["v0", "v1", "v2", "v3"]
    );
    assert_eq!(first.assignment(), [(topic.clone(), 0)]);
    let offsets = Some(vec![(topic.clone(), 0, 2, "half".to_owned())]);
    assert_eq!(
        first.commit(offsets).await.unwrap(),
        [(topic.clone(), 0, 2)]
    );
    let places = [(topic.clone(), 0), (world.topic("none"), 0)];
    let committed = world
        .store
        .committed(&world.group(), &places)
        .await
        .unwrap();
    let half = committed[0].as_ref().unwrap();
    assert_eq!((half.offset, half.metadata.as_str()), (2, "half"));
    assert_eq!(committed[1], None);
    first.close().await.unwrap();

    let mut second = world.member().await;
    second.subscribe(vec![topic.clone()]).await.unwrap();
    assert_eq!(texts(&poll_many(&mut second, 2).await), ["v2", "v3"]);
    second.seek(&topic, 0, SeekTo::Offset(1)).await.unwrap();
    assert_eq!(texts(&poll_many(&mut second, 3).await), ["v1", "v2", "v3"]);
    assert_eq!(second.commit(None).await.unwrap(), [(topic.clone(), 0, 4)]);
    let groups = world.store.groups().await.unwrap();
    let group = groups
        .iter()
        .find(|group| group.group == world.group())
        .unwrap();
    assert_eq!((group.state.as_str(), group.members.len()), ("Stable", 1));
    assert_eq!(group.members[0].client_id, "test");
    second.close().await.unwrap();

    // Assigned and outside of its members, a consumer of the group goes on there too.
    let mut third = world.member().await;
    third.assign(vec![(topic.clone(), 0)]).await.unwrap();
    world.produce(&topic, 0, &["v4"]).await;
    assert_eq!(texts(&poll_many(&mut third, 1).await), ["v4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_share_the_partitions_and_one_takes_over() {
    let world = world().await;
    let topic = world.created("t", 4).await;
    let mut members = [world.member().await, world.member().await];
    for member in &mut members {
        member.subscribe(vec![topic.clone()]).await.unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while members.iter().any(|member| member.assignment().len() != 2) {
        assert!(Instant::now() < deadline, "the group did not settle");
        for member in &mut members {
            member.poll(Duration::from_millis(20), 1_000).await.unwrap();
        }
    }
    let held: BTreeSet<i32> = members
        .iter()
        .flat_map(|member| member.assignment())
        .map(|(_, index)| index)
        .collect();
    assert_eq!(held, (0..4).collect());
    let [leaver, mut stayer] = members;
    leaver.close().await.unwrap();
    for partition in 0..4 {
        world.produce(&topic, partition, &["v"]).await;
    }
    // The stayer's next heartbeat finds out; what it read before and did not commit may come again.
    let mut read = BTreeSet::new();
    while read.len() < 4 {
        let records = poll_many(&mut stayer, 1).await;
        read.extend(records.iter().map(|record| record.partition));
    }
    assert_eq!(stayer.assignment().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_told_moved_and_forgotten() {
    let world = world().await;
    let (store, group) = (&world.store, world.group());
    let topic = world.created("t", 2).await;
    world.produce(&topic, 0, &["v0", "v1", "v2"]).await;
    assert_eq!(store.group(&group).await.unwrap(), None);
    let mut member = world.member().await;
    member.subscribe(vec![topic.clone()]).await.unwrap();
    poll_many(&mut member, 3).await;
    member.commit(None).await.unwrap();

    let detail = store.group(&group).await.unwrap().unwrap();
    assert_eq!(
        (detail.state.as_str(), detail.members.len()),
        ("Stable", 1),
        "{detail:?}"
    );
    let assigned: BTreeSet<_> = detail.members[0].assigned.iter().cloned().collect();
    assert_eq!(
        assigned,
        [(topic.clone(), 0), (topic.clone(), 1)].into(),
        "{detail:?}"
    );
    let read = |told: &&GroupOffset| told.topic == topic && told.partition == 0;
    let read = detail.committed.iter().find(read).unwrap();
    assert_eq!(read.committed.offset, 3);
    // Whoever is a member would commit over it.
    let moved = || vec![(topic.clone(), 0, 1)];
    for refused in [
        store.set_group_offsets(&group, moved()).await,
        store.delete_group(&group).await,
    ] {
        let reason = GroupError::NotEmpty;
        assert!(
            matches!(&refused, Err(StreamsError::Group { reason: told, .. }) if *told == reason),
            "{refused:?}"
        );
    }
    member.close().await.unwrap();

    store.set_group_offsets(&group, moved()).await.unwrap();
    let detail = store.group(&group).await.unwrap().unwrap();
    assert_eq!((detail.state.as_str(), detail.members.len()), ("Empty", 0));
    let mut next = world.member().await;
    next.subscribe(vec![topic.clone()]).await.unwrap();
    assert_eq!(texts(&poll_many(&mut next, 2).await), ["v1", "v2"]);
    next.close().await.unwrap();
    store.delete_group(&group).await.unwrap();
    assert_eq!(store.group(&group).await.unwrap(), None);
    let again = store.delete_group(&group).await;
    assert!(
        matches!(
            &again,
            Err(StreamsError::Group {
                reason: GroupError::NotFound,
                ..
            })
        ),
        "{again:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_are_found_by_time() {
    let world = world().await;
    let topic = world.created("t", 1).await;
    let now = SystemClock.now();
    let at = |ms: i64| UnixMillis(now.0 + ms);
    for ms in [-3_000, -2_000, -1_000] {
        let record = Record {
            timestamp: Some(at(ms)),
            ..Record::of_value("v")
        };
        let batch = ProduceBatch {
            topic: topic.clone(),
            partition: 0,
            records: vec![record],
            sequence: None,
        };
        world.store.produce(batch).await.unwrap();
    }
    for (ms, found) in [
        (-9_000, Some(0)),
        (-3_000, Some(0)),
        (-2_999, Some(1)),
        (-1_000, Some(2)),
        (-999, None),
    ] {
        let offset = world.store.offset_for_time(&topic, 0, at(ms)).await;
        assert_eq!(offset.unwrap(), found, "at {ms} ms");
    }
    let nowhere = world.store.offset_for_time(&topic, 1, now).await;
    assert!(
        matches!(nowhere, Err(StreamsError::UnknownPartition { .. })),
        "{nowhere:?}"
    );
}
