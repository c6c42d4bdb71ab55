//! Groups of the cluster: as people see them, and what people do to them.
//!
//! What a group has committed is asked by a client of that group, which joins nothing and is gone
//! with the call; librdkafka asks partition by partition, so whoever wants to know of all offers
//! every partition of the cluster. Members of the newer protocol (KIP-848) are not told: librdkafka
//! describes groups in the older one's words.

use base::UnixMillis;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::groups::GroupInfo as Described;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::Cluster;
use super::calls::Context;
use super::error::About;
use super::{ledger, topics};
use crate::consumer::assigned;
use crate::error::StreamsError;
use crate::event_store::{CommittedOffset, GroupDetail, GroupInfo, GroupInstance, GroupMember};
use crate::groups::{CONSUMER_PROTOCOL_TYPE, GroupError};
use crate::offsets::GroupOffset;
use crate::topic::TopicName;

impl Cluster {
    /// All groups but those that are none of anybody's business.
    pub(super) async fn groups(&self) -> Result<Vec<GroupInfo>, StreamsError> {
        let listed = self.calls.blocking(About::Cluster, |asker, timeout| {
            let list = asker.fetch_group_list(None, timeout)?;
            let groups = list.groups().iter();
            Ok(groups
                .filter(|group| !ledger::is_ledger(group.name()))
                .map(info)
                .collect())
        });
        listed.await
    }

    /// One group; none when the cluster knows neither members nor offsets of it.
    pub(super) async fn group(&self, group: &str) -> Result<Option<GroupDetail>, StreamsError> {
        let name = group.to_owned();
        let described = self
            .calls
            .blocking(About::Group(group), move |asker, wait| {
                let list = asker.fetch_group_list(Some(&name), wait)?;
                Ok(list.groups().first().map(detail))
            });
        let mut detail = described.await?.unwrap_or_else(|| GroupDetail {
            group: group.to_owned(),
            kind: CLASSIC.to_owned(),
            state: EMPTY.to_owned(),
            protocol_type: String::new(),
            assignor: String::new(),
            members: Vec::new(),
            committed: Vec::new(),
        });
        let places = self.topics.places().await?;
        let offsets = self.committed(group, &places).await?;
        let committed = places.into_iter().zip(offsets);
        let committed = committed.filter_map(|((topic, partition), committed)| {
            Some(GroupOffset {
                topic,
                partition,
                committed: committed?,
            })
        });
        detail.committed = committed.collect();
        if detail.members.is_empty() && detail.committed.is_empty() {
            return Ok(None);
        }
        if detail.state == DEAD {
            EMPTY.clone_into(&mut detail.state);
        }
        Ok(Some(detail))
    }

    /// What a group has committed for these partitions, in their order.
    pub(super) async fn committed(
        &self,
        group: &str,
        places: &[(TopicName, i32)],
    ) -> Result<Vec<Option<CommittedOffset>>, StreamsError> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let places = places.to_vec();
        let found = self.as_of(group, move |asker, timeout| {
            topics::committed(asker, &places, timeout)
        });
        let found = found.await?.into_iter();
        Ok(found
            .map(|(_, committed)| {
                committed.map(|(offset, metadata)| CommittedOffset {
                    offset,
                    leader_epoch: -1,
                    metadata,
                    at: UnixMillis(-1),
                })
            })
            .collect())
    }

    /// Has a group without members go on from these offsets.
    pub(super) async fn set_group_offsets(
        &self,
        group: &str,
        offsets: Vec<(TopicName, i32, i64)>,
    ) -> Result<(), StreamsError> {
        let name = group.to_owned();
        let members = self
            .calls
            .blocking(About::Group(group), move |asker, wait| {
                let list = asker.fetch_group_list(Some(&name), wait)?;
                Ok(list
                    .groups()
                    .iter()
                    .any(|group| !group.members().is_empty()))
            });
        if members.await? {
            // The cluster would take it, and the members commit theirs over it.
            return Err(StreamsError::Group {
                group: group.to_owned(),
                reason: GroupError::NotEmpty,
            });
        }
        let committed = self.as_of(group, move |asker, _| {
            let mut list = TopicPartitionList::with_capacity(offsets.len());
            for (topic, partition, offset) in &offsets {
                let at = Offset::Offset(*offset);
                list.add_partition_offset(topic.wire_name(), *partition, at)?;
            }
            asker.commit(&list, CommitMode::Sync)
        });
        committed.await
    }

    /// Forgets a group without members.
    pub(super) async fn delete_group(&self, group: &str) -> Result<(), StreamsError> {
        let (admin, options) = (self.calls.admin(), self.calls.options());
        let deleted = admin.delete_groups(&[group], &options).await;
        let about = About::Group(group);
        for outcome in self.calls.judged(about, deleted)? {
            let outcome = outcome.map_err(|(_, code)| KafkaError::AdminOp(code));
            self.calls.judged(about, outcome)?;
        }
        Ok(())
    }

    /// Runs a call by a client of the group.
    async fn as_of<T: Send + 'static>(
        &self,
        group: &str,
        call: impl FnOnce(&BaseConsumer<Context>, std::time::Duration) -> Result<T, KafkaError>
        + Send
        + 'static,
    ) -> Result<T, StreamsError> {
        let mut client = self.calls.config().client();
        client.set("group.id", group);
        let context = Context {
            trouble: self.calls.trouble().clone(),
        };
        let called = self.calls.blocking(About::Group(group), move |_, timeout| {
            let asker = BaseConsumer::from_config_and_context(&client, context)?;
            call(&asker, timeout)
        });
        called.await
    }
}

fn info(group: &Described) -> GroupInfo {
    let members = group.members().iter().map(|member| GroupMember {
        member_id: member.id().to_owned(),
        client_id: member.client_id().to_owned(),
        host: host(member.client_host()),
    });
    GroupInfo {
        group: group.name().to_owned(),
        state: group.state().to_owned(),
        protocol_type: group.protocol_type().to_owned(),
        members: members.collect(),
    }
}

fn detail(group: &Described) -> GroupDetail {
    // Members of another kind than consumers share one knows not what.
    let shares_partitions = group.protocol_type() == CONSUMER_PROTOCOL_TYPE;
    let members = group.members().iter().map(|member| {
        let assignment = member.assignment().filter(|_| shares_partitions);
        let share = assigned(assignment.unwrap_or_default()).into_iter();
        let named = share.filter_map(|(topic, partitions)| {
            let topic: TopicName = topic.parse().ok()?;
            Some(partitions.into_iter().map(move |p| (topic.clone(), p)))
        });
        GroupInstance {
            assigned: named.flatten().collect(),
            member_id: member.id().to_owned(),
            instance_id: None,
            client_id: member.client_id().to_owned(),
            host: host(member.client_host()),
            is_classic: true,
        }
    });
    GroupDetail {
        group: group.name().to_owned(),
        kind: CLASSIC.to_owned(),
        state: group.state().to_owned(),
        protocol_type: group.protocol_type().to_owned(),
        assignor: group.protocol().to_owned(),
        members: members.collect(),
        committed: Vec::new(),
    }
}

fn host(told: &str) -> String {
    told.trim_start_matches('/').to_owned()
}

/// Kafka's word for a kind of group.
const CLASSIC: &str = "Classic";

/// Kafka's words for states: without members, and unknown or of the newer protocol.
const EMPTY: &str = "Empty";
const DEAD: &str = "Dead";
