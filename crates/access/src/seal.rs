//! Secrets sealed by AES-256-GCM.
//!
//! Layout: one byte of version (1), 12 bytes of nonce, then the ciphertext with its tag. What a secret
//! belongs to is authenticated with it, so that what was sealed for one owner does not open for another.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;

use crate::AccessError;
use crate::credential::random_bytes;

/// Seals and opens secrets under one key.
pub struct Sealer {
    key: LessSafeKey,
}

impl Sealer {
    /// Under this key; none where it has not [`Sealer::KEY_BYTES`].
    pub fn of_key(key: &[u8]) -> Option<Sealer> {
        let key = UnboundKey::new(&AES_256_GCM, key).ok()?;
        Some(Sealer {
            key: LessSafeKey::new(key),
        })
    }

    /// Under a key that is drawn now and dies with the process.
    ///
    /// # Errors
    /// [`AccessError::Random`].
    pub fn draw() -> Result<Sealer, AccessError> {
        let key = random_bytes::<{ Sealer::KEY_BYTES }>()?;
        Sealer::of_key(&key).ok_or(AccessError::Random)
    }

    /// Under a key made from a secret for one purpose (HKDF-SHA256, RFC 5869): whoever has the secret
    /// makes the same one. The secret has to be one that cannot be guessed.
    pub fn of_secret(secret: &[u8], purpose: &str) -> Sealer {
        let drawn = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(secret);
        let info = [purpose.as_bytes()];
        // The length is the cipher's own.
        let key = drawn.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        Sealer {
            key: LessSafeKey::new(key.expect("32 bytes are less than HKDF's bound")),
        }
    }

    /// Seals `text`, which belongs to `owner`.
    ///
    /// # Errors
    /// [`AccessError::Random`].
    pub fn seal(&self, owner: &str, text: &[u8]) -> Result<Vec<u8>, AccessError> {
        let nonce = random_bytes::<NONCE_LEN>()?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + text.len() + AES_256_GCM.tag_len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        let mut body = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let owner = Aad::from(owner.as_bytes());
        let done = self.key.seal_in_place_append_tag(nonce, owner, &mut body);
        done.map_err(|_| AccessError::Random)?;
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// Opens what was sealed for `owner`; none where it was sealed under another key or for somebody
    /// else, or is damaged.
    pub fn open(&self, owner: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let rest = sealed.strip_prefix(&[VERSION])?;
        let (nonce, body) = rest.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = body.to_vec();
        let owner = Aad::from(owner.as_bytes());
        let text = self.key.open_in_place(nonce, owner, &mut body).ok()?;
        Some(text.to_vec())
    }

    /// Bytes of a key.
    pub const KEY_BYTES: usize = 32;
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

const VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_owner_under_its_key_only() {
        let sealer = Sealer::of_secret(b"the secret", "tests");
        let sealed = sealer.seal("ann", b"s3cret").unwrap();
        assert!(!sealed.windows(6).any(|six| six == b"s3cret"));
        assert_ne!(sealed, sealer.seal("ann", b"s3cret").unwrap());
        let again = Sealer::of_secret(b"the secret", "tests");
        assert_eq!(again.open("ann", &sealed).unwrap(), b"s3cret");
        assert_eq!(again.open("bob", &sealed), None);
        let others = [
            Sealer::of_secret(b"the secret", "something else"),
            Sealer::of_secret(b"another", "tests"),
            Sealer::draw().unwrap(),
        ];
        assert!(
            others
                .iter()
                .all(|other| other.open("ann", &sealed).is_none())
        );
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert_eq!(again.open("ann", &damaged), None);
            assert_eq!(again.open("ann", &sealed[..index]), None);
        }
        assert!(Sealer::of_key(&[0; 31]).is_none() && Sealer::of_key(&[0; 32]).is_some());
    }
}
