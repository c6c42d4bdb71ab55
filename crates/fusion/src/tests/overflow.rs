//! What statements do when their targets take fewer rows than they give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use mqtt::{Delivery, Message, MessageSink, Qos};
use parking_lot::Mutex;
use serde_json::{Value as Json, json};

use super::house::{Collector, House, wait};
use crate::feed::Feed;
use crate::lane::Lane;
use crate::limits::OUTPUT_BYTES_MAX;
use crate::plan::Backpressure;
use crate::{FusionError, NewStatement};

/// Some bytes, so that few rows fill an output.
const PAD: usize = 10_000;

fn payload(n: usize) -> String {
    format!("{{\"n\":{n},\"pad\":\"{}\"}}", "x".repeat(PAD))
}

/// A statement whose rows nobody takes, on a source that has given so many events.
fn full(policy: Backpressure, events: usize) -> (Arc<Feed>, Arc<Lane>, usize) {
    let plan = Arc::new(crate::sql::compile("SELECT n, pad FROM mqtt.\"t\"").unwrap());
    let (feed, lane) = (Arc::new(Feed::new()), super::speed::lane_of(plan));
    lane.state.lock().overflow = policy;
    feed.join([lane.clone()]);
    let payloads: Vec<String> = (0..events).map(payload).collect();
    let mut taken = 0;
    // Batches of any size give the same rows.
    for part in payloads.chunks(7) {
        let batch: Vec<Message<'_>> = part
            .iter()
            .map(|payload| Message {
                topic: "t",
                payload: payload.as_bytes(),
                qos: Qos::AtLeastOnce,
                ..Message::default()
            })
            .collect();
        match feed.deliver(&batch) {
            Delivery::Taken => taken += batch.len(),
            Delivery::HoldBack { taken: some } => {
                taken += some;
                break;
            }
        }
    }
    (feed, lane, taken)
}

fn numbers(lane: &Lane) -> Vec<u64> {
    let state = lane.state.lock();
    let rows = state.output.texts();
    rows.map(|row| {
        serde_json::from_slice::<Json>(row).unwrap()["n"]
            .as_u64()
            .unwrap()
    })
    .collect()
}

#[test]
fn a_full_statement_drops_what_its_policy_says_and_its_books_balance() {
    let events = 1_000;
    for policy in [Backpressure::DropOldest, Backpressure::DropNewest] {
        let (_feed, lane, taken) = full(policy, events);
        assert_eq!(taken, events, "{policy:?}");
        let rows = numbers(&lane);
        let first: u64 = match policy {
            Backpressure::DropNewest => 0,
            _ => events as u64 - rows.len() as u64,
        };
        // The last row is not yet judged: it goes when the next event comes.
        let last = rows.len() - usize::from(policy == Backpressure::DropNewest);
        let expected: Vec<u64> = (first..).take(last).collect();
        assert_eq!(rows[..last], expected, "{policy:?}");
        let state = lane.state.lock();
        assert!(state.output.bytes.len() < OUTPUT_BYTES_MAX + 2 * PAD);
        assert!(rows.len() > 150, "{policy:?}: {}", rows.len());
        let books = state.machine.books();
        assert_eq!(books.received, events as u64);
        assert_eq!(books.dropped, (events - rows.len()) as u64);
        assert_eq!(books.in_flight(), rows.len() as u64);
        let said = state.machine.error().unwrap();
        assert!(said.contains("policies.backpressure"), "{said}");
    }
    let (_feed, lane, taken) = full(Backpressure::Block, events);
    assert!(taken < events);
    assert_eq!(lane.state.lock().machine.books().dropped, 0);
}

#[test]
fn what_was_full_once_is_kept_whole_when_it_was_emptied() {
    let (feed, lane, _) = full(Backpressure::DropNewest, 1_000);
    {
        // As the writer takes rows.
        let mut state = lane.state.lock();
        let rows = std::mem::take(&mut state.output);
        state
            .machine
            .delivered(rows.rows.len() as u64, rows.events());
        state.kept = None;
    }
    let few: Vec<String> = (0..100).map(payload).collect();
    let batch = few.iter().map(|payload| Message {
        topic: "t",
        payload: payload.as_bytes(),
        ..Message::default()
    });
    assert_eq!(feed.deliver(&batch.collect::<Vec<_>>()), Delivery::Taken);
    assert_eq!(numbers(&lane).len(), 100);
}

/// A server that answers only while it is let.
async fn server(open: Arc<AtomicBool>, got: Arc<Mutex<Vec<u64>>>) -> std::net::SocketAddr {
    let take = move |row: axum::Json<Json>| {
        let (open, got) = (open.clone(), got.clone());
        async move {
            if !open.load(Ordering::SeqCst) {
                return StatusCode::SERVICE_UNAVAILABLE;
            }
            got.lock().push(row["n"].as_u64().unwrap());
            StatusCode::OK
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = Router::new().route("/in", post(take));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

fn statement(name: &str, text: &str, policy: &str, target: &str) -> NewStatement {
    serde_json::from_value(json!({
        "name": name, "text": text, "targets": [target],
        "policies": {"backpressure": policy, "on_error": "dead_letter"},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_server_disturbs_nobody_where_rows_may_be_dropped() {
    let house = House::open().await;
    let (open, got) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let address = server(Arc::clone(&open), Arc::clone(&got)).await;
    let url = format!("http://{address}/in");
    let text = "SELECT n, pad FROM mqtt.\"t\"";
    for (name, policy) in [("oldest", "drop_oldest"), ("newest", "drop_newest")] {
        house
            .fusion
            .add(statement(name, text, policy, &url))
            .await
            .unwrap();
    }
    house
        .add_named(
            "others",
            "INSERT INTO mqtt.\"others\" SELECT n FROM mqtt.\"t\"",
        )
        .await;
    let others = Arc::new(Collector::default());
    house
        .mqtt
        .subscribe("others".parse().unwrap(), others.clone());
    for n in 0..1_500 {
        house.publish("t", &payload(n));
    }
    wait("the others have theirs", || others.0.lock().len() == 1_500).await;
    let is_whole = |name: &str| {
        let info = house.fusion.statement(name).unwrap();
        let settled = info.filtered_total + info.emitted_from_total + info.errored_total;
        let settled = settled + info.late_total + info.dropped_total + info.in_flight;
        assert_eq!(settled, info.received_total, "{info:?}");
        info
    };
    for name in ["oldest", "newest"] {
        let info = is_whole(name);
        assert_eq!(info.received_total, 1_500);
        assert!(info.dropped_total > 500, "{info:?}");
        assert_eq!(info.emitted_total, 0);
    }
    open.store(true, Ordering::SeqCst);
    let mut emitted = 0;
    for name in ["oldest", "newest"] {
        let info = house.until(name, |info| info.in_flight == 0).await;
        assert_eq!(info.emitted_total + info.dropped_total, 1_500);
        emitted += info.emitted_total;
    }
    let got = got.lock().clone();
    assert_eq!(got.len() as u64, emitted);
    // The last is among what the one kept, the first among what the other did.
    assert!(got.contains(&1_499) && got.contains(&0));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_for_internal_streams_are_never_dropped() {
    let house = House::open().await;
    let text = "insert into H select n from mqtt.t";
    let new: NewStatement = serde_json::from_value(json!({
        "text": text, "language": "epl", "policies": {"backpressure": "drop_newest"},
    }))
    .unwrap();
    match house.fusion.add(new).await {
        Err(FusionError::Refused(why)) => assert!(why.contains("internal streams"), "{why}"),
        other => panic!("{other:?}"),
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_statement_behind_an_internal_stream_holds_the_source_back() {
    let house = House::open().await;
    let (open, got) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let address = server(Arc::clone(&open), Arc::clone(&got)).await;
    let first: NewStatement = serde_json::from_value(json!({
        "name": "first", "text": "insert into H select n, pad from Raw", "language": "epl",
    }))
    .unwrap();
    let second: NewStatement = serde_json::from_value(json!({
        "name": "second", "text": "select n, pad from H", "language": "epl",
        "targets": [format!("http://{address}/in")],
    }))
    .unwrap();
    house.fusion.add(first).await.unwrap();
    house.fusion.add(second).await.unwrap();
    let (mqtt, sent) = (house.mqtt.clone(), 600);
    let publishing = tokio::spawn(async move {
        let topic: mqtt::TopicName = "/raw/a".parse().unwrap();
        for n in 0..sent {
            let payload = payload(n);
            while mqtt
                .publish(&topic, payload.as_bytes(), Qos::AtLeastOnce, false)
                .is_err()
            {
                mqtt.room(&topic).await;
            }
        }
    });
    house.until("second", |info| info.waiting_rows > 200).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let waiting = house.fusion.statement("second").unwrap().waiting_rows;
    assert!(
        waiting * (PAD as u64) < 2 * OUTPUT_BYTES_MAX as u64,
        "{waiting}"
    );
    open.store(true, Ordering::SeqCst);
    house
        .until("second", |info| info.emitted_total == sent as u64)
        .await;
    publishing.await.unwrap();
    let got = got.lock().clone();
    assert_eq!(got, (0..sent as u64).collect::<Vec<_>>());
    house.close().await;
}
