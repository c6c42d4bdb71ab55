//! What agents described of themselves when operators asked: kept sealed, since an agent's settings are
//! in it, as long as its operation is known and there is room.

use c2::{Acknowledge, Operand, OperationKind};
use sql::SqlError;

use crate::asking::owner_of;
use crate::error::FleetError;
use crate::fleet::{Fleet, Inner};
use crate::tables::Value;
use crate::{limits, newest};

impl Fleet {
    /// What the agent described, as the JSON of its acknowledge; none when it described nothing.
    pub(crate) async fn operation_result(&self, id: &str) -> Result<Option<Vec<u8>>, FleetError> {
        let text = "SELECT content FROM operation_results WHERE operation_id = ?";
        let tables = &self.inner.tables;
        let rows = tables
            .rows("read a result", (text, vec![id.into()]))
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let sealed = row.bytes("content")?;
        let content = self.inner.sealer.open_sealed(&owner_of(id), &sealed)?;
        Ok(Some(content))
    }
}

impl Inner {
    /// Keeps what an agent described of itself, but for manifests, which have a place of their own.
    /// It lies sealed: an agent's settings are in it.
    pub(crate) async fn keep_result(&self, ack: &Acknowledge) -> Result<(), FleetError> {
        let Some(id) = ack.operation() else {
            return Ok(());
        };
        let describes = {
            let registry = self.registry.lock();
            let operation = registry.operation(id).map(|(_, operation)| operation);
            operation.is_some_and(|operation| {
                operation.kind == OperationKind::Describe && operation.operand != Operand::Manifest
            })
        };
        if !describes {
            return Ok(());
        }
        let content = ack.to_vec()?;
        if content.len() > limits::RESULT_BYTES_MAX {
            tracing::warn!(
                operation = id,
                bytes = content.len(),
                "a description is too large to be kept"
            );
            return Ok(());
        }
        let sealed = self.sealer.seal(&owner_of(id), &content)?;
        let remove = (
            "DELETE FROM operation_results WHERE operation_id = ?",
            vec![id.into()],
        );
        let insert = "INSERT INTO operation_results (operation_id, content, created_ms)
                      VALUES (?, ?, ?)";
        let values = vec![id.into(), Value::from(sealed), self.clock.now().0.into()];
        let statements = vec![remove, (insert, values)];
        self.tables.write("write a result", statements).await?;
        Ok(())
    }

    /// Removes what agents described of themselves that nobody can ask for any more, since its operation
    /// is gone, and the oldest of what is over the bound.
    pub(crate) async fn prune_results(&self) -> Result<(), SqlError> {
        let what = "remove old results";
        let database = self.store.database();
        let orphans = sql::Statement::new(
            "DELETE FROM operation_results WHERE NOT EXISTS
             (SELECT 1 FROM operations WHERE operations.id = operation_results.operation_id)",
        );
        database.run(what, &orphans).await?;
        let rows = newest::Rows::of("operation_results", "created_ms");
        newest::keep(database, what, rows, limits::RESULTS_MAX).await?;
        Ok(())
    }
}
