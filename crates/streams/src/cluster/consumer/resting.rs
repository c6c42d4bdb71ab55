//! Members of groups that nobody polls.
//!
//! A member hears of its group only while it is polled, and the group waits for it. So one that is not
//! polled, but tended, rests: its partitions are paused, so that nothing but what the group says is
//! left to take. Its next poll wakes it, and goes on behind the last record that was taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rdkafka::consumer::Consumer as _;

use super::super::error::About;
use super::{ClusterConsumer, Mode, at_once, consumed};
use crate::error::StreamsError;

impl ClusterConsumer {
    /// Takes what the group says, unless it is polled.
    pub(super) async fn keep_up(&mut self) -> Result<(), StreamsError> {
        self.tended = self.tended.saturating_add(1);
        if self.mode != Mode::Subscribed || self.tended < REST_AFTER {
            return Ok(());
        }
        if !self.member.rests.load(Ordering::Relaxed) {
            self.rest().await?;
        }
        let client = self.client()?;
        for _ in 0..TENDED_AT_ONCE {
            if self.kept.len() >= KEPT_MAX {
                break;
            }
            match at_once(client.recv()).await {
                // What was on its way is not lost.
                Some(Ok(message)) => {
                    let record = consumed(&message)?;
                    let place = (record.topic.clone(), record.partition);
                    self.adopt();
                    if self.member.reads && self.holds(&place) {
                        self.kept.push_back(record);
                    }
                }
                // Who polls is told what lasts.
                Some(Err(error)) => tracing::debug!(%error, "a member that rests heard an error"),
                None => {}
            }
        }
        Ok(())
    }

    /// Has the client give records again.
    pub(super) async fn wake(&self) -> Result<(), StreamsError> {
        if !self.member.rests.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (client, rests) = (self.client()?, Arc::clone(&self.member.rests));
        let reads = self.member.reads;
        let woken = self.calls.blocking(About::Cluster, move |_, _| {
            if reads {
                client.resume(&client.assignment()?)?;
            }
            rests.store(false, Ordering::Relaxed);
            Ok(())
        });
        woken.await
    }

    /// Has the client give no records until it is woken.
    async fn rest(&self) -> Result<(), StreamsError> {
        let (client, rests) = (self.client()?, Arc::clone(&self.member.rests));
        let reads = self.member.reads;
        let rested = self.calls.blocking(About::Cluster, move |_, _| {
            // First, so that what comes meanwhile is paused too.
            rests.store(true, Ordering::Relaxed);
            let paused = client.assignment().and_then(|held| {
                let paused = client.pause(&held);
                if paused.is_err() && reads {
                    // Nobody wakes a member that does not rest.
                    let _ = client.resume(&held);
                }
                paused
            });
            if paused.is_err() {
                rests.store(false, Ordering::Relaxed);
            }
            paused
        });
        rested.await
    }
}

/// How often a member is tended after a poll until it rests: who reads now and then keeps what was
/// read ahead.
const REST_AFTER: u32 = 2;

/// How often a member that rests looks for what its group says, each time that it is tended.
const TENDED_AT_ONCE: usize = 4;

/// How many records a member that rests keeps for its next poll; then it takes nothing more.
const KEPT_MAX: usize = 64;
