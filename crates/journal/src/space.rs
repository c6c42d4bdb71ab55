//! Space ahead of the appends: extends the active segment, readies the next, seals early where the
//! disk is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{Clock, SystemClock};

use crate::commit::Commit;
use crate::error::JournalError;
use crate::format::{FRAME_OVERHEAD_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::limits;
use crate::segment::Segment;
use crate::spares::Spares;
use crate::state::{Shared, State, Tail};
use crate::syncer::Round;

impl Commit {
    /// Makes space ahead of the appends: extends the active segment, then readies the next.
    pub(crate) fn allocate_ahead(&mut self) {
        while !self.poisoned {
            let plan = {
                let mut state = self.shared.state.lock();
                let plan = self.plan(&state);
                if plan.is_none() {
                    state.want = 0;
                    state.want_is_vital = false;
                }
                plan
            };
            let Some(plan) = plan else { break };
            match self.allocate(plan) {
                Ok(()) => {}
                // Waiting for room would not help, and whoever is told of it should hear why.
                Err(AllocateError::NoRoom(error))
                    if error.kind() == io::ErrorKind::ReadOnlyFilesystem =>
                {
                    let dir = &self.shared.dir;
                    self.poison(JournalError::io("make room in", dir, error));
                    return;
                }
                Err(AllocateError::NoRoom(_))
                    if self.shared.spares.give_up_one(&*self.shared.disk) => {}
                Err(AllocateError::NoRoom(error)) => {
                    let mut state = self.shared.state.lock();
                    if state.full.is_none() {
                        tracing::warn!(
                            dir = %self.shared.dir.display(),
                            error = %error,
                            "the journal found no room on the disk; appends are refused until \
                             there is"
                        );
                    }
                    state.full = Some(Arc::new(error));
                    state.want = 0;
                    state.want_is_vital = false;
                    break;
                }
                Err(AllocateError::Broken(error)) => {
                    self.poison(error);
                    return;
                }
            }
        }
        self.shared.notify_room();
    }

    /// Whether space is to be made ahead of the appends.
    pub(crate) fn is_short_of_space(&self, state: &State) -> bool {
        self.plan(state).is_some()
    }

    /// Gives the room that the active segment has left to a next one and goes on there, if that
    /// was asked for.
    pub(crate) fn seal_early(&mut self) -> Result<(), JournalError> {
        let (mut tail, kept) = {
            let mut state = self.shared.state.lock();
            if !std::mem::take(&mut state.seals_early) || state.next.is_some() {
                return Ok(());
            }
            let kept = state.end + FRAME_OVERHEAD_BYTES;
            let tail = state.active.clone();
            if tail.admitted < kept + limits::SEALED_EARLY_LEFT_MIN {
                return Ok(());
            }
            // Nothing is placed in it from here on.
            state.active.admitted = kept;
            (tail, kept)
        };
        let left = tail.admitted - kept;
        let segment = &tail.segment;
        let len = kept - segment.base;
        tail.file
            .truncate(len)
            .and_then(|()| tail.file.sync())
            .map_err(|error| {
                JournalError::io("shorten", &self.shared.table.path(segment.base), error)
            })?;
        segment.len.store(len, Ordering::Relaxed);
        let size = self.shared.options.segment_bytes;
        // A disk gives back whole blocks only, and may need one to tell of a new file.
        for blocks in [0, 1, 3] {
            let len = left - blocks * limits::DISK_BLOCK_BYTES;
            match create_segment(&self.shared, segment.limit(), size, len) {
                Ok(made) => {
                    let table = &self.shared.table;
                    table.insert(made.segment.clone(), Some(made.file.clone()));
                    let mut state = self.shared.state.lock();
                    state.next = Some(made);
                    state.roll_over();
                    return Ok(());
                }
                Err(AllocateError::NoRoom(_)) => {}
                Err(AllocateError::Broken(error)) => return Err(error),
            }
        }
        // Somebody else was faster; what there is still is taken back.
        let admitted = tail.admitted;
        tail.admitted = kept;
        match self.extend(&tail, admitted) {
            Ok(admitted) => self.shared.state.lock().active.admitted = admitted,
            Err(AllocateError::NoRoom(_)) => {}
            Err(AllocateError::Broken(error)) => return Err(error),
        }
        Ok(())
    }

    /// The next allocation that is due.
    fn plan(&self, state: &State) -> Option<Plan> {
        let options = &self.shared.options;
        let want = state.want;
        let reserve = if state.want_is_vital {
            0
        } else {
            state.reserve
        };
        let step = options.preallocate_bytes;
        let active = &state.active;
        let limit = active.segment.limit();
        let fits_here = state.end + want + FRAME_OVERHEAD_BYTES <= limit;
        // A little less with a reserve, which is room ahead too while the disk has some.
        let lead = want.max((step / 2).saturating_sub(reserve / 4)) + reserve;
        let ahead = state.end + lead + FRAME_OVERHEAD_BYTES;
        let seal_end = state.end + FRAME_OVERHEAD_BYTES;
        if active.admitted < seal_end || (fits_here && active.admitted < limit.min(ahead)) {
            let needed = if fits_here {
                seal_end + want + reserve
            } else {
                seal_end
            };
            return Some(Plan::Extend {
                tail: active.clone(),
                to: limit.min(needed.max(active.admitted + step)),
                at_least: limit.min(needed.max(active.admitted)),
            });
        }
        if ahead <= limit {
            return None;
        }
        let first_want = if fits_here { 0 } else { want };
        let size = options.segment_bytes;
        let needed = SEGMENT_HEADER_BYTES + first_want + reserve + FRAME_OVERHEAD_BYTES;
        let needed = needed.min(size);
        match &state.next {
            None => {
                let len = size.min(needed.max(step));
                Some(Plan::Create {
                    base: limit,
                    size,
                    len,
                    at_least: needed,
                })
            }
            Some(next) if next.admitted < next.segment.base + needed => Some(Plan::Extend {
                tail: next.clone(),
                to: next
                    .segment
                    .limit()
                    .min(next.segment.base + needed.max(step)),
                at_least: next.segment.base + needed,
            }),
            Some(_) => None,
        }
    }

    fn allocate(&mut self, plan: Plan) -> Result<(), AllocateError> {
        match plan {
            Plan::Extend { tail, to, at_least } => {
                let admitted = match self.extend(&tail, to) {
                    Err(AllocateError::NoRoom(_)) if tail.admitted < at_least && at_least < to => {
                        self.extend(&tail, at_least)
                    }
                    other => other,
                }?;
                let mut state = self.shared.state.lock();
                let base = tail.segment.base;
                if state.active.segment.base == base {
                    state.active.admitted = admitted;
                } else if let Some(next) = state.next.as_mut().filter(|n| n.segment.base == base) {
                    next.admitted = admitted;
                }
                state.full = None;
            }
            Plan::Create {
                base,
                size,
                len,
                at_least,
            } => {
                let made = match make_segment(&self.shared, base, size, len) {
                    Err(AllocateError::NoRoom(_)) if at_least < len => {
                        make_segment(&self.shared, base, size, at_least)
                    }
                    other => other,
                }?;
                if self.is_behind() {
                    self.hand(Round {
                        grown: vec![made.clone()],
                        has_new: true,
                        ..Round::default()
                    });
                } else {
                    settle_segment(
                        &*self.shared.disk,
                        &self.shared.dir,
                        &self.shared.table,
                        &made,
                    )?;
                }
                self.shared
                    .table
                    .insert(made.segment.clone(), Some(made.file.clone()));
                let mut state = self.shared.state.lock();
                state.next = Some(made);
                state.full = None;
            }
        }
        Ok(())
    }

    /// Reserves the segment's space up to position `to`.
    fn extend(&mut self, tail: &Tail, to: u64) -> Result<u64, AllocateError> {
        let segment = &tail.segment;
        let from = tail.admitted - segment.base;
        let len = to - segment.base;
        if let Err(error) = tail.file.allocate(from, len - from) {
            // What was reserved before the disk ran out is given back; if not, it is only space.
            let _ = tail.file.truncate(from);
            return Err(AllocateError::NoRoom(error));
        }
        segment.len.store(len, Ordering::Relaxed);
        if self.is_behind() {
            // Nobody waits for the space to be durable.
            self.hand(Round {
                grown: vec![tail.clone()],
                ..Round::default()
            });
            return Ok(to);
        }
        tail.file.sync().map_err(|error| {
            let path = self.shared.table.path(segment.base);
            AllocateError::Broken(JournalError::io("sync", &path, error))
        })?;
        Ok(to)
    }
}

/// Makes the segment at `base` with `len` bytes reserved, durable before anyone relies on it.
pub(crate) fn create_segment(
    shared: &Shared,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    create_segment_on(&*shared.disk, &shared.dir, &shared.table, base, size, len)
}

pub(crate) fn create_segment_on(
    disk: &dyn crate::disk::Disk,
    dir: &std::path::Path,
    table: &crate::segment::SegmentTable,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    let made = make_segment_on(disk, table, None, base, size, len)?;
    settle_segment(disk, dir, table, &made)?;
    Ok(made)
}

fn make_segment(shared: &Shared, base: u64, size: u64, len: u64) -> Result<Tail, AllocateError> {
    let spares = Some(&shared.spares);
    make_segment_on(&*shared.disk, &shared.table, spares, base, size, len)
}

fn make_segment_on(
    disk: &dyn crate::disk::Disk,
    table: &crate::segment::SegmentTable,
    spares: Option<&Spares>,
    base: u64,
    size: u64,
    len: u64,
) -> Result<Tail, AllocateError> {
    let path = table.path(base);
    let created = SystemClock.now();
    let header = SegmentHeader {
        base,
        size,
        created,
    };
    let header = header.encode();
    let spare = match spares {
        Some(spares) => spares.become_segment(disk, &path, &header, size),
        None => Ok(None),
    };
    let (file, len) = match spare.map_err(AllocateError::NoRoom)? {
        Some((file, spare_len)) => {
            if spare_len < len {
                // What cannot be reserved now is when it is needed.
                let extended = file.allocate(spare_len, len - spare_len);
                (file, if extended.is_ok() { len } else { spare_len })
            } else {
                (file, spare_len)
            }
        }
        None => (new_file(disk, &path, &header, len)?, len),
    };
    let segment = Arc::new(Segment::new(base, size, created, len));
    Ok(Tail {
        segment,
        file,
        admitted: base + len,
    })
}

fn new_file(
    disk: &dyn crate::disk::Disk,
    path: &std::path::Path,
    header: &[u8],
    len: u64,
) -> Result<Arc<dyn crate::disk::File>, AllocateError> {
    let file = disk.create(path).map_err(AllocateError::NoRoom)?;
    if let Err(error) = file
        .allocate(0, len)
        .and_then(|()| file.write_at(header, 0))
    {
        // A file without a whole header is nothing to recovery; removing it only frees space.
        let _ = disk.remove(path);
        return Err(AllocateError::NoRoom(error));
    }
    Ok(file)
}

/// Makes a new segment durable, with its name.
fn settle_segment(
    disk: &dyn crate::disk::Disk,
    dir: &std::path::Path,
    table: &crate::segment::SegmentTable,
    made: &Tail,
) -> Result<(), AllocateError> {
    let path = table.path(made.segment.base);
    let broken = |what, error| AllocateError::Broken(JournalError::io("sync", what, error));
    made.file.sync().map_err(|error| broken(&path, error))?;
    disk.sync_dir(dir).map_err(|error| broken(dir, error))
}

enum Plan {
    Extend {
        tail: Tail,
        to: u64,
        at_least: u64,
    },
    Create {
        base: u64,
        size: u64,
        len: u64,
        at_least: u64,
    },
}

pub(crate) enum AllocateError {
    /// Nothing was harmed; worth another try later.
    NoRoom(io::Error),
    /// A sync failed.
    Broken(JournalError),
}
