//! What a profile's policy makes of a turn's records: which are stored, under which ids, which are
//! left out, and what changes of the keys by which they are found.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

use base::TenantId;
use sql::{Lookup, Statement, Transaction, Value};

use crate::error::ImportsError;
use crate::job::Job;
use crate::keys::{INSERT_KEY, Key, Selectors, key_row};
use crate::limits;
use crate::profile::{OnMatch, OnNoMatch, Profile};
use crate::slice::{RemarkKind, SliceRecord};

/// What the profile's policy made of a slice's records.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decided {
    /// Rows to write: the index of the record, and the id under which it is stored.
    pub rows: Vec<(usize, String)>,
    pub created: u64,
    pub updated: u64,
    pub remarks: Vec<(usize, RemarkKind, String)>,
}

/// What is in the sink already of a slice's records.
#[derive(Debug, Default)]
pub(crate) struct There {
    ids: HashSet<String>,
    /// The records that have a key.
    keyed: HashMap<String, Vec<Keyed>>,
}

/// A record that has a key.
#[derive(Debug)]
struct Keyed {
    id: String,
    /// How many it has of the key's selector.
    alike: i64,
}

impl There {
    /// The ids of the records that have a key.
    fn with(&self, key: &Key) -> impl Iterator<Item = &str> {
        let found = self.keyed.get(&key.text);
        found.into_iter().flatten().map(|found| found.id.as_str())
    }

    /// Whether a record is seen to have these keys and no others.
    fn has_keys(&self, id: &str, keys: &[Key], selectors: &Selectors) -> bool {
        let is_there = |key: &Key| {
            let mut found = self.keyed.get(&key.text).into_iter().flatten();
            found.any(|found| found.id == id && found.alike == key.alike)
        };
        // Of a selector that has no key here any more nothing was seen.
        selectors.are_all_in(keys) && keys.iter().all(is_there)
    }
}

/// Looks for what is in the sink already of records.
pub(crate) async fn there(
    tx: &mut Transaction,
    job: &Job,
    records: &[SliceRecord],
) -> Result<There, ImportsError> {
    let what = "look for records that are there";
    let mut there = There::default();
    let tenant = job.tenant.as_str();
    for chunk in records.chunks(limits::IDS_PER_STATEMENT) {
        let ids = chunk.iter().map(|record| record.id.clone()).collect();
        for row in tx.look_up(what, &BY_ID, tenant, ids).await? {
            there
                .ids
                .insert(row.text("id").map_err(|e| tx.error(what, e))?);
        }
    }
    if job.profile.match_on.is_none() {
        return Ok(there);
    }
    let keys = records.iter().flat_map(|record| &record.keys);
    let keys: HashSet<&str> = keys.map(|key| key.text.as_str()).collect();
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    for chunk in keys.chunks(limits::KEYS_PER_STATEMENT) {
        for row in tx.look_up(what, &BY_KEY, tenant, chunk.to_vec()).await? {
            let read = || -> Result<(String, Keyed), sqlx::Error> {
                let (id, alike) = (row.text("id")?, row.number("alike")?);
                Ok((row.text("match_key")?, Keyed { id, alike }))
            };
            let (key, found) = read().map_err(|e| tx.error(what, e))?;
            there.keyed.entry(key).or_default().push(found);
        }
    }
    Ok(there)
}

/// Whether records replace what has their ids, and nothing else is asked of what is there.
pub(crate) fn replaces(profile: &Profile, selectors: &Selectors) -> bool {
    let creates = profile.on_no_match == OnNoMatch::Create;
    let by_id = profile.match_on.is_none() && selectors.is_empty();
    by_id && creates && profile.on_match == OnMatch::Update
}

/// The rows of a policy that [`replaces`]. All count as created, until it is told how many were there.
pub(crate) fn replacing(records: &[SliceRecord]) -> Decided {
    let mut decided = Decided::default();
    let mut row_of: HashMap<&str, usize> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        match row_of.entry(&record.id) {
            // Of several of one id the last one stays.
            Entry::Occupied(row) => decided.rows[*row.get()].0 = index,
            Entry::Vacant(free) => {
                free.insert(decided.rows.len());
                decided.rows.push((index, record.id.clone()));
            }
        }
    }
    decided.created = decided.rows.len() as u64;
    decided.updated = records.len() as u64 - decided.created;
    decided
}

/// Applies the policy to a slice's records in the file's order; one record may match another one
/// before it. `own` is how the keys begin that the profile matches by.
pub(crate) fn decide(
    profile: &Profile,
    own: Option<&str>,
    records: &[SliceRecord],
    there: &There,
) -> Decided {
    let mut decided = Decided::default();
    // By the id under which it is stored: its place in `rows`.
    let mut row_of: HashMap<String, usize> = HashMap::new();
    // The ids of the records before that have a key, or had it.
    let mut keyed: HashMap<&str, BTreeSet<String>> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        let by_id = |id: &str| there.ids.contains(id) || row_of.contains_key(id);
        let own_keys = || record.keys.iter().filter(|key| has_prefix(key, own));
        let mut found = BTreeSet::new();
        if profile.match_on.is_none() && by_id(&record.id) {
            found.insert(record.id.clone());
        }
        for key in own_keys() {
            // What a record before has replaced is not there any more.
            let there = there.with(key).filter(|id| !row_of.contains_key(*id));
            let has_key = |id: &&String| {
                let row = row_of.get(*id).and_then(|row| decided.rows.get(*row));
                let record = row.and_then(|(index, _)| records.get(*index));
                record.is_some_and(|record| record.keys.iter().any(|of| of.text == key.text))
            };
            let before = keyed.get(key.text.as_str()).into_iter().flatten();
            found.extend(there.map(str::to_owned));
            found.extend(before.filter(has_key).cloned());
        }
        let by = profile.match_on.as_deref().unwrap_or("its id");
        let mut remark = |kind, reason| decided.remarks.push((index, kind, reason));
        let id = match (found.first(), profile.on_match, profile.on_no_match) {
            (Some(_), OnMatch::Update, _) if found.len() > 1 => {
                let already = there_already(&found, by);
                let reason = format!("{already}; it can replace one alone");
                remark(RemarkKind::Rejected, reason);
                continue;
            }
            (Some(id), OnMatch::Update, _) => {
                decided.updated += 1;
                id.clone()
            }
            (Some(_), OnMatch::Skip, _) => {
                remark(RemarkKind::Skipped, there_already(&found, by));
                continue;
            }
            (Some(_), OnMatch::Fail, _) => {
                remark(RemarkKind::Rejected, there_already(&found, by));
                continue;
            }
            (None, _, OnNoMatch::Skip) => {
                remark(RemarkKind::Skipped, format!("no record is there, by {by}"));
                continue;
            }
            (None, _, OnNoMatch::Fail) => {
                remark(RemarkKind::Rejected, format!("no record is there, by {by}"));
                continue;
            }
            (None, _, OnNoMatch::Create) if by_id(&record.id) => {
                let reason = format!("'{}' is there already, but not by {by}", record.id);
                remark(RemarkKind::Rejected, reason);
                continue;
            }
            (None, _, OnNoMatch::Create) => {
                decided.created += 1;
                record.id.clone()
            }
        };
        for key in own_keys() {
            keyed.entry(&key.text).or_default().insert(id.clone());
        }
        // Of several of one id the last one stays.
        match row_of.get(&id) {
            Some(row) => decided.rows[*row].0 = index,
            None => {
                row_of.insert(id.clone(), decided.rows.len());
                decided.rows.push((index, id));
            }
        }
    }
    decided
}

fn has_prefix(key: &Key, prefix: Option<&str>) -> bool {
    prefix.is_some_and(|prefix| key.text.starts_with(prefix))
}

/// Says which records are there.
fn there_already(ids: &BTreeSet<String>, by: &str) -> String {
    let named: Vec<String> = ids
        .iter()
        .take(IDS_NAMED)
        .map(|id| format!("'{id}'"))
        .collect();
    let more = match ids.len().saturating_sub(IDS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let are = if ids.len() > 1 { "are" } else { "is" };
    format!("{}{more} {are} there already, by {by}", named.join(", "))
}

/// What is to change of the keys of a turn's records.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Of these what is there goes.
    replaced: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Keys {
    pub fn of(
        tenant: &TenantId,
        decided: &Decided,
        records: &[SliceRecord],
        there: &There,
        selectors: &Selectors,
    ) -> Keys {
        let mut keys = Keys::default();
        if selectors.is_empty() {
            return keys;
        }
        let keyed = there.keyed.values().flatten();
        let keyed: HashSet<&str> = keyed.map(|found| found.id.as_str()).collect();
        for (index, id) in &decided.rows {
            let Some(record) = records.get(*index) else {
                continue;
            };
            if there.has_keys(id, &record.keys, selectors) {
                continue;
            }
            if there.ids.contains(id) || keyed.contains(id.as_str()) {
                keys.replaced.push(id.clone());
            }
            let of_record = record.keys.iter().cloned();
            keys.rows
                .extend(of_record.map(|key| key_row(tenant, id, key)));
        }
        keys
    }

    pub async fn write(self, tx: &mut Transaction, tenant: &TenantId) -> Result<(), ImportsError> {
        for ids in self.replaced.chunks(limits::IDS_PER_STATEMENT) {
            let remove = Statement::new("DELETE FROM import_keys WHERE tenant = ? AND id IN ")
                .bind(tenant.as_str())
                .list(ids.iter().map(String::as_str));
            tx.run("remove keys of before", &remove).await?;
        }
        Ok(tx.insert("store keys", &INSERT_KEY, self.rows).await?)
    }
}

/// Records that a reason names, where it is of several.
const IDS_NAMED: usize = 3;

/// A record by its key.
pub(crate) const BY_ID: Lookup = Lookup {
    table: "import_records",
    columns: &["id"],
    among: "id",
    of: Some("tenant"),
};

const BY_KEY: Lookup = Lookup {
    table: "import_keys",
    columns: &["match_key", "id", "alike"],
    among: "match_key",
    of: None,
};

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "t/1/";

    fn keys(values: &[&str]) -> Vec<Key> {
        let alike = values.len() as i64;
        let key = |value: &&str| Key {
            text: format!("{OWN}{value}"),
            alike,
        };
        values.iter().map(key).collect()
    }

    fn record(id: &str, values: &[&str]) -> SliceRecord {
        SliceRecord::plain(id, keys(values))
    }

    fn profile(text: &str) -> Profile {
        serde_json::from_str(text).unwrap()
    }

    /// Records of these ids, and some with their values.
    fn there(ids: &[&str], values: &[(&str, &[&str])]) -> There {
        let mut there = There {
            ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            keyed: HashMap::new(),
        };
        for (id, values) in values {
            for Key { text, alike } in keys(values) {
                let id = (*id).to_owned();
                there
                    .keyed
                    .entry(text)
                    .or_default()
                    .push(Keyed { id, alike });
            }
        }
        there
    }

    #[test]
    fn the_last_of_one_id_stays_and_all_are_counted() {
        let records = ["a", "b", "a"].map(|id| record(id, &[]));
        let decided = decide(&Profile::default(), None, &records, &there(&["b"], &[]));
        assert_eq!(decided.rows, [(2, "a".to_owned()), (1, "b".to_owned())]);
        assert_eq!((decided.created, decided.updated), (1, 2));
        let untold = replacing(&records);
        assert_eq!(untold.rows, decided.rows);
        assert_eq!((untold.created, untold.updated), (2, 1));
    }

    #[test]
    fn a_match_updates_the_record_that_has_the_value() {
        let by_isbn = profile(r#"{"match": "isbn"}"#);
        let records = [
            record("new", &["1"]),
            record("own", &["2"]),
            record("again", &["2"]),
            record("bare", &[]),
            record("taken", &["3"]),
        ];
        let there = there(&["old", "taken"], &[("old", &["1"])]);
        let decided = decide(&by_isbn, Some(OWN), &records, &there);
        let rows = [(0, "old"), (2, "own"), (3, "bare")].map(|(n, id)| (n, id.to_owned()));
        assert_eq!(decided.rows, rows);
        assert_eq!((decided.created, decided.updated), (2, 2));
        assert_eq!(decided.remarks.len(), 1, "{:?}", decided.remarks);
        assert_eq!(decided.remarks[0].1, RemarkKind::Rejected);
    }

    #[test]
    fn any_of_the_values_matches_and_several_records_are_no_match() {
        let by_isbn = profile(r#"{"match": "isbn"}"#);
        let (one, other): (&[&str], &[&str]) = (&["1", "2"], &["2", "3"]);
        let there = there(&[], &[("one", one), ("other", other)]);
        let records = [
            record("a", &["9", "1"]),
            record("b", &["2"]),
            record("c", &["9"]),
            // By now 2 is nobody's but the other's, 1 and 3 are nobody's.
            record("d", &["1"]),
            record("e", &["1", "3"]),
        ];
        let decided = decide(&by_isbn, Some(OWN), &records, &there);
        let rows = [(2, "one"), (1, "other"), (4, "d")].map(|(n, id)| (n, id.to_owned()));
        assert_eq!(
            (decided.rows.as_slice(), decided.remarks.len()),
            (&rows[..], 0)
        );
        let first = [record("b", &["2"])];
        let decided = decide(&by_isbn, Some(OWN), &first, &there);
        let (_, kind, reason) = &decided.remarks[0];
        let expected = "'one', 'other' are there already, by isbn; it can replace one alone";
        assert_eq!((*kind, reason.as_str()), (RemarkKind::Rejected, expected));
    }

    #[test]
    fn keys_are_written_where_they_changed() {
        let tenant: TenantId = "t".parse().unwrap();
        let selectors = Selectors::entered("t", &["isbn"]);
        let by_isbn = profile(r#"{"match": "isbn"}"#);
        let same: &[&str] = &["1", "2"];
        let there = there(
            &["bare"],
            &[("same", same), ("less", &["3", "4"]), ("more", &["5"])],
        );
        let records = [
            record("x", &["2", "1"]),
            record("y", &["3"]),
            record("z", &["5", "6"]),
            record("new", &["7"]),
        ];
        let decided = decide(&by_isbn, Some(OWN), &records, &there);
        let keys = Keys::of(&tenant, &decided, &records, &there, &selectors);
        assert_eq!(keys.replaced, ["less", "more"]);
        assert_eq!(keys.rows.len(), 4);
        // What is replaced by its id is not seen to have any.
        let records = [record("bare", &[])];
        let decided = decide(&Profile::default(), None, &records, &there);
        let keys = Keys::of(&tenant, &decided, &records, &there, &selectors);
        assert_eq!((keys.replaced.len(), keys.rows.len()), (1, 0));
    }

    #[test]
    fn each_policy_does_what_its_name_says() {
        let records = ["old", "new"].map(|id| record(id, &[]));
        let there = there(&["old"], &[]);
        let kinds = |text: &str| {
            let decided = decide(&profile(text), None, &records, &there);
            let kinds: Vec<_> = decided
                .remarks
                .iter()
                .map(|(n, kind, _)| (*n, *kind))
                .collect();
            (decided.created, decided.updated, kinds)
        };
        let (skipped, rejected) = (RemarkKind::Skipped, RemarkKind::Rejected);
        assert_eq!(kinds(r#"{"on_match": "skip"}"#), (1, 0, vec![(0, skipped)]));
        assert_eq!(
            kinds(r#"{"on_match": "fail"}"#),
            (1, 0, vec![(0, rejected)])
        );
        assert_eq!(
            kinds(r#"{"on_no_match": "skip"}"#),
            (0, 1, vec![(1, skipped)])
        );
        assert_eq!(
            kinds(r#"{"on_no_match": "fail"}"#),
            (0, 1, vec![(1, rejected)])
        );
    }
}
