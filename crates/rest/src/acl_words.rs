//! An ACL, or a filter of ACLs, as people write it: in Kafka's words, in parameters or JSON.

use access::{
    AccessError, Acl, AclFilter, EVERY_HOST, Operation, PatternFilter, PatternType, Permission,
};
use serde::Deserialize;
use streams::{kept_acl, kept_filter};

use crate::error::RestError;

/// The words. What is left out is anything in a filter, and in an ACL what is usual: LITERAL, every
/// host, ALLOW.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AclWords {
    resource_type: Option<String>,
    resource_name: Option<String>,
    pattern_type: Option<String>,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<String>,
    permission: Option<String>,
}

impl AclWords {
    /// The ACL that they write.
    pub fn acl(&self) -> Result<Acl, RestError> {
        let missing = |key: &str| RestError::InvalidEntity(format!("'{key}' is missing"));
        let filter = self.filter_written()?;
        let principal = self
            .principal
            .as_deref()
            .ok_or_else(|| missing("principal"))?;
        let acl = Acl {
            resource_type: filter
                .resource_type
                .ok_or_else(|| missing("resource_type"))?,
            resource_name: filter
                .resource_name
                .ok_or_else(|| missing("resource_name"))?,
            pattern_type: match (filter.pattern, &self.pattern_type) {
                (PatternFilter::Only(wanted), _) => wanted,
                (_, None) => PatternType::Literal,
                (_, Some(_)) => {
                    let text = "an ACL's pattern_type is LITERAL or PREFIXED";
                    return Err(RestError::InvalidEntity(text.to_owned()));
                }
            },
            principal: principal.parse().map_err(refusal)?,
            host: filter.host.unwrap_or_else(|| EVERY_HOST.to_owned()),
            operation: filter.operation.ok_or_else(|| missing("operation"))?,
            permission: filter.permission.unwrap_or(Permission::Allow),
        };
        kept_acl(acl).map_err(|error| RestError::InvalidEntity(error.to_string()))
    }

    /// The ACLs that they mean.
    pub fn filter(&self) -> Result<AclFilter, RestError> {
        self.filter_written().map(kept_filter)
    }

    fn filter_written(&self) -> Result<AclFilter, RestError> {
        fn word<T>(text: &Option<String>) -> Result<Option<T>, RestError>
        where
            T: std::str::FromStr<Err = AccessError>,
        {
            match text {
                Some(text) if !text.eq_ignore_ascii_case("ANY") => {
                    text.parse().map(Some).map_err(refusal)
                }
                _ => Ok(None),
            }
        }
        let pattern = match &self.pattern_type {
            Some(text) if text.eq_ignore_ascii_case("MATCH") => PatternFilter::Match,
            text => word(text)?.map_or(PatternFilter::Any, PatternFilter::Only),
        };
        let operation: Option<Operation> = word(&self.operation)?;
        Ok(AclFilter {
            resource_type: word(&self.resource_type)?,
            resource_name: self.resource_name.clone(),
            pattern,
            principal: self.principal.clone(),
            host: self.host.clone(),
            operation,
            permission: word(&self.permission)?,
            only_kafkas: false,
        })
    }

    /// The same for what removes ACLs, which is not to mean all of them by accident.
    pub fn filter_of_some(&self) -> Result<AclFilter, RestError> {
        let filter = self.filter()?;
        if filter == AclFilter::default() {
            let text = "name at least one field of the ACLs to remove, such as ?principal=User:ann";
            return Err(RestError::BadRequest(text.to_owned()));
        }
        Ok(filter)
    }
}

/// What `access` refuses, as an answer.
pub(crate) fn refusal(error: AccessError) -> RestError {
    match error {
        AccessError::UnknownUser(name) => RestError::UserNotFound(name),
        AccessError::UnknownToken(id) => RestError::TokenNotFound(id),
        AccessError::UnknownTenant(name) => RestError::TenantNotFound(name.to_string()),
        AccessError::UnknownGrant { .. } => RestError::RoleNotFound(error.to_string()),
        AccessError::Invalid { .. } | AccessError::Limit { .. } => {
            RestError::InvalidEntity(error.to_string())
        }
        AccessError::Shared(_) => RestError::UsersAway(base::report(&error)),
        other => RestError::Access(base::report(&other)),
    }
}
