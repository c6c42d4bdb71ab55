//! One line of an access control list, and filters over them, in Kafka's model.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits::NAME_BYTES_MAX;
use crate::{AccessError, Principal};

/// A closed set of words with a number each on the wire.
macro_rules! words {
    ($(#[$doc:meta])* $kind:ident, $what:literal: $($(#[$each:meta])* $word:ident = $code:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $kind { $($(#[$each])* $word = $code,)* }

        impl $kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$kind] = &[$($kind::$word,)*];

            /// Kafka's number for it.
            pub fn code(self) -> i8 {
                self as i8
            }

            /// The one with Kafka's number `code`.
            pub fn of_code(code: i8) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.code() == code)
            }

            /// Kafka's name for it, in capitals.
            pub fn name(self) -> String {
                let mut name = String::new();
                for letter in stringify_word(self).chars() {
                    if letter.is_ascii_uppercase() && !name.is_empty() {
                        name.push('_');
                    }
                    name.push(letter.to_ascii_uppercase());
                }
                name
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.name())
            }
        }

        impl FromStr for $kind {
            type Err = AccessError;

            /// Reads Kafka's name, in any case, with `-` or `_`.
            fn from_str(text: &str) -> Result<Self, AccessError> {
                let wanted = text.replace('-', "_").to_uppercase();
                let found = Self::ALL.iter().copied().find(|word| word.name() == wanted);
                found.ok_or_else(|| {
                    let names: Vec<String> = Self::ALL.iter().map(|word| word.name()).collect();
                    AccessError::invalid($what, format!("write one of {}", names.join(", ")))
                })
            }
        }
    };
}

words! {
    /// What an ACL protects.
    ResourceType, "resource type":
    /// A topic.
    Topic = 2,
    /// A consumer group.
    Group = 3,
    /// The whole cluster; its only name is [`CLUSTER`].
    Cluster = 4,
    /// A producer's transactional id.
    TransactionalId = 5,
    /// A delegation token: may be written, protects nothing here.
    DelegationToken = 6,
    /// A user.
    User = 7,
    /// MQTT topics, by a filter in which `%c` and `%u` as whole levels stand for the client's id and
    /// the user's name; Kafka does not know it, and does not get to see it.
    MqttTopic = 100,
}

words! {
    /// How an ACL names what it protects.
    PatternType, "pattern type":
    /// Exactly this name; `*` is every name.
    Literal = 3,
    /// Every name that begins so.
    Prefixed = 4,
}

words! {
    /// What somebody wants to do.
    Operation, "operation":
    /// Everything; only in an ACL.
    All = 2,
    /// Read records, be a member of a group.
    Read = 3,
    /// Write records, use a transactional id.
    Write = 4,
    /// Create topics.
    Create = 5,
    /// Delete.
    Delete = 6,
    /// Change.
    Alter = 7,
    /// Know that it exists, and how it is.
    Describe = 8,
    /// What only brokers do.
    ClusterAction = 9,
    /// See settings.
    DescribeConfigs = 10,
    /// Change settings.
    AlterConfigs = 11,
    /// Get a producer id.
    IdempotentWrite = 12,
    /// Make delegation tokens.
    CreateTokens = 13,
    /// See delegation tokens.
    DescribeTokens = 14,
    /// Keep a transaction open between two systems.
    TwoPhaseCommit = 15,
}

words! {
    /// Whether an ACL gives or takes.
    Permission, "permission":
    /// Takes, whatever others give.
    Deny = 2,
    /// Gives.
    Allow = 3,
}

impl ResourceType {
    /// Whether Kafka's protocol knows it.
    pub fn is_kafkas(self) -> bool {
        self != ResourceType::MqttTopic
    }
}

impl Operation {
    /// The operation as a bit of the sets that Kafka's answers carry.
    pub fn bit(self) -> i32 {
        1 << self.code()
    }

    /// The operations that, allowed, allow this one too.
    pub(crate) fn implied_by(self) -> &'static [Operation] {
        match self {
            Operation::Describe => &[
                Operation::Read,
                Operation::Write,
                Operation::Delete,
                Operation::Alter,
            ],
            Operation::DescribeConfigs => &[Operation::AlterConfigs],
            _ => &[],
        }
    }
}

/// One line: who may, or may not, do what, from where, to what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acl {
    /// The kind of what is protected.
    pub resource_type: ResourceType,
    /// Its name, or the beginning of it.
    pub resource_name: String,
    /// How it is named.
    pub pattern_type: PatternType,
    /// Who; `User:*` is everybody.
    pub principal: Principal,
    /// From which address; `*` is every one.
    pub host: String,
    /// What is done.
    pub operation: Operation,
    /// Whether they may.
    pub permission: Permission,
}

impl Acl {
    /// Checks what a caller wrote.
    ///
    /// # Errors
    /// [`AccessError::Invalid`] for an empty or endless name, a host that is no address, a
    /// cluster of another name than [`CLUSTER`], and MQTT topics that no filter means.
    pub fn check(&self) -> Result<(), AccessError> {
        let name = &self.resource_name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let reason = format!("write 1 to {NAME_BYTES_MAX} bytes");
            return Err(AccessError::invalid("resource name", reason));
        }
        if self.resource_type == ResourceType::Cluster && name != CLUSTER {
            let reason = format!("the only cluster's is '{CLUSTER}'");
            return Err(AccessError::invalid("resource name", reason));
        }
        if self.resource_type == ResourceType::MqttTopic {
            self.check_mqtt()?;
        }
        if self.host != EVERY_HOST && self.host.parse::<IpAddr>().is_err() {
            let reason = format!("write an address, or {EVERY_HOST} for every one");
            return Err(AccessError::invalid("host", reason));
        }
        Ok(())
    }

    /// MQTT topics are named by a filter, and three operations are known.
    fn check_mqtt(&self) -> Result<(), AccessError> {
        if self.pattern_type == PatternType::Prefixed {
            let reason =
                "MQTT topics are named by a filter: write LITERAL and end the name with /#";
            return Err(AccessError::invalid("pattern type", reason));
        }
        let levels: Vec<&str> = self.resource_name.split('/').collect();
        let is_filter = levels
            .iter()
            .enumerate()
            .all(|(index, level)| match *level {
                "#" => index + 1 == levels.len(),
                "+" => true,
                level => !level.contains(['#', '+', '\0']),
            });
        if !is_filter {
            let reason =
                "write an MQTT filter: + and # stand for whole levels, # for the last ones";
            return Err(AccessError::invalid("resource name", reason));
        }
        let known = [
            Operation::All,
            Operation::Read,
            Operation::Write,
            Operation::Describe,
        ];
        if !known.contains(&self.operation) {
            let reason = "of MQTT topics write READ (receive), WRITE (publish), DESCRIBE (subscribe) \
                          or ALL";
            return Err(AccessError::invalid("operation", reason));
        }
        Ok(())
    }

    /// Whether it speaks of this caller, coming from this address.
    pub fn speaks_of(&self, principal: &Principal, host: &str) -> bool {
        self.principal.speaks_of(principal)
            && (self.host == EVERY_HOST || is_host(&self.host, host))
    }

    /// Whether the line speaks of this caller doing `operation`.
    pub(crate) fn covers(
        &self,
        permission: Permission,
        operations: impl Fn(Operation) -> bool,
        principal: &Principal,
        host: &str,
    ) -> bool {
        self.permission == permission
            && operations(self.operation)
            && self.speaks_of(principal, host)
    }
}

/// Which ACLs are meant; what is absent means any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AclFilter {
    /// The kind of what is protected.
    pub resource_type: Option<ResourceType>,
    /// Its name.
    pub resource_name: Option<String>,
    /// How the name is to be understood.
    pub pattern: PatternFilter,
    /// Who.
    pub principal: Option<String>,
    /// From where.
    pub host: Option<String>,
    /// What is done.
    pub operation: Option<Operation>,
    /// Whether they may.
    pub permission: Option<Permission>,
    /// Only what Kafka's protocol knows.
    pub only_kafkas: bool,
}

/// Which patterns a filter means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatternFilter {
    /// Of any type, with exactly the filter's name.
    #[default]
    Any,
    /// Every pattern that holds for a resource of the filter's name.
    Match,
    /// Of this type, with exactly the filter's name.
    Only(PatternType),
}

impl AclFilter {
    /// Whether `acl` is meant.
    pub fn matches(&self, acl: &Acl) -> bool {
        fn is<T: PartialEq>(wanted: &Option<T>, has: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == has)
        }
        (acl.resource_type.is_kafkas() || !self.only_kafkas)
            && is(&self.resource_type, &acl.resource_type)
            && self.matches_name(acl)
            && self
                .principal
                .as_deref()
                .is_none_or(|p| p == acl.principal.as_str())
            && is(&self.host, &acl.host)
            && is(&self.operation, &acl.operation)
            && is(&self.permission, &acl.permission)
    }

    fn matches_name(&self, acl: &Acl) -> bool {
        let is_type = match self.pattern {
            PatternFilter::Only(wanted) => wanted == acl.pattern_type,
            PatternFilter::Any | PatternFilter::Match => true,
        };
        let Some(name) = &self.resource_name else {
            return is_type;
        };
        match (self.pattern, acl.pattern_type) {
            (PatternFilter::Match, PatternType::Literal) => {
                acl.resource_name == *name || acl.resource_name == EVERY_NAME
            }
            (PatternFilter::Match, PatternType::Prefixed) => name.starts_with(&acl.resource_name),
            _ => is_type && acl.resource_name == *name,
        }
    }
}

/// Whether both texts mean one address, however they write it: an IPv4 client of an IPv6 listener
/// comes from `::ffff:` and its address.
fn is_host(one: &str, other: &str) -> bool {
    let address = |text: &str| text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    one == other || address(one).is_some_and(|one| Some(one) == address(other))
}

/// The name of a word as the code spells it.
fn stringify_word(word: impl fmt::Debug) -> String {
    format!("{word:?}")
}

/// The name of the only cluster.
pub const CLUSTER: &str = "kafka-cluster";

/// As a literal name: every one.
pub(crate) const EVERY_NAME: &str = "*";

/// As a host: every one.
pub const EVERY_HOST: &str = "*";

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(pattern_type: PatternType, name: &str) -> Acl {
        Acl {
            resource_type: ResourceType::Topic,
            resource_name: name.to_owned(),
            pattern_type,
            principal: Principal::user("a"),
            host: EVERY_HOST.to_owned(),
            operation: Operation::Read,
            permission: Permission::Allow,
        }
    }

    #[test]
    fn words_have_kafkas_names_and_numbers() {
        assert_eq!(ResourceType::TransactionalId.name(), "TRANSACTIONAL_ID");
        assert_eq!(Operation::of_code(12), Some(Operation::IdempotentWrite));
        assert_eq!(Operation::of_code(1), None);
        let read: Operation = "describe-configs".parse().unwrap();
        assert_eq!(read, Operation::DescribeConfigs);
        let error = "may".parse::<Permission>().unwrap_err().to_string();
        assert_eq!(error, "permission is not valid: write one of DENY, ALLOW");
        assert_eq!(Operation::Read.bit(), 8);
    }

    #[test]
    fn mqtt_topics_are_named_by_filters_and_kafka_does_not_see_them() {
        let of = |name: &str, operation| Acl {
            resource_type: ResourceType::MqttTopic,
            operation,
            ..acl(PatternType::Literal, name)
        };
        for name in ["#", "a/+/b", "+", "dev/%c/#", "$SYS/#", "/a//b"] {
            of(name, Operation::Read).check().unwrap();
        }
        for name in ["a#", "a/#/b", "a+/b", ""] {
            assert!(of(name, Operation::Read).check().is_err(), "{name}");
        }
        assert!(of("a", Operation::Create).check().is_err());
        let prefixed = Acl {
            pattern_type: PatternType::Prefixed,
            ..of("a", Operation::Write)
        };
        assert!(prefixed.check().is_err());
        let every = AclFilter::default();
        let kafkas = AclFilter {
            only_kafkas: true,
            ..AclFilter::default()
        };
        let mqtts = of("a", Operation::All);
        assert!(every.matches(&mqtts) && !kafkas.matches(&mqtts));
        assert!(kafkas.matches(&acl(PatternType::Literal, "a")));
        assert_eq!(ResourceType::MqttTopic.name(), "MQTT_TOPIC");
        let read: ResourceType = "mqtt-topic".parse().unwrap();
        assert_eq!(read, ResourceType::MqttTopic);
    }

    #[test]
    fn a_host_is_one_address_however_it_is_written() {
        for (written, from, expected) in [
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("0:0:0:0:0:0:0:1", "::1", true),
            ("10.0.0.1", "::ffff:10.0.0.2", false),
            ("10.0.0.1", "somewhere", false),
            (EVERY_HOST, "somewhere", true),
        ] {
            let acl = Acl {
                host: written.to_owned(),
                ..acl(PatternType::Literal, "t")
            };
            let speaks = acl.speaks_of(&Principal::user("a"), from);
            assert_eq!(speaks, expected, "{written} {from}");
        }
    }

    #[test]
    fn filters_find_by_name_and_by_what_holds_for_a_name() {
        let acls = [
            acl(PatternType::Literal, "orders"),
            acl(PatternType::Literal, "*"),
            acl(PatternType::Prefixed, "ord"),
            acl(PatternType::Prefixed, "orders"),
            acl(PatternType::Literal, "other"),
        ];
        let found = |name: Option<&str>, pattern| {
            let filter = AclFilter {
                resource_name: name.map(str::to_owned),
                pattern,
                ..AclFilter::default()
            };
            acls.iter()
                .map(|acl| filter.matches(acl))
                .collect::<Vec<_>>()
        };
        let any = PatternFilter::Any;
        assert_eq!(found(None, any), [true; 5]);
        assert_eq!(
            found(Some("orders"), any),
            [true, false, false, true, false]
        );
        let matching = found(Some("orders"), PatternFilter::Match);
        assert_eq!(matching, [true, true, true, true, false]);
        let literal = PatternFilter::Only(PatternType::Literal);
        assert_eq!(
            found(Some("orders"), literal),
            [true, false, false, false, false]
        );
        assert_eq!(found(None, literal), [true, true, false, false, true]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = acl(PatternType::Literal, "t");
        good.check().unwrap();
        for (name, host, kind) in [
            ("", "*", ResourceType::Topic),
            ("t", "nowhere", ResourceType::Topic),
            ("t", "*", ResourceType::Cluster),
        ] {
            let bad = Acl {
                resource_name: name.to_owned(),
                host: host.to_owned(),
                resource_type: kind,
                ..good.clone()
            };
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
