//! Heartbeats of a group's member, on a thread of their own: they go on while the processor is
//! held back or busy.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::{GroupId, HeartbeatRequest};
use kafka_protocol::protocol::StrBytes;
use parking_lot::{Condvar, Mutex};

use super::cluster::Linker;
use super::group::GroupSettings;
use super::link::{KafkaError, Link};

/// A membership that is kept up; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Heart {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_ended: bool,
    /// The coordinator wants the member to join again, or has not been heard of for too long.
    is_over: bool,
}

impl Heart {
    /// Beats for `member` in `generation`.
    pub(crate) fn start(
        linker: Linker,
        settings: GroupSettings,
        member: &str,
        generation: i32,
    ) -> io::Result<Heart> {
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(settings.id.clone())))
            .with_generation_id(generation)
            .with_member_id(StrBytes::from_string(member.to_owned()));
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("kafka-heart".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || beat(&of_thread, &linker, &request, settings.session_timeout))?;
        Ok(Heart {
            shared,
            thread: Some(thread),
        })
    }

    /// Whether the membership still holds.
    pub(crate) fn beats(&self) -> bool {
        !self.shared.state.lock().is_over
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.shared.state.lock().is_ended = true;
        self.shared.bell.notify_all();
        // The thread may be waiting for an answer: it ends by itself soon after.
        drop(self.thread.take());
    }
}

fn beat(shared: &Shared, linker: &Linker, request: &HeartbeatRequest, timeout: Duration) {
    let period = (timeout / 3).min(PERIOD_MAX);
    let mut link: Option<Link> = None;
    let mut heard = Instant::now();
    loop {
        let mut state = shared.state.lock();
        if !state.is_ended {
            shared.bell.wait_for(&mut state, period);
        }
        if state.is_ended {
            return;
        }
        drop(state);
        let stops = || shared.state.lock().is_ended;
        match ask(linker, &mut link, request, &stops) {
            Ok(None) => heard = Instant::now(),
            Ok(Some(error)) => {
                tracing::debug!(%error, "the group is to be joined again");
                shared.state.lock().is_over = true;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "a heartbeat was not answered");
                link = None;
                if heard.elapsed() > timeout {
                    shared.state.lock().is_over = true;
                    return;
                }
            }
        }
    }
}

fn ask(
    linker: &Linker,
    link: &mut Option<Link>,
    request: &HeartbeatRequest,
    stops: &dyn Fn() -> bool,
) -> Result<Option<ResponseError>, KafkaError> {
    let open = match link.take() {
        Some(open) => open,
        None => linker.connect(stops)?,
    };
    let open = link.insert(open);
    let (answer, _) = open.call(request, VERSION_MAX, ANSWER_WAIT, stops)?;
    Ok(ResponseError::try_from_code(answer.error_code))
}

const VERSION_MAX: i16 = 3;

/// Longest pause between two heartbeats: how soon a rebalance is noticed.
const PERIOD_MAX: Duration = Duration::from_secs(3);

/// Longest wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Stack of the thread; TLS needs some.
const STACK_BYTES: usize = 256 << 10;
