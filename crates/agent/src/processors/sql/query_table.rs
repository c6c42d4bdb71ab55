//! QueryDatabaseTable: the rows of a table that are new since the last time.
//!
//! New is what has a larger value in the maximum-value columns. The largest values seen are the
//! processor's state, committed with the rows, so that none is skipped and none comes twice.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::common::{self, Connected, OUTPUT_FORMAT, ROWS_MAX, SERVICE};
use crate::database::{Kind, Place};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::Attributes;
use crate::json::{Fields, Json};
use crate::processors::fragments;
use crate::processors::refused::Refused;
use crate::processors::{
    AttributeKind, Dynamic, Expressions, Input, Next, Processor, ProcessorError, ProcessorKind,
    PropertyKind, RelationshipKind, Settings,
};
use crate::record_sets::Writers;
use crate::session::ProcessSession;

/// The processor's definition.
pub(in crate::processors) const KIND: ProcessorKind = ProcessorKind {
    name: "QueryDatabaseTable",
    description: "Reads the rows of a table, and from then on those with larger values in its \
                  Maximum-value Columns; what was read is on record with the rows. \
                  initial.maxvalue.COLUMN says where to begin.",
    properties: &[
        SERVICE,
        PropertyKind::new("Table Name", "The table, as a statement names it.")
            .required()
            .expressions(Expressions::Once),
        PropertyKind::new(
            "Columns to Return",
            "Columns, separated by commas; all, where this is empty.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new(
            "Maximum-value Columns",
            "Columns whose values grow, separated by commas; every row comes each time, where \
             this is empty. Of several, the first one tells rows apart; of the others, equal \
             values come too.",
        )
        .expressions(Expressions::Once),
        PropertyKind::new("Where Clause", "A condition that rows must fulfil as well.")
            .expressions(Expressions::Once),
        OUTPUT_FORMAT,
        ROWS_MAX,
    ],
    dynamic: Dynamic::Named {
        prefix: INITIAL,
        meaning: "the value of a maximum-value column to begin behind",
    },
    relationships: &[RelationshipKind {
        name: "success",
        description: "The new rows.",
    }],
    writes: &[
        AttributeKind::new("tablename", "The table."),
        AttributeKind::new("querydbtable.row.count", "Rows of the FlowFile."),
        AttributeKind::new(
            "maxvalue.<column>",
            "The largest value of a maximum-value column so far.",
        ),
        fragments::IDENTIFIER,
        fragments::INDEX,
        fragments::COUNT,
    ],
    input: Input::Forbidden,
    make: |settings| QueryDatabaseTable::new(settings).map(|made| Box::new(made) as _),
};

struct QueryDatabaseTable {
    database: Connected,
    table: String,
    columns: Option<String>,
    /// In the flow's order.
    growing: Vec<String>,
    condition: Option<String>,
    initial: BTreeMap<String, String>,
    rows_max: Expression,
    writers: Writers,
}

/// What was read, as the processor's state keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    version: u8,
    table: String,
    /// The largest values by column.
    values: BTreeMap<String, String>,
}

impl QueryDatabaseTable {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let growing = settings.text("Maximum-value Columns")?.unwrap_or_default();
        let growing = growing.split(',').map(str::trim);
        let growing: Vec<String> = growing
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let mut initial = BTreeMap::new();
        for (name, value) in settings.dynamic_texts() {
            let column = name.trim_start_matches(INITIAL);
            let known = growing
                .iter()
                .find(|known| known.eq_ignore_ascii_case(column));
            let known = known.ok_or_else(|| {
                format!("{name}: '{column}' is none of the Maximum-value Columns")
            })?;
            initial.insert(known.clone(), value);
        }
        Ok(QueryDatabaseTable {
            database: Connected::new(settings)?,
            table: settings.needed("Table Name")?,
            columns: settings.text("Columns to Return")?,
            growing,
            condition: settings.text("Where Clause")?,
            initial,
            rows_max: settings
                .expression(ROWS_MAX.name)?
                .unwrap_or_else(|| Expression::literal("0")),
            writers: Writers::json(settings.needed(OUTPUT_FORMAT.name)? == "JSON-Pretty"),
        })
    }

    /// What was read before; another table begins anew.
    fn seen(&self, state: &Bytes) -> Seen {
        let kept: Seen = serde_json::from_slice(state).unwrap_or_default();
        let mut values = match kept.table == self.table {
            true => kept.values,
            false => self.initial.clone(),
        };
        values.retain(|name, _| self.growing.contains(name));
        Seen {
            version: STATE_VERSION,
            table: self.table.clone(),
            values,
        }
    }

    fn query(&self, seen: &Seen) -> String {
        let columns = self.columns.as_deref().unwrap_or("*");
        let mut sql = format!("SELECT {columns} FROM {}", self.table);
        let mut conditions: Vec<String> = self.condition.iter().map(|c| format!("({c})")).collect();
        for (index, column) in self.growing.iter().enumerate() {
            if let Some(value) = seen.values.get(column) {
                let larger = if index == 0 { ">" } else { ">=" };
                let value = literal(&self.database.place, value);
                conditions.push(format!("{column} {larger} {value}"));
            }
        }
        if !conditions.is_empty() {
            sql.push_str(" WHERE ");
            sql.push_str(&conditions.join(" AND "));
        }
        sql
    }

    fn read(&mut self, context: &Context, session: &mut ProcessSession<'_>) -> Result<(), Refused> {
        let before = self.seen(&session.state());
        let sql = self.query(&before);
        let rows_max = common::rows_max(session, &self.rows_max, None)?;
        let mut seen = before.clone();
        let (writers, growing) = (&self.writers, &self.growing);
        let contents = self.database.with(context, |link| {
            let rows = link.query(context, sql);
            common::contents(session, rows, rows_max, writers, |row| {
                seen.note(growing, row)
            })
        })?;
        if let [(_, 0)] = contents.as_slice() {
            return Ok(());
        }
        let identifier = uuid::Uuid::new_v4().to_string();
        let count = contents.len().to_string();
        for (index, (content, rows)) in contents.into_iter().enumerate() {
            let mut attributes = Attributes::new([
                ("tablename", self.table.clone()),
                ("querydbtable.row.count", rows.to_string()),
                ("mime.type", "application/json".to_owned()),
            ]);
            for (column, value) in &seen.values {
                attributes.set(&format!("maxvalue.{column}"), value.as_str());
            }
            if count != "1" {
                attributes.set(fragments::IDENTIFIER.name, identifier.as_str());
                attributes.set(fragments::INDEX.name, index.to_string());
                attributes.set(fragments::COUNT.name, count.as_str());
            }
            let mut made = session.create(Arc::new(attributes));
            session.set_content(&mut made, content)?;
            session.transfer(made, SUCCESS);
        }
        if seen != before {
            let state = serde_json::to_vec(&seen).expect("plain texts are always JSON");
            session.set_state(state.into())?;
        }
        Ok(())
    }
}

impl Seen {
    /// Takes note of a row.
    fn note(&mut self, growing: &[String], row: &Fields) -> Result<(), String> {
        for column in growing {
            let mut fields = row.iter();
            let found = fields.find(|(name, _)| name.eq_ignore_ascii_case(column));
            let Some((_, value)) = found else {
                return Err(format!(
                    "the maximum-value column '{column}' is not among the Columns to Return"
                ));
            };
            if *value == Json::Null {
                continue;
            }
            let value = value.to_plain();
            match self.values.get_mut(column) {
                Some(largest) if order(&value, largest) == Ordering::Greater => *largest = value,
                Some(_) => {}
                None => {
                    self.values.insert(column.clone(), value);
                }
            }
        }
        Ok(())
    }
}

/// As numbers where both are, else as texts: times that databases write sort so.
fn order(left: &str, right: &str) -> Ordering {
    if let (Ok(left), Ok(right)) = (left.parse::<i128>(), right.parse::<i128>()) {
        return left.cmp(&right);
    }
    match (left.parse::<f64>(), right.parse::<f64>()) {
        (Ok(left), Ok(right)) => left.total_cmp(&right),
        _ => left.cmp(right),
    }
}

/// A value as a statement compares with it. PostgreSQL finds the type of a text by itself; the
/// others compare whole numbers exactly only when they are written as such.
fn literal(place: &Place, value: &str) -> String {
    match place.kind() != Kind::Postgres && value.parse::<i128>().is_ok() {
        true => value.to_owned(),
        false => place.literal(value),
    }
}

impl Processor for QueryDatabaseTable {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        match self.read(context, session) {
            Ok(()) => Ok(Next::Scheduled),
            Err(Refused::FlowFile(reason)) => Err(ProcessorError::Failed(reason)),
            Err(Refused::Session(error)) => Err(error),
        }
    }

    fn stop(&mut self) {
        self.database.close();
    }
}

const INITIAL: &str = "initial.maxvalue.";
const STATE_VERSION: u8 = 1;
const SUCCESS: usize = 0;
