//! Flows on their way into the registry: checked against what the class's agents have, freed of
//! secrets, published; published again; compared.

use std::sync::Arc;

use bytes::Bytes;
use metrics::counter;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::flow::check::{Catalog, Problem};
use crate::flow::diff::{Difference, differences};
use crate::flow::{self, FlowShape, parameters};
use crate::manifest::hex;
use crate::registry::{self, Flow};
use crate::views::{Checked, Published};

impl Fleet {
    /// Publishes a flow to a class; durable when this returns. A new class is made.
    ///
    /// # Errors
    /// [`FleetError::BadFlow`], [`FleetError::UnfitFlow`] when the manifest of the class's agents says
    /// otherwise; [`FleetError::Full`], [`FleetError::Store`].
    pub async fn publish(
        &self,
        class: &str,
        text: Bytes,
        deploys: bool,
    ) -> Result<Published, FleetError> {
        self.publish_checked(class, text, false, deploys).await
    }

    /// The same; `is_forced` publishes what the manifest speaks against.
    pub(crate) async fn publish_checked(
        &self,
        class: &str,
        text: Bytes,
        is_forced: bool,
        deploys: bool,
    ) -> Result<Published, FleetError> {
        let checked = self.check_flow(class, &text).await?;
        if !is_forced && !checked.problems.is_empty() {
            return Err(FleetError::UnfitFlow(checked.problems));
        }
        let (shape, mut parsed) = flow::read(&text)?;
        let secrets = parameters::take_secrets(&mut parsed);
        let text = match secrets.is_empty() {
            true => text,
            false => flow::write(shape, &parsed)?,
        };
        let _one = self.inner.publishing.lock().await;
        let id: Arc<str> = Arc::from(Uuid::new_v4().to_string());
        self.inner.keep_secrets(&id, &secrets).await?;
        self.enter(class, id, shape, text, (deploys, checked.manifest_hash))
            .await
    }

    /// Publishes an old version again, as a new one of its class.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Full`], [`FleetError::Store`].
    pub(crate) async fn publish_again(&self, old: &str) -> Result<Published, FleetError> {
        let (text, shape, _) = self.flow_text(old).await?;
        let class = self.class_of_flow(old)?;
        let _one = self.inner.publishing.lock().await;
        let id: Arc<str> = Arc::from(Uuid::new_v4().to_string());
        self.inner.copy_parameters(old, &id).await?;
        self.enter(&class, id, shape, text, (true, None)).await
    }

    /// What a flow would meet in a class, without publishing it.
    ///
    /// # Errors
    /// [`FleetError::BadFlow`], [`FleetError::BadName`], [`FleetError::Store`].
    pub(crate) async fn check_flow(
        &self,
        class: &str,
        text: &Bytes,
    ) -> Result<Checked, FleetError> {
        registry::check_name("a class", class)?;
        let (shape, flow) = flow::read(text)?;
        let mut checked = Checked {
            shape: shape.as_str(),
            manifest_hash: None,
            problems: self.unconvertible(class, text, shape).await?,
        };
        let Some(hash) = self.resolved_manifest(class) else {
            return Ok(checked);
        };
        let manifest = self.manifest_text(&hash).await?;
        let work = move || -> Option<Vec<Problem>> {
            let manifest = serde_json::from_slice(&manifest).ok()?;
            Some(Catalog::of(&manifest)?.check(&flow))
        };
        // A manifest has up to a megabyte.
        let problems = tokio::task::spawn_blocking(work).await;
        if let Some(problems) = problems.map_err(|error| FleetError::Broken(error.to_string()))? {
            checked.manifest_hash = Some(hash);
            checked.problems.extend(problems);
        }
        Ok(checked)
    }

    /// What is different between two flow versions; against the one before it in its class, where
    /// none is named.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn flow_differences(
        &self,
        id: &str,
        against: Option<&str>,
    ) -> Result<(Option<String>, Vec<Difference>), FleetError> {
        let (text, _, _) = self.flow_text(id).await?;
        let (_, to) = flow::read(&text)?;
        let against = against
            .map(str::to_owned)
            .or_else(|| self.version_before(id));
        let from = match &against {
            Some(against) => flow::read(&self.flow_text(against).await?.0)?.1,
            None => serde_json::Value::Null,
        };
        Ok((against, differences(&from, &to)))
    }

    /// Enters a version whose parameters are stored already; one at a time.
    async fn enter(
        &self,
        class: &str,
        id: Arc<str>,
        shape: FlowShape,
        text: Bytes,
        how: (bool, Option<String>),
    ) -> Result<Published, FleetError> {
        let inner = &self.inner;
        let version = inner.next_version(class)?;
        let (deploys, manifest_hash) = how;
        let flow = Flow {
            id,
            class: Arc::from(class),
            version,
            shape,
            sha256: hex(&Sha256::digest(&text)),
            bytes: i64::try_from(text.len()).unwrap_or(i64::MAX),
            created: inner.clock.now(),
        };
        let flow = inner.store.publish(flow, &text, deploys).await?;
        let version = flow.version;
        inner.keep_text(flow.id.clone(), text);
        let flow = match deploys {
            true => inner.registry.lock().publish(flow),
            false => inner.registry.lock().add_flow(flow),
        };
        tracing::info!(class, version, flow = &*flow.id, "published a flow");
        counter!("thalweg_fleet_flows_published_total").increment(1);
        Ok(Published {
            flow_id: flow.id.to_string(),
            version,
            class: class.to_owned(),
            checked_against: manifest_hash,
        })
    }

    fn class_of_flow(&self, id: &str) -> Result<Arc<str>, FleetError> {
        let registry = self.inner.registry.lock();
        let flow = registry.flows.get(id);
        flow.map(|flow| flow.class.clone())
            .ok_or_else(|| FleetError::Unknown {
                what: "flow",
                name: id.to_owned(),
                list: "/api/v1/classes",
            })
    }

    fn version_before(&self, id: &str) -> Option<String> {
        let registry = self.inner.registry.lock();
        let flow = registry.flows.get(id)?;
        let versions = &registry.classes.get(&flow.class)?.flows;
        let before = versions
            .iter()
            .rev()
            .find(|other| other.version < flow.version);
        before.map(|before| before.id.to_string())
    }
}
