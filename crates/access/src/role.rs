//! Roles: what somebody may do at the management API, and to which classes of agents.
//!
//! Each role may do what the ones before it may. A [`Grant`] gives a role for one class or for all
//! of them, or the imports of a tenant, which no role for classes gives but the administrator's, and
//! which give nothing else. [`Roles`] is what all grants of one caller come to. Without a grant nothing
//! is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use base::TenantId;
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

/// What is granted: `operator:edge`, `viewer`, `importer:acme`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Grant {
    /// A role for one class of agents or for all.
    OfClass {
        /// The role.
        role: Role,
        /// The class; all of them when absent.
        class: Option<String>,
    },
    /// A tenant's imports: to send files, to watch and steer jobs, to see what they have stored.
    Importer {
        /// The tenant; all of them when absent.
        tenant: Option<TenantId>,
    },
}

/// What somebody may do where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    everywhere: Option<Role>,
    classes: BTreeMap<String, Role>,
    imports_all: bool,
    imports_of: BTreeSet<TenantId>,
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
            let reason = "write viewer, designer, operator, administrator or importer";
            AccessError::invalid("role", reason)
        })
    }
}

impl Grant {
    /// A role for all classes.
    pub fn everywhere(role: Role) -> Self {
        Grant::OfClass { role, class: None }
    }

    /// What these words grant.
    ///
    /// # Errors
    /// When there is no such role, or it is not for a class or a tenant as it is written.
    pub fn named(
        role: &str,
        class: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<Self, AccessError> {
        let refused = |reason: &str| Err(AccessError::invalid("role", reason));
        match (role == IMPORTER, class, tenant) {
            (true, None, tenant) => Grant::importer(tenant),
            (true, Some(_), _) => refused("an importer is one for a tenant, and for no class"),
            (false, class, None) => Grant::of_class(role, class),
            (false, _, Some(_)) => refused("this role is one for a class, and for no tenant"),
        }
    }

    /// The role's word.
    pub fn role(&self) -> &'static str {
        match self {
            Grant::OfClass { role, .. } => role.as_str(),
            Grant::Importer { .. } => IMPORTER,
        }
    }

    /// The class that it is for alone.
    pub fn class(&self) -> Option<&str> {
        match self {
            Grant::OfClass { class, .. } => class.as_deref(),
            Grant::Importer { .. } => None,
        }
    }

    /// The tenant that it is for alone.
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Grant::OfClass { .. } => None,
            Grant::Importer { tenant } => tenant.as_ref(),
        }
    }

    fn importer(tenant: Option<&str>) -> Result<Self, AccessError> {
        let tenant = tenant.map(str::parse).transpose();
        let tenant = tenant.map_err(|error: base::TenantIdError| {
            AccessError::invalid("role", base::report(&error))
        })?;
        Ok(Grant::Importer { tenant })
    }

    fn of_class(role: &str, class: Option<&str>) -> Result<Self, AccessError> {
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
        Ok(Grant::OfClass { role, class })
    }
}

impl FromStr for Grant {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        let (role, of) = match text.trim().split_once(':') {
            Some((role, of)) => (role, Some(of)),
            None => (text.trim(), None),
        };
        match role == IMPORTER {
            true => Grant::importer(of),
            false => Grant::of_class(role, of),
        }
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
        f.write_str(self.role())?;
        match self.class().or(self.tenant().map(TenantId::as_str)) {
            Some(of) => write!(f, ":{of}"),
            None => Ok(()),
        }
    }
}

impl Roles {
    /// Everything.
    pub fn administrator() -> Self {
        Roles {
            everywhere: Some(Role::Administrator),
            ..Roles::default()
        }
    }

    /// Adds what a grant gives.
    pub fn add(&mut self, grant: &Grant) {
        match grant {
            Grant::OfClass { role, class: None } => {
                self.everywhere = self.everywhere.max(Some(*role));
            }
            Grant::OfClass {
                role,
                class: Some(class),
            } => {
                let of_class = self.classes.entry(class.clone()).or_insert(*role);
                *of_class = (*of_class).max(*role);
            }
            Grant::Importer { tenant: None } => self.imports_all = true,
            Grant::Importer {
                tenant: Some(tenant),
            } => {
                self.imports_of.insert(tenant.clone());
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

    /// Whether they give a tenant's imports, or those of all where none is named.
    pub fn may_import(&self, tenant: Option<&TenantId>) -> bool {
        self.imports_all || tenant.is_some_and(|tenant| self.imports_of.contains(tenant))
    }

    /// Whether they give some tenant's imports.
    pub fn may_import_somewhere(&self) -> bool {
        self.imports_all || !self.imports_of.is_empty()
    }

    /// Those for single classes alone.
    pub fn of_classes(&self) -> Roles {
        Roles {
            classes: self.classes.clone(),
            ..Roles::default()
        }
    }

    /// Whether they reach nothing.
    pub fn is_empty(&self) -> bool {
        self.everywhere.is_none() && self.classes.is_empty() && !self.may_import_somewhere()
    }

    /// The classes with roles of their own, in order.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.classes.keys().map(String::as_str)
    }

    /// As grants, the one for all classes first.
    pub fn grants(&self) -> Vec<Grant> {
        let everywhere = self.everywhere.map(Grant::everywhere);
        let of_classes = self.classes.iter().map(|(class, role)| Grant::OfClass {
            role: *role,
            class: Some(class.clone()),
        });
        let imports_all = self.imports_all.then_some(None);
        let imports_of = self.imports_of.iter().cloned().map(Some);
        let imports = imports_all.into_iter().chain(imports_of);
        let imports = imports.map(|tenant| Grant::Importer { tenant });
        everywhere
            .into_iter()
            .chain(of_classes)
            .chain(imports)
            .collect()
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
/// The word of the role for a tenant's imports.
const IMPORTER: &str = "importer";

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
        assert_eq!(grant.class(), Some("plant:7"));
        assert_eq!(grant.to_string(), "viewer:plant:7");
        for bad in [
            "",
            "boss",
            "viewer:",
            "administrator:edge",
            "Viewer",
            "importer:",
            "importer:Not/One",
        ] {
            assert!(bad.parse::<Grant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_importer_has_a_tenants_imports_and_no_class() {
        let [acme, beta] = ["acme", "beta"].map(|name| name.parse::<TenantId>().unwrap());
        let ann = roles(&["importer:acme", "viewer:edge"]);
        assert!(ann.may_import(Some(&acme)) && ann.may_import_somewhere());
        assert!(!ann.may_import(Some(&beta)) && !ann.may_import(None));
        assert!(!ann.may_somewhere(Role::Designer) && !ann.may_everywhere(Role::Viewer));
        assert!(!ann.may(Role::Viewer, Some("acme")));
        assert_eq!(ann.to_string(), "viewer:edge, importer:acme");
        assert_eq!(ann.of_classes().to_string(), "viewer:edge");
        let all = roles(&["importer"]);
        assert!(all.may_import(None) && all.may_import(Some(&beta)) && !all.is_empty());
        assert!(!all.may_somewhere(Role::Viewer) && all.of_classes().is_empty());
        // No role for classes gives imports.
        assert!(!roles(&["operator", "operator:acme"]).may_import(Some(&acme)));
        let named = |class, tenant| Grant::named("importer", class, tenant);
        assert_eq!(
            named(None, Some("acme")).unwrap().to_string(),
            "importer:acme"
        );
        assert!(named(Some("acme"), None).is_err());
        assert!(Grant::named("viewer", None, Some("acme")).is_err());
    }

    #[test]
    fn the_configuration_gives_by_user_tenant_and_group() {
        let table: RoleTable = serde_json::from_value(serde_json::json!({
            "User:ann": "operator:edge, viewer",
            "User:acme/*": ["designer:north"],
            "group:admins": ["administrator"],
            "group:librarians": ["importer:acme"],
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
        assert_eq!(of("acme/eve", &["librarians"])[1..], ["importer:acme"]);
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
