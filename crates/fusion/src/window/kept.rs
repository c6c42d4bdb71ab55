//! Windows as checkpoints hold them: whole, or what changed since the checkpoint before.
//!
//! | part | whole | changes |
//! | --- | --- | --- |
//! | times | floor (i64), marks (count, i64 each) | the same |
//! | windows | count; each: start (i64), groups (count) | count; each: start (i64), how many groups the checkpoint before had (u32), changed groups (count) |
//! | a group | key (bytes), events (u64), accumulators | place (u32), key where the place is new, events, accumulators |
//! | sessions | all of them, where windows are sessions | they have no changes |
//! | choices | origin and the last window told, where a policy asks for them | the same |
//!
//! What stands in changes is what a group is, not what came to it: applied twice, they are the same.

use super::{Choices, Group, Last, Mark, Window, Windows, group_bytes};
use crate::aggregate::{Accumulator, Form};
use crate::codec::{Decoder, Encoder};
use crate::query::window::{decode_time, encode_time};

impl Windows {
    /// Writes everything.
    pub fn encode(&self, out: &mut Encoder) {
        self.encode_times(out);
        out.count(self.open.len());
        for window in &self.open {
            out.i64(window.start);
            out.count(window.groups.len());
            for group in &window.groups {
                out.bytes(&group.key);
                encode_group(group, out);
            }
        }
        if let Some(sessions) = &self.sessions {
            sessions.encode(out);
        }
        self.encode_choices(out);
    }

    /// Reads back what [`Windows::encode`] wrote, into windows as [`Windows::new`] made them.
    pub fn decode(mut self, forms: &[Form], from: &mut Decoder<'_>) -> Option<Windows> {
        self.decode_times(from)?;
        for _ in 0..from.count()? {
            let start = from.i64()?;
            let end = start.saturating_add(self.length_ms);
            self.open.push_back(Window::new(start, end));
            let window = self.open.len() - 1;
            for _ in 0..from.count()? {
                let place = self.keep_group(window, from.bytes()?, forms);
                self.decode_group((window, place), forms, from)?;
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.decode(forms, from)?;
            for group in sessions.groups() {
                self.groups += 1;
                self.state_bytes += group.bytes() + group.text_bytes();
            }
        }
        self.decode_choices(from)?;
        Some(self)
    }

    /// Whether changes can be told apart from the rest.
    pub fn may_note_changes(&self) -> bool {
        self.sessions.is_none()
    }

    /// From now on changes are noted anew, or not at all.
    pub fn note_changes(&mut self, notes: bool) {
        self.open.iter_mut().for_each(Window::forget_changes);
        self.notes_changes = notes;
    }

    /// Writes what changed since [`Windows::note_changes`].
    pub fn encode_changes(&self, out: &mut Encoder) {
        self.encode_times(out);
        out.count(self.open.len());
        for window in &self.open {
            let (changed, known) = window.changed();
            out.i64(window.start);
            out.count(known);
            out.count(changed.len());
            for place in changed {
                let group = &window.groups[*place as usize];
                out.u32(*place);
                if *place as usize >= known {
                    out.bytes(&group.key);
                }
                encode_group(group, out);
            }
        }
        self.encode_choices(out);
    }

    /// Brings what a checkpoint held to where [`Windows::encode_changes`] was; `None` when the
    /// changes are of another state.
    pub fn apply(mut self, forms: &[Form], from: &mut Decoder<'_>) -> Option<Windows> {
        self.decode_times(from)?;
        let mut before = std::mem::take(&mut self.open);
        for _ in 0..from.count()? {
            let start = from.i64()?;
            let gone = before.partition_point(|window| window.start < start);
            let gone: Vec<Window> = before.drain(..gone).collect();
            self.forget(&gone);
            let is_known = before.front().is_some_and(|window| window.start == start);
            let window = match is_known {
                true => before.pop_front(),
                false => None,
            };
            let end = start.saturating_add(self.length_ms);
            self.open
                .push_back(window.unwrap_or_else(|| Window::new(start, end)));
            self.apply_groups(self.open.len() - 1, forms, from)?;
        }
        let gone: Vec<Window> = before.into();
        self.forget(&gone);
        self.decode_choices(from)?;
        Some(self)
    }

    /// Adds a group whatever the bounds: what is kept already has its place, also where this version
    /// takes more for it, or the bounds were lowered.
    pub(super) fn keep_group(&mut self, window: usize, key: &[u8], forms: &[Form]) -> usize {
        self.groups += 1;
        self.state_bytes += group_bytes(key.len(), forms);
        self.open[window].insert(key, forms)
    }

    fn apply_groups(
        &mut self,
        window: usize,
        forms: &[Form],
        from: &mut Decoder<'_>,
    ) -> Option<()> {
        let known = usize::try_from(from.u32()?).ok()?;
        for _ in 0..from.count()? {
            let place = usize::try_from(from.u32()?).ok()?;
            let key = match place >= known {
                true => Some(from.bytes()?),
                false => None,
            };
            let count = self.open[window].groups.len();
            if place == count {
                self.keep_group(window, key?, forms);
            } else if place > count {
                return None;
            }
            let before = self.open[window].groups[place].text_bytes();
            self.state_bytes = self.state_bytes.saturating_sub(before);
            self.decode_group((window, place), forms, from)?;
        }
        Some(())
    }

    fn decode_group(
        &mut self,
        (window, place): (usize, usize),
        forms: &[Form],
        from: &mut Decoder<'_>,
    ) -> Option<()> {
        let group = &mut self.open[window].groups[place];
        group.events = from.u64()?;
        for (accumulator, form) in group.accumulators.iter_mut().zip(forms) {
            *accumulator = Accumulator::decode(*form, from)?;
        }
        self.state_bytes += group.text_bytes();
        Some(())
    }

    fn encode_times(&self, out: &mut Encoder) {
        out.i64(self.floor);
        out.count(self.marks.len());
        for mark in &self.marks {
            out.i64(mark.time);
        }
    }

    fn decode_times(&mut self, from: &mut Decoder<'_>) -> Option<()> {
        self.floor = from.i64()?;
        for partition in 0..from.count()? {
            let time = from.i64()?;
            match self.marks.get_mut(partition) {
                Some(mark) => mark.time = time,
                None => self.marks.push(Mark { time, holds: true }),
            }
        }
        Some(())
    }

    fn encode_choices(&self, out: &mut Encoder) {
        if self.choices != Choices::default() {
            encode_time(self.origin, out);
            encode_time(self.last.map(|last| last.start), out);
            out.u8(u8::from(self.last.is_some_and(|last| last.is_empty)));
        }
    }

    fn decode_choices(&mut self, from: &mut Decoder<'_>) -> Option<()> {
        if self.choices != Choices::default() {
            self.origin = decode_time(from)?;
            let start = decode_time(from)?;
            let is_empty = from.u8()? != 0;
            self.last = start.map(|start| Last { start, is_empty });
        }
        Some(())
    }
}

fn encode_group(group: &Group, out: &mut Encoder) {
    out.u64(group.events);
    for accumulator in &group.accumulators {
        accumulator.encode(out);
    }
}
