//! Remote process groups: each of their ports becomes a processor of its own.
//!
//! # What the site-to-site processors get
//!
//! | in the flow | kind in the table of processors | input | relationships |
//! | --- | --- | --- | --- |
//! | an input port of the remote (we send to it) | [`INPUT_PORT`] | required | none |
//! | an output port of the remote (we receive from it) | [`OUTPUT_PORT`] | forbidden | one: `success` |
//!
//! Properties are those of [`properties`], by the names below; what the text leaves out is not
//! set, so the kinds' defaults hold (`Timeout` 30 sec, `Transport Protocol` RAW, `Use
//! Compression` false). The processor's id is the port's id, its `Port ID` what the remote knows
//! the port by (a property `Port UUID`, JSON's `targetId`, else the id), its yield period the
//! group's, its concurrent tasks the port's, and it is EVENT_DRIVEN if it takes input,
//! TIMER_DRIVEN with a period of zero if it is a source. Connections from an output port need not
//! name a relationship.

use std::time::Duration;

use super::components::{DURATION, properties as written};
use super::node::{Node, scalar};
use super::read::{RawProcessor, Reader};
use crate::bulletins::Level;
use crate::limits::TASKS_MAX;
use crate::units;

/// The kind that sends to an input port of a remote NiFi or agent.
pub const INPUT_PORT: &str = "RemoteProcessGroupInputPort";

/// The kind that receives from an output port of a remote NiFi or agent.
pub const OUTPUT_PORT: &str = "RemoteProcessGroupOutputPort";

/// Names of the properties that a port has.
pub mod properties {
    /// Addresses of the remote with commas between them: `http://nifi:8080/nifi`.
    pub const URL: &str = "URL";
    /// What the remote knows the port by.
    pub const PORT_ID: &str = "Port ID";
    /// The port's name.
    pub const PORT_NAME: &str = "Port Name";
    /// `RAW` or `HTTP`.
    pub const TRANSPORT_PROTOCOL: &str = "Transport Protocol";
    /// A duration.
    pub const TIMEOUT: &str = "Timeout";
    /// Name of the network interface to go out by.
    pub const LOCAL_INTERFACE: &str = "Local Network Interface";
    /// Host of an HTTP proxy.
    pub const PROXY_HOST: &str = "Proxy Host";
    /// Port of the proxy.
    pub const PROXY_PORT: &str = "Proxy Port";
    /// User at the proxy.
    pub const PROXY_USER: &str = "Proxy User";
    /// The user's password; sensitive.
    pub const PROXY_PASSWORD: &str = "Proxy Password";
    /// `true` or `false`.
    pub const USE_COMPRESSION: &str = "Use Compression";
    /// FlowFiles of one transaction.
    pub const BATCH_COUNT: &str = "Batch Count";
    /// Bytes of one transaction, a size.
    pub const BATCH_SIZE: &str = "Batch Size";
    /// Longest time of one transaction, a duration.
    pub const BATCH_DURATION: &str = "Batch Duration";
    /// Host of the remote's raw socket, where the port says it itself.
    pub const HOST_NAME: &str = "Host Name";
    /// Port of the remote's raw socket, where the port says it itself.
    pub const PORT: &str = "Port";
    /// The TLS context, a controller service.
    pub const SSL_CONTEXT_SERVICE: &str = "SSL Context Service";
}

impl Reader<'_> {
    /// Makes a processor of each port of a remote process group.
    pub(super) fn remote_group(&mut self, node: &Node<'_>, group_id: &str) {
        let keys = self.keys;
        if node.map(self.problems).is_none() {
            return;
        }
        let settings: Vec<&str> = keys.remote.settings.iter().map(|(key, _)| *key).collect();
        self.only(
            node,
            &[
                keys.id,
                keys.name,
                keys.remote.url,
                keys.yield_period,
                keys.input_ports,
                keys.output_ports,
                &settings,
                keys.idle.port,
            ],
        );
        let problems = &mut *self.problems;
        let urls = node.texts(keys.remote.url, problems).join(",");
        let mut shared = vec![(properties::URL.to_owned(), urls)];
        for (key, property) in keys.remote.settings {
            if let Some(value) = node.text(&[key], problems).filter(|v| !v.is_empty()) {
                shared.push(((*property).to_owned(), value));
            }
        }
        let rest = Duration::from_secs(1);
        let yield_period =
            node.parsed(keys.yield_period, rest, DURATION, units::duration, problems);
        for (list, class) in [
            (keys.input_ports, INPUT_PORT),
            (keys.output_ports, OUTPUT_PORT),
        ] {
            for port in node.list(list, self.problems) {
                if let Some(mut port) = self.remote_port(&port, class, group_id, shared.clone()) {
                    port.yield_period = yield_period;
                    self.raw.processors.push(port);
                }
            }
        }
    }

    fn remote_port(
        &mut self,
        node: &Node<'_>,
        class: &str,
        group_id: &str,
        mut settings: Vec<(String, String)>,
    ) -> Option<RawProcessor> {
        let keys = self.keys;
        node.map(self.problems)?;
        self.only(
            node,
            &[
                keys.id,
                keys.name,
                keys.tasks,
                keys.properties,
                keys.remote.port_target,
                keys.remote.use_compression,
                keys.remote.batch,
                keys.idle.port,
            ],
        );
        let id = self.id(node, group_id, "port");
        let problems = &mut *self.problems;
        let name = node.text(keys.name, problems).unwrap_or_else(|| id.clone());
        let target = node.text(keys.remote.port_target, problems);
        settings.push((
            properties::PORT_ID.to_owned(),
            target
                .filter(|id| !id.is_empty())
                .unwrap_or_else(|| id.clone()),
        ));
        settings.push((properties::PORT_NAME.to_owned(), name.clone()));
        if let Some(value) = node.text(keys.remote.use_compression, problems) {
            let value = value.to_ascii_lowercase();
            settings.push((properties::USE_COMPRESSION.to_owned(), value));
        }
        settings.extend(batch(node, keys.remote.batch, problems));
        for (mut name, value) in written(node, keys, problems) {
            if name == "Port UUID" {
                properties::PORT_ID.clone_into(&mut name);
            }
            settings.retain(|(known, _)| *known != name);
            settings.push((name, value));
        }
        let is_source = class == OUTPUT_PORT;
        let strategy = if is_source {
            "TIMER_DRIVEN"
        } else {
            "EVENT_DRIVEN"
        };
        Some(RawProcessor {
            other_id: node.text(&["instanceIdentifier"], problems),
            name,
            path: node.path.clone(),
            group_id: group_id.to_owned(),
            class: class.to_owned(),
            strategy: strategy.to_owned(),
            period: is_source.then(|| "0 sec".to_owned()),
            penalization: Duration::from_secs(30),
            yield_period: Duration::ZERO,
            run_duration: Duration::ZERO,
            tasks_max: node.parsed(
                keys.tasks,
                1,
                super::components::TASKS,
                |text| text.parse().ok().filter(|n| (1..=TASKS_MAX).contains(n)),
                problems,
            ),
            bulletin_level: Level::Warning,
            auto_terminated: Vec::new(),
            properties: settings,
            id,
        })
    }
}

/// `batch size: {count, size, duration}`.
fn batch(node: &Node<'_>, keys: &[&str], problems: &mut super::Problems) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let Some(batch) = node.find(keys) else {
        return settings;
    };
    let Some(map) = batch.map(problems) else {
        return settings;
    };
    for (key, value) in map {
        let (key, value) = (scalar(key).unwrap_or_default(), scalar(value));
        let property = match key.as_str() {
            "count" => properties::BATCH_COUNT,
            "size" => properties::BATCH_SIZE,
            "duration" => properties::BATCH_DURATION,
            _ => {
                problems.add(&batch.join(&key), "is no key that belongs here");
                continue;
            }
        };
        // NiFi writes 0 and empty texts for what was never set.
        if let Some(value) = value.filter(|value| !value.is_empty() && value != "0") {
            settings.push((property.to_owned(), value));
        }
    }
    settings
}
