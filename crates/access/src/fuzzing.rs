//! The edge that a fuzz target drives: a SASL conversation of any bytes. No API: only `fuzz/` and
//! the replay of its corpus call it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::limits::ITERATIONS_MIN;
use crate::{Credential, Login, Mechanism, Principal, ScramHash, Secret, Snapshot, Step};

/// A login of the mechanism that the first byte says; messages stand in lines of their own. `\r`
/// in a message becomes the nonce of the server's last answer, which nobody could guess.
pub fn login(input: &[u8]) {
    let Some((mechanism, messages)) = input.split_first() else {
        return;
    };
    let mechanism = match mechanism % 4 {
        0 => Mechanism::Plain,
        1 => Mechanism::ScramSha512,
        _ => Mechanism::ScramSha256,
    };
    let (users, secret) = known();
    let mut login = Login::new(mechanism);
    let mut nonce = Vec::new();
    for message in messages.split(|byte| *byte == b'\n').take(MESSAGES_MAX) {
        let mut said = Vec::new();
        for part in message.split_inclusive(|byte| *byte == b'\r') {
            match part.strip_suffix(b"\r") {
                Some(part) => said.extend([part, &nonce].concat()),
                None => said.extend(part),
            }
        }
        match login.step(users, secret, &said) {
            Step::Continue(answer) => {
                let text = String::from_utf8(answer).expect("SCRAM is text");
                let first = text
                    .strip_prefix("r=")
                    .and_then(|text| text.split(',').next());
                nonce = first.expect("the challenge begins with the nonce").into();
            }
            Step::Done(principal, _) => {
                assert_eq!(
                    principal,
                    Principal::user(USER),
                    "who has no password is let in"
                );
                assert_eq!(
                    mechanism,
                    Mechanism::Plain,
                    "nobody can prove what nobody knows"
                );
            }
            Step::Refused(refusal) => drop(refusal.to_string()),
        }
    }
}

/// One user with a password for PLAIN, and one whose keys no password has.
fn known() -> &'static (Snapshot, Secret) {
    static KNOWN: OnceLock<(Snapshot, Secret)> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let of_password = |hash, password| Credential::of_password(hash, password, ITERATIONS_MIN);
        let hash = ScramHash::Sha512;
        let user = of_password(hash, "secret").expect("it is within the bounds");
        let other = Credential::of_salted(ScramHash::Sha256, b"salt", ITERATIONS_MIN, &[7; 32]);
        let other = other.expect("it is within the bounds");
        let users = BTreeMap::from([
            (USER.to_owned(), vec![user]),
            ("a,b=c".to_owned(), vec![other]),
        ]);
        let secret = Secret::new().expect("the machine has random bytes");
        (
            Snapshot::new(users, BTreeSet::new(), BTreeMap::new()),
            secret,
        )
    })
}

const USER: &str = "user";
const MESSAGES_MAX: usize = 4;
