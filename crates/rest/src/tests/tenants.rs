//! Tenants' retentions over a store whose topics have to be told of them, and schemas of other tenants.

use std::collections::BTreeMap;

use access::TenantChange;
use async_trait::async_trait;
use base::TenantId;
use parking_lot::Mutex;
use streams::{
    Administration, BrokerSetting, ClusterInfo, CommittedOffset, ConfigChange, Consumer, GroupInfo,
    PartitionReplicas, Placed, RetentionChange, StreamsError, TopicInfo,
};
use tokio::sync::Semaphore;

use super::*;

/// What was asked of the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// From a retention to another.
    Began(Option<u64>, Option<u64>),
    Ended,
}

/// Topics that follow when they may.
struct Following {
    told: Mutex<Vec<Told>>,
    began: Semaphore,
    may_end: Semaphore,
    /// What is kept of the tenant at each change that is followed.
    kept: Mutex<Vec<Option<u64>>>,
    is_refused: Mutex<bool>,
}

impl Following {
    fn new() -> Arc<Following> {
        Arc::new(Following {
            told: Mutex::default(),
            began: Semaphore::new(0),
            may_end: Semaphore::new(0),
            kept: Mutex::default(),
            is_refused: Mutex::default(),
        })
    }

    async fn has_begun(&self) {
        self.began.acquire().await.unwrap().forget();
    }
}

#[async_trait]
impl Administration for Following {
    async fn replicas(
        &self,
        _: Option<&TopicName>,
    ) -> Result<BTreeMap<TopicName, Vec<PartitionReplicas>>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn expect_settled(&self) -> Result<(), StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn broker_settings(&self, _: Option<i32>) -> Result<Vec<BrokerSetting>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn alter_broker(
        &self,
        _: Option<i32>,
        _: Vec<ConfigChange>,
        _: bool,
    ) -> Result<(), StreamsError> {
        Err(StreamsError::Closed)
    }
}

#[async_trait]
impl EventStore for Following {
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn create_topic(&self, _: TopicSpec) -> Result<TopicInfo, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn delete_topic(&self, _: &TopicName) -> Result<(), StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn topic(&self, _: &TopicName) -> Result<TopicInfo, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn topic_or_create(&self, _: &TopicName) -> Result<TopicInfo, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn produce(&self, _: ProduceBatch) -> Result<Placed, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn producer_id(&self) -> Result<i64, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn consumer(&self, _: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn committed(
        &self,
        _: &str,
        _: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        Err(StreamsError::Closed)
    }

    async fn follow_retention(
        &self,
        snapshot: &access::Snapshot,
        tenant: &TenantId,
        change: RetentionChange,
    ) -> Result<(), StreamsError> {
        self.told
            .lock()
            .push(Told::Began(change.before, change.now));
        let kept = snapshot.tenants()[tenant].retention_ms;
        self.kept.lock().push(kept);
        self.began.add_permits(1);
        self.may_end.acquire().await.unwrap().forget();
        if *self.is_refused.lock() {
            return Err(StreamsError::Denied("not yours".to_owned()));
        }
        self.told.lock().push(Told::Ended);
        Ok(())
    }
}

struct Port {
    routes: Router,
    access: Arc<Access>,
    store: Arc<Following>,
    _folder: tempfile::TempDir,
}

impl Port {
    fn open() -> Port {
        let folder = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(folder.path()).unwrap());
        let store = Following::new();
        let clock = Arc::new(ManualClock::at(UnixMillis(1_000_000)));
        let told: Arc<dyn EventStore> = store.clone();
        let routes = crate::tenant_management(Arc::clone(&access), Some(told), None, clock);
        Port {
            routes,
            access,
            store,
            _folder: folder,
        }
    }

    /// A call about the tenant, which goes on by itself; its status.
    fn call(&self, method: &str, body: &str) -> tokio::task::JoinHandle<u16> {
        let request = Request::builder()
            .method(method)
            .uri("/api/v1/tenants/acme");
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let answered = self.routes.clone().oneshot(request);
        tokio::spawn(async move { answered.await.unwrap().status().as_u16() })
    }

    fn retention(&self) -> Option<Option<u64>> {
        let acme: TenantId = "acme".parse().unwrap();
        let snapshot = self.access.snapshot();
        let tenant = snapshot.tenants().get(&acme)?;
        Some(tenant.retention_ms)
    }

    fn set(&self, retention_ms: u64) {
        let change = TenantChange {
            retention_ms: Some(Some(retention_ms)),
            ..TenantChange::default()
        };
        let acme = "acme".parse().unwrap();
        self.access.set_tenant(&acme, &change).unwrap();
    }
}

#[tokio::test]
async fn topics_follow_one_change_to_its_end_whoever_waits_and_then_the_next() {
    let port = Port::open();
    let gone = port.call("PUT", r#"{"retention_ms":60000}"#);
    port.store.has_begun().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let next = port.call("PUT", r#"{"retention_ms":90000}"#);
    // What does not touch the retention waits for nobody.
    assert_eq!(port.call("PUT", r#"{"weight":2}"#).await.unwrap(), 200);
    port.store.may_end.add_permits(2);
    assert_eq!(next.await.unwrap(), 200);
    let (first, second) = (Some(60_000), Some(90_000));
    let expected = [
        Told::Began(None, first),
        Told::Ended,
        Told::Began(first, second),
        Told::Ended,
    ];
    assert_eq!(*port.store.told.lock(), expected);
    assert_eq!(port.retention(), Some(second));
}

#[tokio::test]
async fn a_change_that_the_topics_refuse_is_taken_back() {
    let port = Port::open();
    port.set(60_000);
    *port.store.is_refused.lock() = true;
    port.store.may_end.add_permits(1);
    let refused = port.call("PUT", r#"{"retention_ms":null,"weight":2}"#);
    assert_eq!(refused.await.unwrap(), 403);
    assert_eq!(port.retention(), Some(Some(60_000)));
}

#[tokio::test]
async fn a_tenant_has_no_retention_any_more_before_its_topics_let_go_of_it() {
    let port = Port::open();
    port.set(60_000);
    *port.store.is_refused.lock() = true;
    port.store.may_end.add_permits(2);
    assert_eq!(port.call("DELETE", "").await.unwrap(), 403);
    assert_eq!(port.retention(), Some(Some(60_000)));
    *port.store.is_refused.lock() = false;
    assert_eq!(port.call("DELETE", "").await.unwrap(), 204);
    assert_eq!(port.retention(), None);
    assert_eq!(*port.store.kept.lock(), [None, None]);
    assert_eq!(port.call("DELETE", "").await.unwrap(), 404);
}

/// A proxy to which ann of acme and bob of beta come, who may do whatever no ACL names.
fn of_tenants() -> Proxy {
    let logins = |folder: &Path, clock: Arc<dyn Clock>| {
        let access = Arc::new(Access::open(&folder.join("access")).unwrap());
        for (name, tenant) in [("ann", "acme"), ("bob", "beta")] {
            let credential = Credential::of_password(ScramHash::Sha256, name, 4_096).unwrap();
            let change = UserChange::Set(name.to_owned(), credential);
            access.alter_users(&[change]).unwrap();
            let change = serde_json::json!({"members": [format!("User:{name}")]});
            let change: TenantChange = serde_json::from_value(change).unwrap();
            access
                .set_tenant(&tenant.parse().unwrap(), &change)
                .unwrap();
        }
        access.close_to_members(["_schemas".to_owned()]);
        let policy = Policy {
            super_users: Vec::new(),
            allow_if_no_acl: true,
        };
        Some(Logins::new(access, policy, None, clock))
    };
    Proxy::open_for(RestConfig::default(), |store| store, logins)
}

impl Proxy {
    /// Produces a record with this value by version 3; what is answered.
    async fn produce_value(&self, topic: &str, value: serde_json::Value) -> String {
        let cluster = self.store.cluster().await.unwrap().id;
        let path = format!("/v3/clusters/{cluster}/topics/{topic}/records");
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let body = serde_json::json!({ "value": value }).to_string();
        let request = request.body(Body::from(body)).unwrap();
        self.send(request).await.2
    }

    /// The records of a topic of one partition, read with their schemas in each way that there is.
    async fn read_by_schemas(&self, topic: &str) -> [String; 2] {
        let cluster = self.store.cluster().await.unwrap().id;
        let of_3 = format!("/v3/clusters/{cluster}/topics/{topic}/records?timeout_ms=100");
        let (_, of_3) = self.get(&of_3).await;
        let of_1 = format!("/topics/{topic}/partitions/0/messages?offset=0&count=9");
        let request = Request::get(of_1).header("accept", "application/vnd.kafka.avro.v1+json");
        let of_1 = self.send(request.body(Body::empty()).unwrap()).await.2;
        [of_3, of_1]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_writes_or_reads_by_schemas_of_another_tenant() {
    let mut proxy = of_tenants();
    let (of_beta, of_acme) = ("env.ns.beta.ORDERS", "env.ns.acme.ORDERS");
    proxy.create(of_beta, 1).await;
    proxy.create(of_acme, 1).await;
    let schema = r#"{"type":"record","name":"R","fields":[{"name":"salary","type":"int"}]}"#;
    let own = serde_json::json!({"type": "AVRO", "schema": schema, "data": {"salary": 7}});

    proxy.call_as("bob");
    let told = proxy.produce_value(of_beta, own.clone()).await;
    let receipt: serde_json::Value = serde_json::from_str(&told).unwrap();
    let id = receipt["value"]["schema_id"].as_i64().unwrap();
    let by_id = serde_json::json!({"schema_id": id, "data": {"salary": 7}});
    let told = proxy.produce_value(of_beta, by_id.clone()).await;
    assert!(told.contains("\"offset\":1"), "{told}");
    for told in proxy.read_by_schemas(of_beta).await {
        assert!(told.contains("salary"), "{told}");
    }

    proxy.call_as("ann");
    let subject = format!("{of_beta}-value");
    let other = schema.replace("salary", "bonus");
    for (value, code) in [
        (by_id, "42207"),
        (
            serde_json::json!({"subject": subject, "schema_version": 1, "data": {}}),
            "40301",
        ),
        (
            serde_json::json!({"subject": subject, "type": "AVRO", "schema": other, "data": {"bonus": 7}}),
            "40301",
        ),
        // A schema that is known here by its text.
        (
            serde_json::json!({"subject": subject, "type": "AVRO", "schema": schema, "data": {"salary": 7}}),
            "40301",
        ),
    ] {
        let told = proxy.produce_value(of_acme, value).await;
        assert!(told.contains(code) && !told.contains("salary"), "{told}");
    }
    let versions = Request::get(format!("/subjects/{subject}/versions"));
    let versions = versions.body(Body::empty()).unwrap();
    let (_, _, versions) = proxy.ask(&proxy.schemas, versions).await;
    assert_eq!(versions, "[1]");

    // Nor by bytes that say that they have such a schema.
    let framed = [&[0][..], &i32::try_from(id).unwrap().to_be_bytes(), &[14]].concat();
    let framed = serde_json::json!({"type": "BINARY", "data": STANDARD.encode(framed)});
    let told = proxy.produce_value(of_acme, framed).await;
    assert!(told.contains("\"offset\":0"), "{told}");
    for told in proxy.read_by_schemas(of_acme).await {
        assert!(!told.contains("salary"), "{told}");
    }
    // What one has registered oneself is one's own, whoever else has it.
    let told = proxy.produce_value(of_acme, own).await;
    assert!(told.contains(&format!("\"schema_id\":{id}")), "{told}");
    for told in proxy.read_by_schemas(of_acme).await {
        assert!(told.contains("salary"), "{told}");
    }

    // The topic in which all of them lie is nobody's to read.
    let (status, told) = proxy.get("/topics/_schemas/partitions/0/messages").await;
    assert_eq!(status, 403, "{told}");
    let (_, topics) = proxy.get("/topics").await;
    assert!(
        topics.contains(of_acme) && !topics.contains("_schemas"),
        "{topics}"
    );
}
