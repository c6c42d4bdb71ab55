//! Who is it and what may they do: users, roles, ACLs, quotas, certificates; TLS.
//!
//! [`Access`] holds what one data folder knows; a [`Snapshot`] of it answers questions without a
//! lock or a copy. [`Login`] is a SASL conversation without IO, [`Token`] what is kept of an API
//! token, [`Jwts`] checks tokens that somebody else issued, [`Tls`] is what a listener needs for
//! TLS, [`Socket`] a connection with or without it, [`Meters`] count what somebody uses. A [`Tenant`]
//! is for whom work is done, its [`TenantAccount`] what it uses.
//!
//! Invariants: neither a password nor a token is ever kept, written or logged; what cannot be read opens nothing; a
//! change is seen only when it is durable. Knows no protocol but TLS and SASL.

mod access;
mod account;
mod acl;
mod addresses;
mod credential;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod jwt;
pub mod limits;
mod login;
mod meters;
mod password;
mod password_hash;
mod pkce;
mod principal;
mod quota;
mod role;
mod seal;
mod shared;
mod shown;
mod snapshot;
mod socket;
mod store;
mod subject;
mod tenant;
mod tenants;
mod tls;
mod token;
mod validity;

pub use access::{Access, Secret, UserChange};
pub use account::{
    InFlight, Spending, Spent, TenantAccount, TenantAccounts, TenantFigures, TenantRefusal,
};
pub use acl::{
    Acl, AclFilter, CLUSTER, EVERY_HOST, Operation, PatternFilter, PatternType, Permission,
    ResourceType,
};
pub use addresses::{AddressPlace, Addresses};
pub use credential::{Credential, ScramHash};
pub use error::AccessError;
pub use host::is_this_machine;
pub use jwt::{Bearer, JwtConfig, Jwts, SignedIn};
pub use login::{Login, Mechanism, Refusal, Step};
pub use meters::Meters;
pub use password::{PasswordForm, Passwords};
pub use password_hash::PasswordHash;
pub use pkce::LoginSecrets;
pub use principal::{Peer, Principal};
pub use quota::{Bound, Quota, QuotaEntity, Sharing};
pub use role::{Grant, Granted, Role, RoleTable, Roles};
pub use seal::Sealer;
pub use shared::{SharedError, SharedText, SharedUsers};
pub use shown::Shown;
pub use snapshot::{Asking, Policy, Snapshot};
pub use socket::{DetachedSocket, Socket, TlsSocket};
pub use subject::certificate_subject;
pub use tenant::{
    Collection, Destination, IMPORTS_TOPIC, OfCaller, OfTopic, TENANT_HEADERS, Tenant, TenantBound,
    TenantChange, TenantClass, TenantQuotas,
};
pub use tls::{ClientAuth, PrincipalName, Tls, TlsConfig};
pub use token::{Token, TokenHash};
pub use validity::CertificateFacts;
