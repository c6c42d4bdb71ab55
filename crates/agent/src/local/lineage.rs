//! Provenance as the socket tells it: events by time, and the lineage of one FlowFile.
//!
//! The lineage holds what happened to the FlowFile, to all that it came from and to all that came
//! from it; of brothers and sisters only that they were born together.

use std::collections::{HashSet, VecDeque};
use std::time::Instant;

use base::{UnixMillis, format_rfc3339};
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::flowfile::FlowFileId;
use crate::limits::{LINEAGE_FLOW_FILES_MAX, LINEAGE_WAIT, PROVENANCE_EVENTS_SHOWN_MAX};
use crate::provenance::{EventKind, Filter, ProvenanceEvent};
use crate::repository::Repository;

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProvenanceQuestion {
    /// The lineage of this FlowFile; without it, events by time.
    pub(crate) uuid: Option<String>,
    /// Not before, milliseconds since 1970.
    pub(crate) from_ms: Option<i64>,
    /// Before.
    pub(crate) until_ms: Option<i64>,
    /// Kinds in NiFi's words, such as `RECEIVE`; all when empty.
    pub(crate) kinds: Vec<String>,
    /// Only of this processor, by id.
    pub(crate) component: Option<String>,
    /// At most so many, the newest.
    pub(crate) count: Option<usize>,
}

/// The events that were asked for, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProvenanceView {
    pub(crate) events: Vec<EventView>,
    /// Whether there is more than can be shown.
    pub(crate) is_cut: bool,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EventView {
    pub(crate) kind: String,
    pub(crate) time_ms: i64,
    pub(crate) component_id: String,
    pub(crate) component_type: String,
    /// The first of the FlowFiles, or the one that the lineage is about.
    pub(crate) uuid: String,
    /// To how many it happened at once.
    pub(crate) flow_files: u64,
    pub(crate) details: String,
    /// What it came from, if the event says so.
    pub(crate) parents: Vec<String>,
}

/// The answer to a question.
///
/// Errors: words that mean nothing here, no such FlowFile, no provenance repository.
pub(crate) fn answer(
    repository: &Repository,
    question: &ProvenanceQuestion,
) -> Result<ProvenanceView, AgentError> {
    if !repository.has_provenance() {
        return Err(AgentError::Refused(
            "the agent keeps no provenance: set nifi.provenance.repository.class.name to \
             ProvenanceRepository"
                .to_owned(),
        ));
    }
    let wanted = question
        .count
        .unwrap_or(COUNT_DEFAULT)
        .min(PROVENANCE_EVENTS_SHOWN_MAX);
    let filter = Filter {
        flow_file: None,
        kinds: kinds(&question.kinds)?,
        component_id: question.component.clone(),
        from: question.from_ms.map(UnixMillis),
        until: question.until_ms.map(UnixMillis),
        count_max: wanted,
    };
    let Some(uuid) = &question.uuid else {
        let events = repository.provenance_events(&filter)?;
        return Ok(ProvenanceView {
            is_cut: events.len() == wanted,
            events: events
                .iter()
                .map(|event| view(repository, event, event.flow_files.first))
                .collect(),
        });
    };
    let Some(id) = repository.flow_file_of(uuid) else {
        let reason = format!("'{uuid}' is no FlowFile of this agent");
        return Err(AgentError::Refused(reason));
    };
    lineage(repository, id, &filter)
}

/// What is next to be looked at, and in which direction from the FlowFile that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    Up,
    Down,
}

fn lineage(
    repository: &Repository,
    id: FlowFileId,
    shown: &Filter,
) -> Result<ProvenanceView, AgentError> {
    let mut open = VecDeque::from([(id, Way::Up), (id, Way::Down)]);
    let mut seen: HashSet<(FlowFileId, Way)> = open.iter().copied().collect();
    let mut told = HashSet::new();
    let mut found = ProvenanceView::default();
    let deadline = Instant::now() + LINEAGE_WAIT;
    while let Some((id, way)) = open.pop_front() {
        // Each step may read the whole repository; whoever waits gets what was found.
        if Instant::now() > deadline {
            found.is_cut = true;
            break;
        }
        let about = Filter {
            flow_file: Some(id),
            count_max: PROVENANCE_EVENTS_SHOWN_MAX,
            ..Filter::default()
        };
        for event in repository.provenance_events(&about)? {
            let is_its_own = event.flow_files.contains(id);
            if is_its_own {
                let event = view(repository, &event, id);
                let key = (
                    event.uuid.clone(),
                    event.kind.clone(),
                    event.time_ms,
                    event.component_id.clone(),
                    event.details.clone(),
                );
                if told.insert(key) && passes(shown, &event) {
                    found.events.push(event);
                }
            }
            let next = match way {
                Way::Up => event.parents_of(id),
                Way::Down => children(&event, id),
            };
            for id in next {
                if seen.len() >= LINEAGE_FLOW_FILES_MAX {
                    found.is_cut = true;
                } else if seen.insert((id, way)) {
                    open.push_back((id, way));
                }
            }
        }
    }
    // Stable: what one session did stays in its order.
    found.events.sort_by_key(|event| event.time_ms);
    if found.events.len() > shown.count_max {
        found.is_cut = true;
        found.events.drain(..found.events.len() - shown.count_max);
    }
    Ok(found)
}

/// The FlowFiles that came from `id` by this event.
fn children(event: &ProvenanceEvent, id: FlowFileId) -> Vec<FlowFileId> {
    if !event.parents.iter().any(|run| run.contains(id)) {
        return Vec::new();
    }
    let run = event.flow_files;
    let all = (run.first.0..run.first.0.saturating_add(run.count)).map(FlowFileId);
    let own = all.filter(|child| {
        // Of clones each comes from the one in its own place.
        event.kind != EventKind::Clone || event.parents_of(*child).contains(&id)
    });
    own.take(LINEAGE_FLOW_FILES_MAX).collect()
}

fn passes(filter: &Filter, event: &EventView) -> bool {
    let is_kind = |kind: &EventKind| kind.name() == event.kind;
    (filter.kinds.is_empty() || filter.kinds.iter().any(is_kind))
        && filter
            .component_id
            .as_ref()
            .is_none_or(|id| *id == event.component_id)
        && filter.from.is_none_or(|from| event.time_ms >= from.0)
        && filter.until.is_none_or(|until| event.time_ms < until.0)
}

fn view(repository: &Repository, event: &ProvenanceEvent, id: FlowFileId) -> EventView {
    let parents = event.parents_of(id).into_iter().take(PARENTS_SHOWN);
    EventView {
        kind: event.kind.name().to_owned(),
        time_ms: event.at.0,
        component_id: event.component_id.clone(),
        component_type: event.component_type.clone(),
        uuid: repository.uuid(id),
        flow_files: event.flow_files.count,
        details: event.details.clone(),
        parents: parents.map(|id| repository.uuid(id)).collect(),
    }
}

fn kinds(words: &[String]) -> Result<Vec<EventKind>, AgentError> {
    let kind = |word: &String| {
        let found = EventKind::ALL
            .iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(word));
        found.copied().ok_or_else(|| {
            let known: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
            AgentError::Refused(format!(
                "'{word}' is no event: there are {}",
                known.join(", ")
            ))
        })
    };
    words.iter().map(kind).collect()
}

/// The events as lines of text.
pub(super) fn lines(view: &ProvenanceView) -> String {
    let mut out = String::new();
    for event in &view.events {
        let many = match event.flow_files {
            0 | 1 => String::new(),
            count => format!(" (one of {count})"),
        };
        let from = match event.parents.as_slice() {
            [] => String::new(),
            parents => format!(" from {}", parents.join(", ")),
        };
        let details = match event.details.as_str() {
            "" => String::new(),
            details => format!(": {details}"),
        };
        out.push_str(&format!(
            "{} {:<19} {}{many} {} {}{from}{details}\n",
            format_rfc3339(UnixMillis(event.time_ms)),
            event.kind,
            event.uuid,
            event.component_type,
            event.component_id,
        ));
    }
    if view.is_cut {
        out.push_str("there is more: ask for a time, a kind or a processor\n");
    }
    out
}

/// Events that are shown when nobody says how many.
const COUNT_DEFAULT: usize = 1_000;

/// Parents of one event that are shown.
const PARENTS_SHOWN: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::{ProvenanceKind, RepositoryOptions};
    use crate::supervisor::{StopTimes, Supervisor};
    use crate::testing::{ground_with, runtime, wait_until};

    const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: lineage}
Processors:
- {id: make, name: make, class: GenerateFlowFile, scheduling period: 1 hour}
- {id: mark, name: mark, class: UpdateAttribute, auto-terminated relationships list: [failure],
   Properties: {a: b}}
- {id: left, name: left, class: LogAttribute, auto-terminated relationships list: [success],
   Properties: {Log Level: trace}}
- {id: right, name: right, class: LogAttribute, auto-terminated relationships list: [success],
   Properties: {Log Level: trace}}
Connections:
- {source name: make, source relationship name: success, destination name: mark}
- {source name: mark, source relationship name: success, destination name: left}
- {source name: mark, source relationship name: success, destination name: right}
";

    #[test]
    fn a_flow_file_is_followed_from_its_making_to_every_end() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let options = RepositoryOptions {
            provenance: ProvenanceKind::Volatile {
                bytes_max: 1 << 20,
                count_max: 10_000,
            },
            ..RepositoryOptions::default()
        };
        let ground = ground_with(dir.path(), &runtime, options);
        let supervisor = Supervisor::new(ground, dir.path(), StopTimes::default());
        supervisor.update(None, FLOW).unwrap();
        let repository = supervisor.repository();
        let ask = |question: &ProvenanceQuestion| answer(repository, question).unwrap().events;
        let drops = ProvenanceQuestion {
            kinds: vec!["drop".to_owned()],
            ..ProvenanceQuestion::default()
        };
        wait_until("both ends are reached", || ask(&drops).len() == 2);
        let created = ask(&ProvenanceQuestion {
            kinds: vec!["CREATE".to_owned()],
            component: Some("make".to_owned()),
            ..ProvenanceQuestion::default()
        });
        assert_eq!(created.len(), 1);
        let whole = |uuid: &str| {
            ask(&ProvenanceQuestion {
                uuid: Some(uuid.to_owned()),
                ..ProvenanceQuestion::default()
            })
        };
        let from_source = whole(&created[0].uuid);
        let of = |events: &[EventView], kind: &str| {
            let mut at: Vec<String> = events
                .iter()
                .filter(|event| event.kind == kind)
                .map(|event| event.component_id.clone())
                .collect();
            at.sort();
            at
        };
        assert_eq!(of(&from_source, "CREATE"), ["make"]);
        assert_eq!(of(&from_source, "CLONE"), ["mark"]);
        assert_eq!(of(&from_source, "DROP"), ["left", "right"]);
        // From the clone it leads back to the making.
        let clone = from_source
            .iter()
            .find(|event| event.kind == "CLONE")
            .unwrap();
        let from_clone = whole(&clone.uuid);
        assert_eq!(of(&from_clone, "CREATE"), ["make"]);
        // What happened to the one it came from is told; where the twin ended is that one's end.
        assert_eq!(of(&from_clone, "DROP").len(), 2);
        assert_eq!(clone.parents, [created[0].uuid.clone()]);
        let unknown = ProvenanceQuestion {
            uuid: Some(uuid::Uuid::nil().to_string()),
            ..ProvenanceQuestion::default()
        };
        let error = answer(repository, &unknown).unwrap_err().to_string();
        assert!(error.contains("no FlowFile of this agent"), "{error}");
        let later = ProvenanceQuestion {
            from_ms: Some(i64::MAX),
            ..ProvenanceQuestion::default()
        };
        assert!(ask(&later).is_empty());
        supervisor.stop();
    }

    #[test]
    fn no_provenance_is_said_with_the_key_that_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let ground = crate::testing::ground(dir.path(), &runtime);
        let error = answer(&ground.repository, &ProvenanceQuestion::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("nifi.provenance.repository.class.name")
        );
    }
}
