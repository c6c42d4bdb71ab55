//! Rows into tables of SQL databases: many in a transaction; what a database refuses is found out by
//! halves, so that one bad row costs no other.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::records::next_sequence;
use super::{Part, Sent, Stopped, Writer};
use crate::limits::{PRODUCE_BYTES_MAX, RETRY_WAIT, TABLE_ROWS_MAX};
use crate::sinks::{NotWritten, Rows, Table, Tables};

impl Writer {
    /// Writes rows to a table, and counts on where they are counted.
    pub(super) async fn write_rows(
        &mut self,
        table: &Table,
        output: &Sent,
        part: Part,
    ) -> Result<(), Stopped> {
        let Some(tables) = self.tables.clone() else {
            return Err(Stopped);
        };
        let columns = self.lane.plan.column_names().unwrap_or_default();
        let texts: Vec<Bytes> = output.texts().collect();
        let mut first = 0;
        while first < texts.len() {
            // The same rows are always cut in the same batches: a repeated one is recognized.
            let mut last = first + 1;
            let mut bytes = texts[first].len();
            while last < texts.len()
                && last - first < TABLE_ROWS_MAX
                && bytes + texts[last].len() <= PRODUCE_BYTES_MAX
            {
                bytes += texts[last].len();
                last += 1;
            }
            let mut waiting: Vec<Range<usize>> = std::iter::once(first..last).collect();
            while let Some(range) = waiting.pop() {
                let events = output.rows[range.clone()]
                    .iter()
                    .map(|row| row.events)
                    .sum();
                match self
                    .write_range((&tables, table), &columns, &texts, range.clone())
                    .await?
                {
                    Ok(()) => {
                        let rows = range.len() as u64;
                        self.delivered((rows, events), rows, part);
                    }
                    Err(why) if range.len() == 1 => {
                        self.give_up(
                            events,
                            &format!("cannot write a row to {table}: {why}"),
                            part,
                        );
                    }
                    Err(_) => {
                        let middle = range.start + range.len() / 2;
                        waiting.push(middle..range.end);
                        waiting.push(range.start..middle);
                        continue;
                    }
                }
                self.sequence.next = next_sequence(self.sequence.next, range.len());
            }
            first = last;
        }
        Ok(())
    }

    /// Tries until the database is there; why it does not take the rows, if it does not.
    async fn write_range(
        &self,
        (tables, table): (&Arc<dyn Tables>, &Table),
        columns: &[String],
        texts: &[Bytes],
        range: Range<usize>,
    ) -> Result<Result<(), String>, Stopped> {
        let is_counted = self.lane.keeps_outbox();
        let first = self.sequence.next;
        let rows = Rows {
            statement: &self.lane.definition.id,
            columns,
            first: self
                .sequence
                .producer_id
                .filter(|_| is_counted)
                .map(|id| (id, first)),
            next: next_sequence(first, range.len()),
            rows: &texts[range],
        };
        let (mut wait, mut had_trouble) = (RETRY_WAIT.0, false);
        let written = loop {
            match tables.write(table, rows.clone()).await {
                Ok(()) => break Ok(()),
                Err(NotWritten::Never(why)) => break Err(why),
                Err(NotWritten::Later(why)) => {
                    had_trouble = true;
                    self.set_trouble(Some(format!("cannot write to {table}: {why}")));
                    self.pause(wait).await?;
                    wait = (wait * 2).min(RETRY_WAIT.1);
                }
            }
        };
        if had_trouble {
            self.set_trouble(None);
        }
        Ok(written)
    }
}
