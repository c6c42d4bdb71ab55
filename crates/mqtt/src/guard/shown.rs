//! What a client has shown to be let in, and whether it would be let in by that still.
//!
//! Taken before the client is judged by it, and looked at once the link stands and after every change
//! of the users, so that no change falls between. A certificate and somebody else's token are not
//! taken back here: one is its signer's, the other ends by its own time.

use access::{Credential, PasswordHash, Principal, ScramHash, Snapshot, Token};

/// What a link stands on.
#[derive(Default)]
pub(super) enum Shown {
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
    pub(super) fn token(token: &Token) -> Shown {
        Shown::Token(token.id.clone())
    }

    pub(super) fn password(users: &Snapshot, name: &str) -> Shown {
        match users.password_hash(name) {
            Some(hash) => Shown::Hash(hash.clone()),
            None => Shown::Keys(keys(users, name)),
        }
    }

    pub(super) fn scram(users: &Snapshot, name: &str, hash: ScramHash) -> Shown {
        Shown::Scram(users.credential(name, hash).cloned())
    }

    /// Whether whoever showed it would be let in among `users` too.
    pub(super) fn holds(&self, users: &Snapshot, principal: &Principal) -> bool {
        let name = principal.name();
        match self {
            Shown::Lasting => true,
            Shown::Token(id) => users.token(id).is_some_and(|token| token.user == name),
            Shown::Hash(hash) => users.password_hash(name) == Some(hash),
            // The first login adds the hash, which changes nothing.
            Shown::Keys(known) => !known.is_empty() && *known == keys(users, name),
            Shown::Scram(known) => known
                .as_ref()
                .is_some_and(|known| users.credential(name, known.hash) == Some(known)),
        }
    }
}

fn keys(users: &Snapshot, name: &str) -> Vec<Credential> {
    let of = |hash| users.credential(name, hash).cloned();
    ScramHash::ALL.into_iter().filter_map(of).collect()
}
