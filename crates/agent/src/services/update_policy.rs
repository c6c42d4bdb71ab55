//! UpdatePolicyControllerService: which settings of the agent a control plane may change, as the flow
//! says.

use std::sync::Arc;

use super::ServiceKind;
use crate::processors::{Dynamic, PropertyKind, Settings, Shape};

/// Which settings may be changed.
pub(crate) struct UpdatePolicy {
    allows_all: bool,
    allowed: Vec<String>,
    disallowed: Vec<String>,
    /// Whether changes outlive the next start.
    pub(crate) persists: bool,
}

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "UpdatePolicyControllerService",
    provides: "UpdatePolicyControllerService",
    description: "Which settings UPDATE properties may change, where the service is called \
                  C2UpdatePolicy; without it those with which the agent can start.",
    properties: &[
        PropertyKind::new(
            "Allow All Properties",
            "Whether all may be changed that are not disallowed.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new(
            "Persist Updates",
            "Whether changes hold for longer than the next start.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new("Allowed Properties", "Keys that may be changed."),
        PropertyKind::new("Disallowed Properties", "Keys that may not be changed."),
    ],
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(UpdatePolicy::new(settings)?)),
};

impl UpdatePolicy {
    /// Reads the properties above.
    pub(crate) fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let keys = |name: &str| {
            let text = settings.text(name)?.unwrap_or_default();
            let keys = text.split(',').map(|key| key.trim().to_owned());
            Ok::<_, String>(keys.collect())
        };
        Ok(UpdatePolicy {
            allows_all: settings.flag("Allow All Properties")?,
            allowed: keys("Allowed Properties")?,
            disallowed: keys("Disallowed Properties")?,
            persists: settings.flag("Persist Updates")?,
        })
    }

    /// Whether `key` may be changed.
    pub(crate) fn allows(&self, key: &str) -> bool {
        let is_in = |keys: &[String]| keys.iter().any(|known| known == key);
        !is_in(&self.disallowed) && (self.allows_all || is_in(&self.allowed))
    }
}
