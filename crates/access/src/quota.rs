//! What clients may use at most, by user and client id, in Kafka's words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
