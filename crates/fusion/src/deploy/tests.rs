//! The DFM's API and desired state, with real servers, stores and nodes.

mod fresh;
mod later;
mod polls;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::SystemClock;
use mqtt::{Delivery, Message, MessageSink, Qos, Server};
use parking_lot::Mutex;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value as Json, json};
use streams::EventStore;

use super::dfm::{self, Operation, Surroundings};
use super::seal::to_base64;
use super::{Keys, Node, NodeConfig, Refused, desired, seal};
use crate::tests::house::{http, stores, wait};
use crate::{Fusion, FusionConfig, Status};

#[test]
fn control_topics_of_every_age_name_their_operation() {
    let id = || "7".to_owned();
    for (topic, operation) in [
        ("/statement/add", Some(Operation::Add(None))),
        ("statement/add/", Some(Operation::Add(None))),
        ("/statement/EsperEngine/add", Some(Operation::Add(None))),
        ("/statement/new/7", Some(Operation::Add(Some(id())))),
        ("/statement/get", Some(Operation::Get(None))),
        ("/statement/get/7", Some(Operation::Get(Some(id())))),
        ("/statement/update/7", Some(Operation::Update(id()))),
        ("statement/delete/7/", Some(Operation::Delete(id()))),
        ("/statement/errors/", None),
        ("/statement/update", None),
        ("/statement/add/7/8", None),
        ("/other/add", None),
    ] {
        assert_eq!(dfm::operation(topic), operation, "{topic}");
    }
}

#[test]
fn an_envelope_says_who_is_meant_and_where_the_answer_goes() {
    let statement = json!({"name": "n", "statement": "SELECT 1", "stateLifecycle": "RUN"});
    let bytes: Vec<i64> = statement
        .to_string()
        .bytes()
        .map(|byte| i64::from(byte as i8))
        .collect();
    let resources = [
        json!(to_base64(statement.to_string().as_bytes())),
        json!(bytes),
        statement.clone(),
    ];
    for resource in resources {
        let envelope = json!({"id": "1", "resource": resource, "requestType": "MQTT",
            "returnEndpoint": "a", "returnErrorEndpoint": "e", "targets": []});
        let request = dfm::request(envelope.to_string().as_bytes(), "me").unwrap();
        assert_eq!(request.resource.unwrap()["statelifecycle"], "RUN");
        assert_eq!(
            (request.answer_to.as_deref(), request.error_to.as_deref()),
            (Some("a"), Some("e"))
        );
        assert!(request.is_meant && !request.is_raw);
    }
    for (targets, is_meant) in [
        (json!(null), false),
        (json!([]), true),
        (json!(["me", "you"]), true),
        (json!(["you"]), false),
    ] {
        let envelope = json!({"targets": targets}).to_string();
        assert_eq!(
            dfm::request(envelope.as_bytes(), "me").unwrap().is_meant,
            is_meant
        );
    }
    let absent = dfm::request(b"{\"id\":\"1\"}", "me").unwrap();
    assert!(!absent.is_meant, "without targets nobody takes it");
    let raw = dfm::request(statement.to_string().as_bytes(), "me").unwrap();
    assert!(raw.is_raw && raw.is_meant);
    for wrong in ["x", "3", "{\"resource\":\"!\",\"targets\":[]}"] {
        assert!(dfm::request(wrong.as_bytes(), "me").is_err(), "{wrong}");
    }
}

#[test]
fn a_dfm_statement_becomes_one_of_ours() {
    let servers = BTreeMap::from([("shop".to_owned(), "http://shop:1/".to_owned())]);
    let node = NodeConfig {
        id: "me".to_owned(),
        code: "code".to_owned(),
        ..NodeConfig::default()
    };
    let around = Surroundings {
        node: &node,
        servers: &servers,
        has_bridge: &|name| name == "cloud",
    };
    let asked = |extra: Json| {
        let mut statement = json!({"name": "n", "statement": "SELECT v FROM mqtt.\"t\""});
        for (name, value) in extra.as_object().unwrap() {
            statement[name] = value.clone();
        }
        let resource = dfm::resource(statement.to_string().as_bytes()).unwrap();
        dfm::asked(&resource, None, &around)
    };
    let plain = asked(json!({})).unwrap();
    let id = plain.new.id.clone().unwrap();
    assert_eq!(id.len(), 64, "the id is a hash");
    assert_eq!(asked(json!({})).unwrap().new.id, Some(id.clone()));
    assert_eq!(
        plain.new.targets,
        [format!("mqtt:LS/code/me/OGC/1.0/Datastreams/{id}")]
    );
    let elsewhere = json!({"output": ["a"], "scope": ["cloud", "outgoing"], "id": "x"});
    let elsewhere = asked(elsewhere).unwrap();
    assert_eq!(elsewhere.new.targets, ["mqtt@cloud:a", "mqtt:a"]);
    let own = asked(json!({"scope": ["cloud"], "id": "x"})).unwrap();
    assert_eq!(
        own.new.targets,
        ["mqtt@cloud:LS/code/me/OGC/1.0/Datastreams/x"]
    );
    let several = asked(json!({"output": ["/a", "b"], "scope": ["outgoing"], "id": "x"})).unwrap();
    assert_eq!(several.new.targets, ["mqtt:/a", "mqtt:b"]);
    assert_eq!(several.new.id.as_deref(), Some("x"));
    let posted = asked(json!({"publisher": "HTTP_POST", "scope": ["shop"], "output": ["/in"]}));
    assert_eq!(posted.unwrap().new.targets, ["http://shop:1/in"]);
    let got = json!({"publisher": "REST_GET", "scope": ["shop"], "output": ["/in"], "id": "x"});
    let got = asked(got).unwrap();
    assert!(got.new.targets.is_empty(), "its rows go nowhere");
    let polled = dfm::polled(&got.origin).unwrap();
    assert_eq!(polled.to_string(), "get@shop:/in");
    for (extra, says) in [
        (json!({"statement": ""}), "no text"),
        (json!({"name": ""}), "no name"),
        (json!({"scope": ["mars"]}), "no broker"),
        (
            json!({"publisher": "REST_POST", "scope": ["mars"]}),
            "no server",
        ),
        (json!({"publisher": "HTTP_GET"}), "needs a scope"),
        (
            json!({"publisher": "HTTP_GET", "scope": ["mars"]}),
            "no server",
        ),
        (json!({"publisher": "SMTP"}), "not known"),
        (json!({"stateLifecycle": "SLEEP"}), "life cycle"),
        (json!({"output": [1]}), "list of texts"),
    ] {
        let error = asked(extra).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_signature_counts_for_its_key_topic_and_payload_alone() {
    let (key, keys) = keys();
    let keys = Keys::new(&keys).unwrap();
    let sealed = serde_json::to_vec(&seal("ops", &key, "t", b"hello")).unwrap();
    assert_eq!(
        keys.open("t", &sealed),
        Ok((b"hello".to_vec(), "ops".to_owned()))
    );
    assert_eq!(
        keys.open("u", &sealed),
        Err(Refused::Wrong("ops".to_owned()))
    );
    let mut other = seal("ops", &key, "t", b"hello");
    other.payload = to_base64(b"hullo");
    let other = serde_json::to_vec(&other).unwrap();
    assert_eq!(
        keys.open("t", &other),
        Err(Refused::Wrong("ops".to_owned()))
    );
    let foreign = serde_json::to_vec(&seal("who", &key, "t", b"")).unwrap();
    assert_eq!(
        keys.open("t", &foreign),
        Err(Refused::UnknownKey("who".to_owned()))
    );
    assert_eq!(keys.open("t", b"{}"), Err(Refused::Unsigned));
    assert!(Keys::new(&BTreeMap::from([("a".to_owned(), "AAAA".to_owned())])).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dfms_control_topics_add_tell_update_and_delete() {
    let yard = Yard::open(1, true).await;
    let answers = yard.hear("answers/#");
    let rows = yard.hear("rows/+");
    let send = |operation: &str, targets: Json, statement: Json| {
        let envelope = json!({
            "id": "q", "requestType": "MQTT", "targets": targets,
            "resource": to_base64(statement.to_string().as_bytes()),
            "returnEndpoint": "answers/good", "returnErrorEndpoint": "answers/bad",
        });
        yard.publish(
            &format!("/statement/{operation}"),
            envelope.to_string().as_bytes(),
            false,
        );
    };
    let statement = |text: &str| json!({"name": "hot", "statement": text, "output": ["rows/a"]});
    let hot = "SELECT v FROM mqtt.\"in\" WHERE v > 5";
    send("add", json!(["node-9"]), statement(hot));
    send("add", json!([]), statement(hot));
    wait("the answer", || answers.count() == 1).await;
    let (topic, answer) = answers.last();
    let response = &answer["responses"][0];
    assert_eq!(
        (topic.as_str(), &answer["id"]),
        ("answers/good", &json!("q"))
    );
    assert_eq!(
        (&response["status"], &response["messageType"]),
        (&json!(201), &json!("SUCCESS"))
    );
    assert_eq!(response["agentID"], "node-0");
    let id = response["producerID"].as_str().unwrap().to_owned();
    assert_eq!(answer["resources"][&id]["statement"], hot);
    assert_eq!(answer["resources"][&id]["stateLifecycle"], "RUN");

    yard.publish("in", b"{\"v\":3}", false);
    yard.publish("in", b"{\"v\":9}", false);
    wait("the row", || rows.count() == 1).await;
    assert_eq!(rows.last().1["result"], 9);

    for (operation, statement, status) in [
        ("add".to_owned(), statement(hot), 409),
        (format!("update/{id}"), statement(hot), 304),
        (
            format!("update/{id}"),
            statement("SELECT v FROM mqtt.\"in\" WHERE v > 2"),
            200,
        ),
        (
            format!("update/{id}"),
            statement("SELECT v FORM mqtt.x"),
            400,
        ),
        ("get/nobody".to_owned(), json!({}), 404),
        ("get".to_owned(), json!({}), 200),
        (format!("delete/{id}"), json!({}), 200),
        (format!("delete/{id}"), json!({}), 404),
    ] {
        let before = answers.count();
        send(&operation, json!(["node-0"]), statement);
        wait("the answer", || answers.count() == before + 1).await;
        let (topic, answer) = answers.last();
        assert_eq!(
            answer["responses"][0]["status"], status,
            "{operation}: {answer}"
        );
        assert_eq!(
            topic,
            if status < 400 {
                "answers/good"
            } else {
                "answers/bad"
            }
        );
    }
    assert_eq!(yard.nodes[0].fusion().statements().len(), 0);

    // The form of 2016: the statement itself, on topics without the first slash.
    let old = yard.hear("statement/#");
    let paused = json!({"name": "old", "statement": hot, "stateLifecycle": "PAUSE", "ID": "o"});
    yard.publish("statement/add/", paused.to_string().as_bytes(), false);
    wait("the answer", || {
        old.0
            .lock()
            .iter()
            .any(|(topic, _)| topic == "statement/onode-0/")
    })
    .await;
    assert_eq!(
        yard.nodes[0].fusion().statement("o").unwrap().status,
        Status::Paused
    );
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsigned_control_is_refused_and_written_down() {
    let yard = Yard::open(1, false).await;
    let audit = yard.hear("thalweg/audit/+");
    let (answers, errors) = (yard.hear("answers"), yard.hear("/statement/errors/"));
    let statement = json!({"name": "n", "statement": "SELECT v FROM mqtt.\"in\""});
    let envelope = json!({"id": "q", "resource": statement, "targets": [],
        "returnEndpoint": "answers", "returnErrorEndpoint": "answers"});
    let envelope = envelope.to_string();
    yard.publish("/statement/add", envelope.as_bytes(), false);
    wait("the refusal", || audit.count() == 1 && errors.count() == 1).await;
    let (_, refusal) = errors.last();
    assert_eq!(refusal["responses"][0]["status"], 403);
    assert!(
        refusal["id"].is_null() && answers.count() == 0,
        "nobody chooses what is said, and where: {refusal}"
    );
    assert!(
        audit.last().1["why"]
            .as_str()
            .unwrap()
            .contains("not signed")
    );
    assert_eq!(yard.nodes[0].fusion().statements().len(), 0);
    // Signed for another topic it does not count either; signed for this one it does.
    let other = yard.sealed("/statement/new/x", envelope.as_bytes());
    yard.publish("/statement/add", &other, false);
    wait("the refusal", || audit.count() == 2).await;
    let signed = yard.sealed("/statement/add", envelope.as_bytes());
    yard.publish("/statement/add", &signed, false);
    wait("the statement", || {
        yard.nodes[0].fusion().statements().len() == 1
    })
    .await;
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_deploys_to_fifty_nodes_and_each_answers_once() {
    let mut yard = Yard::open(50, false).await;
    let answers = yard.hear("thalweg/answers/+/+");
    let audit = yard.hear("thalweg/audit/+");
    let form = |text: &str| json!({"text": text});
    yard.desire("a", 1, json!({}), Some(form("SELECT v FROM mqtt.\"in\"")));
    wait("fifty answers", || answers.count() == 50).await;
    assert!(answers.all(|answer| answer["status"] == 200 && answer["message"] == "added"));
    let mut nodes: Vec<String> = answers
        .0
        .lock()
        .iter()
        .map(|(topic, _)| topic.clone())
        .collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 50, "each node answers on its own topic");

    // By label, and by id: the others lose what they had.
    answers.clear();
    let even = json!({"labels": {"side": "even"}, "ids": ["node-2", "node-3", "node-4"]});
    yard.desire(
        "a",
        2,
        even,
        Some(form("SELECT v + 1 AS v FROM mqtt.\"in\"")),
    );
    wait("fifty answers", || answers.count() == 50).await;
    let running = |yard: &Yard| {
        let has = |node: &&Arc<Node>| node.fusion().statement("desired.a").is_ok();
        yard.nodes.iter().filter(has).count()
    };
    assert_eq!(running(&yard), 2);
    assert_eq!(
        yard.nodes[2]
            .fusion()
            .statement("desired.a")
            .unwrap()
            .generation,
        1
    );

    // A node that is away converges when it is back, over several generations.
    let away = yard.nodes.remove(2);
    away.close().await;
    away.fusion().close().await;
    drop(away);
    answers.clear();
    yard.desire(
        "a",
        3,
        json!({}),
        Some(form("SELECT v + 3 AS v FROM mqtt.\"in\"")),
    );
    yard.desire(
        "a",
        4,
        json!({}),
        Some(form("SELECT v + 4 AS v FROM mqtt.\"in\"")),
    );
    wait("the others' answers", || answers.count() == 98).await;
    let back = yard.node(2, false).await;
    yard.nodes.push(back);
    wait("the late answer", || answers.count() == 99).await;
    assert_eq!(answers.last().1["generation"], 4);
    assert!(yard.nodes.iter().all(|node| {
        let info = node.fusion().statement("desired.a").unwrap();
        info.text.contains("v + 4")
    }));

    // A bad one is refused by all alike, and what ran goes on.
    answers.clear();
    yard.desire("a", 5, json!({}), Some(form("SELECT FROM")));
    wait("fifty refusals", || answers.count() == 50).await;
    assert!(answers.all(|answer| answer["status"] == 400));
    assert_eq!(running(&yard), 50);

    // Older ones, unsigned ones and those of other keys change nothing and are written down.
    let before = audit.count();
    yard.desire("a", 3, json!({}), None);
    wait("fifty refusals", || audit.count() == before + 50).await;
    let (foreign, _) = keys();
    let message = json!({"name": "a", "generation": 9, "statement": null}).to_string();
    let forged = seal("ops", &foreign, &desired::topic("a"), message.as_bytes());
    let forged = serde_json::to_vec(&forged).unwrap();
    yard.publish(&desired::topic("a"), &forged, false);
    yard.publish(&desired::topic("a"), message.as_bytes(), false);
    wait("refusals", || audit.count() == before + 150).await;
    assert_eq!(running(&yard), 50);

    answers.clear();
    yard.desire("a", 6, json!({}), None);
    wait("fifty answers", || answers.count() == 50).await;
    assert_eq!(running(&yard), 0);
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn books_are_published_and_told_as_metrics() {
    let yard = Yard::open(1, false).await;
    let books = yard.hear("thalweg/books/node-0/+");
    let form = json!({"name": "told", "text": "SELECT v FROM mqtt.\"in\" WHERE v > 1"});
    let fusion = yard.nodes[0].fusion();
    fusion
        .add(serde_json::from_value(form).unwrap())
        .await
        .unwrap();
    yard.publish("in", b"{\"v\":1}", false);
    yard.publish("in", b"{\"v\":2}", false);
    wait("the books", || {
        books
            .0
            .lock()
            .iter()
            .any(|(_, book)| book["emitted_total"] == 1)
    })
    .await;
    let (topic, book) = books.last();
    assert_eq!(
        topic,
        format!("thalweg/books/node-0/{}", book["id"].as_str().unwrap())
    );
    assert_eq!(
        (&book["received_total"], &book["filtered_total"]),
        (&json!(2), &json!(1))
    );
    let mut out = base::Exposition::default();
    fusion.observe(&mut out);
    let text = out.into_text();
    for line in [
        "thalweg_fusion_statement_received_total{statement=\"told\"} 2",
        "thalweg_fusion_statement_events{statement=\"told\",outcome=\"filtered\"} 1",
        "thalweg_fusion_statement_events{statement=\"told\",outcome=\"in_flight\"} 0",
    ] {
        assert!(text.contains(line), "{text}");
    }
    yard.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dfms_rest_api_works_as_it_did() {
    let yard = Yard::open(1, false).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let routes = super::routes(yard.nodes[0].clone());
    let server = tokio::spawn(async move { axum::serve(listener, routes).await });
    let call = |method: &'static str, path: &str, body: Json| {
        http(address, method, path.to_owned(), body.to_string())
    };
    let rows = yard.hear("rows");
    let form = json!({"id": "s", "name": "n", "statement": "SELECT v FROM mqtt.\"in/x\"", "output": ["rows"]});
    let (status, answer) = call("POST", "/statement/", form.clone()).await;
    assert_eq!(
        (status, &answer["responses"][0]["status"]),
        (201, &json!(201)),
        "{answer}"
    );
    assert_eq!(call("POST", "/statement/", form.clone()).await.0, 409);
    let (status, all) = call("GET", "/statement/", Json::Null).await;
    assert_eq!((status, &all["resources"]["s"]["name"]), (200, &json!("n")));
    assert_eq!(call("GET", "/statement/?id=s", Json::Null).await.0, 200);
    assert_eq!(call("POST", "/event/in/x", json!({"v": 4})).await.0, 200);
    wait("the row", || rows.count() == 1).await;
    assert_eq!(rows.last().1["result"], 4);
    assert_eq!(call("PUT", "/statement/s", form.clone()).await.0, 304);
    let mut paused = form.clone();
    paused["stateLifecycle"] = json!("PAUSE");
    assert_eq!(call("PUT", "/statement/EsperEngine/s", paused).await.0, 200);
    assert_eq!(
        yard.nodes[0].fusion().statement("s").unwrap().status,
        Status::Paused
    );
    let (status, answer) = call(
        "POST",
        "/statement/",
        json!({"name": "n", "statement": "SELEC"}),
    )
    .await;
    assert_eq!(
        (status, &answer["responses"][0]["messageType"]),
        (400, &json!("CLIENT_ERROR"))
    );
    assert_eq!(call("POST", "/execute/", form).await.0, 400);
    let window =
        json!({"id": "w", "name": "w", "statement": "create window W#keepall as (k string)"});
    assert_eq!(call("POST", "/statement/", window).await.0, 201);
    for text in ["insert into W (k) values ('x')", "select k from W"] {
        let once = json!({"id": "q", "name": "q", "statement": text});
        let (status, answer) = call("POST", "/execute/", once).await;
        let rows = match text.starts_with("select") {
            true => json!([{"k": "x"}]),
            false => answer["resources"]["q"].clone(),
        };
        assert_eq!(
            (status, &answer["resources"]["q"]),
            (200, &rows),
            "{answer}"
        );
    }
    assert_eq!(call("DELETE", "/statement/w", Json::Null).await.0, 200);
    assert_eq!(call("POST", "/event/a/%23", json!({})).await.0, 400);
    assert_eq!(call("DELETE", "/statement/s", Json::Null).await.0, 200);
    assert_eq!(call("GET", "/statement/s", Json::Null).await.0, 404);
    server.abort();
    yard.close().await;
}

/// Nodes on one server and one event store.
struct Yard {
    folder: tempfile::TempDir,
    store: Arc<dyn EventStore>,
    server: Server,
    key: Ed25519KeyPair,
    keys: BTreeMap<String, String>,
    nodes: Vec<Arc<Node>>,
    /// What all nodes are configured with.
    config: FusionConfig,
}

impl Yard {
    async fn open(count: usize, allow_unsigned: bool) -> Yard {
        Yard::open_with(count, allow_unsigned, FusionConfig::default()).await
    }

    async fn open_with(count: usize, allow_unsigned: bool, config: FusionConfig) -> Yard {
        let folder = tempfile::tempdir().unwrap();
        let (store, server) = stores(folder.path());
        let (key, keys) = keys();
        let mut yard = Yard {
            folder,
            store,
            server,
            key,
            keys,
            nodes: Vec::new(),
            config,
        };
        for index in 0..count {
            let node = yard.node(index, allow_unsigned).await;
            yard.nodes.push(node);
        }
        yard
    }

    async fn node(&self, index: usize, allow_unsigned: bool) -> Arc<Node> {
        let side = if index.is_multiple_of(2) {
            "even"
        } else {
            "odd"
        };
        let mut config = FusionConfig {
            node: NodeConfig {
                id: format!("node-{index}"),
                labels: BTreeMap::from([("side".to_owned(), side.to_owned())]),
                books_interval: base::HumanDuration(std::time::Duration::from_millis(200)),
                ..NodeConfig::default()
            },
            ..self.config.clone()
        };
        config.control.allow_unsigned = allow_unsigned;
        config.control.keys.clone_from(&self.keys);
        let folder: &Path = self.folder.path();
        let dir = folder.join(format!("fusion-{index}"));
        let (store, clock) = (self.store.clone(), Arc::new(SystemClock));
        let opened = Fusion::open(&dir, config, store, Some(self.server.clone()), clock).await;
        let marks = folder.join(format!("desired-{index}.json"));
        Node::open(opened.unwrap(), Some(self.server.clone()), &marks).unwrap()
    }

    fn hear(&self, filter: &str) -> Arc<Heard> {
        let heard = Arc::new(Heard::default());
        self.server
            .subscribe(filter.parse().unwrap(), heard.clone());
        heard
    }

    fn publish(&self, topic: &str, payload: &[u8], retain: bool) {
        let topic = topic.parse().unwrap();
        self.server
            .publish(&topic, payload, Qos::AtLeastOnce, retain)
            .unwrap();
    }

    fn sealed(&self, topic: &str, payload: &[u8]) -> Vec<u8> {
        serde_json::to_vec(&seal("ops", &self.key, topic, payload)).unwrap()
    }

    fn desire(&self, name: &str, generation: u64, selector: Json, statement: Option<Json>) {
        let desired = json!({"name": name, "generation": generation, "selector": selector, "statement": statement});
        let topic = desired::topic(name);
        let sealed = self.sealed(&topic, desired.to_string().as_bytes());
        self.publish(&topic, &sealed, true);
    }

    async fn close(self) {
        for node in &self.nodes {
            node.close().await;
            node.fusion().close().await;
        }
        self.server.close().await;
    }
}

/// What was published, by topic.
#[derive(Default)]
struct Heard(Mutex<Vec<(String, Json)>>);

impl Heard {
    fn count(&self) -> usize {
        self.0.lock().len()
    }

    fn last(&self) -> (String, Json) {
        self.0.lock().last().unwrap().clone()
    }

    fn all(&self, is_so: impl Fn(&Json) -> bool) -> bool {
        self.0.lock().iter().all(|(_, message)| is_so(message))
    }

    fn clear(&self) {
        self.0.lock().clear();
    }
}

impl MessageSink for Heard {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        let heard = batch
            .iter()
            .filter(|message| !message.retain)
            .map(|message| {
                let read = serde_json::from_slice(message.payload).unwrap_or(Json::Null);
                (message.topic.to_owned(), read)
            });
        self.0.lock().extend(heard);
        Delivery::Taken
    }
}

fn keys() -> (Ed25519KeyPair, BTreeMap<String, String>) {
    let mut seed = [0; 32];
    base::Rng::from_entropy().fill(&mut seed);
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).unwrap();
    let public = to_base64(key.public_key().as_ref());
    (key, BTreeMap::from([("ops".to_owned(), public)]))
}
