//! Tenants that share a topic: each one's members read its own records, and one's records go.

use access::{Access, Policy, Principal, TenantChange};
use base::TenantId;
use streams::{Caller, Purge, as_caller};

use super::*;

/// Two tenants that share a topic `env.ns.ALL.…`, and have one each.
struct House {
    world: World,
    access: Arc<Access>,
    shared: TopicName,
    _dir: tempfile::TempDir,
}

impl House {
    async fn new() -> House {
        let world = world().await;
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        for name in ["diku", "beta"] {
            let name: TenantId = name.parse().unwrap();
            let change: TenantChange =
                serde_json::from_value(serde_json::json!({"collection": "ALL"})).unwrap();
            access.set_tenant(&name, &change).unwrap();
            let collection = Some("ALL".parse().unwrap());
            access.settle_tenant(&name, collection).unwrap();
        }
        let shared = world.created("env.ns.ALL.E", 1).await;
        House {
            world,
            access,
            shared,
            _dir: dir,
        }
    }

    /// Writes a record of each of these tenants, in one batch.
    async fn write(&self, of: &[(&str, &str)]) {
        let record = |(tenant, value): &(&str, &str)| {
            let mut record = Record::of_value((*value).to_owned());
            let tenant = bytes::Bytes::from((*tenant).to_owned());
            record.headers = vec![("folio.tenantId".to_owned(), Some(tenant))];
            record
        };
        let batch = ProduceBatch {
            topic: self.shared.clone(),
            partition: 0,
            records: of.iter().map(record).collect(),
            sequence: None,
        };
        self.world.store.produce(batch).await.unwrap();
    }

    /// What somebody reads of the shared topic up to its end, which is `end`.
    async fn read(&self, who: &str, end: i64) -> Vec<String> {
        let policy = Policy {
            allow_if_no_acl: true,
            super_users: Vec::new(),
        };
        let (access, principal) = (Arc::clone(&self.access), Principal::user(who));
        let caller = Caller::new(access, Arc::new(policy), principal, "::1");
        let store = as_caller(Arc::clone(&self.world.store), caller);
        let alone = ConsumerConfig::alone("test");
        let mut consumer = store.consumer(alone).await.unwrap();
        consumer
            .assign(vec![(self.shared.clone(), 0)])
            .await
            .unwrap();
        let deadline = Instant::now() + PATIENCE;
        let mut read = Vec::new();
        while consumer.position(&self.shared, 0).is_none_or(|at| at < end) {
            assert!(Instant::now() < deadline, "{who} does not get on: {read:?}");
            let wait = Duration::from_millis(100);
            read.extend(texts(&consumer.poll(wait, 1 << 20).await.unwrap()));
        }
        read
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_reads_the_records_of_its_own_tenant() {
    let house = House::new().await;
    house.write(&[("beta", "b1")]).await;
    house
        .write(&[("diku", "d1"), ("beta", "b2"), ("", "x"), ("diku", "d2")])
        .await;
    house.write(&[("beta", "b3")]).await;
    assert_eq!(house.read("diku/ann", 6).await, ["d1", "d2"]);
    assert_eq!(house.read("beta/bob", 6).await, ["b1", "b2", "b3"]);
    let all = ["b1", "d1", "b2", "x", "d2", "b3"];
    assert_eq!(house.read("service", 6).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_takes_one_tenants_records_or_says_where_they_stay() {
    let house = House::new().await;
    house
        .write(&[("diku", "d1"), ("beta", "b1"), ("diku", "d2")])
        .await;
    let own = house.world.created("env.ns.diku.E", 1).await;
    house.world.produce(&own, 0, &["a", "b"]).await;
    let snapshot = house.access.snapshot();
    let diku = "diku".parse().unwrap();
    let store = &house.world.store;
    let purged = Purge::of(&**store, &snapshot, &diku, None).await.unwrap();
    let emptied = store.topic(&own).await.unwrap();
    let range = &emptied.partition_offsets[0];
    assert_eq!((range.start, range.end), (2, 2));
    // A Kafka cluster deletes by offset alone.
    if store.is_shared() {
        assert!(purged.kept.contains(&house.shared.display().to_owned()));
        assert_eq!(
            (purged.records, house.read("service", 3).await.len()),
            (2, 3)
        );
    } else {
        assert_eq!((purged.records, purged.kept.len()), (4, 0));
        assert_eq!(house.read("service", 3).await, ["b1"]);
    }
    assert_eq!(house.read("beta/bob", 3).await, ["b1"]);
}
