//! How tenants are kept: changed on the disk first, like everything of a data folder.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::TenantId;

use crate::access::within;
use crate::limits::{COLLECTIONS_MAX, TENANTS_MAX, TENANTS_REMOVED_MAX};
use crate::{
    Access, AccessError, Collection, Destination, OfCaller, Policy, Principal, Tenant,
    TenantAccount, TenantAccounts, TenantChange, TenantQuotas,
};

impl Access {
    /// What each tenant uses.
    pub fn tenants(&self) -> &TenantAccounts {
        &self.accounts
    }

    /// As [`Snapshot::has_tenants`], at the cost of a look.
    pub fn has_tenants(&self) -> bool {
        self.has_tenants.load(Ordering::Acquire)
    }

    /// The account that a caller's requests are counted in, with what bounds it; none for callers
    /// of no tenant, see [`Snapshot::tenant_of`](crate::Snapshot::tenant_of).
    pub fn account_of(
        &self,
        policy: Option<&Policy>,
        caller: &Principal,
    ) -> Option<(Arc<TenantAccount>, TenantQuotas)> {
        let snapshot = self.snapshot();
        Some(match snapshot.tenant_of(policy, caller)? {
            OfCaller::Kept(name, tenant) => (self.accounts.of(name), tenant.quotas.clone()),
            OfCaller::Unknown(name) => (self.accounts.of_unknown(name), TenantQuotas::new()),
        })
    }

    /// Changes a tenant, or keeps a new one; answers what it is now. One that was removed has its
    /// members again, and who is made another one's belongs to no removed one any more.
    ///
    /// # Errors
    /// [`AccessError::Invalid`], also for a member of another tenant, [`AccessError::Limit`],
    /// [`AccessError::File`].
    pub fn set_tenant(
        &self,
        name: &TenantId,
        change: &TenantChange,
    ) -> Result<Tenant, AccessError> {
        self.change(|stored| {
            let mut before = stored.tenants.get(name).cloned().unwrap_or_default();
            before
                .members
                .extend(stored.removed.remove(name).unwrap_or_default());
            let tenant = before.changed(change)?;
            for members in stored.removed.values_mut() {
                members.retain(|member| !tenant.members.contains(member));
            }
            for (other, of) in stored.tenants.iter().filter(|(other, _)| *other != name) {
                if let Some(member) = of.members.intersection(&tenant.members).next() {
                    let reason =
                        format!("{member} is of tenant '{other}': take it from there first");
                    return Err(AccessError::invalid("member", reason));
                }
            }
            if let Some(Destination::Shared(collection)) = &tenant.switching_to {
                stored.collections.insert(collection.clone());
            }
            within("collections", stored.collections.len(), COLLECTIONS_MAX)?;
            stored.tenants.insert(name.clone(), tenant.clone());
            within("tenants", stored.tenants.len(), TENANTS_MAX)?;
            Ok(tenant)
        })
    }

    /// Notes that a tenant's records go to a collection from now on, or to its own topics.
    ///
    /// # Errors
    /// [`AccessError::UnknownTenant`], [`AccessError::File`].
    pub fn settle_tenant(
        &self,
        name: &TenantId,
        collection: Option<Collection>,
    ) -> Result<(), AccessError> {
        self.change(|stored| {
            let unknown = || AccessError::UnknownTenant(name.clone());
            let tenant = stored.tenants.get_mut(name).ok_or_else(unknown)?;
            let settled = tenant.switching_to.take();
            tenant.collection.clone_from(&collection);
            // Somebody may want it elsewhere meanwhile.
            tenant.switching_to = settled.filter(|to| to.clone().into_collection() != collection);
            Ok(())
        })
    }

    /// Forgets a tenant but for its name and its members: its records stay, and whoever belonged to it
    /// is kept off what is anybody's.
    ///
    /// # Errors
    /// [`AccessError::UnknownTenant`], [`AccessError::Limit`], [`AccessError::File`].
    pub fn remove_tenant(&self, name: &TenantId) -> Result<(), AccessError> {
        self.change(|stored| {
            let unknown = || AccessError::UnknownTenant(name.clone());
            let removed = stored.tenants.remove(name).ok_or_else(unknown)?;
            stored.removed.insert(name.clone(), removed.members);
            within("removed tenants", stored.removed.len(), TENANTS_REMOVED_MAX)
        })?;
        self.accounts.forget(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Asking, Operation, Policy, ResourceType};

    #[test]
    fn tenants_are_kept_and_nobody_is_in_two() {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        let change = |value| serde_json::from_value::<TenantChange>(value).unwrap();
        let (diku, beta) = ("diku".parse().unwrap(), "beta".parse().unwrap());
        let ann = Principal::user("ann");
        assert!(access.account_of(None, &ann).is_none());
        let members = serde_json::json!({
            "weight": 3, "members": ["User:ann"], "quotas": {"in_flight": 2},
        });
        access.set_tenant(&diku, &change(members)).unwrap();
        let twice = access.set_tenant(&beta, &change(serde_json::json!({"members": ["User:ann"]})));
        assert!(
            matches!(twice, Err(AccessError::Invalid { .. })),
            "{twice:?}"
        );
        access.set_tenant(&beta, &TenantChange::default()).unwrap();
        drop(access);
        let access = Access::open(dir.path()).unwrap();
        let (account, quotas) = access.account_of(None, &ann).unwrap();
        assert_eq!((account.tenant(), quotas.len()), (&diku, 1));
        let snapshot = access.snapshot();
        assert_eq!(snapshot.tenants()[&diku].weight, 3);
        let foreign = |who: &str, operation, topic: &str| {
            snapshot.is_foreign(&Principal::user(who), operation, ResourceType::Topic, topic)
        };
        assert!(foreign("ann", Operation::Read, "folio.Default.beta.ORDERS"));
        assert!(!foreign(
            "ann",
            Operation::Read,
            "folio.Default.diku.ORDERS"
        ));
        assert!(!foreign("ann", Operation::Read, "orders"));
        assert!(foreign(
            "beta/bob",
            Operation::Describe,
            "folio.Default.diku.ORDERS"
        ));
        assert!(!foreign(
            "nobody",
            Operation::Write,
            "folio.Default.diku.ORDERS"
        ));
        for (kind, name, expected) in [
            (ResourceType::Group, "beta-orders", true),
            (ResourceType::Group, "diku-orders", false),
            (ResourceType::Group, "orders", false),
            (ResourceType::TransactionalId, "beta.writer", true),
            (ResourceType::MqttTopic, "beta/up", true),
            (ResourceType::MqttTopic, "up/beta", false),
            (ResourceType::Cluster, "beta", false),
        ] {
            let ann = Principal::user("ann");
            let found = snapshot.is_foreign(&ann, Operation::Read, kind, name);
            assert_eq!(found, expected, "{kind} {name}");
        }
        access.remove_tenant(&diku).unwrap();
        assert!(matches!(
            access.remove_tenant(&diku),
            Err(AccessError::UnknownTenant(_))
        ));
        let (account, quotas) = access.account_of(None, &ann).unwrap();
        assert_eq!((account.tenant(), quotas.len()), (&diku, 0));
        assert_eq!(access.snapshot().tenants().len(), 1);
    }

    #[test]
    fn who_is_of_a_removed_tenant_or_of_none_that_is_kept_is_let_to_nothing_that_is_anybodys() {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        let change = |value| serde_json::from_value::<TenantChange>(value).unwrap();
        let (diku, beta) = ("diku".parse().unwrap(), "beta".parse().unwrap());
        let shared = serde_json::json!({"collection": "ALL", "members": ["User:ann"]});
        access.set_tenant(&diku, &change(shared)).unwrap();
        let all = "ALL".parse().unwrap();
        access.settle_tenant(&diku, Some(all)).unwrap();
        access.set_tenant(&beta, &TenantChange::default()).unwrap();
        let policy = Policy {
            allow_if_no_acl: true,
            super_users: vec![Principal::user("ops/root")],
        };
        let may = |access: &Access, who: &str, kind, name: &str| {
            let asking = Asking {
                principal: &Principal::user(who),
                host: "10.0.0.1",
            };
            let snapshot = access.snapshot();
            snapshot.may(&policy, asking, Operation::Read, kind, name)
        };
        let (topic, group, mqtt) = (
            ResourceType::Topic,
            ResourceType::Group,
            ResourceType::MqttTopic,
        );
        let owned = [
            (topic, "folio.Default.diku.E"),
            (topic, "folio.Default.beta.E"),
            (topic, "folio.Default.ALL.E"),
            (group, "diku-orders"),
            (group, "beta-orders"),
            (mqtt, "diku/up"),
            (mqtt, "beta/up"),
        ];
        let outsiders = ["ann", "diku/ann", "unknown/ann"];
        let check = |access: &Access, who: &[&str], expected| {
            for who in who {
                for (kind, name) in owned {
                    assert_eq!(may(access, who, kind, name), expected, "{who} {name}");
                }
                assert!(may(access, who, topic, "orders"), "{who}");
            }
        };
        check(&access, &outsiders[2..], false);
        access.remove_tenant(&diku).unwrap();
        check(&access, &outsiders, false);
        assert!(!may(&access, "beta/bob", topic, "folio.Default.diku.E"));
        assert!(may(&access, "beta/bob", topic, "folio.Default.beta.E"));
        // The last one's end opens nothing, nor does a start.
        access.remove_tenant(&beta).unwrap();
        check(&access, &outsiders, false);
        drop(access);
        let access = Access::open(dir.path()).unwrap();
        assert!(access.has_tenants());
        check(&access, &outsiders, false);
        // Neither a tenant's name nor anything else stands before these.
        check(
            &access,
            &["service", "CN=press/7,O=Plant", "ops/root"],
            true,
        );
        let root = Principal::user("ops/root");
        let snapshot = access.snapshot();
        assert!(snapshot.tenant_of(Some(&policy), &root).is_none());
        assert!(snapshot.tenant_of(None, &root).is_some());
        // Set anew it has its members again; another one may have them too.
        let again = access.set_tenant(&diku, &TenantChange::default()).unwrap();
        assert!(again.members.contains(&Principal::user("ann")));
        assert!(may(&access, "ann", topic, "folio.Default.diku.E"));
        access.remove_tenant(&diku).unwrap();
        let taken = change(serde_json::json!({"members": ["User:ann"]}));
        access.set_tenant(&beta, &taken).unwrap();
        assert!(may(&access, "ann", topic, "folio.Default.beta.E"));
        let again = access.set_tenant(&diku, &TenantChange::default()).unwrap();
        assert!(again.members.is_empty());
    }

    #[test]
    fn names_with_a_slash_are_nothing_particular_until_a_tenant_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        let ann = Principal::user("diku/ann");
        assert!(!access.has_tenants() && access.account_of(None, &ann).is_none());
        let snapshot = access.snapshot();
        let topic = "folio.Default.beta.E";
        assert!(!snapshot.is_foreign(&ann, Operation::Read, ResourceType::Topic, topic));
    }

    #[test]
    fn a_tenants_callers_are_kept_off_others_topics_whatever_the_acls_say() {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        let change = |value| serde_json::from_value::<TenantChange>(value).unwrap();
        for (name, collection) in [
            ("diku", Some("ALL")),
            ("beta", Some("ALL")),
            ("gamma", None),
        ] {
            let asked = change(serde_json::json!({"collection": collection}));
            let name = name.parse().unwrap();
            let tenant = access.set_tenant(&name, &asked).unwrap();
            let wanted = tenant.switching_to.and_then(Destination::into_collection);
            access.settle_tenant(&name, wanted).unwrap();
        }
        let policy = Policy {
            allow_if_no_acl: true,
            super_users: vec![Principal::user("diku/root")],
        };
        let may = |who: &str, operation, topic: &str| {
            let asking = Asking {
                principal: &Principal::user(who),
                host: "10.0.0.1",
            };
            let snapshot = access.snapshot();
            snapshot.may(&policy, asking, operation, ResourceType::Topic, topic)
        };
        for (who, operation, topic, expected) in [
            ("diku/ann", Operation::Write, "folio.Default.diku.E", true),
            ("diku/ann", Operation::Write, "folio.Default.beta.E", false),
            ("diku/ann", Operation::Read, "folio.Default.gamma.E", false),
            ("diku/ann", Operation::Write, "folio.Default.ALL.E", true),
            // There lie others' records too, which are not shown.
            ("diku/ann", Operation::Read, "folio.Default.ALL.E", true),
            ("diku/ann", Operation::Delete, "folio.Default.ALL.E", false),
            ("gamma/ann", Operation::Write, "folio.Default.ALL.E", false),
            ("gamma/ann", Operation::Read, "folio.Default.ALL.E", false),
            ("diku/root", Operation::Read, "folio.Default.beta.E", true),
            ("service", Operation::Read, "folio.Default.ALL.E", true),
            ("diku/ann", Operation::Read, "free", true),
        ] {
            assert_eq!(
                may(who, operation, topic),
                expected,
                "{who} {operation} {topic}"
            );
        }
        let snapshot = access.snapshot();
        let only = |who: &str, topic: &str| {
            let only = snapshot.only_of(&policy, &Principal::user(who), topic);
            only.map(String::from)
        };
        assert_eq!(
            only("diku/ann", "folio.Default.ALL.E").as_deref(),
            Some("diku")
        );
        for (who, topic) in [
            ("diku/root", "folio.Default.ALL.E"),
            ("service", "folio.Default.ALL.E"),
            ("diku/ann", "folio.Default.diku.E"),
        ] {
            assert_eq!(only(who, topic), None, "{who} {topic}");
        }
    }

    #[test]
    fn a_topic_of_all_tenants_is_no_members_though_a_right_to_it_may_give_something_else() {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        access.close_to_members(["_schemas".to_owned()]);
        let diku = "diku".parse().unwrap();
        // It stays so whatever changes.
        access.set_tenant(&diku, &TenantChange::default()).unwrap();
        let policy = Policy {
            allow_if_no_acl: true,
            super_users: vec![Principal::user("diku/root")],
        };
        let snapshot = access.snapshot();
        for (who, topic, expected) in [
            ("diku/ann", "_schemas", false),
            ("diku/ann", "_schemas2", true),
            ("gone/ann", "_schemas", false),
            ("diku/root", "_schemas", true),
            ("service", "_schemas", true),
        ] {
            let asking = Asking {
                principal: &Principal::user(who),
                host: "10.0.0.1",
            };
            let (read, kind) = (Operation::Read, ResourceType::Topic);
            let may = snapshot.may(&policy, asking, read, kind, topic);
            assert_eq!(may, expected, "{who} {topic}");
            assert!(snapshot.permits(&policy, asking, read, kind, topic));
        }
    }
}
