//! SCRAM as an enhanced login: users of `access`, their passwords never on the wire.
//!
//! The authentication data of MQTT's packets are SCRAM's messages (RFC 5802), the method is its
//! SASL name: `SCRAM-SHA-256` or `SCRAM-SHA-512`.

use std::sync::Arc;

use access::{Access, Login, Mechanism, Principal, Step};

use crate::gate::{Exchange, Pass, Progress};
use crate::reason::ReasonCode;

/// Makes the pass of a user who proved to be one.
pub type PassOf = Box<dyn Fn(&Principal) -> Arc<dyn Pass> + Send + Sync>;

struct Scram {
    login: Login,
    access: Arc<Access>,
    pass_of: PassOf,
}

/// Begins a login by SCRAM for [`Gate::exchange`](crate::Gate::exchange); `None` for a method
/// that is another one.
pub fn scram(method: &str, access: &Arc<Access>, pass_of: PassOf) -> Option<Box<dyn Exchange>> {
    let offered = [Mechanism::ScramSha256, Mechanism::ScramSha512];
    let mechanism = offered.into_iter().find(|m| m.name() == method)?;
    Some(Box::new(Scram {
        login: Login::new(mechanism),
        access: access.clone(),
        pass_of,
    }))
}

impl Exchange for Scram {
    fn step(&mut self, data: &[u8]) -> Progress {
        let users = self.access.snapshot();
        match self.login.step(&users, self.access.secret(), data) {
            Step::Continue(data) => Progress::Continue(data),
            Step::Done(principal, data) => Progress::Done {
                data,
                pass: (self.pass_of)(&principal),
            },
            Step::Refused(refusal) => {
                tracing::debug!(%refusal, "a login by SCRAM failed");
                Progress::Refused(ReasonCode::NotAuthorized)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use access::{Credential, ScramHash, UserChange};

    use super::*;
    use crate::gate::OpenPass;

    /// Says the client's part with a password; gives what the server's last word was.
    fn log_in(access: &Arc<Access>, name: &str, password: &str) -> Result<Vec<u8>, ReasonCode> {
        let pass_of = |principal: &Principal| {
            assert_eq!(*principal, Principal::user("ada"));
            Arc::new(OpenPass) as Arc<dyn Pass>
        };
        let mut login = scram("SCRAM-SHA-256", access, Box::new(pass_of)).unwrap();
        let bare = format!("n={name},r=abc");
        let Progress::Continue(challenge) = login.step(format!("n,,{bare}").as_bytes()) else {
            panic!("no challenge");
        };
        let challenge = String::from_utf8(challenge).unwrap();
        let last = client_final(password, &bare, &challenge);
        match login.step(last.as_bytes()) {
            Progress::Done { data, .. } => Ok(data),
            Progress::Refused(reason) => Err(reason),
            Progress::Continue(_) => panic!("SCRAM has two steps"),
        }
    }

    /// The client's last word, which proves the password.
    pub(crate) fn client_final(password: &str, bare: &str, challenge: &str) -> String {
        use base64::Engine;
        use base64::engine::general_purpose::STANDARD;
        let hmac = |key: &[u8], text: &[u8]| {
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
            ring::hmac::sign(&key, text).as_ref().to_vec()
        };
        let field = |key: &str| {
            let found = challenge.split(',').find_map(|f| f.strip_prefix(key));
            found.unwrap().to_owned()
        };
        let salt = STANDARD.decode(field("s=")).unwrap();
        let iterations = field("i=").parse().unwrap();
        let salted = ScramHash::Sha256.salted_password(password, &salt, iterations);
        let client_key = hmac(&salted, b"Client Key");
        let stored_key = ring::digest::digest(&ring::digest::SHA256, &client_key);
        let without_proof = format!("c=biws,r={}", field("r="));
        let authenticated = format!("{bare},{challenge},{without_proof}");
        let signature = hmac(stored_key.as_ref(), authenticated.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(k, s)| k ^ s)
            .collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    #[test]
    fn a_user_is_let_in_by_a_proof_of_the_password_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let access = Arc::new(Access::open(dir.path()).unwrap());
        let credential = Credential::of_password(ScramHash::Sha256, "lovelace", 4_096).unwrap();
        access
            .alter_users(&[UserChange::Set("ada".to_owned(), credential)])
            .unwrap();
        let signature = log_in(&access, "ada", "lovelace").unwrap();
        assert!(signature.starts_with(b"v="), "the server proves itself");
        assert_eq!(
            log_in(&access, "ada", "byron"),
            Err(ReasonCode::NotAuthorized)
        );
        assert_eq!(
            log_in(&access, "eve", "lovelace"),
            Err(ReasonCode::NotAuthorized)
        );
        let open = |_: &Principal| Arc::new(OpenPass) as Arc<dyn Pass>;
        assert!(scram("PLAIN", &access, Box::new(open)).is_none());
    }
}
