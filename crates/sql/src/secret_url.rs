//! Addresses in configuration that may hold a secret.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An address that may hold a secret: of a database, or of a webhook. It is never shown with it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The address as it was given.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The address without its secret: a password, or a webhook's path.
    fn shown(&self) -> String {
        let shown = crate::place::without_password(&self.0);
        match shown.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => {
                let host = rest.split('/').next().unwrap_or_default();
                format!("{scheme}://{host}/…")
            }
            _ => shown,
        }
    }
}

impl From<String> for SecretUrl {
    fn from(url: String) -> SecretUrl {
        SecretUrl(url)
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl Serialize for SecretUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.shown())
    }
}
