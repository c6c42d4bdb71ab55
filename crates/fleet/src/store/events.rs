//! Events in the database: written with their batch, listed by filters, removed by age and number.

use base::UnixMillis;
use sql::{Conflict, Insert, Row, SqlError, Statement, Transaction, Value};

use super::{Noted, Store};
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
        let rows = newest::Rows::of("events", "at_ms");
        removed += newest::keep(&self.database, what, rows, limits::EVENTS_MAX).await?;
        Ok(removed)
    }

    /// Writes events in this transaction, as far as they are kept and tell nothing that is told once
    /// and was told before; those that are alerts go on their way with it.
    pub(super) async fn tell(
        &self,
        tx: &mut Transaction,
        events: &[Event],
        ages: &Ages,
    ) -> Result<Noted, SqlError> {
        let once: Vec<Once> = events.iter().filter_map(|e| e.once.clone()).collect();
        let told = self.note_told(tx, &once).await?;
        let new = events.iter().filter(|event| !event.is_told(&told));
        let alerts = new.clone().filter(|event| event.kind.is_alert());
        let noted = self.note_alerts(tx, &alerts.collect::<Vec<_>>()).await?;
        let kept = new
            .filter(|event| ages.of(event.level).is_some() && !noted.repeated.contains(&event.id));
        tx.insert("write events", &EVENTS, kept.map(row).collect())
            .await?;
        Ok(noted)
    }
}

pub(super) fn number(level: Level) -> i64 {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}

/// An event as its table has it.
pub(super) fn row(event: &Event) -> Vec<Value> {
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

pub(super) fn read_event(row: &Row) -> Result<EventView, sqlx::Error> {
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
