//! A login that goes on beyond its token: what it is renewed by, and when. Without IO.
//!
//! The issuer's refresh token lies in the browser, as nothing is kept here; sealed, so that neither a
//! page nor whoever reads the browser's files has any use for it. The key is made from the client's
//! secret, so that every node of the installation opens it; a client without a secret has a key of
//! this process, and its people sign in anew after a restart.

use std::time::Duration;

use access::{AccessError, Sealer, SignedIn};
use base::UnixMillis;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::http::limits::RENEWED_BEFORE;

/// What a login is renewed by.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// The issuer's refresh token.
    pub refresh_token: String,
    /// Whom the issuer signed in.
    pub subject: String,
    /// The nonce of the login.
    pub nonce: String,
    /// When the login began, milliseconds since 1970.
    began_ms: i64,
    /// Until when its token is good.
    until_ms: i64,
    /// For how long it was good when it came.
    life_ms: i64,
}

/// Seals renewals for the browser.
pub struct Renewals {
    sealer: Sealer,
    /// How long a login may be renewed.
    longest: Duration,
}

impl Renewals {
    /// For a client with this secret.
    ///
    /// # Errors
    /// [`AccessError::Random`].
    pub fn new(secret: Option<&str>, longest: Duration) -> Result<Renewals, AccessError> {
        let sealer = match secret {
            Some(secret) => Sealer::of_secret(secret.as_bytes(), OWNER),
            None => Sealer::draw()?,
        };
        Ok(Renewals { sealer, longest })
    }

    /// A renewal as the browser keeps it.
    ///
    /// # Errors
    /// [`AccessError::Random`].
    pub fn seal(&self, renewal: &Renewal) -> Result<String, AccessError> {
        let text = serde_json::to_vec(renewal).unwrap_or_default();
        Ok(URL_SAFE_NO_PAD.encode(self.sealer.seal(OWNER, &text)?))
    }

    /// What a browser kept; none where it is not ours, or damaged.
    pub fn open(&self, kept: &str) -> Option<Renewal> {
        let sealed = URL_SAFE_NO_PAD.decode(kept).ok()?;
        serde_json::from_slice(&self.sealer.open(OWNER, &sealed)?).ok()
    }

    /// For how much longer a login may be renewed.
    pub fn left(&self, renewal: &Renewal, now: UnixMillis) -> Duration {
        (UnixMillis(renewal.began_ms) + self.longest).since(now)
    }
}

impl Renewal {
    /// Of a login that begins now.
    pub fn begin(
        refresh_token: String,
        signed_in: &SignedIn,
        nonce: &str,
        now: UnixMillis,
    ) -> Renewal {
        Renewal {
            refresh_token,
            subject: signed_in.subject.clone(),
            nonce: nonce.to_owned(),
            began_ms: now.0,
            until_ms: signed_in.until.0,
            life_ms: signed_in.until.0 - now.0,
        }
    }

    /// The same login with a new token, and the refresh token that came with it, if one did.
    pub fn renewed(
        self,
        refresh_token: Option<String>,
        signed_in: &SignedIn,
        now: UnixMillis,
    ) -> Renewal {
        Renewal {
            refresh_token: refresh_token.unwrap_or(self.refresh_token),
            until_ms: signed_in.until.0,
            life_ms: signed_in.until.0 - now.0,
            ..self
        }
    }

    /// How long it is until the token is to be replaced; nothing when it is time.
    pub fn due_in(&self, now: UnixMillis) -> Duration {
        let half = Duration::from_millis(u64::try_from(self.life_ms / 2).unwrap_or(0));
        UnixMillis(self.until_ms).since(now + half.min(RENEWED_BEFORE))
    }
}

/// What the seal is for.
const OWNER: &str = "thalweg console login renewal";

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn begun(life: Duration) -> Renewal {
        let signed_in = SignedIn {
            subject: "ann".to_owned(),
            until: NOW + life,
        };
        Renewal::begin("the-refresh-token".to_owned(), &signed_in, "n", NOW)
    }

    #[test]
    fn nodes_with_one_secret_open_what_one_sealed_and_nobody_else_does() {
        let hour = Duration::from_secs(3_600);
        let renewals = Renewals::new(Some("s:cret"), hour).unwrap();
        let kept = renewals.seal(&begun(hour)).unwrap();
        assert!(!kept.contains("refresh"), "{kept}");
        let another = Renewals::new(Some("s:cret"), hour).unwrap();
        assert!(another.open(&kept) == Some(begun(hour)));
        for stranger in [Some("secret"), None] {
            assert!(Renewals::new(stranger, hour).unwrap().open(&kept).is_none());
        }
        for odd in ["", "x", &kept[1..], &format!("{kept}x")] {
            assert!(renewals.open(odd).is_none(), "{odd}");
        }
    }

    #[test]
    fn a_token_is_replaced_shortly_before_its_end_and_a_login_ends_at_last() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3_600));
        let long = begun(hour);
        assert_eq!(long.due_in(NOW), hour - minute);
        assert_eq!(long.due_in(NOW + (hour - minute)), Duration::ZERO);
        assert_eq!(long.due_in(NOW + 2 * hour), Duration::ZERO);
        assert_eq!(begun(minute).due_in(NOW), minute / 2, "half of a short one");
        let renewals = Renewals::new(None, 2 * hour).unwrap();
        let signed_in = SignedIn {
            subject: "ann".to_owned(),
            until: NOW + 2 * hour,
        };
        let renewed = long.renewed(None, &signed_in, NOW + hour);
        assert_eq!(renewed.refresh_token, "the-refresh-token");
        assert_eq!(renewed.due_in(NOW + hour), hour - minute);
        assert_eq!(
            renewals.left(&renewed, NOW + hour),
            hour,
            "it counts from its beginning"
        );
        assert_eq!(renewals.left(&renewed, NOW + 2 * hour), Duration::ZERO);
        let again = renewed.renewed(Some("another".to_owned()), &signed_in, NOW + hour);
        assert_eq!(again.refresh_token, "another");
    }
}
