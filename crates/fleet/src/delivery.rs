//! Flows in the shape that each agent reads, whatever shape they were published in.
//!
//! | agent | reads |
//! | --- | --- |
//! | MiNiFi Java 2 | NiFi's flow JSON |
//! | MiNiFi Java 1 | MiNiFi's YAML |
//! | MiNiFi C++ | both; older builds, whose `Accept` names no JSON, YAML alone |
//!
//! Others get a flow as it was published. What the other shape cannot tell is a problem of the flow
//! when it is checked and published; a flow that was published all the same goes out without it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use c2::AgentManifest;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::FlowShape;
use crate::flow::check::Problem;
use crate::flow::convert::{Bundles, convert};
use crate::manifest::hex;
use crate::registry::Registry;

impl Fleet {
    /// Whether a flow is for this agent: one of its class, or one that it was told to fetch. What it says
    /// that it runs is no reason: it may say anything.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn may_fetch_flow(&self, agent: &str, flow: &str) -> Result<bool, FleetError> {
        let inner = &self.inner;
        if inner.registry.lock().is_flow_for(agent, flow) {
            return Ok(true);
        }
        if !inner.store.is_shared() {
            return Ok(false);
        }
        // Another node may have told the agent a moment ago.
        inner.catch_up().await?;
        Ok(inner.registry.lock().is_flow_for(agent, flow))
    }

    /// The text of a flow in the shape that this agent reads, with that shape and its digest;
    /// `accept` is the header of its request.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn shaped_text(
        &self,
        id: &str,
        agent: Option<&str>,
        accept: Option<&str>,
    ) -> Result<(Bytes, FlowShape, String), FleetError> {
        let (text, shape, sha256) = self.flow_text(id).await?;
        let found = agent.and_then(|agent| {
            let registry = self.inner.registry.lock();
            let agent = registry.agents.get(agent)?;
            Some((registry.head_of(agent)?, agent.manifest.clone()?))
        });
        let Some((head, manifest)) = found else {
            return Ok((text, shape, sha256));
        };
        let Some(wanted) = wanted_shape(&head, accept, shape) else {
            return Ok((text, shape, sha256));
        };
        let key: Arc<str> = Arc::from(format!("{id} {wanted} {manifest}"));
        let made = match self.inner.kept_text(&key) {
            Some(made) => made,
            None => {
                let made = self.converted(text, wanted, Some(&manifest)).await?.0;
                self.inner.keep_text(key, made.clone());
                made
            }
        };
        let sha256 = hex(&Sha256::digest(&made));
        Ok((made, wanted, sha256))
    }

    /// What the shapes that the class's agents read cannot tell of a flow.
    ///
    /// # Errors
    /// [`FleetError::BadFlow`], [`FleetError::Store`].
    pub(crate) async fn unconvertible(
        &self,
        class: &str,
        text: &Bytes,
        shape: FlowShape,
    ) -> Result<Vec<Problem>, FleetError> {
        let mut wanted = BTreeSet::new();
        self.inner.each_agent_of(class, |registry, agent| {
            if let Some(head) = registry.head_of(agent)
                && let Some(other) = wanted_shape(&head, None, shape)
            {
                wanted.insert(other.as_str());
            }
        });
        let mut problems = Vec::new();
        for other in wanted.into_iter().filter_map(|word| word.parse().ok()) {
            let (_, left_out) = self.converted(text.clone(), other, None).await?;
            problems.extend(left_out.into_iter().map(|problem| Problem {
                reason: format!("for agents that read {other}: {}", problem.reason),
                ..problem
            }));
        }
        Ok(problems)
    }

    async fn converted(
        &self,
        text: Bytes,
        to: FlowShape,
        manifest: Option<&str>,
    ) -> Result<(Bytes, Vec<Problem>), FleetError> {
        let manifest = match manifest {
            Some(hash) if to == FlowShape::Json => Some(self.manifest_text(hash).await?),
            _ => None,
        };
        let work = move || {
            let manifest = manifest.and_then(|text| serde_json::from_slice::<Value>(&text).ok());
            let bundles = manifest.map_or_else(Bundles::default, |manifest| Bundles::of(&manifest));
            convert(&text, to, &bundles)
        };
        // A manifest has up to a megabyte, and so may have a flow.
        let made = tokio::task::spawn_blocking(work).await;
        let made = made.map_err(|error| FleetError::Broken(error.to_string()))??;
        Ok((made.text, made.left_out))
    }
}

impl Registry {
    fn is_flow_for(&self, agent: &str, flow: &str) -> bool {
        let Some(agent) = self.agents.get(agent) else {
            return false;
        };
        let class = self.flows.get(flow).map(|flow| &flow.class);
        (class.is_some() && class == agent.class.as_ref())
            || agent
                .operations
                .iter()
                .any(|op| op.flow.as_deref() == Some(flow))
    }
}

/// The shape that this agent reads, unless it reads the one that there is.
fn wanted_shape(
    head: &AgentManifest,
    accept: Option<&str>,
    published: FlowShape,
) -> Option<FlowShape> {
    let wanted = match head.agent_type.as_deref()? {
        "minifi-java" => match major(head.agent_version()?)? {
            0 | 1 => FlowShape::Yaml,
            // One in JSON may still have YAML's words.
            _ => return Some(FlowShape::Json),
        },
        "cpp" => {
            let accept = accept?;
            let takes = |kind: &str| accept.contains(kind);
            let is_old = (takes("yml") || takes("yaml")) && !takes("json") && !takes("*/*");
            is_old.then_some(FlowShape::Yaml)?
        }
        _ => return None,
    };
    (wanted != published).then_some(wanted)
}

fn major(version: &str) -> Option<u32> {
    let number = version.split(['.', '-']).next()?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_agent_gets_what_it_reads() {
        use FlowShape::{Json, Yaml};
        let old = Some("text/yml, application/vnd.minifi-c2+yaml;version=2");
        let new = Some("application/json, text/yml, application/vnd.minifi-c2+yaml;version=2");
        for (kind, version, accept, published, wanted) in [
            (
                "minifi-java",
                "2.3.0",
                Some("application/json"),
                Yaml,
                Some(Json),
            ),
            ("minifi-java", "2.24.08.0-19", None, Yaml, Some(Json)),
            // Its default header is no word about flows.
            (
                "minifi-java",
                "1.18.0",
                Some("application/json"),
                Json,
                Some(Yaml),
            ),
            ("minifi-java", "1.18.0", None, Yaml, None),
            ("minifi-java", "main", None, Yaml, None),
            ("cpp", "1.26.02", new, Json, None),
            ("cpp", "0.15.0", old, Json, Some(Yaml)),
            ("cpp", "0.15.0", old, Yaml, None),
            ("cpp", "1.26.02", None, Json, None),
            ("thalweg", "0.1.0", None, Json, None),
            ("nifi", "1.18.0", Some("application/json"), Yaml, None),
        ] {
            let head = AgentManifest {
                agent_type: Some(kind.to_owned()),
                version: Some(version.to_owned()),
                ..AgentManifest::default()
            };
            let found = wanted_shape(&head, accept, published);
            assert_eq!(found, wanted, "{kind} {version} {accept:?} {published}");
        }
    }
}
