//! What is kept of a password for those who log in by showing it: its argon2id hash.
//!
//! The text that is kept is `$argon2id$v=19$m=19456,t=2,p=1$salt$hash` (the PHC string format), with
//! the parameters that OWASP names as the least. One hash takes 19 MiB and some tens of
//! milliseconds of a core, so the whole process makes few at a time, whoever asks: memory and time
//! that strangers can take by guessing are bounded. Waiting blocks the thread: call from one that
//! may block.

use std::fmt;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::sync::LazyLock;

use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc};
use argon2::{Algorithm, Argon2, Params, Version};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::AccessError;
use crate::credential::{check_password, random_bytes};
use crate::limits::{HASHED_AT_ONCE_MAX, PASSWORD_BYTES_MAX};

/// The argon2id hash of a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PasswordHash(String);

impl PasswordHash {
    /// Hashes a password, with a fresh salt.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for an empty or endless password, [`AccessError::Random`].
    pub fn of_password(password: &str) -> Result<Self, AccessError> {
        check_password(password)?;
        let hash = hashed(password, &random_bytes::<SALT_BYTES>()?)?;
        Ok(PasswordHash(hash.to_string()))
    }

    /// Whether `password` is the one, by hashing it again.
    pub fn proves(&self, password: &str) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let Ok(kept) = phc::PasswordHash::new(&self.0) else {
            return false;
        };
        let _place = Place::take();
        // The parameters are those of the text.
        argon2().verify_password(password.as_bytes(), &kept).is_ok()
    }

    /// Takes the time of [`PasswordHash::proves`] where there is nothing to compare with, so that a
    /// stranger cannot tell.
    pub(crate) fn pretend(password: &str) {
        if password.len() <= PASSWORD_BYTES_MAX {
            drop(black_box(hashed(password, &[0; SALT_BYTES])));
        }
    }
}

fn hashed(password: &str, salt: &[u8]) -> Result<phc::PasswordHash, AccessError> {
    let _place = Place::take();
    let hash = argon2().hash_password_with_salt(password.as_bytes(), salt);
    hash.map_err(|error| AccessError::invalid("password", error.to_string()))
}

fn argon2() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}

impl TryFrom<String> for PasswordHash {
    type Error = String;

    /// Reads a text that was kept; one that asks for more memory or time than ours is refused.
    fn try_from(text: String) -> Result<Self, String> {
        let kept = phc::PasswordHash::new(&text).map_err(|error| error.to_string())?;
        let params = Params::try_from(&kept).map_err(|error| error.to_string())?;
        let is_ours = kept.algorithm.as_str() == "argon2id"
            && kept.salt.is_some()
            && kept.hash.is_some()
            && params.m_cost() <= Params::DEFAULT_M_COST
            && params.t_cost() <= Params::DEFAULT_T_COST
            && params.p_cost() <= Params::DEFAULT_P_COST;
        is_ours
            .then_some(PasswordHash(text))
            .ok_or_else(|| "a password's hash is not one of argon2id with our parameters".into())
    }
}

impl From<PasswordHash> for String {
    fn from(hash: PasswordHash) -> String {
        hash.0
    }
}

/// The right to make one hash now; given back when it goes.
struct Place;

impl Place {
    fn take() -> Self {
        let mut taken = TAKEN.lock();
        while *taken >= *PLACES {
            FREED.wait(&mut taken);
        }
        *taken += 1;
        Place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *TAKEN.lock() -= 1;
        FREED.notify_one();
    }
}

/// Half of the machine's cores, so that whoever guesses leaves the other half to work.
static PLACES: LazyLock<usize> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    (cores / 2).clamp(1, HASHED_AT_ONCE_MAX)
});
static TAKEN: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// Bytes of a salt: what RFC 9106 recommends.
const SALT_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_hash_knows_its_password_and_no_other() {
        let hash = PasswordHash::of_password("pencil").unwrap();
        assert!(hash.proves("pencil"));
        let long = "p".repeat(PASSWORD_BYTES_MAX + 1);
        for wrong in ["", "Pencil", "pencil ", &long] {
            assert!(!hash.proves(wrong), "{wrong}");
        }
        let text = String::from(hash.clone());
        assert!(
            text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{text}"
        );
        assert_eq!(PasswordHash::try_from(text).unwrap(), hash);
        assert_eq!(format!("{hash:?}"), "PasswordHash(…)");
        assert_ne!(PasswordHash::of_password("pencil").unwrap(), hash);
        for bad in ["", &long] {
            assert!(PasswordHash::of_password(bad).is_err());
        }
    }

    /// A vector of the reference implementation's own tests: "password" with the salt "somesalt".
    #[test]
    fn hashes_are_those_of_the_standard() {
        let text = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$\
                    nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";
        let hash = PasswordHash::try_from(text.to_owned()).unwrap();
        assert!(hash.proves("password"));
        assert!(!hash.proves("Password"));
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        let good = String::from(PasswordHash::of_password("x").unwrap());
        for bad in [
            String::new(),
            "x".to_owned(),
            good.replace("argon2id", "argon2i"),
            good.replace("m=19456", "m=1945600"),
            good.replace("t=2", "t=2000"),
            good.replace("p=1", "p=64"),
            good.rsplit_once('$').unwrap().0.to_owned(),
        ] {
            assert!(PasswordHash::try_from(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn few_are_hashed_at_one_time() {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let place = Place::take();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(place);
                });
            }
        });
        let most = most.load(Ordering::SeqCst);
        assert!((1..=*PLACES).contains(&most), "{most}");
    }
}
