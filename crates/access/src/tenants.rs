//! How tenants are kept: changed on the disk first, like everything of a data folder.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::TenantId;

use crate::access::within;
use crate::limits::{COLLECTIONS_MAX, TENANTS_MAX};
use crate::{
    Access, AccessError, Collection, Destination, Principal, Tenant, TenantAccount, TenantAccounts,
    TenantChange, TenantQuotas,
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
    /// of no tenant.
    pub fn account_of(&self, caller: &Principal) -> Option<(Arc<TenantAccount>, TenantQuotas)> {
        let snapshot = self.snapshot();
        let (name, tenant) = snapshot.tenant_of(caller)?;
        Some((self.accounts.of(name), tenant.quotas.clone()))
    }

    /// Changes a tenant, or keeps a new one; answers what it is now.
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
            let before = stored.tenants.get(name).cloned().unwrap_or_default();
            let tenant = before.changed(change)?;
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

    /// Forgets a tenant; its records stay.
    ///
    /// # Errors
    /// [`AccessError::UnknownTenant`], [`AccessError::File`].
    pub fn remove_tenant(&self, name: &TenantId) -> Result<(), AccessError> {
        self.change(|stored| {
            let removed = stored.tenants.remove(name);
            let unknown = || AccessError::UnknownTenant(name.clone());
            removed.map(drop).ok_or_else(unknown)
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
        assert!(access.account_of(&ann).is_none());
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
        let (account, quotas) = access.account_of(&ann).unwrap();
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
        assert!(access.account_of(&ann).is_none());
        assert_eq!(access.snapshot().tenants().len(), 1);
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
            only.map(TenantId::as_str)
        };
        assert_eq!(only("diku/ann", "folio.Default.ALL.E"), Some("diku"));
        for (who, topic) in [
            ("diku/root", "folio.Default.ALL.E"),
            ("service", "folio.Default.ALL.E"),
            ("diku/ann", "folio.Default.diku.E"),
        ] {
            assert_eq!(only(who, topic), None, "{who} {topic}");
        }
    }
}
