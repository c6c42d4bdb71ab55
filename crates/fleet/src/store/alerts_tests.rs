//! Checks of alerts on their way: who may send them, and what is known of them after.

use std::collections::BTreeMap;

use sql::Place;
use sql::test_servers::{mariadb, postgres};

use super::*;
use crate::events::{Ages, EventFilter, Kind};
use crate::registry::Batch;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_secs(60);

/// Two nodes on one database; on a file, one that goes by two numbers.
struct World {
    one: Store,
    other: Store,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(url: Option<&str>) -> World {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::read(url, &folder.path().join("fleet.db")).unwrap();
        let one = Store::open(&place, 1).await.unwrap();
        let other = match url {
            Some(_) => Store::open(&place, 2).await.unwrap(),
            None => Store {
                node: 2,
                ..one.clone()
            },
        };
        World {
            one,
            other,
            _folder: folder,
        }
    }

    async fn close(self) {
        self.one.close().await;
        self.other.close().await;
    }
}

async fn write(store: &Store, events: Vec<Event>) -> Noted {
    let batch = Batch {
        events,
        ..Batch::default()
    };
    let ages = Ages(BTreeMap::new());
    store.write(&batch, &ages, NOW).await.unwrap().alerts
}

async fn claim(store: &Store, wait: Duration) -> ClaimedAlerts {
    store
        .claim_alerts(wait, limits::ALERTS_AT_ONCE)
        .await
        .unwrap()
}

fn halted(number: usize) -> Event {
    Event::new(Kind::RolloutHalted, None, format!("roll-out {number}"), NOW)
}

fn duplicate(minute: u32) -> Event {
    let agent = crate::agent::Agent::new(Arc::from("agent-1"), NOW);
    let at = NOW + MINUTE * minute;
    Event::new(Kind::DuplicateIdentifier, Some(&agent), String::new(), at)
}

async fn events(store: &Store) -> usize {
    let filter = EventFilter {
        limit: 1_000,
        ..EventFilter::default()
    };
    store.events(&filter).await.unwrap().len()
}

fn keys(claimed: &ClaimedAlerts) -> Vec<&str> {
    claimed.keys().collect()
}

async fn each_alert_is_sent_by_who_claims_it(url: Option<String>) {
    let world = World::new(url.as_deref()).await;
    let World { one, other, .. } = &world;
    let seen: Vec<Event> = (0..3).map(halted).collect();
    let twice = [seen.clone(), seen.clone()].concat();
    assert_eq!(write(one, twice).await.new.len(), 3);
    let noted = write(other, seen.clone()).await;
    assert_eq!((noted.new.len(), noted.repeated.len()), (0, 3));
    assert_eq!(events(one).await, 3);

    let first = claim(one, MINUTE).await;
    assert_eq!(first.alerts.len(), 3);
    assert!(
        claim(other, MINUTE).await.alerts.is_empty(),
        "they are claimed"
    );
    one.put_alerts_off(&first, Duration::ZERO).await.unwrap();
    let mut found = HashSet::new();
    for _ in &first.alerts {
        let second = claim(other, MINUTE).await;
        assert_eq!(second.alerts.len(), 1, "what was refused goes alone");
        assert_eq!(second.alerts[0].tries, 1);
        found.insert(second.alerts[0].key.clone());
        // Whose claim is over changes nothing of the other's.
        one.put_alerts_off(&first, Duration::ZERO).await.unwrap();
        other.told_alerts(&second).await.unwrap();
        other.put_alerts_off(&second, Duration::ZERO).await.unwrap();
    }
    assert!(first.keys().all(|key| found.contains(key)));
    assert!(claim(one, MINUTE).await.alerts.is_empty(), "they are told");
    assert_eq!(write(one, seen).await.new.len(), 0, "and known as such");

    // A node dies with what it claimed.
    write(one, vec![halted(3)]).await;
    let lost = claim(one, Duration::ZERO).await;
    let found = claim(other, Duration::ZERO).await;
    assert_eq!((keys(&found), found.alerts.len()), (keys(&lost), 1));
    other.told_alerts(&found).await.unwrap();

    // What is new goes first.
    write(one, vec![halted(4)]).await;
    let refused = claim(one, MINUTE).await;
    one.put_alerts_off(&refused, Duration::ZERO).await.unwrap();
    write(one, vec![halted(5), halted(6)]).await;
    for expected in [[0].as_slice(), &[0], &[1]] {
        let claimed = one.claim_alerts(MINUTE, 1).await.unwrap();
        let tries: Vec<i64> = claimed.alerts.iter().map(|alert| alert.tries).collect();
        assert_eq!(tries, expected);
        one.told_alerts(&claimed).await.unwrap();
    }

    // Both look at one moment.
    let many: Vec<Event> = (10..10 + limits::ALERTS_AT_ONCE).map(halted).collect();
    write(one, many).await;
    let (left, right) = tokio::join!(claim(one, MINUTE), claim(other, MINUTE));
    let all: HashSet<&str> = left.keys().chain(right.keys()).collect();
    let count = left.alerts.len() + right.alerts.len();
    assert_eq!((count, all.len()), (limits::ALERTS_AT_ONCE, count));
    world.close().await;
}

async fn two_that_use_an_identifier_are_told_now_and_then(url: Option<String>) {
    let world = World::new(url.as_deref()).await;
    let World { one, other, .. } = &world;
    assert_eq!(
        write(one, vec![duplicate(0), duplicate(1)]).await.new.len(),
        1
    );
    assert_eq!(write(other, vec![duplicate(2)]).await.new.len(), 0);
    assert_eq!(events(one).await, 1);
    let noted = write(other, vec![duplicate(90)]).await;
    assert_eq!(
        (noted.new.len(), noted.repeated.len()),
        (0, 0),
        "the alert waits"
    );
    assert_eq!(events(one).await, 2, "the event is listed");
    one.told_alerts(&claim(one, MINUTE).await).await.unwrap();
    assert_eq!(write(other, vec![duplicate(59)]).await.new.len(), 0);
    assert_eq!(write(other, vec![duplicate(60)]).await.new.len(), 1);
    assert_eq!(events(one).await, 3);
    assert_eq!(claim(one, MINUTE).await.alerts.len(), 1);
    world.close().await;
}

async fn what_waits_is_bounded_in_number_and_age(url: Option<String>) {
    let world = World::new(url.as_deref()).await;
    let one = &world.one;
    let room = usize::try_from(limits::ALERTS_QUEUED_MAX).unwrap();
    let noted = write(one, (0..room + 3).map(halted).collect()).await;
    assert_eq!((noted.new.len(), noted.over.len()), (room, 3));
    assert_eq!(write(one, vec![halted(0)]).await.over.len(), 1);
    let told = claim(one, MINUTE).await;
    one.told_alerts(&told).await.unwrap();
    let again = halted(0);
    let noted = write(one, vec![again.clone()]).await;
    assert_eq!(noted.new.len(), 1, "there is room");

    assert_eq!(one.prune_alerts(NOW + MINUTE).await.unwrap(), 0);
    assert_eq!(write(one, vec![again.clone()]).await.repeated.len(), 1);
    let later = NOW + limits::ALERT_AGE_MAX + MINUTE;
    let left = room - told.alerts.len() + 1;
    assert_eq!(one.prune_alerts(later).await.unwrap(), left as u64);
    assert!(claim(one, MINUTE).await.alerts.is_empty());
    assert_eq!(write(one, vec![again]).await.new.len(), 1, "forgotten");
    world.close().await;
}

#[tokio::test]
async fn each_alert_is_sent_by_who_claims_it_on_sqlite() {
    Box::pin(each_alert_is_sent_by_who_claims_it(None)).await;
}

#[tokio::test]
async fn each_alert_is_sent_by_who_claims_it_on_postgres() {
    Box::pin(each_alert_is_sent_by_who_claims_it(Some(
        postgres().new_database().await,
    )))
    .await;
}

#[tokio::test]
async fn each_alert_is_sent_by_who_claims_it_on_mariadb() {
    Box::pin(each_alert_is_sent_by_who_claims_it(Some(
        mariadb().new_database().await,
    )))
    .await;
}

#[tokio::test]
async fn two_that_use_an_identifier_are_told_now_and_then_on_each() {
    two_that_use_an_identifier_are_told_now_and_then(None).await;
    for server in [postgres(), mariadb()] {
        let url = server.new_database().await;
        two_that_use_an_identifier_are_told_now_and_then(Some(url)).await;
    }
}

#[tokio::test]
async fn what_waits_is_bounded_in_number_and_age_on_each() {
    what_waits_is_bounded_in_number_and_age(None).await;
    for server in [postgres(), mariadb()] {
        let url = server.new_database().await;
        what_waits_is_bounded_in_number_and_age(Some(url)).await;
    }
}
