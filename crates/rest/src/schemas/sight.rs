//! What a caller may know of: whoever belongs to a tenant is kept off other tenants' subjects.
//!
//! A subject is a tenant's as the topic is that it is named after (`ENV.NAMESPACE.TENANT.EVENT-value`), and
//! so is every subject of a context that has a tenant's name (`:.TENANT:…`). An id is known to whoever
//! may know of a subject that has it.

use ::access::{Operation, ResourceType};
use streams::Caller;

use super::error::SchemaError;
use super::state::State;
use super::subject::{GLOBAL_CONTEXT, parts};
use crate::error::RestError;

/// Who asks, and what for.
pub(crate) struct Sight {
    /// None where nobody logs in, and for callers of no tenant.
    member: Option<Caller>,
    operation: Operation,
}

impl Sight {
    /// Of a caller, if callers are asked, who is to do this with subjects.
    pub(crate) fn of(caller: Option<&Caller>, operation: Operation) -> Self {
        let member = caller.filter(|caller| caller.is_held_to_tenant());
        Sight {
            member: member.cloned(),
            operation,
        }
    }

    /// Whether nothing is kept from the caller.
    pub(super) fn sees_all(&self) -> bool {
        self.member.is_none()
    }

    /// Refuses a subject of another tenant.
    pub(super) fn check(&self, subject: &str) -> Result<(), SchemaError> {
        let Some(caller) = &self.member else {
            return Ok(());
        };
        if parts(subject).0 == GLOBAL_CONTEXT && self.operation != Operation::Read {
            return Err(SchemaError::NotAllowed(NOT_TENANTS.to_owned()));
        }
        named(subject)
            .into_iter()
            .try_for_each(|(kind, name)| caller.check_own(self.operation, kind, name))
            .map_err(|error| SchemaError::from(RestError::from(error)))
    }

    /// Whether a subject may be shown.
    pub(super) fn sees(&self, subject: &str) -> bool {
        self.member.as_ref().is_none_or(|caller| {
            let is_foreign = |(kind, name)| caller.is_foreign(Operation::Describe, kind, name);
            !named(subject).into_iter().any(is_foreign)
        })
    }

    /// Whether the schema of an id may be shown.
    pub(super) fn sees_id(&self, state: &State, context: &str, id: i32) -> bool {
        let mut uses = state.uses(context, id);
        self.sees_all() || uses.any(|(subject, _)| self.sees(subject))
    }
}

/// What tells whose a subject is: its name as a topic's, and its context as a group's.
fn named(subject: &str) -> [(ResourceType, &str); 2] {
    let (context, name) = parts(subject);
    let topic = name.strip_suffix("-value").or(name.strip_suffix("-key"));
    [
        (ResourceType::Topic, topic.unwrap_or(name)),
        (ResourceType::Group, context.trim_start_matches('.')),
    ]
}

/// Why a tenant's caller changes nothing that holds for all.
pub(super) const NOT_TENANTS: &str = "the settings of all subjects are not a tenant's to change";
