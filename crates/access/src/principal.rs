//! Who somebody is, once known: `User:alice`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::AccessError;
use crate::limits::NAME_BYTES_MAX;

/// An authenticated caller; the same text form as Kafka's, `User:` and the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal of a user's name, of a certificate's subject.
    pub fn user(name: &str) -> Self {
        Principal(Arc::from(format!("{USER}{name}")))
    }

    /// Somebody who was not asked who they are.
    pub fn anonymous() -> Self {
        Principal::user("ANONYMOUS")
    }

    /// The name without `User:`.
    pub fn name(&self) -> &str {
        self.0.strip_prefix(USER).unwrap_or(&self.0)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// In an ACL: everybody.
    pub fn is_everybody(&self) -> bool {
        self.name() == "*"
    }
}

impl FromStr for Principal {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let name = text.strip_prefix(USER).unwrap_or_default();
        if name.is_empty() || text.len() > NAME_BYTES_MAX {
            let reason = format!("write 'User:' and a name, at most {NAME_BYTES_MAX} bytes");
            return Err(AccessError::invalid("principal", reason));
        }
        Ok(Principal(Arc::from(text)))
    }
}

impl TryFrom<String> for Principal {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        text.parse()
    }
}

impl From<Principal> for String {
    fn from(principal: Principal) -> String {
        principal.0.to_string()
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Kafka's only kind of principal that its own listeners make.
const USER: &str = "User:";
