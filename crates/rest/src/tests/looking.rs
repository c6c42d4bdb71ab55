//! Looks at records, at who reads a topic, and at schemas, through the management port.

use serde_json::{Value, json};

use super::*;

impl Proxy {
    /// The records of a look as `partition:offset`, and whether that is all.
    async fn look(&self, query: &str) -> (String, bool) {
        let seen = self.seen(query).await;
        let records = seen["records"].as_array().unwrap().iter();
        let names = records.map(|one| format!("{}:{}", one["partition"], one["offset"]));
        let names: Vec<String> = names.collect();
        (names.join(" "), seen["is_whole"].as_bool().unwrap())
    }

    async fn seen(&self, query: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1/topics/t/records{query}")).await;
        assert_eq!(status, 200, "{query}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The topic, which keeps records of whatever time.
    async fn keep(&self, partitions: i32) {
        let config = TopicConfig::of([("retention.ms", "-1")]).unwrap();
        let spec = TopicSpec::of("t".parse().unwrap()).with_partitions(partitions);
        let spec = TopicSpec { config, ..spec };
        self.store.create_topic(spec).await.unwrap();
    }

    async fn store_at(&self, partition: i32, at: i64, record: Record) {
        let timestamp = Some(UnixMillis(at));
        let record = Record {
            timestamp,
            ..record
        };
        let batch = ProduceBatch {
            topic: "t".parse().unwrap(),
            partition,
            records: vec![record],
            sequence: None,
        };
        self.store.produce(batch).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_the_oldest_and_those_of_an_offset_or_a_time_are_seen() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.keep(3).await;
    // Nothing in partition 2; in the others by turns, the first one a second after 1970.
    for n in 0..40 {
        let record = Record::of_value(format!("{n}"));
        proxy
            .store_at((n % 2) as i32, 1_000 * (n + 1), record)
            .await;
    }
    let seen = async |query: &str| proxy.look(query).await;
    let whole = |records: &str| (records.to_owned(), true);
    assert_eq!(seen("?limit=4").await, whole("1:19 0:19 1:18 0:18"));
    assert_eq!(seen("?limit=4&from=oldest").await, whole("0:0 1:0 0:1 1:1"));
    assert_eq!(seen("?limit=3&partition=1").await, whole("1:19 1:18 1:17"));
    assert_eq!(
        seen("?limit=2&partition=1&from=before:17").await,
        whole("1:16 1:15")
    );
    assert_eq!(seen("?partition=1&from=before:0").await, whole(""));
    assert_eq!(
        seen("?limit=2&partition=1&from=offset:7").await,
        whole("1:7 1:8")
    );
    assert_eq!(
        seen("?partition=1&from=offset:18").await,
        whole("1:18 1:19")
    );
    assert_eq!(seen("?partition=2").await, whole(""));
    let at = "from=1970-01-01T00:00:10Z";
    assert_eq!(seen(&format!("?limit=2&{at}")).await, whole("1:4 0:5"));
    let at = "from=2020-01-01T00:00:00Z";
    assert_eq!(seen(&format!("?{at}")).await, whole(""));
    // More than one step back.
    let (all, _) = seen("?partition=0&limit=200").await;
    let expected: Vec<String> = (0..20).rev().map(|n| format!("0:{n}")).collect();
    assert_eq!(all, expected.join(" "));
    // What was deleted is not looked for.
    let topic = "t".parse().unwrap();
    proxy
        .store
        .delete_records(&topic, 0, Some(18))
        .await
        .unwrap();
    assert_eq!(seen("?partition=0").await, whole("0:19 0:18"));
    assert_eq!(seen("?partition=0&from=offset:3").await, whole("0:18 0:19"));

    for (query, status) in [
        ("?limit=0", 400),
        ("?limit=201", 400),
        ("?from=soon", 400),
        ("?partition=3", 404),
        ("?partition=x", 404),
        ("?format=xml", 400),
        ("?offset=3", 400),
    ] {
        let path = format!("/api/v1/topics/t/records{query}");
        let (found, told) = proxy.get(&path).await;
        assert_eq!(found, status, "{query}: {told}");
    }
    assert_eq!(proxy.get("/api/v1/topics/none/records").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_of_transactions_hide_no_record() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.keep(1).await;
    let mut writer = proxy.store.fenced_writer("n").await.unwrap();
    for n in 0..6 {
        let batch = ProduceBatch {
            topic: "t".parse().unwrap(),
            partition: 0,
            records: vec![Record::of_value(format!("{n}"))],
            sequence: None,
        };
        writer.store(vec![batch]).await.unwrap();
    }
    let values = async |query: &str| {
        let seen = proxy.seen(query).await;
        let records = seen["records"].as_array().unwrap().iter();
        let values = records.map(|one| one["value"]["data"].as_str().unwrap().to_owned());
        (
            values.collect::<Vec<_>>().join(" "),
            seen["is_whole"] == true,
        )
    };
    assert_eq!(values("?limit=3").await, ("5 4 3".to_owned(), true));
    assert_eq!(values("?limit=50").await, ("5 4 3 2 1 0".to_owned(), true));
    assert_eq!(
        values("?from=oldest&limit=4").await,
        ("0 1 2 3".to_owned(), true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_shown_as_it_is_best_read_and_as_it_is_asked_for() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.keep(1).await;
    let large = r#"{"id":12345678901234567890}"#;
    let headers = vec![
        ("trace".to_owned(), Some("é1".into())),
        ("raw".to_owned(), Some(vec![0xff].into())),
        ("none".to_owned(), None),
    ];
    let record = Record::of_value(large).with_key("k-7");
    proxy.store_at(0, 7, Record { headers, ..record }).await;
    let record = proxy.seen("").await["records"][0].take();
    assert_eq!(
        record,
        json!({
            "partition": 0,
            "offset": 0,
            "timestamp_ms": 7,
            "headers": [
                {"name": "trace", "value": {"type": "STRING", "data": "é1", "bytes": 3, "is_cut": false}},
                {"name": "raw", "value": {"type": "BINARY", "data": "/w==", "bytes": 1, "is_cut": false}},
                {"name": "none", "value": null},
            ],
            "headers_left_out": 0,
            "key": {"type": "STRING", "data": "k-7", "bytes": 3, "is_cut": false},
            // As text, since pages would round the number.
            "value": {"type": "JSON", "data": large, "bytes": 27, "is_cut": false},
        })
    );
    let as_bytes = proxy.seen("?format=binary").await;
    assert_eq!(
        as_bytes["records"][0]["value"]["data"],
        STANDARD.encode(large)
    );
    assert_eq!(as_bytes["records"][0]["key"]["type"], "BINARY");
    let as_text = proxy.seen("?format=string").await;
    assert_eq!(as_text["records"][0]["value"]["type"], "STRING");

    // By its schema, where it has one.
    let schema = r#"{"schema":"{\"type\":\"record\",\"name\":\"R\",\"fields\":[{\"name\":\"n\",\"type\":\"long\"}]}"}"#;
    let register = |body: &str| {
        Request::post("/api/v1/registry/subjects/t-value/versions")
            .body(Body::from(body.to_owned()))
            .unwrap()
    };
    let (status, _, told) = proxy.send(register(schema)).await;
    assert_eq!((status, &*told), (200, r#"{"id":1}"#));
    proxy.store_bytes("t", 0, vec![0, 0, 0, 0, 1, 14]).await;
    let seen = proxy.seen("?limit=1").await["records"][0]["value"].take();
    assert_eq!(
        (&seen["type"], &seen["schema_id"]),
        (&json!("AVRO"), &json!(1))
    );
    assert_eq!(seen["data"], r#"{"n":7}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_records_are_cut_and_end_a_look_where_it_has_read_enough() {
    let proxy = Proxy::open(RestConfig::default());
    proxy.keep(1).await;
    for n in 0..25 {
        proxy
            .store_at(0, n, Record::of_value("x".repeat(1_000_000)))
            .await;
    }
    let seen = proxy.seen("").await;
    let records = seen["records"].as_array().unwrap();
    assert_eq!(seen["is_whole"], false);
    // The newest ones, without one left out between them.
    let offsets: Vec<i64> = records
        .iter()
        .map(|one| one["offset"].as_i64().unwrap())
        .collect();
    let expected: Vec<i64> = (0..25).rev().take(offsets.len()).collect();
    assert_eq!(offsets, expected);
    assert!((4..25).contains(&offsets.len()), "{offsets:?}");
    let value = &records[0]["value"];
    assert_eq!(
        (&value["bytes"], &value["is_cut"]),
        (&json!(1_000_000), &json!(true))
    );
    assert_eq!(value["data"].as_str().unwrap().len(), (1 << 20) / 50);
    // Alone it is shown whole.
    let seen = proxy.seen("?limit=1").await;
    assert_eq!(seen["records"][0]["value"]["is_cut"], false);
    let (oldest, is_whole) = proxy.look("?from=oldest&limit=200").await;
    assert!(oldest.starts_with("0:0 0:1 0:2") && !is_whole, "{oldest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_tells_who_reads_it_and_how_far_they_are_behind() {
    let proxy = Proxy::open(RestConfig::default());
    for topic in ["t", "other"] {
        proxy.create(topic, 2).await;
        proxy.store_raw(topic, 0, None, "1").await;
    }
    proxy.read_in_group("billing", "t").await;
    proxy.read_in_group("elsewhere", "other").await;
    proxy.store_raw("t", 0, None, "2").await;
    proxy.store_raw("t", 1, None, "3").await;
    // Who has just come, and has committed nothing.
    let config = ConsumerConfig::in_group("fresh", "reader");
    let mut reader = proxy.store.consumer(config).await.unwrap();
    reader.subscribe(vec!["t".parse().unwrap()]).await.unwrap();
    let read = reader.poll(Duration::from_secs(10), 1 << 20).await.unwrap();
    assert!(!read.is_empty());
    let (status, body) = proxy.get("/api/v1/topics/t/groups").await;
    assert_eq!(status, 200, "{body}");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["left_out"], 0);
    let groups = told["groups"].as_array().unwrap();
    let names: Vec<_> = groups
        .iter()
        .map(|one| one["group"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["billing", "fresh"]);
    assert_eq!(groups[0]["state"], "Empty");
    assert_eq!(
        groups[0]["lag"],
        1 + i64::from(groups[0]["partitions"] == 2)
    );
    assert_eq!(
        (&groups[1]["members"], &groups[1]["lag"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(groups[1]["partitions"], 2);
    assert_eq!(proxy.get("/api/v1/topics/none/groups").await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registry_answers_below_the_management_port_as_on_its_own() {
    let proxy = Proxy::open(RestConfig::default());
    let body = r#"{"schema":"\"string\""}"#;
    let ask = async |method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let (status, _, told) = proxy.send(request).await;
        (status, told)
    };
    let under = "/api/v1/registry";
    let subject = "/subjects/a%2Fb-value";
    let (status, told) = ask("POST", &format!("{under}{subject}/versions"), body).await;
    assert_eq!(status, 200, "{told}");
    for path in [
        "/subjects",
        "/subjects/a%2Fb-value/versions",
        "/subjects/a%2Fb-value/versions/latest",
        "/subjects/a%2Fb-value/versions/9",
        "/schemas?latestOnly=true&limit=5",
        "/config/a%2Fb-value?defaultToGlobal=true",
        "/contexts/.eu/subjects",
        "/none",
    ] {
        let own = Request::get(path).body(Body::empty()).unwrap();
        let (status, _, told) = proxy.ask(&proxy.schemas, own).await;
        assert_eq!(
            ask("GET", &format!("{under}{path}"), "").await,
            (status, told),
            "{path}"
        );
    }
    let path = format!("{under}/compatibility{subject}/versions?verbose=true");
    let (status, told) = ask("POST", &path, r#"{"schema":"\"long\""}"#).await;
    assert!(
        status == 200 && told.contains(r#""is_compatible":false"#),
        "{told}"
    );
}
