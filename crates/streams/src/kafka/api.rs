//! The one table of the APIs served: it dispatches requests and answers ApiVersions.

use access::Operation::{
    Alter, AlterConfigs, ClusterAction, Create, Delete, Describe, DescribeConfigs, IdempotentWrite,
    Read, Write,
};
use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::api_versions_response::{ApiVersion, ApiVersionsResponse};
use kafka_protocol::protocol::StrBytes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::guard::{self, Field};
use super::permissions::{AskedPermissions, Asks, cluster, group, topic, transactional_id};
use super::reply::{Call, Ending, Reply};
use super::throttle::{Told, Toll};
use super::{
    Context, acls, cluster, consumer_groups, fetch, group_admin, groups, markers, metadata,
    offsets, produce, quotas, sasl, topics, transaction_admin, transactions, users, versions,
};

/// One API.
pub(super) struct Api {
    /// Its name in Kafka's protocol guide, also the metrics' label.
    pub(super) name: &'static str,
    pub(super) key: i16,
    /// The lowest version told to clients.
    told_from: i16,
    /// The lowest version served.
    pub(super) from: i16,
    /// The highest version told and served.
    pub(super) to: i16,
    /// The first version with compact lengths and tagged fields.
    pub(super) flexible_from: i16,
    pub(super) shape: &'static [Field],
    /// What it asks of its callers.
    pub(super) asks: Asks,
    /// Where its answer says for how long the client is held back.
    pub(super) told: Told,
    begin: fn(Call) -> Result<Reply, Ending>,
}

/// A request that was begun, and what it costs its client where that is counted.
pub(super) struct Begun {
    pub(super) reply: Reply,
    pub(super) toll: Option<Toll>,
    pub(super) timing: Timing,
}

/// When a request came, for the metrics.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    /// Its place in the table; none for a step of a login without Kafka's headers.
    pub(super) api: Option<usize>,
    pub(super) began: Instant,
    /// How long it took until it was read and had its effect in memory.
    pub(super) local: Duration,
}

/// Begins the request in `frame`: what it changes has changed on return.
pub(super) fn begin(context: &Arc<Context>, frame: Bytes) -> Result<Begun, Ending> {
    let began = Instant::now();
    let mut begun = begin_any(context, frame, began)?;
    begun.timing.local = began.elapsed();
    Ok(begun)
}

fn begin_any(context: &Arc<Context>, frame: Bytes, began: Instant) -> Result<Begun, Ending> {
    let free = |api| {
        let local = Duration::ZERO;
        let timing = Timing { api, began, local };
        move |reply| Begun {
            reply,
            toll: None,
            timing,
        }
    };
    if let Some(login) = context.session.raw_login() {
        return sasl::raw_token(context, login, frame).map(free(None));
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
    context.shared.telemetry().apis[index].requests.increment(1);
    if !api.asks.is_before_login() {
        context.session.admit(api.name)?;
    }
    let mut call = Call {
        context: Arc::clone(context),
        version: header.version,
        correlation: header.correlation,
        asks: api.asks,
        // Apart from the frame, which it would keep in memory.
        client_id: StrBytes::from_string(header.client_id.to_owned()),
        body: Bytes::new(),
    };
    if !(api.from..=api.to).contains(&header.version) {
        if api.key == API_VERSIONS_KEY {
            return answer_unknown_version(&call).map(free(Some(index)));
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
    let Some(mut toll) = Toll::of(&call, api, frame.len()) else {
        return (api.begin)(call).map(free(Some(index)));
    };
    let started = Instant::now();
    let reply = (api.begin)(call)?;
    toll.add_time(context, started.elapsed());
    let begun = free(Some(index))(reply);
    Ok(Begun {
        toll: Some(toll),
        ..begun
    })
}

/// What ApiVersions tells: every API with its versions.
pub(super) fn told() -> Vec<ApiVersion> {
    APIS.iter().map(Api::told).collect()
}

/// What each API asks of its callers where ACLs are followed, in the order of the APIs' keys.
pub fn asked_permissions() -> impl Iterator<Item = AskedPermissions> {
    APIS.iter().map(|api| AskedPermissions {
        api: api.name,
        permissions: api.asks.permissions(),
        open_because: api.asks.reason(),
    })
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
        asks: Asks::These(&[topic(Write), transactional_id(Write)]),
        told: Told::Last(1),
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
        asks: Asks::These(&[topic(Read)]),
        told: Told::First(1),
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
        asks: Asks::These(&[topic(Describe)]),
        told: Told::First(2),
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
        asks: Asks::These(&[
            topic(Describe),
            topic(Create),
            cluster(Create),
            cluster(Describe),
        ]),
        told: Told::First(3),
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
        asks: Asks::These(&[group(Read), topic(Read)]),
        told: Told::First(3),
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
        asks: Asks::These(&[group(Describe), topic(Describe)]),
        told: Told::First(3),
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
        asks: Asks::These(&[group(Describe), transactional_id(Describe)]),
        told: Told::First(1),
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
        asks: Asks::These(&[group(Read)]),
        told: Told::First(2),
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
        asks: Asks::These(&[group(Read)]),
        told: Told::First(1),
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
        asks: Asks::These(&[group(Read)]),
        told: Told::First(1),
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
        asks: Asks::These(&[group(Read)]),
        told: Told::First(1),
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
        asks: Asks::These(&[group(Describe)]),
        told: Told::First(1),
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
        asks: Asks::These(&[cluster(Describe), group(Describe)]),
        told: Told::First(1),
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
        asks: Asks::Nothing("it begins the login"),
        told: Told::Never,
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
        asks: Asks::Nothing("clients ask it before they log in"),
        told: Told::Never,
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
        asks: Asks::These(&[cluster(Create), topic(Create), topic(DescribeConfigs)]),
        told: Told::First(2),
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
        asks: Asks::These(&[topic(Delete), topic(Describe)]),
        told: Told::First(1),
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
        asks: Asks::These(&[topic(Delete)]),
        told: Told::First(0),
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
        asks: Asks::These(&[
            transactional_id(Write),
            cluster(IdempotentWrite),
            topic(Write),
        ]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(Describe)]),
        told: Told::First(2),
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
        asks: Asks::These(&[
            transactional_id(Write),
            topic(Write),
            cluster(ClusterAction),
        ]),
        told: Told::First(0),
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
        asks: Asks::These(&[transactional_id(Write), group(Read)]),
        told: Told::First(0),
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
        asks: Asks::These(&[transactional_id(Write)]),
        told: Told::First(0),
        begin: transactions::end_txn,
    },
    Api {
        name: "WriteTxnMarkers",
        key: 27,
        told_from: 1,
        from: 1,
        to: 1,
        flexible_from: 1,
        shape: guard::WRITE_TXN_MARKERS,
        asks: Asks::These(&[cluster(ClusterAction), cluster(Alter)]),
        told: Told::Never,
        begin: markers::write_txn_markers,
    },
    Api {
        name: "TxnOffsetCommit",
        key: 28,
        told_from: 0,
        from: 0,
        to: 5,
        flexible_from: 3,
        shape: guard::TXN_OFFSET_COMMIT,
        asks: Asks::These(&[transactional_id(Write), group(Read), topic(Read)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Alter)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Alter)]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(DescribeConfigs), cluster(DescribeConfigs)]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(AlterConfigs), cluster(AlterConfigs)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Describe)]),
        told: Told::First(0),
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
        asks: Asks::Nothing("it is the login"),
        told: Told::Never,
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
        asks: Asks::These(&[topic(Alter)]),
        told: Told::First(0),
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
        asks: Asks::These(&[group(Delete)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Alter)]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(AlterConfigs), cluster(AlterConfigs)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Alter)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[group(Delete), topic(Read)]),
        told: Told::AfterCode,
        begin: group_admin::offset_delete,
    },
    Api {
        name: "DescribeClientQuotas",
        key: 48,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 1,
        shape: guard::DESCRIBE_CLIENT_QUOTAS,
        asks: Asks::These(&[cluster(DescribeConfigs)]),
        told: Told::First(0),
        begin: quotas::describe,
    },
    Api {
        name: "AlterClientQuotas",
        key: 49,
        told_from: 0,
        from: 0,
        to: 1,
        flexible_from: 1,
        shape: guard::ALTER_CLIENT_QUOTAS,
        asks: Asks::These(&[cluster(AlterConfigs)]),
        told: Told::First(0),
        begin: quotas::alter,
    },
    Api {
        name: "DescribeUserScramCredentials",
        key: 50,
        told_from: 0,
        from: 0,
        to: 0,
        flexible_from: 0,
        shape: guard::DESCRIBE_USER_SCRAM_CREDENTIALS,
        asks: Asks::These(&[cluster(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[cluster(Alter)]),
        told: Told::First(0),
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
        asks: Asks::Login("its address is where the caller is", &[cluster(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(Read)]),
        told: Told::First(0),
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
        asks: Asks::These(&[transactional_id(Describe), topic(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[transactional_id(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[group(Read), topic(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[group(Describe), topic(Describe)]),
        told: Told::First(0),
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
        asks: Asks::These(&[topic(Describe)]),
        told: Told::First(0),
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
