//! Alerts on their way, and which were told already: one row for each thing that is told once over all
//! nodes.
//!
//! A row is written in the transaction of what it tells of, under the feed's lock, so that of several
//! nodes that saw one thing one writes it. It waits from `due_ms` on; whoever sends it claims it first,
//! which puts that time off by [`limits::ALERT_CLAIM`]: an alert whose sender died, or lost the
//! database, is due again then, and told twice at the worst. Told ones have no such time and stay a
//! while, so that nobody tells them again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use sql::{Conflict, Insert, Migration, Row, Schema, SqlError, Statement, Transaction};

use super::Store;
use super::events::{read_event, row};
use crate::events::{Event, EventView};
use crate::{limits, newest};

/// What became of the alerts of a transaction.
#[derive(Debug, Default)]
pub struct Noted {
    /// What waits to be sent.
    pub new: Vec<Event>,
    /// What there was no room for.
    pub over: Vec<Event>,
    /// The ids of events that tell what was told before.
    pub repeated: HashSet<Arc<str>>,
}

/// Alerts that this node alone may send for a while.
#[derive(Debug, Default)]
pub struct ClaimedAlerts {
    /// The alerts, the one that waits longest first.
    pub alerts: Vec<ClaimedAlert>,
    /// The end of the claim, by the database's clock.
    until: i64,
}

/// An alert that is to be sent.
#[derive(Debug)]
pub struct ClaimedAlert {
    key: String,
    /// How often it was sent in vain.
    pub tries: i64,
    /// What happened.
    pub event: EventView,
}

impl Store {
    /// Notes alerts in this transaction, as far as nobody has before and there is room.
    pub(super) async fn note_alerts(
        &self,
        tx: &mut Transaction,
        events: &[&Event],
    ) -> Result<Noted, SqlError> {
        let what = "note alerts";
        let mut noted = Noted::default();
        if events.is_empty() {
            return Ok(noted);
        }
        let count = Statement::new("SELECT COUNT(*) AS waiting FROM alerts WHERE due_ms >= 0");
        let waiting = match tx.row(what, &count).await? {
            Some(row) => row.number("waiting").map_err(|e| tx.error(what, e))?,
            None => 0,
        };
        let mut new: HashSet<&Arc<str>> = HashSet::new();
        let mut room = usize::try_from(limits::ALERTS_QUEUED_MAX - waiting).unwrap_or(0);
        for chunk in events.chunks(limits::ROWS_PER_STATEMENT_MAX) {
            let keys: Vec<Arc<str>> = chunk.iter().map(|event| event.alert_key()).collect();
            let mut known = self.known_alerts(tx, &keys).await?;
            let (mut rows, mut again) = (Vec::new(), Vec::new());
            for (event, key) in chunk.iter().zip(keys) {
                match known.get(&*key) {
                    Some(told) if !told.is_over(event) => {
                        if !new.contains(&event.id) {
                            noted.repeated.insert(event.id.clone());
                        }
                        continue;
                    }
                    // The alert is on its way; the event is written all the same.
                    Some(told) if told.is_waiting => continue,
                    _ if room == 0 => {
                        noted.over.push((*event).clone());
                        continue;
                    }
                    Some(_) => again.push(key.clone()),
                    None => {}
                }
                room -= 1;
                new.insert(&event.id);
                noted.new.push((*event).clone());
                let mut alert = vec![(&*key).into()];
                alert.extend(row(event));
                // No tries, nobody who holds it, and due at once.
                alert.extend([0_i64; 3].map(Into::into));
                rows.push(alert);
                // What one transaction tells twice is told once, too.
                let told = Known {
                    at: event.at,
                    is_waiting: true,
                };
                known.insert(key.to_string(), told);
            }
            if !again.is_empty() {
                let delete = Statement::new("DELETE FROM alerts WHERE id IN ");
                let delete = delete.list(again.iter().map(|key| &**key));
                tx.run(what, &delete).await?;
            }
            tx.insert(what, &ALERTS, rows).await?;
        }
        Ok(noted)
    }

    async fn known_alerts(
        &self,
        tx: &mut Transaction,
        keys: &[Arc<str>],
    ) -> Result<HashMap<String, Known>, SqlError> {
        let what = "see which alerts are known";
        let select = Statement::new("SELECT id, at_ms, due_ms FROM alerts WHERE id IN ");
        let select = select.list(keys.iter().map(|key| &**key));
        let mut known = HashMap::new();
        for row in tx.rows(what, &select).await? {
            let read = || {
                let told = Known {
                    at: UnixMillis(row.number("at_ms")?),
                    is_waiting: row.maybe_number("due_ms")?.is_some(),
                };
                Ok((row.text("id")?, told))
            };
            let (id, told) = read().map_err(|error| tx.error(what, error))?;
            known.insert(id, told);
        }
        Ok(known)
    }

    /// Claims alerts that are due, so that no other node sends them for as long as `wait`: `most` that
    /// were never sent in vain, which come first, or one that was, which may be why others were refused.
    pub async fn claim_alerts(
        &self,
        wait: Duration,
        most: usize,
    ) -> Result<ClaimedAlerts, SqlError> {
        let what = "claim alerts";
        let select = Statement::new(
            "SELECT id, due_ms, tries FROM alerts WHERE due_ms >= 0 ORDER BY due_ms, at_ms LIMIT ?",
        );
        let select = select.bind(i64::try_from(most).unwrap_or(i64::MAX));
        let waiting = self.database.rows(what, &select).await?;
        if waiting.is_empty() {
            return Ok(ClaimedAlerts::default());
        }
        let now = self.database.now_ms().await?;
        let mut keys = Vec::new();
        for row in &waiting {
            let read = || Ok((row.text("id")?, row.number("due_ms")?, row.number("tries")?));
            let (key, due, tries) = read().map_err(|error| self.database.error(what, error))?;
            let is_alone = tries > 0;
            if due > now || is_alone && !keys.is_empty() {
                break;
            }
            keys.push(key);
            if is_alone {
                break;
            }
        }
        if keys.is_empty() {
            return Ok(ClaimedAlerts::default());
        }
        // All lock in one order.
        keys.sort_unstable();
        let until = now.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        let mut tx = self.database.begin().await?;
        let claim = Statement::new("UPDATE alerts SET holder = ?, due_ms = ? WHERE id IN ");
        let claim = claim
            .bind(self.node)
            .bind(until)
            .list(keys.iter().map(|key| &**key));
        let claim = claim.push(" AND due_ms <= ?").bind(now);
        tx.run(what, &claim).await?;
        let select = ALERTS
            .select(" WHERE id IN ")
            .list(keys.iter().map(|key| &**key));
        let select = select.push(" AND holder = ? AND due_ms = ? ORDER BY at_ms, id");
        let rows = tx.rows(what, &select.bind(self.node).bind(until)).await?;
        let alerts: Result<Vec<ClaimedAlert>, sqlx::Error> = rows.iter().map(read_alert).collect();
        let alerts = alerts.map_err(|error| tx.error(what, error))?;
        tx.commit(what).await?;
        Ok(ClaimedAlerts { alerts, until })
    }

    /// Notes that alerts are told.
    pub async fn told_alerts(&self, claimed: &ClaimedAlerts) -> Result<(), SqlError> {
        let what = "note that alerts are told";
        let told = Statement::new("UPDATE alerts SET due_ms = NULL WHERE id IN ");
        self.change_alerts(what, told.list(claimed.keys())).await
    }

    /// Has alerts that were sent in vain wait for as long as `wait`, and gives the claim on them up.
    pub async fn put_alerts_off(
        &self,
        claimed: &ClaimedAlerts,
        wait: Duration,
    ) -> Result<(), SqlError> {
        let now = self.database.now_ms().await?;
        let due = now.saturating_add(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
        let put = Statement::new("UPDATE alerts SET due_ms = ?, tries = tries + 1 WHERE id IN ");
        let put = put.bind(due).list(claimed.keys());
        // Unless the claim is over, and another node has them.
        let put = put.push(" AND holder = ? AND due_ms = ?");
        let put = put.bind(self.node).bind(claimed.until);
        self.change_alerts("put alerts off", put).await
    }

    /// In a transaction, as these are what a binary that is too old does not begin.
    async fn change_alerts(&self, what: &'static str, change: Statement) -> Result<(), SqlError> {
        let mut tx = self.database.begin().await?;
        tx.run(what, &change).await?;
        tx.commit(what).await
    }

    /// Gives up alerts that wait for too long, and forgets those told long ago; returns how many
    /// were given up.
    pub async fn prune_alerts(&self, now: UnixMillis) -> Result<u64, SqlError> {
        let what = "remove old alerts";
        let old = Statement::new("DELETE FROM alerts WHERE due_ms >= 0 AND at_ms < ?");
        let old = old.bind((now - limits::ALERT_AGE_MAX).0);
        let given_up = self.database.run(what, &old).await?;
        let told = Statement::new("DELETE FROM alerts WHERE due_ms IS NULL AND at_ms < ?");
        let told = told.bind((now - limits::ALERT_TOLD_AGE).0);
        self.database.run(what, &told).await?;
        let told = newest::Rows {
            only: "due_ms IS NULL",
            ..newest::Rows::of("alerts", "at_ms")
        };
        newest::keep(&self.database, what, told, limits::ALERTS_TOLD_MAX).await?;
        Ok(given_up)
    }
}

impl ClaimedAlerts {
    fn keys(&self) -> impl Iterator<Item = &str> {
        self.alerts.iter().map(|alert| &*alert.key)
    }
}

/// An alert that was noted before.
struct Known {
    at: UnixMillis,
    is_waiting: bool,
}

impl Known {
    /// Whether it is so long ago that the same is news again.
    fn is_over(&self, event: &Event) -> bool {
        let again = event.kind.told_again_after();
        again.is_some_and(|wait| event.at.since(self.at) >= wait)
    }
}

fn read_alert(row: &Row) -> Result<ClaimedAlert, sqlx::Error> {
    Ok(ClaimedAlert {
        key: row.text("id")?,
        tries: row.number("tries")?,
        event: EventView {
            id: row.text("event_id")?,
            ..read_event(row)?
        },
    })
}

const ALERTS: Insert = Insert {
    table: "alerts",
    columns: &[
        "id", "event_id", "at_ms", "level", "kind", "class", "agent_id", "message", "tries",
        "holder", "due_ms",
    ],
    conflict: Conflict::Keep { key: &["id"] },
};

pub const SCHEMA: Schema = Schema {
    name: "fleet_alerts",
    oldest: 1,
    migrations: &[Migration {
        number: 1,
        name: "alerts on their way",
        text: FIRST,
    }],
};

const FIRST: &str = "
CREATE TABLE alerts (
    id VARCHAR(36) NOT NULL PRIMARY KEY,
    event_id VARCHAR(36) NOT NULL,
    at_ms BIGINT NOT NULL,
    level BIGINT NOT NULL,
    kind VARCHAR(32) NOT NULL,
    class VARCHAR(255),
    agent_id VARCHAR(255),
    message TEXT NOT NULL,
    tries BIGINT NOT NULL,
    holder BIGINT NOT NULL,
    due_ms BIGINT
);
CREATE INDEX alerts_due ON alerts (due_ms, at_ms);
";

#[cfg(test)]
#[path = "alerts_tests.rs"]
mod tests;
