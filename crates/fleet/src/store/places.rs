//! Places at operations of which only so many may be under way together, counted over all nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::UnixMillis;
use sql::{SqlError, Statement, Transaction};

use super::{REQUEST, Store, Written, rows};
use crate::operation::{FleetOperation, Group, OperationStatus};
use crate::registry::{Batch, PlaceClaim};

type Owned = (Arc<str>, FleetOperation);

impl Store {
    /// Writes operations. Those that take a place come last, when places that others of them leave
    /// are free, and only as many as there are places for; what finds none is not written and told.
    pub(super) async fn write_operations(
        &self,
        tx: &mut Transaction,
        seq: i64,
        batch: &Batch,
        operations: Vec<Owned>,
        written: &mut Written,
    ) -> Result<(), SqlError> {
        let claims: HashMap<&str, &PlaceClaim> = match self.is_shared() {
            true => batch
                .place_claims
                .iter()
                .map(|of| (&*of.before.id, of))
                .collect(),
            // Who is alone has counted right.
            false => HashMap::new(),
        };
        let (takers, others): (Vec<Owned>, Vec<Owned>) =
            operations.into_iter().partition(|(_, operation)| {
                operation.status == OperationStatus::Deployed && claims.contains_key(&*operation.id)
            });
        self.insert_operations(tx, seq, &others).await?;
        if takers.is_empty() {
            return Ok(());
        }
        let mut taken: HashMap<&Group, i64> = HashMap::new();
        let (mut placed, mut crowded) = (Vec::new(), HashSet::new());
        for taker in takers {
            let Some(claim) = claims.get(&*taker.1.id) else {
                continue;
            };
            let count = match taken.get(&claim.group) {
                Some(count) => *count,
                None => count_of(tx, &claim.group).await?,
            };
            if count < i64::from(claim.at_once) {
                taken.insert(&claim.group, count + 1);
                placed.push(taker);
            } else {
                taken.insert(&claim.group, count);
                crowded.insert(taker.1.id);
                written.crowded.push(PlaceClaim::clone(claim));
            }
        }
        let is_placed = |(_, operation): &Owned| !crowded.contains(&operation.id);
        written.news.operations.retain(is_placed);
        self.insert_operations(tx, seq, &placed).await
    }

    /// Writes how many agents may be at a request's operations at the same time; tells whether it is
    /// there. Durable when this returns.
    pub async fn pace_request(
        &self,
        id: &Arc<str>,
        at_once: u32,
        now: UnixMillis,
    ) -> Result<bool, SqlError> {
        let what = "pace a request";
        let (mut tx, seq) = self.begin().await?;
        let there = Statement::new("SELECT id FROM operation_requests WHERE id = ?");
        if tx.row(what, &there.bind(&**id)).await?.is_none() {
            return Ok(false);
        }
        let update = Statement::new("UPDATE operation_requests SET at_once = ? WHERE id = ?");
        let update = update.bind(i64::from(at_once)).bind(&**id);
        tx.run(what, &update).await?;
        self.note(&mut tx, seq, now, &[(REQUEST, id.clone())])
            .await?;
        tx.commit(what).await?;
        Ok(true)
    }

    async fn insert_operations(
        &self,
        tx: &mut Transaction,
        seq: i64,
        operations: &[Owned],
    ) -> Result<(), SqlError> {
        let row = |(agent, operation): &Owned| rows::operation(agent, operation, seq, self.node);
        let operations = operations.iter().map(row).collect();
        tx.insert("write operations", &rows::OPERATIONS, operations)
            .await
    }
}

/// How many agents are at the operations of a group.
async fn count_of(tx: &mut Transaction, group: &Group) -> Result<i64, SqlError> {
    let what = "count who is at an operation";
    let (text, value) = match group {
        Group::Request(id) => (
            "SELECT COUNT(*) AS taken FROM operations WHERE request_id = ? AND state = ?",
            id,
        ),
        Group::Resources(digest) => (
            "SELECT COUNT(*) AS taken FROM operations WHERE goal = ? AND state = ?",
            digest,
        ),
    };
    let state = OperationStatus::Deployed.as_str();
    let select = Statement::new(text).bind(&**value).bind(state);
    match tx.row(what, &select).await? {
        Some(row) => row.number("taken").map_err(|e| tx.error(what, e)),
        None => Ok(0),
    }
}
