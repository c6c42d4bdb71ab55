//! The server's side of SASL for the tests' broker: PLAIN, and SCRAM by RFC 5802.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

/// What a broker lets in.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) user: &'static str,
    pub(crate) password: &'static str,
}

/// One connection's login.
#[derive(Default)]
pub(super) struct Login {
    mechanism: String,
    /// What was said before the proof, and the whole nonce.
    said: Option<(String, String)>,
    pub(super) is_in: bool,
}

impl Login {
    pub(super) fn choose(&mut self, mechanism: &str) {
        self.mechanism = mechanism.to_owned();
    }

    /// The answer, or nothing when the login is refused.
    pub(super) fn step(&mut self, account: &Account, message: &[u8]) -> Option<Vec<u8>> {
        if self.mechanism == "PLAIN" {
            let expected = format!("\0{}\0{}", account.user, account.password);
            self.is_in = message == expected.as_bytes();
            return self.is_in.then(Vec::new);
        }
        let text = std::str::from_utf8(message).unwrap();
        match self.said.take() {
            None => {
                let bare = text.strip_prefix("n,,").unwrap();
                let (user, nonce) = bare.strip_prefix("n=").unwrap().split_once(",r=").unwrap();
                if user != account.user {
                    return None;
                }
                let nonce = format!("{nonce}server");
                let first = format!("r={nonce},s={},i=4096", STANDARD.encode(SALT));
                self.said = Some((format!("{bare},{first}"), nonce));
                Some(first.into_bytes())
            }
            Some((said, nonce)) => {
                let (bare, proof) = text.split_once(",p=").unwrap();
                assert_eq!(bare, format!("c=biws,r={nonce}"));
                let signed = format!("{said},{bare}");
                let (stored, server) = self.keys(account.password);
                let signature = self.sign(&stored, signed.as_bytes());
                let proof = STANDARD.decode(proof).unwrap();
                let key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
                self.is_in = digest::digest(self.digest(), &key).as_ref() == stored;
                let last = STANDARD.encode(self.sign(&server, signed.as_bytes()));
                self.is_in.then(|| format!("v={last}").into_bytes())
            }
        }
    }

    fn keys(&self, password: &str) -> (Vec<u8>, Vec<u8>) {
        let (kdf, len) = match self.mechanism.as_str() {
            "SCRAM-SHA-512" => (pbkdf2::PBKDF2_HMAC_SHA512, 64),
            _ => (pbkdf2::PBKDF2_HMAC_SHA256, 32),
        };
        let mut salted = vec![0; len];
        let rounds = NonZeroU32::new(4096).unwrap();
        pbkdf2::derive(kdf, rounds, SALT, password.as_bytes(), &mut salted);
        let client = self.sign(&salted, b"Client Key");
        let stored = digest::digest(self.digest(), &client).as_ref().to_vec();
        (stored, self.sign(&salted, b"Server Key"))
    }

    fn digest(&self) -> &'static digest::Algorithm {
        match self.mechanism.as_str() {
            "SCRAM-SHA-512" => &digest::SHA512,
            _ => &digest::SHA256,
        }
    }

    fn sign(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        let algorithm = match self.mechanism.as_str() {
            "SCRAM-SHA-512" => hmac::HMAC_SHA512,
            _ => hmac::HMAC_SHA256,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), text)
            .as_ref()
            .to_vec()
    }
}

const SALT: &[u8] = b"the salt";
