//! Reads that wait, go on, are interrupted and are bounded.

use streams::Isolation;

use super::*;
use crate::consumers::InstanceKey;
use crate::limits::EVENTS_PIPE_BYTES;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_records_read_in_bounded_answers_arrive_once_and_in_order() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let record = |n: usize| {
        format!(
            "{{\"value\":{{\"n\":{n},\"pad\":\"{}\"}}}}",
            "x".repeat(1_000)
        )
    };
    let records: Vec<String> = (0..1_000).map(record).collect();
    let body = format!("{{\"records\":[{}]}}", records.join(","));
    let (status, receipts) = proxy.post("/topics/t", body).await;
    assert_eq!(
        (status, receipts.matches("\"error_code\":null").count()),
        (200, 1_000)
    );
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    proxy.post("/consumers/g", consumer).await;
    proxy
        .post(
            "/consumers/g/instances/c/subscription",
            r#"{"topics":["t"]}"#,
        )
        .await;
    let mut seen = Vec::new();
    while seen.len() < 1_000 {
        let path = "/consumers/g/instances/c/records?timeout=5000&max_bytes=200000";
        let (status, body) = proxy.get(path).await;
        assert_eq!(status, 200, "{body}");
        let records: Vec<serde_json::Value> = serde_json::from_str(&body).unwrap();
        assert!(
            !records.is_empty() && body.len() < 240_000,
            "{} bytes",
            body.len()
        );
        seen.extend(
            records
                .iter()
                .map(|record| record["value"]["n"].as_u64().unwrap()),
        );
    }
    assert_eq!(seen, (0..1_000).collect::<Vec<u64>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_read_answers_when_a_record_comes() {
    let proxy = Arc::new(Proxy::open(RestConfig::default()));
    proxy.create("t", 1).await;
    proxy
        .post("/consumers/g", r#"{"name":"c","format":"json"}"#)
        .await;
    let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
    proxy
        .post("/consumers/g/instances/c/assignments", assigned)
        .await;
    let path = "/consumers/g/instances/c/records?timeout=20000";
    // The default of auto.offset.reset is latest: the first read finds the end.
    proxy
        .get("/consumers/g/instances/c/records?timeout=0")
        .await;
    let started = Instant::now();
    let (read, _) = tokio::join!(proxy.get(path), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        proxy
            .post("/topics/t", r#"{"records":[{"value":"now"}]}"#)
            .await
    });
    assert!(read.1.contains("\"now\""), "{}", read.1);
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "waited out its time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_their_time_out_where_that_is_asked_for() {
    let proxy = Proxy::open(RestConfig {
        read_waits_for_timeout: true,
        ..RestConfig::default()
    });
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let read = async |name: &str, settings: &str, timeout: u64| {
        let body = format!("{{\"name\":\"{name}\",\"format\":\"json\"{settings}}}");
        proxy.post("/consumers/g", body).await;
        let at = format!("/consumers/g/instances/{name}");
        let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
        proxy.post(&format!("{at}/assignments"), assigned).await;
        proxy
            .post(&format!("{at}/positions/beginning"), assigned)
            .await;
        let started = Instant::now();
        let (_, records) = proxy.get(&format!("{at}/records?timeout={timeout}")).await;
        assert!(records.contains("\"value\":1"), "{records}");
        started.elapsed()
    };
    let waited = read("old", "", 300).await;
    assert!(waited >= Duration::from_millis(300), "{waited:?}");
    let waited = read("bytes", ",\"fetch.min.bytes\":1", 20_000).await;
    assert!(waited < Duration::from_secs(10), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_partition_that_finds_no_place_is_50301() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let places = u32::try_from(crate::limits::PARTITION_READS_MAX).unwrap();
    let all = proxy.handle.shared.partition_reads.acquire_many(places);
    let all = all.await;
    let path = "/topics/t/partitions/0/messages?offset=0";
    let (status, body) = proxy.get(path).await;
    assert_eq!(status, 503, "{body}");
    assert!(body.starts_with("{\"error_code\":50301,"), "{body}");
    drop(all);
    assert_eq!(proxy.get(path).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_an_instance_interrupts_its_read() {
    let proxy = Arc::new(Proxy::open(RestConfig::default()));
    proxy.create("t", 1).await;
    proxy
        .post("/consumers/g", r#"{"name":"c","format":"json"}"#)
        .await;
    proxy
        .post(
            "/consumers/g/instances/c/subscription",
            r#"{"topics":["t"]}"#,
        )
        .await;
    let started = Instant::now();
    let (read, ()) = tokio::join!(
        proxy.get("/consumers/g/instances/c/records?timeout=30000"),
        async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let path = "/consumers/g/instances/c";
            proxy
                .send(Request::delete(path).body(Body::empty()).unwrap())
                .await;
        }
    );
    assert!(read.1.contains("40403"), "{}", read.1);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "the read was waited out"
    );
    assert_eq!(proxy.handle.consumer_instances(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn as_many_instances_as_there_may_be_are_made_side_by_side() {
    const MOST: usize = 32;
    let proxy = Arc::new(Proxy::open(RestConfig {
        consumer_instances_max: MOST,
        ..RestConfig::default()
    }));
    for _ in 0..50 {
        let mut made = tokio::task::JoinSet::new();
        for n in 0..MOST {
            let proxy = proxy.clone();
            made.spawn(async move {
                let path = format!("/consumers/g{n}");
                proxy.post(&path, r#"{"name":"c"}"#).await
            });
        }
        for (status, body) in made.join_all().await {
            assert_eq!(status, 200, "{body}");
        }
        let (status, body) = proxy.post("/consumers/more", "{}").await;
        assert_eq!(status, 429, "{body}");
        for n in 0..MOST {
            let path = format!("/consumers/g{n}/instances/c");
            proxy
                .send(Request::delete(path).body(Body::empty()).unwrap())
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn automatic_commits_let_the_next_instance_go_on() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    for value in ["1", "2"] {
        proxy.store_raw("t", 0, None, value).await;
        proxy.post("/consumers/g", consumer).await;
        proxy
            .post(
                "/consumers/g/instances/c/subscription",
                r#"{"topics":["t"]}"#,
            )
            .await;
        let (_, read) = proxy
            .get("/consumers/g/instances/c/records?timeout=5000")
            .await;
        let records: Vec<serde_json::Value> = serde_json::from_str(&read).unwrap();
        assert_eq!(records.len(), 1, "{read}");
        assert_eq!(records[0]["value"].to_string(), value);
        let path = "/consumers/g/instances/c";
        proxy
            .send(Request::delete(path).body(Body::empty()).unwrap())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_answers_and_harms_nothing() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.handle.close().await;
    proxy.streams.close().await;
    let (status, body) = proxy
        .post("/topics/t", r#"{"records":[{"value":1}]}"#)
        .await;
    // As kafka-rest does it: the call is answered, the record is not.
    assert!(
        status >= 500 || body.contains("\"error_code\":5000"),
        "{status} {body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_events_takes_little_from_the_store_at_a_time() {
    let (proxy, double) = Proxy::open_before(RestConfig::default(), false);
    proxy.create("t", 1).await;
    let value = format!("\"{}\"", "x".repeat(10_000));
    let large = format!("\"{}\"", "y".repeat(300_000));
    for value in [&value, &value, &large, &value] {
        proxy.store_raw("t", 0, None, value).await;
    }
    for _ in 0..50 {
        proxy.store_raw("t", 0, None, &value).await;
    }
    let cluster = proxy.streams.cluster_id();
    let path = format!("/v3/clusters/{cluster}/topics/t/records?max_bytes=67108864");
    let request = Request::get(path)
        .header("Accept", "text/event-stream")
        .body(Body::empty())
        .unwrap();
    let response = proxy.router.clone().oneshot(request).await.unwrap();
    let mut events = response.into_body();
    let mut text = String::new();
    while text.matches("event: record\n").count() < 54 || !text.ends_with("\n\n") {
        let frame = events.frame().await.unwrap().unwrap();
        text += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    for (number, event) in text.split("event: record\n").skip(1).enumerate() {
        assert!(
            event.starts_with(&format!("id: 0:{}\n", number + 1)),
            "{number}"
        );
        assert_eq!(event.len() > 300_000, number == 2, "{number}");
    }
    let most = double.polled.lock().iter().copied().max();
    assert!(
        most.is_some_and(|most| most <= EVENTS_PIPE_BYTES),
        "{most:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_stays_within_its_bracket_and_no_topics_end_a_subscription() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("axe", 1).await;
    proxy.create("t", 1).await;
    proxy.post("/consumers/g", r#"{"name":"c"}"#).await;
    let path = "/consumers/g/instances/c/subscription";
    let (status, body) = proxy.post(path, r#"{"topic_pattern":"a)|(?:b"}"#).await;
    assert_eq!(status, 422, "{body}");
    assert_eq!(proxy.post(path, r#"{"topics":["t"]}"#).await.0, 204);
    assert_eq!(proxy.get(path).await.1, r#"{"topics":["t"]}"#);
    assert_eq!(proxy.post(path, r#"{"topics":[]}"#).await.0, 204);
    assert_eq!(proxy.get(path).await.1, r#"{"topics":[]}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_shown_the_records_that_they_ask_for_else_those_of_the_configuration() {
    let config = RestConfig {
        isolation: Isolation::Committed,
        // Nobody is there.
        peer_address: Some("127.0.0.1:1".to_owned()),
        ..RestConfig::default()
    };
    let (proxy, double) = Proxy::open_before(config, true);
    let shown = |name: &str| {
        let shown = double.shown.lock();
        let last = shown.iter().rfind(|(of, _)| of == name);
        last.unwrap_or_else(|| panic!("{name} was not made")).1
    };
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let of_topic = format!("/v3/clusters/{}/topics/t", proxy.streams.cluster_id());
    for path in [
        format!("{of_topic}/records?timeout_ms=0"),
        format!("{of_topic}/partitions/0/records?timeout_ms=0"),
        "/topics/t/partitions/0/messages?offset=0".to_owned(),
    ] {
        for (asked, expected) in [
            ("", Isolation::Committed),
            ("&isolation=read_uncommitted", Isolation::Uncommitted),
            ("&isolation=read_committed", Isolation::Committed),
        ] {
            let (status, body) = proxy.get(&format!("{path}{asked}")).await;
            assert_eq!(status, 200, "{path}{asked}: {body}");
            assert_eq!(shown("rest"), expected, "{path}{asked}");
            // Who goes on by the link goes on so.
            let is_link = body.contains("\"next\"");
            assert!(!is_link || body.contains(&format!("{asked}\"")), "{body}");
        }
        let (status, body) = proxy.get(&format!("{path}&isolation=committed")).await;
        assert_eq!(status, 400, "{body}");
    }
    for (name, settings, expected) in [
        ("usual", "", Isolation::Committed),
        (
            "asks",
            r#","isolation.level":"read_uncommitted""#,
            Isolation::Uncommitted,
        ),
    ] {
        let made = format!(r#"{{"name":"{name}","format":"json"{settings}}}"#);
        let (status, body) = proxy.post("/consumers/g", made).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(shown(name), expected);
        let key = InstanceKey {
            group: "g".to_owned(),
            instance: name.to_owned(),
        };
        let roll = proxy.handle.shared.consumers.roll().unwrap();
        assert_eq!(roll.entry(&key).unwrap().isolation, expected);
    }
    let odd = r#"{"name":"odd","isolation.level":"committed"}"#;
    let (status, body) = proxy.post("/consumers/g", odd).await;
    assert!(status == 422 && body.contains("42204"), "{status} {body}");
    // A proxy that is told nothing of it takes them over.
    proxy.handle.close().await;
    let store = Arc::clone(&double) as Arc<dyn EventStore>;
    let other = Proxy::open_for(RestConfig::default(), |_| store, |_, _| None);
    double.shown.lock().clear();
    for (name, expected) in [
        ("usual", Isolation::Committed),
        ("asks", Isolation::Uncommitted),
    ] {
        let path = format!("/consumers/g/instances/{name}/subscription");
        let (status, body) = other.get(&path).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(shown(name), expected, "{name}");
    }
    other.handle.close().await;
}
