//! Who a connection's client is, and what it may do.
//!
//! A listener's [`Security`] says what is asked; the [`Session`] of a connection holds what was
//! answered. Each API asks [`Call::may`] for what it is about to do, in Kafka's model: a topic,
//! group, transactional id or the cluster, and an operation on it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use access::{
    Access, AccessError, Asking, CLUSTER, Login, Mechanism, Operation, Policy, Principal,
    ResourceType, Snapshot, Tls,
};
use base::TenantId;
use kafka_protocol::ResponseError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Context;
use super::reply::{Call, Ending};
use super::throttle::Usage;
use super::topics::Refusal;
use crate::administration::TOPIC_OPERATIONS;
use crate::groups::Sight;
use crate::{StreamsConfig, TopicName};

/// What a listener asks of its clients; nothing by default.
#[derive(Default)]
pub struct Security {
    /// Users, ACLs and quotas; without them they can be neither used nor changed.
    pub access: Option<Arc<Access>>,
    /// TLS, when the listener speaks it.
    pub tls: Option<Arc<Tls>>,
    /// Logging in, when clients have to.
    pub sasl: Option<SaslSettings>,
    /// What holds beside the ACLs; everybody may do everything when absent.
    pub authorization: Option<Policy>,
    /// Where clients are told to connect, a host or host and port; the address that they came to
    /// when absent. Each listener has its own, as each is reached by another way.
    pub advertised: Option<String>,
    /// What clients have used of their quotas, over all listeners that share it.
    pub usage: Arc<Usage>,
    /// Whether it is the second listener, for this machine; its metrics go by that name.
    pub is_local: bool,
}

/// How clients log in.
#[derive(Clone, Debug)]
pub struct SaslSettings {
    /// The mechanisms that may be used.
    pub mechanisms: Vec<Mechanism>,
    /// How long a login holds before the client has to log in again; for ever when absent.
    pub lifetime: Option<Duration>,
}

impl Security {
    /// What the configuration asks of the listener's clients.
    ///
    /// # Errors
    /// [`AccessError::Tls`] for certificates that cannot be used.
    pub fn of(config: &StreamsConfig, access: Arc<Access>) -> Result<Self, AccessError> {
        let tls = match config.tls.is_on() {
            true => Some(Arc::new(Tls::open(config.tls.clone(), &[])?)),
            false => None,
        };
        let lifetime = config.sasl.session_lifetime.0;
        let sasl = SaslSettings {
            mechanisms: config.sasl.mechanisms.clone(),
            lifetime: Some(lifetime).filter(|lifetime| !lifetime.is_zero()),
        };
        Ok(Security {
            access: Some(access),
            tls,
            sasl: Some(sasl).filter(|sasl| !sasl.mechanisms.is_empty()),
            authorization: config.access_policy(),
            advertised: config.advertised.clone(),
            usage: Arc::default(),
            is_local: false,
        })
    }

    /// The same for a listener that asks nobody who they are: its callers are `User:ANONYMOUS`,
    /// and held to the ACLs.
    pub fn local(&self, config: &StreamsConfig) -> Self {
        Security {
            access: self.access.clone(),
            tls: None,
            sasl: None,
            authorization: self.authorization.clone(),
            advertised: config.local_advertised.clone(),
            usage: Arc::clone(&self.usage),
            is_local: true,
        }
    }
}

/// What is known of a connection's client.
pub(super) struct Session {
    stage: Mutex<Stage>,
    principal: OnceLock<Principal>,
}

/// How far the login is.
pub(super) enum Stage {
    /// The client is served, until then when its login expires.
    Open { until: Option<Instant> },
    /// The client has to log in.
    Closed,
    /// The client has chosen a mechanism and speaks it.
    Speaking {
        login: Login,
        /// Its messages come without Kafka's headers, as before version 1 of the handshake.
        is_raw: bool,
    },
    /// The login failed, or a step of it is being judged.
    Shut,
}

impl Session {
    pub(super) fn new(security: &Security) -> Self {
        let stage = match security.sasl {
            None => Stage::Open { until: None },
            Some(_) => Stage::Closed,
        };
        Session {
            stage: Mutex::new(stage),
            principal: OnceLock::new(),
        }
    }

    /// Notes who a client is whose certificate was verified. A login, where one is asked, decides
    /// alone.
    pub(super) fn note_certificate(&self, principal: Option<Principal>) {
        if let (Some(principal), true) = (principal, self.is_open()) {
            self.principal.get_or_init(|| principal);
        }
    }

    /// Whether the client is served.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.stage.lock(), Stage::Open { .. })
    }

    /// Lets a request other than those of the login pass.
    pub(super) fn admit(&self, api: &'static str) -> Result<(), Ending> {
        match &*self.stage.lock() {
            Stage::Open { until: None } => Ok(()),
            Stage::Open { until: Some(until) } if Instant::now() < *until => Ok(()),
            Stage::Open { .. } => Err(Ending::LoginExpired),
            _ => Err(Ending::NotLoggedIn(api)),
        }
    }

    /// Changes the stage; answers the one before.
    pub(super) fn enter(&self, stage: Stage) -> Stage {
        std::mem::replace(&mut *self.stage.lock(), stage)
    }

    /// The login, when its messages come without headers.
    pub(super) fn raw_login(&self) -> Option<Login> {
        let mut stage = self.stage.lock();
        if !matches!(*stage, Stage::Speaking { is_raw: true, .. }) {
            return None;
        }
        match std::mem::replace(&mut *stage, Stage::Shut) {
            Stage::Speaking { login, .. } => Some(login),
            _ => None,
        }
    }

    /// Opens the session for `principal`; false when the session was somebody else's before.
    pub(super) fn open(&self, principal: Principal, until: Option<Instant>) -> bool {
        let is_same = *self.principal.get_or_init(|| principal.clone()) == principal;
        if is_same {
            self.enter(Stage::Open { until });
        }
        is_same
    }

    /// Who the client is.
    pub(super) fn principal(&self) -> &Principal {
        static ANONYMOUS: OnceLock<Principal> = OnceLock::new();
        let anonymous = || ANONYMOUS.get_or_init(Principal::anonymous);
        self.principal.get().unwrap_or_else(anonymous)
    }
}

impl Context {
    /// The client's address as ACLs write it.
    pub(super) fn host(&self) -> &str {
        self.client_host.trim_start_matches('/')
    }

    fn asked<T>(&self, free: T, ask: impl FnOnce(&Access, &Policy, Asking<'_>) -> T) -> T {
        let security = &self.shared.security;
        let (Some(policy), Some(access)) = (&security.authorization, &security.access) else {
            return free;
        };
        let asking = Asking {
            principal: self.session.principal(),
            host: self.host(),
        };
        ask(access, policy, asking)
    }
}

impl Call {
    /// Whether callers are judged at all.
    pub(super) fn is_judged(&self) -> bool {
        self.context.shared.security.authorization.is_some() || self.context.has_tenants()
    }

    /// What callers are judged by; none when they are not.
    pub(super) fn rules(&self) -> Option<Arc<Snapshot>> {
        let security = &self.context.shared.security;
        let access = security.access.as_ref();
        access
            .filter(|_| self.is_judged())
            .map(|access| access.snapshot())
    }

    /// Whether the caller may do `operation` to a group, a transactional id or a user.
    pub(super) fn may(&self, operation: Operation, kind: ResourceType, name: &str) -> bool {
        self.expect_told(operation, kind);
        if self.context.shared.security.authorization.is_none() {
            return !self.context.is_foreign(operation, kind, name);
        }
        self.context.asked(true, |access, policy, asking| {
            access.snapshot().may(policy, asking, operation, kind, name)
        })
    }

    /// The tenant whose records alone the caller is shown of a topic.
    pub(super) fn only_of(&self, topic: &TopicName) -> Option<TenantId> {
        let context = &self.context;
        let security = &context.shared.security;
        let access = security
            .access
            .as_ref()
            .filter(|access| access.has_tenants())?;
        let none = Policy::default();
        let policy = security.authorization.as_ref().unwrap_or(&none);
        let snapshot = access.snapshot();
        snapshot.only_of(policy, context.session.principal(), topic.wire_name())
    }

    /// Whether the caller may do `operation` to a topic.
    pub(super) fn may_topic(&self, operation: Operation, name: &TopicName) -> bool {
        self.may(operation, ResourceType::Topic, name.wire_name())
    }

    /// As [`Call::may_topic`], by the name that the client wrote.
    pub(super) fn may_topic_named(&self, operation: Operation, name: &str) -> bool {
        if !self.is_judged() {
            return true;
        }
        match name.parse::<TopicName>() {
            Ok(name) => self.may_topic(operation, &name),
            Err(_) => self.may(operation, ResourceType::Topic, name),
        }
    }

    /// Whether the caller may do `operation` to a group that it names.
    pub(super) fn may_group(&self, operation: Operation, name: &str) -> bool {
        self.may_named(operation, ResourceType::Group, name)
    }

    /// Whether the caller may do `operation` to a transactional id that it names.
    pub(super) fn may_transact(&self, operation: Operation, id: &str) -> bool {
        self.may_named(operation, ResourceType::TransactionalId, id)
    }

    /// As [`Call::may`], and keeps a refusal of what is another tenant's.
    fn may_named(&self, operation: Operation, kind: ResourceType, name: &str) -> bool {
        let may = self.may(operation, kind, name);
        if !may {
            self.context.note_foreign(operation, kind, name);
        }
        may
    }

    /// Whether the caller may do `operation` to the cluster.
    pub(super) fn may_cluster(&self, operation: Operation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER)
    }

    /// As [`Call::may_cluster`], of what is all tenants' together, such as users and ACLs: it is none
    /// of a member's.
    pub(super) fn may_of_all(&self, operation: Operation) -> bool {
        if !self.may_cluster(operation) {
            return false;
        }
        let is_held = self.context.is_held_to_tenant();
        if is_held {
            self.context.note_refused(ResourceType::Cluster, CLUSTER);
        }
        !is_held
    }

    /// Whether the caller may create a topic.
    pub(super) fn may_create(&self, name: &TopicName) -> bool {
        let (create, kind) = (Operation::Create, ResourceType::Topic);
        let is_foreign = self.context.is_foreign(create, kind, name.wire_name());
        !is_foreign && self.may_cluster(create) || self.may_topic(create, name)
    }

    /// As [`Call::may_create`], by the name that the client wrote.
    pub(super) fn may_create_named(&self, name: &str) -> bool {
        match name.parse::<TopicName>() {
            Ok(name) => self.may_create(&name),
            Err(_) => {
                let create = Operation::Create;
                self.may_cluster(create) || self.may(create, ResourceType::Topic, name)
            }
        }
    }

    /// Whether the caller may do `operation` to some topic, whatever its name.
    pub(super) fn may_some_topic(&self, operation: Operation) -> bool {
        self.expect_told(operation, ResourceType::Topic);
        self.context.asked(true, |access, policy, asking| {
            let topic = ResourceType::Topic;
            access.snapshot().may_some(policy, asking, operation, topic)
        })
    }

    /// The operations that the caller may do to the cluster, as a set of bits; none for who may not
    /// even describe it.
    pub(super) fn allowed_to_cluster(&self) -> i32 {
        match self.may_cluster(Operation::Describe) {
            true => self.allowed(ResourceType::Cluster, CLUSTER),
            false => 0,
        }
    }

    /// The topics that the caller may know of, now and after every change of the ACLs.
    pub(super) fn sight(&self) -> Sight {
        self.expect_told(Operation::Describe, ResourceType::Topic);
        let security = Arc::clone(&self.context.shared.security);
        let access = security.access.as_ref().filter(|_| self.is_judged());
        let Some(access) = access else {
            return Sight::default();
        };
        let (revision, access) = (access.revision(), Arc::clone(access));
        let principal = self.context.session.principal().clone();
        let host = self.context.host().to_owned();
        Sight::new(revision, move |name| {
            let asking = Asking {
                principal: &principal,
                host: &host,
            };
            let (operation, topic) = (Operation::Describe, ResourceType::Topic);
            let snapshot = access.snapshot();
            match &security.authorization {
                Some(policy) => snapshot.may(policy, asking, operation, topic, name),
                None => !snapshot.is_foreign(&principal, operation, topic, name),
            }
        })
    }

    /// What is asked must stand in the table of APIs, where people and tests look for it.
    fn expect_told(&self, operation: Operation, kind: ResourceType) {
        debug_assert!(
            self.asks.names(operation, kind),
            "the table of APIs does not say that {operation} on {kind} is asked"
        );
    }

    /// The operations that the caller may do to a resource, as a set of bits.
    pub(super) fn allowed(&self, kind: ResourceType, name: &str) -> i32 {
        let among = operations_of(kind);
        let all = among.iter().fold(0, |bits, each| bits | each.bit());
        self.context.asked(all, |access, policy, asking| {
            access
                .snapshot()
                .allowed_bits(policy, asking, among, kind, name)
        })
    }
}

/// The operations that a kind of resource knows.
fn operations_of(kind: ResourceType) -> &'static [Operation] {
    use Operation::*;
    match kind {
        ResourceType::Topic => TOPIC_OPERATIONS,
        ResourceType::Group => &[Read, Delete, Describe, DescribeConfigs, AlterConfigs],
        ResourceType::Cluster => &[
            Create,
            Alter,
            Describe,
            ClusterAction,
            DescribeConfigs,
            AlterConfigs,
            IdempotentWrite,
        ],
        ResourceType::TransactionalId => &[Write, Describe, TwoPhaseCommit],
        ResourceType::DelegationToken => &[Describe],
        ResourceType::User => &[CreateTokens, DescribeTokens],
        // Not of this protocol.
        ResourceType::MqttTopic => &[],
    }
}

/// The users and ACLs of the listener.
pub(super) fn access_of(call: &Call) -> Option<Arc<Access>> {
    call.context.shared.security.access.clone()
}

/// Does what waits for the disk where it holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(Refusal::of(
            ResponseError::UnknownServerError,
            "it broke off",
        ))
    })
}
