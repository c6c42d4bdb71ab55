//! What a batch says, joined with what other nodes wrote of the same agents and operations before it.

use std::collections::HashMap;
use std::sync::Arc;

use base::UnixMillis;
use sql::{SqlError, Statement, Transaction};

use super::{Store, Written, rows};
use crate::agent::Agent;
use crate::limits;
use crate::operation::FleetOperation;
use crate::registry::Batch;

impl Store {
    /// The batch's agents, each joined with what another node wrote of it.
    pub(super) async fn joined_agents(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        written: &mut Written,
    ) -> Result<Vec<Agent>, SqlError> {
        let mut agents = batch.agents.clone();
        if !self.is_shared() {
            return Ok(agents);
        }
        for chunk in agents.chunks_mut(limits::ROWS_PER_STATEMENT_MAX) {
            let select = rows::agents(" WHERE id IN ");
            let select = select.list(chunk.iter().map(|agent| &*agent.id));
            let mut stored = HashMap::new();
            for row in tx.rows("read agents", &select).await? {
                let agent = rows::read_agent(&row).map_err(|e| tx.error("read an agent", e))?;
                stored.insert(agent.id.clone(), agent);
            }
            for agent in chunk {
                if let Some(stored) = stored.remove(&agent.id) {
                    // The registry's own joining tells of it.
                    let _ = agent.join(&stored);
                    written.news.agents.push(agent.clone());
                }
            }
        }
        Ok(agents)
    }

    /// The batch's operations, each joined with what another node wrote of it.
    pub(super) async fn joined_operations(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        written: &mut Written,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, SqlError> {
        let mut operations = batch.operations.clone();
        if !self.is_shared() {
            return Ok(operations);
        }
        for chunk in operations.chunks_mut(limits::ROWS_PER_STATEMENT_MAX) {
            let select = rows::OPERATIONS.select(" WHERE id IN ");
            let select = select.list(chunk.iter().map(|(_, op)| &*op.id));
            let mut stored = HashMap::new();
            for row in tx.rows("read operations", &select).await? {
                let (_, operation) =
                    rows::read_operation(&row).map_err(|e| tx.error("read an operation", e))?;
                stored.insert(operation.id.clone(), operation);
            }
            for (agent, operation) in chunk {
                if let Some(stored) = stored.remove(&operation.id) {
                    operation.join(&stored);
                    let news = (agent.clone(), operation.clone());
                    written.news.operations.push(news);
                }
            }
        }
        Ok(operations)
    }

    /// Leaves out new descriptions of manifests that another agent is describing already, on
    /// whatever node, or that are known meanwhile.
    pub(super) async fn without_rivals(
        &self,
        tx: &mut Transaction,
        batch: &Batch,
        mut operations: Vec<(Arc<str>, FleetOperation)>,
        written: &mut Written,
        now: UnixMillis,
    ) -> Result<Vec<(Arc<str>, FleetOperation)>, SqlError> {
        if !self.is_shared() {
            return Ok(operations);
        }
        let what = "see who describes a manifest";
        for claim in &batch.claims {
            let known = Statement::new(
                "SELECT m.hash AS hash FROM agents a JOIN manifests m ON m.hash = a.manifest_hash
                 WHERE a.manifest_mark = ? LIMIT 1",
            );
            let known = known.bind(claim.mark.number());
            let known = tx.row(what, &known).await?.is_some();
            let word = claim.mark.word();
            let rival = Statement::new(
                "SELECT operation_id FROM describing
                 WHERE hash = ? AND operation_id <> ? AND until_ms > ?",
            );
            let rival = rival.bind(&*word).bind(&*claim.operation).bind(now.0);
            if known || tx.row(what, &rival).await?.is_some() {
                operations.retain(|(_, operation)| operation.id != claim.operation);
                written.refused.push(claim.operation.clone());
                continue;
            }
            let row = vec![
                (&*word).into(),
                (&*claim.operation).into(),
                claim.until.0.into(),
            ];
            tx.insert("claim a manifest", &rows::DESCRIBING, vec![row])
                .await?;
        }
        Ok(operations)
    }
}
