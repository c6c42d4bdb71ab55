//! Debug bundles: what agents upload for a TRANSFER debug operation. Only the operation's own agent
//! may, and only as much as the configuration says; the oldest go first.

use std::time::Duration;

use base::UnixMillis;
use c2::OperationKind;
use metrics::counter;

use crate::error::FleetError;
use crate::files::{self, Upload};
use crate::fleet::Fleet;
use crate::limits;
use crate::operation::{OperationStatus, truncate};
use crate::registry::unknown_operation;
use crate::rights::Rights;
use crate::tables::Found;
use crate::views::BundleView;

/// Reads bundles; what is given follows the table's name.
macro_rules! bundles {
    ($rest:literal) => {
        concat!(
            "SELECT id, agent_id, name, bytes, sha512, created_ms FROM debug_bundles",
            $rest
        )
    };
}

impl Fleet {
    /// Whose bundle an operation asks for.
    ///
    /// # Errors
    /// [`FleetError::Unknown`]: nobody asked for it, or not any more; [`FleetError::Store`].
    pub(crate) async fn bundle_owner(&self, id: &str) -> Result<String, FleetError> {
        let inner = &self.inner;
        inner.learn_of(id).await?;
        let registry = inner.registry.lock();
        let (agent, operation) = registry
            .operation(id)
            .ok_or_else(|| unknown_operation(id))?;
        // An agent whose acknowledge overtook its file is late, not wrong.
        let is_asked = match operation.status {
            OperationStatus::Deployed | OperationStatus::Done | OperationStatus::TimedOut => true,
            // Another node has handed it out, and has not told yet: nobody else knows its id.
            OperationStatus::Queued => inner.store.is_shared(),
            OperationStatus::Failed | OperationStatus::Cancelled => false,
        };
        match operation.kind == OperationKind::Transfer && is_asked {
            true => Ok(agent.id.to_string()),
            false => Err(unknown_operation(id)),
        }
    }

    /// Begins a bundle; one that came before under the same operation goes.
    ///
    /// # Errors
    /// [`FleetError::Busy`], [`FleetError::Store`].
    pub(crate) async fn begin_bundle(&self, id: &str) -> Result<Upload<'_>, FleetError> {
        let inner = &self.inner;
        let row = ("DELETE FROM debug_bundles WHERE id = ?", vec![id.into()]);
        inner.tables.write("replace a bundle", vec![row]).await?;
        let bytes_max = inner.config.bundle_bytes_max.0;
        inner.files.begin(id, bytes_max, inner.clock.now()).await
    }

    /// Ends a bundle: durable when this returns.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn finish_bundle(
        &self,
        id: &str,
        agent: &str,
        name: &str,
        upload: Upload<'_>,
    ) -> Result<BundleView, FleetError> {
        let stored = upload.finish().await?;
        let now = self.inner.clock.now();
        let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
        truncate(&mut name, limits::NAME_BYTES_MAX);
        let bundle = BundleView {
            id: id.to_owned(),
            agent_id: agent.to_owned(),
            name,
            bytes: stored.bytes,
            sha512: stored.sha512,
            created_ms: now.0,
        };
        let insert = "INSERT INTO debug_bundles (id, agent_id, name, bytes, sha512, created_ms)
                      VALUES (?, ?, ?, ?, ?, ?)";
        let values = vec![
            id.into(),
            agent.into(),
            bundle.name.as_str().into(),
            bundle.bytes.into(),
            bundle.sha512.as_str().into(),
            now.0.into(),
        ];
        let tables = &self.inner.tables;
        tables
            .write("write a bundle", vec![(insert, values)])
            .await?;
        tracing::info!(
            agent,
            operation = id,
            bytes = bundle.bytes,
            "a debug bundle came"
        );
        counter!("thalweg_fleet_bundles_received_total").increment(1);
        self.clean_bundles(now).await?;
        Ok(bundle)
    }

    /// Bundles, newest first: of one agent, or all.
    ///
    /// # Errors
    /// [`FleetError::Store`].
    pub(crate) async fn bundles(&self, agent: Option<&str>) -> Result<Vec<BundleView>, FleetError> {
        let tables = &self.inner.tables;
        let select = bundles!(" ORDER BY created_ms DESC, id");
        let rows = tables.rows("read the bundles", (select, vec![])).await?;
        let all = rows.iter().map(view).collect::<Result<Vec<_>, _>>()?;
        let fits = |bundle: &BundleView| agent.is_none_or(|agent| bundle.agent_id == agent);
        Ok(all.into_iter().filter(fits).collect())
    }

    /// Leaves the bundles whose agents the caller may see.
    pub(crate) fn keep_seen(&self, rights: &Rights, bundles: &mut Vec<BundleView>) {
        let registry = self.inner.registry.lock();
        bundles.retain(|bundle| {
            let agent = registry.agents.get(bundle.agent_id.as_str());
            rights.sees(agent.and_then(|agent| agent.class.as_deref()))
        });
    }

    /// One bundle.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn bundle(&self, id: &str) -> Result<BundleView, FleetError> {
        let tables = &self.inner.tables;
        let select = bundles!(" WHERE id = ?");
        let rows = tables
            .rows("read a bundle", (select, vec![id.into()]))
            .await?;
        rows.first().map_or_else(
            || {
                Err(FleetError::Unknown {
                    what: "bundle",
                    name: id.to_owned(),
                    list: "/api/v1/bundles",
                })
            },
            view,
        )
    }

    /// Removes a bundle.
    ///
    /// # Errors
    /// [`FleetError::Unknown`], [`FleetError::Store`].
    pub(crate) async fn remove_bundle(&self, id: &str) -> Result<(), FleetError> {
        self.bundle(id).await?;
        let row = ("DELETE FROM debug_bundles WHERE id = ?", vec![id.into()]);
        let statements = vec![row, files::remove(id)];
        self.inner
            .tables
            .write("remove a bundle", statements)
            .await?;
        Ok(())
    }

    /// Removes bundles that are too old or too many.
    async fn clean_bundles(&self, now: UnixMillis) -> Result<(), FleetError> {
        let config = &self.inner.config;
        let age_max: Duration = config.bundle_age_max.0;
        let kept = usize::try_from(config.bundles_max).unwrap_or(usize::MAX);
        for (index, bundle) in self.bundles(None).await?.into_iter().enumerate() {
            if index >= kept || now.since(UnixMillis(bundle.created_ms)) > age_max {
                self.remove_bundle(&bundle.id).await?;
            }
        }
        Ok(())
    }
}

fn view(row: &Found<'_>) -> Result<BundleView, FleetError> {
    Ok(BundleView {
        id: row.text("id")?,
        agent_id: row.text("agent_id")?,
        name: row.text("name")?,
        bytes: row.number("bytes")?,
        sha512: row.text("sha512")?,
        created_ms: row.number("created_ms")?,
    })
}
