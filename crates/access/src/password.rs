//! Names and passwords that come with every request, as HTTP's Basic scheme sends them.
//!
//! Hashing a password takes milliseconds, so who was right is remembered for a while: by a keyed
//! hash of name and password under a key of this process, never by the password. Any change of
//! users forgets everything. Who was wrong is hashed again each time.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use parking_lot::Mutex;
use ring::hmac;

use crate::limits::{VERIFIED_FOR, VERIFIED_MAX};
use crate::{Access, Login, Mechanism, Principal, Step};

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

    /// Who this is, by hashing the password: takes milliseconds, for a stranger as for a user.
    pub fn check(&self, now: UnixMillis, name: &str, password: &str) -> Option<Principal> {
        // Before the users are looked at: a change meanwhile must not be slept through.
        let revision = self.access.revision();
        let message = format!("\0{name}\0{password}");
        let users = self.access.snapshot();
        let mut login = Login::new(Mechanism::Plain);
        let Step::Done(principal, _) = login.step(&users, self.access.secret(), message.as_bytes())
        else {
            return None;
        };
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
}
