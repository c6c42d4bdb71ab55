//! A server with a guard, over sockets.

use std::sync::Arc;

use access::{
    Access, Acl, EVERY_HOST, Operation, PasswordForm, PatternType, Permission, Principal,
    ResourceType, Token, UserChange,
};
use base::{Clock, SystemClock};
use tempfile::TempDir;

use super::client::{Client, packet, publish, subscribe};
use super::five::{Connect, user};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::door::Door;
use crate::guard::Guard;
use crate::server::Server;

pub(super) struct House {
    access: Arc<Access>,
    pub(super) running: Running,
    _dir: TempDir,
}

/// Ann, bob and carl with the password `pencil`, at a server with these settings.
pub(super) async fn house(settings: &str) -> House {
    let dir = tempfile::tempdir().unwrap();
    let access = Arc::new(Access::open(dir.path()).unwrap());
    for user in ["ann", "bob", "carl"] {
        let forms = [PasswordForm::Argon2id];
        let changes = PasswordForm::changes(&forms, user, "pencil", 4_096).unwrap();
        access.alter_users(&changes).unwrap();
    }
    let data = Arc::new(tempfile::tempdir().unwrap());
    House {
        running: running(&access, settings, data).await,
        access,
        _dir: dir,
    }
}

/// A server on `data` whose clients are those of `access`.
async fn running(access: &Arc<Access>, settings: &str, data: Arc<TempDir>) -> Running {
    let config: MqttConfig = serde_json::from_str(settings).unwrap();
    let clock = Arc::new(SystemClock);
    let settings = config.guard().unwrap();
    let guard = Arc::new(Guard::new(access.clone(), None, settings, clock.clone()));
    let server = Server::open_guarded(data.path(), config, clock, guard.clone()).unwrap();
    tokio::spawn({
        let server = server.clone();
        async move { guard.keep_told(server).await }
    });
    Running::serve(data, server, Door::default()).await
}

impl House {
    /// The same users and sessions after a restart.
    pub(super) async fn restart(self, settings: &str) -> House {
        let data = self.running.stop().await;
        House {
            running: running(&self.access, settings, data).await,
            ..self
        }
    }

    /// Keeps tenants acme and beta, of ann and of bob.
    pub(super) fn keep_tenants(&self) {
        for (tenant, member) in [("acme", "User:ann"), ("beta", "User:bob")] {
            let change = serde_json::json!({"members": [member]});
            let change = serde_json::from_value(change).unwrap();
            self.access
                .set_tenant(&tenant.parse().unwrap(), &change)
                .unwrap();
        }
    }

    /// A client whose session is kept; both bytes of its CONNACK.
    async fn back(&self, id: &str, user: &str) -> (Client, Vec<u8>) {
        let mut client = Client::open(self.running.port).await;
        let mut connect = login(id, user, "pencil");
        // The flags without that of a clean session.
        connect[9] = 0xc0;
        client.send(&connect).await;
        let (kind, body) = client.packet().await;
        assert_eq!(kind, 0x20);
        (client, body)
    }

    /// Somebody's messages of QoS 1 to these topics, acknowledged.
    async fn publish(&self, user: &str, topics: &[&str]) {
        let (mut client, code) = self.enter("publisher", user, "pencil").await;
        assert_eq!(code, 0);
        for (id, topic) in (1..).zip(topics) {
            client.send(&publish(topic, b"", 1, false, id)).await;
            assert_eq!(client.packet().await, (0x40, id.to_be_bytes().to_vec()));
        }
    }

    fn remove(&self, user: &str) {
        let removed = UserChange::Remove(user.to_owned(), None);
        self.access.alter_users(&[removed]).unwrap();
    }

    fn queued(&self, id: &str) -> u64 {
        let clients = self.running.server.clients();
        clients.iter().find(|of| of.client_id == id).unwrap().queued
    }

    pub(super) fn allow(&self, user: &str, operation: Operation, name: &str) {
        self.acl(Permission::Allow, user, operation, name);
    }

    fn acl(&self, permission: Permission, user: &str, operation: Operation, name: &str) {
        let acl = Acl {
            resource_type: ResourceType::MqttTopic,
            resource_name: name.to_owned(),
            pattern_type: PatternType::Literal,
            principal: Principal::user(user),
            host: EVERY_HOST.to_owned(),
            operation,
            permission,
        };
        self.access.add_acls(vec![acl]).unwrap();
    }

    /// A client of this id; the second byte of its CONNACK.
    async fn enter(&self, id: &str, user: &str, password: &str) -> (Client, u8) {
        let mut client = Client::open(self.running.port).await;
        client.send(&login(id, user, password)).await;
        let (kind, body) = client.packet().await;
        assert_eq!(kind, 0x20);
        (client, body[1])
    }
}

/// A CONNECT of 3.1.1 with a name and a password.
fn login(id: &str, user: &str, password: &str) -> Vec<u8> {
    let mut body = b"\0\x04MQTT\x04\xc2\0\0".to_vec();
    for text in [id, user, password] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    packet(0x10, &body)
}

const JUDGED: &str = r#"{"security": {"logins": true, "authorization": "acl"}}"#;

#[tokio::test]
async fn clients_log_in_or_are_told_why_not() {
    let house = house(JUDGED).await;
    assert_eq!(house.enter("a", "ann", "pencil").await.1, 0);
    // Bad user name or password; not authorized.
    assert_eq!(house.enter("b", "ann", "pencils").await.1, 4);
    assert_eq!(house.enter("c", "eve", "pencil").await.1, 4);
    let mut client = Client::open(house.running.port).await;
    client
        .send(&super::client::connect("d", true, 0, None))
        .await;
    assert_eq!(client.packet().await, (0x20, vec![0, 5]));
    client.expect_end().await;
    house.running.stop().await;
}

#[tokio::test]
async fn topics_are_open_as_the_acls_say_and_changes_hold_at_once() {
    let house = house(JUDGED).await;
    house.allow("ann", Operation::Write, "up/%c");
    house.allow("bob", Operation::Read, "up/#");
    let (mut ann, _) = house.enter("dev1", "ann", "pencil").await;
    let (mut bob, _) = house.enter("desk", "bob", "pencil").await;
    bob.send(&subscribe(1, &[("up/#", 1), ("#", 1), ("down", 1)]))
        .await;
    assert_eq!(bob.packet().await, (0x90, vec![0, 1, 1, 0x80, 0x80]));
    // Acknowledged, and only the one that is allowed goes on.
    ann.send(&publish("up/dev2", b"no", 1, false, 7)).await;
    assert_eq!(ann.packet().await, (0x40, vec![0, 7]));
    ann.send(&publish("up/dev1", b"yes", 1, false, 8)).await;
    assert_eq!(ann.packet().await, (0x40, vec![0, 8]));
    bob.expect("up/dev1", "yes").await;
    assert_eq!(house.running.server.stats().refused_total, 1);
    // A denial holds for the subscription that stands, and nobody is cut off.
    let generation = house.running.server.core.generation();
    house.acl(Permission::Deny, "bob", Operation::Read, "up/dev1");
    until("the server is told", || {
        house.running.server.core.generation() != generation
    })
    .await;
    ann.send(&publish("up/dev1", b"hidden", 1, false, 9)).await;
    assert_eq!(ann.packet().await, (0x40, vec![0, 9]));
    house.allow("ann", Operation::Write, "up/free");
    ann.send(&publish("up/free", b"seen", 1, false, 10)).await;
    assert_eq!(ann.packet().await, (0x40, vec![0, 10]));
    bob.expect("up/free", "seen").await;
    house.running.stop().await;
}

#[tokio::test]
async fn retained_messages_are_kept_from_who_may_not_read_them() {
    let house = house(JUDGED).await;
    house.allow("ann", Operation::All, "#");
    house.allow("bob", Operation::Read, "r/#");
    house.acl(Permission::Deny, "bob", Operation::Read, "r/secret");
    let (mut ann, _) = house.enter("a", "ann", "pencil").await;
    for (id, topic) in [(1, "r/open"), (2, "r/secret")] {
        ann.send(&publish(topic, b"kept", 1, true, id)).await;
        assert_eq!(ann.packet().await.0, 0x40);
    }
    let (mut bob, _) = house.enter("b", "bob", "pencil").await;
    bob.send(&subscribe(1, &[("r/#", 0)])).await;
    assert_eq!(bob.packet().await, (0x90, vec![0, 1, 0]));
    bob.expect("r/open", "kept").await;
    ann.send(&publish("r/open", b"next", 0, false, 0)).await;
    bob.expect("r/open", "next").await;
    house.running.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_is_held_back_and_loses_nothing() {
    let house = house(r#"{"rates": {"client_messages_per_second": 200}}"#).await;
    let mut client = house.running.client("flood").await;
    let began = std::time::Instant::now();
    let mut bytes = Vec::new();
    for id in 1..=500 {
        bytes.extend_from_slice(&publish("t", b"x", 1, false, id));
    }
    client.send(&bytes).await;
    for id in 1..=501_u16 {
        if id == 501 {
            client.send(&publish("t", b"x", 1, false, id)).await;
        }
        let [high, low] = id.to_be_bytes();
        assert_eq!(client.packet().await, (0x40, vec![high, low]));
    }
    // 200 at once, and the other 300 were paid for before the last one was read.
    assert!(
        began.elapsed().as_millis() >= 1_000,
        "{:?}",
        began.elapsed()
    );
    house.running.stop().await;
}

#[tokio::test]
async fn a_client_id_is_its_users_while_the_session_lives() {
    let house = house(r#"{"security": {"logins": true}}"#).await;
    let (ann, code) = house.enter("dev1", "ann", "pencil").await;
    assert_eq!(code, 0);
    // Identifier rejected: neither the link nor what waits for ann is bob's.
    assert_eq!(house.enter("dev1", "bob", "pencil").await.1, 2);
    assert_eq!(house.running.server.stats().clients_connected, 1);
    // Ann herself takes over, and after her anybody may.
    let (again, code) = house.enter("dev1", "ann", "pencil").await;
    assert_eq!(code, 0);
    drop(ann);
    again.leave().await;
    until("the session is gone", || {
        house.running.server.clients().is_empty()
    })
    .await;
    assert_eq!(house.enter("dev1", "bob", "pencil").await.1, 0);
    house.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_users_who_come_at_once_one_has_the_client_id() {
    let house = house(LOGINS).await;
    for n in 0..100 {
        let id = format!("dev{n}");
        let enter = async |user| house.enter(&id, user, "pencil").await;
        let (ann, bob) = tokio::join!(enter("ann"), enter("bob"));
        assert_eq!(ann.1 + bob.1, 2, "{id}: {}, {}", ann.1, bob.1);
    }
    house.running.stop().await;
}

const LOGINS: &str = r#"{"security": {"logins": true}}"#;

#[tokio::test]
async fn for_a_tenants_client_that_is_away_nothing_of_others_waits_also_after_a_restart() {
    let house = house(LOGINS).await;
    house.keep_tenants();
    let (mut ann, _) = house.back("keeper", "ann").await;
    ann.subscribe("#", 1).await;
    ann.leave().await;
    let topics = ["beta/secret", "beta", "plant"];
    house.publish("bob", &topics).await;
    assert_eq!(house.queued("keeper"), 1);
    let house = house.restart(LOGINS).await;
    house.publish("bob", &topics).await;
    assert_eq!(house.queued("keeper"), 2);
    // Nobody else gets at it: not by its name, and not by a clean session.
    assert_eq!(house.back("keeper", "bob").await.1, [0, 2]);
    assert_eq!(house.enter("keeper", "bob", "pencil").await.1, 2);
    let (mut ann, told) = house.back("keeper", "ann").await;
    assert_eq!(told, [1, 0]);
    for _ in 0..2 {
        assert_eq!(ann.message().await.0, "plant");
    }
    ann.expect_nothing().await;
    assert_eq!(house.running.server.stats().refused_total, 0);
    house.running.stop().await;
}

#[tokio::test]
async fn what_the_acls_deny_does_not_wait_and_what_waited_is_judged_again() {
    let house = house(JUDGED).await;
    house.allow("bob", Operation::Write, "#");
    house.allow("ann", Operation::Read, "up/#");
    house.acl(Permission::Deny, "ann", Operation::Read, "up/secret");
    let (mut ann, _) = house.back("keeper", "ann").await;
    ann.subscribe("up/#", 1).await;
    ann.leave().await;
    house
        .publish("bob", &["up/secret", "up/1", "up/2", "up/3"])
        .await;
    assert_eq!(house.queued("keeper"), 3);
    // One is under way when its reader goes.
    let (mut ann, _) = house.back("keeper", "ann").await;
    assert_eq!(ann.message().await.0, "up/1");
    ann.leave().await;
    for topic in ["up/1", "up/2"] {
        house.acl(Permission::Deny, "ann", Operation::Read, topic);
    }
    let house = house.restart(JUDGED).await;
    let refused = house.running.server.stats().refused_total;
    let (mut ann, _) = house.back("keeper", "ann").await;
    assert_eq!(ann.message().await.0, "up/3");
    ann.expect_nothing().await;
    let stats = house.running.server.stats();
    assert_eq!((stats.refused_total - refused, stats.dropped_total), (2, 0));
    house.running.stop().await;
}

#[tokio::test]
async fn a_group_gives_a_tenants_messages_to_a_member_who_may_have_them() {
    let house = house(LOGINS).await;
    house.keep_tenants();
    for (id, user) in [("of-ann", "ann"), ("of-bob", "bob")] {
        let (mut client, _) = house.back(id, user).await;
        client.subscribe("$share/g/#", 1).await;
        client.leave().await;
    }
    house
        .publish("bob", &["beta/1", "beta/2", "beta/3", "beta/4"])
        .await;
    assert_eq!((house.queued("of-ann"), house.queued("of-bob")), (0, 4));
    house.running.stop().await;
}

#[tokio::test]
async fn a_will_speaks_for_its_clients_tenant_alone() {
    let house = house(LOGINS).await;
    house.keep_tenants();
    for (tenant, expected) in [("acme", 0), ("beta", 0x87)] {
        let properties = user("thalweg.tenant", tenant);
        let connect = Connect::new("c").will("w", 0, properties);
        let connect = connect.password(Some("ann"), "pencil");
        let (_client, connack) = connect.told(house.running.port).await;
        assert_eq!(connack.reason, expected, "{tenant}");
    }
    house.running.stop().await;
}

#[tokio::test]
async fn a_will_is_judged_again_when_it_is_published() {
    let house = house(JUDGED).await;
    house.allow("ann", Operation::Write, "w/#");
    house.allow("bob", Operation::Read, "w/#");
    let (mut bob, _) = house.enter("watcher", "bob", "pencil").await;
    bob.subscribe("w/#", 0).await;
    let mut clients = Vec::new();
    for topic in ["w/denied", "w/open"] {
        // Retained as well.
        let connect = Connect::new(topic).will(topic, 0x20, Vec::new());
        let connect = connect.password(Some("ann"), "pencil");
        clients.push(connect.go(house.running.port).await);
    }
    house.acl(Permission::Deny, "ann", Operation::Write, "w/denied");
    drop(clients);
    bob.expect("w/open", "gone").await;
    until("the other will is refused", || {
        house.running.server.stats().refused_total == 1
    })
    .await;
    bob.expect_nothing().await;
    assert_eq!(house.running.server.stats().retained, 1);
    house.running.stop().await;
}

/// Sets a user's password, in all forms.
fn set_password(house: &House, user: &str, password: &str) {
    let changes = PasswordForm::changes(&[], user, password, 4_096).unwrap();
    house.access.alter_users(&changes).unwrap();
}

#[tokio::test]
async fn who_is_taken_back_what_they_showed_is_cut_off_and_nobody_else() {
    let house = house(LOGINS).await;
    let port = house.running.port;
    let token = |user: &str| {
        let (token, text) = Token::issue(user, "", SystemClock.now(), None).unwrap();
        let id = token.id.clone();
        house.access.add_token(token).unwrap();
        (id, text)
    };
    let by = |id: &str, user: &str, password: &str| Connect::new(id).password(Some(user), password);
    let (first, shown) = token("ann");
    let (_, others) = token("ann");
    let mut by_first = by("1", "ann", &shown).go(port).await;
    let mut by_other = by("2", "ann", &others).go(port).await;
    let mut by_password = by("3", "ann", "pencil").go(port).await;
    let mut carl = by("4", "carl", "pencil").go(port).await;
    house.access.remove_token(&first).unwrap();
    by_first.told_to_go(0x87).await;
    assert_eq!(by("1", "ann", &shown).told(port).await.1.reason, 0x86);
    // A new password does not concern who came by a token.
    set_password(&house, "ann", "chalk");
    by_password.told_to_go(0x87).await;
    assert_eq!(by_other.publish5("t", "x", &[]).await, 0);
    // Rights that are given to somebody, and logins, change nothing.
    let mut again = by("3", "ann", "chalk").go(port).await;
    house.allow("bob", Operation::Write, "t");
    // Who is removed goes, however they came.
    house.remove("ann");
    by_other.told_to_go(0x87).await;
    again.told_to_go(0x87).await;
    assert_eq!(carl.publish5("t", "x", &[]).await, 0);
    house.running.stop().await;
}

#[tokio::test]
async fn the_hash_that_a_first_login_adds_cuts_nobody_off() {
    let house = house(LOGINS).await;
    let port = house.running.port;
    // As an older version kept a user: keys for SCRAM alone.
    let forms = [PasswordForm::ScramSha256, PasswordForm::ScramSha512];
    let changes = PasswordForm::changes(&forms, "eve", "pencil", 4_096).unwrap();
    house.access.alter_users(&changes).unwrap();
    let eve = |id: &str| Connect::new(id).password(Some("eve"), "pencil");
    let mut first = eve("1").go(port).await;
    assert!(house.access.snapshot().password_hash("eve").is_some());
    let mut second = eve("2").go(port).await;
    for client in [&mut first, &mut second] {
        assert_eq!(client.publish5("t", "x", &[]).await, 0);
    }
    set_password(&house, "eve", "chalk");
    first.told_to_go(0x87).await;
    second.told_to_go(0x87).await;
    house.running.stop().await;
}
