//! SCRAM, the client's side (RFC 5802, RFC 7677), without IO and without channel binding.

use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

/// The hash that a mechanism uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScramHash {
    Sha256,
    Sha512,
}

/// One login on its way.
pub(crate) struct Scram {
    hash: ScramHash,
    password: String,
    nonce: String,
    /// The first message without its header: part of what is signed.
    first_bare: String,
    /// What the server must say at last; known after its first answer.
    expected: Option<Vec<u8>>,
}

impl Scram {
    /// A login of `user`; `nonce` is fresh and printable.
    pub(crate) fn new(hash: ScramHash, user: &str, password: &str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Scram {
            hash,
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            first_bare: format!("n={user},r={nonce}"),
            expected: None,
        }
    }

    /// The client's first message.
    pub(crate) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// The answer to the server's message; nothing after its last one.
    ///
    /// Errors: the message is none, or the server could not prove that it knows the password.
    pub(crate) fn next(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let message = std::str::from_utf8(message).map_err(|_| NO_MESSAGE.to_owned())?;
        match self.expected.take() {
            None => self.proof(message).map(|proof| Some(proof.into_bytes())),
            Some(expected) => {
                if let Some(reason) = field(message, "e=") {
                    return Err(format!("the server refuses the login: {reason}"));
                }
                let signature = field(message, "v=").and_then(|text| STANDARD.decode(text).ok());
                match signature {
                    Some(signature) if signature == expected => Ok(None),
                    _ => Err("the server does not know the password itself".to_owned()),
                }
            }
        }
    }

    fn proof(&mut self, server_first: &str) -> Result<String, String> {
        let no_message = || NO_MESSAGE.to_owned();
        let nonce = field(server_first, "r=").ok_or_else(no_message)?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the server's nonce does not go on from the client's".to_owned());
        }
        let salt = field(server_first, "s=").and_then(|text| STANDARD.decode(text).ok());
        let salt = salt.ok_or_else(no_message)?;
        let iterations = field(server_first, "i=").and_then(|text| text.parse::<u32>().ok());
        let iterations = iterations
            .filter(|count| *count <= ITERATIONS_MAX)
            .and_then(NonZeroU32::new)
            .ok_or_else(|| format!("the server wants no or more than {ITERATIONS_MAX} rounds"))?;
        let (hmac, kdf, digest) = match self.hash {
            ScramHash::Sha256 => (
                hmac::HMAC_SHA256,
                pbkdf2::PBKDF2_HMAC_SHA256,
                &digest::SHA256,
            ),
            ScramHash::Sha512 => (
                hmac::HMAC_SHA512,
                pbkdf2::PBKDF2_HMAC_SHA512,
                &digest::SHA512,
            ),
        };
        let mut salted = vec![0; digest.output_len()];
        pbkdf2::derive(
            kdf,
            iterations,
            &salt,
            self.password.as_bytes(),
            &mut salted,
        );
        let sign = |key: &[u8], text: &[u8]| {
            hmac::sign(&hmac::Key::new(hmac, key), text)
                .as_ref()
                .to_vec()
        };
        let client_key = sign(&salted, b"Client Key");
        let stored_key = digest::digest(digest, &client_key);
        let last_bare = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{last_bare}", self.first_bare);
        let signature = sign(stored_key.as_ref(), signed.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(a, b)| a ^ b)
            .collect();
        let server_key = sign(&salted, b"Server Key");
        self.expected = Some(sign(&server_key, signed.as_bytes()));
        Ok(format!("{last_bare},p={}", STANDARD.encode(proof)))
    }
}

fn field<'m>(message: &'m str, name: &str) -> Option<&'m str> {
    message.split(',').find_map(|part| part.strip_prefix(name))
}

const NO_MESSAGE: &str = "the server's message is none of SCRAM's";

/// Rounds that a server may ask for; a hundred times what is usual.
const ITERATIONS_MAX: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// The conversation of RFC 7677, section 3.
    #[test]
    fn the_rfc_s_own_login_goes_through() {
        let mut scram = Scram::new(ScramHash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let last = scram.next(server_first).unwrap().unwrap();
        assert_eq!(
            String::from_utf8(last).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        let server_last = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(scram.next(server_last), Ok(None));
    }

    #[test]
    fn a_server_that_does_not_know_the_password_is_not_believed() {
        let login = || Scram::new(ScramHash::Sha256, "u", "p", "abc");
        let mut scram = login();
        scram.next(b"r=abcdef,s=QQ==,i=4096").unwrap();
        assert!(scram.next(b"v=AAAA").is_err());
        for bad in [
            &b"r=xyz,s=QQ==,i=4096"[..],
            b"r=abc,s=QQ==,i=4096",
            b"r=abcd,s=QQ==,i=0",
            b"r=abcd,s=QQ==,i=4000000000",
            b"r=abcd,s=*,i=1",
            b"\xff",
            b"",
        ] {
            assert!(login().next(bad).is_err(), "{bad:?} was taken");
        }
    }
}
