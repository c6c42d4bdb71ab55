//! What clients may use at most, by user, client id and address, in Kafka's words.
//!
//! Of the bounds that fit a client the most particular holds, and says by its own kind who shares
//! it: a bound of a user is shared by the user's clients, one of a user's client id is not.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::AccessError;
use crate::limits::NAME_BYTES_MAX;

/// Whom a quota bounds; an empty name is the default of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaEntity {
    /// A user, `Some(None)` for the users without a quota of their own.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named")]
    pub user: Option<Option<String>>,
    /// A client id, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named")]
    pub client_id: Option<Option<String>>,
    /// An address, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "named")]
    pub ip: Option<Option<String>>,
}

/// The bounds, by Kafka's names such as `producer_byte_rate`.
pub type Quota = BTreeMap<String, f64>;

/// What can be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bound {
    /// Bytes a second that clients send to be stored.
    ProducerByteRate,
    /// Bytes a second that clients read.
    ConsumerByteRate,
    /// Time for handling requests, in percent of one thread.
    RequestPercentage,
    /// Partitions created and deleted a second.
    ControllerMutationRate,
    /// Connections a second that come from an address.
    ConnectionCreationRate,
}

impl Bound {
    /// All of them.
    pub const ALL: [Bound; 5] = [
        Bound::ProducerByteRate,
        Bound::ConsumerByteRate,
        Bound::RequestPercentage,
        Bound::ControllerMutationRate,
        Bound::ConnectionCreationRate,
    ];

    /// Kafka's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Bound::ProducerByteRate => "producer_byte_rate",
            Bound::ConsumerByteRate => "consumer_byte_rate",
            Bound::RequestPercentage => "request_percentage",
            Bound::ControllerMutationRate => "controller_mutation_rate",
            Bound::ConnectionCreationRate => "connection_creation_rate",
        }
    }

    fn is_of_address(self) -> bool {
        self == Bound::ConnectionCreationRate
    }

    fn is_whole(self) -> bool {
        !matches!(
            self,
            Bound::RequestPercentage | Bound::ControllerMutationRate
        )
    }
}

/// Who shares a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Each user has one of their own.
    pub by_user: bool,
    /// Each client id has one of its own.
    pub by_client: bool,
}

impl QuotaEntity {
    /// Whether `key` with this value can bound the entity.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] with what would be right.
    pub fn check(&self, key: &str, value: Option<f64>) -> Result<(), AccessError> {
        self.check_names()?;
        let of_address = self.ip.is_some();
        let known = Bound::ALL
            .into_iter()
            .filter(|b| b.is_of_address() == of_address);
        let Some(bound) = known.clone().find(|bound| bound.name() == key) else {
            let names: Vec<&str> = known.map(Bound::name).collect();
            let reason = format!("'{key}' bounds nothing here: write {}", names.join(", "));
            return Err(AccessError::invalid("quota", reason));
        };
        let refuse = |what: &str| {
            Err(AccessError::invalid(
                "quota",
                format!("{key} must be {what}"),
            ))
        };
        match value {
            Some(value) if !value.is_finite() || value <= 0.0 => refuse("greater than 0"),
            Some(value) if bound.is_whole() && value.fract() != 0.0 => refuse("a whole number"),
            _ => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), AccessError> {
        let refuse = |reason: &str| Err(AccessError::invalid("quota entity", reason.to_owned()));
        if self == &QuotaEntity::default() {
            return refuse("name a user, a client id or an address");
        }
        if self.ip.is_some() && (self.user.is_some() || self.client_id.is_some()) {
            return refuse("an address cannot be combined with a user or a client id");
        }
        let names = [&self.user, &self.client_id, &self.ip];
        let mut names = names.into_iter().flatten().flatten();
        if names.any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
            return refuse("a name is empty or too long");
        }
        match &self.ip {
            Some(Some(ip)) if ip.parse::<IpAddr>().is_err() => refuse("the ip is no address"),
            _ => Ok(()),
        }
    }
}

/// The quotas laid out for asking.
#[derive(Default)]
pub(crate) struct QuotaIndex {
    by_user: HashMap<String, OfUser>,
    other_users: OfUser,
    no_user: OfUser,
    by_ip: HashMap<String, Quota>,
    other_ips: Quota,
}

#[derive(Default)]
struct OfUser {
    by_client: HashMap<String, Quota>,
    other_clients: Quota,
    all_clients: Quota,
}

impl QuotaIndex {
    pub(crate) fn new(quotas: &BTreeMap<QuotaEntity, Quota>) -> Self {
        let mut index = QuotaIndex::default();
        for (entity, quota) in quotas {
            *index.place(entity) = quota.clone();
        }
        index
    }

    fn place(&mut self, entity: &QuotaEntity) -> &mut Quota {
        match &entity.ip {
            Some(Some(ip)) => return self.by_ip.entry(ip.clone()).or_default(),
            Some(None) => return &mut self.other_ips,
            None => {}
        }
        let of_user = match &entity.user {
            Some(Some(user)) => self.by_user.entry(user.clone()).or_default(),
            Some(None) => &mut self.other_users,
            None => &mut self.no_user,
        };
        match &entity.client_id {
            Some(Some(client)) => of_user.by_client.entry(client.clone()).or_default(),
            Some(None) => &mut of_user.other_clients,
            None => &mut of_user.all_clients,
        }
    }

    /// The bound of a user's client, in Kafka's order: the user's own, those of all users, those of
    /// clients whoever uses them; within each the client's own, those of all clients, the whole.
    pub(crate) fn of_client(
        &self,
        bound: Bound,
        user: &str,
        client: &str,
    ) -> Option<(Sharing, f64)> {
        let own = self.by_user.get(user).map(|of_user| (of_user, true));
        let others = [(&self.other_users, true), (&self.no_user, false)];
        own.into_iter()
            .chain(others)
            .find_map(|(of_user, by_user)| {
                let (by_client, value) = of_user.of_client(bound, client)?;
                Some((Sharing { by_user, by_client }, value))
            })
    }

    /// The bound of an address.
    pub(crate) fn of_ip(&self, bound: Bound, ip: &str) -> Option<f64> {
        let own = self.by_ip.get(ip).and_then(|quota| quota.get(bound.name()));
        own.or_else(|| self.other_ips.get(bound.name())).copied()
    }
}

impl OfUser {
    fn of_client(&self, bound: Bound, client: &str) -> Option<(bool, f64)> {
        let own = self.by_client.get(client).map(|quota| (true, quota));
        let others = [(true, &self.other_clients), (false, &self.all_clients)];
        let mut each = own.into_iter().chain(others);
        each.find_map(|(by_client, quota)| Some((by_client, *quota.get(bound.name())?)))
    }
}

mod named {
    //! A name, or null for the default.

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        name: &Option<Option<String>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        name.clone().flatten().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Option<String>>, D::Error> {
        Option::<String>::deserialize(from).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Bound = Bound::ProducerByteRate;

    /// `user/client`, `*` for the default of a kind, `-` where the entity has none of it.
    fn entity(text: &str) -> QuotaEntity {
        let name = |part: &str| match part {
            "-" => None,
            "*" => Some(None),
            name => Some(Some(name.to_owned())),
        };
        let (user, client) = text.split_once('/').unwrap();
        QuotaEntity {
            user: name(user),
            client_id: name(client),
            ip: None,
        }
    }

    #[test]
    fn the_most_particular_bound_holds_in_kafkas_order() {
        let order = [
            "ann/app", "ann/*", "ann/-", "*/app", "*/*", "*/-", "-/app", "-/*",
        ];
        let mut quotas = BTreeMap::new();
        let mut expected = Vec::new();
        // From the least particular on, each new one takes over.
        for (place, text) in order.iter().enumerate().rev() {
            let value = f64::from(u8::try_from(place).unwrap()) + 1.0;
            let of = Quota::from([(RATE.name().to_owned(), value)]);
            quotas.insert(entity(text), of);
            let (sharing, found) = QuotaIndex::new(&quotas)
                .of_client(RATE, "ann", "app")
                .unwrap();
            assert_eq!(found, value, "{text}");
            expected.push((sharing.by_user, sharing.by_client));
        }
        let shared: Vec<_> = order
            .iter()
            .rev()
            .map(|text| (!text.starts_with('-'), !text.ends_with('-')))
            .collect();
        assert_eq!(expected, shared);
        let index = QuotaIndex::new(&quotas);
        assert_eq!(index.of_client(RATE, "bob", "x").unwrap().1, 5.0);
        assert_eq!(index.of_client(Bound::ConsumerByteRate, "ann", "app"), None);
    }

    #[test]
    fn a_bound_of_another_kind_hides_nothing() {
        let one = |key: &str, value| Quota::from([(key.to_owned(), value)]);
        let quotas = BTreeMap::from([
            (entity("ann/app"), one("consumer_byte_rate", 1.0)),
            (entity("ann/-"), one("producer_byte_rate", 2.0)),
        ]);
        let index = QuotaIndex::new(&quotas);
        assert_eq!(index.of_client(RATE, "ann", "app").unwrap().1, 2.0);
    }

    #[test]
    fn what_kafka_would_not_take_is_refused() {
        let ip = |ip: &str| QuotaEntity {
            ip: Some(Some(ip.to_owned())),
            ..QuotaEntity::default()
        };
        let mixed = QuotaEntity {
            user: Some(None),
            ..ip("10.0.0.1")
        };
        let good = [
            (entity("ann/-"), "producer_byte_rate", Some(1.0)),
            (entity("ann/*"), "request_percentage", Some(0.5)),
            (entity("*/-"), "consumer_byte_rate", None),
            (ip("::1"), "connection_creation_rate", Some(2.0)),
        ];
        for (entity, key, value) in good {
            entity.check(key, value).unwrap();
        }
        let bad = [
            (QuotaEntity::default(), "producer_byte_rate", Some(1.0)),
            (entity("/-"), "producer_byte_rate", Some(1.0)),
            (entity("ann/-"), "producer_byte_rate", Some(0.0)),
            (entity("ann/-"), "producer_byte_rate", Some(1.5)),
            (entity("ann/-"), "producer_byte_rate", Some(f64::NAN)),
            (entity("ann/-"), "bytes", Some(1.0)),
            (entity("ann/-"), "connection_creation_rate", Some(1.0)),
            (ip("10.0.0.1"), "producer_byte_rate", Some(1.0)),
            (ip("nowhere"), "connection_creation_rate", Some(1.0)),
            (mixed, "connection_creation_rate", Some(1.0)),
        ];
        for (entity, key, value) in bad {
            assert!(
                entity.check(key, value).is_err(),
                "{entity:?} {key} {value:?}"
            );
        }
    }
}
