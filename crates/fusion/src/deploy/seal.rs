//! Signatures of control messages: Ed25519 (RFC 8032) over the topic, a line feed, and the payload.
//!
//! On the wire: `{"key": name, "payload": base64, "signature": base64}`. The topic is signed too, so
//! that a message cannot be moved to another.

use std::collections::BTreeMap;

use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

/// A signed message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sealed {
    /// The name of the key that signed it.
    pub key: String,
    /// The message, base64.
    pub payload: String,
    /// The signature, base64.
    pub signature: String,
}

/// Why a message does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not signed.
    #[error("it is not signed: sign it with a key of fusion.control.keys")]
    Unsigned,
    /// Nobody here knows its key.
    #[error("its key '{0}' is not one of fusion.control.keys")]
    UnknownKey(String),
    /// The signature is another message's, or none.
    #[error("its signature is not one of the key '{0}' for this topic and payload")]
    Wrong(String),
}

/// The public keys that count.
#[derive(Clone, Debug, Default)]
pub struct Keys(BTreeMap<String, Vec<u8>>);

impl Keys {
    /// Reads keys from base64: their bytes, or their DER form.
    ///
    /// # Errors
    /// Which of them is no Ed25519 public key.
    pub fn new(texts: &BTreeMap<String, String>) -> Result<Keys, String> {
        let mut keys = BTreeMap::new();
        for (name, text) in texts {
            let bytes = from_base64(text).unwrap_or_default();
            let key = bytes.strip_prefix(&DER_HEAD).unwrap_or(&bytes);
            if key.len() != PUBLIC_KEY_BYTES {
                return Err(format!(
                    "{name} is no Ed25519 public key: write its {PUBLIC_KEY_BYTES} bytes, or its \
                     DER form, in base64"
                ));
            }
            keys.insert(name.clone(), key.to_vec());
        }
        Ok(Keys(keys))
    }

    /// The payload of a signed message, and who signed it.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn open(&self, topic: &str, message: &[u8]) -> Result<(Vec<u8>, String), Refused> {
        let sealed: Sealed = serde_json::from_slice(message).map_err(|_| Refused::Unsigned)?;
        let Some(key) = self.0.get(&sealed.key) else {
            return Err(Refused::UnknownKey(sealed.key));
        };
        let (Some(payload), Some(signature)) =
            (from_base64(&sealed.payload), from_base64(&sealed.signature))
        else {
            return Err(Refused::Wrong(sealed.key));
        };
        let verified = UnparsedPublicKey::new(&ED25519, key)
            .verify(&signed_bytes(topic, &payload), &signature);
        match verified {
            Ok(()) => Ok((payload, sealed.key)),
            Err(_) => Err(Refused::Wrong(sealed.key)),
        }
    }
}

/// Signs a message for a topic with the key of that name.
pub fn seal(key_name: &str, key: &Ed25519KeyPair, topic: &str, payload: &[u8]) -> Sealed {
    let signature = key.sign(&signed_bytes(topic, payload));
    Sealed {
        key: key_name.to_owned(),
        payload: to_base64(payload),
        signature: to_base64(signature.as_ref()),
    }
}

/// Base64 with padding (RFC 4648 section 4).
pub fn to_base64(bytes: &[u8]) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes)
}

/// Reads base64; none for what is none.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text.trim()).ok()
}

fn signed_bytes(topic: &str, payload: &[u8]) -> Vec<u8> {
    [topic.as_bytes(), b"\n", payload].concat()
}

const PUBLIC_KEY_BYTES: usize = 32;
/// What stands before the key in its DER form (RFC 8410 section 4).
const DER_HEAD: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
