//! A machine as checkpoints hold it: books, then its state whole, or what changed in it.

use super::{Books, Machine};
use crate::codec::{Decoder, Encoder};

impl Machine {
    /// Writes books and windows, the books as they stand after so many more rows, which stand for
    /// so many events, were delivered.
    pub fn encode(&self, sent: (u64, u64), out: &mut Encoder) {
        self.encode_books(sent, out);
        out.u8(u8::from(self.windows.is_some()));
        if let Some(windows) = &self.windows {
            windows.encode(out);
        }
        if let Some(query) = &self.query {
            out.u64(query.pending);
            query.state.encode(out);
        }
        if let Some(created) = &self.created {
            created.encode(out);
        }
    }

    /// Takes over what [`Machine::encode`] wrote for the same text; `None` when it does not fit.
    pub fn decode(mut self, from: &mut Decoder<'_>) -> Option<Machine> {
        self.decode_books(from)?;
        if (from.u8()? != 0) != self.windows.is_some() {
            return None;
        }
        if let Some(windows) = self.windows {
            self.windows = Some(windows.decode(&self.forms, from)?);
        }
        if let Some(mut query) = self.query {
            query.pending = from.u64()?;
            query.state = query.state.decode(from)?;
            self.query = Some(query);
        }
        if let Some(created) = &self.created {
            created.decode(from)?;
        }
        Some(self)
    }

    /// From now on notes what changes, or notes it no more; false where only the whole state can
    /// be written.
    pub fn note_changes(&mut self, notes: bool) -> bool {
        match &mut self.windows {
            Some(windows) if windows.may_note_changes() => {
                windows.note_changes(notes);
                true
            }
            _ => false,
        }
    }

    /// Writes books, and what changed in the windows since [`Machine::note_changes`].
    pub fn encode_changes(&self, sent: (u64, u64), out: &mut Encoder) {
        self.encode_books(sent, out);
        if let Some(windows) = &self.windows {
            windows.encode_changes(out);
        }
    }

    /// Applies what [`Machine::encode_changes`] wrote; `None` when it does not fit.
    pub fn apply(mut self, from: &mut Decoder<'_>) -> Option<Machine> {
        self.decode_books(from)?;
        self.windows = Some(self.windows?.apply(&self.forms, from)?);
        Some(self)
    }

    fn encode_books(&self, (rows, events): (u64, u64), out: &mut Encoder) {
        let books = &self.books;
        for count in [
            books.received,
            books.filtered,
            books.emitted_from + events,
            books.emitted + rows,
            books.errored,
            books.late,
            books.dropped,
        ] {
            out.u64(count);
        }
    }

    fn decode_books(&mut self, from: &mut Decoder<'_>) -> Option<()> {
        self.books = Books {
            received: from.u64()?,
            filtered: from.u64()?,
            emitted_from: from.u64()?,
            emitted: from.u64()?,
            errored: from.u64()?,
            late: from.u64()?,
            dropped: from.u64()?,
        };
        Some(())
    }
}
