//! Records to the store, and the receipts that tell of them: many at once, all under one key, or each
//! under a key of its own.

use std::task::Poll;

use base::{UnixMillis, format_rfc3339};
use streams::TopicName;

use super::Here;
use super::datum::Told;
use super::records::{Failed, Ready, Receipt};
use crate::error::RestError;
use crate::idempotency::{Once, WantedKey};
use crate::storing::{self, Asked, Outcome};
use crate::working::Worked;

impl Here {
    /// Stores the records among these that can be; answers the receipts in their order. Their schemas'
    /// work counts as `worked`.
    pub(super) async fn store<'a>(
        &'a self,
        topic: &'a TopicName,
        partitions: i32,
        read: Vec<Result<Ready, Failed>>,
        worked: Worked,
    ) -> Vec<Result<Receipt<'a>, Failed>> {
        let (asked, rest) = parted(self.with_schemas(topic, read, worked).await);
        let outcomes = storing::store(&self.shared, topic, partitions, asked).await;
        self.receipts(topic, rest, outcomes, None)
    }

    /// As [`Here::store`] under one key, all or none; says whether the key was known.
    pub(super) async fn store_once<'a>(
        &'a self,
        topic: &'a TopicName,
        partitions: i32,
        read: Vec<Result<Ready, Failed>>,
        once: &Once,
    ) -> Result<(Vec<Result<Receipt<'a>, Failed>>, bool), RestError> {
        let worked = Worked::of_request();
        let (asked, rest) = parted(self.with_schemas(topic, read, worked).await);
        let stored = storing::store_once(&self.shared, topic, partitions, asked, once).await;
        let (outcomes, recalled) = stored?;
        let receipts = self.receipts(topic, rest, outcomes, Some(recalled.at));
        Ok((receipts, recalled.is_recalled))
    }

    /// As [`Here::store`], each record under a key of its own: its stream's, and its number there.
    pub(super) async fn store_each_once<'a>(
        &'a self,
        topic: &'a TopicName,
        partitions: i32,
        first: u64,
        read: Vec<Result<Ready, Failed>>,
        wanted: &WantedKey,
    ) -> Vec<Result<Receipt<'a>, Failed>> {
        // Before any is begun, as looking schemas up would change their order.
        let worked = Worked::of_stream();
        let read = self.with_schemas(topic, read, worked).await;
        let each = (first..).zip(read).map(|(number, ready)| async move {
            let ready = ready?;
            let once = wanted.nth(topic, &ready.text, Some(number), ready.at);
            let stored = self
                .store_once(topic, partitions, vec![Ok(ready)], &once)
                .await;
            match stored {
                Ok((mut receipts, _)) => receipts.pop().unwrap_or_else(broke_off),
                Err(error) => Err(Failed::of(error.code(), &error.message())),
            }
        });
        // Begun in their order, so that they are stored in it.
        join_all(each.collect()).await
    }

    fn receipts<'a>(
        &'a self,
        topic: &'a TopicName,
        rest: Vec<Result<Rest, Failed>>,
        outcomes: Vec<Outcome>,
        first_came_at: Option<UnixMillis>,
    ) -> Vec<Result<Receipt<'a>, Failed>> {
        let mut outcomes = outcomes.into_iter();
        let receipts = rest.into_iter().map(|entry| {
            let rest = entry?;
            match outcomes.next() {
                Some(Outcome::Placed { partition, offset }) => Ok(Receipt {
                    error_code: 200,
                    cluster_id: &self.cluster.id,
                    topic_name: topic.display(),
                    partition_id: partition,
                    offset,
                    timestamp: format_rfc3339(match first_came_at {
                        Some(at) if !rest.has_time => at,
                        _ => rest.at,
                    }),
                    key: rest.key,
                    value: rest.value,
                }),
                Some(Outcome::Refused { code, reason }) => Err(Failed::of(
                    // Here it is the broker that does not know the partition.
                    if code == 40402 { 40403 } else { code },
                    &reason,
                )),
                None => broke_off(),
            }
        });
        receipts.collect()
    }
}

/// What a receipt says beside where its record is.
struct Rest {
    at: UnixMillis,
    /// Whether the request said the time.
    has_time: bool,
    key: Option<Told>,
    value: Option<Told>,
}

/// Parts what is stored from what is told.
fn parted(read: Vec<Result<Ready, Failed>>) -> (Vec<Asked>, Vec<Result<Rest, Failed>>) {
    let mut asked = Vec::with_capacity(read.len());
    let mut rest = Vec::with_capacity(read.len());
    for entry in read {
        rest.push(entry.map(|ready| {
            let has_time = ready.asked.record.timestamp.is_some();
            asked.push(ready.asked);
            Rest {
                at: ready.at,
                has_time,
                key: ready.key,
                value: ready.value,
            }
        }));
    }
    (asked, rest)
}

fn broke_off<T>() -> Result<T, Failed> {
    Err(Failed::of(50002, "the store broke off"))
}

/// Runs all of these side by side; answers in their order.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.into_iter().map(|it| Some(Box::pin(it))).collect();
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if let Some(running) = future
                && let Poll::Ready(output) = running.as_mut().poll(context)
            {
                *done = Some(output);
                *future = None;
            }
        }
        match futures.iter().all(Option::is_none) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
