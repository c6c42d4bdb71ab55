//! Who pays for a batch: the tenant of its caller, or, where the caller belongs to none, the tenant
//! whose topic it is for.

use std::sync::Arc;
use std::time::Duration;

use access::{
    Access, InFlight, OfTopic, Policy, Principal, ResourceType, Spending, Spent, TENANT_HEADERS,
    TenantAccount, TenantQuotas, TenantRefusal,
};
use base::{TenantId, UnixMillis};
use bytes::Bytes;

use crate::decode::BatchRecords;
use crate::error::StreamsError;

/// A tenant's account with what bounds it.
#[derive(Clone, Debug)]
pub(crate) struct Payer {
    pub account: Arc<TenantAccount>,
    pub quotas: TenantQuotas,
}

impl Payer {
    /// The tenant that a caller belongs to, see [`access::Snapshot::tenant_of`].
    pub fn of_caller(access: &Access, policy: Option<&Policy>, caller: &Principal) -> Option<Self> {
        if !access.has_tenants() {
            return None;
        }
        let (account, quotas) = access.account_of(policy, caller)?;
        Some(Payer { account, quotas })
    }

    /// The tenant whose own topic it is.
    pub fn of_topic(access: &Access, topic: &str) -> Option<Self> {
        if !access.has_tenants() {
            return None;
        }
        let snapshot = access.snapshot();
        let Some(OfTopic::Tenant(name)) = snapshot.owner_of_topic(topic) else {
            return None;
        };
        let quotas = snapshot.tenants().get(name)?.quotas.clone();
        let account = access.tenants().of(name);
        Some(Payer { account, quotas })
    }

    /// The tenant of this name, if it is kept.
    pub fn of_tenant(access: &Access, name: &TenantId) -> Option<Self> {
        if !access.has_tenants() {
            return None;
        }
        let quotas = access.snapshot().tenants().get(name)?.quotas.clone();
        let account = access.tenants().of(name);
        Some(Payer { account, quotas })
    }

    pub fn tenant(&self) -> &TenantId {
        self.account.tenant()
    }

    /// How long it is held back now; counts that it was.
    pub fn hold(&self, now: UnixMillis, way: Spending) -> Duration {
        self.account.hold(now, &self.quotas, way)
    }

    /// Counts what was used; answers how long to wait before more.
    pub fn charge(&self, now: UnixMillis, spent: Spent) -> Duration {
        self.account.charge(now, &self.quotas, spent)
    }

    /// Counts a request that is begun; none when as many are under way as may be.
    pub fn begin(&self) -> Option<InFlight> {
        self.account.begin(&self.quotas)
    }

    /// Refuses what would be kept beyond the quota.
    pub fn check_room(&self) -> Result<(), StreamsError> {
        match self.account.is_full(&self.quotas) {
            true => Err(StreamsError::TenantFull(self.tenant().clone())),
            false => Ok(()),
        }
    }

    /// What a tenant over its quota is told that has to ask again.
    pub fn throttled(&self, wait: Duration) -> StreamsError {
        StreamsError::Throttled {
            tenant: self.tenant().clone(),
            wait,
        }
    }

    /// Refuses a batch among whose records one names another tenant.
    pub fn check_batch(&self, from: &Origin<'_>, batch: &Bytes) -> Result<(), StreamsError> {
        for record in BatchRecords::of(batch)? {
            let record = record?;
            let headers = record.headers.iter();
            self.check_headers(
                from,
                headers.map(|(name, value)| (&**name, value.as_deref())),
            )?;
        }
        Ok(())
    }

    /// Refuses a record whose headers name another tenant.
    pub fn check_headers<'h>(
        &self,
        from: &Origin<'_>,
        headers: impl Iterator<Item = (&'h str, Option<&'h [u8]>)>,
    ) -> Result<(), StreamsError> {
        for (name, value) in headers {
            let value = value.unwrap_or_default();
            if TENANT_HEADERS.contains(&name) && value != self.tenant().as_str().as_bytes() {
                let claimed = String::from_utf8_lossy(value);
                return Err(self.refuse(from, &claimed, "a record's header names another tenant"));
            }
        }
        Ok(())
    }

    /// Notes that the caller asked for something of another tenant, or of all of them.
    pub fn refuse_foreign(&self, from: &Origin<'_>, kind: ResourceType, name: &str) {
        let what = match kind {
            ResourceType::Group => "a group of another tenant",
            ResourceType::TransactionalId => "a transactional id of another tenant",
            ResourceType::Cluster => "what is all tenants' together",
            _ => "a topic of another tenant",
        };
        self.refuse(from, name, what);
    }

    /// Notes that the caller spoke for another tenant; answers what it is told.
    pub fn refuse(&self, from: &Origin<'_>, claimed: &str, what: &'static str) -> StreamsError {
        let claimed: String = claimed.chars().take(CLAIMED_CHARS_MAX).collect();
        self.account.refuse(TenantRefusal {
            at_ms: from.now.0,
            principal: from.principal.clone(),
            host: from.host.to_owned(),
            protocol: from.protocol,
            claimed: claimed.clone(),
            what,
        });
        StreamsError::ForeignTenant {
            tenant: self.tenant().clone(),
            claimed,
        }
    }
}

/// Where a request comes from, for what is kept of refusals.
pub(crate) struct Origin<'a> {
    pub now: UnixMillis,
    pub principal: &'a Principal,
    pub host: &'a str,
    pub protocol: &'static str,
}

/// A tenant's name fits, and enough of anything else to be recognized.
const CLAIMED_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn payer() -> Payer {
        let dir = tempfile::tempdir().unwrap();
        let access = Access::open(dir.path()).unwrap();
        let change = serde_json::json!({"members": ["User:ann"]});
        let change = serde_json::from_value(change).unwrap();
        access
            .set_tenant(&"diku".parse().unwrap(), &change)
            .unwrap();
        Payer::of_caller(&access, None, &Principal::user("ann")).unwrap()
    }

    #[test]
    fn a_record_that_names_another_tenant_is_found_wherever_it_stands() {
        let (payer, ann) = (payer(), Principal::user("ann"));
        let from = Origin {
            now: UnixMillis(5),
            principal: &ann,
            host: "10.0.0.1",
            protocol: "kafka",
        };
        let record = |headers: &[(&str, &str)]| Record {
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Some(Bytes::from((*value).to_owned()))))
                .collect(),
            value: Some(Bytes::from_static(b"folio.tenantId other")),
            ..Record::default()
        };
        let own = record(&[("folio.tenantId", "diku"), ("x-okapi-tenant", "diku")]);
        let check = |records: &[Record]| {
            let batch = crate::batch::build(records, UnixMillis(0), None).unwrap();
            payer.check_batch(&from, &batch)
        };
        check(&[own.clone(), record(&[]), record(&[("tenant", "other")])]).unwrap();
        for (name, value) in [
            ("folio.tenantId", "other"),
            ("x-okapi-tenant", "dik"),
            ("thalweg.tenant", "diku2"),
            ("thalweg.tenant", ""),
        ] {
            let forged = [own.clone(), record(&[("a", "b"), (name, value)])];
            let refused = check(&forged).unwrap_err();
            let told = refused.to_string();
            assert!(
                matches!(refused, StreamsError::ForeignTenant { .. }),
                "{told}"
            );
        }
        let kept = payer.account.refusals();
        assert_eq!((kept.len(), kept[3].claimed.as_str()), (4, "other"));
    }
}
