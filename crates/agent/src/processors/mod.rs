//! Processors, as data in one ordered table: what each is, and the function that makes it.
//!
//! The table feeds the checking of flows, the runtime, the agent manifest for the control plane
//! and the `processors` listing. Names and defaults are MiNiFi C++'s; where Thalweg differs, the
//! property's description says so.

mod archive;
mod attributes_to_json;
mod azure;
mod buffers;
mod compress_content;
mod consume_journald;
mod consume_kafka;
mod consume_mqtt;
mod convert_record;
mod defragment_text;
mod evaluate_json_path;
mod execute_process;
#[cfg(feature = "lua")]
mod execute_script;
mod extract_text;
mod fetch_file;
mod fetch_modbus_tcp;
mod files;
mod flow_file_stream;
mod fragments;
mod gcs;
mod generate_flow_file;
mod get_file;
mod get_tcp;
mod hash_content;
mod invoke_http;
mod jolt_transform_json;
mod kafka_properties;
mod lines;
mod list_file;
mod listen_http;
mod listen_socket;
mod listen_syslog;
mod listen_tcp;
mod listen_udp;
mod log_attribute;
mod measure_throughput;
mod merge_content;
mod mqtt_properties;
mod object_storage;
mod opc;
mod packing;
mod proc_fs_monitor;
mod publish_kafka;
mod publish_mqtt;
mod put_file;
mod put_tcp;
mod put_udp;
mod query_record;
mod refused;
mod replace_text;
mod retry_flow_file;
mod route_on_attribute;
mod route_text;
mod s3;
mod segment_content;
mod settings;
mod site;
mod split_content;
mod split_json;
mod split_record;
mod split_text;
#[cfg(feature = "sql")]
mod sql;
mod tail_file;
mod tls_files;
mod unpack_content;
mod update_attribute;

#[cfg(test)]
mod defragment_tests;
#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod json_tests;
#[cfg(test)]
mod record_tests;
#[cfg(test)]
mod socket_tests;
#[cfg(test)]
mod split_tests;
#[cfg(test)]
mod text_tests;

use std::fmt;

use crate::engine::Context;
use crate::session::ProcessSession;

pub use settings::Settings;

/// What a processor is.
pub struct ProcessorKind {
    /// As flows write it.
    pub name: &'static str,
    /// What it does, for people.
    pub description: &'static str,
    /// Its properties, in the order in which people should read them.
    pub properties: &'static [PropertyKind],
    /// What further properties mean.
    pub dynamic: Dynamic,
    /// Where its FlowFiles can go.
    pub relationships: &'static [RelationshipKind],
    /// Attributes that it sets.
    pub writes: &'static [AttributeKind],
    /// Whether it takes FlowFiles in.
    pub input: Input,
    /// Makes one from checked settings; the error says what is wrong with them.
    pub make: fn(&Settings<'_>) -> Result<Box<dyn Processor>, String>,
}

/// What a property is.
#[derive(Clone, Copy, Debug)]
pub struct PropertyKind {
    /// As flows write it.
    pub name: &'static str,
    /// Another name that flows may write.
    pub also: Option<&'static &'static str>,
    /// What it means, for people.
    pub description: &'static str,
    /// The value when the flow sets none.
    pub default: Option<&'static str>,
    /// Whether there must be a value.
    pub required: bool,
    /// The values that are taken; any, when empty.
    pub allowed: &'static [&'static str],
    /// What a value looks like.
    pub shape: Shape,
    /// Whether, and on what, expressions are evaluated.
    pub expressions: Expressions,
    /// Whether the value is a secret: sensitive parameters may only feed such properties.
    pub is_sensitive: bool,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any text.
    Text,
    /// A whole number of at least so much.
    Integer(i64),
    /// `true` or `false`.
    Flag,
    /// A duration, `5 sec`.
    Duration,
    /// A size, `512 KB`.
    Size,
    /// A size a second, `512 KB/s`.
    Speed,
    /// The name or id of a controller service that provides this role.
    Service(&'static str),
}

/// Whether expressions are evaluated in a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expressions {
    /// They are not; the value is taken as it stands.
    None,
    /// Once, at the start, without a FlowFile.
    Once,
    /// For each FlowFile.
    FlowFile,
}

/// What properties beyond the named ones mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// They are mistakes.
    None,
    /// Each is an attribute to set.
    Attributes,
    /// Each is a relationship with its condition.
    Relationships,
    /// Each is a setting whose name begins with `prefix`; others are mistakes.
    Named {
        /// What names begin with.
        prefix: &'static str,
        /// What such a setting is, for people.
        meaning: &'static str,
    },
    /// Each is a relationship with its condition when `property` has the value `value`; with any
    /// other value each is a condition for the one relationship `single`.
    RelationshipsIf {
        /// The property that decides.
        property: &'static str,
        /// Its value for relationships.
        value: &'static str,
        /// The relationship otherwise.
        single: &'static str,
    },
}

/// A place where a processor's FlowFiles can go.
#[derive(Debug)]
pub struct RelationshipKind {
    /// As flows write it.
    pub name: &'static str,
    /// What goes there.
    pub description: &'static str,
}

/// An attribute that a processor sets.
#[derive(Clone, Copy, Debug)]
pub struct AttributeKind {
    /// Its name; `<...>` stands for what varies.
    pub name: &'static str,
    /// What it says, and when it is set.
    pub description: &'static str,
}

/// Whether a processor takes FlowFiles in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// It must.
    Required,
    /// It may.
    Allowed,
    /// It is a source.
    Forbidden,
}

/// A processor at work; it has a thread of its own, so it may block, but not beyond a stop.
pub trait Processor: Send {
    /// Opens what must be there before the first trigger.
    fn before_first_trigger(&mut self, _context: &Context) {}

    /// Does one piece of work. What the session was not told to commit is rolled back on an error
    /// and committed on success.
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError>;

    /// Lets go of what it holds outside, after the last trigger.
    fn stop(&mut self) {}

    /// Whether several of it may work on the same queues at once, each on a thread of its own:
    /// `max concurrent tasks` of them are made from the same settings. Not so where there is
    /// state, a port to listen on, an order to keep or a source that is read once.
    fn is_concurrent(&self) -> bool {
        false
    }

    /// Whether one session may span many triggers, up to the run duration: a failure takes all of
    /// them back, so that it must not have acted outside or committed by itself.
    fn is_batching(&self) -> bool {
        false
    }
}

/// When a processor wants to run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When its schedule says so, or at once while it has input and the flow sets no period.
    Scheduled,
    /// The same, and after so long without input too: it keeps something that comes of age.
    ScheduledOr(std::time::Duration),
    /// At once, if nothing holds it back: it has more to do.
    Again,
    /// When it is woken, and after so long at the latest.
    Woken(std::time::Duration),
    /// At once when it is woken, whatever its schedule says, and after so long at the latest.
    Listening(std::time::Duration),
    /// After its yield period.
    Yield,
}

/// Why a trigger failed; its session is rolled back and the processor rests.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// Something outside or in the data; shown as a bulletin, tried again after the yield period.
    #[error("{0}")]
    Failed(String),
    /// The repository; nothing can go on.
    #[error(transparent)]
    Repository(#[from] crate::AgentError),
}

/// Every processor that is built in, in the order in which they are listed.
pub const PROCESSORS: &[&ProcessorKind] = &[
    &tail_file::KIND,
    &get_file::KIND,
    &list_file::KIND,
    &fetch_file::KIND,
    &consume_journald::KIND,
    &execute_process::KIND,
    #[cfg(feature = "lua")]
    &execute_script::KIND,
    &generate_flow_file::KIND,
    &proc_fs_monitor::KIND,
    &update_attribute::KIND,
    &route_on_attribute::KIND,
    &retry_flow_file::KIND,
    &hash_content::KIND,
    &compress_content::KIND,
    &merge_content::KIND,
    &unpack_content::KIND,
    &split_text::KIND,
    &split_content::KIND,
    &segment_content::KIND,
    &replace_text::KIND,
    &route_text::KIND,
    &defragment_text::KIND,
    &extract_text::KIND,
    &evaluate_json_path::KIND,
    &split_json::KIND,
    &attributes_to_json::KIND,
    &jolt_transform_json::KIND,
    &convert_record::KIND,
    &split_record::KIND,
    &query_record::KIND,
    &log_attribute::KIND,
    &measure_throughput::KIND,
    &publish_kafka::KIND,
    &publish_mqtt::KIND,
    &consume_kafka::KIND,
    &consume_mqtt::KIND,
    &invoke_http::KIND,
    &listen_http::KIND,
    &listen_tcp::KIND,
    &listen_udp::KIND,
    &listen_syslog::KIND,
    &get_tcp::KIND,
    &put_tcp::KIND,
    &put_udp::KIND,
    &fetch_modbus_tcp::KIND,
    &opc::FETCH,
    &opc::PUT,
    #[cfg(feature = "sql")]
    &sql::EXECUTE,
    #[cfg(feature = "sql")]
    &sql::QUERY_TABLE,
    #[cfg(feature = "sql")]
    &sql::PUT,
    &s3::PUT,
    &s3::LIST,
    &s3::FETCH,
    &s3::DELETE,
    &gcs::PUT,
    &gcs::LIST,
    &gcs::FETCH,
    &gcs::DELETE,
    &azure::PUT,
    &azure::LIST,
    &azure::FETCH,
    &azure::DELETE,
    &site::REMOTE_INPUT,
    &site::REMOTE_OUTPUT,
    &put_file::KIND,
];

/// What an input port of the root group is run as; no flow can spell it.
pub const ROOT_INPUT_KIND: ProcessorKind = site::ROOT_INPUT;

/// What an output port of the root group is run as; no flow can spell it.
pub const ROOT_OUTPUT_KIND: ProcessorKind = site::ROOT_OUTPUT;

/// What funnels and ports of process groups are run as; no flow can spell it.
pub const FUNNEL_KIND: ProcessorKind = ProcessorKind {
    name: "Funnel",
    description: "Passes FlowFiles on.",
    properties: &[],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "All FlowFiles.",
    }],
    writes: &[],
    input: Input::Allowed,
    make: |_| Ok(Box::new(Funnel)),
};

/// The processor of this name, built in or of an extension.
pub fn find(name: &str) -> Option<&'static ProcessorKind> {
    all().find(|kind| kind.name == name)
}

/// Every processor, those of extensions last.
pub fn all() -> impl Iterator<Item = &'static ProcessorKind> {
    let external = crate::extensions::loaded().iter();
    PROCESSORS
        .iter()
        .copied()
        .chain(external.map(|external| external.kind))
}

impl ProcessorKind {
    /// Names of the relationships that a processor with these properties has; those that come
    /// from further properties stand last.
    pub fn relationships_of(&self, properties: &[(String, String)]) -> Vec<String> {
        let own = self.relationships.iter().map(|r| r.name.to_owned());
        let mut names: Vec<String> = own.collect();
        let are_relationships = match self.dynamic {
            Dynamic::None | Dynamic::Attributes | Dynamic::Named { .. } => return names,
            Dynamic::Relationships => true,
            Dynamic::RelationshipsIf {
                property,
                value,
                single,
            } => {
                let set = properties.iter().find(|(name, _)| name == property);
                let is_value = set.is_none_or(|(_, set)| set == value);
                if !is_value {
                    names.push(single.to_owned());
                }
                is_value
            }
        };
        if are_relationships {
            let is_own = |name: &str| self.properties.iter().any(|own| own.name == name);
            let further = properties.iter().map(|(name, _)| name);
            names.extend(further.filter(|name| !is_own(name)).cloned());
        }
        names
    }
}

/// A list of properties and another one behind it; `ALL` is how many that are.
pub(crate) const fn joined<const FIRST: usize, const MORE: usize, const ALL: usize>(
    first: [PropertyKind; FIRST],
    more: [PropertyKind; MORE],
) -> [PropertyKind; ALL] {
    assert!(FIRST + MORE == ALL, "that are not so many properties");
    let mut all = [first[0]; ALL];
    let mut at = 1;
    while at < ALL {
        all[at] = if at < FIRST {
            first[at]
        } else {
            more[at - FIRST]
        };
        at += 1;
    }
    all
}

impl Dynamic {
    /// Whether further properties can be relationships.
    pub fn has_relationships(self) -> bool {
        matches!(
            self,
            Dynamic::Relationships | Dynamic::RelationshipsIf { .. }
        )
    }
}

impl AttributeKind {
    /// An attribute and what it says.
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        AttributeKind { name, description }
    }
}

impl PropertyKind {
    /// A property that is any text, optional, without default and expressions.
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        PropertyKind {
            name,
            also: None,
            description,
            default: None,
            required: false,
            allowed: &[],
            shape: Shape::Text,
            expressions: Expressions::None,
            is_sensitive: false,
        }
    }

    /// The same, which flows may call by another name too.
    pub const fn also(mut self, name: &'static &'static str) -> Self {
        self.also = Some(name);
        self
    }

    /// The same, with a default.
    pub const fn default(mut self, value: &'static str) -> Self {
        self.default = Some(value);
        self
    }

    /// The same, required.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The same, with only these values.
    pub const fn allowed(mut self, values: &'static [&'static str]) -> Self {
        self.allowed = values;
        self
    }

    /// The same, in this shape.
    pub const fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    /// The same, with expressions.
    pub const fn expressions(mut self, expressions: Expressions) -> Self {
        self.expressions = expressions;
        self
    }

    /// The same, a secret.
    pub const fn sensitive(mut self) -> Self {
        self.is_sensitive = true;
        self
    }

    /// Whether `value` can be this property's; the error says what could.
    pub fn check(&self, value: &str) -> Result<(), String> {
        if self.expressions != Expressions::None {
            let expression =
                crate::expression::Expression::parse(value).map_err(|error| error.to_string())?;
            if expression.as_literal().is_none() {
                return Ok(());
            }
        }
        if self.required && value.is_empty() {
            return Err("is required and empty".to_owned());
        }
        if !self.allowed.is_empty() && !self.allowed.contains(&value) {
            return Err(format!("'{value}' is none of {}", self.allowed.join(", ")));
        }
        let expected = match self.shape {
            // That a service is there is for the flow to know.
            Shape::Text | Shape::Service(_) => return Ok(()),
            Shape::Integer(least) => match value.trim().parse::<i64>() {
                Ok(number) if number >= least => return Ok(()),
                _ => format!("whole number of at least {least}"),
            },
            Shape::Flag if crate::units::flag(value).is_some() => return Ok(()),
            Shape::Flag => "true or false".to_owned(),
            Shape::Duration if crate::units::duration(value).is_some() => return Ok(()),
            Shape::Duration => "duration: write a number and ms, sec, min or hour".to_owned(),
            Shape::Size if crate::units::size(value).is_some() => return Ok(()),
            Shape::Size => "size: write a number and B, KB, MB or GB".to_owned(),
            Shape::Speed if crate::units::speed(value).is_some() => return Ok(()),
            Shape::Speed => "speed: write a number and B/s, KB/s, MB/s or GB/s".to_owned(),
        };
        Err(format!("'{value}' is no {expected}"))
    }
}

impl PartialEq for ProcessorKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for ProcessorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

struct Funnel;

impl Processor for Funnel {
    fn is_batching(&self) -> bool {
        true
    }

    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for flow_file in session.take(FUNNEL_BATCH, u64::MAX) {
            session.transfer(flow_file, 0);
        }
        Ok(Next::Scheduled)
    }
}

/// FlowFiles that a funnel passes on at once.
const FUNNEL_BATCH: usize = 5_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        let mut names: Vec<&str> = PROCESSORS.iter().map(|kind| kind.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROCESSORS.len(), "a name is used twice");
        for kind in PROCESSORS {
            for property in kind.properties {
                if let Some(default) = property.default {
                    let place = format!("{} / {}", kind.name, property.name);
                    property
                        .check(default)
                        .unwrap_or_else(|error| panic!("{place}: {error}"));
                }
            }
        }
    }
}
