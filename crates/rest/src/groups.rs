//! The management API of consumer groups, `/api/v1/groups`: who reads what, how far behind they
//! are, and where they are to go on.
//!
//! Where a reset leads is decided here by [`Target::offset`] from what the store says of the
//! partition; nothing is written unless the caller says `execute`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base::UnixMillis;
use serde::Deserialize;
use serde_json::{Value, json};
use streams::groups::GroupError;
use streams::{
    CommittedOffset, EventStore, GroupDetail, GroupInfo, GroupInstance, OffsetRange, StreamsError,
    TopicInfo, TopicName,
};

use crate::answer::{self, Segments};
use crate::body::Gate;
use crate::error::RestError;
use crate::limits::NAMED_PARTITIONS_MAX;
use crate::management::{changes, setting_object};

struct Groups {
    store: Arc<dyn EventStore>,
    gate: Gate,
}

/// The routes of groups over `store`.
///
/// - `GET /api/v1/groups`: `{"groups": [{group, state, protocol_type, members: [{member_id,
///   client_id, host}]}]}`
/// - `GET /api/v1/groups/{group}`: `{group, kind, state, protocol_type, assignor, lag_total,
///   members: [{member_id, instance_id, client_id, host, partitions: [{topic, partition}]}],
///   offsets: [{topic, partition, current, start, end, lag, member_id, client_id, host,
///   metadata}], config: [{name, value, is_set}]}`; `current` and `lag` are null where nothing is
///   committed
/// - `PATCH /api/v1/groups/{group}` with `{"config": {name: value or null}}`: the settings change,
///   null to their defaults, whether or not there is such a group; answered as `GET` is
/// - `DELETE /api/v1/groups/{group}`: 204; 409 while it has members
/// - `POST /api/v1/groups/{group}/reset-offsets` with `{"topics": [{"topic", "partitions"?}]}` or
///   `{"all_topics": true}`, `"to"`, `"execute"?`: `{group, executed, offsets: [{topic, partition,
///   from, to}]}`; `to` is `"earliest"`, `"latest"`, `"current"`, `{"offset": n}`,
///   `{"at_ms": ms since 1970}` or `{"shift": n}`; 409 while the group has members
pub fn routes(store: Arc<dyn EventStore>) -> Router {
    let groups = Arc::new(Groups {
        store,
        gate: Gate::new(BODY_BYTES_MAX),
    });
    Router::new()
        .route("/api/v1/groups", get(list))
        .route(
            "/api/v1/groups/{group}",
            get(describe).patch(alter).delete(delete),
        )
        .route("/api/v1/groups/{group}/reset-offsets", post(reset))
        .with_state(groups)
}

async fn list(State(groups): State<Arc<Groups>>) -> Result<Response, RestError> {
    let found = groups.store.groups().await?;
    let found: Vec<Value> = found.iter().map(group_object).collect();
    Ok(answer::json(
        StatusCode::OK,
        JSON,
        &json!({"groups": found}),
    ))
}

async fn describe(
    State(groups): State<Arc<Groups>>,
    Segments(group): Segments<String>,
) -> Result<Response, RestError> {
    let detail = groups.detail(&group).await?;
    let topics = topics_of(&*groups.store, &detail).await?;
    let mut object = detail_object(&detail, &shares(&detail, &topics));
    match groups.store.group_settings(&group).await {
        Ok(settings) => object["config"] = settings.iter().map(setting_object).collect(),
        // Who may see the group need not be one who may see its settings.
        Err(StreamsError::Unsupported(_) | StreamsError::NotAllowed { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(answer::json(StatusCode::OK, JSON, &object))
}

async fn alter(
    State(groups): State<Arc<Groups>>,
    Segments(group): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Changes {
        config: BTreeMap<String, Option<String>>,
    }
    let asked: Changes = groups.gate.entity(&headers, body).await?;
    groups
        .store
        .alter_group(&group, changes(asked.config))
        .await?;
    // Where the last setting was taken back from a group that is not there, nothing is left to tell.
    match groups.store.group(&group).await? {
        Some(_) => describe(State(groups), Segments(group)).await,
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

async fn delete(
    State(groups): State<Arc<Groups>>,
    Segments(group): Segments<String>,
) -> Result<Response, RestError> {
    groups.detail(&group).await?;
    match groups.store.delete_group(&group).await {
        // There may be settings for one that is not there.
        Err(StreamsError::Group {
            reason: GroupError::NotFound,
            ..
        }) => Err(RestError::GroupNotFound(group)),
        deleted => {
            deleted?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
    }
}

async fn reset(
    State(groups): State<Arc<Groups>>,
    Segments(group): Segments<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, RestError> {
    let asked: Reset = groups.gate.entity(&headers, body).await?;
    // A group that was never there may be given offsets before its first member comes.
    let detail = match groups.detail(&group).await {
        Err(RestError::GroupNotFound(_)) if !asked.all_topics => None,
        found => Some(found?),
    };
    if let Some(detail) = &detail
        && !detail.members.is_empty()
    {
        return Err(RestError::GroupActive {
            group,
            members: detail.members.len(),
        });
    }
    let committed = detail.map_or_else(BTreeMap::new, |detail| detail.committed_by_partition());
    let mut moves = Vec::new();
    for (topic, partition, range) in groups.scope(&asked, &committed).await? {
        let from = committed.get(&(topic.clone(), partition)).copied();
        let at_time = match asked.to {
            Target::AtMs(at) => {
                let at = UnixMillis(at);
                groups.store.offset_for_time(&topic, partition, at).await?
            }
            _ => None,
        };
        let to = asked.to.offset(range, from, at_time).ok_or_else(|| {
            RestError::InvalidEntity(format!(
                "group '{group}' has committed nothing for partition {partition} of '{topic}', so \
                 there is nothing to count from; use earliest, latest or an offset"
            ))
        })?;
        moves.push((topic, partition, from, to));
    }
    if asked.execute {
        let offsets = moves
            .iter()
            .map(|(topic, p, _, to)| (topic.clone(), *p, *to));
        groups
            .store
            .set_group_offsets(&group, offsets.collect())
            .await?;
    }
    let told: Vec<Value> = moves
        .iter()
        .map(|(topic, partition, from, to)| {
            json!({"topic": topic.display(), "partition": partition, "from": from, "to": to})
        })
        .collect();
    let body = json!({"group": group, "executed": asked.execute, "offsets": told});
    Ok(answer::json(StatusCode::OK, JSON, &body))
}

/// Where a group is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Target {
    /// At the oldest record.
    Earliest,
    /// After the newest record.
    Latest,
    /// Where it is, moved only into what the partition holds.
    Current,
    /// At this offset, or the nearest that the partition has.
    Offset(i64),
    /// At the first record of this time or later, in ms since 1970; after the newest if none is.
    AtMs(i64),
    /// So many records further, or back.
    Shift(i64),
}

impl Target {
    /// The offset to go on from; none when that depends on a commit and there is none.
    fn offset(self, range: OffsetRange, current: Option<i64>, at_time: Option<i64>) -> Option<i64> {
        let wanted = match self {
            Target::Earliest => range.start,
            Target::Latest => range.end,
            Target::Current => current?,
            Target::Offset(offset) => offset,
            Target::AtMs(_) => at_time.unwrap_or(range.end),
            Target::Shift(by) => current?.saturating_add(by),
        };
        Some(wanted.clamp(range.start, range.end.max(range.start)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    #[serde(default)]
    topics: Vec<Scope>,
    #[serde(default)]
    all_topics: bool,
    to: Target,
    #[serde(default)]
    execute: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scope {
    topic: String,
    partitions: Option<Vec<i32>>,
}

type Committed = BTreeMap<(TopicName, i32), i64>;

impl Groups {
    async fn detail(&self, group: &str) -> Result<GroupDetail, RestError> {
        detail_of(&*self.store, group).await
    }

    /// The partitions that a reset names, with what they hold.
    async fn scope(
        &self,
        asked: &Reset,
        committed: &Committed,
    ) -> Result<Vec<(TopicName, i32, OffsetRange)>, RestError> {
        let mut wanted: Vec<(TopicName, Option<Vec<i32>>)> = Vec::new();
        if asked.all_topics {
            for (topic, partition) in committed.keys() {
                match wanted.last_mut() {
                    Some((last, Some(partitions))) if last == topic => partitions.push(*partition),
                    _ => wanted.push((topic.clone(), Some(vec![*partition]))),
                }
            }
        }
        for scope in &asked.topics {
            wanted.push((answer::topic_name(&scope.topic)?, scope.partitions.clone()));
        }
        if wanted.is_empty() {
            let text = "name the topics to reset, or all_topics for those with offsets";
            return Err(RestError::InvalidEntity(text.to_owned()));
        }
        let mut scope = Vec::new();
        for (topic, partitions) in wanted {
            let info = self.store.topic(&topic).await?;
            for index in partitions.unwrap_or_else(|| (0..info.partitions).collect()) {
                let at = usize::try_from(index).ok();
                let range = at.and_then(|at| info.partition_offsets.get(at)).copied();
                let range = range.ok_or_else(|| RestError::PartitionNotFound {
                    topic: topic.display().to_owned(),
                    partition: index.to_string(),
                    partitions: info.partitions,
                })?;
                scope.push((topic.clone(), index, range));
                if scope.len() > NAMED_PARTITIONS_MAX {
                    let text = format!("more than {NAMED_PARTITIONS_MAX} partitions; name fewer");
                    return Err(RestError::InvalidEntity(text));
                }
            }
        }
        Ok(scope)
    }
}

/// A group, which there is.
pub(crate) async fn detail_of(
    store: &dyn EventStore,
    group: &str,
) -> Result<GroupDetail, RestError> {
    let found = store.group(group).await?;
    found.ok_or_else(|| RestError::GroupNotFound(group.to_owned()))
}

/// The topics of a group's partitions that are there, by name.
pub(crate) async fn topics_of(
    store: &dyn EventStore,
    detail: &GroupDetail,
) -> Result<BTreeMap<TopicName, TopicInfo>, RestError> {
    let mut topics = BTreeMap::new();
    for (name, _) in detail.partitions() {
        if topics.contains_key(name) {
            continue;
        }
        match store.topic(name).await {
            Ok(info) => drop(topics.insert(name.clone(), info)),
            // Deleted a moment ago; its offsets go with it.
            Err(StreamsError::UnknownTopic(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(topics)
}

/// A partition that a group reads or has committed an offset for.
pub(crate) struct Share<'d> {
    pub topic: &'d TopicName,
    pub partition: i32,
    pub range: OffsetRange,
    pub committed: Option<&'d CommittedOffset>,
    pub holder: Option<&'d GroupInstance>,
}

impl Share<'_> {
    /// Records that the group has still to read; none when it has committed nothing.
    pub fn lag(&self) -> Option<i64> {
        self.committed.map(|at| lag_at(self.range, at.offset))
    }
}

/// Records of a partition that are left to read from an offset on.
pub(crate) fn lag_at(range: OffsetRange, offset: i64) -> i64 {
    // What has expired cannot be read any more, so it is no lag.
    (range.end - offset.max(range.start)).max(0)
}

/// A group's partitions that are there, in order.
pub(crate) fn shares<'d>(
    detail: &'d GroupDetail,
    topics: &BTreeMap<TopicName, TopicInfo>,
) -> Vec<Share<'d>> {
    let committed: BTreeMap<(&TopicName, i32), _> = detail
        .committed
        .iter()
        .map(|of| ((&of.topic, of.partition), &of.committed))
        .collect();
    let mut holders = BTreeMap::new();
    for member in &detail.members {
        for (topic, partition) in &member.assigned {
            holders.insert((topic, *partition), member);
        }
    }
    let each: BTreeSet<(&TopicName, i32)> = detail.partitions().collect();
    let each = each.into_iter().filter_map(|(topic, partition)| {
        let at = usize::try_from(partition).ok()?;
        Some(Share {
            topic,
            partition,
            range: *topics.get(topic)?.partition_offsets.get(at)?,
            committed: committed.get(&(topic, partition)).copied(),
            holder: holders.get(&(topic, partition)).copied(),
        })
    });
    each.collect()
}

/// What a group's detail tells of its partitions.
trait Partitions {
    /// Every partition that is assigned or committed, some twice.
    fn partitions(&self) -> impl Iterator<Item = (&TopicName, i32)>;
    fn committed_by_partition(&self) -> Committed;
}

impl Partitions for GroupDetail {
    fn partitions(&self) -> impl Iterator<Item = (&TopicName, i32)> {
        let assigned = self.members.iter().flat_map(|member| &member.assigned);
        let committed = self
            .committed
            .iter()
            .map(|offset| (&offset.topic, offset.partition));
        assigned
            .map(|(topic, partition)| (topic, *partition))
            .chain(committed)
    }

    fn committed_by_partition(&self) -> Committed {
        let committed = self.committed.iter();
        committed
            .map(|of| ((of.topic.clone(), of.partition), of.committed.offset))
            .collect()
    }
}

fn detail_object(detail: &GroupDetail, shares: &[Share<'_>]) -> Value {
    let lag_total: i64 = shares.iter().filter_map(Share::lag).sum();
    let offsets: Vec<Value> = shares
        .iter()
        .map(|share| {
            let (current, holder) = (share.committed, share.holder);
            json!({
                "topic": share.topic.display(),
                "partition": share.partition,
                "current": current.map(|at| at.offset),
                "start": share.range.start,
                "end": share.range.end,
                "lag": share.lag(),
                "member_id": holder.map(|member| &member.member_id),
                "client_id": holder.map(|member| &member.client_id),
                "host": holder.map(|member| &member.host),
                "metadata": current.map(|at| &at.metadata),
            })
        })
        .collect();
    let members: Vec<Value> = detail
        .members
        .iter()
        .map(|member| {
            let partitions = member.assigned.iter();
            let partitions: Vec<Value> = partitions
                .map(|(topic, at)| json!({"topic": topic.display(), "partition": at}))
                .collect();
            json!({
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": partitions,
            })
        })
        .collect();
    json!({
        "group": detail.group,
        "kind": detail.kind,
        "state": detail.state,
        "protocol_type": detail.protocol_type,
        "assignor": detail.assignor,
        "lag_total": lag_total,
        "members": members,
        "offsets": offsets,
    })
}

fn group_object(info: &GroupInfo) -> Value {
    let members: Vec<Value> = info
        .members
        .iter()
        .map(|member| {
            json!({
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
            })
        })
        .collect();
    json!({
        "group": info.group,
        "state": info.state,
        "protocol_type": info.protocol_type,
        "members": members,
    })
}

const JSON: &str = "application/json";

/// Bytes of a request to reset offsets: a name and numbers for each topic.
const BODY_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(to: Target, current: Option<i64>, at_time: Option<i64>) -> Option<i64> {
        to.offset(
            OffsetRange {
                start: 10,
                end: 100,
            },
            current,
            at_time,
        )
    }

    #[test]
    fn a_target_lies_within_what_the_partition_holds() {
        assert_eq!(check(Target::Earliest, None, None), Some(10));
        assert_eq!(check(Target::Latest, None, None), Some(100));
        assert_eq!(check(Target::Offset(5), None, None), Some(10));
        assert_eq!(check(Target::Offset(50), None, None), Some(50));
        assert_eq!(check(Target::Offset(500), None, None), Some(100));
        assert_eq!(check(Target::Shift(-200), Some(60), None), Some(10));
        assert_eq!(check(Target::Shift(5), Some(60), None), Some(65));
        assert_eq!(check(Target::Shift(i64::MAX), Some(60), None), Some(100));
        assert_eq!(check(Target::AtMs(1), None, Some(40)), Some(40));
        assert_eq!(check(Target::AtMs(1), None, None), Some(100));
        assert_eq!(check(Target::Current, Some(3), None), Some(10));
    }

    #[test]
    fn what_counts_from_a_commit_needs_one() {
        assert_eq!(check(Target::Shift(1), None, None), None);
        assert_eq!(check(Target::Current, None, None), None);
    }

    #[test]
    fn targets_read_as_the_api_writes_them() {
        let read = |text| serde_json::from_str::<Target>(text).unwrap();
        assert_eq!(read(r#""earliest""#), Target::Earliest);
        assert_eq!(read(r#"{"offset": 5}"#), Target::Offset(5));
        assert_eq!(read(r#"{"at_ms": 7}"#), Target::AtMs(7));
        assert_eq!(read(r#"{"shift": -3}"#), Target::Shift(-3));
    }
}
