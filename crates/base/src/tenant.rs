//! Who the work is done for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A tenant's name: 1 to 63 of `a-z 0-9 _ -`, starting with a letter or a digit.
///
/// Lower case on purpose: shared topic collections are written in upper case, so that neither can
/// be mistaken for the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TenantId(Arc<str>);

impl TenantId {
    /// Longest name: fits a DNS label, a schema name and a topic's tenant part.
    pub const BYTES_MAX: usize = 63;

    /// The tenant of work that names none.
    pub fn default_tenant() -> Self {
        TenantId(Arc::from("default"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no tenant's name; the caller's fault, not worth a retry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no tenant name: use 1 to 63 of a-z, 0-9, '_' and '-', a letter or digit first")]
pub struct TenantIdError(String);

impl FromStr for TenantId {
    type Err = TenantIdError;

    fn from_str(text: &str) -> Result<Self, TenantIdError> {
        let starts_well = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
        if starts_well && text.len() <= TenantId::BYTES_MAX && text.bytes().all(legal) {
            Ok(TenantId(Arc::from(text)))
        } else {
            Err(TenantIdError(
                text.chars().take(TenantId::BYTES_MAX).collect(),
            ))
        }
    }
}

impl TryFrom<String> for TenantId {
    type Error = TenantIdError;

    fn try_from(text: String) -> Result<Self, TenantIdError> {
        text.parse()
    }
}

impl From<TenantId> for String {
    fn from(tenant: TenantId) -> String {
        tenant.0.as_ref().to_owned()
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_words() {
        for good in ["diku", "t-1", "9lives", "a_b"] {
            assert_eq!(good.parse::<TenantId>().unwrap().as_str(), good);
        }
        for bad in ["", "ALL", "a.b", "-a", "ä", &"a".repeat(64)] {
            assert!(bad.parse::<TenantId>().is_err(), "{bad} was taken");
        }
    }
}
