//! Tenants: for whom work is done beside others, who belongs to them and what bounds them.
//!
//! A caller belongs to the tenant among whose members it is, or whose name its own begins with
//! (`User:acme/ann`). Who belongs to a tenant is kept off the topics of others, which are told by
//! their names: `ENV.NAMESPACE.TENANT.EVENT`, `ENV.TENANT.EVENT`, or `imports-TENANT`, where TENANT is
//! a tenant or a collection that several share. Groups and transactional ids are told by such names
//! too, or begin with a tenant's (`acme-orders`); MQTT topics have it as their first level (`acme/up/1`).
//!
//! Who belongs to a tenant that is not kept, as it was removed or never was one, is kept off all of them:
//! of a removed tenant its name and its members are remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::TenantId;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{
    TENANT_MEMBERS_MAX, TENANT_QUOTA_MAX, TENANT_RETENTION_MS_MIN, TENANT_WEIGHT_MAX,
};
use crate::{AccessError, Principal};

/// What is kept of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// Its share beside others, 1 to 1000.
    pub weight: u32,
    /// Whose turn its work is.
    pub class: TenantClass,
    /// What it may use; nothing bounds what is not named.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: TenantQuotas,
    /// The collection that its records go to; its own topics when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<Collection>,
    /// Where its records are to go to, once every group has read what it has where they go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switching_to: Option<Destination>,
    /// How long its records are kept, in ms, where its topics do not let go of them sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
    /// The callers who belong to it beside those whose names begin with its own.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub members: BTreeSet<Principal>,
}

/// Quotas by what they bound; each value is greater than zero.
pub type TenantQuotas = BTreeMap<TenantBound, u64>;

/// Classes of work, the first to be served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantClass {
    /// Somebody waits for each answer.
    Foreground,
    /// Somebody waits for the whole.
    Interactive,
    /// Nobody waits.
    #[default]
    Bulk,
}

/// What a tenant may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantBound {
    /// Bytes a second that it sends.
    BytesInPerSecond,
    /// Bytes a second that it reads.
    BytesOutPerSecond,
    /// Records a second that it sends.
    RecordsPerSecond,
    /// Requests with records of its that are being stored.
    InFlight,
    /// Bytes of its records that are kept.
    StoredBytes,
}

/// A name that topics of several tenants share in the place of the tenant's: `[A-Z][A-Z0-9]{0,30}`,
/// which no tenant can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Collection(Box<str>);

/// Where a tenant's records go to: `own`, or a collection's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Destination {
    /// Its own topics.
    Own,
    /// Those of a collection.
    Shared(Collection),
}

/// What is to become of a tenant; what is left out stays as it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantChange {
    /// See [`Tenant::weight`].
    pub weight: Option<u32>,
    /// See [`Tenant::class`].
    pub class: Option<TenantClass>,
    /// New quotas; none takes one away.
    pub quotas: BTreeMap<TenantBound, Option<u64>>,
    /// The collection, or none for own topics.
    #[serde(deserialize_with = "present")]
    pub collection: Option<Option<Collection>>,
    /// For how long, or none for what the topics say.
    #[serde(deserialize_with = "present")]
    pub retention_ms: Option<Option<u64>>,
    /// All members from now on.
    pub members: Option<BTreeSet<Principal>>,
}

impl Default for Tenant {
    fn default() -> Self {
        Tenant {
            weight: 1,
            class: TenantClass::default(),
            quotas: TenantQuotas::new(),
            collection: None,
            switching_to: None,
            retention_ms: None,
            members: BTreeSet::new(),
        }
    }
}

impl Tenant {
    /// The tenant as the change makes it.
    ///
    /// # Errors
    /// [`AccessError::Invalid`], [`AccessError::Limit`].
    pub(crate) fn changed(&self, change: &TenantChange) -> Result<Tenant, AccessError> {
        let mut changed = self.clone();
        if let Some(weight) = change.weight {
            if !(1..=TENANT_WEIGHT_MAX).contains(&weight) {
                let reason = format!("write 1 to {TENANT_WEIGHT_MAX}");
                return Err(AccessError::invalid("weight", reason));
            }
            changed.weight = weight;
        }
        changed.class = change.class.unwrap_or(self.class);
        for (bound, value) in &change.quotas {
            match value {
                None => drop(changed.quotas.remove(bound)),
                Some(value) if (1..=TENANT_QUOTA_MAX).contains(value) => {
                    changed.quotas.insert(*bound, *value);
                }
                Some(_) => {
                    let reason = format!("{bound} is 1 to {TENANT_QUOTA_MAX}, or null for none");
                    return Err(AccessError::invalid("quota", reason));
                }
            }
        }
        if let Some(collection) = &change.collection {
            let wanted = collection
                .clone()
                .map_or(Destination::Own, Destination::Shared);
            let is_there = changed.collection == wanted.clone().into_collection();
            changed.switching_to = (!is_there).then_some(wanted);
        }
        if let Some(retention_ms) = change.retention_ms {
            if retention_ms
                .is_some_and(|ms| !(TENANT_RETENTION_MS_MIN..=TENANT_QUOTA_MAX).contains(&ms))
            {
                let reason = format!("write {TENANT_RETENTION_MS_MIN} or more, or null for none");
                return Err(AccessError::invalid("retention_ms", reason));
            }
            changed.retention_ms = retention_ms;
        }
        if let Some(members) = &change.members {
            if members.len() > TENANT_MEMBERS_MAX {
                return Err(AccessError::Limit {
                    what: "members of a tenant",
                    max: TENANT_MEMBERS_MAX,
                });
            }
            changed.members.clone_from(members);
        }
        Ok(changed)
    }
}

impl Destination {
    /// The collection; none for own topics.
    pub fn into_collection(self) -> Option<Collection> {
        match self {
            Destination::Own => None,
            Destination::Shared(collection) => Some(collection),
        }
    }
}

impl TryFrom<String> for Destination {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        match text.as_str() {
            OWN => Ok(Destination::Own),
            text => text.parse().map(Destination::Shared),
        }
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> String {
        match destination {
            Destination::Own => OWN.to_owned(),
            Destination::Shared(collection) => collection.into(),
        }
    }
}

impl TenantClass {
    /// All of them.
    pub const ALL: [TenantClass; 3] = [
        TenantClass::Foreground,
        TenantClass::Interactive,
        TenantClass::Bulk,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            TenantClass::Foreground => "foreground",
            TenantClass::Interactive => "interactive",
            TenantClass::Bulk => "bulk",
        }
    }
}

impl TenantBound {
    /// All of them.
    pub const ALL: [TenantBound; 5] = [
        TenantBound::BytesInPerSecond,
        TenantBound::BytesOutPerSecond,
        TenantBound::RecordsPerSecond,
        TenantBound::InFlight,
        TenantBound::StoredBytes,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            TenantBound::BytesInPerSecond => "bytes_in_per_second",
            TenantBound::BytesOutPerSecond => "bytes_out_per_second",
            TenantBound::RecordsPerSecond => "records_per_second",
            TenantBound::InFlight => "in_flight",
            TenantBound::StoredBytes => "stored_bytes",
        }
    }
}

impl fmt::Display for TenantBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Collection {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text may be one.
    pub fn is_one(text: &str) -> bool {
        let legal = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit();
        text.len() <= COLLECTION_BYTES_MAX
            && text.as_bytes().first().is_some_and(u8::is_ascii_uppercase)
            && text.bytes().all(legal)
    }
}

impl FromStr for Collection {
    type Err = AccessError;

    fn from_str(text: &str) -> Result<Self, AccessError> {
        if !Collection::is_one(text) {
            let reason = "write 1 to 31 of A-Z and 0-9, a letter first, such as ALL";
            return Err(AccessError::invalid("collection", reason));
        }
        Ok(Collection(text.into()))
    }
}

impl TryFrom<String> for Collection {
    type Error = AccessError;

    fn try_from(text: String) -> Result<Self, AccessError> {
        text.parse()
    }
}

impl From<Collection> for String {
    fn from(collection: Collection) -> String {
        collection.0.into()
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The names of record headers that say whose a record is.
pub const TENANT_HEADERS: [&str; 3] = ["folio.tenantId", "x-okapi-tenant", "thalweg.tenant"];

/// What stands behind a tenant's name in the names of its groups and transactional ids.
const GROUP_SEPARATORS: [char; 5] = ['.', '-', '_', ':', '/'];

/// What the names of topics begin with that imports go to which name none; the tenant follows.
pub const IMPORTS_TOPIC: &str = "imports-";

/// All tenants, laid out for asking.
#[derive(Default)]
pub(crate) struct TenantIndex {
    pub(crate) tenants: BTreeMap<TenantId, Tenant>,
    of_member: BTreeMap<Principal, TenantId>,
    /// Those that were removed, with who belonged to them.
    pub(crate) removed: RemovedTenants,
    /// Every collection that any tenant was ever to be in.
    pub(crate) collections: BTreeSet<Collection>,
    /// Topics in which parts of the process keep what is all tenants'.
    pub(crate) closed: Arc<BTreeSet<String>>,
}

/// Removed tenants with their members.
pub(crate) type RemovedTenants = BTreeMap<TenantId, BTreeSet<Principal>>;

impl TenantIndex {
    pub(crate) fn new(
        tenants: BTreeMap<TenantId, Tenant>,
        removed: RemovedTenants,
        collections: BTreeSet<Collection>,
    ) -> Self {
        let kept = tenants.iter().map(|(tenant, of)| (tenant, &of.members));
        let members = removed.iter().chain(kept).flat_map(|(tenant, members)| {
            let members = members.iter();
            members.map(move |member| (member.clone(), tenant.clone()))
        });
        let of_member = members.collect();
        TenantIndex {
            tenants,
            of_member,
            removed,
            collections,
            closed: Arc::default(),
        }
    }

    /// Whether anything is asked of anybody: a tenant is kept, or was.
    pub(crate) fn is_any(&self) -> bool {
        !(self.tenants.is_empty() && self.removed.is_empty())
    }

    /// The tenant that a caller belongs to.
    pub(crate) fn of(&self, caller: &Principal) -> Option<OfCaller<'_>> {
        if !self.is_any() {
            return None;
        }
        let name = match self.of_member.get(caller) {
            Some(tenant) => tenant.clone(),
            None => caller.tenant()?.parse().ok()?,
        };
        Some(match self.tenants.get_key_value(&name) {
            Some((name, tenant)) => OfCaller::Kept(name, tenant),
            None => OfCaller::Unknown(name),
        })
    }

    /// The tenant of this name, kept or removed.
    fn named(&self, name: &str) -> Option<&TenantId> {
        let name: TenantId = name.parse().ok()?;
        let kept = self.tenants.get_key_value(&name).map(|(name, _)| name);
        kept.or_else(|| Some(self.removed.get_key_value(&name)?.0))
    }

    /// Whose a topic is by its name.
    pub(crate) fn of_topic<'t>(&'t self, topic: &'t str) -> Option<OfTopic<'t>> {
        if !self.is_any() {
            return None;
        }
        let of_import = topic.strip_prefix(IMPORTS_TOPIC);
        let of_import = of_import.and_then(|part| self.of_part(part));
        // An environment's name may begin alike.
        if of_import.is_some() {
            return of_import;
        }
        let mut parts = topic.splitn(4, '.');
        let (_, second, third) = (parts.next()?, parts.next()?, parts.next()?);
        let with_namespace = parts.next().and_then(|_| self.of_part(third));
        with_namespace.or_else(|| self.of_part(second))
    }

    /// Whose a group or a transactional id is by its name: as a topic's, or by what it begins with.
    pub(crate) fn of_group<'t>(&'t self, name: &'t str) -> Option<&'t TenantId> {
        if let Some(OfTopic::Tenant(tenant)) = self.of_topic(name) {
            return Some(tenant);
        }
        // The longest name of a tenant, which may have a separator in it; a group's may be far longer.
        let ends = name.match_indices(GROUP_SEPARATORS).map(|(end, _)| end);
        let ends = ends.chain(std::iter::once(name.len()));
        let beginnings = ends.take_while(|end| *end <= TenantId::BYTES_MAX);
        let found = beginnings.filter_map(move |end| self.named(&name[..end]));
        found.last()
    }

    /// Whose an MQTT topic or a filter is by its first level.
    pub(crate) fn of_mqtt_topic(&self, topic: &str) -> Option<&TenantId> {
        self.named(topic.split('/').next()?)
    }

    fn of_part<'t>(&'t self, part: &'t str) -> Option<OfTopic<'t>> {
        if self.collections.iter().any(|known| known.as_str() == part) {
            return Some(OfTopic::Shared(part));
        }
        self.named(part).map(OfTopic::Tenant)
    }
}

/// The tenant that a caller belongs to.
#[derive(Clone, Debug)]
pub enum OfCaller<'t> {
    /// A kept one.
    Kept(&'t TenantId, &'t Tenant),
    /// One that was removed, or never was kept: nothing that is anybody's is the caller's.
    Unknown(TenantId),
}

impl OfCaller<'_> {
    /// Its name.
    pub fn name(&self) -> &TenantId {
        match self {
            OfCaller::Kept(name, _) => name,
            OfCaller::Unknown(name) => name,
        }
    }

    /// What is kept of it.
    pub fn kept(&self) -> Option<&Tenant> {
        match self {
            OfCaller::Kept(_, tenant) => Some(tenant),
            OfCaller::Unknown(_) => None,
        }
    }
}

/// Whose a topic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfTopic<'t> {
    /// A tenant's own, kept or removed.
    Tenant(&'t TenantId),
    /// A collection's that tenants share.
    Shared(&'t str),
}

fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

/// The word for a tenant's own topics; no collection's name, as those are in upper case.
const OWN: &str = "own";
/// Longest name of a collection.
const COLLECTION_BYTES_MAX: usize = 31;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn index(tenants: &[(&str, &[&str], Option<&str>)]) -> TenantIndex {
        let tenants = tenants.iter().map(|(name, members, collection)| {
            let members = members.iter().map(|name| Principal::user(name)).collect();
            let collection = collection.map(|name| name.parse().unwrap());
            let tenant = Tenant {
                members,
                collection,
                ..Tenant::default()
            };
            (name.parse().unwrap(), tenant)
        });
        let tenants: BTreeMap<TenantId, Tenant> = tenants.collect();
        let collections = tenants.values().filter_map(|of| of.collection.clone());
        let collections = collections.collect();
        TenantIndex::new(tenants, RemovedTenants::new(), collections)
    }

    #[test]
    fn a_caller_belongs_by_membership_or_by_the_name_before_its_own() {
        let index = index(&[
            ("acme", &["ann", "CN=press,O=Plant"], None),
            ("beta", &[], None),
        ]);
        let of = |name: &str| {
            let caller = Principal::user(name);
            index.of(&caller).map(|of| match of {
                OfCaller::Kept(tenant, _) => tenant.to_string(),
                OfCaller::Unknown(tenant) => format!("unknown {tenant}"),
            })
        };
        for (name, expected) in [
            ("ann", Some("acme")),
            ("CN=press,O=Plant", Some("acme")),
            ("acme/bob", Some("acme")),
            ("beta/ann", Some("beta")),
            ("bob", None),
            ("acme", None),
            ("gamma/ann", Some("unknown gamma")),
            ("CN=press/7,O=Plant", None),
            ("Gamma/ann", None),
            ("/ann", None),
        ] {
            assert_eq!(of(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_topic_is_somebodys_by_its_tenant_part() {
        let index = index(&[("diku", &[], Some("ALL")), ("beta", &[], None)]);
        let of = |topic: &str| match index.of_topic(topic) {
            None => "-".to_owned(),
            Some(OfTopic::Tenant(tenant)) => tenant.to_string(),
            Some(OfTopic::Shared(name)) => format!("shared {name}"),
        };
        for (topic, expected) in [
            ("folio.Default.diku.DI_COMPLETED", "diku"),
            ("folio.Default.diku.a.b", "diku"),
            ("folio.beta.inventory.instance", "beta"),
            ("folio.beta.instance", "beta"),
            ("folio.Default.ALL.DI_COMPLETED", "shared ALL"),
            ("folio.ALL.inventory.instance", "shared ALL"),
            ("folio.Default.OTHER.DI_COMPLETED", "-"),
            ("folio.Default.unknown.DI_COMPLETED", "-"),
            ("imports-diku", "diku"),
            ("imports-ALL", "shared ALL"),
            ("imports-unknown", "-"),
            ("imports-", "-"),
            ("imports-diku.b.c", "-"),
            ("imports-x.y.diku.c", "diku"),
            ("imports-prod.Default.diku.ORDERS", "diku"),
            ("x.imports-diku", "-"),
            ("diku.a.b.c", "-"),
            ("diku", "-"),
            ("folio.diku", "-"),
            ("", "-"),
        ] {
            assert_eq!(of(topic), expected, "{topic}");
        }
        assert_eq!(TenantIndex::default().of_topic("a.b.diku.c"), None);
    }

    #[test]
    fn a_group_is_somebodys_by_its_beginning_or_as_a_topic_is() {
        let index = index(&[("diku", &[], Some("ALL")), ("diku-eu", &[], None)]);
        for (group, expected) in [
            ("diku", Some("diku")),
            ("diku-orders", Some("diku")),
            ("diku.orders", Some("diku")),
            ("diku_orders:1", Some("diku")),
            ("diku/orders", Some("diku")),
            ("diku-eu-orders", Some("diku-eu")),
            ("diku-eu", Some("diku-eu")),
            ("diku-europe", Some("diku")),
            ("folio.Default.diku.orders", Some("diku")),
            ("diku.Default.diku-eu.orders", Some("diku-eu")),
            ("folio.Default.ALL.orders", None),
            ("dikuorders", None),
            ("orders-diku", None),
            ("DIKU-orders", None),
            (&format!("diku-{}", "-".repeat(30_000)), Some("diku")),
            ("-", None),
            ("", None),
        ] {
            let found = index.of_group(group).map(TenantId::as_str);
            assert_eq!(found, expected, "{group}");
        }
        assert_eq!(TenantIndex::default().of_group("diku-orders"), None);
    }

    #[test]
    fn an_mqtt_topic_is_somebodys_by_its_first_level() {
        let index = index(&[("diku", &[], None)]);
        for (topic, expected) in [
            ("diku/up/1", Some("diku")),
            ("diku", Some("diku")),
            ("diku/#", Some("diku")),
            ("up/diku", None),
            ("/diku", None),
            ("dik/u", None),
            ("+/up", None),
            ("#", None),
        ] {
            let found = index.of_mqtt_topic(topic).map(TenantId::as_str);
            assert_eq!(found, expected, "{topic}");
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name_and_takes_quotas_away_by_null() {
        let change = |value| serde_json::from_value::<TenantChange>(value).unwrap();
        let first = Tenant::default()
            .changed(&change(json!({
                "weight": 4, "class": "interactive", "collection": "ALL",
                "quotas": {"in_flight": 3, "stored_bytes": 1000}, "members": ["User:ann"],
            })))
            .unwrap();
        let second = first.changed(&change(json!({
            "quotas": {"in_flight": null, "records_per_second": 5}, "collection": null,
        })));
        let second = second.unwrap();
        assert_eq!((second.weight, second.class), (4, TenantClass::Interactive));
        let quotas: Vec<_> = second
            .quotas
            .iter()
            .map(|(b, v)| format!("{b}={v}"))
            .collect();
        assert_eq!(quotas, ["records_per_second=5", "stored_bytes=1000"]);
        let all = || Some(Destination::Shared("ALL".parse().unwrap()));
        assert_eq!(
            (&first.collection, first.switching_to.clone()),
            (&None, all())
        );
        // Who is back before the switch was done stays.
        assert_eq!(
            (second.switching_to.clone(), second.members.len()),
            (None, 1)
        );
        let kept = first.changed(&change(json!({"retention_ms": 60_000})));
        let kept = kept
            .unwrap()
            .changed(&change(json!({"weight": 2})))
            .unwrap();
        assert_eq!(kept.retention_ms, Some(60_000));
        let for_ever = kept.changed(&change(json!({"retention_ms": null})));
        assert_eq!(for_ever.unwrap().retention_ms, None);
        for tenant in [first.clone(), kept] {
            let text = serde_json::to_string(&tenant).unwrap();
            assert_eq!(serde_json::from_str::<Tenant>(&text).unwrap(), tenant);
        }
        for bad in [
            json!({"weight": 0}),
            json!({"weight": 1001}),
            json!({"quotas": {"in_flight": 0}}),
            json!({"retention_ms": 999}),
        ] {
            assert!(first.changed(&change(bad.clone())).is_err(), "{bad}");
        }
        for unreadable in [
            json!({"collection": "all"}),
            json!({"collection": "A23456789012345678901234567890123"}),
            json!({"quotas": {"bytes": 1}}),
            json!({"members": ["ann"]}),
            json!({"wieght": 1}),
        ] {
            assert!(serde_json::from_value::<TenantChange>(unreadable.clone()).is_err());
        }
    }
}
