//! What one client may do, and how much of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use access::{
    Bound, Meters, Operation, Principal, ResourceType, Shown, Spent, TENANT_HEADERS, TenantAccount,
    TenantQuotas, TenantRefusal,
};
use base::UnixMillis;
use parking_lot::Mutex;

use crate::gate::Pass;
use crate::guard::refusals::{Refusal, Refused};
use crate::guard::rules::{Rules, Whose};
use crate::guard::{No, Shared, Sharer};
use crate::limits::{CLIENT_RATE_WINDOW, RATE_WINDOW};
use crate::message::Qos;
use crate::mount::Mount;
use crate::reason::ReasonCode;
use crate::topic::TopicFilter;

/// The pass of one client; the rules that hold for it are laid out when they change.
pub(super) struct ClientPass {
    shared: Arc<Shared>,
    principal: Principal,
    client_id: Arc<str>,
    host: String,
    shown: Shown,
    /// Until when what the client has shown is good.
    until: Option<UnixMillis>,
    /// As it was when the client came.
    mount: Option<Mount>,
    /// By which state of the ACLs, and the rules.
    rules: Mutex<Option<(u64, Arc<Rules>)>>,
    own: Mutex<Own>,
    /// Whether it counts among its user's clients.
    is_seated: AtomicBool,
}

/// What the client has sent of what it alone may.
struct Own {
    messages: Meters<()>,
    bytes: Meters<()>,
}

impl ClientPass {
    pub(super) fn new(
        shared: Arc<Shared>,
        principal: Principal,
        client_id: &str,
        host: String,
    ) -> Self {
        let meters = || Meters::new(CLIENT_RATE_WINDOW, |()| ());
        ClientPass {
            mount: shared.mount_of(&principal),
            shared,
            principal,
            client_id: client_id.into(),
            host,
            shown: Shown::lasting(),
            until: None,
            rules: Mutex::default(),
            own: Mutex::new(Own {
                messages: meters(),
                bytes: meters(),
            }),
            is_seated: AtomicBool::new(false),
        }
    }

    /// Is good as long as what the client has shown is.
    pub(super) fn by(mut self, shown: Shown) -> Self {
        self.shown = shown;
        self
    }

    /// Ends with what the client has shown.
    pub(super) fn until(mut self, until: Option<UnixMillis>) -> Self {
        self.until = until;
        self
    }

    /// Takes one of the connections that the user may have, until the pass is dropped.
    pub(super) fn take_seat(&self) -> Result<(), No> {
        self.shared.seat(&self.principal)?;
        self.is_seated.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The rules, where ACLs are followed for this client.
    fn rules(&self) -> Option<Arc<Rules>> {
        let policy = self.shared.settings.policy.as_ref()?;
        if policy.super_users.contains(&self.principal) {
            return None;
        }
        // Before the ACLs are looked at: a change meanwhile must not be slept through.
        let revision = self.shared.access.revision();
        let mut known = self.rules.lock();
        if let Some((of, rules)) = &*known
            && *of == revision
        {
            return Some(Arc::clone(rules));
        }
        let whose = Whose {
            principal: &self.principal,
            client_id: &self.client_id,
            host: &self.host,
        };
        let rules = Arc::new(Rules::of(&self.shared.access.snapshot(), policy, whose));
        *known = Some((revision, Arc::clone(&rules)));
        Some(rules)
    }

    /// Whether a topic, or all of a filter, is kept from the client because it belongs to a tenant:
    /// what is another one's, and the server's figures, which tell of all tenants. With a mount point,
    /// whatever is not below it.
    fn is_foreign(&self, topic: &str) -> bool {
        let mount = self.mount.as_ref();
        if mount.is_some_and(|mount| mount.outside(topic).is_none()) {
            return true;
        }
        let Shared {
            access, settings, ..
        } = &*self.shared;
        if !access.has_tenants() {
            return false;
        }
        let policy = settings.policy.as_ref();
        if policy.is_some_and(|policy| policy.super_users.contains(&self.principal)) {
            return false;
        }
        let (snapshot, kind) = (access.snapshot(), ResourceType::MqttTopic);
        snapshot.tenant_of(policy, &self.principal).is_some()
            && (topic.starts_with("$SYS")
                || snapshot.is_foreign(&self.principal, Operation::Read, kind, topic))
    }

    fn judge(
        &self,
        what: Refused,
        topic: &str,
        may: impl FnOnce(&Rules) -> bool,
    ) -> Result<(), ReasonCode> {
        let is_foreign = self.is_foreign(topic);
        if !is_foreign && self.rules().is_none_or(|rules| may(&rules)) {
            return Ok(());
        }
        if is_foreign {
            self.note_foreign(topic, "an MQTT topic that is not its tenant's");
        }
        Err(self.refuse(what, topic, is_foreign))
    }

    fn refuse(&self, what: Refused, topic: &str, is_foreign: bool) -> ReasonCode {
        let code = ReasonCode::NotAuthorized;
        self.shared.refusals.note(Refusal {
            at_ms: self.shared.clock.now().0,
            client_id: self.client_id.to_string(),
            user: self.principal.name().to_owned(),
            host: self.host.clone(),
            what,
            topic: topic.to_owned(),
            code: code.byte(),
            reason: match is_foreign {
                true => "the topic is not of the client's tenant",
                false => "an ACL on MQTT topics has to allow it",
            },
        });
        code
    }
}

impl Pass for ClientPass {
    fn may_publish(&self, topic: &str, _qos: Qos, _retain: bool) -> Result<(), ReasonCode> {
        self.judge(Refused::Publish, topic, |rules| rules.may_publish(topic))
    }

    fn may_subscribe(&self, filter: &TopicFilter, qos: Qos) -> Result<Qos, ReasonCode> {
        let filter = filter.as_str();
        self.judge(Refused::Subscribe, filter, |rules| {
            rules.may_subscribe(filter)
        })
        .map(|()| qos)
    }

    fn may_receive(&self, topic: &str) -> bool {
        !self.is_foreign(topic) && self.rules().is_none_or(|rules| rules.may_receive(topic))
    }

    fn may_still_receive(&self, topic: &str) -> bool {
        let may = self.may_receive(topic);
        if !may {
            self.refuse(Refused::Receive, topic, self.is_foreign(topic));
        }
        may
    }

    fn ends(&self) -> Option<UnixMillis> {
        self.until
    }

    fn is_void(&self) -> bool {
        let users = self.shared.access.snapshot();
        !self.shown.holds(&users, &self.principal)
    }

    fn mount(&self) -> Option<&Mount> {
        self.mount.as_ref()
    }

    fn user(&self) -> Option<&str> {
        let is_known = self.principal != Principal::anonymous();
        is_known.then(|| self.principal.name())
    }

    fn may_say(&self, name: &str, value: &str) -> Result<(), ReasonCode> {
        let access = &self.shared.access;
        if !access.has_tenants() || !TENANT_HEADERS.contains(&name) {
            return Ok(());
        }
        let snapshot = access.snapshot();
        let policy = self.shared.settings.policy.as_ref();
        match snapshot.tenant_of(policy, &self.principal) {
            Some(own) if own.name().as_str() != value => {
                self.note_foreign(value, "a message's user property names another tenant");
                Err(ReasonCode::NotAuthorized)
            }
            _ => Ok(()),
        }
    }

    fn charge(&self, now: UnixMillis, messages: u64, bytes: u64) -> Duration {
        let settings = &self.shared.settings;
        let mut wait = Duration::ZERO;
        if settings.client_message_rate > 0 || settings.client_byte_rate > 0 {
            let mut own = self.own.lock();
            let (message_rate, byte_rate) = (
                settings.client_message_rate as f64,
                settings.client_byte_rate as f64,
            );
            if message_rate > 0.0 {
                wait = own.messages.charge(now, (), message_rate, messages as f64);
            }
            if byte_rate > 0.0 {
                wait = wait.max(own.bytes.charge(now, (), byte_rate, bytes as f64));
            }
        }
        wait.max(self.charge_quota(now, bytes))
            .max(self.charge_tenant(now, messages, bytes))
    }
}

impl ClientPass {
    /// Keeps that the client was refused what is another tenant's than its own.
    fn note_foreign(&self, claimed: &str, what: &'static str) {
        if let Some((account, _)) = self.account() {
            account.refuse(TenantRefusal {
                at_ms: self.shared.clock.now().0,
                principal: self.principal.clone(),
                host: self.host.clone(),
                protocol: "mqtt",
                claimed: claimed.chars().take(CLAIMED_CHARS_MAX).collect(),
                what,
            });
        }
    }

    fn account(&self) -> Option<(Arc<TenantAccount>, TenantQuotas)> {
        let Shared {
            access, settings, ..
        } = &*self.shared;
        access.account_of(settings.policy.as_ref(), &self.principal)
    }

    /// What its tenant's quotas make the client wait.
    fn charge_tenant(&self, now: UnixMillis, messages: u64, bytes: u64) -> Duration {
        if !self.shared.access.has_tenants() {
            return Duration::ZERO;
        }
        let Some((account, quotas)) = self.account() else {
            return Duration::ZERO;
        };
        let wait = account.charge(now, &quotas, Spent::sent(bytes, messages));
        if !wait.is_zero() {
            account.note_held();
        }
        wait
    }

    /// What the user's quota makes the client wait.
    fn charge_quota(&self, now: UnixMillis, bytes: u64) -> Duration {
        let snapshot = self.shared.access.snapshot();
        if !snapshot.has_quotas() {
            return Duration::ZERO;
        }
        let bound = Bound::ProducerByteRate;
        let (user, client_id) = (self.principal.name(), &*self.client_id);
        let Some((sharing, rate)) = snapshot.bound_of_client(bound, user, client_id) else {
            return Duration::ZERO;
        };
        let sharer = Sharer {
            user: sharing.by_user.then(|| self.principal.clone()),
            client_id: sharing.by_client.then(|| Arc::clone(&self.client_id)),
        };
        let mut meters = self.shared.bytes.lock();
        meters.charge(now, sharer, rate, bytes as f64)
    }
}

impl Drop for ClientPass {
    fn drop(&mut self) {
        if self.is_seated.load(Ordering::Relaxed) {
            self.shared.unseat(&self.principal);
        }
    }
}

/// A tenant's name fits, and enough of anything else to be recognized.
const CLAIMED_CHARS_MAX: usize = 100;

// A client's window is short beside that of users, whose clients share one.
const _: () = assert!(CLIENT_RATE_WINDOW.as_millis() <= RATE_WINDOW.as_millis());
