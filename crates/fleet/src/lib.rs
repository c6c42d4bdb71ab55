//! C2 server: agents call in, the fleet answers with what they should do.
//!
//! Agents and classes appear by themselves with their first heartbeat. A flow is published to a
//! class; each of its agents gets it by one UPDATE configuration operation, which is durable
//! before it is handed out and keeps its id however often it must be sent again.
//!
//! A heartbeat that changes nothing touches memory only; what must last is written behind, one
//! transaction for all agents that spoke since the last one. [`registry`] and below decide
//! without IO and take `now`; [`Fleet`] moves the bytes around them.
//!
//! Any number of nodes share a database and nothing else, and an agent may reach any of them at
//! any call: `store` says how writers queue and what a node reads of the others' changes (`feed`),
//! `registry::join` how two views of one operation become one and why one intent has one id,
//! `lease` what one node does for all.
//!
//! Leaves out running flows (agents do), and says nothing of the transport: `http::routes` is
//! mounted by the binary.

mod agent;
mod asking;
mod audit;
mod bundle;
mod capability;
mod classes;
mod config;
mod delivery;
mod due;
mod error;
mod events;
mod expiry;
mod feed;
mod files;
mod fleet;
mod flow;
mod forward;
mod giving;
mod history;
pub mod http;
mod kept;
mod lease;
mod limits;
mod listing;
mod manifest;
mod manifests;
mod newest;
mod observe;
mod operation;
mod operators;
mod parameter;
mod presence;
mod progress;
mod publishing;
mod registry;
mod removing;
mod request;
mod resolving;
mod resource;
mod results;
mod rights;
mod rivalry;
mod rollout;
mod schemas;
mod seal;
mod shape;
mod showing;
mod sighting;
mod store;
mod summary;
mod tables;
mod unused;
mod upkeep;
mod views;
mod writer;

#[cfg(test)]
mod nodes_tests;

pub use config::{CertificateBinding, FleetConfig, MetricsConfig, SecretUrl};
pub use error::FleetError;
pub use fleet::{Fleet, OwnCertificates};
pub use flow::FlowShape;
pub use flow::convert::{Bundles, Converted, convert};
pub use forward::{ForwardConfig, Message, Topics, TopicsError};
pub use operation::OperationStatus;
pub use registry::ManifestRule;
pub use resolving::{ClassManifestView, SeenManifestView};
pub use resource::{Resource, ResourceKind};
pub use views::{
    AgentDetail, AgentView, AgentsPage, AskedView, BundleView, Checked, ClassResourcesView,
    ClassView, FlowView, OperationView, Published, RefusedView, ResourceView,
};
