//! Holds single processors of a running flow and lets them go on, empties queues, drains.
//!
//! A held processor keeps its thread, its queues and what it knows; it is only not triggered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Engine, Node};
use crate::AgentError;

impl Node {
    /// Whether it rests until it is told to go on.
    pub(super) fn is_held(&self) -> bool {
        self.wake.is_held.load(Ordering::SeqCst)
    }

    /// Marks a task as at work, unless the processor is held. Whoever holds it afterwards sees the
    /// mark, so that no run begins behind the holder's back.
    pub(super) fn begins(&self) -> bool {
        self.active.fetch_add(1, Ordering::SeqCst);
        let is_held = self.is_held();
        if is_held {
            self.active.fetch_sub(1, Ordering::SeqCst);
        }
        !is_held
    }

    fn is_at_work(&self) -> bool {
        self.active.load(Ordering::SeqCst) > 0
    }

    /// Whether nothing leads to it: what it makes comes from outside.
    pub(crate) fn is_source(&self) -> bool {
        self.inputs.is_empty()
    }
}

impl Engine {
    /// The ids of the processors of this id or name.
    pub fn find(&self, processor: &str) -> Vec<String> {
        let is_meant = |node: &&Arc<Node>| node.id == processor || node.name == processor;
        let found = self.nodes.iter().filter(is_meant);
        found.map(|node| node.id.clone()).collect()
    }

    /// Holds the processors that `is_held` names, and lets the others go on.
    pub(crate) fn hold(&self, is_held: impl Fn(&Node) -> bool) {
        for node in &self.nodes {
            node.wake.is_held.store(is_held(node), Ordering::SeqCst);
            node.wake.signal.ring();
        }
    }

    /// Waits until no held processor is at work; the name of one that still is after `wait`.
    pub fn settle(&self, wait: Duration) -> Option<String> {
        let deadline = Instant::now() + wait;
        loop {
            let busy = self
                .nodes
                .iter()
                .find(|node| node.is_held() && node.is_at_work());
            match busy {
                Some(node) if Instant::now() >= deadline => return Some(node.name.clone()),
                Some(_) => std::thread::sleep(LOOK_AGAIN),
                None => return None,
            }
        }
    }

    /// Stops the sources and waits until every queue is empty; whether they are, after `wait` at
    /// the latest.
    pub fn drain(&self, wait: Duration) -> bool {
        for node in self.nodes.iter().filter(|node| node.is_source()) {
            node.wake.is_held.store(true, Ordering::SeqCst);
            node.wake.signal.ring();
        }
        let deadline = Instant::now() + wait;
        loop {
            // What a session holds is in no queue: it counts as long as its processor is at work.
            let is_busy = |node: &Arc<Node>| node.is_at_work();
            let is_empty = !self.nodes.iter().any(is_busy)
                && self.connections.iter().all(|queue| queue.count() == 0)
                && !self.nodes.iter().any(is_busy);
            if is_empty || Instant::now() >= deadline {
                return is_empty;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The ids of the connections of this id or name.
    pub fn find_connections(&self, connection: &str) -> Vec<String> {
        let definitions = self.connections.iter().map(|queue| &queue.definition);
        let found = definitions.filter(|d| d.id == connection || d.name == connection);
        found.map(|definition| definition.id.clone()).collect()
    }

    /// Names of the processors that are at work.
    pub fn busy(&self) -> Vec<String> {
        let busy = self.nodes.iter().filter(|node| node.is_at_work());
        busy.map(|node| node.name.clone()).collect()
    }

    /// Asks every processor to stop; whether all did within `wait`. Afterwards the flow can only
    /// be stopped.
    pub fn ask_to_stop(&self, wait: Duration) -> bool {
        for node in &self.nodes {
            node.wake.is_stopping.store(true, Ordering::Release);
            node.wake.signal.ring();
        }
        let deadline = Instant::now() + wait;
        while Instant::now() < deadline {
            if self.threads.iter().all(|thread| thread.is_finished()) {
                return true;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        self.threads.iter().all(|thread| thread.is_finished())
    }

    /// Drops what is queued in these connections, durably; how many FlowFiles that were.
    pub fn clear(&self, connections: &[String]) -> Result<u64, AgentError> {
        let is_meant = |id: &str| connections.iter().any(|wanted| wanted == id);
        let now = self.ground.clock.now();
        self.ground.repository.discard(now, &is_meant)
    }
}

/// Pause between two looks at what cannot ring.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
