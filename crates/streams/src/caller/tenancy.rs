//! Tenants of callers who do not come over Kafka: each waits for a moment while its tenant is over
//! its quotas, and is told to come again when that takes longer. Parts of this process are counted
//! and never held back amid a call, as others' work waits behind them; they ask before they begin
//! with a tenant's work ([`EventStore::tenant_wait`](crate::EventStore::tenant_wait)).

use std::time::Duration;

use access::{InFlight, OfCaller, Operation, ResourceType, Spending, Spent};
use base::{Clock, SystemClock, TenantId};

use super::Caller;
use crate::error::StreamsError;
use crate::event_store::ProduceBatch;
use crate::limits::{TENANT_HOLD_MAX, TENANT_LOOK};
use crate::record::{ConsumedRecord, Record};
use crate::tenants::{Origin, Payer, whose};
use crate::topic::TopicName;

/// A request that was let in, until it is answered.
#[derive(Default)]
pub(super) struct Admitted(Vec<(Payer, Spent, Option<InFlight>)>);

impl Caller {
    /// How long a request of the caller has to wait that goes this way, where it belongs to a
    /// tenant that is over its quotas.
    pub fn tenant_wait(&self, is_sending: bool) -> Duration {
        let way = match is_sending {
            true => Spending::In,
            false => Spending::Out,
        };
        let payer = self.payer();
        payer.map_or(Duration::ZERO, |payer| payer.hold(SystemClock.now(), way))
    }

    /// Refuses a request in which the caller speaks for a tenant that is not its own; a caller of no
    /// tenant may speak for any.
    ///
    /// # Errors
    /// [`StreamsError::ForeignTenant`].
    pub fn check_tenant(&self, claimed: &str, protocol: &'static str) -> Result<(), StreamsError> {
        match self.payer() {
            Some(payer) if payer.tenant().as_str() != claimed => {
                let from = self.from(protocol);
                Err(payer.refuse(&from, claimed, "a request names another tenant"))
            }
            _ => Ok(()),
        }
    }

    /// Lets batches in: none speaks for another tenant, and all have room within the quotas.
    pub(super) async fn admit(&self, batches: &[ProduceBatch]) -> Result<Admitted, StreamsError> {
        if !self.access.has_tenants() {
            return Ok(Admitted::default());
        }
        let mut admitted: Vec<(Payer, Spent, Option<InFlight>)> = Vec::new();
        let member = self.payer();
        for batch in batches {
            let of_topic = || Payer::of_topic(&self.access, batch.topic.wire_name());
            // What a part of the process writes for a tenant names it.
            let of_header = || match self.is_service {
                true => Payer::of_tenant(&self.access, &whose(&batch.records.first()?.headers)?),
                false => None,
            };
            let payer = member.clone().or_else(of_topic).or_else(of_header);
            let Some(payer) = payer else {
                continue;
            };
            if member.is_some() {
                let from = self.from(REST);
                for record in &batch.records {
                    let headers = record.headers.iter();
                    let headers = headers.map(|(name, value)| (&**name, value.as_deref()));
                    payer.check_headers(&from, headers)?;
                }
            }
            let bytes: usize = batch.records.iter().map(record_bytes).sum();
            let spent = Spent::sent(bytes as u64, batch.records.len() as u64);
            let same = |(of, ..): &&mut (Payer, Spent, _)| of.tenant() == payer.tenant();
            match admitted.iter_mut().find(same) {
                Some((_, sum, _)) => *sum += spent,
                None => admitted.push((payer, spent, None)),
            }
        }
        if !self.is_service {
            for (payer, _, flight) in &mut admitted {
                payer.check_room()?;
                *flight = Some(enter(payer).await?);
            }
        }
        Ok(Admitted(admitted))
    }

    /// For how long work of a tenant that its quotas bound is left alone.
    pub(super) fn work_wait(&self, tenant: &TenantId) -> Result<Duration, StreamsError> {
        let Some(payer) = Payer::of_tenant(&self.access, tenant) else {
            return Ok(Duration::ZERO);
        };
        payer.check_room()?;
        Ok(payer.hold(SystemClock.now(), Spending::In))
    }

    /// Waits until the caller's tenant may read.
    pub(super) async fn hold_reads(&self) -> Result<(), StreamsError> {
        match self.payer() {
            Some(payer) => hold(&payer, Spending::Out).await,
            None => Ok(()),
        }
    }

    /// Counts records that the caller has read.
    pub(super) fn charge_reads(&self, records: &[ConsumedRecord]) {
        if let Some(payer) = self.payer() {
            let of = |record: &ConsumedRecord| {
                let (key, value) = (record.key.as_ref(), record.value.as_ref());
                bytes_of(
                    key.map(|key| key.len()),
                    value.map(|value| value.len()),
                    &record.headers,
                )
            };
            let bytes: usize = records.iter().map(of).sum();
            payer.charge(SystemClock.now(), Spent::read(bytes as u64));
        }
    }

    /// The tenant whose records alone the caller is shown of a topic.
    pub(super) fn only_of(&self, topic: &TopicName) -> Option<TenantId> {
        if self.is_service || !self.access.has_tenants() {
            return None;
        }
        let snapshot = self.access.snapshot();
        snapshot.only_of(&self.policy, &self.principal, topic.wire_name())
    }

    /// Leaves out the records of other tenants that share a topic with the caller's.
    pub(super) fn leave_out_others(&self, records: &mut Vec<ConsumedRecord>) {
        if !self.access.has_tenants() {
            return;
        }
        // Records of one topic mostly come together.
        let mut last: Option<(TopicName, Option<TenantId>)> = None;
        records.retain(|record| {
            let (_, only) = match last.take() {
                Some(known) if known.0 == record.topic => last.insert(known),
                _ => last.insert((record.topic.clone(), self.only_of(&record.topic))),
            };
            let Some(only) = only else {
                return true;
            };
            whose(&record.headers).as_ref() == Some(only)
        });
    }

    /// Whether the caller is kept off what is other tenants': it belongs to one, and is neither a super
    /// user nor a part of this process.
    pub fn is_held_to_tenant(&self) -> bool {
        let is_free = self.is_service || self.policy.super_users.contains(&self.principal);
        !is_free && self.tenant().is_some()
    }

    /// Refuses whoever belongs to a tenant that is not kept, and keeps that they asked for `what`.
    ///
    /// # Errors
    /// The tenant's name.
    pub fn check_kept(&self, what: &str) -> Result<(), TenantId> {
        let snapshot = self.access.snapshot();
        match snapshot.tenant_of(Some(&self.policy), &self.principal) {
            Some(OfCaller::Unknown(tenant)) => {
                if let Some(payer) = self.payer() {
                    payer.refuse(&self.from(REST), what, "the caller's tenant is not kept");
                }
                Err(tenant)
            }
            _ => Ok(()),
        }
    }

    /// Whether something is by its name another tenant's than the caller's.
    pub fn is_foreign(&self, operation: Operation, kind: ResourceType, name: &str) -> bool {
        if !self.is_held_to_tenant() {
            return false;
        }
        let snapshot = self.access.snapshot();
        snapshot.is_foreign(&self.principal, operation, kind, name)
    }

    /// Refuses what is by its name another tenant's, and keeps that.
    ///
    /// # Errors
    /// [`StreamsError::NotAllowed`].
    pub fn check_own(
        &self,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> Result<(), StreamsError> {
        if !self.is_foreign(operation, kind, name) {
            return Ok(());
        }
        self.note_foreign(operation, kind, name);
        Err(self.not_allowed(operation, kind, name))
    }

    /// Keeps a refusal, if it was because something is another tenant's.
    pub(super) fn note_foreign(&self, operation: Operation, kind: ResourceType, name: &str) {
        if self.is_foreign(operation, kind, name) {
            self.note_refused(kind, name);
        }
    }

    /// Keeps that something was refused that is another tenant's, or all tenants' together.
    pub fn note_refused(&self, kind: ResourceType, name: &str) {
        if let Some(payer) = self.payer() {
            payer.refuse_foreign(&self.from(REST), kind, name);
        }
    }

    fn payer(&self) -> Option<Payer> {
        Payer::of_caller(&self.access, Some(&self.policy), &self.principal)
    }

    fn from(&self, protocol: &'static str) -> Origin<'_> {
        Origin {
            now: SystemClock.now(),
            principal: &self.principal,
            host: &self.host,
            protocol,
        }
    }
}

impl Admitted {
    /// Counts what was stored.
    pub(super) fn stored(self) {
        for (payer, spent, _) in self.0 {
            payer.account.note_kept(spent.bytes_in);
            payer.charge(SystemClock.now(), spent);
        }
    }
}

/// Waits until the tenant is within its rates and has a place for one more request.
async fn enter(payer: &Payer) -> Result<InFlight, StreamsError> {
    hold(payer, Spending::In).await?;
    let mut looked = Duration::ZERO;
    loop {
        if let Some(flight) = payer.begin() {
            return Ok(flight);
        }
        if looked >= TENANT_HOLD_MAX {
            payer.account.note_held();
            return Err(payer.throttled(TENANT_HOLD_MAX));
        }
        tokio::time::sleep(TENANT_LOOK).await;
        looked += TENANT_LOOK;
    }
}

async fn hold(payer: &Payer, way: Spending) -> Result<(), StreamsError> {
    let mut held = Duration::ZERO;
    loop {
        let wait = payer.hold(SystemClock.now(), way);
        if wait.is_zero() {
            return Ok(());
        }
        if held + wait > TENANT_HOLD_MAX {
            return Err(payer.throttled(wait));
        }
        let wait = wait.max(Duration::from_millis(1));
        tokio::time::sleep(wait).await;
        held += wait;
    }
}

fn record_bytes(record: &Record) -> usize {
    let (key, value) = (record.key.as_ref(), record.value.as_ref());
    bytes_of(
        key.map(|key| key.len()),
        value.map(|value| value.len()),
        &record.headers,
    )
}

fn bytes_of(
    key: Option<usize>,
    value: Option<usize>,
    headers: &[(String, Option<bytes::Bytes>)],
) -> usize {
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| name.len() + value.as_ref().map_or(0, |v| v.len()));
    key.unwrap_or(0) + value.unwrap_or(0) + headers.sum::<usize>()
}

/// What callers come by who are held to what they may.
const REST: &str = "rest";
