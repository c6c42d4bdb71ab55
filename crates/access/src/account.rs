//! What each tenant uses, over every protocol, topic and connection of the process: meters, figures
//! and what was refused. In memory only; code that decides takes `now`.

use std::collections::{HashMap, VecDeque};
use std::ops::AddAssign;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Exposition, LinesPerMinute, TenantId, UnixMillis};
use parking_lot::{Mutex, RwLock};
use serde::Serialize;

use crate::limits::{
    TENANT_RATE_SLOTS, TENANT_REFUSALS_LOGGED_PER_MINUTE, TENANT_REFUSALS_MAX, TENANT_WINDOW,
};
use crate::{Meters, Principal, TenantBound, TenantQuotas};

/// The accounts of all kept tenants.
#[derive(Default)]
pub struct TenantAccounts {
    accounts: RwLock<HashMap<TenantId, Arc<TenantAccount>>>,
    /// What is noted of all tenants that are not kept.
    unknown: Arc<Mutex<State>>,
    counts: Arc<Counts>,
}

/// What was done to all tenants since the process began.
#[derive(Default)]
struct Counts {
    throttled: AtomicU64,
    refused: AtomicU64,
}

/// What one tenant uses.
pub struct TenantAccount {
    tenant: TenantId,
    state: Arc<Mutex<State>>,
    in_flight: AtomicU64,
    stored_bytes: AtomicU64,
    throttled: AtomicU64,
    refused: AtomicU64,
    of_all: Arc<Counts>,
}

struct State {
    meters: Meters<TenantBound>,
    rates: Rates,
    total: Spent,
    refusals: VecDeque<TenantRefusal>,
    logged: LinesPerMinute,
}

impl Default for State {
    fn default() -> Self {
        State {
            meters: Meters::new(TENANT_WINDOW, |bound| bound),
            rates: Rates::default(),
            total: Spent::default(),
            refusals: VecDeque::new(),
            logged: LinesPerMinute::default(),
        }
    }
}

/// What a request used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Bytes that came.
    pub bytes_in: u64,
    /// Bytes that went.
    pub bytes_out: u64,
    /// Records that came.
    pub records: u64,
}

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spending {
    /// It brings records.
    In,
    /// It reads records.
    Out,
}

/// A tenant's figures at one moment.
#[derive(Clone, Copy, Debug)]
pub struct TenantFigures {
    /// Bytes and records a second, means of the last ten seconds.
    pub rates: [f64; 3],
    /// Since the process began.
    pub total: Spent,
    /// Requests that are being stored.
    pub in_flight: u64,
    /// As it was told last, with what came since.
    pub stored_bytes: u64,
    /// Requests that were held back.
    pub throttled: u64,
    /// Requests that were refused because they spoke for another tenant.
    pub refused: u64,
}

/// A request that spoke for another tenant than its caller's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantRefusal {
    /// When.
    pub at_ms: i64,
    /// Who.
    pub principal: Principal,
    /// From which address.
    pub host: String,
    /// `kafka`, `rest` or `mqtt`.
    pub protocol: &'static str,
    /// The tenant that was named, as far as it can be told.
    pub claimed: String,
    /// How.
    pub what: &'static str,
}

/// A request that is being stored; counted until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<TenantAccount>);

impl TenantAccounts {
    /// The account of a kept tenant, made when there is none.
    pub fn of(&self, tenant: &TenantId) -> Arc<TenantAccount> {
        if let Some(account) = self.accounts.read().get(tenant) {
            return Arc::clone(account);
        }
        let mut accounts = self.accounts.write();
        let account = accounts
            .entry(tenant.clone())
            .or_insert_with(|| self.account(tenant.clone(), Arc::default()));
        Arc::clone(account)
    }

    /// An account of a tenant that is not kept. Whatever they are called, they share what bounds
    /// the log.
    pub(crate) fn of_unknown(&self, tenant: TenantId) -> Arc<TenantAccount> {
        self.account(tenant, Arc::clone(&self.unknown))
    }

    fn account(&self, tenant: TenantId, state: Arc<Mutex<State>>) -> Arc<TenantAccount> {
        Arc::new(TenantAccount {
            tenant,
            state,
            in_flight: AtomicU64::new(0),
            stored_bytes: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            of_all: Arc::clone(&self.counts),
        })
    }

    /// Tells what was done to all tenants.
    pub fn observe(&self, out: &mut Exposition) {
        let [throttled, refused] = [&self.counts.throttled, &self.counts.refused];
        out.counter(
            "thalweg_tenants_throttled_total",
            "Requests that were held back by a tenant's quotas.",
            throttled.load(Ordering::Relaxed),
        );
        out.counter(
            "thalweg_tenants_refused_total",
            "Requests that were refused because they spoke for another tenant.",
            refused.load(Ordering::Relaxed),
        );
    }

    /// Forgets the account of a tenant that is not kept any more.
    pub(crate) fn forget(&self, tenant: &TenantId) {
        self.accounts.write().remove(tenant);
    }
}

impl TenantAccount {
    /// Whose it is.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// How long a request has to wait before it may be begun; nothing is counted. A tenant that
    /// waits so long every time stays within its quotas, whatever number of connections it has.
    pub fn wait(&self, now: UnixMillis, quotas: &TenantQuotas, way: Spending) -> Duration {
        let mut state = self.state.lock();
        let waits = way.bounds().iter().filter_map(|bound| {
            let rate = *quotas.get(bound)? as f64;
            Some(state.meters.wait(now, *bound, rate))
        });
        waits.max().unwrap_or_default()
    }

    /// Counts what a request used; answers how long the tenant has to wait before the next.
    pub fn charge(&self, now: UnixMillis, quotas: &TenantQuotas, spent: Spent) -> Duration {
        let mut state = self.state.lock();
        state.total += spent;
        state.rates.note(now, spent);
        let mut wait = Duration::ZERO;
        for (bound, amount) in spent.bounded() {
            if let Some(rate) = quotas.get(&bound).filter(|_| amount > 0) {
                let waits = state.meters.charge(now, bound, *rate as f64, amount as f64);
                wait = wait.max(waits);
            }
        }
        wait
    }

    /// As [`TenantAccount::wait`], and notes that somebody is held back if it is not zero.
    pub fn hold(&self, now: UnixMillis, quotas: &TenantQuotas, way: Spending) -> Duration {
        let wait = self.wait(now, quotas, way);
        if !wait.is_zero() {
            self.note_held();
        }
        wait
    }

    /// Notes that somebody is held back.
    pub fn note_held(&self) {
        self.throttled.fetch_add(1, Ordering::Relaxed);
        self.of_all.throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is begun; none when as many are under way as may be.
    pub fn begin(self: &Arc<Self>, quotas: &TenantQuotas) -> Option<InFlight> {
        let max = quotas.get(&TenantBound::InFlight).copied();
        let max = max.unwrap_or(u64::MAX);
        let count = |now: u64| (now < max).then_some(now + 1);
        let counted = self
            .in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        counted.ok().map(|_| InFlight(Arc::clone(self)))
    }

    /// Whether the tenant keeps as many bytes as it may.
    pub fn is_full(&self, quotas: &TenantQuotas) -> bool {
        let max = quotas.get(&TenantBound::StoredBytes);
        max.is_some_and(|max| self.stored_bytes.load(Ordering::Relaxed) >= *max)
    }

    /// Notes that bytes of its records were stored.
    pub fn note_kept(&self, bytes: u64) {
        self.stored_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes how many bytes of its records the store holds.
    pub fn note_stored(&self, bytes: u64) {
        self.stored_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Keeps a refusal, and writes it to the log's audit, unless there were many in its minute.
    pub fn refuse(&self, refusal: TenantRefusal) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.of_all.refused.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        let at = UnixMillis(refusal.at_ms);
        if state.logged.admits(at, TENANT_REFUSALS_LOGGED_PER_MINUTE) {
            tracing::warn!(
                principal = %refusal.principal, host = refusal.host, protocol = refusal.protocol,
                tenant = %self.tenant, claimed = refusal.claimed, what = refusal.what, "audit"
            );
        }
        if state.refusals.len() >= TENANT_REFUSALS_MAX {
            state.refusals.pop_front();
        }
        state.refusals.push_back(refusal);
    }

    /// What was refused last, the newest first.
    pub fn refusals(&self) -> Vec<TenantRefusal> {
        let state = self.state.lock();
        state.refusals.iter().rev().cloned().collect()
    }

    /// Its figures.
    pub fn figures(&self, now: UnixMillis) -> TenantFigures {
        let mut state = self.state.lock();
        TenantFigures {
            rates: state.rates.means(now),
            total: state.total,
            in_flight: self.in_flight.load(Ordering::Relaxed),
            stored_bytes: self.stored_bytes.load(Ordering::Relaxed),
            throttled: self.throttled.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for TenantAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TenantAccount").field(&self.tenant).finish()
    }
}

impl Spending {
    fn bounds(self) -> &'static [TenantBound] {
        match self {
            Spending::In => &[TenantBound::BytesInPerSecond, TenantBound::RecordsPerSecond],
            Spending::Out => &[TenantBound::BytesOutPerSecond],
        }
    }
}

impl Spent {
    /// What was sent.
    pub fn sent(bytes: u64, records: u64) -> Self {
        Spent {
            bytes_in: bytes,
            records,
            ..Spent::default()
        }
    }

    /// What was read.
    pub fn read(bytes: u64) -> Self {
        Spent {
            bytes_out: bytes,
            ..Spent::default()
        }
    }

    fn bounded(self) -> [(TenantBound, u64); 3] {
        [
            (TenantBound::BytesInPerSecond, self.bytes_in),
            (TenantBound::BytesOutPerSecond, self.bytes_out),
            (TenantBound::RecordsPerSecond, self.records),
        ]
    }
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Spent) {
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        self.records = self.records.saturating_add(other.records);
    }
}

/// What was used in each of the last seconds.
#[derive(Default)]
struct Rates {
    slots: [Spent; TENANT_RATE_SLOTS],
    /// The second of the newest slot, since 1970.
    newest: i64,
}

impl Rates {
    fn turn(&mut self, now: UnixMillis) {
        let second = now.0.div_euclid(1_000);
        let passed = usize::try_from(second.saturating_sub(self.newest)).unwrap_or(0);
        for past in 0..passed.min(TENANT_RATE_SLOTS) {
            let slot = (second - past as i64).rem_euclid(TENANT_RATE_SLOTS as i64);
            self.slots[slot as usize] = Spent::default();
        }
        // A clock that steps back writes into the newest slot.
        self.newest = self.newest.max(second);
    }

    fn note(&mut self, now: UnixMillis, spent: Spent) {
        self.turn(now);
        let slot = self.newest.rem_euclid(TENANT_RATE_SLOTS as i64);
        self.slots[slot as usize] += spent;
    }

    /// Means of the whole seconds before this one: bytes in, bytes out, records.
    fn means(&mut self, now: UnixMillis) -> [f64; 3] {
        self.turn(now);
        let current = self.newest.rem_euclid(TENANT_RATE_SLOTS as i64) as usize;
        let mut sum = Spent::default();
        for (_, slot) in self
            .slots
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != current)
        {
            sum += *slot;
        }
        let seconds = (TENANT_RATE_SLOTS - 1) as f64;
        [sum.bytes_in, sum.bytes_out, sum.records].map(|sum| sum as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn account() -> Arc<TenantAccount> {
        TenantAccounts::default().of(&"diku".parse().unwrap())
    }

    /// What comes through in ten seconds when connections send requests of these sizes as fast as
    /// they may, each held back by the account alone.
    fn sent_in_ten_seconds(
        rng: &mut Rng,
        quotas: &TenantQuotas,
        connections: u64,
        most: u64,
    ) -> Spent {
        let account = account();
        let begun = UnixMillis(1_000_000);
        let mut ready: Vec<UnixMillis> = (0..connections).map(|n| begun + ms(n % 7)).collect();
        let mut sum = Spent::default();
        loop {
            let next = ready.iter_mut().min().unwrap();
            let now = *next;
            if now.since(begun) >= Duration::from_secs(10) {
                return sum;
            }
            let wait = account.wait(now, quotas, Spending::In);
            if !wait.is_zero() {
                *next = now + wait.max(ms(1));
                continue;
            }
            let spent = Spent::sent(1 + rng.below(most), 1 + rng.below(20));
            account.charge(now, quotas, spent);
            sum += spent;
            // An answer takes up to three milliseconds.
            *next = now + ms(rng.below(4));
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn quotas_hold_within_five_per_cent_over_ten_seconds_for_any_number_of_connections() {
        let mut rng = Rng::from_seed(7);
        for connections in [1, 5, 40] {
            for rate in [100_000, 1_000_000, 30_000_000] {
                let quotas = TenantQuotas::from([(TenantBound::BytesInPerSecond, rate)]);
                let most = (rate / 20).min(1 << 20);
                let sent = sent_in_ten_seconds(&mut rng, &quotas, connections, most);
                let share = sent.bytes_in as f64 / (rate * 10) as f64;
                assert!(
                    (0.95..=1.05).contains(&share),
                    "{connections} at {rate}: {share}"
                );
            }
        }
        let quotas = TenantQuotas::from([(TenantBound::RecordsPerSecond, 2_000)]);
        let sent = sent_in_ten_seconds(&mut rng, &quotas, 9, 100);
        let share = sent.records as f64 / 20_000.0;
        assert!((0.95..=1.05).contains(&share), "{share}");
    }

    #[test]
    fn a_quota_that_is_changed_holds_at_once() {
        let account = account();
        let quotas = |rate| TenantQuotas::from([(TenantBound::BytesOutPerSecond, rate)]);
        let now = UnixMillis(1_000_000);
        account.charge(now, &quotas(1_000), Spent::read(100_000));
        assert!(account.wait(now, &quotas(1_000), Spending::Out) > Duration::from_secs(90));
        // What is read holds nobody back who sends.
        assert_eq!(
            account.wait(now, &quotas(1_000), Spending::In),
            Duration::ZERO
        );
        assert!(account.wait(now, &quotas(100_000), Spending::Out) < Duration::from_secs(1));
        assert_eq!(
            account.wait(now, &TenantQuotas::new(), Spending::Out),
            Duration::ZERO
        );
    }

    #[test]
    fn no_more_are_in_flight_than_may_be_and_a_full_tenant_is_told() {
        let account = account();
        let quotas = TenantQuotas::from([
            (TenantBound::InFlight, 2),
            (TenantBound::StoredBytes, 1_000),
        ]);
        let one = account.begin(&quotas).unwrap();
        let two = account.begin(&quotas).unwrap();
        assert!(account.begin(&quotas).is_none());
        drop(one);
        assert!(account.begin(&quotas).is_some());
        drop(two);
        assert!(account.begin(&TenantQuotas::new()).is_some());
        assert_eq!(account.figures(UnixMillis(0)).in_flight, 0);
        assert!(!account.is_full(&quotas));
        account.note_kept(1_000);
        assert!(account.is_full(&quotas));
        account.note_stored(10);
        assert!(!account.is_full(&quotas) && !account.is_full(&TenantQuotas::new()));
    }

    #[test]
    fn rates_are_of_the_last_ten_seconds() {
        let account = account();
        let none = TenantQuotas::new();
        let at = |second: i64| UnixMillis(1_000_000 + second * 1_000);
        for second in 0..10 {
            account.charge(at(second), &none, Spent::sent(500, 5));
        }
        assert_eq!(account.figures(at(10)).rates, [500.0, 0.0, 5.0]);
        assert_eq!(account.figures(at(15)).rates, [250.0, 0.0, 2.5]);
        let later = account.figures(at(1_000));
        assert_eq!(later.rates, [0.0; 3]);
        assert_eq!(later.total, Spent::sent(5_000, 50));
    }

    #[test]
    fn refusals_are_kept_up_to_a_bound_the_newest_first() {
        let account = account();
        for at_ms in 0..TENANT_REFUSALS_MAX as i64 + 5 {
            account.refuse(TenantRefusal {
                at_ms,
                principal: Principal::user("ann"),
                host: "10.0.0.1".to_owned(),
                protocol: "kafka",
                claimed: "other".to_owned(),
                what: "a record's header",
            });
        }
        let refusals = account.refusals();
        assert_eq!(refusals.len(), TENANT_REFUSALS_MAX);
        assert_eq!(refusals[0].at_ms, TENANT_REFUSALS_MAX as i64 + 4);
    }
}
