//! JSON in attributes.

use super::{Function, Given, on};
use crate::expression::Value;
use crate::json::{Json, Path};

pub(super) const FUNCTIONS: &[Function] = &[
    on("isJson", 0, 0, |given| {
        let is_json = given.text().trim_start().starts_with(['{', '[']);
        Ok(Value::Flag(is_json && Json::parse(&given.text()).is_ok()))
    }),
    on("jsonPath", 1, 1, |mut given| {
        let (document, path) = given.document_and_path()?;
        let mut found = path.values(&document);
        Ok(Value::Text(match found.len() {
            0 => String::new(),
            1 => found.remove(0).to_plain(),
            _ => Json::List(found).to_text(),
        }))
    }),
    on("jsonPathDelete", 1, 1, |mut given| {
        let (mut document, path) = given.document_and_path()?;
        path.remove(&mut document);
        Ok(Value::Text(document.to_text()))
    }),
    on("jsonPathSet", 2, 2, |mut given| {
        let (mut document, path) = given.document_and_path()?;
        let value = given.json(1);
        path.update(&mut document, |place| *place = value.clone());
        Ok(Value::Text(document.to_text()))
    }),
    on("jsonPathAdd", 2, 2, |mut given| {
        let (mut document, path) = given.document_and_path()?;
        let value = given.json(1);
        path.update(&mut document, |place| {
            if let Json::List(items) = place {
                items.push(value.clone());
            }
        });
        Ok(Value::Text(document.to_text()))
    }),
    on("jsonPathPut", 3, 3, |mut given| {
        let (mut document, path) = given.document_and_path()?;
        let value = given.json(1);
        let key = given.argument(2);
        path.update(&mut document, |place| {
            if let Json::Object(fields) = place {
                fields.set(&key, value.clone());
            }
        });
        Ok(Value::Text(document.to_text()))
    }),
];

impl Given<'_> {
    fn document_and_path(&mut self) -> Result<(Json, Path), String> {
        let document = Json::parse(&self.text())?;
        Ok((document, Path::parse(&self.argument(0))?))
    }

    /// An argument as JSON of its own kind.
    fn json(&mut self, index: usize) -> Json {
        match std::mem::replace(&mut self.arguments[index], Value::Null) {
            Value::Null => Json::Null,
            Value::Text(text) => Json::Text(text),
            Value::Whole(number) => Json::Whole(number),
            Value::Fraction(number) => Json::Fraction(number),
            Value::Flag(flag) => Json::Flag(flag),
        }
    }
}
