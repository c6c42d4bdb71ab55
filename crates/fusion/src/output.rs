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
