//! Which records count, case by case.

use bytes::Bytes;

use super::record::{Entry, Expected, Key, NoopValue};
use super::state::{Content, State};
use crate::schemas::format::SchemaType;

/// A state to which records are applied one after the other.
#[derive(Default)]
struct Applying {
    state: State,
    next: i64,
}

impl Applying {
    /// Applies a record; answers whether it counted.
    fn apply(&mut self, entry: Entry) -> bool {
        let (offset, expected) = (self.next, entry.expected);
        let key = entry.key.bytes();
        let applied = self
            .state
            .apply(offset, &key, entry.value.as_deref(), expected);
        applied.unwrap();
        self.next += 1;
        !self.state.has_lost(offset)
    }

    fn text(&self, subject: &str, version: i32) -> Option<(i32, String)> {
        let schema = &self.state.version(subject, version)?.schema;
        Some((schema.id, schema.content.text.to_string()))
    }
}

fn version(subject: &str, version: i32, id: i32, text: &str) -> Entry {
    let content = Content {
        kind: SchemaType::Avro,
        text: text.into(),
        references: Vec::new(),
        metadata: None,
        rule_set: None,
    };
    Entry::schema(
        &content.value(subject, version, id, false),
        Expected::Nothing,
    )
}

fn theirs(entry: Entry) -> Entry {
    Entry {
        expected: None,
        ..entry
    }
}

fn some(id: i32, text: &str) -> Option<(i32, String)> {
    Some((id, text.to_owned()))
}

#[test]
fn the_first_of_two_that_give_a_version_counts_and_is_written_again() {
    let mut log = Applying::default();
    assert!(log.apply(version("s", 1, 1, "a")));
    assert!(!log.apply(version("s", 1, 2, "b")));
    assert_eq!(log.text("s", 1), some(1, "a"));
    // The second lies over the first in a compacted topic until the first is written again.
    let repairs = log.state.repairs();
    assert_eq!(repairs.len(), 1);
    assert_eq!(repairs[0].key, Key::schema("s", 1));
    for repair in repairs {
        assert!(log.apply(repair));
    }
    assert!(log.state.repairs().is_empty());
    assert_eq!(log.text("s", 1), some(1, "a"));
    // The id of the one that lost is not given again.
    assert_eq!(log.state.id_max("."), 2);
}

#[test]
fn an_id_belongs_to_the_first_that_names_it() {
    let mut log = Applying::default();
    assert!(log.apply(version("s", 1, 1, "a")));
    assert!(!log.apply(version("t", 1, 1, "b")));
    assert_eq!(log.text("t", 1), None);
    assert!(log.state.repairs().is_empty(), "nothing lies under it");
    assert!(log.apply(version("t", 1, 2, "b")));
    // The same schema under another subject has the same id.
    assert!(log.apply(version("u", 1, 1, "a")));
    // In another context ids count on their own.
    assert!(log.apply(version(":.eu:t", 1, 1, "b")));
}

#[test]
fn a_schema_is_there_as_long_as_any_version_is_it() {
    let mut log = Applying::default();
    let uses = |log: &Applying, context, id| -> Vec<(String, i32)> {
        let uses = log.state.uses(context, id);
        uses.map(|(subject, version)| (subject.to_owned(), version))
            .collect()
    };
    let of = |names: &[(&str, i32)]| -> Vec<(String, i32)> {
        names
            .iter()
            .map(|(name, version)| ((*name).to_owned(), *version))
            .collect()
    };
    for (subject, number) in [("t", 1), ("s", 2), ("s", 1)] {
        assert!(log.apply(version(subject, number, 1, "a")));
    }
    // Written again as it is, as deletions and repairs do.
    assert!(log.apply(theirs(version("s", 1, 1, "a"))));
    assert_eq!(uses(&log, ".", 1), of(&[("s", 1), ("s", 2), ("t", 1)]));
    assert_eq!(uses(&log, ".eu", 1), of(&[]));
    // A version that becomes another schema is none of the first one's any more.
    assert!(log.apply(theirs(version("s", 2, 2, "b"))));
    assert!(log.apply(Entry::no_schema("s", 1, 1)));
    assert_eq!(uses(&log, ".", 1), of(&[("t", 1)]));
    assert_eq!(uses(&log, ".", 2), of(&[("s", 2)]));
    assert!(log.apply(Entry::no_schema("t", 1, 1)));
    assert_eq!(uses(&log, ".", 1), of(&[]));
    assert!(log.state.schema(".", 1).is_none());
}

#[test]
fn a_repair_does_not_bring_back_what_was_deleted() {
    let mut log = Applying::default();
    log.apply(version("s", 1, 1, "a"));
    log.apply(version("s", 1, 2, "b"));
    let repairs = log.state.repairs();
    assert!(log.apply(Entry::no_schema("s", 1, 1)));
    for repair in repairs {
        assert!(!log.apply(repair));
    }
    assert_eq!(log.text("s", 1), None);
}

#[test]
fn a_deletion_does_not_hit_what_came_after() {
    let mut log = Applying::default();
    log.apply(version("s", 1, 1, "a"));
    assert!(log.apply(Entry::no_schema("s", 1, 1)));
    assert!(log.apply(version("s", 1, 2, "b")));
    assert!(!log.apply(Entry::no_schema("s", 1, 1)));
    assert_eq!(log.text("s", 1), some(2, "b"));
    assert_eq!(log.state.repairs().len(), 1);
}

#[test]
fn records_of_other_registries_always_count() {
    let mut log = Applying::default();
    log.apply(theirs(version("s", 1, 1, "a")));
    assert!(log.apply(theirs(version("s", 1, 2, "b"))));
    assert_eq!(log.text("s", 1), some(2, "b"));
    // An id of two schemas: by id the first is found, under its subject each.
    assert!(log.apply(theirs(version("t", 1, 2, "c"))));
    assert_eq!(log.text("t", 1), some(2, "c"));
    let by_id = log.state.schema(".", 2).unwrap();
    assert_eq!(&*by_id.content.text, "b");
    // The first went with its only version.
    assert!(log.state.schema(".", 1).is_none());
    assert!(log.apply(theirs(Entry::no_schema("t", 1, 2))));
    assert!(log.apply(theirs(Entry::no_schema("s", 1, 2))));
    assert_eq!(log.state.size(), (0, 0));
    assert_eq!(log.state.id_max("."), 2);
}

#[test]
fn the_highest_ids_outlive_what_had_them() {
    let mut log = Applying::default();
    log.apply(version("s", 1, 5, "a"));
    let kept = Entry::noop(&log.state.id_maxima());
    let mut after_compaction = Applying::default();
    after_compaction.apply(kept);
    assert_eq!(after_compaction.state.id_max("."), 5);
    // What others write there means nothing.
    let value = Some(b"[]".to_vec());
    let noop = Entry::noop(&NoopValue::default());
    assert!(after_compaction.apply(Entry { value, ..noop }));
    assert_eq!(after_compaction.state.id_max("."), 5);
}

#[test]
fn keys_keep_the_bytes_under_which_they_lie_in_the_topic() {
    let mut state = State::default();
    let odd = Bytes::from_static(br#"{"magic":1,"version":1,"subject":"s","keytype":"SCHEMA"}"#);
    let value = version("s", 1, 1, "a").value;
    state.apply(0, &odd, value.as_deref(), None).unwrap();
    let key = Key::schema("s", 1);
    assert_eq!(state.key_bytes(&key), odd);
    let other = Key::schema("s", 2);
    assert_eq!(state.key_bytes(&other), other.bytes());
}

#[test]
fn what_is_no_record_of_ours_is_passed_over() {
    let mut state = State::default();
    let records: [(&'static [u8], Option<&[u8]>); 6] = [
        (b"", None),
        (b"\xff\xff", Some(b"\xff")),
        (b"{\"keytype\":\"SCHEMA\"}", Some(b"{}")),
        (
            br#"{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}"#,
            Some(b"{}"),
        ),
        (
            br#"{"keytype":"CONFIG","subject":"s","magic":0}"#,
            Some(b"[1]"),
        ),
        (
            br#"{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}"#,
            Some(b"1"),
        ),
    ];
    for (offset, (key, value)) in (0_i64..).zip(records) {
        state
            .apply(offset, &Bytes::from_static(key), value, None)
            .unwrap();
    }
    assert_eq!(state.size(), (0, 0));
    assert!(state.config(Some("s")).is_none());
}
