//! What must not lie readable in the database: sealed by AES-256-GCM under the fleet's key.
//!
//! Layout: one byte of version (1), 12 bytes of nonce, then the ciphertext with its tag. What a
//! secret belongs to is authenticated with it, so that one row's secret cannot be moved to another.
//!
//! The key is 32 bytes in hexadecimal in a file of its own, made at the first start with rights for
//! its owner alone. Who loses it loses the secrets, and nothing else.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::FleetError;
use crate::manifest::hex;

/// Seals and opens secrets.
pub struct Sealer {
    key: LessSafeKey,
    random: SystemRandom,
}

impl Sealer {
    /// Reads the key in `path`, or makes one there.
    ///
    /// # Errors
    /// [`FleetError::Key`]: the file cannot be read, written or understood; the operator's business.
    pub fn open(path: &Path) -> Result<Sealer, FleetError> {
        let failed = |reason: String| FleetError::Key {
            path: path.to_owned(),
            reason,
        };
        let random = SystemRandom::new();
        let bytes = match File::open(path) {
            Ok(file) => read_key(file).map_err(failed)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make_key(path, &random).map_err(failed)?
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let key =
            UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| failed("it is no key".to_owned()))?;
        Ok(Sealer {
            key: LessSafeKey::new(key),
            random,
        })
    }

    /// Seals `text`, which belongs to `owner`.
    ///
    /// # Errors
    /// [`FleetError::Sealing`] when the system gives no random bytes.
    pub fn seal(&self, owner: &str, text: &[u8]) -> Result<Vec<u8>, FleetError> {
        let mut nonce = [0; NONCE_LEN];
        self.random
            .fill(&mut nonce)
            .map_err(|_| FleetError::Sealing)?;
        let mut sealed = Vec::with_capacity(1 + NONCE_LEN + text.len() + AES_256_GCM.tag_len());
        let mut body = text.to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner.as_bytes()),
                &mut body,
            )
            .map_err(|_| FleetError::Sealing)?;
        sealed.push(VERSION);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&body);
        Ok(sealed)
    }

    /// Opens what was sealed for `owner`.
    ///
    /// # Errors
    /// [`FleetError::Sealing`]: sealed under another key or for somebody else, or damaged.
    pub fn open_sealed(&self, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, FleetError> {
        let rest = sealed.strip_prefix(&[VERSION]).ok_or(FleetError::Sealing)?;
        let (nonce, body) = rest
            .split_at_checked(NONCE_LEN)
            .ok_or(FleetError::Sealing)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| FleetError::Sealing)?;
        let mut body = body.to_vec();
        let text = self
            .key
            .open_in_place(nonce, Aad::from(owner.as_bytes()), &mut body)
            .map_err(|_| FleetError::Sealing)?;
        Ok(text.to_vec())
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

fn read_key(file: File) -> Result<[u8; 32], String> {
    let mut text = String::new();
    file.take(KEY_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let text = text.trim();
    let mut key = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return Err("it has to hold 32 bytes as 64 hexadecimal digits".to_owned());
    }
    for (index, byte) in key.iter_mut().enumerate() {
        let digits = &text[2 * index..2 * index + 2];
        *byte = u8::from_str_radix(digits, 16)
            .map_err(|_| "it has to hold 64 hexadecimal digits".to_owned())?;
    }
    Ok(key)
}

fn make_key(path: &Path, random: &SystemRandom) -> Result<[u8; 32], String> {
    let mut key = [0; 32];
    random
        .fill(&mut key)
        .map_err(|_| "the system gives no random bytes".to_owned())?;
    let write = || -> std::io::Result<()> {
        // With the registry in a database of its own nothing else has made the folder.
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(format!("{}\n", hex(&key)).as_bytes())?;
        file.sync_all()?;
        // The name has to outlive a crash too, or the next start makes another key.
        match path.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|error| error.to_string())?;
    Ok(key)
}

const VERSION: u8 = 1;
/// A key file holds 64 digits and a line's end; more than this is something else.
const KEY_FILE_BYTES_MAX: u64 = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_for_its_owner_under_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let sealer = Sealer::open(&path).unwrap();
        let sealed = sealer.seal("class/edge/password", b"s3cret").unwrap();
        assert!(!sealed.windows(6).any(|six| six == b"s3cret"));
        assert_ne!(
            sealed,
            sealer.seal("class/edge/password", b"s3cret").unwrap()
        );
        let again = Sealer::open(&path).unwrap();
        let opened = again.open_sealed("class/edge/password", &sealed).unwrap();
        assert_eq!(opened, b"s3cret");
        assert!(again.open_sealed("class/core/password", &sealed).is_err());
        let other = Sealer::open(&folder.path().join("other")).unwrap();
        assert!(other.open_sealed("class/edge/password", &sealed).is_err());
        for index in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[index] ^= 1;
            assert!(again.open_sealed("class/edge/password", &damaged).is_err());
            assert!(
                again
                    .open_sealed("class/edge/password", &sealed[..index])
                    .is_err()
            );
        }
    }

    #[test]
    fn a_key_is_its_owners_alone_and_a_bad_one_is_told() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Sealer::open(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for bad in ["", "abc", &"g".repeat(64), &"é".repeat(32)] {
            std::fs::write(&path, bad).unwrap();
            assert!(
                matches!(Sealer::open(&path), Err(FleetError::Key { .. })),
                "{bad}"
            );
        }
    }
}
