//! API tokens: what a program shows instead of a name and a password, by HTTP's Bearer scheme.
//!
//! A token is 256 random bits as text, told once, when it is issued. Only its SHA-256 is kept: no
//! slow hash is needed where nothing can be guessed. It stands for its user until it expires or is
//! removed, and goes with its user.

use std::fmt;
use std::time::Duration;

use base::UnixMillis;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::credential::random_bytes;
use crate::limits::TOKEN_DESCRIPTION_BYTES_MAX;
use crate::{AccessError, Principal};

/// What is kept of an API token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Its name, by which it is listed and removed; no secret.
    pub id: String,
    /// Whom it stands for.
    pub user: String,
    /// What it is for, in its owner's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When it was issued.
    pub created: UnixMillis,
    /// When it stops to be good; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<UnixMillis>,
    pub(crate) hash: TokenHash,
}

/// The SHA-256 of a token's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash([u8; 32]);

impl Token {
    /// Makes a token of a user and its text, which nobody can make out again later.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for an endless description, [`AccessError::Random`].
    pub fn issue(
        user: &str,
        description: &str,
        now: UnixMillis,
        good_for: Option<Duration>,
    ) -> Result<(Self, String), AccessError> {
        if description.len() > TOKEN_DESCRIPTION_BYTES_MAX {
            let reason = format!("write at most {TOKEN_DESCRIPTION_BYTES_MAX} bytes");
            return Err(AccessError::invalid("description", reason));
        }
        let secret = URL_SAFE_NO_PAD.encode(random_bytes::<32>()?);
        let text = format!("{PREFIX}{secret}");
        let token = Token {
            id: hex(&random_bytes::<8>()?),
            user: user.to_owned(),
            description: description.to_owned(),
            created: now,
            expires: good_for.map(|time| now + time),
            hash: TokenHash::of(&text),
        };
        Ok((token, text))
    }

    /// Whether a text may be an API token: others are somebody else's tokens.
    pub fn looks_like(text: &str) -> bool {
        text.starts_with(PREFIX)
    }

    /// Whom it stands for, while it is good.
    pub fn principal(&self, now: UnixMillis) -> Option<Principal> {
        let is_good = self.expires.is_none_or(|expires| now < expires);
        is_good.then(|| Principal::user(&self.user))
    }
}

impl TokenHash {
    /// The hash of a token's text.
    pub fn of(text: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
        TokenHash(hash)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

impl TryFrom<String> for TokenHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
        let hash = bytes.try_into();
        hash.map(TokenHash)
            .map_err(|_| "a token's hash has 32 bytes".to_owned())
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> String {
        STANDARD.encode(hash.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What every token begins with, so that people, and tools that look for leaked secrets, know one.
const PREFIX: &str = "thalweg_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_until_it_expires_and_tells_nothing_of_itself() {
        let now = UnixMillis(1_000_000);
        let minute = Some(Duration::from_secs(60));
        let (token, text) = Token::issue("ann", "backup", now, minute).unwrap();
        let (other, another) = Token::issue("ann", "backup", now, None).unwrap();
        assert_ne!((&token.id, &text), (&other.id, &another));
        assert!(Token::looks_like(&text) && text.len() > 50, "{text}");
        assert_eq!(token.hash, TokenHash::of(&text));
        assert_eq!(token.principal(now), Some(Principal::user("ann")));
        assert_eq!(token.principal(now + Duration::from_secs(60)), None);
        let later = now + Duration::from_secs(1 << 32);
        assert_eq!(other.principal(later), Some(Principal::user("ann")));
        let secret = text.strip_prefix(PREFIX).unwrap();
        let kept = serde_json::to_string(&token).unwrap();
        assert!(!kept.contains(secret) && !format!("{token:?}").contains(secret));
        assert_eq!(serde_json::from_str::<Token>(&kept).unwrap(), token);
        let long = "x".repeat(TOKEN_DESCRIPTION_BYTES_MAX + 1);
        assert!(Token::issue("ann", &long, now, None).is_err());
    }
}
