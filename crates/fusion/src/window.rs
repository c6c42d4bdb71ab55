//! Tumbling and hopping windows and their groups: pure state, no clock, no IO.
//!
//! Windows are aligned to the epoch; where they hop, an event is in each that spans its time, and
//! counts as an event of the first of them that is open. The watermark of a source is the greatest event time seen,
//! less the allowed lateness; with several partitions it is the least over those that still have
//! records waiting, so that reading one partition ahead of another makes nothing late. A window
//! closes when the watermark reaches its end; an event of a closed window is late. Windows close
//! in order of time, groups are listed in the order in which they were first seen, and so the same
//! events in the same order give the same rows whatever batches they came in.

use std::collections::{HashMap, VecDeque};
use std::mem::size_of;
use std::sync::Arc;

use crate::aggregate::Accumulator;
use crate::codec::{Decoder, Encoder};
use crate::limits::{STATE_BYTES_MAX, WINDOWS_MAX};
use crate::plan::AggregateFunction;
use crate::value::Value;

/// The open windows of one statement.
#[derive(Clone, Debug)]
pub struct Windows {
    length_ms: i64,
    /// From one window's start to the next one's.
    step_ms: i64,
    lateness_ms: i64,
    groups_max: usize,
    /// In order of start.
    open: VecDeque<Window>,
    marks: Vec<Mark>,
    /// Windows that end here or earlier are closed.
    floor: i64,
    groups: usize,
    state_bytes: usize,
}

/// One open window, or one that was just closed.
#[derive(Clone, Debug)]
pub struct Window {
    /// Its first millisecond.
    pub start: i64,
    /// The first millisecond after it.
    pub end: i64,
    /// Its groups as first seen.
    pub groups: Vec<Group>,
    index: HashMap<Arc<[u8]>, usize>,
}

/// One group of a window.
#[derive(Clone, Debug)]
pub struct Group {
    /// The encoded keys, see [`encode_key`].
    pub key: Arc<[u8]>,
    /// How many events it took.
    pub events: u64,
    /// One per aggregate of the plan.
    pub accumulators: Box<[Accumulator]>,
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
        "more than {STATE_BYTES_MAX} bytes of state: group by fewer or shorter keys, or \
             shorten the window"
    )]
    Bytes,
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
        groups_max: usize,
        partitions: usize,
    ) -> Self {
        Windows {
            length_ms,
            step_ms,
            lateness_ms,
            groups_max,
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
        }
    }

    /// The starts of the windows that `time` lies in, in order; none in a gap between two.
    pub fn starts(&self, time: i64) -> Starts {
        starts(self.length_ms, self.step_ms, time)
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
        let closed: Vec<Window> = self.open.drain(..).collect();
        self.forget(&closed);
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
        if self.open.front()?.end > self.floor {
            return None;
        }
        let window = self.open.pop_front()?;
        self.forget(std::slice::from_ref(&window));
        Some(window)
    }

    /// Closes by the wall clock the windows that ended `delay_ms` before `now` or earlier, lateness
    /// allowed for; [`Windows::pop_closed`] then gives them.
    pub fn close_by_clock(&mut self, now: i64, delay_ms: i64) {
        for window in &self.open {
            if window
                .end
                .saturating_add(delay_ms)
                .saturating_add(self.lateness_ms)
                > now
            {
                break;
            }
            self.floor = self.floor.max(window.end);
        }
    }

    /// When [`Windows::close_by_clock`] has something to do next, wall-clock milliseconds.
    pub fn next_clock_close(&self, delay_ms: i64) -> Option<i64> {
        let end = self.open.front()?.end;
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
        functions: &[AggregateFunction],
        is_counted: bool,
    ) -> Result<&mut Group, WindowsFull> {
        let window = self.window_of(start)?;
        let found = self.open[window].index.get(key).copied();
        let group = match found {
            Some(group) => group,
            None => self.insert_group(window, key, functions)?,
        };
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
        if self.state_bytes > STATE_BYTES_MAX {
            Err(WindowsFull::Bytes)
        } else {
            Ok(())
        }
    }

    /// Events in open windows.
    pub fn events(&self) -> u64 {
        self.open
            .iter()
            .flat_map(|window| &window.groups)
            .map(|group| group.events)
            .sum()
    }

    /// Approximate bytes of state.
    pub fn state_bytes(&self) -> usize {
        self.state_bytes
    }

    /// Writes everything.
    pub fn encode(&self, out: &mut Encoder) {
        out.i64(self.floor);
        out.count(self.marks.len());
        for mark in &self.marks {
            out.i64(mark.time);
        }
        out.count(self.open.len());
        for window in &self.open {
            out.i64(window.start);
            out.count(window.groups.len());
            for group in &window.groups {
                out.bytes(&group.key);
                out.u64(group.events);
                for accumulator in &group.accumulators {
                    accumulator.encode(out);
                }
            }
        }
    }

    /// Reads back what [`Windows::encode`] wrote, into windows as [`Windows::new`] made them.
    pub fn decode(
        mut self,
        functions: &[AggregateFunction],
        from: &mut Decoder<'_>,
    ) -> Option<Windows> {
        self.floor = from.i64()?;
        for partition in 0..from.count()? {
            let time = from.i64()?;
            match self.marks.get_mut(partition) {
                Some(mark) => mark.time = time,
                None => self.marks.push(Mark { time, holds: true }),
            }
        }
        for _ in 0..from.count()? {
            let start = from.i64()?;
            let end = start.saturating_add(self.length_ms);
            self.open.push_back(Window::new(start, end));
            let window = self.open.len() - 1;
            for _ in 0..from.count()? {
                let place = self.insert_group(window, from.bytes()?, functions).ok()?;
                let events = from.u64()?;
                let group = &mut self.open[window].groups[place];
                group.events = events;
                let mut text_bytes = 0;
                for (accumulator, function) in group.accumulators.iter_mut().zip(functions) {
                    *accumulator = Accumulator::decode(*function, from)?;
                    text_bytes += accumulator.text_bytes();
                }
                self.state_bytes += text_bytes;
            }
        }
        Some(self)
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
        functions: &[AggregateFunction],
    ) -> Result<usize, WindowsFull> {
        let bytes = group_bytes(key.len(), functions.len());
        if self.groups >= self.groups_max {
            return Err(WindowsFull::Groups(self.groups_max));
        }
        if self.state_bytes + bytes > STATE_BYTES_MAX {
            return Err(WindowsFull::Bytes);
        }
        self.groups += 1;
        self.state_bytes += bytes;
        let window = &mut self.open[window];
        let key: Arc<[u8]> = key.into();
        let accumulators = functions
            .iter()
            .map(|function| Accumulator::new(*function))
            .collect();
        window.index.insert(key.clone(), window.groups.len());
        window.groups.push(Group {
            key,
            events: 0,
            accumulators,
        });
        Ok(window.groups.len() - 1)
    }

    fn forget(&mut self, windows: &[Window]) {
        for group in windows.iter().flat_map(|window| &window.groups) {
            let texts: usize = group.accumulators.iter().map(Accumulator::text_bytes).sum();
            let bytes = group_bytes(group.key.len(), group.accumulators.len()) + texts;
            self.groups -= 1;
            self.state_bytes = self.state_bytes.saturating_sub(bytes);
        }
    }
}

impl Window {
    fn new(start: i64, end: i64) -> Self {
        Window {
            start,
            end,
            groups: Vec::new(),
            index: HashMap::new(),
        }
    }
}

/// Starts of windows, in order.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    next: i64,
    last: i64,
    step_ms: i64,
}

impl Iterator for Starts {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.next > self.last {
            return None;
        }
        let start = self.next;
        self.next = start.saturating_add(self.step_ms);
        Some(start)
    }
}

/// The starts of the windows of that length, one every `step_ms`, that `time` lies in.
pub fn starts(length_ms: i64, step_ms: i64, time: i64) -> Starts {
    let last = time.div_euclid(step_ms).saturating_mul(step_ms);
    // Of the windows that end after `time` the first.
    let next = (time.saturating_sub(length_ms).div_euclid(step_ms) + 1).saturating_mul(step_ms);
    Starts {
        next,
        last,
        step_ms,
    }
}

/// Appends one value to an encoded key. Numbers that are equal are one key, so a whole double is
/// written as the integer it is.
pub fn encode_key(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(0),
        Value::Bool(truth) => out.extend_from_slice(&[1, u8::from(*truth)]),
        Value::Int(number) => {
            out.push(2);
            out.extend_from_slice(&number.to_le_bytes());
        }
        Value::Float(number) if number.trunc() == *number && number.abs() < 9e15 => {
            encode_key(&Value::Int(*number as i64), out);
        }
        Value::Float(number) => {
            out.push(3);
            out.extend_from_slice(&number.to_bits().to_le_bytes());
        }
        Value::Text(text) | Value::Json(text) => {
            out.push(if matches!(value, Value::Text(_)) {
                4
            } else {
                5
            });
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// The values of an encoded key.
pub fn decode_key(key: &[u8]) -> Vec<Value<'_>> {
    let mut from = Decoder(key);
    let mut values = Vec::new();
    while let Some(kind) = from.u8() {
        let value = match kind {
            1 => from.u8().map(|truth| Value::Bool(truth != 0)),
            2 => from.i64().map(Value::Int),
            3 => from.f64().map(Value::Float),
            4 => from
                .bytes()
                .and_then(|text| std::str::from_utf8(text).ok())
                .map(Value::text),
            5 => from
                .bytes()
                .and_then(|text| std::str::from_utf8(text).ok())
                .map(|text| Value::Json(text.into())),
            _ => Some(Value::Null),
        };
        values.push(value.unwrap_or(Value::Null));
    }
    values
}

/// What a group costs beside its texts, bytes.
fn group_bytes(key_bytes: usize, aggregates: usize) -> usize {
    GROUP_OVERHEAD_BYTES + key_bytes + aggregates * size_of::<Accumulator>()
}

/// A group's share of the hash table, its record and its allocations, estimated.
const GROUP_OVERHEAD_BYTES: usize = 120;
