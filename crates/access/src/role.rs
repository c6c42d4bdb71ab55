//! Roles: what somebody may do at the management API, and to which classes of agents.
//!
//! Each role may do what the ones before it may. A [`Grant`] gives a role for one class or for all
//! of them; [`Roles`] is what all grants of one caller come to. Without a grant nothing is allowed.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::{GRANTS_OF_ONE_MAX, NAME_BYTES_MAX};
use crate::{AccessError, Principal};

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Publishes flows, sets parameters, uploads and assigns resources.
    Designer,
    /// Asks for operations, rolls out, cancels.
    Operator,
    /// Everything, in all classes: users, tokens and roles too.
    Administrator,
}

/// A role, for one class or for all: `operator:edge`, `viewer`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Grant {
    /// The role.
    pub role: Role,
    /// The class; all of them when absent.
    pub class: Option<String>,
}

/// What somebody may do where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    everywhere: Option<Role>,
    classes: BTreeMap<String, Role>,
}

/// Who calls, from where, and what they may do; whoever asks for logins puts it into requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Who.
    pub principal: Principal,
    /// From which address.
    pub host: String,
    /// What they may do.
    pub roles: Roles,
}

/// Grants that the configuration gives, by `User:NAME` or `group:NAME`, where a group is a value
/// of the claim `access.jwt.groups_claim`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RoleTable(BTreeMap<Holder, Grants>);

/// The grants of one name: a list, or a text with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Vec<Grant>")]
struct Grants(Vec<Grant>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
enum Holder {
    User(Principal),
    Group(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    List(Vec<String>),
}

impl Role {
    /// All of them, each with what the one before it may do.
    pub const ALL: [Role; 4] = [
        Role::Viewer,
        Role::Designer,
        Role::Operator,
        Role::Administrator,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Designer => "designer",
            Role::Operator => "operator",
            Role::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            let reason = "write viewer, designer, operator or administrator";
            AccessError::invalid("role", reason)
        })
    }
}

impl FromStr for Grant {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let (role, class) = match text.trim().split_once(':') {
            Some((role, class)) => (role, Some(class)),
            None => (text.trim(), None),
        };
        let role: Role = role.parse()?;
        if role == Role::Administrator && class.is_some() {
            let reason = "an administrator is one for all classes: write 'administrator' alone";
            return Err(AccessError::invalid("role", reason));
        }
        if class.is_some_and(|class| class.is_empty() || class.len() > NAME_BYTES_MAX) {
            let reason = format!("write a class of 1 to {NAME_BYTES_MAX} bytes behind the colon");
            return Err(AccessError::invalid("role", reason));
        }
        let class = class.map(str::to_owned);
        Ok(Grant { role, class })
    }
}

impl TryFrom<String> for Grant {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        text.parse()
    }
}

impl From<Grant> for String {
    fn from(grant: Grant) -> String {
        grant.to_string()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.class {
            Some(class) => write!(f, "{}:{class}", self.role),
            None => write!(f, "{}", self.role),
        }
    }
}

impl Roles {
    /// Everything.
    pub fn administrator() -> Self {
        Roles {
            everywhere: Some(Role::Administrator),
            classes: BTreeMap::new(),
        }
    }

    /// Adds what a grant gives.
    pub fn add(&mut self, grant: &Grant) {
        match &grant.class {
            None => self.everywhere = self.everywhere.max(Some(grant.role)),
            Some(class) => {
                let of_class = self.classes.entry(class.clone()).or_insert(grant.role);
                *of_class = (*of_class).max(grant.role);
            }
        }
    }

    /// Whether they reach a class; agents without one are reached by roles for all classes only.
    pub fn may(&self, role: Role, class: Option<&str>) -> bool {
        let of_class = class.and_then(|class| self.classes.get(class));
        self.everywhere.max(of_class.copied()) >= Some(role)
    }

    /// Whether they reach every class.
    pub fn may_everywhere(&self, role: Role) -> bool {
        self.everywhere >= Some(role)
    }

    /// Whether they reach some class.
    pub fn may_somewhere(&self, role: Role) -> bool {
        self.may_everywhere(role) || self.classes.values().any(|of_class| *of_class >= role)
    }

    /// Those for single classes alone.
    pub fn of_classes(&self) -> Roles {
        Roles {
            everywhere: None,
            classes: self.classes.clone(),
        }
    }

    /// Whether they reach nothing.
    pub fn is_empty(&self) -> bool {
        self.everywhere.is_none() && self.classes.is_empty()
    }

    /// The classes with roles of their own, in order.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// As grants, the one for all classes first.
    pub fn grants(&self) -> Vec<Grant> {
        let everywhere = self.everywhere.map(|role| Grant { role, class: None });
        let of_classes = self.classes.iter().map(|(class, role)| Grant {
            role: *role,
            class: Some(class.clone()),
        });
        everywhere.into_iter().chain(of_classes).collect()
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grants = self.grants();
        if grants.is_empty() {
            return f.write_str("no role");
        }
        for (index, grant) in grants.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{grant}")?;
        }
        Ok(())
    }
}

impl RoleTable {
    /// What the configuration gives to somebody in these groups.
    pub fn of<'t>(
        &'t self,
        principal: &'t Principal,
        groups: &'t [String],
    ) -> impl Iterator<Item = &'t Grant> {
        let fits = move |holder: &Holder| match holder {
            Holder::User(user) => user.speaks_of(principal),
            Holder::Group(group) => groups.contains(group),
        };
        let fitting = self.0.iter().filter(move |(holder, _)| fits(holder));
        fitting.flat_map(|(_, grants)| &grants.0)
    }
}

impl TryFrom<String> for Holder {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        match text.strip_prefix(GROUP) {
            Some("") => Err(AccessError::invalid("role", "write a name behind 'group:'")),
            Some(group) => Ok(Holder::Group(group.to_owned())),
            None => text.parse().map(Holder::User),
        }
    }
}

impl From<Holder> for String {
    fn from(holder: Holder) -> String {
        match holder {
            Holder::User(principal) => principal.into(),
            Holder::Group(group) => format!("{GROUP}{group}"),
        }
    }
}

impl TryFrom<Written> for Grants {
    type Error = AccessError;

    fn try_from(written: Written) -> Result<Self, AccessError> {
        let grants: Result<Vec<Grant>, AccessError> = match &written {
            Written::Text(text) => text.split(',').map(str::parse).collect(),
            Written::List(all) => all.iter().map(|grant| grant.parse()).collect(),
        };
        let mut grants = grants?;
        grants.truncate(GRANTS_OF_ONE_MAX);
        Ok(Grants(grants))
    }
}

impl From<Grants> for Vec<Grant> {
    fn from(grants: Grants) -> Vec<Grant> {
        grants.0
    }
}

const GROUP: &str = "group:";

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(grants: &[&str]) -> Roles {
        let mut roles = Roles::default();
        for grant in grants {
            roles.add(&grant.parse().unwrap());
        }
        roles
    }

    #[test]
    fn a_role_reaches_its_class_and_what_lesser_roles_may() {
        let ann = roles(&["operator:edge", "viewer:edge", "viewer:north"]);
        for (role, class, expected) in [
            (Role::Viewer, Some("edge"), true),
            (Role::Operator, Some("edge"), true),
            (Role::Administrator, Some("edge"), false),
            (Role::Viewer, Some("north"), true),
            (Role::Designer, Some("north"), false),
            (Role::Viewer, Some("south"), false),
            (Role::Viewer, None, false),
        ] {
            assert_eq!(ann.may(role, class), expected, "{role} {class:?}");
        }
        assert!(!ann.may_everywhere(Role::Viewer) && ann.may_somewhere(Role::Operator));
        assert_eq!(ann.to_string(), "operator:edge, viewer:north");
        let all = roles(&["viewer", "designer:edge"]);
        assert!(all.may(Role::Viewer, None) && all.may(Role::Viewer, Some("south")));
        assert!(all.may(Role::Designer, Some("edge")) && !all.may(Role::Designer, Some("south")));
        assert!(!Roles::default().may_somewhere(Role::Viewer));
        assert!(Roles::administrator().may(Role::Administrator, None));
    }

    #[test]
    fn a_class_may_have_colons_in_its_name() {
        let grant: Grant = "viewer:plant:7".parse().unwrap();
        assert_eq!(grant.class.as_deref(), Some("plant:7"));
        assert_eq!(grant.to_string(), "viewer:plant:7");
        for bad in ["", "boss", "viewer:", "administrator:edge", "Viewer"] {
            assert!(bad.parse::<Grant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_configuration_gives_by_user_tenant_and_group() {
        let table: RoleTable = serde_json::from_value(serde_json::json!({
            "User:ann": "operator:edge, viewer",
            "User:acme/*": ["designer:north"],
            "group:admins": ["administrator"],
        }))
        .unwrap();
        let of = |name: &str, groups: &[&str]| -> Vec<String> {
            let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
            let principal = Principal::user(name);
            table
                .of(&principal, &groups)
                .map(Grant::to_string)
                .collect()
        };
        assert_eq!(of("ann", &[]), ["operator:edge", "viewer"]);
        assert_eq!(
            of("acme/bob", &["admins"]),
            ["designer:north", "administrator"]
        );
        assert_eq!(of("eve", &["User:ann", "others"]), [""; 0]);
        for bad in [
            serde_json::json!({"ann": "viewer"}),
            serde_json::json!({"group:": "viewer"}),
            serde_json::json!({"User:ann": "king"}),
        ] {
            assert!(serde_json::from_value::<RoleTable>(bad).is_err());
        }
    }
}
