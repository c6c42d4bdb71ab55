//! Consumer instances that go while the store is away, or while nobody waits for the answer.

use std::sync::atomic::Ordering;

use super::*;
use crate::consumers::InstanceKey;

const CREATED: &str = r#"{"name":"c","format":"json","auto.offset.reset":"earliest"}"#;
const INSTANCE: &str = "/consumers/g/instances/c";

impl Proxy {
    async fn delete_instance(&self) -> u16 {
        let request = Request::delete(INSTANCE).body(Body::empty()).unwrap();
        self.send(request).await.0
    }
}

/// Asks again until that is so.
async fn until<F: Future<Output = bool>>(is_so: impl Fn() -> F) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(60), asking).await;
    asked.expect("it should have come to be so");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_was_deleted_while_the_store_was_away_does_not_come_back() {
    let (proxy, double) = Proxy::open_before(RestConfig::default(), true);
    assert_eq!(proxy.post("/consumers/g", CREATED).await.0, 200);
    double.is_away.store(true, Ordering::SeqCst);
    assert_eq!(proxy.delete_instance().await, 204);
    double.is_away.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        let (status, body) = proxy.get(&format!("{INSTANCE}/subscription")).await;
        assert_eq!(status, 404, "{body}");
        assert!(body.contains("40403"), "{body}");
    }
    // Its name is free as soon as the store knows.
    until(async || proxy.post("/consumers/g", CREATED).await.0 == 200).await;
    assert_eq!(proxy.delete_instance().await, 204);
    proxy.handle.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_expired_while_the_store_was_away_does_not_come_back() {
    let (proxy, double) = Proxy::open_before(RestConfig::default(), true);
    assert_eq!(proxy.post("/consumers/g", CREATED).await.0, 200);
    double.is_away.store(true, Ordering::SeqCst);
    proxy.clock.advance(Duration::from_secs(301));
    // The reaper may be faster.
    proxy.handle.expire(proxy.clock.now()).await;
    assert_eq!(proxy.handle.consumer_instances(), 0);
    double.is_away.store(false, Ordering::SeqCst);
    let (status, body) = proxy.get(&format!("{INSTANCE}/subscription")).await;
    assert_eq!(status, 404, "{body}");
    until(async || proxy.post("/consumers/g", CREATED).await.0 == 200).await;
    proxy.handle.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_client_went_while_it_was_made_is_nobodys() {
    let (proxy, double) = Proxy::open_before(RestConfig::default(), true);
    let proxy = Arc::new(proxy);
    // The roll is read from now on.
    assert_eq!(proxy.post("/consumers/other", "{}").await.0, 200);
    let held = Arc::clone(&double.held).lock_owned().await;
    let written = double.roll_writes.load(Ordering::SeqCst);
    let asking = Arc::clone(&proxy);
    let create = tokio::spawn(async move { asking.post("/consumers/g", CREATED).await });
    until(async || double.roll_writes.load(Ordering::SeqCst) > written).await;
    create.abort();
    assert!(create.await.unwrap_err().is_cancelled());
    drop(held);
    until(async || proxy.post("/consumers/g", CREATED).await.0 == 200).await;
    // A delete goes on as well.
    let held = Arc::clone(&double.held).lock_owned().await;
    let written = double.roll_writes.load(Ordering::SeqCst);
    let asking = Arc::clone(&proxy);
    let delete = tokio::spawn(async move { asking.delete_instance().await });
    until(async || double.roll_writes.load(Ordering::SeqCst) > written).await;
    delete.abort();
    assert!(delete.await.unwrap_err().is_cancelled());
    drop(held);
    until(async || proxy.post("/consumers/g", CREATED).await.0 == 200).await;
    proxy.handle.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_of_this_proxy_without_an_instance_goes_when_it_is_old() {
    let config = RestConfig {
        consumer_instance_timeout: base::HumanDuration(Duration::from_secs(1)),
        ..RestConfig::default()
    };
    let (proxy, _) = Proxy::open_before(config, true);
    assert_eq!(proxy.post("/consumers/g", CREATED).await.0, 200);
    let roll = proxy.handle.shared.consumers.roll().unwrap();
    let key = |instance: &str| InstanceKey {
        group: "g".to_owned(),
        instance: instance.to_owned(),
    };
    let entry = roll.entry(&key("c")).unwrap();
    roll.put(&key("lost"), &entry).await.unwrap();
    until(async || roll.entry(&key("lost")).is_some()).await;
    proxy.clock.advance(Duration::from_secs(2));
    until(async || roll.entry(&key("lost")).is_none()).await;
    proxy.handle.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_writes_down_where_all_instances_are_at_once() {
    const COUNT: usize = 20;
    for is_away in [false, true] {
        let (proxy, double) = Proxy::open_before(RestConfig::default(), true);
        proxy.create("t", 1).await;
        proxy.store_raw("t", 0, None, "1").await;
        for number in 0..COUNT {
            let group = format!("/consumers/g{number}");
            assert_eq!(proxy.post(&group, CREATED).await.0, 200);
            let assigned = r#"{"partitions":[{"topic":"t","partition":0}]}"#;
            let path = format!("{group}/instances/c/assignments");
            assert_eq!(proxy.post(&path, assigned).await.0, 204);
            let path = format!("{group}/instances/c/records?timeout=20000");
            let (_, read) = proxy.get(&path).await;
            assert!(read.contains("\"offset\":0"), "{read}");
        }
        double.is_away.store(is_away, Ordering::SeqCst);
        let before = double.roll_writes.load(Ordering::SeqCst);
        proxy.handle.close().await;
        let writes = double.roll_writes.load(Ordering::SeqCst) - before;
        assert_eq!(writes, 1, "the store is away: {is_away}");
        let shown = proxy.show(double::ROLL, 0).await;
        for number in 0..COUNT {
            let of_group = format!("[\"g{number}\",\"c\"] = ");
            let last = shown.lines().rfind(|line| line.contains(&of_group));
            let is_noted = last.unwrap().contains("\"offset\":1,");
            assert_eq!(is_noted, !is_away, "{last:?}");
        }
    }
}
