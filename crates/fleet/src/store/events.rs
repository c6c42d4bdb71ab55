//! Events in the database: written with their batch, listed by filters, removed by age and number.

use std::collections::HashSet;

use base::UnixMillis;
use sql::{Conflict, Insert, Row, SqlError, Statement, Transaction, Value};

use super::Store;
use crate::error::FleetError;
use crate::events::{Ages, Event, EventFilter, EventView, Level, Once};
use crate::{limits, newest};

impl Store {
    /// A page of events, newest first.
    pub async fn events(&self, filter: &EventFilter) -> Result<Vec<EventView>, FleetError> {
        let select = Statement::new(
            "SELECT id, at_ms, level, kind, class, agent_id, message FROM events WHERE level >= ?",
        )
        .bind(filter.level.map_or(0, number));
        let wanted = newest::Wanted {
            having: &[
                ("kind", &filter.kind),
                ("class", &filter.class),
                ("agent_id", &filter.agent),
            ],
            only_classes: filter.only_classes.as_deref(),
            before: filter.before.as_ref(),
            limit: filter.limit,
        };
        let Some(select) = newest::page(select, &wanted) else {
            return Ok(Vec::new());
        };
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
        let rows = ("events", "at_ms");
        removed += newest::keep(&self.database, what, rows, limits::EVENTS_MAX).await?;
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
