//! Another form takes a statement's place: what gives it events is held back, its writer stands still,
//! and its state goes over.
//!
//! From the moment at which the sinks have the old form's rows nothing may reach it or come of it: not
//! an event of any of its sources, nor a row of the statements above it on internal streams, nor what
//! those or it do by the clock, nor a checkpoint of its writer's, which would be kept behind the new
//! form's first. Statements below it go on: it may be their rows that its sinks wait for.

use std::sync::Arc;

use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::Fusion;
use super::listing::{Running, Statement};
use super::sources::{Prepared, Sources};
use crate::chains::{self, Chains};
use crate::codec::{Decoder, Encoder};
use crate::error::FusionError;
use crate::feed::Feed;
use crate::lane::checkpoint::encode;
use crate::lane::{Lane, Sequence};
use crate::limits::REPLACE_WAIT;
use crate::output::Output;

/// All that gives a statement events, held back while another form takes its place; let go when this
/// is dropped.
pub(super) struct HeldBack {
    /// The statement's own source.
    feed: Arc<Feed>,
    /// Its further sources, and those of the statements above it.
    more: Vec<Arc<Feed>>,
    /// The statements whose rows come to it.
    above: Vec<Arc<Lane>>,
    chains: Arc<Chains>,
}

impl HeldBack {
    /// Holds back all that gives this statement events.
    pub(super) fn new(fusion: &Fusion, sources: &mut Sources, old: &Running) -> HeldBack {
        // Nothing comes along chains to others.
        let is_chained = old.lane.is_chained();
        let running: Vec<Running> = {
            let statements = fusion.statements.read();
            let run = |known: &Arc<Statement>| known.run.clone().ok();
            let all = statements.values().filter(|_| is_chained);
            all.filter_map(run).collect()
        };
        let is_old = |known: &Running| Arc::ptr_eq(&known.lane, &old.lane);
        let others = running.iter().filter(|known| !is_old(known));
        let above = chains::above(&old.lane, others.map(|known| known.lane.clone()).collect());
        let is_above = |known: &&Running| above.iter().any(|lane| Arc::ptr_eq(lane, &known.lane));
        let keys = running.iter().filter(is_above);
        let keys = keys.flat_map(|known| std::iter::once(&known.key).chain(&known.more));
        let keys: Vec<_> = old.more.iter().chain(keys).collect();
        let held = HeldBack {
            feed: fusion.feed(sources, &old.key),
            more: keys.iter().map(|key| fusion.feed(sources, key)).collect(),
            above,
            chains: fusion.chains.clone(),
        };
        std::iter::once(&held.feed)
            .chain(&held.more)
            .for_each(|feed| feed.hold());
        held.chains.hold();
        held.hold_clocks(true);
        held
    }

    /// Has the clocks of those above stand still, or go on.
    fn hold_clocks(&self, is_held: bool) {
        // None of them is in the middle of what it does by its clock.
        let _gate = self.chains.enter();
        for lane in &self.above {
            lane.state.lock().is_held = is_held;
            lane.wake.notify_one();
        }
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        self.hold_clocks(false);
        self.chains.let_go();
        std::iter::once(&self.feed)
            .chain(&self.more)
            .for_each(|feed| feed.let_go());
    }
}

impl Fusion {
    /// Waits until the sinks have the old form's rows, gives the new one what it goes on from, and
    /// keeps both. The source is held.
    pub(super) async fn take_over<'o>(
        &self,
        held: &HeldBack,
        prepared: &Prepared,
        old: &'o Running,
        keeps: bool,
    ) -> Result<MutexGuard<'o, ()>, FusionError> {
        let (lane, sequence) = (&prepared.lane, prepared.sequence);
        let deadline = Instant::now() + REPLACE_WAIT;
        let (turn, checkpoint) = loop {
            let turn = drained(&old.lane, deadline).await?;
            if let Some(checkpoint) = graft(lane, &old.lane, sequence, keeps)? {
                break (turn, checkpoint);
            }
        };
        if let Some(log) = held.feed.input() {
            // What is counted has to stand in the input first.
            let settled = tokio::time::timeout_at(deadline, log.settle(log.next()));
            let settled = settled.await.map_err(|_| {
                FusionError::Busy("the disk does not take the statement's input".to_owned())
            })?;
            settled.map_err(FusionError::journal("write an input beside"))?;
        }
        self.journal
            .replace(&lane.definition, &checkpoint, !keeps)
            .await?;
        Ok(turn)
    }
}

/// Gives a lane what it goes on from; its first checkpoint. None where the old form has made rows
/// since it was looked at last.
fn graft(
    lane: &Lane,
    old: &Lane,
    sequence: Sequence,
    keeps: bool,
) -> Result<Option<Vec<u8>>, FusionError> {
    let (mut state, before) = (lane.state.lock(), old.state.lock());
    if !before.output.is_empty() {
        return Ok(None);
    }
    // Of a join it is the topic that positions are of, wherever it stands.
    let is_same = match (
        lane.plan.kafka_topics().next(),
        old.plan.kafka_topics().next(),
    ) {
        (None, None) => lane.plan.source == old.plan.source,
        (topic, before) => topic == before,
    };
    if is_same {
        state.positions.clone_from(&before.positions);
    }
    state.meter = before.meter.clone();
    if keeps {
        let mut kept = Encoder::default();
        before.machine.encode((0, 0), &mut kept);
        let fresh = state.machine.clone();
        state.machine = fresh.decode(&mut Decoder::new(&kept.0)).ok_or_else(|| {
            FusionError::Refused(
                "the state does not fit the new text: send \"state\": \"reset\"".to_owned(),
            )
        })?;
    } else {
        state.machine.take_books(before.machine.books());
    }
    let nothing = Output::default();
    Ok(Some(encode(
        &state.machine,
        (0, 0),
        &state.positions,
        sequence,
        &nothing,
    )))
}

/// Waits until the sinks have all rows of a lane that gets no more. Its writer stands still while what
/// this gives is held: it neither does what is due by the clock nor keeps a checkpoint.
async fn drained(lane: &Lane, deadline: Instant) -> Result<MutexGuard<'_, ()>, FusionError> {
    let waiting = async {
        loop {
            let idle = lane.idle.notified();
            let mut idle = std::pin::pin!(idle);
            idle.as_mut().enable();
            let turn = lane.turn.lock().await;
            if lane.is_drained() {
                return turn;
            }
            drop(turn);
            lane.wake.notify_one();
            idle.await;
        }
    };
    tokio::time::timeout_at(deadline, waiting)
        .await
        .map_err(|_| {
            FusionError::Busy(
            "the sink does not take the rows that wait: replace the statement when it does, or \
             remove it"
                .to_owned(),
        )
        })
}
