//! The management API of who reads a topic, `/api/v1/topics/{name}/groups`.
//!
//! A store tells what a group reads, not who reads a topic; so every group is asked, up to a bound of
//! number and of time, and what was left out is told.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use streams::{EventStore, GroupInfo, StreamsError, TopicInfo, TopicName};
use tokio::time::Instant;

use crate::answer::{self, Segments};
use crate::error::RestError;
use crate::groups::lag_at;
use crate::limits::{LOOK_TIME_MAX, TOPIC_GROUPS_MAX};

/// The route of a topic's groups over `store`.
///
/// `GET /api/v1/topics/{name}/groups`: `{"groups": [{group, state, members, partitions, lag}],
/// "left_out"}`, the groups that have committed something for the topic or read it now; `partitions`
/// of it, `members` of the group, `lag` null where nothing is committed; `left_out` groups were not
/// looked at
pub fn routes(store: Arc<dyn EventStore>) -> Router {
    Router::new()
        .route("/api/v1/topics/{name}/groups", get(list))
        .with_state(store)
}

async fn list(
    State(store): State<Arc<dyn EventStore>>,
    Segments(name): Segments<String>,
) -> Result<Response, RestError> {
    let topic = store.topic(&answer::topic_name(&name)?).await?;
    let places: Vec<(TopicName, i32)> = (0..topic.partitions)
        .map(|partition| (topic.name.clone(), partition))
        .collect();
    let until = Instant::now() + LOOK_TIME_MAX;
    let known = store.groups().await?;
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for group in &known {
        if looked_at == TOPIC_GROUPS_MAX || Instant::now() >= until {
            break;
        }
        looked_at += 1;
        found.extend(reading(&*store, &topic, &places, group).await?);
    }
    let body = json!({"groups": found, "left_out": known.len() - looked_at});
    Ok(answer::json(StatusCode::OK, "application/json", &body))
}

/// What a group has to do with a topic, if anything.
async fn reading(
    store: &dyn EventStore,
    topic: &TopicInfo,
    places: &[(TopicName, i32)],
    group: &GroupInfo,
) -> Result<Option<Value>, StreamsError> {
    let committed = store.committed(&group.group, places).await?;
    let lags: Vec<i64> = committed
        .iter()
        .zip(&topic.partition_offsets)
        .filter_map(|(committed, range)| Some(lag_at(*range, committed.as_ref()?.offset)))
        .collect();
    let (partitions, lag) = match lags.is_empty() {
        false => (lags.len(), Some(lags.iter().sum::<i64>())),
        // Who has just begun has yet to commit.
        true if !group.members.is_empty() => {
            let detail = store.group(&group.group).await?;
            let members = detail.iter().flat_map(|detail| &detail.members);
            let assigned = members.flat_map(|member| &member.assigned);
            (assigned.filter(|(of, _)| *of == topic.name).count(), None)
        }
        true => (0, None),
    };
    Ok((partitions > 0).then(|| {
        json!({
            "group": group.group,
            "state": group.state,
            "members": group.members.len(),
            "partitions": partitions,
            "lag": lag,
        })
    }))
}
