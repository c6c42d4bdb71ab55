//! Rows as SensorThings Observations, the way the DFM maps them.
//!
//! | columns of a row | result |
//! | --- | --- |
//! | one | the bare value |
//! | two named `k` or `key` and `v`, `value` or `values` | a map; of several rows one map of lists |
//! | any, some named `time`, `date` or `timestamp`, or `id` | these become the Observation's own time and id; the rest as in the other lines |
//! | others | an object of all columns |
//!
//! The rows of one window, given at once, become one Observation: its result is the array of their
//! results. Times are RFC 3339 in UTC; without a time column it is the row's own.

use base::{UnixMillis, format_rfc3339};
use serde_json::{Map, Value, json};

use crate::output::{Output, Row};

/// The rows as Observations of the datastream that the statement is. `is_grouped` says that rows
/// of one time were given at once.
pub fn observations(output: &Output, statement: &str, is_grouped: bool) -> Output {
    let mut formed = Output::default();
    let texts: Vec<&[u8]> = output.texts().collect();
    let mut first = 0;
    while first < texts.len() {
        let row = &output.rows[first];
        let rest = output.rows[first..].iter();
        let together = match is_grouped {
            true => rest
                .take_while(|other| other.timestamp == row.timestamp)
                .count(),
            false => 1,
        };
        let rows = &texts[first..first + together];
        let observation = observation(rows, row.timestamp, statement);
        serde_json::to_writer(&mut formed.bytes, &observation).expect("JSON is written to memory");
        let taken = &output.rows[first..first + together];
        formed.rows.push(Row {
            end: formed.bytes.len(),
            timestamp: row.timestamp,
            key: row.key.clone(),
            events: taken.iter().map(|row| row.events).sum(),
            is_old: row.is_old,
        });
        first += together;
    }
    formed
}

fn observation(rows: &[&[u8]], at: UnixMillis, statement: &str) -> Value {
    let mut read: Vec<Mapped> = Vec::with_capacity(rows.len());
    for row in rows {
        let columns = serde_json::from_slice::<Map<String, Value>>(row).unwrap_or_default();
        read.push(Mapped::of(columns));
    }
    let first = read.first();
    let time = first.and_then(|row| row.time.clone());
    let id = first.and_then(|row| row.id.clone());
    let mut observation = json!({
        "phenomenonTime": time.unwrap_or_else(|| json!(format_rfc3339(at))),
        "resultTime": format_rfc3339(at),
        "result": result(read),
        "Datastream": {"@iot.id": statement},
    });
    if let Some(id) = id {
        observation["@iot.id"] = id;
    }
    observation
}

/// A row without what belongs to the Observation itself.
struct Mapped {
    time: Option<Value>,
    id: Option<Value>,
    rest: Map<String, Value>,
}

impl Mapped {
    fn of(mut columns: Map<String, Value>) -> Mapped {
        // A lone column is the result, whatever it is called.
        if columns.len() < 2 {
            return Mapped {
                time: None,
                id: None,
                rest: columns,
            };
        }
        let mut take = |names: &[&str]| {
            let found = columns
                .keys()
                .find(|column| names.iter().any(|name| column.eq_ignore_ascii_case(name)));
            let found = found.cloned()?;
            columns.remove(&found)
        };
        let time = take(&["time", "date", "timestamp"]).map(|time| match time.as_i64() {
            Some(ms) => json!(format_rfc3339(UnixMillis(ms))),
            None => time,
        });
        let id = take(&["id"]);
        Mapped {
            time,
            id,
            rest: columns,
        }
    }

    /// The key and the value, where the row is such a pair.
    fn pair(&self) -> Option<(String, &Value)> {
        let named = |names: &[&str]| {
            let mut found = self.rest.iter();
            let is_named = |column: &str| names.iter().any(|n| column.eq_ignore_ascii_case(n));
            found
                .find(|(column, _)| is_named(column))
                .map(|(_, value)| value)
        };
        if self.rest.len() != 2 {
            return None;
        }
        let (key, value) = (named(&["k", "key"])?, named(&["v", "value", "values"])?);
        let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        Some((key, value))
    }

    fn into_result(mut self) -> Value {
        if let Some((key, value)) = self.pair() {
            return json!({ key: value.clone() });
        }
        match self.rest.len() {
            1 => {
                let value = self.rest.iter_mut().next().map(|(_, value)| value.take());
                value.unwrap_or_default()
            }
            _ => Value::Object(self.rest),
        }
    }
}

fn result(mut rows: Vec<Mapped>) -> Value {
    if rows.len() == 1 {
        return rows.remove(0).into_result();
    }
    let pairs: Vec<(String, &Value)> = rows.iter().filter_map(Mapped::pair).collect();
    if pairs.len() == rows.len() {
        let mut lists: Map<String, Value> = Map::new();
        for (key, value) in pairs {
            let list = lists.entry(key).or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(value.clone());
            }
        }
        return Value::Object(lists);
    }
    rows.into_iter().map(Mapped::into_result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(rows: &[(i64, Value)], is_grouped: bool) -> Vec<Value> {
        let mut output = Output::default();
        for (at, row) in rows {
            output.bytes.extend_from_slice(row.to_string().as_bytes());
            output.rows.push(Row {
                end: output.bytes.len(),
                timestamp: UnixMillis(*at),
                key: None,
                events: 2,
                is_old: false,
            });
        }
        let formed = observations(&output, "s", is_grouped);
        assert_eq!(formed.events(), output.events());
        formed
            .texts()
            .map(|text| serde_json::from_slice(text).unwrap())
            .collect()
    }

    #[test]
    fn a_row_maps_by_the_names_of_its_columns() {
        for (row, result) in [
            (json!({"mean": 1.5}), json!(1.5)),
            (json!({"id": "x"}), json!("x")),
            (json!({"key": "a", "v": 1}), json!({"a": 1})),
            (json!({"a": 1, "b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": 1, "time": 0}), json!(1)),
            (
                json!({"a": 1, "b": 2, "Id": "x", "date": 0}),
                json!({"a": 1, "b": 2}),
            ),
        ] {
            let observation = &results(&[(1_000, row.clone())], false)[0];
            assert_eq!(observation["result"], result, "{row}");
            assert_eq!(observation["Datastream"]["@iot.id"], "s");
            let has_id = row.get("Id").is_some();
            assert_eq!(
                observation.get("@iot.id").is_some(),
                has_id,
                "{observation}"
            );
            let has_time = row.get("time").or(row.get("date")).is_some();
            let time = if has_time {
                "1970-01-01T00:00:00.000Z"
            } else {
                "1970-01-01T00:00:01.000Z"
            };
            assert_eq!(observation["phenomenonTime"], time, "{row}");
        }
    }

    #[test]
    fn rows_given_at_once_are_one_observation() {
        let rows = [
            (9, json!({"a": 1, "b": 1})),
            (9, json!({"a": 2, "b": 2})),
            (10, json!({"a": 3, "b": 3})),
        ];
        let observations = results(&rows, true);
        assert_eq!(observations.len(), 2);
        assert_eq!(
            observations[0]["result"],
            json!([{"a": 1, "b": 1}, {"a": 2, "b": 2}])
        );
        assert_eq!(results(&rows, false).len(), 3);
        let pairs = [
            (9, json!({"k": "a", "v": 1})),
            (9, json!({"k": "b", "v": 2})),
            (9, json!({"k": "a", "v": 3})),
        ];
        assert_eq!(
            results(&pairs, true)[0]["result"],
            json!({"a": [1, 3], "b": [2]})
        );
    }
}
