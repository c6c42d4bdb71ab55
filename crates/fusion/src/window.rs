//! Windows over time and their groups: pure state, no clock, no IO.
//!
//! Windows are aligned to the epoch, or to the first event; where they hop, an event is in each that spans its time, and
//! counts as an event of the first of them that is open. The watermark of a source is the greatest event time seen,
//! less the allowed lateness; with several partitions it is the least over those that still have
//! records waiting, so that reading one partition ahead of another makes nothing late. A window
//! closes when the watermark reaches its end; an event of a closed window is late. Windows close
//! in order of time, groups are listed in the order in which they were first seen, and so the same
//! events in the same order give the same rows whatever batches they came in. Sessions are apart for
//! each group ([`crate::session`]), and close by the same watermark.

mod groups;
mod kept;
mod key;
mod starts;

use std::collections::VecDeque;

use crate::aggregate::Form;
use crate::limits::WINDOWS_MAX;
use crate::plan::{Align, EmptyWindows};
use crate::session::Sessions;

pub use groups::{Group, Window};
pub use key::{decode_key, encode_key};
pub use starts::{Starts, starts};

use groups::group_bytes;

/// The open windows of one statement.
#[derive(Clone, Debug)]
pub struct Windows {
    length_ms: i64,
    /// From one window's start to the next one's.
    step_ms: i64,
    lateness_ms: i64,
    bounds: Bounds,
    /// In order of start.
    open: VecDeque<Window>,
    marks: Vec<Mark>,
    /// Windows that end here or earlier are closed.
    floor: i64,
    groups: usize,
    state_bytes: usize,
    /// Where windows are sessions, those that are open.
    sessions: Option<Sessions>,
    /// Where windows lie by the first event, its time.
    origin: Option<i64>,
    choices: Choices,
    /// Empty windows that are told until this many more have ended.
    last: Option<Last>,
    /// Whether windows note which groups change.
    notes_changes: bool,
}

/// How much one statement's windows may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Groups of all open windows.
    pub groups: usize,
    /// Bytes of keys, texts and accumulators, about.
    pub state_bytes: usize,
}

/// What a statement's policies choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Where windows start.
    pub align: Align,
    /// Whether empty windows are told.
    pub empty: EmptyWindows,
}

/// The window that was told last.
#[derive(Clone, Copy, Debug)]
struct Last {
    start: i64,
    is_empty: bool,
}

/// Why an event finds no place; the statement has to be suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowsFull {
    /// Too many groups.
    #[error(
        "more than {0} groups are open: group by fewer keys, shorten the window, or raise \
             fusion.groups_max"
    )]
    Groups(usize),
    /// Too much state.
    #[error(
        "more than {0} bytes of state: group by fewer or shorter keys, shorten the window, or \
             raise fusion.state_bytes_max"
    )]
    Bytes(usize),
    /// Too many windows.
    #[error("more than {WINDOWS_MAX} windows are open: lengthen the window or lessen the lateness")]
    Windows,
}

/// How far one partition has come.
#[derive(Clone, Copy, Debug)]
struct Mark {
    time: i64,
    /// Whether records wait there, so that it holds the watermark.
    holds: bool,
}

impl Windows {
    /// No windows, over a source of `partitions`, all of which hold the watermark.
    pub fn new(
        (length_ms, step_ms): (i64, i64),
        lateness_ms: i64,
        bounds: Bounds,
        partitions: usize,
    ) -> Self {
        Windows {
            length_ms,
            step_ms,
            lateness_ms,
            bounds,
            open: VecDeque::new(),
            marks: vec![
                Mark {
                    time: i64::MIN,
                    holds: true
                };
                partitions.max(1)
            ],
            floor: i64::MIN,
            groups: 0,
            state_bytes: 0,
            sessions: None,
            origin: None,
            choices: Choices::default(),
            last: None,
            notes_changes: false,
        }
    }

    /// The same as sessions: the length is the gap.
    pub fn into_sessions(mut self) -> Self {
        self.sessions = Some(Sessions::new(self.length_ms));
        self
    }

    /// The same by a statement's choices.
    pub fn with(mut self, choices: Choices) -> Self {
        self.choices = choices;
        self
    }

    /// True when windows are sessions.
    pub fn are_sessions(&self) -> bool {
        self.sessions.is_some()
    }

    /// The starts of the windows that `time` lies in, in order; none in a gap between two.
    pub fn starts(&self, time: i64) -> Starts {
        let origin = self.origin.unwrap_or(0);
        let mut starts = starts(self.length_ms, self.step_ms, time.saturating_sub(origin));
        starts.next = starts.next.saturating_add(origin);
        starts.last = starts.last.saturating_add(origin);
        starts
    }

    /// Start and end of the first window that `time` lies in; a session's are known when it ends.
    pub fn bounds(&self, time: i64) -> Option<(i64, i64)> {
        if self.sessions.is_some() {
            return None;
        }
        let start = self.starts(time).next()?;
        Some((start, start.saturating_add(self.length_ms)))
    }

    /// An event of that time comes: the first one may say where windows lie.
    pub fn see(&mut self, time: i64) {
        if self.choices.align == Align::First && self.sessions.is_none() {
            self.origin.get_or_insert(time);
        }
    }

    /// The accumulators of the session of an event; see [`Windows::group`]. None for one that is
    /// late.
    ///
    /// # Errors
    /// A bound of `limits.rs` is reached; nothing was changed.
    pub fn session(
        &mut self,
        time: i64,
        key: &[u8],
        forms: &[Form],
    ) -> Result<Option<&mut Group>, WindowsFull> {
        let bytes = group_bytes(key.len(), forms);
        let Some(sessions) = &mut self.sessions else {
            return Ok(None);
        };
        if sessions.is_late(time, key, self.floor) {
            return Ok(None);
        }
        if sessions.opens(time, key) {
            if self.groups >= self.bounds.groups {
                return Err(WindowsFull::Groups(self.bounds.groups));
            }
            if self.state_bytes + bytes > self.bounds.state_bytes {
                return Err(WindowsFull::Bytes(self.bounds.state_bytes));
            }
            self.groups += 1;
            self.state_bytes += bytes;
        }
        let (groups, state_bytes) = (&mut self.groups, &mut self.state_bytes);
        let group = sessions.take(time, key, forms, |_| {
            // Their texts are counted on, as those of the session that took them over.
            *groups -= 1;
            *state_bytes = state_bytes.saturating_sub(bytes);
        });
        group.events += 1;
        Ok(Some(group))
    }

    /// True when the window that starts there is closed.
    pub fn is_closed(&self, start: i64) -> bool {
        start.saturating_add(self.length_ms) <= self.floor
    }

    /// Moves time to an event of that time on that partition, before the event is applied.
    pub fn advance(&mut self, partition: usize, time: i64) {
        if partition >= self.marks.len() {
            self.marks.resize(
                partition + 1,
                Mark {
                    time: i64::MIN,
                    holds: true,
                },
            );
        }
        let mark = &mut self.marks[partition];
        mark.holds = true;
        if time > mark.time {
            mark.time = time;
            self.raise_floor();
        }
    }

    /// Says of every partition whether records wait there; one that waits for nothing does not
    /// hold the watermark.
    pub fn set_waiting(&mut self, is_waiting: impl Fn(usize) -> bool) {
        for (partition, mark) in self.marks.iter_mut().enumerate() {
            mark.holds = is_waiting(partition);
        }
        self.raise_floor();
    }

    /// Raises a time of arrival to where time already stands: order of arrival is time itself.
    pub fn not_before_watermark(&self, time: i64) -> i64 {
        time.max(self.marks[0].time).max(self.floor)
    }

    /// The greatest time seen on the first partition.
    pub fn arrival_mark(&self) -> i64 {
        self.marks[0].time
    }

    /// Forgets how far time had come and closes everything: the wall clock was set back.
    pub fn restart_time(&mut self) -> Vec<Window> {
        self.floor = i64::MAX;
        let sessions: Vec<Window> = std::iter::from_fn(|| self.pop_session()).collect();
        let mut closed: Vec<Window> = self.open.drain(..).collect();
        self.forget(&closed);
        closed.extend(sessions);
        self.origin = None;
        self.last = None;
        self.marks.iter_mut().for_each(|mark| mark.time = i64::MIN);
        self.floor = i64::MIN;
        closed
    }

    /// True when all windows of `time` are closed.
    pub fn is_late(&self, time: i64) -> bool {
        self.starts(time)
            .last()
            .is_some_and(|start| self.is_closed(start))
    }

    /// Takes the next window that time has closed.
    pub fn pop_closed(&mut self) -> Option<Window> {
        if self.sessions.is_some() {
            return self.pop_session();
        }
        if let Some(empty) = self.next_empty() {
            return Some(empty);
        }
        if self.open.front()?.end > self.floor {
            return None;
        }
        let window = self.open.pop_front()?;
        self.forget(std::slice::from_ref(&window));
        self.last = Some(Last {
            start: window.start,
            is_empty: false,
        });
        Some(window)
    }

    fn pop_session(&mut self) -> Option<Window> {
        let (start, end, group) = self.sessions.as_mut()?.pop_closed(self.floor)?;
        let mut window = Window::new(start, end);
        window.groups.push(group);
        self.forget(std::slice::from_ref(&window));
        Some(window)
    }

    /// The empty window that follows the last one told, where it is told and has ended.
    fn next_empty(&mut self) -> Option<Window> {
        let last = self.last?;
        let start = last.start.saturating_add(self.step_ms);
        let end = start.saturating_add(self.length_ms);
        let is_wanted = match self.choices.empty {
            EmptyWindows::Never => false,
            EmptyWindows::Once => !last.is_empty,
            EmptyWindows::Always => true,
        };
        let is_next_open = self
            .open
            .front()
            .is_some_and(|window| window.start <= start);
        if !is_wanted || end > self.floor || is_next_open {
            return None;
        }
        self.last = Some(Last {
            start,
            is_empty: true,
        });
        Some(Window::new(start, end))
    }

    /// When the first window ends that will be told.
    fn first_end(&self) -> Option<i64> {
        if let Some(sessions) = &self.sessions {
            return sessions.first_end();
        }
        let open = self.open.front().map(|window| window.end);
        let empty = self.last.filter(|last| match self.choices.empty {
            EmptyWindows::Never => false,
            EmptyWindows::Once => !last.is_empty,
            EmptyWindows::Always => true,
        });
        let empty = empty.map(|last| {
            let start = last.start.saturating_add(self.step_ms);
            start.saturating_add(self.length_ms)
        });
        open.into_iter().chain(empty).min()
    }

    /// Closes by the wall clock the windows that ended `delay_ms` before `now` or earlier, lateness
    /// allowed for; [`Windows::pop_closed`] then gives them.
    pub fn close_by_clock(&mut self, now: i64, delay_ms: i64) {
        let until = now
            .saturating_sub(delay_ms)
            .saturating_sub(self.lateness_ms);
        if self.first_end().is_some_and(|end| end <= until) {
            // Time stands at the last end that has come: what begins after it is not late.
            let ends = self.open.iter().map(|window| window.end);
            let last = ends.take_while(|end| *end <= until).max();
            let is_open_ended =
                self.sessions.is_some() || self.choices.empty == EmptyWindows::Always;
            let end = match is_open_ended {
                true => Some(until),
                false => last.max(self.first_end().filter(|end| *end <= until)),
            };
            self.floor = self.floor.max(end.unwrap_or(self.floor));
        }
    }

    /// When [`Windows::close_by_clock`] has something to do next, wall-clock milliseconds.
    pub fn next_clock_close(&self, delay_ms: i64) -> Option<i64> {
        let end = self.first_end()?;
        Some(
            end.saturating_add(delay_ms)
                .saturating_add(self.lateness_ms),
        )
    }

    /// The accumulators of the group with that key in the window that starts there; an event is
    /// counted in one of its windows.
    ///
    /// # Errors
    /// A bound of `limits.rs` is reached; nothing was changed.
    pub fn group(
        &mut self,
        start: i64,
        key: &[u8],
        forms: &[Form],
        is_counted: bool,
    ) -> Result<&mut Group, WindowsFull> {
        let window = self.window_of(start)?;
        let group = match self.open[window].find(key) {
            Some(group) => group,
            None => self.insert_group(window, key, forms)?,
        };
        if self.notes_changes {
            self.open[window].change(group);
        }
        let group = &mut self.open[window].groups[group];
        group.events += u64::from(is_counted);
        Ok(group)
    }

    /// Accounts for texts that accumulators keep.
    ///
    /// # Errors
    /// The state has outgrown its bound.
    pub fn add_state_bytes(&mut self, before: usize, after: usize) -> Result<(), WindowsFull> {
        self.state_bytes = (self.state_bytes + after).saturating_sub(before);
        if self.state_bytes > self.bounds.state_bytes {
            Err(WindowsFull::Bytes(self.bounds.state_bytes))
        } else {
            Ok(())
        }
    }

    /// Events in open windows.
    pub fn events(&self) -> u64 {
        let sessions = self.sessions.iter().flat_map(Sessions::groups);
        let windows = self.open.iter().flat_map(|window| &window.groups);
        windows.chain(sessions).map(|group| group.events).sum()
    }

    /// Approximate bytes of state.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    fn raise_floor(&mut self) {
        let times = self
            .marks
            .iter()
            .filter(|mark| mark.holds)
            .map(|mark| mark.time);
        let watermark = match times.min() {
            Some(time) => time,
            // Nothing waits anywhere: what was seen is all there is.
            None => self
                .marks
                .iter()
                .map(|mark| mark.time)
                .max()
                .unwrap_or(i64::MIN),
        };
        self.floor = self.floor.max(watermark.saturating_sub(self.lateness_ms));
    }

    fn window_of(&mut self, start: i64) -> Result<usize, WindowsFull> {
        let end = start.saturating_add(self.length_ms);
        if let Some(last) = self.open.back()
            && last.start == start
        {
            return Ok(self.open.len() - 1);
        }
        let place = self.open.partition_point(|window| window.start < start);
        if self
            .open
            .get(place)
            .is_some_and(|window| window.start == start)
        {
            return Ok(place);
        }
        if self.open.len() >= WINDOWS_MAX {
            return Err(WindowsFull::Windows);
        }
        self.open.insert(place, Window::new(start, end));
        Ok(place)
    }

    fn insert_group(
        &mut self,
        window: usize,
        key: &[u8],
        forms: &[Form],
    ) -> Result<usize, WindowsFull> {
        let bytes = group_bytes(key.len(), forms);
        if self.groups >= self.bounds.groups {
            return Err(WindowsFull::Groups(self.bounds.groups));
        }
        if self.state_bytes + bytes > self.bounds.state_bytes {
            return Err(WindowsFull::Bytes(self.bounds.state_bytes));
        }
        Ok(self.keep_group(window, key, forms))
    }

    fn forget(&mut self, windows: &[Window]) {
        for group in windows.iter().flat_map(|window| &window.groups) {
            let bytes = group.bytes() + group.text_bytes();
            self.groups -= 1;
            self.state_bytes = self.state_bytes.saturating_sub(bytes);
        }
    }
}
