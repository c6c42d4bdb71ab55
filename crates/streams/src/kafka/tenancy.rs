//! Tenants at the Kafka listener: who waits before its request is begun, and whose a batch is.
//!
//! A connection whose client belongs to a tenant waits as a whole while the tenant is over its
//! quotas: its next request is parked unread, and its last answer told it for how long. A client of
//! no tenant may write for many over one connection, so nothing of it waits: what it writes to the
//! topics of a tenant over its quotas is refused with an error that clients retry, and the rest is
//! stored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use access::{InFlight, Operation, ResourceType, Snapshot, Spending, Spent, TenantBound};
use bytes::Bytes;

use super::Context;
use super::limits::{IN_FLIGHT_WAIT, TENANT_FETCH_SHARE};
use super::reply::Call;
use crate::batch::BatchHeader;
use crate::error::StreamsError;
use crate::tenants::{Origin, Payer};
use crate::topic::TopicName;

/// The tenants of a produce request's batches.
pub(super) struct Tenancy {
    /// The client's tenant.
    member: Option<Payer>,
    /// The request as it counts for each tenant, until it is answered.
    flights: Vec<(Payer, InFlight)>,
}

impl Context {
    /// The tenant that the client belongs to, with what bounds it.
    fn payer(&self) -> Option<Payer> {
        let access = self.shared.security.access.as_ref()?;
        let policy = self.shared.security.authorization.as_ref();
        Payer::of_caller(access, policy, self.session.principal())
    }

    /// Whether any tenant is kept.
    pub(super) fn has_tenants(&self) -> bool {
        let access = self.shared.security.access.as_ref();
        access.is_some_and(|access| access.has_tenants())
    }

    /// How long a request of the client has to be parked; when not at all, it counts as begun.
    pub(super) fn gate(&self, frame: &[u8]) -> Duration {
        if !self.has_tenants() || !self.session.is_open() {
            return Duration::ZERO;
        }
        let way = match frame {
            [0, PRODUCE, ..] => Spending::In,
            [0, FETCH | SHARE_FETCH, ..] => Spending::Out,
            _ => return Duration::ZERO,
        };
        let Some(payer) = self.payer() else {
            return Duration::ZERO;
        };
        let now = self.streams().clock().now();
        let wait = payer.hold(now, way);
        if !wait.is_zero() {
            // A pause below the clock's step would come back too early.
            return wait.max(Duration::from_millis(1));
        }
        if way == Spending::In {
            let Some(flight) = payer.begin() else {
                payer.account.note_held();
                return IN_FLIGHT_WAIT;
            };
            // At once, so that not all connections pass the same gate.
            let wait = payer.charge(now, Spent::sent(frame.len() as u64, 0));
            self.note_wait(wait);
            *self.flight.lock() = Some((payer, flight));
        }
        Duration::ZERO
    }

    /// Counts what the client was answered; answers how long it is held back.
    pub(super) fn charge_read(&self, bytes: usize) -> Duration {
        let Some(payer) = self.payer() else {
            return Duration::ZERO;
        };
        let now = self.streams().clock().now();
        payer.charge(now, Spent::read(bytes as u64))
    }

    /// The most bytes that one fetch may bring by the tenant's quota.
    pub(super) fn tenant_fetch_bytes_max(&self) -> usize {
        let bound = TenantBound::BytesOutPerSecond;
        let payer = self.payer();
        let rate = payer.and_then(|payer| payer.quotas.get(&bound).copied());
        rate.map_or(usize::MAX, |rate| {
            let share = rate as f64 * TENANT_FETCH_SHARE.as_secs_f64();
            (share as usize).max(1)
        })
    }

    /// Whether something is another tenant's than the client's; ACLs, where they are followed, ask
    /// themselves.
    pub(super) fn is_foreign(&self, operation: Operation, kind: ResourceType, name: &str) -> bool {
        let principal = self.session.principal();
        let is_foreign = |of: &Snapshot| of.is_foreign(principal, operation, kind, name);
        self.held_by().is_some_and(|snapshot| is_foreign(&snapshot))
    }

    /// Whether the client belongs to a tenant and is no super user.
    pub(super) fn is_held_to_tenant(&self) -> bool {
        let principal = self.session.principal();
        let is_member = |of: &Snapshot| of.tenant_of(None, principal).is_some();
        self.held_by().is_some_and(|snapshot| is_member(&snapshot))
    }

    /// What says to whom the client belongs; none for super users, and where no tenant is kept.
    fn held_by(&self) -> Option<Arc<Snapshot>> {
        let security = &self.shared.security;
        let access = security.access.as_ref().filter(|it| it.has_tenants())?;
        let principal = self.session.principal();
        let policy = security.authorization.as_ref();
        let is_super = policy.is_some_and(|policy| policy.super_users.contains(principal));
        (!is_super).then(|| access.snapshot())
    }

    /// Keeps a refusal, if it was because something is another tenant's.
    pub(super) fn note_foreign(&self, operation: Operation, kind: ResourceType, name: &str) {
        if self.is_foreign(operation, kind, name) {
            self.note_refused(kind, name);
        }
    }

    /// Keeps that something was refused that is another tenant's, or all tenants' together.
    pub(super) fn note_refused(&self, kind: ResourceType, name: &str) {
        if let Some(payer) = self.payer() {
            payer.refuse_foreign(&self.from(), kind, name);
        }
    }

    /// As [`Context::note_foreign`], of a topic.
    pub(super) fn note_foreign_topic(&self, operation: Operation, topic: &str) {
        self.note_foreign(operation, ResourceType::Topic, topic);
    }

    fn note_wait(&self, wait: Duration) {
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.wait_ms.fetch_max(ms, Ordering::Relaxed);
    }

    fn from(&self) -> Origin<'_> {
        Origin {
            now: self.streams().clock().now(),
            principal: self.session.principal(),
            host: self.host(),
            protocol: "kafka",
        }
    }
}

impl Tenancy {
    /// Of a request that is begun; none when no tenant is kept.
    pub(super) fn of(call: &Call) -> Option<Self> {
        if !call.context.has_tenants() {
            return None;
        }
        let flights: Vec<_> = call.context.flight.lock().take().into_iter().collect();
        let member = flights.first().map(|(payer, _)| payer.clone());
        Some(Tenancy { member, flights })
    }

    /// Judges a batch before it is stored.
    pub(super) fn admit(
        &mut self,
        context: &Arc<Context>,
        topic: &TopicName,
        batch: &Bytes,
    ) -> Result<(), StreamsError> {
        if let Some(payer) = &self.member {
            payer.check_room()?;
            return payer.check_batch(&context.from(), batch);
        }
        let access = context.shared.security.access.as_ref();
        let Some(payer) = access.and_then(|of| Payer::of_topic(of, topic.wire_name())) else {
            return Ok(());
        };
        payer.check_room()?;
        let now = context.streams().clock().now();
        let wait = payer.hold(now, Spending::In);
        if !wait.is_zero() {
            return Err(payer.throttled(wait));
        }
        let counts = |(of, _): &(Payer, InFlight)| of.tenant() == payer.tenant();
        if !self.flights.iter().any(counts) {
            let flight = payer
                .begin()
                .ok_or_else(|| payer.throttled(IN_FLIGHT_WAIT))?;
            self.flights.push((payer, flight));
        }
        Ok(())
    }

    /// Counts a batch that was stored.
    pub(super) fn stored(&self, context: &Context, topic: &TopicName, batch: &BatchHeader) {
        let records = u64::from(batch.record_count.unsigned_abs());
        let now = context.streams().clock().now();
        match &self.member {
            // Its bytes were counted with the request.
            Some(payer) => {
                payer.account.note_kept(batch.bytes as u64);
                context.note_wait(payer.charge(now, Spent::sent(0, records)));
            }
            None => {
                let access = context.shared.security.access.as_ref();
                if let Some(payer) = access.and_then(|of| Payer::of_topic(of, topic.wire_name())) {
                    payer.account.note_kept(batch.bytes as u64);
                    payer.charge(now, Spent::sent(batch.bytes as u64, records));
                }
            }
        }
    }
}

/// The keys of the APIs that carry records.
const PRODUCE: u8 = 0;
const FETCH: u8 = 1;
const SHARE_FETCH: u8 = 78;
