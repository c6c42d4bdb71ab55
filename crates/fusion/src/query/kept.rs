//! Named windows and tables: rows that several statements share.
//!
//! One statement creates it and keeps it in its checkpoint; others insert into it, change it and
//! read it where it stands. Who changes it notes the change, so that statements that read it as a
//! stream hear of what entered and what left. Everybody who changes it or computes with it holds
//! the gate of the chains (see [`crate::chains`]), so that the lock is never waited for long.
//!
//! A row with declared columns is a value per column; without them it is the whole JSON object,
//! followed by the fields that its windows read.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::codec::{Decoder, Encoder};
use crate::expression::Expression;
use crate::json::{FieldPath, Scanner};
use crate::limits::{KEPT_ROWS_MAX, STATE_BYTES_MAX};
use crate::plan::{Create, Plan, Stage, View};
use crate::query::chain::{Chain, Views};
use crate::query::layout::Layout;
use crate::query::tuple::{Meter, Tuple, TupleReader, TupleWriter};
use crate::query::window::{Delta, Reading, decode_time, encode_time};
use crate::value::{OwnedValue, Value, write_text};

/// A named window or table.
#[derive(Debug)]
pub struct Kept {
    name: String,
    is_table: bool,
    /// The declared columns; none where rows are what is inserted.
    columns: Option<Vec<String>>,
    /// What a row's values are, in order.
    fields: Vec<FieldPath>,
    views: Vec<View>,
    is_union: bool,
    layout: Layout,
    meter: Arc<Meter>,
    state: RwLock<State>,
}

/// The named windows and tables of one engine by their names.
pub type KeptByName = HashMap<String, Arc<Kept>>;

/// What entered and what left at one instant.
#[derive(Debug)]
pub struct Change {
    /// When, ms.
    pub now: i64,
    /// What entered.
    pub new: Vec<Arc<Tuple>>,
    /// What left.
    pub old: Vec<Arc<Tuple>>,
}

/// Where a field of a row is found.
#[derive(Clone, Debug)]
pub enum KeptField {
    /// One of its values.
    Value(usize),
    /// Within one of its values, which is JSON.
    Within(usize, Arc<Scanner>),
    /// The row as JSON.
    Whole(Arc<Vec<String>>),
    /// Nowhere: it is null.
    Nowhere,
}

#[derive(Debug, Default)]
struct State {
    chain: Option<Chain>,
    now: Option<i64>,
    number: u64,
    changes: Vec<Change>,
    /// Whether anything changed since the changes were taken.
    is_changed: bool,
}

/// Why a named window or table takes nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeptFull {
    /// Too many rows.
    #[error("it holds {KEPT_ROWS_MAX} rows: delete some, or give it a window that forgets")]
    Rows,
    /// Too many bytes.
    #[error(
        "it holds {STATE_BYTES_MAX} bytes: delete rows, or give it a window that forgets or fewer \
         columns"
    )]
    Bytes,
}

/// A row, and the values that take its place; without, it goes.
pub type Replaced = (Arc<Tuple>, Option<Box<[OwnedValue]>>);

impl Kept {
    /// The empty window or table of a plan that creates one.
    pub fn new(plan: &Plan) -> Option<Arc<Kept>> {
        let Stage::Create(create) = &plan.stage else {
            return None;
        };
        let (name, is_table, columns, views, is_union) = match &**create {
            Create::Window {
                name,
                columns,
                views,
                is_union,
            } => (name, false, columns.clone(), views.clone(), *is_union),
            Create::Table { name, columns } => {
                let names = columns.iter().map(|column| column.name.clone()).collect();
                let keys = columns
                    .iter()
                    .enumerate()
                    .filter(|(_, column)| column.is_key);
                let keys = keys.filter_map(|(place, _)| u16::try_from(place).ok());
                let keys = keys.map(Expression::Field).collect();
                (name, true, Some(names), vec![View::Unique(keys)], false)
            }
        };
        Some(Arc::new(Kept {
            name: name.clone(),
            is_table,
            columns,
            layout: Layout::of_fields(plan.fields.len()),
            fields: plan.fields.clone(),
            views,
            is_union,
            meter: Arc::default(),
            state: RwLock::default(),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True for a table, which tells nobody of its changes.
    pub fn is_table(&self) -> bool {
        self.is_table
    }

    /// The declared columns.
    pub fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Where a field of its rows is found.
    pub fn field(&self, path: &FieldPath) -> KeptField {
        let scanner = |path: &[String]| Arc::new(Scanner::new([&FieldPath(path.to_vec())]));
        let Some(columns) = &self.columns else {
            let exact = self.fields.iter().position(|field| field == path);
            return match exact {
                Some(place) => KeptField::Value(place),
                None => KeptField::Within(0, scanner(&path.0)),
            };
        };
        let Some((first, rest)) = path.0.split_first() else {
            return KeptField::Whole(Arc::new(columns.clone()));
        };
        match (columns.iter().position(|column| column == first), rest) {
            (None, _) => KeptField::Nowhere,
            (Some(place), []) => KeptField::Value(place),
            (Some(place), rest) => KeptField::Within(place, scanner(rest)),
        }
    }

    /// Begins at a time, unless it has begun.
    pub fn start(&self, now: i64) {
        let mut state = self.state.write();
        if state.chain.is_none() {
            state.chain = Some(Chain::start(self.views(), now));
            state.now = Some(now);
        }
    }

    /// Adds a row of so many values, in the order of the plan's fields.
    ///
    /// # Errors
    /// It is full.
    pub fn insert(&self, now: i64, values: Box<[OwnedValue]>) -> Result<(), KeptFull> {
        self.start(now);
        self.advance(now);
        self.change(now, |own, state, now, delta| {
            if let Some(chain) = &mut state.chain {
                if chain.len() >= KEPT_ROWS_MAX {
                    return Err(KeptFull::Rows);
                }
                if own.meter.bytes() > STATE_BYTES_MAX {
                    return Err(KeptFull::Bytes);
                }
                let tuple = Tuple::new(values, now, state.number, &own.meter);
                state.number += 1;
                chain.insert(own.views(), own.reading(), now, tuple, delta);
            }
            Ok(())
        })
    }

    /// Takes rows away.
    pub fn delete(&self, now: i64, rows: &[Arc<Tuple>]) {
        let _ = self.change(now, |own, state, _, delta| {
            if let Some(chain) = &mut state.chain {
                for row in rows {
                    chain.remove(own.views(), own.reading(), row, delta);
                }
            }
            Ok(())
        });
    }

    /// Puts other values in rows' places; gives the new rows. A table's key may change too.
    pub fn update(&self, now: i64, rows: Vec<(Arc<Tuple>, Box<[OwnedValue]>)>) -> Vec<Arc<Tuple>> {
        let rows = rows.into_iter().map(|(row, values)| (row, Some(values)));
        self.replace(now, rows.collect())
    }

    /// The same, and takes away the rows that have no values, as one change.
    pub fn replace(&self, now: i64, rows: Vec<Replaced>) -> Vec<Arc<Tuple>> {
        let mut updated = Vec::with_capacity(rows.len());
        let _ = self.change(now, |own, state, now, delta| {
            let Some(chain) = &mut state.chain else {
                return Ok(());
            };
            for (row, values) in rows {
                let Some(values) = values else {
                    chain.remove(own.views(), own.reading(), &row, delta);
                    continue;
                };
                let tuple = Tuple::new(values, now, state.number, &own.meter);
                state.number += 1;
                let reading = own.reading();
                let stays = own.is_table && {
                    let View::Unique(keys) = &own.views[0] else {
                        return Ok(());
                    };
                    reading.key(&row, keys) == reading.key(&tuple, keys)
                };
                if !stays {
                    chain.remove(own.views(), reading, &row, delta);
                }
                chain.insert(own.views(), reading, now, tuple.clone(), delta);
                updated.push(tuple);
            }
            Ok(())
        });
        updated
    }

    /// Lets go of what is due until `now`.
    pub fn advance(&self, now: i64) {
        while let Some(due) = self.deadline().filter(|due| *due <= now) {
            let _ = self.change(due, |own, state, _, delta| {
                if let Some(chain) = &mut state.chain {
                    chain.advance(own.views(), own.reading(), due, delta);
                }
                Ok(())
            });
        }
        let mut state = self.state.write();
        state.now = state.now.max(Some(now));
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<i64> {
        self.state.read().chain.as_ref().and_then(Chain::deadline)
    }

    /// Its rows in their order.
    pub fn contents(&self) -> Vec<Arc<Tuple>> {
        let state = self.state.read();
        match &state.chain {
            Some(chain) => chain.contents(self.views()),
            None => Vec::new(),
        }
    }

    /// The columns by which a row is found at once: the keys of a table, or of a window that keeps
    /// one row of each.
    pub fn keys(&self) -> Option<Vec<&FieldPath>> {
        let [View::Unique(keys)] = self.views.as_slice() else {
            return None;
        };
        let column = |key: &Expression| match key {
            Expression::Field(place) => self.fields.get(usize::from(*place)),
            _ => None,
        };
        keys.iter().map(column).collect()
    }

    /// The row of a key, as [`encode_key`](crate::window::encode_key) writes it.
    pub fn find(&self, key: &[u8]) -> Option<Arc<Tuple>> {
        self.state.read().chain.as_ref()?.by_key(key).cloned()
    }

    /// True when there are changes that nobody was told of yet.
    pub fn has_untold(&self) -> bool {
        !self.state.read().changes.is_empty()
    }

    /// Its rows as they stood before the changes that nobody was told of yet.
    pub fn told(&self) -> Vec<Arc<Tuple>> {
        let mut rows = self.contents();
        let state = self.state.read();
        if state.changes.is_empty() {
            return rows;
        }
        let entered: HashSet<u64> = state
            .changes
            .iter()
            .flat_map(|change| &change.new)
            .map(|row| row.number)
            .collect();
        rows.retain(|row| !entered.contains(&row.number));
        let left = state.changes.iter().flat_map(|change| &change.old);
        rows.extend(left.filter(|row| !entered.contains(&row.number)).cloned());
        rows.sort_by_key(|row| row.number);
        rows
    }

    /// The changes since the last call.
    pub fn take_changes(&self) -> Vec<Change> {
        let mut state = self.state.write();
        state.is_changed = false;
        std::mem::take(&mut state.changes)
    }

    /// True when it changed since the changes were taken; a table tells of none, and changes.
    pub fn has_changes(&self) -> bool {
        self.state.read().is_changed
    }

    /// True once its time has begun.
    pub fn has_begun(&self) -> bool {
        self.state.read().chain.is_some()
    }

    /// Bytes of its rows, about.
    pub fn bytes(&self) -> usize {
        self.meter.bytes()
    }

    /// A row as JSON.
    pub fn text(&self, row: &Tuple) -> Vec<u8> {
        let mut text = Vec::new();
        match &self.columns {
            Some(columns) => write_columns(columns, &row.values, &mut text),
            None => match row.values.first() {
                Some(OwnedValue::Json(whole)) => text.extend_from_slice(whole.as_bytes()),
                _ => text.extend_from_slice(b"{}"),
            },
        }
        text
    }

    /// The values of a row with one column changed; a column that is not there changes nothing.
    pub fn assigned(
        &self,
        values: &[OwnedValue],
        column: &str,
        value: &Value<'_>,
    ) -> Box<[OwnedValue]> {
        let mut values: Box<[OwnedValue]> = values.into();
        match &self.columns {
            Some(columns) => {
                let place = columns.iter().position(|known| known == column);
                if let Some(known) = place.and_then(|place| values.get_mut(place)) {
                    known.assign(value);
                }
            }
            None => {
                let whole = match values.first() {
                    Some(OwnedValue::Json(whole)) => whole.to_string(),
                    _ => "{}".to_owned(),
                };
                values = self.values_of(&with_member(&whole, column, value));
            }
        }
        values
    }

    /// The values of a row of nulls.
    pub fn empty_row(&self) -> Box<[OwnedValue]> {
        match &self.columns {
            Some(_) => vec![OwnedValue::Null; self.fields.len()].into(),
            None => self.values_of(b"{}"),
        }
    }

    /// The values of a row that is JSON.
    pub fn values_of(&self, text: &[u8]) -> Box<[OwnedValue]> {
        let mut values = Vec::new();
        // What is no JSON has no fields: all are null.
        let _ = Scanner::new(&self.fields).scan(text, &mut values);
        values.iter().map(crate::query::layout::owned).collect()
    }

    /// Writes the rows.
    pub fn encode(&self, out: &mut Encoder) {
        let state = self.state.read();
        encode_time(state.now, out);
        out.u64(state.number);
        out.u8(u8::from(state.chain.is_some()));
        if let Some(chain) = &state.chain {
            chain.encode(&mut TupleWriter::default(), out);
        }
    }

    /// Reads them back; `None` when they do not fit.
    pub fn decode(&self, from: &mut Decoder<'_>) -> Option<()> {
        let mut read = State {
            now: decode_time(from)?,
            number: from.u64()?,
            ..State::default()
        };
        if from.u8()? != 0 {
            let mut tuples = TupleReader::new(self.meter.clone());
            read.chain = Some(Chain::decode(self.views(), &mut tuples, from)?);
        }
        *self.state.write() = read;
        Some(())
    }

    fn views(&self) -> Views<'_> {
        Views::new(&self.views, self.is_union)
    }

    fn reading(&self) -> Reading<'_> {
        Reading {
            layout: &self.layout,
            alias: 0,
        }
    }

    /// Does something at an instant and notes what it changed.
    fn change(
        &self,
        now: i64,
        work: impl FnOnce(&Self, &mut State, i64, &mut Delta) -> Result<(), KeptFull>,
    ) -> Result<(), KeptFull> {
        let mut state = self.state.write();
        let now = state.now.map_or(now, |known| known.max(now));
        let mut delta = Delta::default();
        let done = work(self, &mut state, now, &mut delta);
        state.now = Some(now);
        state.is_changed = true;
        if !delta.is_empty() && !self.is_table {
            state.changes.push(Change {
                now,
                new: delta.new,
                old: delta.old,
            });
        }
        done
    }
}

/// A row of columns as JSON.
pub fn write_columns(columns: &[String], values: &[OwnedValue], out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (column, value)) in columns.iter().zip(values).enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_text(out, column);
        out.push(b':');
        value.as_value().write_json(out);
    }
    out.push(b'}');
}

/// A JSON object with one member set.
fn with_member(object: &str, name: &str, value: &Value<'_>) -> Vec<u8> {
    let parsed: Result<serde_json::Map<String, serde_json::Value>, _> =
        serde_json::from_str(object);
    let mut text = Vec::new();
    value.write_json(&mut text);
    let mut members = parsed.unwrap_or_default();
    let value = serde_json::from_slice(&text).unwrap_or_default();
    members.insert(name.to_owned(), value);
    serde_json::to_vec(&members).unwrap_or_default()
}
