//! The syntax tree onto a [`Plan`].

mod calls;
mod contexts;
mod demand;
mod expressions;
mod inputs;
mod names;
mod output;
mod patterns;
mod select;
mod subqueries;
mod tables;
mod views;

use mqtt::{TopicFilter, TopicName as MqttTopic};

use super::Catalog;
use super::ast::{Body, CreateContext, CreateSchema, Ident, Statement};
use crate::error::TextError;
use crate::functions::user::Binder;
use crate::plan::{Plan, Sink, Source};

type Checked<T> = Result<T, TextError>;

/// Lowers the one statement of a text, with the declarations before it.
///
/// # Errors
/// It names what is not there, or is not supported; the error points at the place.
pub fn lower(statements: &[Statement], catalog: &Catalog, binder: Binder) -> Checked<Plan> {
    let Some((last, declarations)) = statements.split_last() else {
        return Err(
            super::token::Place::default().error("the text is empty: write select … from …")
        );
    };
    let mut environment = Environment {
        catalog,
        binder,
        contexts: Vec::new(),
        schemas: Vec::new(),
    };
    for declaration in declarations {
        match &declaration.body {
            Body::CreateContext(context) => environment.contexts.push(context),
            // Fields have the types that their values have.
            Body::CreateSchema(schema) => environment.schemas.push(schema),
            _ => {
                return Err(declaration.place.error(
                    "one statement at a time: before it stand only create schema and create \
                     context; post the others by themselves",
                ));
            }
        }
    }
    let context = last.context.as_ref();
    match &last.body {
        Body::Select(query) => select::select(query, context, &environment),
        Body::On(on) => tables::on(on, context, &environment),
        Body::CreateWindow(create) => tables::create_window(create, &environment),
        Body::CreateTable(create) => tables::create_table(create),
        Body::CreateSchema(_) | Body::CreateContext(_) => Err(last.place.error(
            "a schema or context does nothing by itself: write the statement that uses it after \
             it, in the same text",
        )),
        Body::InsertValues(..) | Body::Delete(..) | Body::Update(..) => Err(last.place.error(
            "what works on demand runs once, not as a statement: send it as a query (thalweg \
             statements query), or write on Type … to do it with each event",
        )),
    }
}

pub use calls::{is_method, is_namespace};
pub use demand::lower_once;

/// What surrounds a statement.
pub struct Environment<'e> {
    catalog: &'e Catalog,
    binder: Binder,
    contexts: Vec<&'e CreateContext>,
    schemas: Vec<&'e CreateSchema>,
}

impl Environment<'_> {
    /// The context of that name.
    pub fn context(&self, name: &str) -> Option<&CreateContext> {
        self.contexts
            .iter()
            .copied()
            .find(|context| context.name.text == name)
    }

    /// The functions of one's own that can be called.
    pub fn binder(&self) -> Binder {
        self.binder.clone()
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        self.catalog
    }

    /// The columns of the schema or named window of that name, where they are known.
    pub fn columns(&self, name: &str) -> Option<Vec<String>> {
        match self.catalog.kept(name) {
            Some(kept) => kept.columns.clone(),
            None => self.schema_columns(name, self.schemas.len()),
        }
    }

    /// Of the schemas before one.
    fn schema_columns(&self, name: &str, end: usize) -> Option<Vec<String>> {
        let mut schemas = self.schemas[..end].iter();
        let place = schemas.rposition(|schema| schema.name.text == name)?;
        let schema = self.schemas[place];
        let mut columns = Vec::new();
        for parent in &schema.parents {
            columns.extend(self.schema_columns(&parent.text, place)?);
        }
        let own = schema.columns.iter();
        columns.extend(own.map(|column| column.name.text.clone()));
        Some(columns)
    }

    /// As [`source_of`].
    ///
    /// # Errors
    /// It is no topic.
    pub fn source(&self, name: &Ident, is_quoted: bool) -> Checked<Source> {
        source_of(self.catalog, name, is_quoted)
    }

    /// Where `insert into` sends rows: a stream, named window or table, or a topic.
    ///
    /// # Errors
    /// It is no topic.
    pub fn sink(&self, name: &Ident) -> Checked<Sink> {
        let text = name.text.as_str();
        if let Some(topic) = after(text, &["kafka:", "kafka."]) {
            return kafka(topic, name).map(Sink::Kafka);
        }
        let is_topic = text.contains('/');
        if let Some(topic) = after(text, &["mqtt:", "mqtt."]).or(is_topic.then_some(text)) {
            return match topic.parse::<MqttTopic>() {
                Ok(_) => Ok(Sink::Mqtt(topic.to_owned())),
                Err(error) => Err(name
                    .place
                    .error(format!("no MQTT topic to publish to: {error}"))),
            };
        }
        if self.catalog.source(text).is_some() {
            return Err(name.place.error(format!(
                "{text} is a type of messages that come from outside: insert into a name of your \
                 own, or into a topic in quotes"
            )));
        }
        let stream = after(text, &["stream."]).unwrap_or(text);
        Ok(Sink::Stream(stream.to_owned()))
    }
}

/// What an event type's name, or a topic in quotes, reads.
///
/// # Errors
/// It is no topic.
pub fn source_of(catalog: &Catalog, name: &Ident, is_quoted: bool) -> Checked<Source> {
    let text = name.text.as_str();
    if let Some(topic) = after(text, &["kafka:", "kafka."]) {
        return kafka(topic, name).map(Source::Kafka);
    }
    let mqtt = after(text, &["mqtt:", "mqtt."]);
    if let Some(filter) = mqtt.or(is_quoted.then_some(text)) {
        return match filter.parse::<TopicFilter>() {
            Ok(_) => Ok(Source::Mqtt(filter.to_owned())),
            Err(error) => Err(name.place.error(format!("no MQTT topic filter: {error}"))),
        };
    }
    if let Some(stream) = after(text, &["stream."]) {
        return Ok(Source::Stream(stream.to_owned()));
    }
    Ok(match catalog.source(text) {
        Some(source) => source.clone(),
        None => Source::Stream(text.to_owned()),
    })
}

fn after<'t>(text: &'t str, prefixes: &[&str]) -> Option<&'t str> {
    prefixes.iter().find_map(|prefix| text.strip_prefix(prefix))
}

fn kafka(topic: &str, name: &Ident) -> Checked<String> {
    match topic.parse::<streams::TopicName>() {
        Ok(topic) => Ok(topic.display().to_owned()),
        Err(error) => Err(name.place.error(format!("no Kafka topic: {error}"))),
    }
}
