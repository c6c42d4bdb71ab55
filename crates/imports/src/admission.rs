//! Who may begin: uploads and unfinished jobs are bounded, one tenant has a share of them at most,
//! and the last of them are for tenants that have none, so that nobody keeps another one out.

use std::collections::HashMap;
use std::sync::Arc;

use base::TenantId;
use parking_lot::Mutex;
use sql::Statement;

use crate::error::ImportsError;
use crate::imports::{Core, Live};
use crate::limits;
use crate::registry::Registry;

/// How many there may be of something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// Of what.
    pub what: &'static str,
    /// Of all tenants together.
    pub max: usize,
    /// Of one tenant.
    pub tenant_max: usize,
    /// The last of all, which a tenant gets that has none.
    pub reserve: usize,
}

impl Bound {
    /// Refuses one more to a tenant that has `own` of `all`.
    fn check(&self, own: usize, all: usize) -> Result<(), ImportsError> {
        let Bound { what, max, .. } = *self;
        if own >= self.tenant_max {
            let max = self.tenant_max;
            return Err(ImportsError::ShareTaken { what, max });
        }
        if own > 0 && all + self.reserve >= max {
            let left = self.reserve;
            return Err(ImportsError::Reserved { what, left });
        }
        match all < max {
            true => Ok(()),
            false => Err(ImportsError::Busy { what, max }),
        }
    }
}

/// The uploads under way, of each tenant.
#[derive(Default)]
pub(crate) struct Places(Mutex<HashMap<TenantId, usize>>);

/// A place that is given back when it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    tenant: TenantId,
}

impl Places {
    /// Takes a place for an upload.
    ///
    /// # Errors
    /// When the tenant has its share, or none is left for it; retry later.
    pub fn take(self: &Arc<Self>, tenant: &TenantId) -> Result<Place, ImportsError> {
        let mut taken = self.0.lock();
        let own = taken.get(tenant).copied().unwrap_or(0);
        limits::UPLOADS.check(own, taken.values().sum())?;
        taken.insert(tenant.clone(), own + 1);
        Ok(Place {
            places: self.clone(),
            tenant: tenant.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        if let Some(own) = taken.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.tenant);
            }
        }
    }
}

impl Live {
    fn jobs_of(&self, tenant: &TenantId) -> usize {
        let running = self.jobs.values().filter(|job| job.tenant == *tenant);
        let uploading = self.uploading.values().filter(|of| of.tenant == *tenant);
        running.count() + uploading.count()
    }
}

impl Core {
    /// Refuses more unfinished jobs than the process takes, or takes of a tenant.
    pub async fn check_room(&self, tenant: &TenantId) -> Result<(), ImportsError> {
        let paused = self.registry.paused(tenant).await?;
        let live = self.live.lock();
        let all = live.jobs.len() + live.uploading.len() + paused.all;
        limits::JOBS_ACTIVE.check(live.jobs_of(tenant) + paused.own, all)
    }
}

/// Jobs that are paused: each has its file, and may go on at any time.
struct Paused {
    own: usize,
    all: usize,
}

impl Registry {
    async fn paused(&self, tenant: &TenantId) -> Result<Paused, ImportsError> {
        let what = "count paused jobs";
        let select = Statement::new(
            "SELECT count(CASE WHEN tenant = ? THEN 1 END) AS own_jobs, count(*) AS all_jobs
             FROM import_jobs WHERE state = 'paused'",
        )
        .bind(tenant.as_str());
        let row = self.database.row(what, &select).await?;
        let count = |name: &str| {
            let count = row.as_ref().map_or(Ok(0), |row| row.number(name));
            count.map(|count| usize::try_from(count).unwrap_or(usize::MAX))
        };
        let read = || -> Result<Paused, sqlx::Error> {
            Ok(Paused {
                own: count("own_jobs")?,
                all: count("all_jobs")?,
            })
        };
        Ok(read().map_err(|e| self.error(what, e))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound {
        what: "uploads",
        max: 10,
        tenant_max: 4,
        reserve: 3,
    };

    #[test]
    fn a_tenant_has_its_share_and_the_last_are_for_who_has_none() {
        assert!(BOUND.check(3, 6).is_ok());
        let told = |own, all| BOUND.check(own, all).unwrap_err().to_string();
        let expected = "uploads: the tenant has 4, as many as one may have; retry when one is done";
        assert_eq!(told(4, 4), expected);
        let expected = "uploads: the last 3 are for tenants that have none; retry when one is done";
        assert_eq!(told(1, 7), expected);
        assert!(BOUND.check(0, 7).is_ok() && BOUND.check(0, 9).is_ok());
        assert_eq!(told(0, 10), "uploads: 10 at a time are taken; retry later");
    }

    #[test]
    fn one_tenant_alone_cannot_take_what_another_one_needs() {
        for bound in [limits::UPLOADS, limits::JOBS_ACTIVE] {
            assert!(bound.tenant_max + bound.reserve <= bound.max, "{bound:?}");
        }
        let places = Arc::new(Places::default());
        let tenant = |n: usize| format!("t{n}").parse::<TenantId>().unwrap();
        let mut taken = Vec::new();
        for n in 0..limits::UPLOADS.max {
            while let Ok(place) = places.take(&tenant(n)) {
                taken.push(place);
            }
        }
        // Whoever came first took its share, and the last got one each.
        let most = limits::UPLOADS;
        assert_eq!(taken.len(), most.max);
        let own = |n| places.0.lock().get(&tenant(n)).copied().unwrap_or(0);
        assert_eq!((own(0), own(1)), (most.tenant_max, most.tenant_max));
        assert!(own((most.max - most.reserve) / most.tenant_max) == 1);
        taken.clear();
        assert!(places.0.lock().is_empty());
    }
}
