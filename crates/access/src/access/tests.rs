//! Checks of what one data folder knows.

use base::UnixMillis;

use super::*;
use crate::limits::ITERATIONS_MIN;
use crate::{EVERY_HOST, Operation, PatternType, Permission, Principal, ResourceType};

fn credential(hash: ScramHash) -> Credential {
    Credential::of_password(hash, "pw", ITERATIONS_MIN).unwrap()
}

fn acl(name: &str) -> Acl {
    Acl {
        resource_type: ResourceType::Topic,
        resource_name: name.to_owned(),
        pattern_type: PatternType::Literal,
        principal: Principal::user("a"),
        host: EVERY_HOST.to_owned(),
        operation: Operation::Read,
        permission: Permission::Allow,
    }
}

fn names(access: &Access) -> Vec<String> {
    let snapshot = access.snapshot();
    snapshot
        .users()
        .map(|(name, c)| format!("{name}:{}", c.len()))
        .collect()
}

#[test]
fn what_was_changed_is_there_after_opening_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("access");
    let access = Access::open(&folder).unwrap();
    let set = |name: &str, hash| UserChange::Set(name.to_owned(), credential(hash));
    access
        .alter_users(&[
            set("ann", ScramHash::Sha256),
            set("ann", ScramHash::Sha512),
            set("bob", ScramHash::Sha256),
        ])
        .unwrap();
    access.add_acls(vec![acl("t"), acl("u"), acl("t")]).unwrap();
    let entity = QuotaEntity {
        user: Some(Some("ann".to_owned())),
        client_id: Some(None),
        ip: None,
    };
    let rate = (entity.clone(), "producer_byte_rate".to_owned(), Some(10.0));
    access.alter_quotas(&[rate]).unwrap();
    let before = access.snapshot();
    drop(access);
    let access = Access::open(&folder).unwrap();
    assert_eq!(names(&access), ["ann:2", "bob:1"]);
    assert!(Stored::of_snapshot(&before).is_same(&access.snapshot()));
    let remove = UserChange::Remove("ann".to_owned(), Some(ScramHash::Sha256));
    access.alter_users(std::slice::from_ref(&remove)).unwrap();
    access
        .alter_users(&[UserChange::Remove("bob".to_owned(), None)])
        .unwrap();
    assert!(matches!(
        access.alter_users(&[remove]),
        Err(AccessError::UnknownUser(_))
    ));
    let filter = AclFilter {
        resource_name: Some("t".to_owned()),
        ..AclFilter::default()
    };
    let gone = access.remove_acls(&[filter.clone(), filter]).unwrap();
    assert_eq!(gone, [vec![acl("t")], vec![]]);
    access
        .alter_quotas(&[(entity, "producer_byte_rate".to_owned(), None)])
        .unwrap();
    let access = Access::open(&folder).unwrap();
    assert_eq!(names(&access), ["ann:1"]);
    let snapshot = access.snapshot();
    assert_eq!(snapshot.acls(&AclFilter::default()).count(), 1);
    assert_eq!(snapshot.quotas().count(), 0);
}

#[test]
fn roles_are_granted_taken_back_and_go_with_their_user() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path()).unwrap();
    let set = UserChange::Set("ann".to_owned(), credential(ScramHash::Sha256));
    access.alter_users(&[set]).unwrap();
    let grant = |text: &str| text.parse::<Grant>().unwrap();
    let ann = Principal::user("ann");
    for text in ["operator:edge", "viewer", "viewer"] {
        access.grant(ann.clone(), grant(text)).unwrap();
    }
    let tenant = Principal::user("acme/*");
    access.grant(tenant, grant("designer:north")).unwrap();
    drop(access);
    let access = Access::open(dir.path()).unwrap();
    let of = |name: &str| -> Vec<String> {
        let snapshot = access.snapshot();
        let caller = Principal::user(name);
        snapshot.grants_of(&caller).map(Grant::to_string).collect()
    };
    assert_eq!(of("ann"), ["viewer", "operator:edge"]);
    assert_eq!(of("acme/bob"), ["designer:north"]);
    access.revoke(&ann, &grant("viewer")).unwrap();
    assert!(matches!(
        access.revoke(&ann, &grant("viewer")),
        Err(AccessError::UnknownGrant { .. })
    ));
    assert_eq!(of("ann"), ["operator:edge"]);
    let gone = UserChange::Remove("ann".to_owned(), None);
    access.alter_users(&[gone]).unwrap();
    assert_eq!(of("ann"), [""; 0]);
}

#[test]
fn tokens_are_of_users_and_go_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path()).unwrap();
    let issue = |user: &str| Token::issue(user, "", UnixMillis(0), None).unwrap();
    let refused = access.add_token(issue("ann").0);
    assert!(matches!(refused, Err(AccessError::UnknownUser(_))));
    for name in ["ann", "bob"] {
        let set = UserChange::Set(name.to_owned(), credential(ScramHash::Sha256));
        access.alter_users(&[set]).unwrap();
    }
    let (anns, bobs) = (issue("ann"), issue("bob"));
    let secret = anns.1.clone();
    access.add_token(anns.0).unwrap();
    access.add_token(bobs.0.clone()).unwrap();
    drop(access);
    let access = Access::open(dir.path()).unwrap();
    let known = |text: &str| {
        let token = access.snapshot().token_of(text)?.clone();
        Some(token.user)
    };
    assert_eq!(known(&secret), Some("ann".to_owned()));
    assert_eq!(known(&bobs.1), Some("bob".to_owned()));
    let text = std::fs::read_to_string(dir.path().join("access.json")).unwrap();
    assert!(!text.contains(&secret) && !text.contains(&bobs.1));
    let gone = UserChange::Remove("ann".to_owned(), None);
    access.alter_users(&[gone]).unwrap();
    assert_eq!(known(&secret), None);
    access.remove_token(&bobs.0.id).unwrap();
    assert_eq!(known(&bobs.1), None);
    let again = access.remove_token(&bobs.0.id);
    assert!(matches!(again, Err(AccessError::UnknownToken(_))));
}

#[test]
fn a_change_is_taken_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let access = Access::open(dir.path()).unwrap();
    let refused = access.alter_users(&[
        UserChange::Set("ann".to_owned(), credential(ScramHash::Sha256)),
        UserChange::Remove("nobody".to_owned(), None),
    ]);
    assert!(refused.is_err());
    assert_eq!(names(&access), [""; 0]);
    let mut bad = acl("t");
    bad.host = "nowhere".to_owned();
    assert!(access.add_acls(vec![acl("t"), bad]).is_err());
    assert_eq!(access.snapshot().acls(&AclFilter::default()).count(), 0);
    let many = (0..=ACLS_MAX).map(|n| acl(&n.to_string())).collect();
    assert!(matches!(
        access.add_acls(many),
        Err(AccessError::Limit { .. })
    ));
}

#[test]
fn a_failed_write_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("access");
    let access = Access::open(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    // A file where the folder was: nothing can be written there.
    std::fs::write(&folder, "").unwrap();
    assert!(matches!(
        access.add_acls(vec![acl("t")]),
        Err(AccessError::File { .. })
    ));
    assert_eq!(access.snapshot().acls(&AclFilter::default()).count(), 0);
}

#[tokio::test]
async fn who_waits_for_a_change_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let access = Arc::new(Access::open(dir.path()).unwrap());
    let seen = access.revision();
    let waiting = tokio::spawn({
        let access = Arc::clone(&access);
        async move { access.changed_since(seen).await }
    });
    access
        .grant(
            Principal::user("ann"),
            Grant::everywhere(crate::Role::Viewer),
        )
        .unwrap();
    let told = tokio::time::timeout(std::time::Duration::from_secs(60), waiting);
    assert_ne!(told.await.unwrap().unwrap(), seen);
    // What has changed before is told at once.
    assert_ne!(access.changed_since(seen).await, seen);
}
