//! Keys: the values by which records are found again, of every selector that a profile of their
//! tenant has matched by.
//!
//! A selector is entered for its tenant by the first job that matches by it. From then on each slice
//! of the tenant writes its records' keys with them, whatever profile its job has, so that a record's
//! keys are those of the body that is stored. What lay there before is read in parts, each a
//! transaction of its own, in the job's turns before its first slice; a crash goes on behind the last
//! part.
//!
//! `import_tenants.selectors` grows with each selector. A slice is read for those of one moment, and
//! its commit asks that they are the same still: else nothing is written, and it is read again.

use std::collections::HashSet;

use base::TenantId;
use sql::{Conflict, Insert, Row, Statement, Value};

use crate::commit::lock_tenant;
use crate::error::ImportsError;
use crate::job::Format;
use crate::limits;
use crate::marc::parse_json;
use crate::profile::{Object, Profile, Values, marc_values};
use crate::registry::Registry;
use crate::slice::storable;

/// The selectors that a tenant's records have keys of.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    /// How many there have been.
    pub revision: i64,
    all: Vec<Selector>,
}

/// A selector, as it was entered for a tenant.
#[derive(Debug)]
struct Selector {
    text: String,
    /// How the keys begin that are of it.
    prefix: String,
    /// Whether the records have keys of it that were there before it.
    is_filled: bool,
}

/// One of the values by which a record is found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// The selector's prefix, and the value.
    pub text: String,
    /// How many keys the record has of the selector.
    pub alike: i64,
}

impl Selectors {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether records are found by what a profile matches by.
    pub fn are_ready_for(&self, profile: &Profile) -> bool {
        match &profile.match_on {
            Some(text) => self.named(text).is_some_and(|selector| selector.is_filled),
            None => true,
        }
    }

    /// How the keys begin that a profile matches by; none where it compares ids.
    pub fn prefix_of(&self, profile: &Profile) -> Option<&str> {
        let selector = self.named(profile.match_on.as_deref()?)?;
        Some(&selector.prefix)
    }

    /// The keys of a record whose values `select` tells.
    pub fn keys<'v>(&self, select: impl Fn(&str) -> Values<'v>) -> Vec<Key> {
        let mut keys = Vec::new();
        for selector in &self.all {
            let (first, mut seen) = (keys.len(), HashSet::new());
            for value in select(&selector.text) {
                let value = storable(value.trim().to_owned());
                let is_one = !value.is_empty() && value.len() <= limits::ID_BYTES_MAX;
                if is_one && seen.len() < limits::KEYS_OF_SELECTOR_MAX && !seen.contains(&value) {
                    let text = format!("{}{value}", selector.prefix);
                    keys.push(Key { text, alike: 0 });
                    seen.insert(value);
                }
            }
            let alike = i64::try_from(keys.len() - first).unwrap_or(i64::MAX);
            keys[first..].iter_mut().for_each(|key| key.alike = alike);
        }
        keys
    }

    /// The keys of an object, as it stands in a file or the sink.
    pub fn keys_of_object(&self, text: &str) -> Vec<Key> {
        if self.is_empty() {
            return Vec::new();
        }
        match Object::read(text) {
            Ok(object) => self.keys(|selector| object.values(selector)),
            Err(_) => Vec::new(),
        }
    }

    /// The keys of a record of the sink.
    fn keys_of_stored(&self, body: &str, is_marc: bool) -> Vec<Key> {
        if !is_marc {
            return self.keys_of_object(body);
        }
        match parse_json(body.as_bytes()) {
            Ok(record) => self.keys(|selector| marc_values(&record, selector)),
            Err(_) => Vec::new(),
        }
    }

    /// Whether `keys` have one of each selector.
    pub fn are_all_in(&self, keys: &[Key]) -> bool {
        let is_in = |selector: &Selector| {
            let mut keys = keys.iter();
            keys.any(|key| key.text.starts_with(&selector.prefix))
        };
        self.all.iter().all(is_in)
    }

    fn named(&self, text: &str) -> Option<&Selector> {
        self.all.iter().find(|selector| selector.text == text)
    }
}

#[cfg(test)]
impl Selectors {
    /// Selectors of a tenant, numbered from one, for tests.
    pub fn entered(tenant: &str, texts: &[&str]) -> Selectors {
        let all = (1..).zip(texts);
        let all = all.map(|(number, text)| Selector::of(tenant, number, text, true));
        Selectors {
            revision: 1,
            all: all.collect(),
        }
    }
}

impl Selector {
    /// No tenant's name has a `/`, and no number of another selector is this one's.
    fn of(tenant: &str, number: i64, text: &str, is_filled: bool) -> Selector {
        Selector {
            text: text.to_owned(),
            prefix: format!("{tenant}/{number}/"),
            is_filled,
        }
    }
}

impl Registry {
    /// The selectors of a tenant.
    pub async fn selectors(&self, tenant: &TenantId) -> Result<Selectors, ImportsError> {
        let what = "read what a tenant's records are found by";
        let select = Statement::new(
            "SELECT t.selectors AS revision, s.number AS number, s.selector AS selector,
             s.is_filled AS is_filled FROM import_tenants t
             LEFT JOIN import_selectors s ON s.tenant = t.tenant
             WHERE t.tenant = ? ORDER BY s.number",
        )
        .bind(tenant.as_str());
        let mut selectors = Selectors::default();
        let mut add = |row: &Row| -> Result<(), sqlx::Error> {
            selectors.revision = row.number("revision")?;
            if let Some(number) = row.maybe_number("number")? {
                let (text, filled) = (row.text("selector")?, row.number("is_filled")?);
                let selector = Selector::of(tenant.as_str(), number, &text, filled != 0);
                selectors.all.push(selector);
            }
            Ok(())
        };
        let rows = self.database.rows(what, &select).await?;
        rows.iter()
            .try_for_each(&mut add)
            .map_err(|e| self.error(what, e))?;
        Ok(selectors)
    }

    /// Gets a tenant's records ready to be found by a selector, one step of it: enters the selector,
    /// or keys of some more records. True when nothing is left to do.
    ///
    /// # Errors
    /// Also when the tenant has as many selectors as it may.
    pub async fn prepare_selector(
        &self,
        tenant: &TenantId,
        text: &str,
    ) -> Result<bool, ImportsError> {
        let what = "get records ready to be matched";
        let mut tx = self.database.begin().await?;
        lock_tenant(&mut tx, tenant).await?;
        let select = Statement::new(
            "SELECT number, is_filled, filled_to FROM import_selectors
             WHERE tenant = ? AND selector = ?",
        )
        .bind(tenant.as_str())
        .bind(text);
        let Some(row) = tx.row(what, &select).await? else {
            enter(&mut tx, tenant, text).await?;
            tx.commit(what).await?;
            return Ok(false);
        };
        let read = || {
            let (number, filled) = (row.number("number")?, row.number("is_filled")?);
            Ok((number, filled != 0, row.text("filled_to")?))
        };
        let (number, is_filled, filled_to) = read().map_err(|e| tx.error(what, e))?;
        if is_filled {
            return Ok(true);
        }
        let selectors = Selectors {
            revision: 0,
            all: vec![Selector::of(tenant.as_str(), number, text, false)],
        };
        let select = Statement::new(
            "SELECT id, format, body FROM import_records WHERE tenant = ? AND id > ?
             ORDER BY id LIMIT ?",
        )
        .bind(tenant.as_str())
        .bind(filled_to.as_str())
        .bind(limits::FILLED_AT_ONCE as i64);
        let found = tx.rows(what, &select).await?;
        let (mut rows, mut last) = (Vec::new(), filled_to);
        for row in &found {
            let read = || Ok((row.text("id")?, row.text("format")?, row.text("body")?));
            let (id, format, body): (String, String, String) =
                read().map_err(|e| tx.error(what, e))?;
            let is_marc = Format::named(&format).is_some_and(Format::is_marc);
            let keys = selectors.keys_of_stored(&body, is_marc);
            rows.extend(keys.into_iter().map(|key| key_row(tenant, &id, key)));
            last = id;
        }
        tx.insert(what, &INSERT_KEY, rows).await?;
        let is_last = found.len() < limits::FILLED_AT_ONCE;
        let update = Statement::new(
            "UPDATE import_selectors SET filled_to = ?, is_filled = ?
             WHERE tenant = ? AND selector = ?",
        )
        .bind(last)
        .bind(i64::from(is_last))
        .bind(tenant.as_str())
        .bind(text);
        tx.run(what, &update).await?;
        tx.commit(what).await?;
        Ok(is_last)
    }
}

/// Enters a selector for a tenant: slices that begin from now on write keys of it.
async fn enter(
    tx: &mut sql::Transaction,
    tenant: &TenantId,
    text: &str,
) -> Result<(), ImportsError> {
    let what = "enter what a tenant's records are found by";
    let count = Statement::new("SELECT count(*) AS entered FROM import_selectors WHERE tenant = ?");
    let row = tx.row(what, &count.bind(tenant.as_str())).await?;
    let entered = row.map_or(Ok(0), |row| row.number("entered"));
    if entered.map_err(|e| tx.error(what, e))? >= limits::SELECTORS_MAX {
        let most = limits::SELECTORS_MAX;
        return Err(ImportsError::Invalid(format!(
            "the tenant's profiles have matched by {most} selectors, and more are not kept; match \
             by one of these"
        )));
    }
    let next = "UPDATE import_tenants SET selectors = selectors + 1 WHERE tenant = ?";
    tx.run(what, &Statement::new(next).bind(tenant.as_str()))
        .await?;
    let insert = Statement::new(
        "INSERT INTO import_selectors (tenant, selector, number, filled_to, is_filled)
         SELECT tenant, ?, selectors, '', 0 FROM import_tenants WHERE tenant = ?",
    )
    .bind(text)
    .bind(tenant.as_str());
    tx.run(what, &insert).await?;
    Ok(())
}

/// A record's key as its row.
pub(crate) fn key_row(tenant: &TenantId, id: &str, key: Key) -> Vec<Value> {
    vec![
        key.text.into(),
        id.into(),
        Value::from(tenant.as_str()),
        key.alike.into(),
    ]
}

/// A key that is there is the same record's.
pub(crate) const INSERT_KEY: Insert = Insert {
    table: "import_keys",
    columns: &["match_key", "id", "tenant", "alike"],
    conflict: Conflict::Replace {
        key: &["match_key", "id"],
        columns: &["alike"],
    },
};
