//! Secrets of one login by an issuer (OpenID Connect): what proves that whoever comes back is who was
//! sent (`state`), that the token was made for this login (`nonce`), and that the code is redeemed by
//! whoever asked for it (PKCE, RFC 7636).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;

use crate::AccessError;
use crate::credential::random_bytes;

/// The secrets of one login. As text they are `STATE.NONCE.VERIFIER`, each of 43 characters.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginSecrets {
    /// Comes back with the browser.
    pub state: String,
    /// Comes back in the token.
    pub nonce: String,
    /// Is shown when the code is redeemed.
    pub verifier: String,
}

impl LoginSecrets {
    /// New ones, which nobody can guess.
    ///
    /// # Errors
    /// [`AccessError::Random`].
    pub fn draw() -> Result<LoginSecrets, AccessError> {
        let draw = || Ok::<_, AccessError>(URL_SAFE_NO_PAD.encode(random_bytes::<32>()?));
        Ok(LoginSecrets {
            state: draw()?,
            nonce: draw()?,
            verifier: draw()?,
        })
    }

    /// Those that a browser kept; none where the text is not of [`LoginSecrets::to_text`].
    pub fn parse(text: &str) -> Option<LoginSecrets> {
        let mut parts = text.split('.');
        let mut part = || {
            let part = parts.next()?;
            let is_ours = URL_SAFE_NO_PAD
                .decode(part)
                .is_ok_and(|bytes| bytes.len() == 32);
            is_ours.then(|| part.to_owned())
        };
        let secrets = LoginSecrets {
            state: part()?,
            nonce: part()?,
            verifier: part()?,
        };
        parts.next().is_none().then_some(secrets)
    }

    /// The secrets for the browser to keep.
    pub fn to_text(&self) -> String {
        format!("{}.{}.{}", self.state, self.nonce, self.verifier)
    }

    /// What the issuer is told of the verifier, by the method `S256`.
    pub fn challenge(&self) -> String {
        let digest = digest::digest(&digest::SHA256, self.verifier.as_bytes());
        URL_SAFE_NO_PAD.encode(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_come_back_as_they_were_and_nothing_else_does() {
        let secrets = LoginSecrets::draw().unwrap();
        let text = secrets.to_text();
        assert!(LoginSecrets::parse(&text) == Some(secrets.clone()));
        assert!(LoginSecrets::draw().unwrap().verifier != secrets.verifier);
        for odd in ["", "a.b.c", &text[1..], &format!("{text}.x"), &text[..87]] {
            assert!(LoginSecrets::parse(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn the_challenge_is_that_of_the_rfcs_example() {
        let secrets = LoginSecrets {
            state: String::new(),
            nonce: String::new(),
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned(),
        };
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(secrets.challenge(), challenge);
    }
}
