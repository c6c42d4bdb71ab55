//! Secrets at rest: `enc{…}` holds a value sealed by a key of 32 bytes.
//!
//! # Layout
//!
//! `enc{` + base64 of nonce (12 bytes) and AES-256-GCM's sealed text with its tag (16) + `}`.
//! A nonce is drawn at random for each value.
//!
//! The key is `nifi.bootstrap.sensitive.properties.key` of the properties (64 hexadecimal
//! digits), else the file `sensitive.key` of the data folder, which is made when first needed and
//! readable by its owner alone. A key beside the data keeps secrets out of copies of flow files,
//! not from who can read the data folder.
//!
//! Left out: values that MiNiFi C++ sealed (libsodium's XSalsa20); they are told apart and named.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::AgentError;

/// The key's file in the data folder.
pub const KEY_FILE: &str = "sensitive.key";

/// Seals and opens values.
#[derive(Clone)]
pub struct SecretKey([u8; KEY_BYTES]);

/// Whether `text` is a sealed value.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(OPENING) && text.ends_with('}')
}

impl SecretKey {
    /// Reads a key of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<SecretKey, String> {
        let text = text.trim();
        let mut key = [0; KEY_BYTES];
        if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
            return Err(format!("a key is {} hexadecimal digits", 2 * KEY_BYTES));
        }
        for (byte, index) in key.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[index..index + 2], 16)
                .map_err(|_| "a key has hexadecimal digits only".to_owned())?;
        }
        Ok(SecretKey(key))
    }

    /// The key itself.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key of a data folder, if it has one.
    ///
    /// Errors: the file cannot be read or holds no key.
    pub fn in_folder(folder: &Path) -> Result<Option<SecretKey>, AgentError> {
        let path = folder.join(KEY_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let text = crate::supervisor::read(&path)?;
        let key = SecretKey::parse(&text);
        key.map(Some)
            .map_err(|reason| AgentError::Setting(format!("{}: {reason}", path.display())))
    }

    /// The key of a data folder, made if there is none.
    ///
    /// Errors: the file cannot be read or written.
    pub fn make_in_folder(folder: &Path) -> Result<SecretKey, AgentError> {
        if let Some(key) = SecretKey::in_folder(folder)? {
            return Ok(key);
        }
        let key = SecretKey::fresh().map_err(AgentError::Setting)?;
        let path = folder.join(KEY_FILE);
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(folder)?;
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)?;
            file.write_all(key.hex().as_bytes())?;
            file.sync_all()?;
            std::fs::File::open(folder)?.sync_all()
        };
        write().map_err(|source| AgentError::File {
            action: "write",
            path: path.clone(),
            source,
        })?;
        Ok(key)
    }

    /// Seals a value.
    pub fn seal(&self, text: &str) -> Result<String, String> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let mut sealed = text.as_bytes().to_vec();
        self.cipher()?
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::empty(),
                &mut sealed,
            )
            .map_err(|_| "the value is too long to be sealed".to_owned())?;
        let mut all = nonce.to_vec();
        all.append(&mut sealed);
        Ok(format!("{OPENING}{}}}", STANDARD.encode(all)))
    }

    /// Opens a sealed value.
    pub fn open(&self, text: &str) -> Result<String, String> {
        let inner = text
            .strip_prefix(OPENING)
            .and_then(|rest| rest.strip_suffix('}'))
            .ok_or("the value is not sealed")?;
        if inner.contains("||") {
            return Err(
                "the value was sealed by MiNiFi C++; write it plain or seal it by \
                        `thalweg-agent encrypt`"
                    .to_owned(),
            );
        }
        let bytes = STANDARD
            .decode(inner)
            .map_err(|_| "the sealed value is no base64".to_owned())?;
        let Some((nonce, sealed)) = bytes.split_at_checked(NONCE_LEN) else {
            return Err("the sealed value is too short".to_owned());
        };
        let nonce = Nonce::try_assume_unique_for_key(nonce)
            .map_err(|_| "the sealed value is too short".to_owned())?;
        let mut sealed = sealed.to_vec();
        let plain = self
            .cipher()?
            .open_in_place(nonce, Aad::empty(), &mut sealed)
            .map_err(|_| "the key does not open the sealed value".to_owned())?;
        String::from_utf8(plain.to_vec()).map_err(|_| "the sealed value is no text".to_owned())
    }

    fn fresh() -> Result<SecretKey, String> {
        let mut key = [0; KEY_BYTES];
        fill(&mut key)?;
        Ok(SecretKey(key))
    }

    fn cipher(&self) -> Result<LessSafeKey, String> {
        let key = UnboundKey::new(&AES_256_GCM, &self.0);
        key.map(LessSafeKey::new)
            .map_err(|_| "the key has a wrong length".to_owned())
    }

    fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

fn fill(bytes: &mut [u8]) -> Result<(), String> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| "the system gives no random bytes".to_owned())
}

const OPENING: &str = "enc{";

const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_sealed_opens_by_its_key_alone() {
        let key = SecretKey::fresh().unwrap();
        let sealed = key.seal("pässword").unwrap();
        assert!(is_sealed(&sealed) && !sealed.contains("ssword"), "{sealed}");
        assert_eq!(key.open(&sealed).as_deref(), Ok("pässword"));
        assert_ne!(sealed, key.seal("pässword").unwrap(), "a nonce came twice");
        let other = SecretKey::fresh().unwrap();
        assert!(other.open(&sealed).unwrap_err().contains("does not open"));
        let mut bytes = sealed.clone().into_bytes();
        bytes[20] = if bytes[20] == b'A' { b'B' } else { b'A' };
        let bent = String::from_utf8(bytes).unwrap();
        assert!(key.open(&bent).is_err(), "a changed value was taken");
        for (bad, message) in [
            ("enc{}", "too short"),
            ("enc{!}", "no base64"),
            ("enc{abc||def}", "MiNiFi C++"),
        ] {
            let error = key.open(bad).unwrap_err();
            assert!(error.contains(message), "{bad}: {error}");
        }
    }

    #[test]
    fn a_folder_keeps_its_key_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SecretKey::in_folder(dir.path()).unwrap().is_none());
        let key = SecretKey::make_in_folder(dir.path()).unwrap();
        let again = SecretKey::make_in_folder(dir.path()).unwrap();
        assert_eq!(key.0, again.0);
        let path = dir.path().join(KEY_FILE);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "short").unwrap();
        let error = SecretKey::in_folder(dir.path()).unwrap_err().to_string();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}
