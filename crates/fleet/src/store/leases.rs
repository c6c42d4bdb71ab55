//! What only one node does at a time: leases in the database, each with a fence that counts up.

use std::time::Duration;

use sql::{SqlError, Statement, Transaction};

use super::{Store, rows};

impl Store {
    /// Asks for a lease, or renews it: the fence if this node holds it now.
    pub async fn lease(&self, name: &str, wait: Duration) -> Result<Option<i64>, SqlError> {
        if !self.is_shared() {
            return Ok(Some(0));
        }
        let what = "ask for a lease";
        let now = self.database.now_ms().await?;
        let until = now + i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2);
        let mut tx = self.database.begin().await?;
        let first = vec![name.into(), self.node.into(), 1_i64.into(), until.into()];
        tx.insert(what, &rows::LEASES, vec![first]).await?;
        let renew = Statement::new("UPDATE leases SET until_ms = ? WHERE name = ? AND holder = ?");
        let renew = renew.bind(until).bind(name).bind(self.node);
        if tx.run(what, &renew).await? == 0 {
            let take = Statement::new(
                "UPDATE leases SET holder = ?, fence = fence + 1, until_ms = ?
                 WHERE name = ? AND until_ms < ?",
            );
            let take = take.bind(self.node).bind(until).bind(name).bind(now);
            tx.run(what, &take).await?;
        }
        let select = Statement::new("SELECT fence FROM leases WHERE name = ? AND holder = ?");
        let held = tx.row(what, &select.bind(name).bind(self.node)).await?;
        let fence = held.map(|row| row.number("fence")).transpose();
        let fence = fence.map_err(|e| tx.error(what, e))?;
        tx.commit(what).await?;
        Ok(fence)
    }

    /// Lets the next node have the lease at once.
    pub async fn give_back(&self, name: &str) -> Result<(), SqlError> {
        let give = Statement::new("UPDATE leases SET until_ms = 0 WHERE name = ? AND holder = ?");
        let give = give.bind(name).bind(self.node);
        self.database.run("give a lease back", &give).await?;
        Ok(())
    }

    /// Whether this node's lease still has this fence.
    pub(super) async fn holds(&self, tx: &mut Transaction, fence: i64) -> Result<bool, SqlError> {
        if !self.is_shared() {
            return Ok(true);
        }
        let held = Statement::new("SELECT name FROM leases WHERE holder = ? AND fence = ?");
        let held = held.bind(self.node).bind(fence);
        let row = tx.row("see that the lease holds", &held).await?;
        Ok(row.is_some())
    }
}
