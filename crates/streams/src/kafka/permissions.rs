//! What an API asks of its callers, as data of the table of APIs.
//!
//! Each row of the table names every permission that its API may ask for, so an API cannot be
//! added without an answer; a handler that asks for anything else fails in tests. Kafka documents
//! the same pairs ("Operations and resources on protocols").

use access::{Operation, ResourceType};

/// What an API asks of its callers where ACLs are followed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asks {
    /// Nothing, not even a login; for this reason.
    Nothing(&'static str),
    /// A login where there are logins, for this reason; what permissions decide is only how much
    /// is told.
    Login(&'static str, &'static [Permission]),
    /// These permissions, all or some of them as the request is.
    These(&'static [Permission]),
}

/// An operation on a kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The operation.
    pub operation: Operation,
    /// What it is done to.
    pub kind: ResourceType,
}

impl Asks {
    /// Whether clients are served that have not logged in.
    pub(super) fn is_before_login(self) -> bool {
        matches!(self, Asks::Nothing(_))
    }

    /// Whether the table says that this is asked.
    pub(super) fn names(self, operation: Operation, kind: ResourceType) -> bool {
        self.permissions().contains(&Permission { operation, kind })
    }

    pub(super) fn permissions(self) -> &'static [Permission] {
        match self {
            Asks::Nothing(_) => &[],
            Asks::Login(_, all) | Asks::These(all) => all,
        }
    }

    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Asks::Nothing(reason) | Asks::Login(reason, _) => Some(reason),
            Asks::These(_) => None,
        }
    }
}

/// What one API asks of its callers, for people.
#[derive(Clone, Debug)]
pub struct AskedPermissions {
    /// The API's name in Kafka's protocol guide.
    pub api: &'static str,
    /// The permissions that it may ask for, as the request is.
    pub permissions: &'static [Permission],
    /// Why it is open to those who have none of them, where it is.
    pub open_because: Option<&'static str>,
}

/// `operation` on a topic.
pub(super) const fn topic(operation: Operation) -> Permission {
    of(operation, ResourceType::Topic)
}

/// `operation` on a group.
pub(super) const fn group(operation: Operation) -> Permission {
    of(operation, ResourceType::Group)
}

/// `operation` on a transactional id.
pub(super) const fn transactional_id(operation: Operation) -> Permission {
    of(operation, ResourceType::TransactionalId)
}

/// `operation` on the cluster.
pub(super) const fn cluster(operation: Operation) -> Permission {
    of(operation, ResourceType::Cluster)
}

const fn of(operation: Operation, kind: ResourceType) -> Permission {
    Permission { operation, kind }
}
