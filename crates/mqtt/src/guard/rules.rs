//! The ACLs on MQTT topics, laid out for one client.
//!
//! | operation of an ACL | what it lets do |
//! | --- | --- |
//! | `WRITE` | publish to the topics of its filter |
//! | `READ` | receive messages of them, and subscribe within them |
//! | `DESCRIBE` | subscribe within them; receiving has to be allowed as well |
//! | `ALL` | all of these |
//!
//! A denial goes before any permission. A subscription is granted when one permission covers its
//! filter whole, no denial covers it, and no denial of `DESCRIBE` touches it; what it brings is
//! judged topic by topic all the same. `%c` and `%u` as whole levels become the client's id and the
//! user's name as they are: a level of a topic is compared with them, so that neither `/` nor a
//! wildcard in them reaches beyond.

use access::{Acl, AclFilter, Operation, Permission, Policy, Principal, ResourceType, Snapshot};

/// What one client may do by the ACLs of one moment.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Where what no ACL names is open to everybody: the patterns of all ACLs.
    named: Option<Vec<Pattern>>,
}

/// Whose rules they are.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) principal: &'a Principal,
    pub(super) client_id: &'a str,
    pub(super) host: &'a str,
}

#[derive(Debug)]
struct Rule {
    allows: bool,
    operation: Operation,
    pattern: Pattern,
}

#[derive(Debug)]
struct Pattern(Vec<Level>);

#[derive(Debug, PartialEq)]
enum Level {
    Name(Box<str>),
    One,
    Rest,
}

impl Rules {
    /// Those that speak of this client.
    pub(super) fn of(snapshot: &Snapshot, policy: &Policy, whose: Whose<'_>) -> Rules {
        let of_topics = AclFilter {
            resource_type: Some(ResourceType::MqttTopic),
            ..AclFilter::default()
        };
        let own = |acl: &&Acl| acl.speaks_of(whose.principal, whose.host);
        let rules = snapshot.acls(&of_topics).filter(own).map(|acl| Rule {
            allows: acl.permission == Permission::Allow,
            operation: acl.operation,
            pattern: Pattern::of(&acl.resource_name, Some(whose)),
        });
        let named = policy.allow_if_no_acl.then(|| {
            let all = snapshot.acls(&of_topics);
            all.map(|acl| Pattern::of(&acl.resource_name, None))
                .collect()
        });
        Rules {
            rules: rules.collect(),
            named,
        }
    }

    pub(super) fn may_publish(&self, topic: &str) -> bool {
        self.may(topic, Operation::Write)
    }

    pub(super) fn may_receive(&self, topic: &str) -> bool {
        self.may(topic, Operation::Read)
    }

    /// `filter`: without a shared one's group.
    pub(super) fn may_subscribe(&self, filter: &str) -> bool {
        let mut is_allowed = false;
        for rule in &self.rules {
            let covers = || rule.pattern.covers(filter);
            match (rule.allows, rule.operation) {
                (_, Operation::Write) => {}
                (true, _) => is_allowed |= covers(),
                (false, Operation::Describe) if rule.pattern.touches(filter) => return false,
                (false, _) if covers() => return false,
                (false, _) => {}
            }
        }
        is_allowed || self.names_none(|pattern| pattern.touches(filter))
    }

    fn may(&self, topic: &str, operation: Operation) -> bool {
        let mut is_allowed = false;
        for rule in &self.rules {
            let speaks = rule.operation == operation || rule.operation == Operation::All;
            if speaks && rule.pattern.matches(topic) {
                if !rule.allows {
                    return false;
                }
                is_allowed = true;
            }
        }
        is_allowed || self.names_none(|pattern| pattern.matches(topic))
    }

    fn names_none(&self, is_named: impl Fn(&Pattern) -> bool) -> bool {
        self.named
            .as_ref()
            .is_some_and(|patterns| !patterns.iter().any(is_named))
    }
}

impl Pattern {
    /// Without a client, what stands for one stands for all.
    fn of(text: &str, whose: Option<Whose<'_>>) -> Pattern {
        // As everywhere in ACLs: every name.
        if text == "*" {
            return Pattern(vec![Level::Rest]);
        }
        let level = |level: &str| match (level, whose) {
            ("#", _) => Level::Rest,
            ("+", _) | ("%c" | "%u", None) => Level::One,
            ("%c", Some(whose)) => Level::Name(whose.client_id.into()),
            ("%u", Some(whose)) => Level::Name(whose.principal.name().into()),
            (name, _) => Level::Name(name.into()),
        };
        Pattern(text.split('/').map(level).collect())
    }

    /// Whether a topic is one of the pattern's.
    fn matches(&self, topic: &str) -> bool {
        // A topic is a filter without wildcards.
        self.covers(topic)
    }

    /// Whether every topic of the filter is one of the pattern's.
    fn covers(&self, filter: &str) -> bool {
        if self.is_kept_off(filter) {
            return false;
        }
        let mut asked = filter.split('/');
        for level in &self.0 {
            match (level, asked.next()) {
                (Level::Rest, _) => return true,
                (_, None | Some("#")) => return false,
                (Level::One, Some(_)) => {}
                // A name may be a client's id, and that may be a lone plus.
                (Level::Name(name), Some(asked)) if **name == *asked && asked != "+" => {}
                (Level::Name(_), Some(_)) => return false,
            }
        }
        asked.next().is_none()
    }

    /// Whether some topic is one of both.
    fn touches(&self, filter: &str) -> bool {
        if self.is_kept_off(filter) {
            return false;
        }
        let mut asked = filter.split('/');
        for level in &self.0 {
            match (level, asked.next()) {
                (Level::Rest, _) | (_, Some("#")) => return true,
                (_, None) => return false,
                (Level::One, Some(_)) | (_, Some("+")) => {}
                (Level::Name(name), Some(asked)) if **name == *asked => {}
                (Level::Name(_), Some(_)) => return false,
            }
        }
        matches!(asked.next(), None | Some("#"))
    }

    /// A wildcard in the first level does not mean topics that begin with `$`.
    fn is_kept_off(&self, filter: &str) -> bool {
        filter.starts_with('$') && !matches!(self.0.first(), Some(Level::Name(_)))
    }
}

#[cfg(test)]
mod tests {
    use access::{EVERY_HOST, PatternType};

    use super::*;

    fn acl(user: &str, permission: Permission, operation: Operation, name: &str) -> Acl {
        Acl {
            resource_type: ResourceType::MqttTopic,
            resource_name: name.to_owned(),
            pattern_type: PatternType::Literal,
            principal: Principal::user(user),
            host: EVERY_HOST.to_owned(),
            operation,
            permission,
        }
    }

    fn rules(acls: Vec<Acl>, open: bool, user: &str, client_id: &str) -> Rules {
        let dir = tempfile::tempdir().unwrap();
        let access = access::Access::open(dir.path()).unwrap();
        access.add_acls(acls).unwrap();
        let policy = Policy {
            allow_if_no_acl: open,
            ..Policy::default()
        };
        let whose = Whose {
            principal: &Principal::user(user),
            client_id,
            host: "127.0.0.1",
        };
        Rules::of(&access.snapshot(), &policy, whose)
    }

    #[test]
    fn patterns_cover_and_touch_filters() {
        // Pattern, filter, covers, touches.
        let cases = [
            ("a/b", "a/b", true, true),
            ("a/b", "a/c", false, false),
            ("a/+", "a/b", true, true),
            ("a/+", "a/+", true, true),
            ("a/+", "a/#", false, true),
            ("a/+", "a/b/c", false, false),
            ("a/b", "a/+", false, true),
            ("a/#", "a", true, true),
            ("a/#", "a/#", true, true),
            ("a/#", "a/+/c", true, true),
            ("a/#", "#", false, true),
            ("a/#", "+/b", false, true),
            ("a", "a/#", false, true),
            ("a", "a/b", false, false),
            ("#", "a/b/#", true, true),
            ("#", "$SYS/#", false, false),
            ("+/x", "$SYS/x", false, false),
            ("$SYS/#", "$SYS/broker/+", true, true),
            ("*", "any/thing", true, true),
            ("/a", "/a", true, true),
            ("+/a", "/a", true, true),
        ];
        for (pattern, filter, covers, touches) in cases {
            let pattern_of = Pattern::of(pattern, None);
            assert_eq!(
                pattern_of.covers(filter),
                covers,
                "{pattern} covers {filter}"
            );
            assert_eq!(
                pattern_of.touches(filter),
                touches,
                "{pattern} touches {filter}"
            );
        }
    }

    #[test]
    fn reading_writing_and_subscribing_are_apart() {
        let allow = |operation, name| acl("ann", Permission::Allow, operation, name);
        let rules = rules(
            vec![
                allow(Operation::Write, "up/%c/#"),
                allow(Operation::Read, "down/%u"),
                allow(Operation::Describe, "later/#"),
                acl("bob", Permission::Allow, Operation::All, "#"),
            ],
            false,
            "ann",
            "dev1",
        );
        assert!(rules.may_publish("up/dev1/t") && rules.may_publish("up/dev1"));
        assert!(!rules.may_publish("up/dev2/t") && !rules.may_publish("down/ann"));
        assert!(rules.may_receive("down/ann") && !rules.may_receive("down/bob"));
        assert!(!rules.may_receive("up/dev1/t"));
        assert!(rules.may_subscribe("down/ann") && !rules.may_subscribe("down/+"));
        assert!(rules.may_subscribe("later/#") && !rules.may_receive("later/x"));
        assert!(!rules.may_subscribe("up/dev1/#"));
    }

    #[test]
    fn a_denial_goes_before_permissions() {
        let of = |permission, operation, name| acl("*", permission, operation, name);
        let rules = rules(
            vec![
                of(Permission::Allow, Operation::All, "#"),
                of(Permission::Deny, Operation::Read, "secret/#"),
                of(Permission::Deny, Operation::Describe, "quiet/#"),
            ],
            false,
            "ann",
            "c",
        );
        assert!(rules.may_publish("secret/x") && !rules.may_receive("secret/x"));
        assert!(!rules.may_subscribe("secret/+"));
        // Granted, without what is denied.
        assert!(rules.may_subscribe("open/#"));
        // A denial of subscribing is not got around by a wider filter.
        assert!(!rules.may_subscribe("#") && !rules.may_subscribe("quiet/a"));
    }

    #[test]
    fn a_client_id_reaches_no_further_than_its_level() {
        for evil in ["#", "+", "dev1/x", "a/#", ""] {
            let own = acl("ann", Permission::Allow, Operation::All, "up/%c/#");
            let rules = rules(vec![own], false, "ann", evil);
            assert!(!rules.may_publish("up/dev1/x/y"), "{evil}");
            assert!(!rules.may_subscribe("up/#"), "{evil}");
            assert!(!rules.may_subscribe("up/dev1/x/#"), "{evil}");
        }
    }

    #[test]
    fn a_wildcard_of_an_id_covers_only_itself() {
        let own = acl("ann", Permission::Allow, Operation::Read, "up/%c");
        let rules = rules(vec![own], false, "ann", "+");
        assert!(!rules.may_receive("up/dev1"));
        assert!(!rules.may_subscribe("up/+"));
    }

    #[test]
    fn what_no_acl_names_is_open_where_the_policy_says_so() {
        let own = acl("bob", Permission::Allow, Operation::Read, "of/%u/#");
        let open = rules(vec![own.clone()], true, "ann", "c");
        assert!(open.may_publish("else/x") && open.may_subscribe("else/#"));
        assert!(!open.may_publish("of/bob/x") && !open.may_subscribe("#"));
        let shut = rules(vec![own], false, "ann", "c");
        assert!(!shut.may_publish("else/x") && !shut.may_subscribe("else/#"));
    }
}
