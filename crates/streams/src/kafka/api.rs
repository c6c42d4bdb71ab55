//! The one table of the APIs served: it dispatches requests and answers ApiVersions.

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use std::sync::Arc;

use super::guard::{self, Field};
use super::reply::{Call, Ending, Reply};
use super::{
    Context, acls, cluster, consumer_groups, fetch, group_admin, groups, metadata, offsets,
    produce, sasl, topics, transaction_admin, transactions, users, versions,
};

/// One API.
pub(super) struct Api {
    /// Its name in Kafka's protocol guide, also the metrics' label.
    pub(super) name: &'static str,
    key: i16,
    /// The lowest version told to clients.
    told_from: i16,
    /// The lowest version served.
    from: i16,
    /// The highest version told and served.
    to: i16,
    /// The first version with compact lengths and tagged fields.
    flexible_from: i16,
    shape: &'static [Field],
    begin: fn(Call) -> Result<Reply, Ending>,
}

/// Begins the request in `frame`: what it changes has changed on return.
pub(super) fn begin(context: &Arc<Context>, frame: Bytes) -> Result<Reply, Ending> {
    if let Some(login) = context.session.raw_login() {
        return sasl::raw_token(context, login, frame);
    }
    let (header, mut head_bytes) = guard::read_header(&frame)?;
    let found = APIS
        .iter()
        .enumerate()
        .find(|(_, api)| api.key == header.key);
    let Some((index, api)) = found else {
        return Err(Ending::UnknownApi {
            key: header.key,
            version: header.version,
        });
    };
    context.shared.telemetry.count_request(index);
    if !BEFORE_LOGIN.contains(&api.key) {
        context.session.admit(api.name)?;
    }
    let mut call = Call {
        context: Arc::clone(context),
        version: header.version,
        correlation: header.correlation,
        // Apart from the frame, which it would keep in memory.
        client_id: StrBytes::from_string(header.client_id.to_owned()),
        body: Bytes::new(),
    };
    if !(api.from..=api.to).contains(&header.version) {
        if api.key == API_VERSIONS_KEY {
            return answer_unknown_version(&call);
        }
        return Err(Ending::UnknownApi {
            key: header.key,
            version: header.version,
        });
    }
    let is_flexible = header.version >= api.flexible_from;
    if is_flexible {
        head_bytes += guard::header_tags(&frame[head_bytes..])?;
    }
    guard::check(api.shape, header.version, is_flexible, &frame[head_bytes..])?;
    call.body = frame.slice(head_bytes..);
    (api.begin)(call)
}

/// What ApiVersions tells: every API with its versions.
pub(super) fn told() -> Vec<ApiVersion> {
    APIS.iter().map(Api::told).collect()
}

/// A client that asks in a version from the future learns, in the oldest layout, which versions of
/// this very API it may ask in; it cannot know that before.
fn answer_unknown_version(call: &Call) -> Result<Reply, Ending> {
    let own = APIS
        .iter()
        .filter(|api| api.key == API_VERSIONS_KEY)
        .map(Api::told);
    let body = ApiVersionsResponse::default()
        .with_error_code(ResponseError::UnsupportedVersion.code())
        .with_api_keys(own.collect());
    call.answer_in(0, &body).map(Reply::Now)
}

const API_VERSIONS_KEY: i16 = 18;
const SASL_HANDSHAKE_KEY: i16 = 17;
const SASL_AUTHENTICATE_KEY: i16 = 36;

/// What is served to clients that have not logged in.
const BEFORE_LOGIN: [i16; 3] = [API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY];

/// Every API served, in the order of their keys.
///
/// Produce is told from version 0, though versions below 3 are not served: librdkafka before 2.1
/// would otherwise silently send everything uncompressed.
pub(super) const APIS: &[Api] = &[
    Api {
        name: "Produce",
        key: 0,
        told_from: 0,
        from: 3,
        to: 13,
        flexible_from: 9,
        shape: guard::PRODUCE,
        begin: produce::produce,
    },
    Api {
        name: "Fetch",
        key: 1,
        told_from: 4,
        from: 4,
        to: 18,
        flexible_from: 12,
        shape: guard::FETCH,
        begin: fetch::fetch,
    },
    Api {
        name: "ListOffsets",
        key: 2,
        told_from: 1,
        from: 1,
        to: 11,
        flexible_from: 6,
        shape: guard::LIST_OFFSETS,
        begin: metadata::list_offsets,
    },
    Api {
        name: "Metadata",
        key: 3,
        told_from: 0,
        from: 0,
        to: 13,
        flexible_from: 9,
        shape: guard::METADATA,
        begin: metadata::metadata,
    },
    Api {
        name: "OffsetCommit",
        key: 8,
        told_from: 2,
        from: 2,
        to: 10,
        flexible_from: 8,
        shape: guard::OFFSET_COMMIT,
        begin: offsets::offset_commit,
    },
    Api {
        name: "OffsetFetch",
        key: 9,
        told_from: 1,
        from: 1,
        to: 10,
        flexible_from: 6,
        shape: guard::OFFSET_FETCH,
        begin: offsets::offset_fetch,
    },
    Api {
        name: "FindCoordinator",
        key: 10,
        told_from: 0,
        from: 0,
        to: 6,
        flexible_from: 3,
        shape: guard::FIND_COORDINATOR,
        begin: groups::find_coordinator,
    },
    Api {
        name: "JoinGroup",
        key: 11,
        told_from: 0,
        from: 0,
        to: 9,
        flexible_from: 6,
        shape: guard::JOIN_GROUP,
        begin: groups::join_group,
    },
    Api {
        name: "Heartbeat",
        key: 12,
        told_from: 0,
        from: 0,
        to: 4,
        flexible_from: 4,
        shape: guard::HEARTBEAT,
        begin: groups::heartbeat,
    },
    Api {
        name: "LeaveGroup",
        key: 13,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 4,
        shape: guard::LEAVE_GROUP,
        begin: groups::leave_group,
    },
    Api {
        name: "SyncGroup",
        key: 14,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 4,
        shape: guard::SYNC_GROUP,
        begin: groups::sync_group,
    },
    Api {
        name: "DescribeGroups",
        key: 15,
        told_from: 0,
        from: 0,
        to: 6,
        flexible_from: 5,
        shape: guard::DESCRIBE_GROUPS,
        begin: group_admin::describe_groups,
    },
    Api {
        name: "ListGroups",
        key: 16,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::LIST_GROUPS,
        begin: group_admin::list_groups,
    },
    Api {
        name: "SaslHandshake",
        key: SASL_HANDSHAKE_KEY,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: i16::MAX,
        shape: guard::SASL_HANDSHAKE,
        begin: sasl::handshake,
    },
    Api {
        name: "ApiVersions",
        key: API_VERSIONS_KEY,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::API_VERSIONS,
        begin: versions::api_versions,
    },
    Api {
        name: "CreateTopics",
        key: 19,
        told_from: 2,
        from: 2,
        to: 7,
        flexible_from: 5,
        shape: guard::CREATE_TOPICS,
        begin: topics::create_topics,
    },
    Api {
        name: "DeleteTopics",
        key: 20,
        told_from: 1,
        from: 1,
        to: 6,
        flexible_from: 4,
        shape: guard::DELETE_TOPICS,
        begin: topics::delete_topics,
    },
    Api {
        name: "DeleteRecords",
        key: 21,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 2,
        shape: guard::DELETE_RECORDS,
        begin: topics::delete_records,
    },
    Api {
        name: "InitProducerId",
        key: 22,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 2,
        shape: guard::INIT_PRODUCER_ID,
        begin: transactions::init_producer_id,
    },
    Api {
        name: "OffsetForLeaderEpoch",
        key: 23,
        told_from: 2,
        from: 2,
        to: 4,
        flexible_from: 4,
        shape: guard::OFFSET_FOR_LEADER_EPOCH,
        begin: cluster::offset_for_leader_epoch,
    },
    Api {
        name: "AddPartitionsToTxn",
        key: 24,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::ADD_PARTITIONS_TO_TXN,
        begin: transactions::add_partitions_to_txn,
    },
    Api {
        name: "AddOffsetsToTxn",
        key: 25,
        told_from: 0,
        from: 0,
        to: 4,
        flexible_from: 3,
        shape: guard::ADD_OFFSETS_TO_TXN,
        begin: transactions::add_offsets_to_txn,
    },
    Api {
        name: "EndTxn",
        key: 26,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::END_TXN,
        begin: transactions::end_txn,
    },
    Api {
        name: "TxnOffsetCommit",
        key: 28,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::TXN_OFFSET_COMMIT,
        begin: transactions::txn_offset_commit,
    },
    Api {
        name: "DescribeAcls",
        key: 29,
        told_from: 1,
        from: 1,
        to: 3,
        flexible_from: 2,
        shape: guard::DESCRIBE_ACLS,
        begin: acls::describe_acls,
    },
    Api {
        name: "CreateAcls",
        key: 30,
        told_from: 1,
        from: 1,
        to: 3,
        flexible_from: 2,
        shape: guard::CREATE_ACLS,
        begin: acls::create_acls,
    },
    Api {
        name: "DeleteAcls",
        key: 31,
        told_from: 1,
        from: 1,
        to: 3,
        flexible_from: 2,
        shape: guard::DELETE_ACLS,
        begin: acls::delete_acls,
    },
    Api {
        name: "DescribeConfigs",
        key: 32,
        told_from: 1,
        from: 1,
        to: 4,
        flexible_from: 4,
        shape: guard::DESCRIBE_CONFIGS,
        begin: super::configs::describe_configs,
    },
    Api {
        name: "AlterConfigs",
        key: 33,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 2,
        shape: guard::ALTER_CONFIGS,
        begin: super::configs::alter_configs,
    },
    Api {
        name: "DescribeLogDirs",
        key: 35,
        told_from: 1,
        from: 1,
        to: 4,
        flexible_from: 2,
        shape: guard::DESCRIBE_LOG_DIRS,
        begin: cluster::describe_log_dirs,
    },
    Api {
        name: "SaslAuthenticate",
        key: SASL_AUTHENTICATE_KEY,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 2,
        shape: guard::SASL_AUTHENTICATE,
        begin: sasl::authenticate,
    },
    Api {
        name: "CreatePartitions",
        key: 37,
        told_from: 0,
        from: 0,
        to: 3,
        flexible_from: 2,
        shape: guard::CREATE_PARTITIONS,
        begin: topics::create_partitions,
    },
    Api {
        name: "DeleteGroups",
        key: 42,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 2,
        shape: guard::DELETE_GROUPS,
        begin: group_admin::delete_groups,
    },
    Api {
        name: "ElectLeaders",
        key: 43,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 2,
        shape: guard::ELECT_LEADERS,
        begin: cluster::elect_leaders,
    },
    Api {
        name: "IncrementalAlterConfigs",
        key: 44,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 1,
        shape: guard::INCREMENTAL_ALTER_CONFIGS,
        begin: super::configs::incremental_alter_configs,
    },
    Api {
        name: "AlterPartitionReassignments",
        key: 45,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 0,
        shape: guard::ALTER_PARTITION_REASSIGNMENTS,
        begin: cluster::alter_partition_reassignments,
    },
    Api {
        name: "ListPartitionReassignments",
        key: 46,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::LIST_PARTITION_REASSIGNMENTS,
        begin: cluster::list_partition_reassignments,
    },
    Api {
        name: "OffsetDelete",
        key: 47,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: i16::MAX,
        shape: guard::OFFSET_DELETE,
        begin: group_admin::offset_delete,
    },
    Api {
        name: "DescribeUserScramCredentials",
        key: 50,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::DESCRIBE_USER_SCRAM_CREDENTIALS,
        begin: users::describe_credentials,
    },
    Api {
        name: "AlterUserScramCredentials",
        key: 51,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::ALTER_USER_SCRAM_CREDENTIALS,
        begin: users::alter_credentials,
    },
    Api {
        name: "DescribeCluster",
        key: 60,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 0,
        shape: guard::DESCRIBE_CLUSTER,
        begin: cluster::describe_cluster,
    },
    Api {
        name: "DescribeProducers",
        key: 61,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::DESCRIBE_PRODUCERS,
        begin: transaction_admin::describe_producers,
    },
    Api {
        name: "DescribeTransactions",
        key: 65,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::DESCRIBE_TRANSACTIONS,
        begin: transaction_admin::describe_transactions,
    },
    Api {
        name: "ListTransactions",
        key: 66,
        told_from: 0,
        from: 0,
        to: 2,
        flexible_from: 0,
        shape: guard::LIST_TRANSACTIONS,
        begin: transaction_admin::list_transactions,
    },
    Api {
        name: "ConsumerGroupHeartbeat",
        key: 68,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 0,
        shape: guard::CONSUMER_GROUP_HEARTBEAT,
        begin: consumer_groups::heartbeat,
    },
    Api {
        name: "ConsumerGroupDescribe",
        key: 69,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 0,
        shape: guard::CONSUMER_GROUP_DESCRIBE,
        begin: consumer_groups::describe,
    },
    Api {
        name: "DescribeTopicPartitions",
        key: 75,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::DESCRIBE_TOPIC_PARTITIONS,
        begin: cluster::describe_topic_partitions,
    },
];

impl Api {
    fn told(&self) -> ApiVersion {
        ApiVersion::default()
            .with_api_key(self.key)
            .with_min_version(self.told_from)
            .with_max_version(self.to)
    }
}

#[cfg(test)]
impl Api {
    /// Key, lowest and highest served version, first flexible version and shape, for the tests.
    pub(super) fn facts(&self) -> (i16, i16, i16, i16, &'static [Field]) {
        (self.key, self.from, self.to, self.flexible_from, self.shape)
    }
}
