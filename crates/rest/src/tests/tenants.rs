//! Tenants' retentions over a store whose topics have to be told of them.

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
