//! A caller carries its own append: writes and syncs it on its own thread while the writer sleeps.
//!
//! What a lone append costs is mostly the way to the writer's thread and back. A caller that has
//! nothing else to do until it is answered spares that: while it holds a [`Carrier`], an append of
//! its thread that finds the writer asleep leaves it asleep, and [`Carrier::carry`] does the writer's
//! work. The writer lies where it sleeps ([`Parked`]), so that only one of the two can have it.
//!
//! The thread is called all the same as soon as anybody else appends, where there is much to write,
//! where more has gathered meanwhile, and for what may take long, space and seals. What is to be synced
//! later, since nobody waits for it, is synced by the thread when its time comes. A disk that is slow, and others who append at the same time, end the
//! carrying for a while ([`Trust`]).

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::JournalError;
use crate::format::FRAME_OVERHEAD_BYTES;
use crate::journal::Journal;
use crate::limits;
use crate::state::{Asleep, Condition, Parked, Shared, State};

/// Lets appends of this thread be left to it; dropped without [`Carrier::carry`], it leaves them to
/// the writer. A thread has one at a time, and whoever holds it must not wait for anything that such
/// an append is to reach.
#[must_use = "what is appended while it is held waits for it"]
#[derive(Debug)]
pub struct Carrier {
    stays_on_thread: PhantomData<*const ()>,
}

/// What the thread's [`Carrier`] is for.
struct Offer {
    shared: Arc<Shared>,
    /// An append was left to it.
    is_promised: bool,
}

/// Whether callers may carry their appends, by what came of it.
pub(crate) struct Trust {
    /// Appends to be left to the writer until the next one may be carried.
    declined: u32,
    /// How many it will be after a bad one.
    declined_next: u32,
}

impl Trust {
    pub(crate) fn new() -> Self {
        Trust {
            declined: 0,
            declined_next: limits::DECLINED_MIN,
        }
    }

    /// Whether this append may be carried.
    pub(crate) fn grants(&mut self) -> bool {
        let grants = self.declined == 0;
        self.declined = self.declined.saturating_sub(1);
        grants
    }

    /// Notes how one went: good where the disk was quick and nobody else came meanwhile.
    pub(crate) fn note(&mut self, was_good: bool) {
        if was_good {
            self.declined_next = limits::DECLINED_MIN;
            return;
        }
        self.declined = self.declined_next;
        self.declined_next = (2 * self.declined_next).min(limits::DECLINED_MAX);
    }
}

thread_local! {
    static OFFER: RefCell<Option<Offer>> = const { RefCell::new(None) };
    /// The journal whose writer's work this thread does.
    static CARRYING: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

impl Journal {
    /// Lets the appends of this thread be carried by it; see [`Carrier`].
    pub fn carrier(&self) -> Carrier {
        forgo();
        let offer = Offer {
            shared: Arc::clone(self.shared()),
            is_promised: false,
        };
        OFFER.set(Some(offer));
        Carrier {
            stays_on_thread: PhantomData,
        }
    }
}

impl Carrier {
    /// Carries what was appended: its callbacks have run, on this thread, when this returns true.
    /// Blocks on the disk for as long as that takes. False where the writer does it.
    pub fn carry(self) -> bool {
        match OFFER.take() {
            Some(offer) if offer.is_promised => carry(&offer.shared),
            _ => false,
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        forgo();
    }
}

/// Leaves what this thread has promised to carry to the writer, and promises no more.
pub(crate) fn forgo() {
    let Some(offer) = OFFER.take().filter(|offer| offer.is_promised) else {
        return;
    };
    let mut state = offer.shared.state.lock();
    match std::mem::replace(&mut state.parked, Parked::No) {
        Parked::Promised(asleep) => offer.shared.call(state, asleep),
        parked => state.parked = parked,
    }
}

/// Promises to carry what is pending, if this thread may.
pub(crate) fn promises(shared: &Shared, state: &mut State) -> bool {
    OFFER.with_borrow_mut(|offer| match offer {
        Some(offer) if ptr::eq(&*offer.shared, shared) => {
            offer.is_promised = state.may_be_carried() && state.trust.grants();
            offer.is_promised
        }
        _ => false,
    })
}

/// Whether it was this thread that has promised to carry what is pending.
pub(crate) fn has_promised(shared: &Shared) -> bool {
    OFFER.with_borrow(|offer| {
        let own = offer.as_ref();
        own.is_some_and(|offer| offer.is_promised && ptr::eq(&*offer.shared, shared))
    })
}

/// Whether this thread is at work in the writer's place.
pub(crate) fn is_carrying(shared: &Shared) -> bool {
    ptr::eq(CARRYING.get(), shared)
}

fn carry(shared: &Arc<Shared>) -> bool {
    let mut asleep = {
        let mut state = shared.state.lock();
        match std::mem::replace(&mut state.parked, Parked::Carried { is_called: false }) {
            Parked::Promised(asleep) => asleep,
            // It was called meanwhile.
            parked => {
                state.parked = parked;
                return false;
            }
        }
    };
    let (outer, began) = (CARRYING.replace(Arc::as_ptr(shared)), Instant::now());
    let carried = catch_unwind(AssertUnwindSafe(|| asleep.writer.carry()));
    CARRYING.set(outer);
    if carried.is_err() {
        let cause = io::Error::other("a completion panicked");
        shared.poison(JournalError::io("write", &shared.dir, cause));
    }
    let is_carried = carried.unwrap_or(false);
    let telemetry = &shared.telemetry;
    telemetry
        .carried
        .fetch_add(u64::from(is_carried), Ordering::Relaxed);
    end(shared, asleep, is_carried.then(|| began.elapsed()));
    is_carried
}

/// Gives the writer back, and calls it where it has something to do.
fn end(shared: &Shared, asleep: Asleep, took: Option<Duration>) {
    let mut state = shared.state.lock();
    let is_lone = state.pending.is_empty();
    let is_quick = took.is_some_and(|took| took <= shared.options.carried_time_max);
    state.trust.note(is_lone && is_quick);
    let commit = &asleep.writer.commit;
    if commit.is_short_of_space(&state) {
        state.want = state.want.max(FRAME_OVERHEAD_BYTES);
    }
    let is_owed_sooner = commit
        .owed_until()
        .is_some_and(|owed| asleep.until.is_none_or(|until| owed < until));
    let is_called = matches!(state.parked, Parked::Carried { is_called: true })
        || is_owed_sooner
        || state.has_work()
        || !matches!(state.condition, Condition::Open);
    if is_called {
        shared.call(state, asleep);
    } else {
        state.parked = Parked::Asleep(asleep);
    }
}
