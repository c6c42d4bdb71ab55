//! Streams of events, and who reads with whom.

use super::*;

/// The records of a stream of events from its beginning: ids and values.
async fn events(body: &mut Body, count: usize) -> Vec<(String, String)> {
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let frame = body.frame().await.unwrap().unwrap();
        text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let line = |event: &str, name: &str| {
        let mut lines = event.lines();
        let found = lines.find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().to_owned()
    };
    text.split_terminator("\n\n")
        .map(|event| {
            let record: serde_json::Value = serde_json::from_str(&line(event, "data: ")).unwrap();
            (line(event, "id: "), record["value"]["data"].to_string())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_where_their_reader_left_and_end_with_the_proxy() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    proxy.store_raw("t", 0, None, "2").await;
    let cluster = proxy.streams.cluster_id();
    let open = async |last: Option<&str>| {
        let path = format!("/v3/clusters/{cluster}/topics/t/records");
        let mut request = Request::get(path).header("Accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("Last-Event-ID", last);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = proxy.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    let own = |id: &str, value: &str| (id.to_owned(), value.to_owned());
    let mut body = open(None).await;
    let first = events(&mut body, 2).await;
    assert_eq!(first, [own("0:1", "1"), own("0:2", "2")]);
    proxy.store_raw("t", 0, None, "3").await;
    assert_eq!(events(&mut body, 1).await, [own("0:3", "3")]);
    drop(body);
    let mut again = open(Some("0:2")).await;
    assert_eq!(events(&mut again, 1).await, [own("0:3", "3")]);
    proxy.handle.close().await;
    assert!(again.frame().await.is_none(), "the stream goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_a_groups_members_and_what_they_read() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    proxy.store_raw("t", 0, None, "1").await;
    let consumer = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
    proxy.post("/consumers/g", consumer).await;
    let at = "/consumers/g/instances/c";
    let topics = r#"{"topics":["t"]}"#;
    proxy.post(&format!("{at}/subscription"), topics).await;
    // Whoever has read is a member.
    let (_, records) = proxy.get(&format!("{at}/records?timeout=10000")).await;
    assert!(records.contains("\"value\":1"), "{records}");
    let read = async |path: &str| -> serde_json::Value {
        let (status, body) = proxy.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    };
    let group = format!(
        "/v3/clusters/{}/consumer-groups/g",
        proxy.streams.cluster_id()
    );
    assert_eq!(read(&group).await["state"], "STABLE");
    let consumers = read(&format!("{group}/consumers")).await;
    let id = consumers["data"][0]["consumer_id"].as_str().unwrap();
    let consumer = read(&format!("{group}/consumers/{id}")).await;
    assert_eq!(consumer["client_id"], "c");
    let assignments = format!("{group}/consumers/{id}/assignments");
    let all = read(&assignments).await;
    assert_eq!(all["data"].as_array().unwrap().len(), 1, "{all}");
    let one = read(&format!("{assignments}/t/partitions/0")).await;
    assert_eq!(one, all["data"][0]);
    assert_eq!(one["partition_id"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_is_being_stopped_is_not_ready() {
    let proxy = Proxy::open(RestConfig::default());
    let asked = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        proxy.send(request).await.0
    };
    assert_eq!(asked("/ready").await, 204);
    proxy.handle.end_streams();
    assert_eq!((asked("/ready").await, asked("/healthy").await), (503, 204));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_short_way_answers_without_receipts_too() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let straight = proxy.handle.straight().unwrap();
    let mut told = Vec::new();
    for query in ["?async=true", "?async=false", ""] {
        let request = Request::post(format!("/topics/t{query}"))
            .header("Content-Type", "application/vnd.kafka.text.v2+json")
            .body(Body::from(r#"{"records":[{"value":"a"}]}"#))
            .unwrap();
        let answering = straight.take(request).map_err(drop).unwrap();
        told.push(answering.await.unwrap().status().as_u16());
    }
    assert_eq!(told, [204, 200, 200]);
}
