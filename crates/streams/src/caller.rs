//! The event store as somebody in particular sees it: each call asks what its caller may do.
//!
//! The Kafka listener asks for itself, as its errors have their places in its answers. Everybody
//! else is given a store by [`as_caller`], which asks the same questions as the listener does for
//! the same thing.

mod administration;
mod tenancy;
mod writing;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use access::{
    Access, Asking, CLUSTER, IMPORTS_TOPIC, OfTopic, Operation, Policy, Principal, ResourceType,
    Shown, Snapshot,
};
use async_trait::async_trait;
use base::{TenantId, UnixMillis};

use self::writing::WriterAsCaller;
use crate::backup::{BackupHead, TopicBackup, TopicRestore};
use crate::cluster::RetentionChange;
use crate::error::StreamsError;
use crate::event_store::{
    ClusterInfo, CommittedOffset, Consumer, ConsumerConfig, EventStore, GroupDetail, GroupInfo,
    HeldSetting, Placed, ProduceBatch, SeekTo, TopicInfo, TopicSpec,
};
use crate::fenced::FencedWriter;
use crate::once::{ProduceOnce, StoredOnce};
use crate::record::ConsumedRecord;
use crate::tenants::Run;
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

/// Somebody who calls the store, and the rules that hold for them.
#[derive(Clone)]
pub struct Caller {
    access: Arc<Access>,
    policy: Arc<Policy>,
    principal: Principal,
    host: Arc<str>,
    is_service: bool,
    imports_for: Option<TenantId>,
    let_in: Option<Arc<LetIn>>,
}

/// What somebody has shown to be let in, and until when that is good.
struct LetIn {
    by: Shown,
    until: Option<UnixMillis>,
}

impl Caller {
    /// Somebody from `host`, who may do what super users, ACLs and policy allow.
    pub fn new(
        access: Arc<Access>,
        policy: Arc<Policy>,
        principal: Principal,
        host: impl Into<Arc<str>>,
    ) -> Self {
        Caller {
            access,
            policy,
            principal,
            host: host.into(),
            is_service: false,
            imports_for: None,
            let_in: None,
        }
    }

    /// The same caller, who was let in by what is good until then, if it ends.
    pub fn let_in_by(self, by: Shown, until: Option<UnixMillis>) -> Self {
        Caller {
            let_in: Some(Arc::new(LetIn { by, until })),
            ..self
        }
    }

    /// Whether what the caller has shown to be let in has ended, or was taken back: what goes on for
    /// longer than a call asks for it at each step.
    pub fn is_out(&self, now: UnixMillis) -> bool {
        self.let_in.as_deref().is_some_and(|LetIn { by, until }| {
            until.is_some_and(|until| until <= now)
                || !by.holds(&self.access.snapshot(), &self.principal)
        })
    }

    /// The same caller, who may have this done for the imports of a tenant and for nothing else.
    pub fn importing_for(&self, tenant: TenantId) -> Self {
        Caller {
            imports_for: Some(tenant),
            ..self.clone()
        }
    }

    /// A part of this process, `User:thalweg.NAME`. It may do everything but what an ACL denies it:
    /// whoever may give it work may do so by a right on the cluster.
    pub fn service(access: Arc<Access>, policy: Arc<Policy>, name: &str) -> Self {
        let principal = Principal::user(&format!("thalweg.{name}"));
        Caller {
            is_service: true,
            ..Caller::new(access, policy, principal, SERVICE_HOST)
        }
    }

    /// Who it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The address that it calls from.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The tenant that it belongs to, kept or not, see [`Snapshot::tenant_of`].
    pub fn tenant(&self) -> Option<TenantId> {
        if !self.access.has_tenants() {
            return None;
        }
        let snapshot = self.access.snapshot();
        let of = snapshot.tenant_of(Some(&self.policy), &self.principal)?;
        Some(of.name().clone())
    }

    /// The tenant that this is done for: the one whose imports alone the caller may do, or else its own.
    pub fn works_for(&self) -> Option<TenantId> {
        self.imports_for.clone().or_else(|| self.tenant())
    }

    /// Whether the caller may do `operation` to the resource.
    pub fn may(&self, operation: Operation, kind: ResourceType, name: &str) -> bool {
        let snapshot = self.access.snapshot();
        let asking = self.asking();
        match self.is_service {
            true => !snapshot.denies(asking, operation, kind, name),
            false => snapshot.may(&self.policy, asking, operation, kind, name),
        }
    }

    /// Refuses what the caller may not do.
    ///
    /// # Errors
    /// [`StreamsError::NotAllowed`].
    pub fn check(
        &self,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> Result<(), StreamsError> {
        match self.may(operation, kind, name) {
            true => Ok(()),
            false => Err(self.not_allowed(operation, kind, name)),
        }
    }

    /// As [`Caller::check`], of a right by which something else is given than the resource: whose that is,
    /// is asked by who gives it.
    ///
    /// # Errors
    /// [`StreamsError::NotAllowed`].
    pub fn check_right(
        &self,
        operation: Operation,
        kind: ResourceType,
        name: &str,
    ) -> Result<(), StreamsError> {
        let snapshot = self.access.snapshot();
        let asking = self.asking();
        let may = match self.is_service {
            true => !snapshot.denies(asking, operation, kind, name),
            false => snapshot.permits(&self.policy, asking, operation, kind, name),
        };
        match may {
            true => Ok(()),
            false => Err(self.not_allowed(operation, kind, name)),
        }
    }

    /// Refuses work that a part of this process is to do for the caller, and that writes to `topic`.
    /// Who belongs to a tenant has to be allowed to write there itself; of others, who may give work
    /// by a right on the cluster, what an ACL denies them is refused. Who may do a tenant's imports
    /// alone may have them write to the topics that are by their names that tenant's, and to others to
    /// which it may write itself.
    ///
    /// # Errors
    /// [`StreamsError::NotAllowed`].
    pub fn check_work(&self, topic: &TopicName, is_there: bool) -> Result<(), StreamsError> {
        let (write, kind, name) = (Operation::Write, ResourceType::Topic, topic.wire_name());
        let gives_all_work = match &self.imports_for {
            Some(tenant) => self.is_own_topic(tenant, name),
            None => self.tenant().is_none(),
        };
        if !gives_all_work {
            self.check_topic(write, topic)?;
            return match is_there {
                true => Ok(()),
                false => self.check_create(topic),
            };
        }
        let snapshot = self.access.snapshot();
        let is_denied = snapshot.denies(self.asking(), write, kind, name);
        match is_denied && !self.may(write, kind, name) {
            true => Err(self.not_allowed(write, kind, name)),
            false => Ok(()),
        }
    }

    /// Whether a topic is by its name a tenant's, kept or not, that the caller is not kept off.
    fn is_own_topic(&self, tenant: &TenantId, topic: &str) -> bool {
        if self.is_foreign(Operation::Write, ResourceType::Topic, topic) {
            return false;
        }
        let snapshot = self.access.snapshot();
        match snapshot.owner_of_topic(topic) {
            Some(OfTopic::Tenant(owner)) => owner == tenant,
            Some(OfTopic::Shared(_)) => false,
            None => topic.strip_prefix(IMPORTS_TOPIC) == Some(tenant.as_str()),
        }
    }

    fn not_allowed(&self, operation: Operation, kind: ResourceType, name: &str) -> StreamsError {
        StreamsError::NotAllowed {
            principal: self.principal.clone(),
            operation,
            kind,
            name: name.to_owned(),
        }
    }

    fn asking(&self) -> Asking<'_> {
        Asking {
            principal: &self.principal,
            host: &self.host,
        }
    }

    fn check_topic(&self, operation: Operation, topic: &TopicName) -> Result<(), StreamsError> {
        let name = topic.wire_name();
        let checked = self.check(operation, ResourceType::Topic, name);
        if checked.is_err() {
            self.note_foreign(operation, ResourceType::Topic, name);
        }
        checked
    }

    fn check_group(&self, operation: Operation, group: &str) -> Result<(), StreamsError> {
        let checked = self.check(operation, ResourceType::Group, group);
        if checked.is_err() {
            self.note_foreign(operation, ResourceType::Group, group);
        }
        checked
    }

    fn may_cluster(&self, operation: Operation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER)
    }

    fn check_cluster(&self, operation: Operation) -> Result<(), StreamsError> {
        self.check(operation, ResourceType::Cluster, CLUSTER)
    }

    /// As [`Caller::check_cluster`], of what is all tenants' together: it is none of a member's.
    fn check_of_all(&self, operation: Operation) -> Result<(), StreamsError> {
        self.check_cluster(operation)?;
        match self.is_held_to_tenant() {
            true => {
                self.note_refused(ResourceType::Cluster, CLUSTER);
                Err(self.not_allowed(operation, ResourceType::Cluster, CLUSTER))
            }
            false => Ok(()),
        }
    }

    fn may_know(&self, topic: &TopicName) -> bool {
        let name = topic.wire_name();
        self.may(Operation::Describe, ResourceType::Topic, name)
    }

    fn check_create(&self, topic: &TopicName) -> Result<(), StreamsError> {
        let create = Operation::Create;
        let is_foreign = self.is_foreign(create, ResourceType::Topic, topic.wire_name());
        match !is_foreign && self.may_cluster(create) {
            true => Ok(()),
            false => self.check_topic(create, topic),
        }
    }

    fn check_write_somewhere(&self) -> Result<(), StreamsError> {
        let snapshot = self.access.snapshot();
        let topic = ResourceType::Topic;
        let writes = snapshot.may_some(&self.policy, self.asking(), Operation::Write, topic);
        match self.is_service || writes {
            true => Ok(()),
            false => self.check(Operation::IdempotentWrite, ResourceType::Cluster, CLUSTER),
        }
    }
}

/// The store as `caller` may use it.
pub fn as_caller(store: Arc<dyn EventStore>, caller: Caller) -> Arc<dyn EventStore> {
    Arc::new(AsCaller { store, caller })
}

struct AsCaller {
    store: Arc<dyn EventStore>,
    caller: Caller,
}

#[async_trait]
impl EventStore for AsCaller {
    async fn cluster(&self) -> Result<ClusterInfo, StreamsError> {
        self.store.cluster().await
    }

    async fn create_topic(&self, spec: TopicSpec) -> Result<TopicInfo, StreamsError> {
        self.caller.check_create(&spec.name)?;
        self.store.create_topic(spec).await
    }

    async fn delete_topic(&self, topic: &TopicName) -> Result<(), StreamsError> {
        self.caller.check_topic(Operation::Delete, topic)?;
        self.store.delete_topic(topic).await
    }

    async fn topics(&self) -> Result<Vec<TopicInfo>, StreamsError> {
        let mut topics = self.store.topics().await?;
        topics.retain(|topic| self.caller.may_know(&topic.name));
        Ok(topics)
    }

    async fn topic_names(&self) -> Result<Vec<TopicName>, StreamsError> {
        let mut names = self.store.topic_names().await?;
        names.retain(|name| self.caller.may_know(name));
        Ok(names)
    }

    async fn topic(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.topic(topic).await
    }

    async fn topic_or_create(&self, topic: &TopicName) -> Result<TopicInfo, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        match self.store.topic(topic).await {
            Err(StreamsError::UnknownTopic(_)) => {
                self.caller.check_create(topic)?;
                self.store.topic_or_create(topic).await
            }
            found => found,
        }
    }

    async fn partitions(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.partitions(topic).await
    }

    async fn partitions_or_create(&self, topic: &TopicName) -> Result<i32, StreamsError> {
        match self.partitions(topic).await {
            Err(StreamsError::UnknownTopic(_)) => {
                self.caller.check_create(topic)?;
                self.store.partitions_or_create(topic).await
            }
            found => found,
        }
    }

    async fn topic_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        self.caller.check_topic(Operation::DescribeConfigs, topic)?;
        self.store.topic_settings(topic).await
    }

    async fn default_settings(&self, topic: &TopicName) -> Result<Vec<HeldSetting>, StreamsError> {
        self.caller.check_topic(Operation::DescribeConfigs, topic)?;
        self.store.default_settings(topic).await
    }

    async fn alter_topic(
        &self,
        topic: &TopicName,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        self.caller.check_topic(Operation::AlterConfigs, topic)?;
        self.store.alter_topic(topic, changes).await
    }

    async fn create_partitions(&self, topic: &TopicName, count: i32) -> Result<(), StreamsError> {
        self.caller.check_topic(Operation::Alter, topic)?;
        self.store.create_partitions(topic, count).await
    }

    async fn delete_records(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: Option<i64>,
    ) -> Result<i64, StreamsError> {
        self.caller.check_topic(Operation::Delete, topic)?;
        self.store.delete_records(topic, partition, offset).await
    }

    async fn produce(&self, batch: ProduceBatch) -> Result<Placed, StreamsError> {
        self.caller.check_topic(Operation::Write, &batch.topic)?;
        let admitted = self.caller.admit(std::slice::from_ref(&batch)).await?;
        let placed = self.store.produce(batch).await?;
        admitted.stored();
        Ok(placed)
    }

    async fn produce_once(&self, asked: ProduceOnce) -> Result<StoredOnce, StreamsError> {
        for batch in &asked.batches {
            self.caller.check_topic(Operation::Write, &batch.topic)?;
        }
        let admitted = self.caller.admit(&asked.batches).await?;
        let stored = self.store.produce_once(asked).await?;
        admitted.stored();
        Ok(stored)
    }

    async fn fenced_writer(&self, name: &str) -> Result<Box<dyn FencedWriter>, StreamsError> {
        let kind = ResourceType::TransactionalId;
        self.caller.check(Operation::Write, kind, name)?;
        Ok(Box::new(WriterAsCaller {
            writer: self.store.fenced_writer(name).await?,
            caller: self.caller.clone(),
        }))
    }

    fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    async fn producer_id(&self) -> Result<i64, StreamsError> {
        self.caller.check_write_somewhere()?;
        self.store.producer_id().await
    }

    async fn consumer(&self, config: ConsumerConfig) -> Result<Box<dyn Consumer>, StreamsError> {
        let group = config.group.clone();
        if let Some(group) = &group {
            self.caller.check_group(Operation::Read, group)?;
        }
        Ok(Box::new(ConsumerAsCaller {
            consumer: self.store.consumer(config).await?,
            caller: self.caller.clone(),
            group,
        }))
    }

    async fn committed(
        &self,
        group: &str,
        partitions: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        self.caller.check_group(Operation::Describe, group)?;
        for (topic, _) in partitions {
            self.caller.check_topic(Operation::Describe, topic)?;
        }
        self.store.committed(group, partitions).await
    }

    async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        let mut groups = self.store.groups().await?;
        let (caller, all) = (&self.caller, self.caller.may_cluster(Operation::Describe));
        let (describe, kind) = (Operation::Describe, ResourceType::Group);
        groups.retain(|GroupInfo { group, .. }| {
            (all && !caller.is_foreign(describe, kind, group)) || caller.may(describe, kind, group)
        });
        Ok(groups)
    }

    async fn group(&self, group: &str) -> Result<Option<GroupDetail>, StreamsError> {
        self.caller.check_group(Operation::Describe, group)?;
        let mut found = self.store.group(group).await?;
        if let Some(detail) = &mut found {
            let may_know = |topic: &TopicName| self.caller.may_know(topic);
            detail.committed.retain(|offset| may_know(&offset.topic));
            for member in &mut detail.members {
                member.assigned.retain(|(topic, _)| may_know(topic));
            }
        }
        Ok(found)
    }

    async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        self.caller.check_group(Operation::Read, group)?;
        for (topic, ..) in &offsets {
            self.caller.check_topic(Operation::Read, topic)?;
        }
        self.store.set_group_offsets(group, offsets).await
    }

    async fn delete_group(&self, group: &str) -> Result<(), StreamsError> {
        self.caller.check_group(Operation::Delete, group)?;
        self.store.delete_group(group).await
    }

    async fn group_settings(&self, group: &str) -> Result<Vec<HeldSetting>, StreamsError> {
        self.caller.check_group(Operation::DescribeConfigs, group)?;
        self.store.group_settings(group).await
    }

    async fn alter_group(
        &self,
        group: &str,
        changes: Vec<ConfigChange>,
    ) -> Result<(), StreamsError> {
        self.caller.check_group(Operation::AlterConfigs, group)?;
        self.store.alter_group(group, changes).await
    }

    async fn back_up(
        &self,
        topic: &TopicName,
        with_groups: bool,
    ) -> Result<Box<dyn TopicBackup>, StreamsError> {
        self.caller.check_topic(Operation::Read, topic)?;
        self.caller.check_topic(Operation::DescribeConfigs, topic)?;
        if self.caller.only_of(topic).is_some() {
            // A backup has everybody's records.
            let (kind, name) = (ResourceType::Topic, topic.wire_name());
            return Err(self.caller.not_allowed(Operation::Read, kind, name));
        }
        if with_groups {
            // It tells of every group that reads the topic.
            self.caller.check_of_all(Operation::Describe)?;
        }
        self.store.back_up(topic, with_groups).await
    }

    async fn restore(
        &self,
        head: BackupHead,
        topic: TopicName,
    ) -> Result<Box<dyn TopicRestore>, StreamsError> {
        self.caller.check_create(&topic)?;
        self.caller.check_topic(Operation::Write, &topic)?;
        // It may bring groups' offsets along, of whatever group.
        self.caller.check_of_all(Operation::Alter)?;
        self.store.restore(head, topic).await
    }

    async fn offset_for_time(
        &self,
        topic: &TopicName,
        partition: i32,
        at: UnixMillis,
    ) -> Result<Option<i64>, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.offset_for_time(topic, partition, at).await
    }

    fn tenant_wait(&self, tenant: &TenantId) -> Result<Duration, StreamsError> {
        let wait = self.caller.work_wait(tenant)?;
        Ok(wait.max(self.store.tenant_wait(tenant)?))
    }

    async fn tenant_runs(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
    ) -> Result<Option<Vec<Vec<Run>>>, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.tenant_runs(topic, tenant).await
    }

    async fn tenant_bytes(
        &self,
        topic: &TopicName,
    ) -> Result<Option<BTreeMap<TenantId, u64>>, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.tenant_bytes(topic).await
    }

    async fn count_tenant(
        &self,
        topic: &TopicName,
        partition: i32,
        tenant: &TenantId,
        within: Range<i64>,
    ) -> Result<(u64, Option<UnixMillis>), StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        let store = &self.store;
        store.count_tenant(topic, partition, tenant, within).await
    }

    async fn purge_tenant(
        &self,
        topic: &TopicName,
        tenant: &TenantId,
        before: Option<UnixMillis>,
    ) -> Result<Option<u64>, StreamsError> {
        self.caller.check_topic(Operation::Delete, topic)?;
        self.store.purge_tenant(topic, tenant, before).await
    }

    async fn follow_retention(
        &self,
        snapshot: &Snapshot,
        tenant: &TenantId,
        change: RetentionChange,
    ) -> Result<(), StreamsError> {
        self.caller.check_cluster(Operation::AlterConfigs)?;
        self.store.follow_retention(snapshot, tenant, change).await
    }

    async fn time_at(
        &self,
        topic: &TopicName,
        partition: i32,
        offset: i64,
    ) -> Result<Option<UnixMillis>, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        self.store.time_at(topic, partition, offset).await
    }
}

struct ConsumerAsCaller {
    consumer: Box<dyn Consumer>,
    caller: Caller,
    group: Option<String>,
}

impl ConsumerAsCaller {
    /// Rights are asked for again with every call: they may have been taken since.
    fn check_read<'t>(
        &self,
        topics: impl IntoIterator<Item = &'t TopicName>,
    ) -> Result<(), StreamsError> {
        if let Some(group) = &self.group {
            self.caller.check_group(Operation::Read, group)?;
        }
        let mut topics = topics.into_iter();
        topics.try_for_each(|topic| self.caller.check_topic(Operation::Read, topic))
    }
}

#[async_trait]
impl Consumer for ConsumerAsCaller {
    async fn subscribe(&mut self, topics: Vec<TopicName>) -> Result<(), StreamsError> {
        self.check_read(&topics)?;
        self.consumer.subscribe(topics).await
    }

    async fn assign(&mut self, partitions: Vec<(TopicName, i32)>) -> Result<(), StreamsError> {
        self.check_read(partitions.iter().map(|(topic, _)| topic))?;
        self.consumer.assign(partitions).await
    }

    fn assignment(&self) -> Vec<(TopicName, i32)> {
        self.consumer.assignment()
    }

    async fn poll(
        &mut self,
        max_wait: Duration,
        max_bytes: usize,
    ) -> Result<Vec<ConsumedRecord>, StreamsError> {
        let held = self.consumer.assignment();
        self.check_read(held.iter().map(|(topic, _)| topic))?;
        self.caller.hold_reads().await?;
        let mut records = self.consumer.poll(max_wait, max_bytes).await?;
        self.caller.leave_out_others(&mut records);
        self.caller.charge_reads(&records);
        Ok(records)
    }

    async fn commit(
        &mut self,
        offsets: Option<Vec<(TopicName, i32, i64, String)>>,
    ) -> Result<Vec<(TopicName, i32, i64)>, StreamsError> {
        let named = offsets.iter().flatten().map(|(topic, ..)| topic);
        self.check_read(named)?;
        self.consumer.commit(offsets).await
    }

    fn position(&self, topic: &TopicName, partition: i32) -> Option<i64> {
        self.consumer.position(topic, partition)
    }

    fn is_at_end(&self, topic: &TopicName, partition: i32) -> bool {
        self.consumer.is_at_end(topic, partition)
    }

    async fn seek(
        &mut self,
        topic: &TopicName,
        partition: i32,
        to: SeekTo,
    ) -> Result<(), StreamsError> {
        self.consumer.seek(topic, partition, to).await
    }

    async fn tend(&mut self) -> Result<(), StreamsError> {
        self.consumer.tend().await
    }

    async fn close(self: Box<Self>) -> Result<(), StreamsError> {
        self.consumer.close().await
    }
}

/// Where parts of this process call from, as ACLs write it.
const SERVICE_HOST: &str = "127.0.0.1";
