//! Rows on their way to a sink: JSON objects end to end in one buffer.

use base::UnixMillis;
use bytes::Bytes;

use crate::codec::{Decoder, Encoder};
use crate::limits::{OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX};

/// Rows that wait for a sink.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// The rows' JSON texts, one after another.
    pub bytes: Vec<u8>,
    /// Where each row ends, and what else its record carries.
    pub rows: Vec<Row>,
}

/// One row's end in the buffer and its record's other parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its JSON text ends here.
    pub end: usize,
    /// The event's time, or the last millisecond of the window.
    pub timestamp: UnixMillis,
    /// The key of the record it came from.
    pub key: Option<Bytes>,
    /// How many events the row stands for.
    pub events: u64,
    /// Whether it stands for what left a window (`irstream`).
    pub is_old: bool,
}

impl Output {
    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// True when the source has to be held back until the sink has taken what waits.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= OUTPUT_BYTES_MAX || self.rows.len() >= OUTPUT_ROWS_MAX
    }

    /// The events that the rows stand for.
    pub fn events(&self) -> u64 {
        self.rows.iter().map(|row| row.events).sum()
    }

    /// Gives up all rows behind the first `count`; answers the events that they stand for.
    pub fn truncate(&mut self, count: usize) -> u64 {
        let kept = self.rows[..count.min(self.rows.len())].last();
        self.bytes.truncate(kept.map_or(0, |row| row.end));
        let given_up = self.rows.drain(count.min(self.rows.len())..);
        given_up.map(|row| row.events).sum()
    }

    /// Gives up the first `count` rows; answers the events that they stand for.
    pub fn give_up_first(&mut self, count: usize) -> u64 {
        let count = count.min(self.rows.len());
        let bytes = self.rows[..count].last().map_or(0, |row| row.end);
        self.bytes.drain(..bytes);
        let events = self.rows.drain(..count).map(|row| row.events).sum();
        for row in &mut self.rows {
            row.end -= bytes;
        }
        events
    }

    /// The rows' texts in order.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> + '_ {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let text = &self.bytes[start..row.end];
            start = row.end;
            text
        })
    }
}

impl Output {
    /// Writes the rows.
    pub fn encode(&self, out: &mut Encoder) {
        out.count(self.rows.len());
        for (row, text) in self.rows.iter().zip(self.texts()) {
            out.bytes(text);
            out.i64(row.timestamp.0);
            out.u64(row.events);
            out.u8(u8::from(row.key.is_some()) | u8::from(row.is_old) << 1);
            if let Some(key) = &row.key {
                out.bytes(key);
            }
        }
    }

    /// Reads back what [`Output::encode`] wrote.
    pub fn decode(from: &mut Decoder<'_>) -> Option<Output> {
        let mut output = Output::default();
        for _ in 0..from.count()? {
            output.bytes.extend_from_slice(from.bytes()?);
            let timestamp = UnixMillis(from.i64()?);
            let events = from.u64()?;
            let flags = from.u8()?;
            let key = match flags & 1 {
                0 => None,
                _ => Some(Bytes::copy_from_slice(from.bytes()?)),
            };
            output.rows.push(Row {
                end: output.bytes.len(),
                timestamp,
                key,
                events,
                is_old: flags & 2 != 0,
            });
        }
        Some(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(rows: usize) -> Output {
        let mut output = Output::default();
        for n in 0..rows {
            output.bytes.extend_from_slice(n.to_string().as_bytes());
            output.rows.push(Row {
                end: output.bytes.len(),
                timestamp: UnixMillis(0),
                key: None,
                events: n as u64,
                is_old: false,
            });
        }
        output
    }

    fn texts(output: &Output) -> Vec<&str> {
        let texts = output.texts();
        texts
            .map(|text| std::str::from_utf8(text).unwrap())
            .collect()
    }

    #[test]
    fn rows_are_given_up_at_either_end() {
        let mut rows = output(12);
        assert_eq!(rows.give_up_first(3), 3);
        assert_eq!(rows.truncate(7), 10 + 11);
        assert_eq!(texts(&rows), ["3", "4", "5", "6", "7", "8", "9"]);
        assert_eq!(rows.truncate(9), 0);
        assert_eq!(rows.give_up_first(99), 3 + 4 + 5 + 6 + 7 + 8 + 9);
        assert!(rows.is_empty() && rows.bytes.is_empty());
        let mut rows = output(2);
        assert_eq!(rows.truncate(0), 1);
        assert!(rows.is_empty() && rows.bytes.is_empty());
    }
}
