//! SenML: the object form of the drafts and RFC 8428's array, one event per record.
//!
//! Base fields hold from the record that brings them. A resolved record has the whole name, value,
//! sum and time; a time below 2^28 seconds is relative to the message's arrival (RFC 8428
//! section 4.5.3). A field whose name ends in `_` must be understood (section 4.4), so a record
//! with one is refused, and with it the message.

use base::UnixMillis;
use serde_json::{Map, Number, Value, json};

use super::Decoded;
use crate::limits::SENML_RECORDS_MAX;

/// The events of a message.
///
/// # Errors
/// What is no SenML in it.
pub fn records(message: &Value, now: UnixMillis, out: &mut Decoded) -> Result<(), String> {
    let mut base = Base::default();
    let records = match message {
        Value::Array(records) => records,
        Value::Object(pack) => {
            base.take(pack)?;
            match field(pack, "e").or_else(|| pack.get("e")) {
                Some(Value::Array(entries)) => entries,
                // One record of the array form, outside of its array.
                _ => {
                    base.entry(pack, now, out)?;
                    return Ok(());
                }
            }
        }
        _ => return Err("it is neither an array of records nor an object with 'e'".to_owned()),
    };
    if records.len() > SENML_RECORDS_MAX {
        return Err(format!(
            "it has {} records: send at most {SENML_RECORDS_MAX} in a message",
            records.len()
        ));
    }
    let is_array_form = message.is_array();
    for record in records {
        let Value::Object(record) = record else {
            return Err("a record is no object".to_owned());
        };
        if is_array_form {
            base.take(record)?;
            base.entry(record, now, out)?;
        } else {
            base.entry(&renamed(record), now, out)?;
        }
    }
    Ok(())
}

/// What base fields hold at a record.
#[derive(Default)]
struct Base {
    name: String,
    time: f64,
    unit: Option<Value>,
    value: Option<Number>,
    sum: Option<Number>,
}

impl Base {
    fn take(&mut self, record: &Map<String, Value>) -> Result<(), String> {
        if let Some(name) = text(record, "bn")? {
            self.name = name.to_owned();
        }
        if let Some(time) = number(record, "bt")? {
            self.time = double(time);
        }
        if let Some(unit) = text(record, "bu")? {
            self.unit = Some(json!(unit));
        }
        for (name, place) in [("bv", &mut self.value), ("bs", &mut self.sum)] {
            if let Some(value) = number(record, name)? {
                *place = Some(value.clone());
            }
        }
        match number(record, "bver")? {
            Some(version) if double(version) > VERSION_MAX => Err(format!(
                "its version {version} is newer than {VERSION_MAX}, which is known here"
            )),
            _ => Ok(()),
        }
    }

    fn entry(
        &self,
        record: &Map<String, Value>,
        now: UnixMillis,
        out: &mut Decoded,
    ) -> Result<(), String> {
        if let Some(name) = record.keys().find(|name| name.ends_with('_')) {
            return Err(format!("the field {name} must be understood, and is not"));
        }
        let name = format!("{}{}", self.name, text(record, "n")?.unwrap_or_default());
        if name.is_empty() {
            return Err("a record has no name: it needs 'n' or 'bn'".to_owned());
        }
        let mut event = Map::new();
        event.insert("n".to_owned(), Value::String(name));
        let unit = field(record, "u").cloned().or_else(|| self.unit.clone());
        event.extend(unit.map(|unit| ("u".to_owned(), unit)));
        let mut values = 0;
        for name in ["vs", "vb", "vd"] {
            if let Some(value) = field(record, name) {
                event.insert(name.to_owned(), value.clone());
                values += 1;
            }
        }
        let sum = sum(self.sum.as_ref(), number(record, "s")?);
        let own = number(record, "v")?;
        // Without any value of its own the record tells the base value.
        let value = match own {
            None if values > 0 || sum.is_some() => None,
            own => self::sum(self.value.as_ref(), own),
        };
        values += usize::from(value.is_some());
        if values > 1 || (values == 0 && sum.is_none()) {
            let name = &event["n"];
            return Err(format!(
                "the record {name} needs one of v, vs, vb, vd, or s"
            ));
        }
        event.extend(value.map(|value| ("v".to_owned(), Value::Number(value))));
        event.extend(sum.map(|sum| ("s".to_owned(), Value::Number(sum))));
        let mut time = self.time + number(record, "t")?.map_or(0.0, double);
        if time < RELATIVE_BELOW {
            time += now.0 as f64 / 1_000.0;
        }
        event.insert("t".to_owned(), json!(time));
        event.insert("time".to_owned(), json!((time * 1_000.0).round() as i64));
        if let Some(update) = field(record, "ut") {
            event.insert("ut".to_owned(), update.clone());
        }
        out.push(&Value::Object(event));
        Ok(())
    }
}

/// An entry of the object form under the array form's names: `sv` is `vs`, `bv` is `vb`.
fn renamed(record: &Map<String, Value>) -> Map<String, Value> {
    let rename = |name: &String| match name.as_str() {
        "sv" => "vs".to_owned(),
        "bv" => "vb".to_owned(),
        _ => name.clone(),
    };
    record
        .iter()
        .map(|(name, value)| (rename(name), value.clone()))
        .collect()
}

/// A field by its name, or by the label that stands for it in CBOR.
fn field<'r>(record: &'r Map<String, Value>, name: &str) -> Option<&'r Value> {
    let by_name = record.get(name);
    let found = by_name.or_else(|| {
        let (_, label) = LABELS.iter().find(|(known, _)| *known == name)?;
        record.get(*label)
    });
    found.filter(|value| !value.is_null())
}

fn text<'r>(record: &'r Map<String, Value>, name: &str) -> Result<Option<&'r str>, String> {
    match field(record, name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{name} is no text")),
    }
}

fn number<'r>(record: &'r Map<String, Value>, name: &str) -> Result<Option<&'r Number>, String> {
    match field(record, name) {
        None => Ok(None),
        Some(Value::Number(number)) => Ok(Some(number)),
        Some(_) => Err(format!("{name} is no number")),
    }
}

fn double(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

/// The sum of what there is; a lone number stays as it was written.
fn sum(a: Option<&Number>, b: Option<&Number>) -> Option<Number> {
    match (a, b) {
        (Some(a), Some(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.checked_add(b).map(Number::from),
            _ => Number::from_f64(double(a) + double(b)),
        },
        (one, other) => one.or(other).cloned(),
    }
}

/// Below so many seconds a time is relative to now.
const RELATIVE_BELOW: f64 = 268_435_456.0;

/// The version of RFC 8428.
const VERSION_MAX: f64 = 10.0;

/// RFC 8428, table 4.
const LABELS: [(&str, &str); 15] = [
    ("bver", "-1"),
    ("bn", "-2"),
    ("bt", "-3"),
    ("bu", "-4"),
    ("bv", "-5"),
    ("bs", "-6"),
    ("n", "0"),
    ("u", "1"),
    ("v", "2"),
    ("vs", "3"),
    ("vb", "4"),
    ("s", "5"),
    ("t", "6"),
    ("ut", "7"),
    ("vd", "8"),
];
