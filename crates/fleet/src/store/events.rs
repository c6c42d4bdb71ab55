//! Events in the database: written with their batch, listed by filters, removed by age and number.

use std::collections::HashSet;

use base::UnixMillis;
use sql::{Conflict, Insert, Row, SqlError, Statement, Transaction, Value};

use super::Store;
use crate::error::FleetError;
use crate::events::{Ages, Event, EventFilter, EventView, Level, Once};
use crate::limits;

impl Store {
    /// A page of events, newest first.
    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<EventView>, FleetError> {
        let mut select = Statement::new(
            "SELECT id, at_ms, level, kind, class, agent_id, message FROM events WHERE level >= ?",
        )
        .bind(filter.level.map_or(0, number));
        for (column, value) in [
            (" AND kind = ?", &filter.kind),
            (" AND class = ?", &filter.class),
            (" AND agent_id = ?", &filter.agent),
        ] {
            if let Some(value) = value {
                select = select.push(column).bind(value.as_str());
            }
        }
        if let Some(classes) = &filter.only_classes {
            if classes.is_empty() {
                return Ok(Vec::new());
            }
            select = select.push(" AND class IN ");
            select = select.list(classes.iter().map(String::as_str));
        }
        if let Some((at, id)) = &filter.before {
            select = select.push(" AND (at_ms < ? OR (at_ms = ? AND id < ?))");
            select = select.bind(*at).bind(*at).bind(id.as_str());
        }
        let limit = filter.limit.clamp(1, limits::PAGE_ITEMS_MAX) as i64;
        let select = select
            .push(" ORDER BY at_ms DESC, id DESC LIMIT ?")
            .bind(limit);
        self.read(select, read_event).await
    }

    /// Removes events that are older than their level's age, or more than there may be.
    pub async fn prune_events(&self, ages: &Ages, now: UnixMillis) -> Result<u64, SqlError> {
        let what = "remove old events";
        let mut removed = 0;
        for level in Level::ALL {
            let before = ages.of(level).map_or(now, |age| now - age);
            let delete = Statement::new("DELETE FROM events WHERE level = ? AND at_ms < ?");
            let delete = delete.bind(number(level)).bind(before.0);
            removed += self.database.run(what, &delete).await?;
        }
        let newest = "SELECT at_ms FROM events ORDER BY at_ms DESC, id DESC LIMIT 1 OFFSET ?";
        let newest = Statement::new(newest).bind(limits::EVENTS_MAX);
        if let Some(row) = self.database.row(what, &newest).await? {
            let at = row
                .number("at_ms")
                .map_err(|e| self.database.error(what, e))?;
            let delete = Statement::new("DELETE FROM events WHERE at_ms <= ?").bind(at);
            removed += self.database.run(what, &delete).await?;
        }
        Ok(removed)
    }

    pub(super) async fn write_events(
        &self,
        tx: &mut Transaction,
        events: &[Event],
        told: &HashSet<Once>,
    ) -> Result<(), SqlError> {
        let new = events.iter().filter(|event| !event.is_told(told));
        let rows = new.map(row).collect();
        tx.insert("write events", &EVENTS, rows).await
    }
}

fn number(level: Level) -> i64 {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}

fn row(event: &Event) -> Vec<Value> {
    vec![
        (&*event.id).into(),
        event.at.0.into(),
        number(event.level).into(),
        event.kind.as_str().into(),
        event.class.as_deref().into(),
        event.agent.as_deref().into(),
        event.message.as_str().into(),
    ]
}

fn read_event(row: &Row) -> Result<EventView, sqlx::Error> {
    let level = row.number("level")?;
    let level = Level::ALL.into_iter().find(|known| number(*known) == level);
    Ok(EventView {
        id: row.text("id")?,
        at_ms: row.number("at_ms")?,
        level: level.map_or("", Level::as_str).to_owned(),
        kind: row.text("kind")?,
        class: row.maybe_text("class")?,
        agent_id: row.maybe_text("agent_id")?,
        message: row.text("message")?,
    })
}

const EVENTS: Insert = Insert {
    table: "events",
    columns: &[
        "id", "at_ms", "level", "kind", "class", "agent_id", "message",
    ],
    // One that is told twice is one.
    conflict: Conflict::Keep { key: &["id"] },
};
