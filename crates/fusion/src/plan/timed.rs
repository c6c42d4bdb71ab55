//! Event time by a statement's policies: the field that says when an event happened.

use super::{Plan, QueryTime, Shape, SlotField, Stage};
use crate::expression::Pseudo;
use crate::json::FieldPath;

impl Plan {
    /// The same by the events' own time, which stands in the field of that path (or is the source's
    /// own, `_timestamp`).
    ///
    /// # Errors
    /// The statement keeps nothing that goes by time, or says its time elsewhere; with what to do.
    pub fn by_event_time(mut self, path: &str) -> Result<Plan, String> {
        if self.within().is_some() {
            return Err("SQL names its time columns in the join's condition".to_owned());
        }
        let query = match &mut self.stage {
            Stage::Query(query) if !matches!(query.shape, Shape::On(_)) => query,
            Stage::Windowed { .. } => {
                return Err("SQL names its time column in TUMBLE, HOP or SESSION".to_owned());
            }
            Stage::PerEvent { .. } | Stage::Query(_) | Stage::Create(_) => {
                return Err(
                    "the statement has no window, join or pattern whose time it could be"
                        .to_owned(),
                );
            }
        };
        let field = match path {
            "_timestamp" => SlotField::Pseudo(Pseudo::Timestamp),
            _ => {
                let parts: Vec<String> = path.split('.').map(str::to_owned).collect();
                if parts.iter().any(String::is_empty) {
                    return Err(format!("'{path}' is no field"));
                }
                let known = self.fields.iter().position(|field| field.0 == parts);
                let place = known.unwrap_or(self.fields.len());
                if known.is_none() {
                    self.fields.push(FieldPath(parts));
                }
                SlotField::Payload(
                    u16::try_from(place).map_err(|_| "the statement reads too many fields")?,
                )
            }
        };
        query.time = QueryTime::Event(vec![field]);
        Ok(self)
    }
}
