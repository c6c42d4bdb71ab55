//! Subscriptions by a pattern: which topics it matches, and how an instance follows them.
//!
//! When the topics change that match, the instance subscribes anew and goes on where it was in those
//! that it had. While nothing matches it is in no group, and reads nothing.

use std::collections::{BTreeMap, BTreeSet};

use base::UnixMillis;
use regex::Regex;
use streams::{Consumer, StreamsError, TopicName};

use super::{Instance, Interest, Reader};
use crate::error::RestError;
use crate::limits;
use crate::routes::Shared;

/// The topics that a pattern matches now, by either form of their names, or without the default
/// stream. Those that programs keep for themselves are only matched by a pattern that says so.
pub(super) async fn matching(
    shared: &Shared,
    pattern: &Regex,
) -> Result<Vec<TopicName>, StreamsError> {
    let names = shared.store.topic_names().await?;
    let asks_for_own = pattern.as_str().contains(OWN);
    let is_short = |name: &TopicName| {
        shared
            .config
            .short(name)
            .is_some_and(|it| pattern.is_match(it))
    };
    Ok(names
        .into_iter()
        .filter(|name| asks_for_own || !name.wire_name().starts_with(OWN))
        .filter(|name| {
            pattern.is_match(name.display()) || pattern.is_match(name.wire_name()) || is_short(name)
        })
        .collect())
}

/// Has a consumer read these topics, of which there may be none.
pub(super) async fn follow(
    consumer: &mut dyn Consumer,
    topics: Vec<TopicName>,
) -> Result<(), StreamsError> {
    match topics.is_empty() {
        // Whoever takes no partitions leaves the group.
        true => consumer.assign(Vec::new()).await,
        false => consumer.subscribe(topics).await,
    }
}

/// Looks whether other topics match by now, as often as such looks are made, and follows them.
pub(super) async fn refresh(
    shared: &Shared,
    instance: &Instance,
    reader: &mut Reader,
) -> Result<(), RestError> {
    let now = shared.clock.now();
    match look(shared, &reader.interest, now).await? {
        Some(found) => go_over(instance, reader, found, now).await,
        None => Ok(()),
    }
}

/// As [`refresh`], for a read that waits: a look that fails is made again, and fails nothing.
pub(super) async fn refresh_waiting(
    shared: &Shared,
    instance: &Instance,
    reader: &mut Reader,
) -> Result<(), RestError> {
    let now = shared.clock.now();
    match look(shared, &reader.interest, now).await {
        Ok(Some(found)) => go_over(instance, reader, found, now).await,
        Ok(None) => Ok(()),
        Err(error) => {
            tracing::debug!(%error, "a waiting read did not learn which topics match");
            Ok(())
        }
    }
}

/// The topics that match by now, where it is time to look.
async fn look(
    shared: &Shared,
    interest: &Interest,
    now: UnixMillis,
) -> Result<Option<Vec<TopicName>>, StreamsError> {
    match interest {
        Interest::Pattern {
            pattern, looked_at, ..
        } if now.since(*looked_at) >= limits::PATTERN_AGE_MAX => {
            matching(shared, pattern).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Follows the topics that were found, where they are others.
async fn go_over(
    instance: &Instance,
    reader: &mut Reader,
    found: Vec<TopicName>,
    now: UnixMillis,
) -> Result<(), RestError> {
    let is_other = matches!(&reader.interest, Interest::Pattern { topics, .. } if *topics != found);
    if is_other {
        reader.commit_answered(instance, now).await?;
        // Noted first: who gives this up in the middle begins anew with all of it.
        reader.carry_over(instance, &found, now);
        follow(reader.consumer()?.as_mut(), found.clone()).await?;
    }
    reader.found(found, now);
    Ok(())
}

impl Reader {
    /// Takes where it is along into another subscription.
    fn carry_over(&mut self, instance: &Instance, found: &[TopicName], now: UnixMillis) {
        let is_resuming = self.is_resuming(now);
        // What is not moved yet is told by where it is to go on.
        let here = self.places(instance);
        let consumer = self.consumer.as_ref();
        let holds = consumer.is_some_and(|it| !it.assignment().is_empty());
        let mut places = match is_resuming {
            true => std::mem::take(&mut self.resuming.places),
            false => BTreeMap::new(),
        };
        for place in here {
            let to = place.to();
            let key = (place.topic, place.partition);
            match holds {
                true => {
                    places.insert(key, to);
                }
                // Who holds nothing knows no better than what it was to go on with.
                false => {
                    places.entry(key).or_insert(to);
                }
            }
        }
        if let Interest::Pattern { topics, .. } = &self.interest {
            // One that was gone meanwhile is another topic.
            let had: BTreeSet<&TopicName> = topics.iter().collect();
            let stay: BTreeSet<&TopicName> = found.iter().filter(|it| had.contains(it)).collect();
            places.retain(|(topic, _), _| stay.contains(topic));
        }
        self.resuming.go_on(places, now);
    }

    fn found(&mut self, found: Vec<TopicName>, now: UnixMillis) {
        if let Interest::Pattern {
            topics, looked_at, ..
        } = &mut self.interest
        {
            *topics = found;
            *looked_at = now;
        }
    }
}

/// How the names begin of topics that programs keep for themselves.
const OWN: &str = "__";
