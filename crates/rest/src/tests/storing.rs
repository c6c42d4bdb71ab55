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
