//! The index in OpenSearch, against a small double of its HTTP API: what is asked of it here is what
//! its documentation tells, and no server of its own ran in this test.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::routing::{any, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::json;

use super::*;

/// What the double has.
#[derive(Default)]
pub(super) struct Double {
    /// The index's documents by their ids; none before it is made.
    pub(super) documents: Option<BTreeMap<String, Value>>,
    /// Answers 429 to as many bulk requests, and refuses single records of as many more.
    busy: usize,
    partly: usize,
    bulks: usize,
    wrong_logins: usize,
}

pub(super) type Shared = Arc<Mutex<Double>>;

pub(super) async fn double() -> (Shared, String) {
    let shared = Shared::default();
    let routes = Router::new()
        .route("/books", any(index))
        .route("/books/{step}", post(step).get(step))
        .with_state(shared.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (shared, format!("http://ann:s%40cret@{address}/books"))
}

async fn index(State(shared): State<Shared>, method: Method) -> (StatusCode, Json<Value>) {
    let mut double = shared.lock();
    let found = if double.documents.is_some() {
        StatusCode::OK
    } else {
        StatusCode::NOT_FOUND
    };
    match method {
        Method::PUT => double.documents = Some(BTreeMap::new()),
        Method::DELETE => double.documents = None,
        _ => return (found, Json(json!({}))),
    }
    (StatusCode::OK, Json(json!({"acknowledged": true})))
}

async fn step(
    State(shared): State<Shared>,
    Path(step): Path<String>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, Json<Value>) {
    let mut double = shared.lock();
    // ann:s@cret
    if headers
        .get("authorization")
        .is_none_or(|given| given != "Basic YW5uOnNAY3JldA==")
    {
        double.wrong_logins += 1;
        return (StatusCode::UNAUTHORIZED, Json(json!({})));
    }
    let Some(documents) = &mut double.documents else {
        return (
            StatusCode::NOT_FOUND,
            Json(json!({"error": {"reason": "no such index"}})),
        );
    };
    let answer = match step.as_str() {
        "_count" => json!({"count": documents.len()}),
        "_search" => search(documents, &serde_json::from_str(&body).unwrap()),
        "_refresh" => json!({}),
        "_delete_by_query" => {
            let asked: Value = serde_json::from_str(&body).unwrap();
            let tenant = &asked["query"]["term"]["tenant"];
            let before = documents.len();
            documents.retain(|_, document| document["tenant"] != *tenant);
            json!({"deleted": before - documents.len()})
        }
        "_bulk" => return bulk(&mut double, &body),
        other => panic!("{other}"),
    };
    (StatusCode::OK, Json(answer))
}

fn bulk(double: &mut Double, body: &str) -> (StatusCode, Json<Value>) {
    double.bulks += 1;
    if double.busy > 0 {
        double.busy -= 1;
        return (
            StatusCode::TOO_MANY_REQUESTS,
            Json(json!({"error": {"reason": "busy"}})),
        );
    }
    assert!(body.ends_with('\n') && body.len() <= crate::limits::BULK_BYTES_MAX + 100_000);
    let lines: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut items = Vec::new();
    for (number, pair) in lines.chunks(2).enumerate() {
        let id = pair[0]["index"]["_id"].as_str().unwrap().to_owned();
        if double.partly > 0 && number % 2 == 1 {
            let error = json!({"reason": "rejected execution"});
            items.push(json!({"index": {"_id": id, "status": 429, "error": error}}));
            continue;
        }
        double
            .documents
            .as_mut()
            .unwrap()
            .insert(id.clone(), pair[1].clone());
        items.push(json!({"index": {"_id": id, "status": 201}}));
    }
    let errors = items.iter().any(|item| item["index"]["status"] == 429);
    double.partly = double.partly.saturating_sub(1);
    (
        StatusCode::OK,
        Json(json!({"errors": errors, "items": items})),
    )
}

/// What the server makes of a query: every term in title or text, in words without their case.
fn search(documents: &BTreeMap<String, Value>, asked: &Value) -> Value {
    let tenant = &asked["query"]["bool"]["filter"][0]["term"]["tenant"];
    let musts = asked["query"]["bool"]["must"].as_array().unwrap();
    let words = |text: &str| -> Vec<String> {
        let parts = text.split(|one: char| !one.is_alphanumeric());
        parts
            .filter(|part| !part.is_empty())
            .map(str::to_lowercase)
            .collect()
    };
    let has = |document: &Value, must: &Value| {
        let must = &must["multi_match"];
        let wanted = words(must["query"].as_str().unwrap());
        let is_prefix = must["type"] == "phrase_prefix";
        must["fields"].as_array().unwrap().iter().any(|field| {
            let text = words(
                document[field.as_str().unwrap()]
                    .as_str()
                    .unwrap_or_default(),
            );
            text.windows(wanted.len()).any(|found| {
                let last = wanted.len() - 1;
                found[..last] == wanted[..last]
                    && (found[last] == wanted[last]
                        || is_prefix && found[last].starts_with(&wanted[last]))
            })
        })
    };
    let found: Vec<&Value> = documents
        .values()
        .filter(|document| document["tenant"] == *tenant)
        .filter(|document| musts.iter().all(|must| has(document, must)))
        .collect();
    let [from, size] = ["from", "size"].map(|name| asked[name].as_u64().unwrap() as usize);
    let hits: Vec<Value> = found
        .iter()
        .skip(from)
        .take(size)
        .map(|one| json!({"_source": one}))
        .collect();
    json!({"hits": {"total": {"value": found.len()}, "hits": hits}})
}

fn config(address: String) -> ImportsConfig {
    ImportsConfig {
        opensearch: Some(address.into()),
        ..small_slices(20)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_in_opensearch_as_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, address) = double().await;
    let service = Service::open(folder.path(), config(address.clone())).await;
    let id = service
        .import("format=marc&tenant=one&sink=records", books(0..60))
        .await;
    service.ended(&id).await;
    let line = "{\"id\":1,\"title\":\"Hours\",\"n\":\"The e\u{301}dition\"}\n";
    let id = service.import("format=jsonl&tenant=two&key=id", line).await;
    service.ended(&id).await;
    service.indexed().await;
    let total = |query: &str| {
        let path = format!("/api/v1/search?{query}");
        let service = &service;
        async move { service.get(&path).await["total"].clone() }
    };
    let found = service.get("/api/v1/search?tenant=one&q=book%2017").await;
    assert_eq!(
        (&found["total"], &found["records"][0]["id"]),
        (&1.into(), &"00000017".into())
    );
    assert!(
        found["records"][0]["title"]
            .as_str()
            .unwrap()
            .contains("number 17"),
        "{found}"
    );
    assert_eq!(total("tenant=one&q=boo*").await, 60);
    assert_eq!(total("tenant=two&q=edition").await, 1);
    assert_eq!(total("tenant=two&q=%22the%20edition%22").await, 1);
    assert_eq!(total("tenant=two&q=%22edition%20the%22").await, 0);
    assert_eq!(total("tenant=one&q=hours").await, 0, "another tenant's");
    let line = "{\"id\":1,\"title\":\"Days\"}\n";
    let id = service.import("format=jsonl&tenant=two&key=id", line).await;
    service.ended(&id).await;
    service.indexed().await;
    assert_eq!(
        (
            total("tenant=two&q=hours").await,
            total("tenant=two&q=days").await
        ),
        (0.into(), 1.into())
    );
    assert_eq!(shared.lock().documents.as_ref().unwrap().len(), 61);
    // Lost there, it is made again from the sink.
    let (status, _) = service.post("/api/v1/search/rebuild").await;
    assert_eq!(status, 202);
    service.indexed().await;
    assert_eq!(total("tenant=one&q=book").await, 60);
    assert_eq!(shared.lock().wrong_logins, 0);
    service.close().await;
    shared.lock().documents = None;
    let service = Service::open(folder.path(), config(address)).await;
    let until = Instant::now() + Duration::from_secs(30);
    while shared
        .lock()
        .documents
        .as_ref()
        .is_none_or(|all| all.len() < 61)
    {
        assert!(Instant::now() < until, "an empty index is not filled");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_busy_or_away_delays_no_job_and_loses_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let (shared, address) = double().await;
    {
        let mut double = shared.lock();
        double.busy = 1;
        double.partly = 1;
    }
    let service = Service::open(folder.path(), config(address)).await;
    let id = service
        .import("format=marc&tenant=one&sink=records", books(0..40))
        .await;
    assert_eq!(service.ended(&id).await["state"], "completed");
    service.indexed().await;
    let double = shared.lock().documents.as_ref().unwrap().len();
    assert_eq!(double, 40, "{} requests", shared.lock().bulks);
    service.close().await;
    // Nobody listens there: the job ends, and a search says what is wrong.
    let away = "http://127.0.0.1:9/books".to_owned();
    let service = Service::open(folder.path(), config(away)).await;
    let id = service
        .import("format=marc&tenant=two&sink=records", books(0..40))
        .await;
    assert_eq!(service.ended(&id).await["state"], "completed");
    let (status, told) = service
        .call("GET", "/api/v1/search?q=book", Body::empty())
        .await;
    assert_eq!(status, 503, "{told}");
    assert!(
        told["message"]
            .as_str()
            .unwrap()
            .contains("127.0.0.1:9/books"),
        "{told}"
    );
    service.close().await;
}
