//! Requests that the store takes in parts only.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn arrays_above_a_topics_bound_are_stored_in_parts_and_in_order() {
    let proxy = Proxy::open(RestConfig::default());
    let config = TopicConfig::of([("max.message.bytes", "500")]).unwrap();
    let spec = TopicSpec::of("t".parse().unwrap()).with_partitions(1);
    let spec = TopicSpec { config, ..spec };
    proxy.store.create_topic(spec).await.unwrap();
    let value = |number: usize| match number {
        // Too large even alone.
        5 => "x".repeat(600),
        _ => format!("{number:0>90}"),
    };
    for (key, first) in [("", 0), ("\"key\":\"k\",", 9)] {
        let record = |number: usize| format!("{{{key}\"value\":\"{}\"}}", value(number));
        let records: Vec<String> = (0..10).map(record).collect();
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        let (status, body) = proxy.post("/topics/t", body).await;
        assert_eq!(status, 200, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        let receipts = answer["offsets"].as_array().unwrap();
        let offsets = receipts.iter().map(|receipt| receipt["offset"].as_i64());
        let expected = (0..10).map(|number| match number {
            5 => None,
            number => Some(first + number - i64::from(number > 5)),
        });
        assert_eq!(offsets.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    }
    let shown = proxy.show("t", 0).await;
    let stored = (0..10).filter(|number| *number != 5).map(value);
    let stored: Vec<String> = stored.collect();
    for (line, number) in shown.lines().zip(0..) {
        let value = &stored[number % stored.len()];
        assert!(line.contains(value), "{number}: {line}");
    }
    assert_eq!(shown.lines().count(), 2 * stored.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_writes_to_the_proxies_own_books() {
    let proxy = Proxy::open(RestConfig::default());
    let cluster = proxy.streams.cluster_id();
    for topic in ["__rest_instances", "__rest_idempotency", "_schemas"] {
        proxy.create(topic, 1).await;
        for path in [
            format!("/topics/{topic}"),
            format!("/topics/{topic}/partitions/0"),
            format!("/v3/clusters/{cluster}/topics/{topic}/records"),
            format!("/v3/clusters/{cluster}/topics/{topic}/records:batch"),
        ] {
            let media = match path.starts_with("/v3") {
                true => "application/json",
                false => "application/vnd.kafka.json.v2+json",
            };
            let body = match (path.ends_with("batch"), path.ends_with("records")) {
                (true, _) => r#"{"entries":[{"id":"1"}]}"#,
                (_, true) => r#"{"value":{"type":"JSON","data":1}}"#,
                _ => r#"{"records":[{"value":1}]}"#,
            };
            let request = Request::post(&path).header("Content-Type", media);
            let (status, _, answer) = proxy.send(request.body(body.into()).unwrap()).await;
            assert_eq!(status, 400, "{path}: {answer}");
            assert!(answer.contains("40002"), "{path}: {answer}");
        }
        assert_eq!(proxy.show(topic, 0).await, "", "{topic}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_by_its_text_is_registered_again_when_it_was_deleted() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let produce = async || {
        let body = r#"{"value_schema":"\"string\"","records":[{"value":"a"}]}"#;
        let media = "application/vnd.kafka.avro.v2+json";
        let request = Request::post("/topics/t").header("Content-Type", media);
        let (status, _, answer) = proxy.send(request.body(body.into()).unwrap()).await;
        assert_eq!(status, 200, "{answer}");
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        answer["value_schema_id"].as_i64().unwrap()
    };
    let ask = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        proxy.ask(&proxy.schemas, request).await.0
    };
    let first = produce().await;
    assert_eq!(produce().await, first);
    assert_eq!(ask("DELETE", "/subjects/t-value").await, 200);
    assert_eq!(ask("DELETE", "/subjects/t-value?permanent=true").await, 200);
    let again = produce().await;
    assert_eq!(ask("GET", "/subjects/t-value/versions/latest").await, 200);
    assert_eq!(ask("GET", &format!("/schemas/ids/{again}")).await, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_that_make_much_work_hold_up_nobody_and_end() {
    let proxy = Arc::new(Proxy::open(RestConfig::default()));
    proxy.create("t", 1).await;
    // Each level asks for the next one twice, on the same value.
    let levels = (0..17).map(|n| {
        let next = n + 1;
        let twice = format!("{{\"$ref\":\"#/definitions/l{next}\"}}");
        format!("\"l{n}\":{{\"allOf\":[{twice},{twice}]}}")
    });
    let levels: Vec<String> = levels.collect();
    let schema = format!(
        "{{\"$ref\":\"#/definitions/l0\",\"definitions\":{{{},\"l17\":{{}}}}}}",
        levels.join(",")
    );
    let body = serde_json::json!({
        "value_schema": schema,
        "records": vec![serde_json::json!({"value": 1}); 10_000],
    });
    let crowd: Vec<_> = (0..4)
        .map(|_| {
            let (proxy, body) = (Arc::clone(&proxy), body.to_string());
            tokio::spawn(async move {
                let media = "application/vnd.kafka.jsonschema.v2+json";
                let request = Request::post("/topics/t").header("Content-Type", media);
                proxy.send(request.body(body.into()).unwrap()).await
            })
        })
        .collect();
    // Others are served while all of these are at it.
    let small = r#"{"records":[{"value":1}]}"#;
    let mut served = 0;
    while !crowd.iter().any(|it| it.is_finished()) {
        assert_eq!(proxy.post("/topics/t", small).await.0, 200);
        served += 1;
    }
    assert!(served > 0, "nobody else was served");
    for one in crowd {
        let (status, _, answer) = one.await.unwrap();
        assert!([422, 429].contains(&status), "{status} {answer}");
        assert!(answer.contains("too"), "{answer}");
    }
    assert_eq!(proxy.show("t", 0).await.lines().count(), served);
}
