//! The questions of [`Administration`], asked as somebody in particular.
//!
//! The ACLs that are told and changed here are those by which callers are judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{AccessError, Acl, AclFilter, Operation, ResourceType};
use async_trait::async_trait;

use super::AsCaller;
use crate::administration::{Administration, BrokerSetting, PartitionReplicas};
use crate::error::StreamsError;
use crate::topic::TopicName;
use crate::topic_config::ConfigChange;

#[async_trait]
impl Administration for AsCaller {
    async fn replicas(
        &self,
        topic: Option<&TopicName>,
    ) -> Result<BTreeMap<TopicName, Vec<PartitionReplicas>>, StreamsError> {
        if let Some(topic) = topic {
            self.caller.check_topic(Operation::Describe, topic)?;
        }
        let mut found = self.store.replicas(topic).await?;
        found.retain(|topic, _| self.caller.may_know(topic));
        Ok(found)
    }

    async fn expect_settled(&self) -> Result<(), StreamsError> {
        self.caller.check_cluster(Operation::Describe)?;
        self.store.expect_settled().await
    }

    async fn broker_settings(
        &self,
        broker: Option<i32>,
    ) -> Result<Vec<BrokerSetting>, StreamsError> {
        self.caller.check_cluster(Operation::DescribeConfigs)?;
        self.store.broker_settings(broker).await
    }

    async fn alter_broker(
        &self,
        broker: Option<i32>,
        changes: Vec<ConfigChange>,
        is_check: bool,
    ) -> Result<(), StreamsError> {
        self.caller.check_of_all(Operation::AlterConfigs)?;
        self.store.alter_broker(broker, changes, is_check).await
    }

    async fn topic_operations(
        &self,
        topic: &TopicName,
    ) -> Result<Option<Vec<Operation>>, StreamsError> {
        self.caller.check_topic(Operation::Describe, topic)?;
        let mut operations = self.store.topic_operations(topic).await?;
        if let Some(operations) = &mut operations {
            let (kind, name) = (ResourceType::Topic, topic.wire_name());
            operations.retain(|operation| self.caller.may(*operation, kind, name));
        }
        Ok(operations)
    }

    async fn acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        self.caller.check_of_all(Operation::Describe)?;
        let snapshot = self.caller.access.snapshot();
        Ok(snapshot.acls(&of_kafka(filter)).cloned().collect())
    }

    async fn add_acls(&self, acls: Vec<Acl>) -> Result<(), StreamsError> {
        self.caller.check_of_all(Operation::Alter)?;
        if acls.iter().any(|acl| !acl.resource_type.is_kafkas()) {
            return Err(StreamsError::Unsupported(
                "ACLs on MQTT topics by Kafka's ways (the management API keeps them)",
            ));
        }
        let access = Arc::clone(&self.caller.access);
        blocking(move || access.add_acls(acls)).await
    }

    async fn remove_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>, StreamsError> {
        self.caller.check_of_all(Operation::Alter)?;
        let (access, filter) = (Arc::clone(&self.caller.access), of_kafka(filter));
        let removed = blocking(move || access.remove_acls(&[filter])).await?;
        Ok(removed.into_iter().flatten().collect())
    }
}

/// Kafka neither sees nor removes ACLs on what it does not know.
fn of_kafka(filter: &AclFilter) -> AclFilter {
    AclFilter {
        only_kafkas: true,
        ..filter.clone()
    }
}

/// Does what waits for the disk where it holds nobody up.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AccessError> + Send + 'static,
) -> Result<T, StreamsError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(StreamsError::from),
        // The runtime is going down.
        Err(_) => Err(StreamsError::Closed),
    }
}
