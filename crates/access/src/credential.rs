//! What is kept of a password for SCRAM: salt, rounds and two keys, as RFC 5802 has it; never the
//! password. What is kept for logins that show the password is in `password_hash.rs`.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2, rand};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::AccessError;
use crate::limits::{ITERATIONS_MAX, ITERATIONS_MIN, PASSWORD_BYTES_MAX, SALT_BYTES_MAX};

/// A hash that SCRAM is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ScramHash {
    /// SHA-256 (RFC 7677).
    #[serde(rename = "SCRAM-SHA-256")]
    Sha256,
    /// SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    Sha512,
}

impl ScramHash {
    /// All of them.
    pub const ALL: [ScramHash; 2] = [ScramHash::Sha256, ScramHash::Sha512];

    /// The name of the SASL mechanism.
    pub fn name(self) -> &'static str {
        match self {
            ScramHash::Sha256 => "SCRAM-SHA-256",
            ScramHash::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Bytes of one hash.
    pub fn bytes(self) -> usize {
        self.digest().output_len()
    }

    pub(crate) fn digest(self) -> &'static digest::Algorithm {
        match self {
            ScramHash::Sha256 => &digest::SHA256,
            ScramHash::Sha512 => &digest::SHA512,
        }
    }

    pub(crate) fn hmac(self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            ScramHash::Sha256 => hmac::HMAC_SHA256,
            ScramHash::Sha512 => hmac::HMAC_SHA512,
        };
        let key = hmac::Key::new(algorithm, key);
        hmac::sign(&key, text).as_ref().to_vec()
    }

    /// Hashes a password, slowly.
    pub fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let algorithm = match self {
            ScramHash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramHash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        // A credential has at least 4,096 rounds; one stands for what cannot be.
        let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted = vec![0; self.bytes()];
        pbkdf2::derive(algorithm, rounds, salt, password.as_bytes(), &mut salted);
        salted
    }
}

impl fmt::Display for ScramHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScramHash {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let found = ScramHash::ALL.into_iter().find(|hash| hash.name() == text);
        found.ok_or_else(|| {
            AccessError::invalid("mechanism", "write SCRAM-SHA-256 or SCRAM-SHA-512")
        })
    }
}

/// What proves a password without holding it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The hash.
    pub hash: ScramHash,
    /// Rounds of the slow hash.
    pub iterations: u32,
    #[serde(with = "in_base64")]
    pub(crate) salt: Vec<u8>,
    #[serde(with = "in_base64")]
    pub(crate) stored_key: Vec<u8>,
    #[serde(with = "in_base64")]
    pub(crate) server_key: Vec<u8>,
}

impl Credential {
    /// Makes a credential of a password, with a fresh salt.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for an empty or endless password, or rounds out of bounds.
    pub fn of_password(
        hash: ScramHash,
        password: &str,
        iterations: u32,
    ) -> Result<Self, AccessError> {
        check_password(password)?;
        check_iterations(iterations)?;
        let salt = random_bytes::<SALT_BYTES>()?;
        let salted = hash.salted_password(password, &salt, iterations);
        Ok(Credential::derive(hash, salt.to_vec(), iterations, &salted))
    }

    /// Makes a credential of a password that was salted elsewhere.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for rounds, a salt or a hash out of bounds.
    pub fn of_salted(
        hash: ScramHash,
        salt: &[u8],
        iterations: u32,
        salted_password: &[u8],
    ) -> Result<Self, AccessError> {
        check_iterations(iterations)?;
        if salt.is_empty() || salt.len() > SALT_BYTES_MAX {
            let reason = format!("write 1 to {SALT_BYTES_MAX} bytes");
            return Err(AccessError::invalid("salt", reason));
        }
        if salted_password.len() != hash.bytes() {
            let reason = format!("{hash} makes {} bytes", hash.bytes());
            return Err(AccessError::invalid("salted password", reason));
        }
        Ok(Credential::derive(
            hash,
            salt.to_vec(),
            iterations,
            salted_password,
        ))
    }

    /// Whether `password` is the one, by hashing it again: takes milliseconds.
    pub fn proves(&self, password: &str) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        let salted = self
            .hash
            .salted_password(password, &self.salt, self.iterations);
        let again = Credential::derive(self.hash, Vec::new(), self.iterations, &salted);
        again.stored_key.ct_eq(&self.stored_key).into()
    }

    /// Stands in for a user who does not exist, so that a stranger cannot tell: the same salt for
    /// the same name, and keys that nothing fits.
    pub(crate) fn of_nobody(hash: ScramHash, secret: &[u8], name: &str) -> Self {
        let mut salt = hash.hmac(secret, name.as_bytes());
        salt.truncate(SALT_BYTES);
        Credential {
            hash,
            iterations: ITERATIONS_MIN,
            salt,
            stored_key: Vec::new(),
            server_key: Vec::new(),
        }
    }

    fn derive(hash: ScramHash, salt: Vec<u8>, iterations: u32, salted: &[u8]) -> Self {
        let client_key = hash.hmac(salted, b"Client Key");
        Credential {
            hash,
            iterations,
            salt,
            stored_key: digest::digest(hash.digest(), &client_key).as_ref().to_vec(),
            server_key: hash.hmac(salted, b"Server Key"),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys let their holder play the server: they stay out of every log.
        f.debug_struct("Credential")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], AccessError> {
    let mut bytes = [0; N];
    rand::SecureRandom::fill(&rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| AccessError::Random)?;
    Ok(bytes)
}

pub(crate) fn check_password(password: &str) -> Result<(), AccessError> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let reason = format!("write 1 to {PASSWORD_BYTES_MAX} bytes");
        return Err(AccessError::invalid("password", reason));
    }
    Ok(())
}

fn check_iterations(iterations: u32) -> Result<(), AccessError> {
    if (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return Ok(());
    }
    let reason = format!("write {ITERATIONS_MIN} to {ITERATIONS_MAX}");
    Err(AccessError::invalid("iterations", reason))
}

mod in_base64 {
    //! Bytes as a text of base64.

    use serde::{Deserialize, Deserializer, Serializer, de};

    use super::{Engine, STANDARD};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(de::Error::custom)
    }
}

/// Bytes of a fresh salt: twice what RFC 5802 finds enough.
const SALT_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_knows_its_password_and_no_other() {
        for hash in ScramHash::ALL {
            let credential = Credential::of_password(hash, "pencil", ITERATIONS_MIN).unwrap();
            assert!(credential.proves("pencil"));
            for wrong in ["", "Pencil", "pencil ", "pencils"] {
                assert!(!credential.proves(wrong), "{wrong}");
            }
            let text = serde_json::to_string(&credential).unwrap();
            assert!(!text.contains("pencil"), "{text}");
            assert_eq!(
                serde_json::from_str::<Credential>(&text).unwrap(),
                credential
            );
            assert!(!format!("{credential:?}").contains("key"));
        }
    }

    #[test]
    fn two_credentials_of_one_password_differ() {
        let of = || Credential::of_password(ScramHash::Sha256, "same", ITERATIONS_MIN).unwrap();
        assert_ne!(of().salt, of().salt);
    }

    #[test]
    fn bounds_are_kept() {
        let hash = ScramHash::Sha512;
        assert!(Credential::of_password(hash, "", 4_096).is_err());
        assert!(Credential::of_password(hash, "x", 4_095).is_err());
        assert!(Credential::of_password(hash, "x", 16_385).is_err());
        assert!(Credential::of_salted(hash, b"salt", 4_096, &[0; 32]).is_err());
        assert!(Credential::of_salted(hash, b"", 4_096, &[0; 64]).is_err());
        assert!(Credential::of_salted(hash, b"salt", 4_096, &[0; 64]).is_ok());
    }

    #[test]
    fn nobody_has_a_steady_salt_and_no_password() {
        let nobody = |name| Credential::of_nobody(ScramHash::Sha256, b"secret", name);
        assert_eq!(nobody("a").salt, nobody("a").salt);
        assert_ne!(nobody("a").salt, nobody("b").salt);
        assert!(!nobody("a").proves("anything"));
    }
}
