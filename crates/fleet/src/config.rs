//! The fleet's part of the configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};
pub use sql::SecretUrl;

use crate::events::Level;
use crate::forward::ForwardConfig;
use crate::operation::Policy;
use crate::registry::ManifestRule;

/// Keys under `fleet`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetConfig {
    /// Where agents and operators call.
    pub listen: String,
    /// The database that all nodes of one fleet share, such as
    /// `postgres://user:password@host/fleet` or `mysql://…`; by default a SQLite file.
    pub database: Option<SecretUrl>,
    /// The address under which agents reach this fleet, such as `https://fleet.example.org`; by
    /// default the one that the agent called.
    pub public_url: Option<String>,
    /// How often agents are expected to call.
    pub heartbeat_interval: HumanDuration,
    /// The same for single classes.
    pub class_heartbeat_intervals: BTreeMap<String, HumanDuration>,
    /// Intervals without a call after which an agent counts as missing.
    pub missing_after_intervals: u32,
    /// How long an agent may be silent before it is removed with its operations; 0: for ever.
    pub agent_cleanup_after: HumanDuration,
    /// The same for single classes.
    pub class_agent_cleanup_after: BTreeMap<String, HumanDuration>,
    /// How long events are kept, by level (`debug`, `info`, `warn`, `error`); 0: not at all.
    pub events_max_age: BTreeMap<String, HumanDuration>,
    /// How long the audit is kept; 0: as long as there is room.
    pub audit_max_age: HumanDuration,
    /// Where alerts are sent by POST, such as `https://chat.example.org/hooks/fleet`.
    pub alerts_webhook: Option<SecretUrl>,
    /// How long what agents say may stay in memory before it is written.
    pub write_behind: HumanDuration,
    /// How long an operation that was handed out may stay without any answer before it is sent
    /// again under the same id; longer than an agent takes to swap its flow (up to 60 s).
    pub resend_after: HumanDuration,
    /// How often an operation is sent in vain before its agent's flow is shown as failed; it is
    /// tried on all the same, each time after twice the wait.
    pub failed_after_attempts: u32,
    /// How long an operation may wait for its agent to call.
    pub queued_timeout: HumanDuration,
    /// How long an agent may take over an operation.
    pub deployed_timeout: HumanDuration,
    /// How long an agent may take to describe itself before another one of its build is asked.
    pub describe_timeout: HumanDuration,
    /// The file with the key of what is sealed in the database; by default one in the data folder,
    /// made at the first start. Nodes on one database need the same.
    pub key_file: Option<PathBuf>,
    /// Which manifest stands for a class whose agents have several, where the class has no way of
    /// its own.
    pub manifest_resolution: ManifestRule,
    /// Whether a class appears by itself when an agent names it; otherwise operators make classes, and
    /// agents of others are parked.
    pub classes_appear: bool,
    /// What a client's certificate is held to.
    pub certificate_binding: CertificateBinding,
    /// How long before its end a certificate, an agent's or our own, is told of; 0: not at all.
    pub certificate_warning: HumanDuration,
    /// Bytes of one resource.
    pub resource_bytes_max: ByteSize,
    /// Bytes of one debug bundle.
    pub bundle_bytes_max: ByteSize,
    /// How long debug bundles are kept, and how many.
    pub bundle_age_max: HumanDuration,
    /// See `bundle_age_max`.
    pub bundles_max: u32,
    /// Which messages of agents go to topics.
    pub forward: ForwardConfig,
    /// How much the metrics tell.
    pub metrics: MetricsConfig,
    /// The port speaks TLS: whoever serves it says so, for the URLs that agents are told.
    #[serde(skip)]
    pub is_tls: bool,
}

/// How much the metrics tell, keys under `fleet.metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Most classes told one by one.
    pub classes_max: usize,
    /// Most agents told one by one, with their own numbers.
    pub agents_max: usize,
    /// Most values of agents' own.
    pub agent_values_max: usize,
}

/// What a client's certificate is held to, where one is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateBinding {
    /// Nothing: whoever has one may speak for any agent.
    Off,
    /// Its common name is the agent's identifier.
    Agent,
    /// That, and one of its organizational units is the agent's class.
    AgentAndClass,
}

impl Default for MetricsConfig {
    fn default() -> MetricsConfig {
        MetricsConfig {
            classes_max: 20,
            agents_max: 100,
            agent_values_max: 10_000,
        }
    }
}

impl Default for FleetConfig {
    fn default() -> FleetConfig {
        let seconds = |n| HumanDuration(Duration::from_secs(n));
        FleetConfig {
            listen: "127.0.0.1:10090".to_owned(),
            database: None,
            public_url: None,
            heartbeat_interval: seconds(30),
            class_heartbeat_intervals: BTreeMap::new(),
            missing_after_intervals: 3,
            agent_cleanup_after: seconds(0),
            events_max_age: Level::ALL
                .map(|level| (level.as_str().to_owned(), HumanDuration(level.age())))
                .into(),
            audit_max_age: seconds(90 * 24 * 3600),
            alerts_webhook: None,
            class_agent_cleanup_after: BTreeMap::new(),
            write_behind: seconds(1),
            resend_after: seconds(90),
            failed_after_attempts: 5,
            queued_timeout: seconds(300),
            deployed_timeout: seconds(300),
            describe_timeout: seconds(90),
            key_file: None,
            manifest_resolution: ManifestRule::Most,
            classes_appear: true,
            certificate_binding: CertificateBinding::Agent,
            certificate_warning: seconds(30 * 24 * 3600),
            resource_bytes_max: ByteSize(1 << 30),
            bundle_bytes_max: ByteSize(64 << 20),
            bundle_age_max: seconds(24 * 3600),
            bundles_max: 100,
            forward: ForwardConfig::default(),
            metrics: MetricsConfig::default(),
            is_tls: false,
        }
    }
}

impl FleetConfig {
    /// The waits of operations.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            resend_after: self.resend_after.0,
            failed_after_attempts: self.failed_after_attempts.max(1),
            queued_timeout: self.queued_timeout.0,
            deployed_timeout: self.deployed_timeout.0,
            describe_timeout: self.describe_timeout.0,
            certificate_warning: self.certificate_warning.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (address, shown) in [
            ("postgres://ada:s3cret@db/fleet", "postgres://ada@db/fleet"),
            (
                "https://chat.example.org/hooks/s3cret",
                "https://chat.example.org/…",
            ),
        ] {
            let config = FleetConfig {
                database: Some(address.to_owned().into()),
                ..FleetConfig::default()
            };
            let text = format!("{config:?} {}", serde_json::to_string(&config).unwrap());
            assert!(text.contains(shown) && !text.contains("s3cret"), "{text}");
        }
    }
}
