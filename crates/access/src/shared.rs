//! Users, their tokens and roles where several processes share them: one text with a number, in a
//! place that all of them reach.
//!
//! Each process keeps what it read last, answers from that, and looks now and then whether the number
//! is another one. A change is made on the newest text and put back only while that still is the
//! newest; else it is made again. ACLs, quotas and tenants belong to one event store and stay in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;

use crate::access::within;
use crate::limits::{GRANTED_MAX, TOKENS_MAX, USERS_MAX};
use crate::store::{self, Stored};
use crate::{Access, AccessError};

/// Where the text lies. Calls block: make them from a thread that may.
pub trait SharedUsers: Send + Sync {
    /// The newest text, unless its number is `known`.
    ///
    /// # Errors
    /// What keeps it from being read; the caller may try again.
    fn read(&self, known: i64) -> Result<Option<SharedText>, SharedError>;

    /// Puts `text` in the place of the text with the number `known`, durable on return; false when
    /// that is not the newest any more. The number counts up by one.
    ///
    /// # Errors
    /// What keeps it from being written; whether it was is not known then.
    fn replace(&self, known: i64, text: &[u8]) -> Result<bool, SharedError>;
}

/// A text with its number.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedText {
    /// Another one after each change; zero before the first.
    pub number: i64,
    /// As [`SharedUsers::replace`] was given it; nothing before the first change.
    pub text: Vec<u8>,
}

/// Why the place could not be read or written.
pub type SharedError = Box<dyn Error + Send + Sync>;

/// The place, and the number of what was read there last.
pub(crate) struct Sharing {
    pub(crate) place: Arc<dyn SharedUsers>,
    pub(crate) number: i64,
}

impl Access {
    /// Shares users, tokens and roles with other processes from now on. Those of the folder move
    /// there, where they take the place of those of the same name; ACLs and quotas stay. Blocks.
    ///
    /// # Errors
    /// [`AccessError::Shared`], [`AccessError::Limit`], [`AccessError::File`].
    pub fn share(&self, place: Arc<dyn SharedUsers>) -> Result<(), AccessError> {
        let mut sharing = self.changing.lock();
        let ours = Stored::of_snapshot(&self.snapshot());
        let mut shared = Sharing { place, number: -1 };
        for _ in 0..ATTEMPTS_MAX {
            let mut all = shared.newest()?.unwrap_or_default();
            all.take_own(&ours);
            if !ours.has_users() {
                self.publish(all);
                *sharing = Some(shared);
                return Ok(());
            }
            all.add_users(ours.shared_part());
            within("users", all.users.len(), USERS_MAX)?;
            within("tokens", all.tokens.len(), TOKENS_MAX)?;
            within("callers with roles", all.grants.len(), GRANTED_MAX)?;
            if shared.replace(&all)? {
                store::write(&self.path, &ours.own_part())?;
                self.publish(all);
                *sharing = Some(shared);
                return Ok(());
            }
            shared.number = -1;
        }
        Err(busy())
    }

    /// Takes over what other processes changed of the users that are shared; whether there was
    /// anything. Blocks.
    ///
    /// # Errors
    /// [`AccessError::Shared`]: what was known goes on.
    pub fn refresh(&self) -> Result<bool, AccessError> {
        let mut sharing = self.changing.lock();
        let Some(shared) = sharing.as_mut() else {
            return Ok(false);
        };
        self.take_newest(shared)
    }

    pub(crate) fn take_newest(&self, shared: &mut Sharing) -> Result<bool, AccessError> {
        let Some(mut newest) = shared.newest()? else {
            return Ok(false);
        };
        newest.take_own(&Stored::of_snapshot(&self.snapshot()));
        self.publish(newest);
        Ok(true)
    }
}

impl Sharing {
    /// The newest users, tokens and roles, unless they are known.
    pub(crate) fn newest(&mut self) -> Result<Option<Stored>, AccessError> {
        let read = self.place.read(self.number).map_err(AccessError::Shared)?;
        let Some(SharedText { number, text }) = read else {
            return Ok(None);
        };
        let newest = match text.is_empty() {
            true => Stored::default(),
            false => {
                store::understand(&text).map_err(|reason| AccessError::Shared(reason.into()))?
            }
        };
        self.number = number;
        Ok(Some(newest))
    }

    /// Puts what is shared of `stored` in the place of what was read last; false when that is not
    /// the newest.
    pub(crate) fn replace(&mut self, stored: &Stored) -> Result<bool, AccessError> {
        let failed = |error: std::io::Error| AccessError::Shared(error.into());
        let text = store::text(&stored.shared_part()).map_err(failed)?;
        let replaced = self.place.replace(self.number, &text);
        let replaced = replaced.map_err(AccessError::Shared)?;
        self.number += i64::from(replaced);
        Ok(replaced)
    }
}

impl Stored {
    /// What is shared of this.
    pub(crate) fn shared_part(&self) -> Stored {
        Stored {
            acls: BTreeSet::new(),
            quotas: BTreeMap::new(),
            tenants: BTreeMap::new(),
            removed: BTreeMap::new(),
            collections: BTreeSet::new(),
            ..self.clone()
        }
    }

    /// What stays in the folder.
    pub(crate) fn own_part(&self) -> Stored {
        Stored {
            acls: self.acls.clone(),
            quotas: self.quotas.clone(),
            tenants: self.tenants.clone(),
            removed: self.removed.clone(),
            collections: self.collections.clone(),
            ..Stored::default()
        }
    }

    /// Takes the ACLs, quotas and tenants of `own`.
    pub(crate) fn take_own(&mut self, own: &Stored) {
        self.acls.clone_from(&own.acls);
        self.quotas.clone_from(&own.quotas);
        self.tenants.clone_from(&own.tenants);
        self.removed.clone_from(&own.removed);
        self.collections.clone_from(&own.collections);
    }

    /// Whether there is anything to share.
    pub(crate) fn has_users(&self) -> bool {
        !(self.users.is_empty() && self.tokens.is_empty() && self.grants.is_empty())
    }

    /// Adds the users, tokens and roles of `other`, whose users take the place of those of the same
    /// name.
    pub(crate) fn add_users(&mut self, other: Stored) {
        let mut hashes = other.password_hashes;
        for (name, credentials) in other.users {
            match hashes.remove(&name) {
                Some(hash) => drop(self.password_hashes.insert(name.clone(), hash)),
                None => drop(self.password_hashes.remove(&name)),
            }
            self.users.insert(name, credentials);
        }
        self.tokens.extend(other.tokens);
        for (principal, grants) in other.grants {
            self.grants.entry(principal).or_default().extend(grants);
        }
    }
}

/// Others changed the shared users each time when this process was about to.
pub(crate) fn busy() -> AccessError {
    AccessError::Shared("others change them without a pause".into())
}

/// How often a change of shared users is made again because others changed them meanwhile.
pub(crate) const ATTEMPTS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use parking_lot::Mutex;

    use super::*;
    use crate::limits::ITERATIONS_MIN;
    use crate::{
        Acl, EVERY_HOST, Grant, Operation, PasswordForm, PatternType, Permission, Principal,
        ResourceType, Token, UserChange,
    };

    /// A place in memory, which may be away, and into which another process may write in between.
    #[derive(Default)]
    struct Place {
        now: Mutex<(i64, Vec<u8>)>,
        is_away: Mutex<bool>,
        /// Writes to come before the next ones here.
        before: Mutex<Vec<Vec<u8>>>,
    }

    impl SharedUsers for Place {
        fn read(&self, known: i64) -> Result<Option<SharedText>, SharedError> {
            if *self.is_away.lock() {
                return Err("it is away".into());
            }
            let (number, text) = self.now.lock().clone();
            Ok((number != known).then_some(SharedText { number, text }))
        }

        fn replace(&self, known: i64, text: &[u8]) -> Result<bool, SharedError> {
            let mut now = self.now.lock();
            if let Some(other) = self.before.lock().pop() {
                *now = (now.0 + 1, other);
            }
            if now.0 != known {
                return Ok(false);
            }
            *now = (known + 1, text.to_vec());
            Ok(true)
        }
    }

    fn set(access: &Access, name: &str) {
        access.alter_users(&password(name)).unwrap();
    }

    fn password(name: &str) -> Vec<UserChange> {
        let forms = [PasswordForm::ScramSha256];
        PasswordForm::changes(&forms, name, "pw", ITERATIONS_MIN).unwrap()
    }

    fn names(access: &Access) -> Vec<String> {
        let snapshot = access.snapshot();
        snapshot.users().map(|(name, _)| name.to_owned()).collect()
    }

    fn node(folder: &Path, place: &Arc<Place>) -> Access {
        let access = Access::open(folder).unwrap();
        access.share(place.clone()).unwrap();
        access
    }

    #[test]
    fn a_change_at_one_is_seen_by_the_others_and_acls_stay_at_home() {
        let place = Arc::new(Place::default());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [a, b] = [0, 1].map(|n| node(folders[n].path(), &place));
        set(&a, "ann");
        let ann = Principal::user("ann");
        a.grant(ann.clone(), "operator:edge".parse::<Grant>().unwrap())
            .unwrap();
        let now = base::UnixMillis(1_000);
        let (token, text) = Token::issue("ann", "", now, None).unwrap();
        a.add_token(token).unwrap();
        a.add_acls(vec![Acl {
            resource_type: ResourceType::Topic,
            resource_name: "t".to_owned(),
            pattern_type: PatternType::Literal,
            principal: ann.clone(),
            host: EVERY_HOST.to_owned(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }])
        .unwrap();
        assert!(names(&b).is_empty(), "nobody has looked yet");
        let before = b.revision();
        assert!(b.refresh().unwrap());
        assert_ne!(b.revision(), before, "what was verified must be again");
        assert!(!b.refresh().unwrap(), "nothing is new");
        assert_eq!(names(&b), ["ann"]);
        let snapshot = b.snapshot();
        assert_eq!(snapshot.grants_of(&ann).count(), 1);
        let found = snapshot.token_of(&text).unwrap();
        assert_eq!(found.principal(now), Some(ann.clone()));
        let all = crate::AclFilter::default();
        assert_eq!(snapshot.acls(&all).count(), 0);
        // Who is removed at one is gone at the other, with the token.
        b.alter_users(&[UserChange::Remove("ann".to_owned(), None)])
            .unwrap();
        assert!(a.refresh().unwrap());
        assert!(names(&a).is_empty());
        assert!(a.snapshot().token_of(&text).is_none());
        assert_eq!(a.snapshot().acls(&all).count(), 1);
        let again = node(folders[0].path(), &place);
        assert_eq!(again.snapshot().acls(&all).count(), 1);
        assert!(names(&again).is_empty());
    }

    #[test]
    fn what_lies_in_the_folder_moves_and_does_not_come_back() {
        let place = Arc::new(Place::default());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (folder, name) in folders.iter().zip(["ann", "bob"]) {
            set(&Access::open(folder.path()).unwrap(), name);
        }
        let a = node(folders[0].path(), &place);
        let b = node(folders[1].path(), &place);
        assert_eq!(names(&b), ["ann", "bob"]);
        b.alter_users(&[UserChange::Remove("ann".to_owned(), None)])
            .unwrap();
        drop(a);
        let a = node(folders[0].path(), &place);
        assert_eq!(names(&a), ["bob"], "ann's folder remembers nothing");
    }

    #[test]
    fn changes_at_two_at_once_are_both_there() {
        let place = Arc::new(Place::default());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [a, b] = [0, 1].map(|n| node(folders[n].path(), &place));
        set(&a, "ann");
        let with_ann = place.now.lock().1.clone();
        // B has not looked, and somebody else writes between its look and its write.
        place.before.lock().push(with_ann);
        set(&b, "bob");
        a.refresh().unwrap();
        assert_eq!(names(&a), ["ann", "bob"]);
        assert_eq!(names(&b), ["ann", "bob"]);
    }

    #[test]
    fn while_the_place_is_away_nothing_changes_and_what_is_known_holds() {
        let place = Arc::new(Place::default());
        let folder = tempfile::tempdir().unwrap();
        let a = node(folder.path(), &place);
        set(&a, "ann");
        *place.is_away.lock() = true;
        assert!(matches!(a.refresh(), Err(AccessError::Shared(_))));
        let refused = a.alter_users(&password("bob"));
        assert!(matches!(refused, Err(AccessError::Shared(_))));
        assert_eq!(names(&a), ["ann"]);
        *place.is_away.lock() = false;
        // What a newer version wrote is not guessed at.
        *place.now.lock() = (99, b"{\"version\": 2}".to_vec());
        assert!(a.refresh().is_err());
        assert_eq!(names(&a), ["ann"]);
    }
}
