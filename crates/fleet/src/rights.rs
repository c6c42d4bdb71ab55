//! What the caller of the management API may see and do, by the classes of their roles.

use std::sync::Arc;

use access::{Granted, Role};

use crate::error::FleetError;

/// The roles of whoever calls; everything where nobody is asked who they are.
#[derive(Clone, Debug, Default)]
pub struct Rights(Option<Arc<Granted>>);

impl Rights {
    /// Of a caller who was asked.
    pub fn of(granted: Option<Arc<Granted>>) -> Rights {
        Rights(granted)
    }

    /// Whether a role reaches this class; agents without one take a role for all classes.
    pub fn may(&self, role: Role, class: Option<&str>) -> bool {
        let granted = self.0.as_ref();
        granted.is_none_or(|granted| granted.roles.may(role, class))
    }

    /// Whether what is in this class may be seen.
    pub fn sees(&self, class: Option<&str>) -> bool {
        self.may(Role::Viewer, class)
    }

    /// Whether everything may be seen.
    pub fn sees_all(&self) -> bool {
        let granted = self.0.as_ref();
        granted.is_none_or(|granted| granted.roles.may_everywhere(Role::Viewer))
    }

    /// Whether the role reaches some class.
    pub fn may_somewhere(&self, role: Role) -> bool {
        let granted = self.0.as_ref();
        granted.is_none_or(|granted| granted.roles.may_somewhere(role))
    }

    /// Whether a resource of these classes may be seen: one that no class has yet is for those who
    /// design.
    pub fn sees_resource(&self, classes: &[String]) -> bool {
        let is_loose = classes.is_empty() && self.may_somewhere(Role::Designer);
        is_loose || classes.iter().any(|class| self.sees(Some(class)))
    }

    /// The only classes that may be seen; none when all may.
    pub fn only_classes(&self) -> Option<Vec<String>> {
        let granted = self.0.as_ref().filter(|_| !self.sees_all())?;
        Some(granted.roles.classes().map(str::to_owned).collect())
    }

    /// Refuses whoever has not the role for a class.
    ///
    /// # Errors
    /// [`FleetError::NotAllowed`].
    pub fn need(&self, role: Role, class: Option<&str>) -> Result<(), FleetError> {
        match self.may(role, class) {
            true => Ok(()),
            false => Err(self.refusal(role, class)),
        }
    }

    /// Refuses whoever has the role for no class at all.
    ///
    /// # Errors
    /// [`FleetError::NotAllowed`].
    pub fn need_somewhere(&self, role: Role) -> Result<(), FleetError> {
        match self.may_somewhere(role) {
            true => Ok(()),
            false => Err(FleetError::NotAllowed {
                role,
                place: "some class".to_owned(),
                roles: self.told(),
            }),
        }
    }

    /// Why somebody may not do something with a class, or with all where none is named.
    pub fn refusal(&self, role: Role, class: Option<&str>) -> FleetError {
        FleetError::NotAllowed {
            role,
            place: match class {
                Some(class) => format!("the class '{class}'"),
                None => "all classes".to_owned(),
            },
            roles: self.told(),
        }
    }

    /// What somebody is told who looks for what they may not see, or what is not there.
    pub fn unseen(&self, what: &'static str, name: &str) -> FleetError {
        FleetError::Unseen {
            what,
            name: name.to_owned(),
            roles: self.told(),
        }
    }

    fn told(&self) -> String {
        let granted = self.0.as_ref();
        granted
            .map(|granted| granted.roles.to_string())
            .unwrap_or_default()
    }
}
