//! What a processor sees of the agent, and what wakes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Ground, Node};
use crate::bulletins::{Level, Source};
use crate::s2s::Ports;
use crate::signal::{Heard, Signal};

/// What a processor sees of the agent.
pub struct Context {
    pub(crate) node: Arc<Node>,
    pub(super) ground: Ground,
    pub(super) heard: Mutex<Heard>,
}

/// Wakes a processor from outside of its flow.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Wake>);

/// What a processor is told from outside of its task.
#[derive(Debug, Default)]
pub(super) struct Wake {
    pub(super) signal: Arc<Signal>,
    pub(super) is_woken: AtomicBool,
    pub(super) is_stopping: AtomicBool,
    /// Whether it rests until it is told to go on.
    pub(super) is_held: AtomicBool,
}

impl Context {
    /// The processor's id.
    pub fn id(&self) -> &str {
        &self.node.id
    }

    /// The processor's name.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Whether any connection leads to the processor.
    pub fn has_incoming(&self) -> bool {
        !self.node.inputs.is_empty()
    }

    /// The ports that site-to-site peers can reach.
    pub fn ports(&self) -> &Ports {
        &self.ground.ports
    }

    /// What tells, at any time, whether the processor is not held and no outgoing connection is full.
    pub(crate) fn has_room(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let node = Arc::clone(&self.node);
        move || !node.is_held() && !node.has_no_room()
    }

    /// What tells, at any time, whether FlowFiles wait for the processor.
    pub(crate) fn has_waiting(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let node = Arc::clone(&self.node);
        move || node.inputs.iter().any(|input| input.count() > 0)
    }

    /// What tells, at any time, whether the processor should come to an end soon.
    pub(crate) fn stop_look(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let wake = Arc::clone(&self.node.wake);
        move || wake.is_stopping.load(Ordering::Acquire)
    }

    /// Whether the processor should come to an end soon.
    pub fn is_stopping(&self) -> bool {
        self.node.wake.is_stopping.load(Ordering::Acquire)
    }

    /// Whether the processor may take more in a further session: it is not told to stop, to rest or
    /// to do one session a period, and has room for what it would make.
    pub fn may_go_on(&self) -> bool {
        !self.is_stopping()
            && !self.node.is_held()
            && !self.node.is_throttled()
            && !self.node.has_no_room()
    }

    /// Sleeps, but not beyond a stop; says whether the whole time went by.
    pub fn sleep(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        while !self.is_stopping() {
            if Instant::now() >= deadline {
                return true;
            }
            self.rest_until(Some(deadline));
        }
        false
    }

    /// Sleeps until it is rung or `deadline`.
    pub(super) fn rest_until(&self, deadline: Option<Instant>) {
        let mut heard = self.heard.lock();
        self.node.wake.signal.sleep(&mut heard, deadline);
    }

    /// What wakes this processor out of [`Next::Woken`].
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.node.wake))
    }

    /// Where futures run.
    pub fn runtime(&self) -> &tokio::runtime::Handle {
        &self.ground.runtime
    }

    /// Puts up a bulletin.
    pub fn post(&self, level: Level, message: &str) {
        post(&self.node, &self.ground, level, message);
    }

    /// What puts up bulletins of the processor, at any time.
    #[cfg(feature = "lua")]
    pub(crate) fn voice(&self) -> impl Fn(Level, &str) + Send + Sync + use<> {
        let (node, ground) = (Arc::clone(&self.node), self.ground.clone());
        move |level, message| post(&node, &ground, level, message)
    }
}

impl Waker {
    /// Wakes it.
    pub fn wake(&self) {
        self.0.is_woken.store(true, Ordering::Release);
        self.0.signal.ring();
    }
}

fn post(node: &Node, ground: &Ground, level: Level, message: &str) {
    if level < node.definition.bulletin_level {
        tracing::debug!(processor = node.name, "{message}");
        return;
    }
    let source = Source {
        id: &node.id,
        name: &node.name,
        group_id: &node.group_id,
    };
    let now = ground.clock.now();
    ground.bulletins.post(now, level, source, message);
}
