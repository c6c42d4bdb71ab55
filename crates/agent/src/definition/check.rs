//! Checks raw components against the table of processors, and against each other.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::idle::Notes;
use super::read::{End, FUNNEL, ROOT_INPUT, ROOT_OUTPUT, RawConnection, RawFlow, RawProcessor};
use super::resolve::Resolver;
use super::{
    ConnectionDefinition, Flow, Problems, ProcessorDefinition, Scheduling, ServiceDefinition,
    remote, services,
};
use crate::cron::Cron;
use crate::limits::{PROCESSORS_MAX, TASKS_TOTAL_MAX};
use crate::parameters::Surroundings;
use crate::processors::{
    self, Dynamic, FUNNEL_KIND, Input, ProcessorKind, PropertyKind, ROOT_INPUT_KIND,
    ROOT_OUTPUT_KIND,
};
use crate::units;

/// Checks everything; the result is only good when `problems` stayed empty.
pub(super) fn check(
    mut raw: RawFlow,
    surroundings: &Surroundings,
    problems: &mut Problems,
) -> Flow {
    if raw.processors.len() > PROCESSORS_MAX {
        problems.add("flow", format!("has more than {PROCESSORS_MAX} processors"));
    }
    let tasks: u64 = raw.processors.iter().map(|p| u64::from(p.tasks_max)).sum();
    if tasks > TASKS_TOTAL_MAX {
        problems.add(
            "flow",
            format!("has more than {TASKS_TOTAL_MAX} tasks together"),
        );
    }
    let resolver = Resolver::new(&mut raw, surroundings, problems);
    let mut notes = raw.notes;
    let known_services = services::Known::new(&raw.services, &mut notes, problems);
    let services = services::check(
        raw.services,
        &known_services,
        &resolver,
        &mut notes,
        problems,
    );
    let ends = Ends::new(&raw.processors);
    let mut connections = Vec::new();
    for connection in raw.connections {
        connections.push(connect(connection, &ends, problems));
    }
    let mut processors = Vec::new();
    for processor in raw.processors {
        if let Some(mut processor) = processor_of(processor, &resolver, &mut notes, problems) {
            let (kinds, path) = (processor.kind.properties, processor.path.clone());
            known_services.name(kinds, &mut processor.properties, &path, problems);
            processors.push(processor);
        }
    }
    check_ids(&services, &processors, &connections, problems);
    for connection in &mut connections {
        check_source(connection, &processors, problems);
    }
    for processor in &processors {
        check_wiring(processor, &connections, problems, &mut notes);
    }
    Flow {
        id: raw.id,
        name: raw.name,
        services,
        processors,
        connections,
        notes: notes.all,
    }
}

/// Components by id and by name, for the ends of connections.
struct Ends {
    ids: HashMap<String, String>,
    names: HashMap<String, Vec<String>>,
}

impl Ends {
    fn new(processors: &[RawProcessor]) -> Self {
        let mut ends = Ends {
            ids: HashMap::new(),
            names: HashMap::new(),
        };
        for processor in processors {
            ends.ids.insert(processor.id.clone(), processor.id.clone());
            if let Some(other) = &processor.other_id {
                ends.ids.insert(other.clone(), processor.id.clone());
            }
            ends.names
                .entry(processor.name.clone())
                .or_default()
                .push(processor.id.clone());
        }
        ends
    }

    fn resolve(&self, end: &End, path: &str, which: &str, problems: &mut Problems) -> String {
        let found = match end {
            End::Id(id) => self.ids.get(id).cloned().ok_or_else(|| {
                format!("the {which} id '{id}' is no processor, funnel or port of this flow")
            }),
            End::Name(name) => match self.names.get(name).map(Vec::as_slice) {
                Some([id]) => Ok(id.clone()),
                Some(_) => Err(format!(
                    "the {which} name '{name}' is not unique; write its id"
                )),
                None => Err(format!("the {which} name '{name}' is nothing in this flow")),
            },
            End::Missing => return String::new(),
        };
        found.unwrap_or_else(|message| {
            problems.add(path, message);
            String::new()
        })
    }
}

fn connect(raw: RawConnection, ends: &Ends, problems: &mut Problems) -> ConnectionDefinition {
    let mut connection = raw.definition;
    connection.source = ends.resolve(&raw.source, &connection.path, "source", problems);
    connection.destination =
        ends.resolve(&raw.destination, &connection.path, "destination", problems);
    connection
}

fn processor_of(
    mut raw: RawProcessor,
    resolver: &Resolver<'_>,
    notes: &mut Notes,
    problems: &mut Problems,
) -> Option<ProcessorDefinition> {
    let kind = if raw.class == FUNNEL {
        &FUNNEL_KIND
    } else if raw.class == ROOT_INPUT {
        &ROOT_INPUT_KIND
    } else if raw.class == ROOT_OUTPUT {
        &ROOT_OUTPUT_KIND
    } else {
        let class = raw.class.rsplit('.').next().unwrap_or_default();
        match processors::find(class) {
            Some(kind) => kind,
            None if class.is_empty() => return None,
            None => {
                problems.add(
                    &raw.path,
                    format!("there is no processor '{class}'; see `thalweg-agent processors`"),
                );
                return None;
            }
        }
    };
    let scheduling = scheduling(&raw, kind, problems);
    name_properties(kind.properties, &mut raw.properties);
    let place = (raw.group_id.as_str(), raw.path.as_str());
    resolver.resolve(kind.properties, &mut raw.properties, place, problems);
    check_properties(
        (kind.name, kind.properties, kind.dynamic),
        &raw.properties,
        &raw.path,
        notes,
        problems,
    );
    Some(ProcessorDefinition {
        id: raw.id,
        name: raw.name,
        path: raw.path,
        group_id: raw.group_id,
        kind,
        scheduling,
        penalization: raw.penalization,
        yield_period: raw.yield_period,
        run_duration: raw.run_duration,
        tasks_max: raw.tasks_max,
        bulletin_level: raw.bulletin_level,
        auto_terminated: raw.auto_terminated,
        properties: raw.properties,
    })
}

fn scheduling(raw: &RawProcessor, kind: &ProcessorKind, problems: &mut Problems) -> Scheduling {
    let path = |key: &str| format!("{} / {key}", raw.path);
    match raw.strategy.as_str() {
        "EVENT_DRIVEN" if kind.input == Input::Forbidden => {
            problems.add(
                &path("scheduling strategy"),
                format!(
                    "{} has no input, so it must be TIMER_DRIVEN or CRON_DRIVEN",
                    kind.name
                ),
            );
            Scheduling::EventDriven
        }
        "EVENT_DRIVEN" => Scheduling::EventDriven,
        "TIMER_DRIVEN" => {
            let text = raw.period.as_deref().unwrap_or("1 sec");
            let period = units::duration(text).unwrap_or_else(|| {
                problems.add(
                    &path("scheduling period"),
                    format!("'{text}' is no duration: write a number and ms, sec, min or hour"),
                );
                Duration::ZERO
            });
            Scheduling::TimerDriven {
                period,
                is_set: raw.period.is_some(),
            }
        }
        "CRON_DRIVEN" => {
            let text = raw.period.as_deref().unwrap_or_default();
            Cron::parse(text)
                .map(Scheduling::CronDriven)
                .unwrap_or_else(|message| {
                    problems.add(&path("scheduling period"), message);
                    Scheduling::EventDriven
                })
        }
        other => {
            problems.add(
                &path("scheduling strategy"),
                format!("'{other}' is none of TIMER_DRIVEN, EVENT_DRIVEN, CRON_DRIVEN"),
            );
            Scheduling::EventDriven
        }
    }
}

/// Calls properties as the table does.
fn name_properties(table: &[PropertyKind], properties: &mut [(String, String)]) {
    for known in table {
        let Some(also) = known.also else {
            continue;
        };
        if !properties.iter().any(|(name, _)| name == known.name)
            && let Some((name, _)) = properties.iter_mut().find(|(name, _)| name == also)
        {
            known.name.clone_into(name);
        }
    }
}

/// Checks the properties of a component of this kind: name, table, further properties.
pub(super) fn check_properties(
    (kind, table, dynamic): (&str, &[PropertyKind], Dynamic),
    properties: &[(String, String)],
    path: &str,
    notes: &mut Notes,
    problems: &mut Problems,
) {
    for (name, value) in properties {
        let checked = match table.iter().find(|property| property.name == name) {
            Some(property) => property.check(value),
            None => match dynamic {
                Dynamic::None if notes.takes_property(kind, name, path) => continue,
                Dynamic::None => {
                    let known: Vec<&str> = table.iter().map(|known| known.name).collect();
                    Err(format!(
                        "{kind} has no such property; it has: {}",
                        known.join(", ")
                    ))
                }
                Dynamic::Named { prefix, .. } if !name.starts_with(prefix) => Err(format!(
                    "{kind} has no such property; further ones begin with {prefix}"
                )),
                _ if name.is_empty() => Err("a property needs a name".to_owned()),
                _ => crate::expression::Expression::parse(value)
                    .map(drop)
                    .map_err(|e| e.to_string()),
            },
        };
        if let Err(message) = checked {
            let is_secret = table.iter().any(|p| p.is_sensitive && p.name == name);
            let message = match is_secret && !value.is_empty() {
                true => "the value, which is not shown, cannot be taken".to_owned(),
                false => message,
            };
            problems.add(&format!("{path} / Properties / {name}"), message);
        }
    }
    for property in table {
        let is_set = properties.iter().any(|(name, _)| name == property.name);
        if property.required && property.default.is_none() && !is_set {
            let path = format!("{path} / Properties / {}", property.name);
            problems.add(&path, "is required and missing");
        }
    }
}

fn check_ids(
    services: &[ServiceDefinition],
    processors: &[ProcessorDefinition],
    connections: &[ConnectionDefinition],
    problems: &mut Problems,
) {
    let mut seen = HashSet::new();
    let services = services.iter().map(|s| (&s.id, &s.path));
    let all = services.chain(processors.iter().map(|p| (&p.id, &p.path)));
    for (id, path) in all.chain(connections.iter().map(|c| (&c.id, &c.path))) {
        if !seen.insert(id) {
            problems.add(
                path,
                format!("the id '{id}' is used twice; give each its own"),
            );
        }
    }
}

/// Relationships of a connection must be its source's; a funnel has but one.
fn check_source(
    connection: &mut ConnectionDefinition,
    processors: &[ProcessorDefinition],
    problems: &mut Problems,
) {
    let Some(source) = processors.iter().find(|p| p.id == connection.source) else {
        return;
    };
    let names_none = [FUNNEL_KIND.name, ROOT_INPUT_KIND.name, remote::OUTPUT_PORT];
    if names_none.contains(&source.kind.name) {
        let only = source.kind.relationships.first();
        connection.relationships = only.iter().map(|only| only.name.to_owned()).collect();
        return;
    }
    if connection.relationships.is_empty() {
        problems.add(&connection.path, "names no source relationship");
    }
    let known = source.relationships();
    for relationship in &connection.relationships {
        if !known.contains(relationship) {
            problems.add(
                &connection.path,
                format!(
                    "'{}' has no relationship '{relationship}'; it has: {}",
                    source.name,
                    known.join(", ")
                ),
            );
        }
    }
}

/// What is not wired is a note, as it may never be needed; a session that needs it fails.
fn check_wiring(
    processor: &ProcessorDefinition,
    connections: &[ConnectionDefinition],
    problems: &mut Problems,
    notes: &mut Notes,
) {
    let known = processor.relationships();
    for relationship in &processor.auto_terminated {
        if !known.contains(relationship) {
            notes.add(
                &processor.path,
                format!(
                    "auto-terminates '{relationship}', which {} does not have; it has: {}",
                    processor.kind.name,
                    known.join(", ")
                ),
            );
        }
    }
    for relationship in &known {
        let is_connected = connections
            .iter()
            .any(|c| c.source == processor.id && c.relationships.contains(relationship));
        if !is_connected && !processor.auto_terminated.contains(relationship) {
            notes.add(
                &processor.path,
                format!("relationship '{relationship}' is neither connected nor auto-terminated"),
            );
        }
    }
    let has_input = connections.iter().any(|c| c.destination == processor.id);
    match processor.kind.input {
        Input::Forbidden if has_input => {
            problems.add(
                &processor.path,
                format!("{} takes no incoming connection", processor.kind.name),
            );
        }
        Input::Required if !has_input => {
            notes.add(
                &processor.path,
                format!("{} needs an incoming connection", processor.kind.name),
            );
        }
        _ => {}
    }
}

impl ProcessorDefinition {
    /// The names of its relationships, those of its dynamic properties last.
    pub fn relationships(&self) -> Vec<String> {
        self.kind.relationships_of(&self.properties)
    }
}
