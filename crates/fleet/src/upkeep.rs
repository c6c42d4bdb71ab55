//! What a node does now and then: it tells who went missing and which certificates end, times
//! operations out, and removes what is too old of history.

use std::sync::Arc;

use access::CertificateFacts;
use metrics::counter;

use crate::fleet::Inner;
use crate::limits;

impl Inner {
    /// Tells of agents that went missing or came back, if that is this node's to do.
    pub(crate) fn look(&self, is_mine: bool) {
        if !is_mine {
            self.registry.lock().forget_missed();
            return;
        }
        let now = self.clock.now();
        let (mut from, mut told) = (Some(0), 0);
        while let Some(at) = from {
            let looked = self.registry.lock().look_for_missed(at, now);
            from = looked.next;
            told += looked.told;
        }
        if told > 0 {
            self.signals.change();
        }
    }

    /// Our own certificates, by their ports.
    pub(crate) fn own_certificates(&self) -> Vec<(&'static str, CertificateFacts)> {
        let own = self.own.lock();
        own.1.as_ref().map_or_else(Vec::new, |read| read())
    }

    /// Tells of our own certificates that are about to end; of one that several nodes have, once.
    pub(crate) fn look_at_certificates(&self) {
        let certificates = self.own_certificates();
        let (warning, now) = (self.policy.certificate_warning, self.clock.now());
        let events = self.own.lock().0.look(&certificates, warning, now);
        if !events.is_empty() {
            let mut registry = self.registry.lock();
            events.into_iter().for_each(|event| registry.tell(event));
            self.signals.change();
        }
    }

    /// Removes what is too old of history.
    pub(crate) async fn prune(&self, fence: i64) {
        let now = self.clock.now();
        let pruned = self.store.prune_events(&self.ages, now).await;
        let forgotten = self.store.forget_before(now - limits::FEED_AGE).await;
        let rollouts = self.prune_rollouts(fence, now).await;
        let audit = self.audit.prune(self.config.audit_max_age.0, now).await;
        let results = self.prune_results().await;
        let told = self.store.prune_told(now).await;
        let given_up = self.store.prune_alerts(now).await;
        if let Ok(count) = given_up {
            self.alerts.gave_up(count);
        }
        let done = pruned
            .map(drop)
            .and(told)
            .and(results)
            .and(given_up.map(drop))
            .and(forgotten.map(drop))
            .and(rollouts.map(drop));
        if let Err(error) = done.and(audit) {
            tracing::warn!(error = %base::report(&error), "cannot remove what is too old");
        }
    }

    /// Times out operations that waited too long, of agents after this one; one node does so for all.
    /// Tells where to go on.
    pub(crate) fn sweep(&self, mut after: Option<Arc<str>>) -> Option<Arc<str>> {
        self.lease.held()?;
        let mut expired = 0;
        for _ in 0..limits::SWEPT_AT_ONCE / limits::LOOKED_AT_ONCE {
            let now = self.clock.now();
            let swept = {
                let mut registry = self.registry.lock();
                if !registry.has_room_for_many_events() {
                    break;
                }
                registry.sweep(after.as_deref(), now, &self.policy)
            };
            expired += swept.expired;
            after = swept.next;
            if after.is_none() {
                break;
            }
        }
        if expired > 0 {
            counter!("thalweg_fleet_operations_timed_out_total").increment(expired as u64);
        }
        after
    }
}
