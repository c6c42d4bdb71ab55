//! Encryption at rest: what a repository writes, sealed by a key that is not kept with it.
//!
//! Each piece is sealed for itself (AES-256-GCM), so that content is read by range: a frame's
//! operations, each claim, each frame of provenance events.
//!
//! | bytes of a sealed piece | |
//! | --- | --- |
//! | 0..8 | id of the key: says which one is needed, and nothing else of it |
//! | 8..24 | salt of the opening, random |
//! | 24..32 | number of the piece in its opening, little-endian |
//! | 32..36 | CRC32C of bytes 0..32: what rotted is not taken for what has another key |
//! | 36..n-16 | sealed bytes, as many as there were |
//! | n-16..n | tag |
//!
//! Each opening of a repository draws a salt, and seals by a key of its own that HKDF-SHA256 makes of
//! the given key and the salt. A piece's nonce is its number, which no other piece of the opening
//! has; so no nonce comes twice under one key, whatever a crash takes back. What kind of piece it is
//! stands in the tag, so that none passes for one of another kind.
//!
//! Left out: who can write to the disk can take pieces away, bring back older ones, or put in
//! plain frames; the sizes of pieces and the times of provenance frames can be seen.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};

use crate::parameters::SecretKey;

/// Bytes that a sealed piece is longer than what was sealed.
pub(crate) const SEAL_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// The keys of a repository: one that seals, if any, and all that open.
#[derive(Default)]
pub struct Keyring {
    sealing: Option<Opening>,
    keys: Vec<Key>,
}

/// What a sealed piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Operations of a frame of records.
    Operations = 1,
    /// A claim's bytes.
    Content = 2,
    /// Provenance events.
    Events = 3,
}

/// Why a sealed piece does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SealError {
    /// It was sealed by a key that was not given.
    #[error(
        "it is sealed by the key with the id {0:016x}, which was not given: set it as \
         nifi.flowfile.repository.encryption.key, or among \
         nifi.flowfile.repository.encryption.keys.old when there is a newer one"
    )]
    UnknownKey(u64),
    /// The bytes are not those that were sealed.
    #[error("its seal is broken: the bytes on the disk are not those that the agent wrote")]
    Broken,
}

struct Key {
    id: u64,
    secret: SecretKey,
}

/// What seals, from one opening of the repository to its end.
struct Opening {
    key_id: u64,
    salt: [u8; SALT_BYTES],
    key: LessSafeKey,
    next: AtomicU64,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| format!("{:016x}", key.id));
        f.debug_list().entries(ids).finish()
    }
}

impl Keyring {
    /// `current` seals and opens, `old` ones only open; without `current` nothing is sealed.
    ///
    /// Errors: the system gives no random bytes.
    pub fn new(current: Option<SecretKey>, old: Vec<SecretKey>) -> Result<Keyring, String> {
        let sealing = match &current {
            Some(key) => {
                let mut salt = [0; SALT_BYTES];
                SystemRandom::new()
                    .fill(&mut salt)
                    .map_err(|_| "the system gives no random bytes".to_owned())?;
                Some(Opening {
                    key_id: id_of(key),
                    salt,
                    key: key_of_opening(key, &salt),
                    next: AtomicU64::new(0),
                })
            }
            None => None,
        };
        let keys = current.into_iter().chain(old);
        let keys = keys.map(|secret| Key {
            id: id_of(&secret),
            secret,
        });
        Ok(Keyring {
            sealing,
            keys: keys.collect(),
        })
    }

    /// Whether what is written is sealed.
    pub(crate) fn seals(&self) -> bool {
        self.sealing.is_some()
    }

    /// Seals a piece; the same bytes where nothing is sealed.
    pub(crate) fn seal(&self, piece: Piece, plain: &[u8]) -> Vec<u8> {
        let Some(opening) = &self.sealing else {
            return plain.to_vec();
        };
        let number = opening.next.fetch_add(1, Ordering::Relaxed);
        let mut sealed = Vec::with_capacity(plain.len() + SEAL_BYTES);
        sealed.extend_from_slice(&opening.key_id.to_le_bytes());
        sealed.extend_from_slice(&opening.salt);
        sealed.extend_from_slice(&number.to_le_bytes());
        sealed.extend_from_slice(&crc32c::crc32c(&sealed).to_le_bytes());
        sealed.extend_from_slice(plain);
        let tag = opening.key.seal_in_place_separate_tag(
            nonce(number),
            aad(piece),
            &mut sealed[HEADER_BYTES..],
        );
        let tag = tag.expect("a piece is far below what AES-GCM takes at once");
        sealed.extend_from_slice(tag.as_ref());
        sealed
    }

    /// Opens a sealed piece.
    pub(crate) fn open(&self, piece: Piece, sealed: Bytes) -> Result<Bytes, SealError> {
        let header = sealed.first_chunk::<HEADER_BYTES>();
        let header = *header.ok_or(SealError::Broken)?;
        let word = |at: usize| header[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
        let (head, crc) = header.split_at(HEADER_BYTES - CRC_BYTES);
        if crc != crc32c::crc32c(head).to_le_bytes() {
            return Err(SealError::Broken);
        }
        let (id, salt, number) = (word(0), &header[ID_BYTES..ID_BYTES + SALT_BYTES], word(24));
        let key = self.keys.iter().find(|key| key.id == id);
        let key = key.ok_or(SealError::UnknownKey(id))?;
        let mut bytes = BytesMut::from(sealed);
        let opened = key_of_opening(&key.secret, salt).open_in_place(
            nonce(number),
            aad(piece),
            &mut bytes[HEADER_BYTES..],
        );
        let len = opened.map_err(|_| SealError::Broken)?.len();
        let mut plain = bytes.split_off(HEADER_BYTES);
        plain.truncate(len);
        Ok(plain.freeze())
    }

    /// Whether a piece was sealed by the key that seals now.
    pub(crate) fn is_current(&self, sealed: &[u8]) -> bool {
        let id = self.sealing.as_ref().map(|opening| opening.key_id);
        id.is_some_and(|id| sealed.starts_with(&id.to_le_bytes()))
    }
}

fn prk(key: &SecretKey, salt: &[u8]) -> Prk {
    Salt::new(HKDF_SHA256, salt).extract(key.bytes())
}

fn id_of(key: &SecretKey) -> u64 {
    let mut id = [0; ID_BYTES];
    let prk = prk(key, b"");
    let filled = prk
        .expand(&[ID_INFO], IdLen)
        .and_then(|okm| okm.fill(&mut id));
    filled.expect("eight bytes are asked for and filled");
    u64::from_le_bytes(id)
}

fn key_of_opening(key: &SecretKey, salt: &[u8]) -> LessSafeKey {
    let prk = prk(key, salt);
    let okm = prk.expand(&[OPENING_INFO], &AES_256_GCM);
    LessSafeKey::new(UnboundKey::from(okm.expect("HKDF gives a key's length")))
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn aad(piece: Piece) -> Aad<[u8; 1]> {
    Aad::from([piece as u8])
}

/// How long a key's id is, for HKDF.
struct IdLen;

impl KeyType for IdLen {
    fn len(&self) -> usize {
        ID_BYTES
    }
}

const ID_BYTES: usize = 8;
const SALT_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
const HEADER_BYTES: usize = ID_BYTES + SALT_BYTES + 8 + CRC_BYTES;
const TAG_BYTES: usize = 16;
const ID_INFO: &[u8] = b"thalweg repository key id";
const OPENING_INFO: &[u8] = b"thalweg repository opening";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(byte: u8) -> SecretKey {
        SecretKey::parse(&format!("{byte:02x}").repeat(32)).unwrap()
    }

    fn keyring(current: u8, old: &[u8]) -> Keyring {
        Keyring::new(Some(key(current)), old.iter().copied().map(key).collect()).unwrap()
    }

    #[test]
    fn what_was_sealed_opens_by_its_key_alone_and_only_as_what_it_is() {
        let ring = keyring(1, &[]);
        for len in [0, 1, 100, 70_000] {
            let plain = vec![9; len];
            let sealed = Bytes::from(ring.seal(Piece::Content, &plain));
            assert_eq!(sealed.len(), len + SEAL_BYTES);
            assert_eq!(ring.open(Piece::Content, sealed.clone()).unwrap(), plain);
            let other = ring.open(Piece::Operations, sealed.clone());
            assert_eq!(other, Err(SealError::Broken));
            let id = id_of(&key(1));
            let unknown = keyring(2, &[3]).open(Piece::Content, sealed.clone());
            assert_eq!(unknown, Err(SealError::UnknownKey(id)));
            let rotated = keyring(2, &[3, 1]);
            assert_eq!(rotated.open(Piece::Content, sealed.clone()).unwrap(), plain);
            assert!(ring.is_current(&sealed) && !rotated.is_current(&sealed));
        }
    }

    #[test]
    fn no_bit_of_a_sealed_piece_can_be_changed_and_no_end_cut() {
        let ring = keyring(1, &[]);
        let sealed = ring.seal(Piece::Events, b"what happened");
        for bit in 0..sealed.len() * 8 {
            let mut bent = sealed.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            let opened = ring.open(Piece::Events, Bytes::from(bent));
            assert_eq!(opened, Err(SealError::Broken), "bit {bit} may be changed");
        }
        for len in 0..sealed.len() {
            let cut = Bytes::copy_from_slice(&sealed[..len]);
            assert!(
                ring.open(Piece::Events, cut).is_err(),
                "{len} bytes are enough"
            );
        }
    }

    #[test]
    fn no_nonce_comes_twice_under_one_key() {
        // The same key in three openings, as after two crashes.
        let mut seen = HashSet::new();
        for _ in 0..3 {
            let ring = keyring(1, &[]);
            for _ in 0..1_000 {
                let sealed = ring.seal(Piece::Content, b"");
                assert!(seen.insert(sealed[ID_BYTES..HEADER_BYTES].to_vec()));
            }
        }
    }

    #[test]
    fn no_key_is_shown() {
        let shown = format!("{:?}", keyring(15, &[]));
        assert!(!shown.contains("0f0f"), "{shown}");
    }
}
