//! What must not lie readable in the database: sealed ([`access::Sealer`]) under the fleet's key. What
//! a secret belongs to is authenticated with it, so that one row's secret cannot be moved to another.
//!
//! The key is 32 bytes in hexadecimal in a file of its own, made at the first start with rights for
//! its owner alone. Who loses it loses the secrets, and nothing else.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};

use crate::error::FleetError;
use crate::manifest::hex;

/// Seals and opens secrets.
#[derive(Debug)]
pub struct Sealer(access::Sealer);

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
        let bytes = match File::open(path) {
            Ok(file) => read_key(file).map_err(failed)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                make_key(path, &SystemRandom::new()).map_err(failed)?
            }
            Err(error) => return Err(failed(error.to_string())),
        };
        let sealer = access::Sealer::of_key(&bytes);
        Ok(Sealer(
            sealer.ok_or_else(|| failed("it is no key".to_owned()))?,
        ))
    }

    /// Seals `text`, which belongs to `owner`.
    ///
    /// # Errors
    /// [`FleetError::Sealing`] when the system gives no random bytes.
    pub fn seal(&self, owner: &str, text: &[u8]) -> Result<Vec<u8>, FleetError> {
        self.0.seal(owner, text).map_err(|_| FleetError::Sealing)
    }

    /// Opens what was sealed for `owner`.
    ///
    /// # Errors
    /// [`FleetError::Sealing`]: sealed under another key or for somebody else, or damaged.
    pub fn open_sealed(&self, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, FleetError> {
        self.0.open(owner, sealed).ok_or(FleetError::Sealing)
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
