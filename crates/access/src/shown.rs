//! What somebody has shown to be let in, and whether they would be let in by that still: for what goes
//! on for long, such as a link or a stream.
//!
//! Taken before it is judged, and looked at once the link stands and after every change of the users,
//! or before each step, so that no change falls between. A certificate and somebody else's token are not
//! taken back here: one is its signer's, the other ends by its own time.

use crate::{Credential, PasswordHash, Principal, ScramHash, Snapshot, Token};

/// What a link or a stream stands on.
#[derive(Debug, Default)]
pub struct Shown(What);

#[derive(Debug, Default)]
enum What {
    /// Nothing that can be taken back.
    #[default]
    Lasting,
    /// An API token, by its id.
    Token(String),
    /// A password, where its hash is kept.
    Hash(PasswordHash),
    /// A password, where there were keys for SCRAM alone.
    Keys(Vec<Credential>),
    /// A proof by keys for SCRAM; none where there were none a moment ago.
    Scram(Option<Credential>),
}

impl Shown {
    /// What cannot be taken back here: a certificate, somebody else's token, nothing.
    pub fn lasting() -> Shown {
        Shown::default()
    }

    /// An API token.
    pub fn token(token: &Token) -> Shown {
        Shown(What::Token(token.id.clone()))
    }

    /// The password of the user of this name, whether it is one or not.
    pub fn password(users: &Snapshot, name: &str) -> Shown {
        Shown(match users.password_hash(name) {
            Some(hash) => What::Hash(hash.clone()),
            None => What::Keys(keys(users, name)),
        })
    }

    /// A proof by the keys for SCRAM of the user of this name.
    pub fn scram(users: &Snapshot, name: &str, hash: ScramHash) -> Shown {
        Shown(What::Scram(users.credential(name, hash).cloned()))
    }

    /// Whether whoever showed it would be let in among `users` too.
    pub fn holds(&self, users: &Snapshot, principal: &Principal) -> bool {
        let name = principal.name();
        match &self.0 {
            What::Lasting => true,
            What::Token(id) => users.token(id).is_some_and(|token| token.user == name),
            What::Hash(hash) => users.password_hash(name) == Some(hash),
            // The first login adds the hash, which changes nothing.
            What::Keys(known) => !known.is_empty() && *known == keys(users, name),
            What::Scram(known) => known
                .as_ref()
                .is_some_and(|known| users.credential(name, known.hash) == Some(known)),
        }
    }
}

fn keys(users: &Snapshot, name: &str) -> Vec<Credential> {
    let of = |hash| users.credential(name, hash).cloned();
    ScramHash::ALL.into_iter().filter_map(of).collect()
}
