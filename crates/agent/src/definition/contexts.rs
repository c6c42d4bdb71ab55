//! Reads parameter contexts, parameter providers and provenance reporting.

use super::node::{Node, scalar};
use super::read::Reader;
use crate::parameters::{Context, Parameter};
use crate::units;

impl Reader<'_> {
    pub(super) fn contexts(&mut self, root: &Node<'_>) {
        let keys = &self.keys.parameters;
        // NiFi's registry keeps contexts in a map by name.
        let by_name = root
            .find(keys.contexts)
            .filter(|node| node.value.is_mapping());
        match by_name {
            Some(map) => {
                for (name, value) in map.value.as_mapping().into_iter().flatten() {
                    let path = map.join(&scalar(name).unwrap_or_default());
                    self.context(&Node { value, path });
                }
            }
            None => {
                for node in root.list(keys.contexts, self.problems) {
                    self.context(&node);
                }
            }
        }
        if root
            .find(keys.providers)
            .is_some_and(|node| node.value.as_mapping().is_some_and(|map| map.is_empty()))
        {
            return;
        }
        for node in root.list(keys.providers, self.problems) {
            if let Some(provider) = self.service(&node, "", "provider") {
                self.raw.providers.push(provider);
            }
        }
    }

    fn context(&mut self, node: &Node<'_>) {
        let keys = &self.keys.parameters;
        if node.map(self.problems).is_none() {
            return;
        }
        self.only(
            node,
            &[
                self.keys.id,
                self.keys.name,
                keys.parameters,
                keys.inherited,
                keys.provider,
                self.keys.idle.port,
                &["parameterGroupName", "synchronized"],
            ],
        );
        let name = node.text(self.keys.name, self.problems);
        if name.is_none() {
            self.problems.add(&node.join("name"), "is missing");
        }
        let parameters = node.list(keys.parameters, self.problems);
        let parameters = parameters.iter().map(|node| self.parameter(node)).collect();
        let context = Context {
            name: name.unwrap_or_default(),
            path: node.path.clone(),
            parameters,
            inherited: node.texts(keys.inherited, self.problems),
            provider: node.text(keys.provider, self.problems).unwrap_or_default(),
        };
        self.raw.contexts.push(context);
    }

    fn parameter(&mut self, node: &Node<'_>) -> Parameter {
        let known = [
            "name",
            "description",
            "sensitive",
            "provided",
            "value",
            "referencedAssets",
            "valueRemoved",
            "referencingComponents",
        ];
        self.only(node, &[&known]);
        let problems = &mut *self.problems;
        let name = node.text(&["name"], problems);
        if name.is_none() {
            problems.add(&node.join("name"), "is missing");
        }
        Parameter {
            name: name.unwrap_or_default(),
            value: node.text(&["value"], problems),
            is_sensitive: node.parsed(&["sensitive"], false, FLAG, units::flag, problems),
            is_provided: node.parsed(&["provided"], false, FLAG, units::flag, problems),
        }
    }

    /// Provenance reporting is read, and refused where it would report.
    pub(super) fn reporting(&mut self, root: &Node<'_>) {
        let keys = &self.keys.reporting;
        let Some(node) = root.find(keys.section) else {
            return;
        };
        if node.value.as_str().is_some_and(str::is_empty) || node.map(self.problems).is_none() {
            return;
        }
        self.only(
            &node,
            &[
                self.keys.strategy,
                self.keys.period,
                keys.port,
                keys.url,
                keys.batch,
                self.keys.name,
                self.keys.id,
                self.keys.idle.port,
            ],
        );
        let port = node.text(keys.port, self.problems);
        if port.is_some_and(|port| !port.is_empty()) {
            self.problems.add(
                &node.join(keys.port[0]),
                "provenance is not reported to a port; remove it, and query events by \
                 `thalweg-agent provenance`",
            );
        }
    }
}

const FLAG: &str = "true or false";
