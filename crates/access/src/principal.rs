//! Who somebody is, once known: `User:alice`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use base::TenantId;
use serde::{Deserialize, Serialize};

use crate::AccessError;
use crate::limits::NAME_BYTES_MAX;

/// An authenticated caller; the same text form as Kafka's, `User:` and the name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Principal(Arc<str>);

/// Whom a request comes from; whoever serves connections puts it into their requests.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address.
    pub ip: IpAddr,
    /// Who the connection's certificate says it is.
    pub certificate: Option<Principal>,
}

impl Principal {
    /// The principal of a user's name, of a certificate's subject.
    pub fn user(name: &str) -> Self {
        Principal(Arc::from(format!("{USER}{name}")))
    }

    /// A user whom a tenant's name stands before, as its issuer names them; none when the name is
    /// too long with it.
    pub fn of_tenant(tenant: &TenantId, name: &str) -> Option<Self> {
        let name = format!("{}{TENANT_END}{name}", tenant.as_str());
        (name.len() <= NAME_BYTES_MAX).then(|| Principal::user(&name))
    }

    /// What stands before its name where a tenant may.
    pub(crate) fn tenant(&self) -> Option<&str> {
        self.name().split_once(TENANT_END).map(|(tenant, _)| tenant)
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

    /// In an ACL: whether it speaks of `caller`, by name, as one of a tenant (`User:acme/*`), or as
    /// everybody (`User:*`).
    pub fn speaks_of(&self, caller: &Principal) -> bool {
        if self == caller {
            return true;
        }
        let Some(beginning) = self.0.strip_suffix(EVERYBODY) else {
            return false;
        };
        beginning == USER || beginning.ends_with(TENANT_END) && caller.0.starts_with(beginning)
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
/// In an ACL, in the place of a name or behind a tenant's.
const EVERYBODY: char = '*';
/// What a tenant's name ends with.
const TENANT_END: char = '/';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acl_speaks_of_one_of_a_tenant_or_of_everybody() {
        let ann = Principal::user("acme/ann");
        let cases = [
            ("User:acme/ann", true),
            ("User:acme/*", true),
            ("User:*", true),
            ("User:acme", false),
            ("User:ac*", false),
            ("User:acme*", false),
            ("User:other/*", false),
            ("User:acme/an", false),
            ("User:acme/an*", false),
        ];
        for (text, expected) in cases {
            let of_acl: Principal = text.parse().unwrap();
            assert_eq!(of_acl.speaks_of(&ann), expected, "{text}");
        }
        // A user without a tenant is nobody's.
        assert!(!Principal::user("acme/*").speaks_of(&Principal::user("acme")));
    }
}
