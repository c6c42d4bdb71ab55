//! Statements that create a named window or a table: what is inserted, and the rows that tell of it.
//!
//! An event is in flight until a row tells of a change; a table tells of none, and so its events
//! count as delivered when they are in it.

use std::sync::Arc;

use base::UnixMillis;

use super::Machine;
use crate::expression::Event;
use crate::output::{Output, Row};
use crate::query::kept::{Change, Kept};
use crate::query::layout::owned;
use crate::value::{OwnedValue, Value};

impl Machine {
    /// The named window or table that the statement creates.
    pub fn created(&self) -> Option<&Arc<Kept>> {
        self.created.as_ref()
    }

    /// Rows of what entered and left the window that it creates.
    pub fn tell_change(&mut self, change: &Change, out: &mut Output) {
        let Some(created) = &self.created else {
            return;
        };
        // Whoever tells of a change tells of all events that came before.
        let mut events = self.books.in_flight().saturating_sub(out.events());
        let new = change.new.iter().map(|row| (row, false));
        for (row, is_old) in new.chain(change.old.iter().map(|row| (row, true))) {
            out.bytes.extend_from_slice(&created.text(row));
            out.rows.push(Row {
                end: out.bytes.len(),
                timestamp: UnixMillis(change.now),
                key: None,
                events: std::mem::take(&mut events),
                is_old,
            });
        }
    }

    /// Adds an event to the window or table.
    pub(super) fn on_insert(&mut self, event: &Event<'_>, values: &[Value<'_>]) {
        let Some(created) = &self.created else {
            return;
        };
        let slot = |slot: &usize| values.get(*slot).map_or(OwnedValue::Null, owned);
        let row: Box<[OwnedValue]> = self.slots.iter().map(slot).collect();
        match created.insert(event.timestamp.0, row) {
            Ok(()) if created.is_table() => self.books.emitted_from += 1,
            Ok(()) => {}
            Err(full) => {
                self.books.dropped += 1;
                self.last_error = Some(full.to_string());
            }
        }
    }
}
