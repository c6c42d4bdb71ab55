//! Consumer instances whose groups, topics and clients change under them.

use super::*;

/// Makes an instance of group `g` and answers its path.
async fn made(proxy: &Proxy, name: &str, settings: &str) -> String {
    let body = format!("{{\"name\":\"{name}\",\"format\":\"json\"{settings}}}");
    let (status, body) = proxy.post("/consumers/g", body).await;
    assert_eq!(status, 200, "{body}");
    format!("/consumers/g/instances/{name}")
}

async fn subscribed(proxy: &Proxy, at: &str, to: &str) -> u16 {
    proxy
        .post(&format!("{at}/subscription"), to.to_owned())
        .await
        .0
}

/// The values of a read.
async fn read(proxy: &Proxy, at: &str, timeout: u64) -> Vec<String> {
    let (status, body) = proxy.get(&format!("{at}/records?timeout={timeout}")).await;
    assert_eq!(status, 200, "{body}");
    let records: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
    let values = records.iter().map(|record| record["value"].to_string());
    values.collect()
}

async fn delete(proxy: &Proxy, at: &str) {
    let request = Request::delete(at).body(Body::empty()).unwrap();
    assert_eq!(proxy.send(request).await.0, 204);
}

/// Waits until what a path answers is as it should be.
async fn until(proxy: &Proxy, path: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, body) = proxy.get(path).await;
        let told = serde_json::from_str(&body).unwrap_or_default();
        if is_so(&told) {
            return;
        }
        assert!(Instant::now() < deadline, "{path}: {body}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads until the instance holds so many partitions.
async fn holds(proxy: &Proxy, at: &str, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        assert_eq!(read(proxy, at, 100).await, [""; 0]);
        let (_, held) = proxy.get(&format!("{at}/assignments")).await;
        if held.matches("\"partition\":").count() == count {
            return;
        }
        assert!(Instant::now() < deadline, "{at} holds {held}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_commits_by_itself_reads_on_when_its_group_has_shared_anew() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let at = made(&proxy, "c", ",\"auto.offset.reset\":\"earliest\"").await;
    assert_eq!(subscribed(&proxy, &at, r#"{"topics":["t"]}"#).await, 204);
    assert_eq!(read(&proxy, &at, 10_000).await, ["1"]);
    let cluster = format!("/v3/clusters/{}", proxy.streams.cluster_id());
    let grow = Request::patch(format!("{cluster}/topics/t"))
        .header("Content-Type", "application/json")
        .body(Body::from(r#"{"partitions_count":2}"#))
        .unwrap();
    let (status, _, body) = proxy.send(grow).await;
    assert_eq!(status, 200, "{body}");
    // The group has a new generation before the next read is made.
    let group = format!("{cluster}/consumer-groups/g");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, consumers) = proxy.get(&format!("{group}/consumers")).await;
        let consumers: serde_json::Value = serde_json::from_str(&consumers).unwrap();
        if let Some(id) = consumers["data"][0]["consumer_id"].as_str() {
            let (_, held) = proxy
                .get(&format!("{group}/consumers/{id}/assignments"))
                .await;
            if held.matches("\"partition_id\":").count() == 2 {
                break;
            }
        }
        assert!(Instant::now() < deadline, "{consumers}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.clock.advance(Duration::from_secs(6));
    proxy.store_raw("t", 1, None, "2").await;
    assert_eq!(read(&proxy, &at, 10_000).await, ["2"]);
    delete(&proxy, &at).await;
    // What was answered is committed.
    let topic: TopicName = "t".parse().unwrap();
    let partitions = [(topic.clone(), 0), (topic, 1)];
    let committed = proxy.store.committed("g", &partitions).await.unwrap();
    let offsets = committed.iter().flatten().map(|it| it.offset);
    assert_eq!(offsets.collect::<Vec<i64>>(), [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_whose_client_hangs_up_leaves_its_records_to_the_next() {
    let proxy = Proxy::open(RestConfig {
        read_waits_for_timeout: true,
        ..RestConfig::default()
    });
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let at = made(&proxy, "c", ",\"auto.offset.reset\":\"earliest\"").await;
    let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    proxy.post(&format!("{at}/assignments"), assigned).await;
    let hung_up = tokio::time::timeout(Duration::from_millis(500), read(&proxy, &at, 30_000));
    assert!(hung_up.await.is_err());
    assert_eq!(read(&proxy, &at, 200).await, ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_deleted_in_a_read_commits_nothing_of_it() {
    let proxy = Proxy::open(RestConfig {
        read_waits_for_timeout: true,
        ..RestConfig::default()
    });
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let earliest = ",\"auto.offset.reset\":\"earliest\"";
    let at = made(&proxy, "c", earliest).await;
    let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    proxy.post(&format!("{at}/assignments"), assigned).await;
    assert_eq!(read(&proxy, &at, 200).await, ["1"]);
    proxy.store_raw("t", 0, None, "2").await;
    let path = format!("{at}/records?timeout=30000");
    let ((status, _), ()) = tokio::join!(proxy.get(&path), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        delete(&proxy, &at).await;
    });
    assert_eq!(status, 404);
    let again = made(&proxy, "c", earliest).await;
    proxy.post(&format!("{again}/assignments"), assigned).await;
    assert_eq!(read(&proxy, &again, 200).await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_comes_to_a_pattern_moves_nobody_in_the_others() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("a1", 1).await;
    proxy.store_raw("a1", 0, None, "0").await;
    let at = made(&proxy, "c", ",\"auto.commit.enable\":\"false\"").await;
    assert_eq!(
        subscribed(&proxy, &at, r#"{"topic_pattern":"a.*"}"#).await,
        204
    );
    holds(&proxy, &at, 1).await;
    proxy.store_raw("a1", 0, None, "1").await;
    proxy.create("a2", 1).await;
    proxy.clock.advance(Duration::from_secs(2));
    assert_eq!(read(&proxy, &at, 10_000).await, ["1"]);
    holds(&proxy, &at, 2).await;
    proxy.store_raw("a2", 0, None, "2").await;
    assert_eq!(read(&proxy, &at, 10_000).await, ["2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_may_match_nothing_before_and_after_its_topics() {
    let proxy = Proxy::open(RestConfig::default());
    let at = made(&proxy, "c", ",\"auto.offset.reset\":\"earliest\"").await;
    assert_eq!(
        subscribed(&proxy, &at, r#"{"topic_pattern":"new.*"}"#).await,
        204
    );
    assert_eq!(read(&proxy, &at, 0).await, [""; 0]);
    // It comes while a read waits.
    let (values, ()) = tokio::join!(read(&proxy, &at, 30_000), async {
        proxy.create("new1", 1).await;
        proxy.store_raw("new1", 0, None, "1").await;
        proxy.clock.advance(Duration::from_secs(2));
    });
    assert_eq!(values, ["1"]);
    proxy
        .store
        .delete_topic(&"new1".parse().unwrap())
        .await
        .unwrap();
    proxy.clock.advance(Duration::from_secs(2));
    assert_eq!(read(&proxy, &at, 0).await, [""; 0]);
    until(&proxy, &format!("{at}/subscription"), |it| {
        it["topics"] == serde_json::json!([])
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_match_what_programs_keep_for_themselves_only_where_they_say_so() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("a1", 1).await;
    proxy.create("__own", 1).await;
    for (name, pattern, topics) in [("all", ".*", ["a1"]), ("own", "__.*", ["__own"])] {
        let at = made(&proxy, name, "").await;
        let asked = format!("{{\"topic_pattern\":\"{pattern}\"}}");
        assert_eq!(subscribed(&proxy, &at, &asked).await, 204);
        let topics = serde_json::json!({"topics": topics});
        until(&proxy, &format!("{at}/subscription"), |it| *it == topics).await;
    }
    let at = made(&proxy, "none", "").await;
    let open = r#"{"topic_pattern":"a)|(?:b"}"#;
    assert_eq!(subscribed(&proxy, &at, open).await, 422);
}
