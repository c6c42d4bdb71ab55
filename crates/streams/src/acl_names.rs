//! How ACLs name topics of streams: by the names that Kafka's clients write, whichever form they
//! were given.

use access::{Access, AccessError, Acl, AclFilter, PatternType, ResourceType};

use crate::topic::{TopicName, TopicNameError};

/// The ACL as it is kept.
///
/// # Errors
/// A name that begins like a stream's path and is that of no topic, or begins that of none.
pub fn kept_acl(mut acl: Acl) -> Result<Acl, TopicNameError> {
    if acl.resource_type == ResourceType::Topic && acl.resource_name.starts_with('/') {
        acl.resource_name = match acl.pattern_type {
            PatternType::Literal => {
                let topic: TopicName = acl.resource_name.parse()?;
                topic.wire_name().to_owned()
            }
            PatternType::Prefixed => TopicName::wire_prefix(&acl.resource_name)?,
        };
    }
    Ok(acl)
}

/// The filter that means the ACLs as they are kept.
pub fn kept_filter(mut filter: AclFilter) -> AclFilter {
    if let (Some(ResourceType::Topic), Some(name)) = (filter.resource_type, &filter.resource_name)
        && let Ok(kept) = TopicName::wire_prefix(name)
    {
        filter.resource_name = Some(kept);
    }
    filter
}

/// Has ACLs that were kept as they were written be kept by what Kafka's clients write; those that
/// name no topic stay. Blocks.
///
/// # Errors
/// Those of [`Access::rewrite_acls`].
pub fn keep_acls(access: &Access) -> Result<(), AccessError> {
    access.rewrite_acls(|acl| kept_acl(acl.clone()).unwrap_or(acl))
}

#[cfg(test)]
mod tests {
    use access::{EVERY_HOST, Operation, Permission, Principal};

    use super::*;

    fn acl(pattern_type: PatternType, name: &str) -> Acl {
        Acl {
            resource_type: ResourceType::Topic,
            resource_name: name.to_owned(),
            pattern_type,
            principal: Principal::user("acme/*"),
            host: EVERY_HOST.to_owned(),
            operation: Operation::All,
            permission: Permission::Allow,
        }
    }

    #[test]
    fn names_and_prefixes_of_paths_are_kept_as_clients_write_them() {
        use PatternType::{Literal, Prefixed};
        for (pattern, name, kept) in [
            (Literal, "/s/a:t", ".s.a..t"),
            (Literal, "*", "*"),
            (Literal, "plain", "plain"),
            (Prefixed, "/acme/", ".acme."),
            (Prefixed, "/s/a:", ".s.a.."),
            (Prefixed, "plain-", "plain-"),
        ] {
            assert_eq!(kept_acl(acl(pattern, name)), Ok(acl(pattern, kept)));
            let filter = AclFilter {
                resource_type: Some(ResourceType::Topic),
                resource_name: Some(name.to_owned()),
                ..AclFilter::default()
            };
            assert!(kept_filter(filter).matches(&acl(pattern, kept)), "{name}");
        }
        for (pattern, name) in [(Literal, "/acme/"), (Prefixed, "//"), (Prefixed, "/s:t u")] {
            assert!(kept_acl(acl(pattern, name)).is_err(), "{name} was taken");
        }
        let group = Acl {
            resource_type: ResourceType::Group,
            ..acl(Prefixed, "/acme/")
        };
        assert_eq!(kept_acl(group.clone()), Ok(group));
    }

    #[test]
    fn what_was_kept_as_it_was_written_is_kept_anew() {
        let dir = tempfile::tempdir().unwrap();
        let written = [
            acl(PatternType::Prefixed, "/acme/"),
            acl(PatternType::Literal, "/no topic"),
        ];
        let access = Access::open(dir.path()).unwrap();
        access.add_acls(written.to_vec()).unwrap();
        keep_acls(&access).unwrap();
        let names = |access: &Access| -> Vec<String> {
            let (snapshot, all) = (access.snapshot(), AclFilter::default());
            let acls = snapshot.acls(&all);
            acls.map(|acl| acl.resource_name.clone()).collect()
        };
        assert_eq!(names(&access), [".acme.", "/no topic"]);
        drop(access);
        let again = Access::open(dir.path()).unwrap();
        assert_eq!(names(&again), [".acme.", "/no topic"]);
    }
}
