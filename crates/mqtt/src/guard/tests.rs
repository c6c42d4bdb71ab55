//! Clients of all kinds at a guard, without sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{
    Access, Acl, EVERY_HOST, Operation, PasswordForm, PatternType, Permission, Policy, Principal,
    QuotaEntity, ResourceType, Token,
};
use base::{Clock, SystemClock, UnixMillis};
use tempfile::TempDir;

use super::{Guard, GuardSettings, Refused};
use crate::gate::{Gate, Hello, Origin, Pass, Password, Progress};
use crate::message::Qos;
use crate::reason::ReasonCode;
use crate::scram::tests::client_final;

struct House {
    access: Arc<Access>,
    _dir: TempDir,
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        let forms = [PasswordForm::Argon2id];
        let changes = PasswordForm::changes(&forms, "ann", "pencil", 4_096).unwrap();
        access.alter_users(&changes).unwrap();
        House { access, _dir: dir }
    }

    fn guard(&self, settings: GuardSettings) -> Guard {
        Guard::new(self.access.clone(), None, settings, Arc::new(SystemClock))
    }

    fn allow(&self, user: &str, operation: Operation, name: &str) {
        let acl = Acl {
            resource_type: ResourceType::MqttTopic,
            resource_name: name.to_owned(),
            pattern_type: PatternType::Literal,
            principal: Principal::user(user),
            host: EVERY_HOST.to_owned(),
            operation,
            permission: Permission::Allow,
        };
        self.access.add_acls(vec![acl]).unwrap();
    }
}

fn asks() -> GuardSettings {
    GuardSettings {
        logins: true,
        policy: Some(Policy::default()),
        ..GuardSettings::default()
    }
}

fn origin(certificate: Option<&str>) -> Origin {
    Origin {
        peer: SocketAddr::from(([127, 0, 0, 1], 4_000)),
        certificate: certificate.map(str::to_owned),
        is_encrypted: certificate.is_some(),
    }
}

/// The pass of client `c`, or the code with which it is refused.
async fn enter(
    guard: &Guard,
    username: Option<&str>,
    password: Option<&str>,
    certificate: Option<&str>,
) -> Result<Arc<dyn Pass>, ReasonCode> {
    let origin = origin(certificate);
    let hello = Hello {
        client_id: "c",
        username,
        password: password.map(|text| Password(text.as_bytes())),
        origin: &origin,
    };
    guard.admit(&hello).await
}

async fn user_of(
    guard: &Guard,
    username: Option<&str>,
    password: Option<&str>,
    certificate: Option<&str>,
) -> Result<Option<String>, ReasonCode> {
    let pass = enter(guard, username, password, certificate).await?;
    Ok(pass.user().map(str::to_owned))
}

#[tokio::test]
async fn who_has_to_say_who_they_are_shows_a_password_a_token_or_a_certificate() {
    let house = House::new();
    let guard = house.guard(asks());
    let now = SystemClock.now();
    let (token, text) = Token::issue("ann", "", now, None).unwrap();
    house.access.add_token(token).unwrap();
    let old = Some(Duration::from_secs(1));
    let (token, expired) = Token::issue("ann", "", UnixMillis(1), old).unwrap();
    house.access.add_token(token).unwrap();
    let ann = Ok(Some("ann".to_owned()));
    let wrong = Err(ReasonCode::BadUserNameOrPassword);
    let none = Err(ReasonCode::NotAuthorized);
    let subject = "CN=dev1,O=plant";
    let cases = [
        (Some("ann"), Some("pencil"), None, ann.clone()),
        (Some("ann"), Some("pencils"), None, wrong.clone()),
        (Some("bob"), Some("pencil"), None, wrong.clone()),
        (Some("ann"), Some(""), None, wrong.clone()),
        (Some("ann"), None, None, none.clone()),
        (None, None, None, none),
        (None, Some(text.as_str()), None, ann.clone()),
        (Some("ann"), Some(text.as_str()), None, ann),
        (Some("bob"), Some(text.as_str()), None, wrong.clone()),
        (Some("ann"), Some(expired.as_str()), None, wrong.clone()),
        (None, None, Some(subject), Ok(Some(subject.to_owned()))),
        // What was shown above the certificate decides alone.
        (Some("ann"), Some("pencils"), Some(subject), wrong),
    ];
    for (username, password, certificate, expected) in cases {
        let got = user_of(&guard, username, password, certificate).await;
        assert_eq!(got, expected, "{username:?} {certificate:?}");
    }
    let refusals = guard.refusals(100);
    assert_eq!(refusals.len(), 8);
    assert!(
        refusals
            .iter()
            .all(|refusal| refusal.what == Refused::Connect)
    );
    let told = serde_json::to_string(&refusals).unwrap();
    assert!(
        !told.contains("pencil") && !told.contains(&expired),
        "{told}"
    );
}

#[tokio::test]
async fn who_need_not_say_who_they_are_is_not_believed() {
    let house = House::new();
    house.allow("ann", Operation::Write, "t");
    let guard = house.guard(GuardSettings {
        logins: false,
        ..asks()
    });
    let pass = enter(&guard, Some("ann"), None, None).await.unwrap();
    assert_eq!(pass.user(), None);
    let refused = pass.may_publish("t", Qos::AtMostOnce, false);
    assert_eq!(refused, Err(ReasonCode::NotAuthorized));
}

#[tokio::test]
async fn acls_decide_and_their_changes_hold_at_once() {
    let house = House::new();
    house.allow("ann", Operation::Write, "up/%c/#");
    let guard = house.guard(asks());
    let pass = enter(&guard, Some("ann"), Some("pencil"), None)
        .await
        .unwrap();
    assert!(!pass.publishes_anything());
    let publish = |topic| pass.may_publish(topic, Qos::AtLeastOnce, false);
    assert_eq!(publish("up/c/t"), Ok(()));
    assert_eq!(publish("up/d/t"), Err(ReasonCode::NotAuthorized));
    let filter = "down/%u/x".replace("%u", "ann").parse().unwrap();
    let subscribe = || pass.may_subscribe(&filter, Qos::AtLeastOnce);
    assert_eq!(subscribe(), Err(ReasonCode::NotAuthorized));
    house.allow("ann", Operation::Read, "down/%u/#");
    assert_eq!(subscribe(), Ok(Qos::AtLeastOnce));
    assert!(pass.may_receive("down/ann/x") && !pass.may_receive("down/bob/x"));
    let newest = &guard.refusals(1)[0];
    assert_eq!(
        (newest.what, newest.topic.as_str()),
        (Refused::Subscribe, "down/ann/x")
    );
}

#[tokio::test]
async fn super_users_and_places_without_acls_are_free() {
    let house = House::new();
    let boss = Policy {
        super_users: vec![Principal::user("ann")],
        ..Policy::default()
    };
    let by_name = house.guard(GuardSettings {
        policy: Some(boss),
        ..asks()
    });
    let without = house.guard(GuardSettings {
        policy: None,
        ..asks()
    });
    for guard in [by_name, without] {
        let pass = enter(&guard, Some("ann"), Some("pencil"), None)
            .await
            .unwrap();
        assert_eq!(pass.may_publish("any", Qos::AtMostOnce, false), Ok(()));
        assert!(pass.may_receive("any"));
    }
}

#[tokio::test]
async fn a_user_has_so_many_clients() {
    let house = House::new();
    let guard = house.guard(GuardSettings {
        clients_per_user_max: 2,
        ..asks()
    });
    let enter = || enter(&guard, Some("ann"), Some("pencil"), None);
    let (first, _second) = (enter().await.unwrap(), enter().await.unwrap());
    assert_eq!(enter().await.err(), Some(ReasonCode::QuotaExceeded));
    drop(first);
    assert!(enter().await.is_ok());
}

#[tokio::test]
async fn who_sends_more_than_allowed_waits() {
    let house = House::new();
    let guard = house.guard(GuardSettings {
        client_message_rate: 100,
        client_byte_rate: 1_000_000,
        ..asks()
    });
    let pass = enter(&guard, Some("ann"), Some("pencil"), None)
        .await
        .unwrap();
    let now = UnixMillis(1_000_000);
    assert_eq!(pass.charge(now, 100, 1_000), Duration::ZERO);
    // The window holds one second's messages; half a second's more wait that long.
    assert_eq!(pass.charge(now, 50, 0), Duration::from_millis(500));
    let later = UnixMillis(1_010_000);
    assert_eq!(pass.charge(later, 1, 1), Duration::ZERO);
    assert_eq!(
        pass.charge(later, 0, 1_500_000 - 1),
        Duration::from_millis(500)
    );
}

#[tokio::test]
async fn the_clients_of_a_user_share_the_users_quota() {
    let house = House::new();
    let entity = QuotaEntity {
        user: Some(Some("ann".to_owned())),
        ..QuotaEntity::default()
    };
    let quota = (entity, "producer_byte_rate".to_owned(), Some(1_000.0));
    house.access.alter_quotas(&[quota]).unwrap();
    let guard = house.guard(asks());
    let enter = || enter(&guard, Some("ann"), Some("pencil"), None);
    let (one, other) = (enter().await.unwrap(), enter().await.unwrap());
    let now = UnixMillis(1_000_000);
    let full = crate::limits::RATE_WINDOW.as_secs() * 1_000;
    assert_eq!(one.charge(now, 1, full), Duration::ZERO);
    assert_eq!(other.charge(now, 1, 2_000), Duration::from_secs(2));
}

#[tokio::test]
async fn the_clients_of_a_tenant_share_its_quotas_and_speak_for_it_alone() {
    let house = House::new();
    let change = serde_json::json!({
        "members": ["User:ann"], "quotas": {"records_per_second": 10, "bytes_in_per_second": 1_000},
    });
    let change = serde_json::from_value(change).unwrap();
    let acme = "acme".parse().unwrap();
    let settings = || GuardSettings {
        logins: true,
        ..GuardSettings::default()
    };
    let guard = house.guard(settings());
    let enter = || enter(&guard, Some("ann"), Some("pencil"), None);
    let (one, other) = (enter().await.unwrap(), enter().await.unwrap());
    assert_eq!(one.may_say("folio.tenantId", "beta"), Ok(()));
    house.access.set_tenant(&acme, &change).unwrap();
    let now = UnixMillis(1_000_000);
    // A fifth of a second's worth is free: two messages, or 200 bytes.
    assert_eq!(one.charge(now, 2, 100), Duration::ZERO);
    assert_eq!(other.charge(now, 0, 1_100), Duration::from_secs(1));
    assert_eq!(other.charge(now, 20, 0), Duration::from_secs(2));
    for (name, value, expected) in [
        ("folio.tenantId", "acme", Ok(())),
        ("folio.tenantId", "beta", Err(ReasonCode::NotAuthorized)),
        ("thalweg.tenant", "", Err(ReasonCode::NotAuthorized)),
        ("colour", "beta", Ok(())),
    ] {
        assert_eq!(one.may_say(name, value), expected, "{name}: {value}");
    }
    let kept = house.access.tenants().of(&acme).refusals();
    assert_eq!((kept.len(), kept[0].protocol), (2, "mqtt"));
}

#[tokio::test]
async fn topics_below_a_tenants_name_are_its_own_whatever_the_acls_say() {
    let boss = Policy {
        super_users: vec![Principal::user("ann")],
        allow_if_no_acl: true,
    };
    let by_acls = GuardSettings {
        policy: Some(Policy {
            super_users: Vec::new(),
            ..boss.clone()
        }),
        ..asks()
    };
    let free = GuardSettings {
        policy: None,
        ..asks()
    };
    let as_super_user = GuardSettings {
        policy: Some(boss),
        ..asks()
    };
    for (settings, is_held) in [(by_acls, true), (free, true), (as_super_user, false)] {
        let house = House::new();
        let guard = house.guard(settings);
        let pass = enter(&guard, Some("ann"), Some("pencil"), None)
            .await
            .unwrap();
        let receives = |topic: &str| pass.may_receive(topic);
        let says = |topic: &str| {
            pass.may_publish(topic, Qos::AtMostOnce, false) == Ok(())
                && pass
                    .may_subscribe(&topic.parse().unwrap(), Qos::AtMostOnce)
                    .is_ok()
        };
        assert!(receives("beta/up") && says("beta/up") && receives("$SYS/broker/uptime"));
        let (acme, beta) = ("acme".parse().unwrap(), "beta".parse().unwrap());
        let change = serde_json::json!({"members": ["User:ann"]});
        let change = serde_json::from_value(change).unwrap();
        house.access.set_tenant(&acme, &change).unwrap();
        // Nobody's as long as there is no such tenant.
        assert!(receives("beta/up") && says("beta/up"));
        let change = access::TenantChange::default();
        house.access.set_tenant(&beta, &change).unwrap();
        for (topic, is_foreign) in [
            ("beta/up", true),
            ("beta", true),
            ("$SYS/broker/uptime", true),
            ("acme/up", false),
            ("up/beta", false),
            ("up", false),
        ] {
            assert_eq!(receives(topic), !(is_foreign && is_held), "{topic}");
            assert_eq!(says(topic), !(is_foreign && is_held), "{topic}");
        }
        // A wide filter is granted, and brings what is not another's.
        let wide = pass.may_subscribe(&"#".parse().unwrap(), Qos::AtMostOnce);
        assert!(wide.is_ok());
        let kept = house.access.tenants().of(&acme).refusals();
        assert_eq!(kept.is_empty(), !is_held);
        // To who belongs to a removed one nothing is left that is anybody's.
        house.access.remove_tenant(&acme).unwrap();
        for (topic, is_foreign) in [
            ("beta/up", true),
            ("acme/up", true),
            ("$SYS/broker/uptime", true),
            ("up", false),
        ] {
            assert_eq!(receives(topic), !(is_foreign && is_held), "{topic}");
            assert_eq!(says(topic), !(is_foreign && is_held), "{topic}");
        }
    }
}

#[tokio::test]
async fn an_address_connects_so_often() {
    let house = House::new();
    let entity = QuotaEntity {
        ip: Some(Some("127.0.0.1".to_owned())),
        ..QuotaEntity::default()
    };
    let quota = (entity, "connection_creation_rate".to_owned(), Some(1.0));
    house.access.alter_quotas(&[quota]).unwrap();
    let guard = house.guard(asks());
    let mut last = Ok(());
    for _ in 0..50 {
        let entered = enter(&guard, Some("ann"), Some("pencil"), None).await;
        last = entered.map(drop);
    }
    assert_eq!(last, Err(ReasonCode::ConnectionRateExceeded));
}

#[tokio::test]
async fn scram_proves_a_user_and_wrong_words_do_not() {
    let house = House::new();
    let changes = PasswordForm::changes(&[PasswordForm::ScramSha256], "eve", "pencil", 4_096);
    house.access.alter_users(&changes.unwrap()).unwrap();
    let guard = house.guard(asks());
    let origin = origin(None);
    let hello = Hello {
        client_id: "c",
        username: None,
        password: None,
        origin: &origin,
    };
    assert!(guard.exchange("GSSAPI", &hello).is_none());
    let mut login = guard.exchange("SCRAM-SHA-256", &hello).unwrap();
    let Progress::Continue(challenge) = login.step(b"n,,n=eve,r=abc") else {
        panic!("no challenge");
    };
    let challenge = String::from_utf8(challenge).unwrap();
    let nonce = challenge.split(',').next().unwrap().to_owned();
    let proof = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let last = format!("c=biws,{nonce},p={proof}");
    let Progress::Refused(code) = login.step(last.as_bytes()) else {
        panic!("was let in by a wrong proof");
    };
    assert_eq!(code, ReasonCode::NotAuthorized);
    assert_eq!(guard.refusals(1)[0].what, Refused::Connect);
}

#[tokio::test]
async fn a_pass_ends_with_its_token() {
    let house = House::new();
    let guard = house.guard(asks());
    let minute = Some(Duration::from_secs(60));
    let (token, text) = Token::issue("ann", "", SystemClock.now(), minute).unwrap();
    let expires = token.expires;
    house.access.add_token(token).unwrap();
    for (password, ends) in [(text.as_str(), expires), ("pencil", None)] {
        let pass = enter(&guard, Some("ann"), Some(password), None).await;
        assert_eq!(pass.unwrap().ends(), ends);
    }
}

#[tokio::test]
async fn a_proof_by_scram_is_good_until_its_keys_change() {
    let house = House::new();
    let set = |form, password| {
        let changes = PasswordForm::changes(&[form], "eve", password, 4_096);
        house.access.alter_users(&changes.unwrap()).unwrap();
    };
    set(PasswordForm::ScramSha256, "pencil");
    let guard = house.guard(asks());
    let origin = origin(None);
    let hello = Hello {
        client_id: "c",
        username: None,
        password: None,
        origin: &origin,
    };
    let log_in = |between: &dyn Fn()| {
        let mut login = guard.exchange("SCRAM-SHA-256", &hello).unwrap();
        let Progress::Continue(challenge) = login.step(b"n,,n=eve,r=abc") else {
            panic!("no challenge");
        };
        let challenge = String::from_utf8(challenge).unwrap();
        between();
        match login.step(client_final("pencil", "n=eve,r=abc", &challenge).as_bytes()) {
            Progress::Done { pass, .. } => pass,
            _ => panic!("not let in"),
        }
    };
    let pass = log_in(&|| ());
    assert!(!pass.is_void());
    // Keys of another kind, a hash, somebody else's password, a right: none of them is hers.
    set(PasswordForm::ScramSha512, "pencil");
    set(PasswordForm::Argon2id, "pencil");
    house.allow("eve", Operation::Write, "t");
    assert!(!pass.is_void());
    set(PasswordForm::ScramSha256, "chalk");
    assert!(pass.is_void());
    // Nor is one who was half in when they changed.
    set(PasswordForm::ScramSha256, "pencil");
    let late = log_in(&|| set(PasswordForm::ScramSha256, "chalk"));
    assert!(late.is_void());
}
