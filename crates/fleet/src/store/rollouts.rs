//! Roll-outs in the database.

use std::sync::Arc;

use base::UnixMillis;
use sql::{SqlError, Statement, Transaction};

use super::{CLASS, Noted, ROLLOUT, ROLLOUT_GONE, Store, rows};
use crate::events::{Ages, Event};
use crate::limits;
use crate::rollout::{Rollout, RolloutState};

impl Store {
    /// Writes a new roll-out, which decides for its class from now on; false where the class was
    /// removed meanwhile, and nothing is written.
    pub async fn begin_rollout(&self, rollout: &Rollout) -> Result<bool, SqlError> {
        let what = "begin a roll-out";
        let (mut tx, seq) = self.begin().await?;
        tx.insert(what, &rows::ROLLOUTS, vec![rows::rollout(rollout)])
            .await?;
        let class = Statement::new("UPDATE classes SET rollout_id = ? WHERE name = ?");
        let class = class.bind(&*rollout.id).bind(&*rollout.class);
        if tx.run(what, &class).await? == 0 {
            return Ok(false);
        }
        self.note_rollout(tx, seq, rollout, rollout.created).await?;
        Ok(true)
    }

    /// Writes a roll-out's next state, unless another node changed it meanwhile; one that is done
    /// or rolled back decides no longer, and its class wants one flow again. None when another node
    /// was first; otherwise what became of the alerts among `events`, which are written with it.
    pub async fn change_rollout(
        &self,
        rollout: &Rollout,
        events: &[Event],
        ages: &Ages,
        now: UnixMillis,
    ) -> Result<Option<Noted>, SqlError> {
        let what = "change a roll-out";
        let (mut tx, seq) = self.begin().await?;
        let change = Statement::new(
            "UPDATE rollouts SET state = ?, reach = ?, reached_ms = ?, failures_percent = ?,
             reason = ?, version = ? WHERE id = ? AND version = ?",
        );
        let change = change
            .bind(rollout.state.as_str())
            .bind(rollout.reach.cast_signed())
            .bind(rollout.reached.0)
            .bind(i64::from(rollout.plan.failures_percent))
            .bind(rollout.reason.as_str())
            .bind(rollout.version)
            .bind(&*rollout.id)
            .bind(rollout.version - 1);
        if tx.run(what, &change).await? == 0 {
            return Ok(None);
        }
        let flow = match rollout.state {
            RolloutState::Done => Some(Some(&*rollout.flow)),
            RolloutState::RolledBack => Some(rollout.previous.as_deref()),
            _ => None,
        };
        if let Some(flow) = flow {
            let class = Statement::new(
                "UPDATE classes SET flow_id = ?, rollout_id = NULL
                 WHERE name = ? AND rollout_id = ?",
            );
            let class = class.bind(flow).bind(&*rollout.class).bind(&*rollout.id);
            tx.run(what, &class).await?;
        }
        let noted = self.tell(&mut tx, events, ages).await?;
        self.note_rollout(tx, seq, rollout, now).await?;
        Ok(Some(noted))
    }

    async fn note_rollout(
        &self,
        mut tx: Transaction,
        seq: i64,
        rollout: &Rollout,
        now: UnixMillis,
    ) -> Result<(), SqlError> {
        let changes = [
            (ROLLOUT, rollout.id.clone()),
            (CLASS, rollout.class.clone()),
        ];
        self.note(&mut tx, seq, now, &changes).await?;
        tx.commit("commit a roll-out").await
    }

    /// Removes roll-outs that are over; durable when this returns. Nothing is removed unless the
    /// lease's fence still stands there.
    pub async fn remove_rollouts(
        &self,
        ids: &[Arc<str>],
        fence: i64,
        now: UnixMillis,
    ) -> Result<bool, SqlError> {
        let (mut tx, seq) = self.begin().await?;
        if !self.holds(&mut tx, fence).await? {
            return Ok(false);
        }
        for chunk in ids.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let delete = Statement::new("DELETE FROM rollouts WHERE id IN ");
            let delete = delete.list(chunk.iter().map(|id| &**id));
            tx.run("remove roll-outs", &delete).await?;
        }
        let gone: Vec<(&'static str, Arc<str>)> =
            ids.iter().map(|id| (ROLLOUT_GONE, id.clone())).collect();
        self.note(&mut tx, seq, now, &gone).await?;
        tx.commit("remove roll-outs").await?;
        Ok(true)
    }
}
