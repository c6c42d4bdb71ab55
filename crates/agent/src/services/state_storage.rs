//! State storages, by the names that flows give them.
//!
//! A processor's state lives in the agent's own repository and is committed with the FlowFiles
//! that it belongs to, so it is never ahead of them and never behind: there is nothing to choose.
//! The names are taken so that flows which have them load, and their settings are checked.

use std::sync::Arc;

use super::ServiceKind;
use crate::processors::{Dynamic, PropertyKind, Shape};

pub(super) const PERSISTENT: ServiceKind = storage(
    "PersistentMapStateStorage",
    "Taken as a name: processors' state is kept in the agent's repository, durable with the \
     FlowFiles it belongs to, whatever stands here.",
    &[ALWAYS_PERSIST, INTERVAL, FILE],
);

pub(super) const ROCKS_DB: ServiceKind = storage(
    "RocksDbStateStorage",
    "Taken as a name: processors' state is kept in the agent's repository, durable with the \
     FlowFiles it belongs to, whatever stands here.",
    &[ALWAYS_PERSIST, INTERVAL, DIRECTORY],
);

pub(super) const VOLATILE: ServiceKind = storage(
    "VolatileMapStateStorage",
    "Taken as a name: processors' state is kept in the agent's repository all the same; with \
     volatile repositories it lives as long as the process.",
    &[LINKED_SERVICES],
);

const fn storage(
    name: &'static str,
    description: &'static str,
    properties: &'static [PropertyKind],
) -> ServiceKind {
    ServiceKind {
        name,
        provides: "StateStorage",
        description,
        properties,
        dynamic: Dynamic::None,
        make: |_| Ok(Arc::new(())),
    }
}

const ALWAYS_PERSIST: PropertyKind = PropertyKind::new(
    "Always Persist",
    "Has no effect: state is durable with its FlowFiles.",
)
.default("false")
.shape(Shape::Flag);

const INTERVAL: PropertyKind = PropertyKind::new(
    "Auto Persistence Interval",
    "Has no effect: state is durable with its FlowFiles.",
)
.default("1 min")
.shape(Shape::Duration);

const FILE: PropertyKind =
    PropertyKind::new("File", "Has no effect: state is in the agent's repository.");

const DIRECTORY: PropertyKind = PropertyKind::new(
    "Directory",
    "Has no effect: state is in the agent's repository.",
);

const LINKED_SERVICES: PropertyKind = PropertyKind::new("Linked Services", "Has no effect.");
