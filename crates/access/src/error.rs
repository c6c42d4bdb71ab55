//! What can go wrong with users, ACLs and certificates.

use std::io;
use std::path::PathBuf;

/// An error of access.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// A name, password or host that cannot be taken; the caller's fault.
    #[error("{what} is not valid: {reason}")]
    Invalid {
        /// What was given.
        what: &'static str,
        /// Why it cannot be taken.
        reason: String,
    },
    /// There is no such user, or not with such a credential.
    #[error("user '{0}' has no such credential")]
    UnknownUser(String),
    /// There is no API token of this id.
    #[error("there is no token '{0}'")]
    UnknownToken(String),
    /// There is no tenant of this name.
    #[error("there is no tenant '{0}'")]
    UnknownTenant(base::TenantId),
    /// Somebody was never granted this role.
    #[error("{principal} has no role '{grant}' of their own")]
    UnknownGrant {
        /// Who.
        principal: crate::Principal,
        /// The role.
        grant: crate::Grant,
    },
    /// A bound is reached; nothing was changed.
    #[error("{what} would exceed {max}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The file that holds users and ACLs cannot be read or written; nothing was changed.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file that holds users and ACLs is not what this version wrote.
    #[error("{} cannot be understood: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Users that are shared with other processes cannot be read or written where they lie; whether a
    /// change was made may not be known.
    #[error("the users that this process shares with others are out of reach: try again")]
    Shared(#[source] crate::SharedError),
    /// Certificates or keys cannot be used; the operator's to mend.
    #[error("{key} = {} cannot be used: {reason}", path.display())]
    Tls {
        /// The setting.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The keys that sign JSON Web Tokens cannot be used; the operator's to mend.
    #[error("access.jwt.jwks = {} cannot be used: {reason}", path.display())]
    Jwks {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gives no random bytes")]
    Random,
}

impl AccessError {
    pub(crate) fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        AccessError::Invalid {
            what,
            reason: reason.into(),
        }
    }
}
