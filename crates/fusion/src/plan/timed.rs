//! Plans and time: event time by a statement's policies, and whether rows come by the clock.

use super::{OutputEvery, OutputKind, Plan, Query, QueryTime, Shape, SlotField, Stage, View};
use crate::expression::Pseudo;
use crate::json::FieldPath;

impl Plan {
    /// Whether rows come by the clock, or many events' together, and not with each event: windows of
    /// SQL, batches, and outputs by the clock.
    pub fn tells_together(&self) -> bool {
        match &self.stage {
            Stage::Windowed { .. } => true,
            Stage::Query(query) => tells_together(query),
            Stage::PerEvent { .. } | Stage::Create(_) => false,
        }
    }

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

fn tells_together(query: &Query) -> bool {
    if let Some(rate) = &query.output {
        match rate.every {
            OutputEvery::Time(_) | OutputEvery::At(_) => return rate.kind != OutputKind::First,
            OutputEvery::Never => return true,
            OutputEvery::Always => {}
            OutputEvery::Events(_) | OutputEvery::When(_) => return false,
        }
    }
    let is_single = matches!(&query.shape, Shape::Events { joins } if joins.is_empty());
    let views = query.inputs.first().map_or(&[][..], |input| &input.views);
    let mut windows = views.iter().filter(|view| !matches!(view, View::Group(_)));
    let mut others = windows.clone();
    is_single && windows.any(View::is_batch) && others.all(View::is_batch)
}

#[cfg(test)]
mod tests {
    use crate::epl::{Catalog, compile};

    #[test]
    fn batches_and_outputs_by_the_clock_tell_many_events_together() {
        for (text, is_so) in [
            ("select a from E#time_batch(10 sec)", true),
            ("select a from E#ext_timed_batch(ts, 10 sec)", true),
            ("select a from E#groupwin(k)#length_batch(5)", true),
            (
                "select a from E#length(5)#time_batch(5 sec) retain-intersection",
                false,
            ),
            (
                "select k, sum(a) as s from E group by k output last every 10 sec",
                true,
            ),
            (
                "select a from E#time(10 sec) output snapshot at (*/5, *, *, *, *)",
                true,
            ),
            (
                "create context C start @now end after 1 min; context C select a from E output when \
                 terminated",
                true,
            ),
            ("select a from E output first every 10 sec", false),
            ("select a from E output last every 10 events", false),
            ("select sum(a) as s from E#length(5)", false),
            (
                "select x.a as a from E#time_batch(1 sec) as x, F#lastevent as y",
                false,
            ),
            ("select x.a as a from pattern [every x=E]", false),
        ] {
            let plan = compile(text, &Catalog::default()).unwrap();
            assert_eq!(plan.tells_together(), is_so, "{text}");
        }
    }
}
