//! Names and passwords as HTTP's Basic scheme and SASL's PLAIN send them: how they are kept, and how
//! they are checked.
//!
//! A password is checked by its argon2id hash. Users who were made before there were such hashes, or
//! by Kafka's tools, have SCRAM's keys alone: those prove them, and their first login adds the hash.
//!
//! Hashing takes tens of milliseconds, so who was right is remembered for a while: by a keyed
//! hash of name and password under a key of this process, never by the password. Any change of
//! users forgets everything. Who was wrong is hashed again each time, and a stranger costs the same
//! time as a user.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use parking_lot::Mutex;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::limits::{VERIFIED_FOR, VERIFIED_MAX};
use crate::{
    Access, AccessError, Credential, PasswordHash, Principal, ScramHash, Secret, Snapshot,
    UserChange,
};

/// What is kept of a password: each form opens doors of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PasswordForm {
    /// Keys for SCRAM-SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// Keys for SCRAM-SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// The hash for those who show the password: HTTP's Basic scheme and SASL's PLAIN.
    #[serde(rename = "ARGON2ID")]
    Argon2id,
}

impl PasswordForm {
    /// All of them.
    pub const ALL: [PasswordForm; 3] = [
        PasswordForm::ScramSha256,
        PasswordForm::ScramSha512,
        PasswordForm::Argon2id,
    ];

    /// The name that the API and the command line have for it.
    pub fn name(self) -> &'static str {
        match self {
            PasswordForm::ScramSha256 => ScramHash::Sha256.name(),
            PasswordForm::ScramSha512 => ScramHash::Sha512.name(),
            PasswordForm::Argon2id => "ARGON2ID",
        }
    }

    /// The changes that set a user's password in these forms, in all of them if none is named.
    /// Hashes, so it takes tens of milliseconds.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for an empty or endless password, or rounds out of bounds.
    pub fn changes(
        forms: &[PasswordForm],
        name: &str,
        password: &str,
        iterations: u32,
    ) -> Result<Vec<UserChange>, AccessError> {
        let wants = |form| forms.is_empty() || forms.contains(&form);
        let mut changes = Vec::with_capacity(PasswordForm::ALL.len());
        for (form, hash) in [
            (PasswordForm::ScramSha256, ScramHash::Sha256),
            (PasswordForm::ScramSha512, ScramHash::Sha512),
        ] {
            if wants(form) {
                let credential = Credential::of_password(hash, password, iterations)?;
                changes.push(UserChange::Set(name.to_owned(), credential));
            }
        }
        // Last: keys that are set forget the hash of the password before.
        if wants(PasswordForm::Argon2id) {
            let hash = PasswordHash::of_password(password)?;
            changes.push(UserChange::SetHash(name.to_owned(), hash));
        }
        Ok(changes)
    }
}

impl std::str::FromStr for PasswordForm {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let found = PasswordForm::ALL
            .into_iter()
            .find(|form| form.name() == text);
        let reason = "write SCRAM-SHA-256, SCRAM-SHA-512 or ARGON2ID";
        found.ok_or_else(|| AccessError::invalid("mechanism", reason))
    }
}

/// What a password turned out to be.
pub(crate) enum Proof<'u> {
    /// There is no such user, or theirs is another one.
    Wrong,
    /// It is the user's.
    Right,
    /// It is the user's by these keys; there is no hash of it yet.
    ByKeys(&'u Credential),
}

/// Checks a password by hashing it: takes tens of milliseconds, for a stranger as for a user.
pub(crate) fn prove<'u>(
    users: &'u Snapshot,
    secret: &Secret,
    name: &str,
    password: &str,
) -> Proof<'u> {
    let keys = ScramHash::ALL
        .into_iter()
        .find_map(|hash| users.credential(name, hash));
    let nobody;
    let compared = match keys {
        Some(keys) => keys,
        None => {
            nobody = Credential::of_nobody(ScramHash::Sha256, secret.bytes(), name);
            &nobody
        }
    };
    // Whether or not it decides, so that nobody is told apart by the time.
    let fits_keys = compared.proves(password);
    match (users.password_hash(name), keys) {
        (Some(hash), _) if hash.proves(password) => Proof::Right,
        (Some(_), _) => Proof::Wrong,
        (None, Some(keys)) if fits_keys => Proof::ByKeys(keys),
        (None, _) => {
            if users.has_password_hashes() {
                PasswordHash::pretend(password);
            }
            Proof::Wrong
        }
    }
}

/// Checks names and passwords against the users of a folder.
pub struct Passwords {
    access: Arc<Access>,
    verified: Mutex<HashMap<[u8; 32], Verified>>,
}

struct Verified {
    principal: Principal,
    /// The state of the users that it was right by.
    revision: u64,
    until: UnixMillis,
}

impl Passwords {
    /// Checks against the users of `access`.
    pub fn new(access: Arc<Access>) -> Self {
        Passwords {
            access,
            verified: Mutex::default(),
        }
    }

    /// Who this is, when they were right a moment ago. Costs microseconds.
    pub fn known(&self, now: UnixMillis, name: &str, password: &str) -> Option<Principal> {
        let key = self.key(name, password);
        let revision = self.access.revision();
        let verified = self.verified.lock();
        let found = verified.get(&key)?;
        let holds = found.revision == revision && now < found.until;
        holds.then(|| found.principal.clone())
    }

    /// Who this is, by hashing the password: takes tens of milliseconds, for a stranger as for a
    /// user, and waits for others who hash. Blocks.
    pub fn check(&self, now: UnixMillis, name: &str, password: &str) -> Option<Principal> {
        // Before the users are looked at: a change meanwhile must not be slept through.
        let revision = self.access.revision();
        if name.is_empty() || password.is_empty() {
            return None;
        }
        let users = self.access.snapshot();
        match prove(&users, self.access.secret(), name, password) {
            Proof::Wrong => return None,
            Proof::Right => {}
            Proof::ByKeys(keys) => self.keep_hash(name, password, keys),
        }
        let principal = Principal::user(name);
        let mut verified = self.verified.lock();
        if verified.len() >= VERIFIED_MAX {
            verified.retain(|_, known| known.revision == revision && now < known.until);
        }
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        let known = Verified {
            principal: principal.clone(),
            revision,
            until: now + VERIFIED_FOR,
        };
        verified.insert(self.key(name, password), known);
        Some(principal)
    }

    /// Keeps the hash of a password that SCRAM's keys proved. What keeps it from being kept harms
    /// nobody: the next login comes here again.
    fn keep_hash(&self, name: &str, password: &str, keys: &Credential) {
        let kept = PasswordHash::of_password(password)
            .and_then(|hash| self.access.keep_hash(name, keys, hash));
        if let Err(error) = kept {
            tracing::warn!(
                error = base::report(&error),
                "a password's hash is not kept"
            );
        }
    }

    fn key(&self, name: &str, password: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.access.secret().bytes());
        let mut context = hmac::Context::with_key(&key);
        // With its length, so that no other name and password run together to the same bytes.
        context.update(&name.len().to_be_bytes());
        context.update(name.as_bytes());
        context.update(password.as_bytes());
        let mut out = [0; 32];
        out.copy_from_slice(context.sign().as_ref());
        out
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limits::ITERATIONS_MIN;
    use crate::{Credential, ScramHash, UserChange};

    fn set(access: &Access, name: &str, password: &str) {
        let credential = Credential::of_password(ScramHash::Sha512, password, ITERATIONS_MIN);
        let change = UserChange::Set(name.to_owned(), credential.unwrap());
        access.alter_users(&[change]).unwrap();
    }

    #[test]
    fn who_was_right_is_known_for_a_while_and_until_the_users_change() {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        set(&access, "ann", "secret");
        let passwords = Passwords::new(Arc::clone(&access));
        let now = UnixMillis(1_000_000);
        assert_eq!(passwords.known(now, "ann", "secret"), None);
        for (name, password) in [("ann", "wrong"), ("eve", "secret"), ("ann", ""), ("", "")] {
            assert_eq!(passwords.check(now, name, password), None);
        }
        let ann = passwords.check(now, "ann", "secret").unwrap();
        assert_eq!(ann, Principal::user("ann"));
        // The first login made a hash, which is a change of the users; the second is remembered.
        assert_eq!(passwords.known(now, "ann", "secret"), None);
        assert!(passwords.check(now, "ann", "secret").is_some());
        assert_eq!(passwords.known(now, "ann", "secret"), Some(ann));
        // Neither another password nor another cut of the same letters.
        assert_eq!(passwords.known(now, "ann", "wrong"), None);
        assert_eq!(passwords.known(now, "anns", "ecret"), None);
        let later = now + VERIFIED_FOR + Duration::from_millis(1);
        assert_eq!(passwords.known(later, "ann", "secret"), None);
        set(&access, "ann", "other");
        assert_eq!(passwords.known(now, "ann", "secret"), None);
        assert_eq!(passwords.check(now, "ann", "secret"), None);
    }
    #[test]
    fn the_first_login_of_an_older_user_adds_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        set(&access, "ann", "secret");
        let passwords = Passwords::new(Arc::clone(&access));
        let now = UnixMillis(1_000_000);
        assert_eq!(passwords.check(now, "ann", "wrong"), None);
        assert!(access.snapshot().password_hash("ann").is_none());
        assert!(passwords.check(now, "ann", "secret").is_some());
        let access = Access::open(dir.path()).unwrap();
        let kept = access.snapshot().password_hash("ann").unwrap().clone();
        assert!(kept.proves("secret"));
        let text = std::fs::read_to_string(dir.path().join("access.json")).unwrap();
        assert!(text.contains("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn a_user_may_have_the_hash_alone() {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        let forms = [PasswordForm::Argon2id];
        let changes = PasswordForm::changes(&forms, "ann", "secret", ITERATIONS_MIN).unwrap();
        access.alter_users(&changes).unwrap();
        let passwords = Passwords::new(Arc::clone(&access));
        let now = UnixMillis(1_000_000);
        assert_eq!(passwords.check(now, "ann", "wrong"), None);
        let ann = passwords.check(now, "ann", "secret");
        assert_eq!(ann, Some(Principal::user("ann")));
        assert_eq!(passwords.known(now, "ann", "secret"), ann);
        let snapshot = Access::open(dir.path()).unwrap().snapshot();
        assert!(snapshot.credential("ann", ScramHash::Sha256).is_none());
        assert!(snapshot.password_hash("ann").is_some());
    }

    /// Whoever knows the password before must not come in by its hash.
    #[test]
    fn keys_that_are_set_forget_the_hash_of_another_password() {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        let changes = PasswordForm::changes(&[], "ann", "old", ITERATIONS_MIN).unwrap();
        assert_eq!(changes.len(), 3);
        access.alter_users(&changes).unwrap();
        let passwords = Passwords::new(Arc::clone(&access));
        let now = UnixMillis(1_000_000);
        assert!(passwords.check(now, "ann", "old").is_some());
        let keys = access
            .snapshot()
            .credential("ann", ScramHash::Sha256)
            .cloned();
        // As Kafka's tools change a password: salted elsewhere, so that there is no hash.
        for hash in ScramHash::ALL {
            let credential = Credential::of_password(hash, "new", ITERATIONS_MIN).unwrap();
            let change = UserChange::Set("ann".to_owned(), credential);
            access.alter_users(&[change]).unwrap();
        }
        assert_eq!(passwords.check(now, "ann", "old"), None);
        // Nor does a login that was under way meanwhile bring it back.
        let hash = PasswordHash::of_password("old").unwrap();
        access.keep_hash("ann", &keys.unwrap(), hash).unwrap();
        assert!(access.snapshot().password_hash("ann").is_none());
        assert!(passwords.check(now, "ann", "new").is_some());
    }

    #[test]
    fn names_of_forms_are_read_and_others_are_not() {
        for form in PasswordForm::ALL {
            assert_eq!(form.name().parse::<PasswordForm>().unwrap(), form);
            let json = serde_json::to_string(&form).unwrap();
            assert_eq!(json, format!("\"{}\"", form.name()));
        }
        assert!("ARGON2I".parse::<PasswordForm>().is_err());
    }
}
