//! How somebody shows who they are: SASL's PLAIN and SCRAM as conversations without IO.
//!
//! A caller feeds the client's messages to [`Login::step`] and sends what comes back. A user who
//! does not exist is refused as late, after as much work and in the same words as one with a
//! wrong password, so that names cannot be tried out.
//!
//! Sources: RFC 4616 (PLAIN), RFC 5802 and RFC 7677 (SCRAM). Left out: channel binding, and
//! SASLprep, which Kafka's clients leave out too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use crate::access::Secret;
use crate::credential::random_bytes;
use crate::limits::LOGIN_MESSAGE_BYTES_MAX;
use crate::password::{Proof, prove};
use crate::{Credential, Principal, ScramHash, Snapshot};

/// A way to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mechanism {
    /// Name and password as they are: only over TLS, or on loopback.
    #[serde(rename = "PLAIN")]
    Plain,
    /// A proof by SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// A proof by SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Mechanism {
    /// SASL's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => ScramHash::Sha256.name(),
            Mechanism::ScramSha512 => ScramHash::Sha512.name(),
        }
    }

    /// Whether a step hashes a password, which takes tens of milliseconds and may block.
    pub fn is_slow(self) -> bool {
        self == Mechanism::Plain
    }
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    mechanism: Mechanism,
    state: State,
}

/// What a message of the client leads to.
#[derive(Debug)]
pub enum Step {
    /// The client's turn after this answer.
    Continue(Vec<u8>),
    /// The client is who they say; this is the last answer.
    Done(Principal, Vec<u8>),
    /// The login failed, for good.
    Refused(Refusal),
}

/// Why a login failed; the client is told less than the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such user, or another password.
    #[error("user or password is wrong")]
    Credentials,
    /// Not what the mechanism says at this point.
    #[error("the login message is malformed: {0}")]
    Malformed(&'static str),
    /// Something that the mechanism has and this server does not.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The server could not make a nonce.
    #[error("the server has no random bytes")]
    Random,
}

#[derive(Debug)]
enum State {
    Begun,
    Challenged(Box<Challenge>),
    Over,
}

/// What a SCRAM login remembers between its two messages.
struct Challenge {
    name: String,
    is_known: bool,
    credential: Credential,
    /// The header that the client must repeat.
    gs2_header: String,
    client_first_bare: String,
    server_first: String,
    /// The client's, then ours.
    nonce: String,
    client_nonce: String,
}

impl std::fmt::Debug for Challenge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Challenge")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Login {
    /// Begins a login.
    pub fn new(mechanism: Mechanism) -> Self {
        Login {
            mechanism,
            state: State::Begun,
        }
    }

    /// The mechanism of this login.
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Takes a message of the client. After anything but [`Step::Continue`] the login is over.
    pub fn step(&mut self, users: &Snapshot, secret: &Secret, message: &[u8]) -> Step {
        self.try_step(users, secret, message)
            .unwrap_or_else(Step::Refused)
    }

    fn try_step(
        &mut self,
        users: &Snapshot,
        secret: &Secret,
        message: &[u8],
    ) -> Result<Step, Refusal> {
        let state = std::mem::replace(&mut self.state, State::Over);
        if message.len() > LOGIN_MESSAGE_BYTES_MAX {
            return Err(Refusal::Malformed("it is too long"));
        }
        let message =
            std::str::from_utf8(message).map_err(|_| Refusal::Malformed("it is no UTF-8"))?;
        let hash = match self.mechanism {
            Mechanism::Plain => return plain(users, secret, message),
            Mechanism::ScramSha256 => ScramHash::Sha256,
            Mechanism::ScramSha512 => ScramHash::Sha512,
        };
        match state {
            State::Begun => {
                let nonce = STANDARD.encode(random_bytes::<24>().map_err(|_| Refusal::Random)?);
                let challenge = Challenge::of(hash, users, secret, message, &nonce)?;
                let answer = challenge.server_first.clone().into_bytes();
                self.state = State::Challenged(Box::new(challenge));
                Ok(Step::Continue(answer))
            }
            State::Challenged(challenge) => challenge.judge(message),
            State::Over => Err(Refusal::Malformed("the login is over")),
        }
    }
}

/// `[authzid] NUL authcid NUL password`.
fn plain(users: &Snapshot, secret: &Secret, message: &str) -> Result<Step, Refusal> {
    let parts: Vec<&str> = message.split('\0').collect();
    let [acts_as, name, password] = parts[..] else {
        return Err(Refusal::Malformed("PLAIN has three parts"));
    };
    if name.is_empty() || password.is_empty() {
        return Err(Refusal::Malformed("PLAIN has a name and a password"));
    }
    if !acts_as.is_empty() && acts_as != name {
        return Err(Refusal::Unsupported("acting as somebody else"));
    }
    match prove(users, secret, name, password) {
        Proof::Right | Proof::ByKeys(_) => Ok(Step::Done(Principal::user(name), Vec::new())),
        Proof::Wrong => Err(Refusal::Credentials),
    }
}

impl Challenge {
    /// Reads `client-first-message`, looks the user up and writes `server-first-message`.
    fn of(
        hash: ScramHash,
        users: &Snapshot,
        secret: &Secret,
        message: &str,
        server_nonce: &str,
    ) -> Result<Self, Refusal> {
        let mut commas = message.match_indices(',').map(|(at, _)| at);
        let (Some(_), Some(second)) = (commas.next(), commas.next()) else {
            return Err(Refusal::Malformed("it has no header"));
        };
        let (gs2_header, bare) = message.split_at(second + 1);
        let header: Vec<&str> = gs2_header.split(',').collect();
        match header[0] {
            "n" | "y" => {}
            flag if flag.starts_with("p=") => {
                return Err(Refusal::Unsupported("channel binding"));
            }
            _ => return Err(Refusal::Malformed("it has no header")),
        }
        let mut fields = bare.split(',');
        let name = match fields.next() {
            Some(field) if field.starts_with("m=") => {
                return Err(Refusal::Unsupported("a mandatory extension"));
            }
            field => field.and_then(|field| field.strip_prefix("n=")),
        };
        let name = name.ok_or(Refusal::Malformed("it names no user"))?;
        let name = unescaped(name).ok_or(Refusal::Malformed("the name is written wrongly"))?;
        match header[1].strip_prefix("a=").map(unescaped) {
            None if header[1].is_empty() => {}
            Some(Some(acts_as)) if acts_as == name => {}
            _ => return Err(Refusal::Unsupported("acting as somebody else")),
        }
        let nonce = fields
            .next()
            .and_then(|field| field.strip_prefix("r="))
            .filter(|nonce| !nonce.is_empty())
            .ok_or(Refusal::Malformed("it has no nonce"))?;
        let known = users.credential(&name, hash).cloned();
        let is_known = known.is_some();
        let credential =
            known.unwrap_or_else(|| Credential::of_nobody(hash, secret.bytes(), &name));
        let (client_nonce, nonce) = (nonce.to_owned(), format!("{nonce}{server_nonce}"));
        let salt = STANDARD.encode(&credential.salt);
        Ok(Challenge {
            server_first: format!("r={nonce},s={salt},i={}", credential.iterations),
            name,
            is_known,
            credential,
            gs2_header: gs2_header.to_owned(),
            client_first_bare: bare.to_owned(),
            nonce,
            client_nonce,
        })
    }

    /// Whether a nonce is the one that was sent, so that nobody says again what was said to another.
    ///
    /// librdkafka before 2.6.1, and so kcat of many systems, puts its own nonce before that once more:
    /// ours stands in it all the same, and the proof is over it.
    fn is_repeated_by(&self, nonce: &str) -> bool {
        let before = nonce.strip_suffix(self.nonce.as_str());
        before.is_some_and(|before| before.is_empty() || before == self.client_nonce)
    }

    /// Reads `client-final-message` and, if the proof holds, writes `server-final-message`.
    fn judge(self: Box<Self>, message: &str) -> Result<Step, Refusal> {
        let (without_proof, proof) = message
            .rsplit_once(",p=")
            .ok_or(Refusal::Malformed("it has no proof"))?;
        let mut fields = without_proof.split(',');
        let binding = fields.next().and_then(|field| field.strip_prefix("c="));
        if binding != Some(STANDARD.encode(&self.gs2_header).as_str()) {
            return Err(Refusal::Malformed("it repeats another header"));
        }
        let nonce = fields.next().and_then(|field| field.strip_prefix("r="));
        if !nonce.is_some_and(|nonce| self.is_repeated_by(nonce)) {
            return Err(Refusal::Malformed("it repeats another nonce"));
        }
        let proof = STANDARD
            .decode(proof)
            .map_err(|_| Refusal::Malformed("the proof is no base64"))?;
        let hash = self.credential.hash;
        let authenticated = format!(
            "{},{},{without_proof}",
            self.client_first_bare, self.server_first
        );
        let signature = hash.hmac(&self.credential.stored_key, authenticated.as_bytes());
        if proof.len() != signature.len() {
            return Err(Refusal::Credentials);
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(p, s)| p ^ s).collect();
        let stored_key = digest::digest(hash.digest(), &client_key);
        let is_right: bool = stored_key
            .as_ref()
            .ct_eq(&self.credential.stored_key)
            .into();
        if !is_right || !self.is_known {
            return Err(Refusal::Credentials);
        }
        let signature = hash.hmac(&self.credential.server_key, authenticated.as_bytes());
        let answer = format!("v={}", STANDARD.encode(signature));
        Ok(Step::Done(Principal::user(&self.name), answer.into_bytes()))
    }
}

/// A name as SCRAM writes it: `=2C` is a comma, `=3D` an equals sign, and there is no other `=`.
fn unescaped(name: &str) -> Option<String> {
    if name.is_empty() {
        return None;
    }
    let mut parts = name.split('=');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = part.split_at_checked(2)?;
        match sign {
            "2C" => plain.push(','),
            "3D" => plain.push('='),
            _ => return None,
        }
        plain.push_str(rest);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use base::Rng;

    use super::*;
    use crate::limits::ITERATIONS_MIN;

    fn users(list: Vec<(&str, Credential)>) -> Snapshot {
        let mut users: BTreeMap<String, Vec<Credential>> = BTreeMap::new();
        for (name, credential) in list {
            users.entry(name.to_owned()).or_default().push(credential);
        }
        Snapshot::new(users, BTreeSet::new(), BTreeMap::new())
    }

    fn secret() -> Secret {
        Secret::new().unwrap()
    }

    /// A client of RFC 5802, to talk to.
    fn client_final(hash: ScramHash, password: &str, bare: &str, server_first: &str) -> String {
        let field = |key: &str| {
            let found = server_first.split(',').find_map(|f| f.strip_prefix(key));
            found.unwrap().to_owned()
        };
        let salt = STANDARD.decode(field("s=")).unwrap();
        let salted = hash.salted_password(password, &salt, field("i=").parse().unwrap());
        client_final_of(hash, bare, server_first, &salted, &field("r="))
    }

    /// The same with any nonce.
    fn client_final_of(
        hash: ScramHash,
        bare: &str,
        server_first: &str,
        salted: &[u8],
        nonce: &str,
    ) -> String {
        let client_key = hash.hmac(salted, b"Client Key");
        let stored_key = digest::digest(hash.digest(), &client_key);
        let without_proof = format!("c=biws,r={nonce}");
        let authenticated = format!("{bare},{server_first},{without_proof}");
        let signature = hash.hmac(stored_key.as_ref(), authenticated.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(k, s)| k ^ s)
            .collect();
        format!("{without_proof},p={}", STANDARD.encode(proof))
    }

    fn scram(mechanism: Mechanism, users: &Snapshot, name: &str, password: &str) -> Step {
        let hash: ScramHash = mechanism.name().parse().unwrap();
        let (mut login, secret) = (Login::new(mechanism), secret());
        let bare = format!("n={name},r=abc");
        let first = login.step(users, &secret, format!("n,,{bare}").as_bytes());
        let Step::Continue(server_first) = first else {
            return first;
        };
        let server_first = String::from_utf8(server_first).unwrap();
        let last = client_final(hash, password, &bare, &server_first);
        login.step(users, &secret, last.as_bytes())
    }

    #[test]
    fn the_example_of_rfc_7677_holds() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = ScramHash::Sha256.salted_password("pencil", &salt, 4_096);
        let credential = Credential::of_salted(ScramHash::Sha256, &salt, 4_096, &salted).unwrap();
        let challenge = Challenge::of(
            ScramHash::Sha256,
            &users(vec![("user", credential)]),
            &secret(),
            "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        )
        .unwrap();
        assert_eq!(
            challenge.server_first,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let Ok(Step::Done(who, answer)) = Box::new(challenge).judge(last) else {
            panic!("the RFC's own proof was refused");
        };
        assert_eq!(who, Principal::user("user"));
        assert_eq!(answer, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn every_mechanism_lets_in_the_right_password_only() {
        let of = |hash| Credential::of_password(hash, "s€cret", ITERATIONS_MIN).unwrap();
        let users = users(vec![
            ("ann", of(ScramHash::Sha256)),
            ("ann", of(ScramHash::Sha512)),
            ("b,=o", of(ScramHash::Sha512)),
        ]);
        for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha512] {
            assert!(matches!(
                scram(mechanism, &users, "ann", "s€cret"),
                Step::Done(who, answer) if who.name() == "ann" && answer.starts_with(b"v=")
            ));
            for (name, password) in [("ann", "secret"), ("eve", "s€cret")] {
                let step = scram(mechanism, &users, name, password);
                assert!(
                    matches!(step, Step::Refused(Refusal::Credentials)),
                    "{step:?}"
                );
            }
        }
        let escaped = scram(Mechanism::ScramSha512, &users, "b=2C=3Do", "s€cret");
        assert!(matches!(escaped, Step::Done(who, _) if who.name() == "b,=o"));
        // The user has no credential for this hash.
        let other = scram(Mechanism::ScramSha256, &users, "b=2C=3Do", "s€cret");
        assert!(matches!(other, Step::Refused(Refusal::Credentials)));
        let plain = |message: &str| {
            Login::new(Mechanism::Plain).step(&users, &secret(), message.as_bytes())
        };
        assert!(matches!(plain("\0b,=o\0s€cret"), Step::Done(who, _) if who.name() == "b,=o"));
        assert!(matches!(plain("ann\0ann\0s€cret"), Step::Done(..)));
        for message in ["\0ann\0wrong", "\0eve\0s€cret"] {
            let step = plain(message);
            assert!(
                matches!(step, Step::Refused(Refusal::Credentials)),
                "{step:?}"
            );
        }
        assert!(matches!(
            plain("root\0ann\0s€cret"),
            Step::Refused(Refusal::Unsupported(_))
        ));
    }

    #[test]
    fn a_nonce_is_ours_also_where_an_old_librdkafka_repeats_its_own_before_it() {
        let salt = [7; 16];
        let hash = ScramHash::Sha512;
        let salted = hash.salted_password("p", &salt, ITERATIONS_MIN);
        let of = Credential::of_salted(hash, &salt, ITERATIONS_MIN, &salted).unwrap();
        let (users, secret, bare) = (users(vec![("ann", of)]), secret(), "n=ann,r=abc");
        for (before, is_in) in [("", true), ("abc", true), ("abcabc", false), ("x", false)] {
            let mut login = Login::new(Mechanism::ScramSha512);
            let first = login.step(&users, &secret, format!("n,,{bare}").as_bytes());
            let Step::Continue(server_first) = first else {
                panic!("{first:?}")
            };
            let server_first = String::from_utf8(server_first).unwrap();
            let nonce = server_first.strip_prefix("r=").unwrap();
            let nonce = format!("{before}{}", nonce.split(',').next().unwrap());
            let last = client_final_of(hash, bare, &server_first, &salted, &nonce);
            let step = login.step(&users, &secret, last.as_bytes());
            assert_eq!(matches!(step, Step::Done(..)), is_in, "{before}: {step:?}");
        }
    }

    #[test]
    fn malformed_messages_are_refused_in_either_place() {
        let of = Credential::of_password(ScramHash::Sha256, "p", ITERATIONS_MIN).unwrap();
        let (users, secret) = (users(vec![("ann", of)]), secret());
        let firsts = [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=ann",
            "n,,n=,r=x",
            "n,,n=a=nn,r=x",
            "n,,n=ann,r=",
            "x,,n=ann,r=x",
            "p=tls-unique,,n=ann,r=x",
            "n,a=bob,n=ann,r=x",
            "n,,m=x,n=ann,r=x",
            "n,,n=a=2,r=x",
            "n,,n=a=€,r=x",
        ];
        for first in firsts {
            let step = Login::new(Mechanism::ScramSha256).step(&users, &secret, first.as_bytes());
            assert!(matches!(step, Step::Refused(_)), "{first}: {step:?}");
        }
        for last in [
            "",
            "c=biws",
            "c=biws,r=x,p=AAAA",
            "c=eSws,r=abc,p=AAAA",
            "p=x",
            ",p=,p=",
        ] {
            let mut login = Login::new(Mechanism::ScramSha256);
            login.step(&users, &secret, b"n,,n=ann,r=abc");
            let step = login.step(&users, &secret, last.as_bytes());
            assert!(matches!(step, Step::Refused(_)), "{last}: {step:?}");
            let after = login.step(&users, &secret, b"n,,n=ann,r=abc");
            assert!(
                matches!(after, Step::Refused(_)),
                "a login went on after its end"
            );
        }
    }

    #[test]
    fn random_bytes_never_panic_a_login() {
        let of = Credential::of_password(ScramHash::Sha256, "p", ITERATIONS_MIN).unwrap();
        let (users, secret) = (users(vec![("ann", of)]), secret());
        let letters = b"n,=raapcm=2C3Dy\0\xff:b64biws";
        for seed in 0..3_000 {
            let mut rng = Rng::from_seed(seed);
            let mut message = vec![0; usize::try_from(rng.below(60)).unwrap()];
            for byte in &mut message {
                *byte = letters[usize::try_from(rng.below(letters.len() as u64)).unwrap()];
            }
            let mut login = Login::new(Mechanism::ScramSha256);
            if rng.one_in(2) {
                login.step(&users, &secret, b"n,,n=ann,r=abc");
            }
            login.step(&users, &secret, &message);
            if seed % 50 == 0 {
                Login::new(Mechanism::Plain).step(&users, &secret, &message);
            }
        }
    }

    #[test]
    fn a_stranger_is_challenged_like_a_user() {
        let (users, secret) = (users(Vec::new()), secret());
        let challenge = || {
            let mut login = Login::new(Mechanism::ScramSha512);
            match login.step(&users, &secret, b"n,,n=eve,r=abc") {
                Step::Continue(answer) => String::from_utf8(answer).unwrap(),
                step => panic!("{step:?}"),
            }
        };
        let salt = |text: String| text.split(",s=").nth(1).unwrap().to_owned();
        assert_eq!(salt(challenge()), salt(challenge()));
    }
}
