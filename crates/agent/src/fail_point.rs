//! Named places at which a test can end the work, as a crash would.
//!
//! In the crate's own tests an armed place panics on the test's thread. A debug build of the agent
//! ends its process there, with nothing cleaned up or flushed, when `THALWEG_FAIL_POINT=NAME:COUNT`
//! is set and the place is passed for the COUNT-th time. Release builds have neither.

/// Every place, in the order of a FlowFile's life.
pub const NAMES: [&str; 11] = [
    // A source has read its file.
    "files.read",
    // Its session is durable, the file is still there.
    "files.committed",
    // The file is gone.
    "files.settled",
    // Content has been handed to its journal, its session is not on record.
    "repository.content",
    // A session is complete in memory, its record not yet given to the journal.
    "repository.before_flush",
    // A session's record is on the disk, nobody has been told.
    "repository.after_flush",
    // A session's state is in effect, its FlowFiles are in no queue yet.
    "repository.transfer",
    // A part of a snapshot is to be written.
    "repository.snapshot",
    // Space was found free and is not yet given back.
    "repository.reclaim",
    // A sink has written a file under a name of its own.
    "put_file.written",
    // The file has its name, the session is not committed.
    "put_file.named",
];

/// The variable that a debug build looks at.
pub const VARIABLE: &str = "THALWEG_FAIL_POINT";

/// A place between two steps that a crash must be able to part; nothing in a release build.
#[cfg(not(any(test, debug_assertions)))]
#[inline]
pub(crate) fn fail_point(_name: &'static str) {}

/// A place between two steps that a crash must be able to part; the process ends here if the
/// variable asks for it.
#[cfg(all(debug_assertions, not(test)))]
pub(crate) fn fail_point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static ASKED: OnceLock<Option<(&str, AtomicU64)>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok()?;
        let Some((name, count)) = parse(&text) else {
            eprintln!("{VARIABLE}={text} is no NAME:COUNT of a fail point");
            std::process::abort();
        };
        Some((name, AtomicU64::new(count)))
    });
    if let Some((wanted, left)) = asked
        && *wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        eprintln!("the fail point {name} ends this process");
        std::process::abort();
    }
}

/// A place between two steps that a crash must be able to part; panics where a test armed it.
#[cfg(test)]
pub(crate) fn fail_point(name: &'static str) {
    if ARMED.with(|armed| is_due(armed, name)) {
        std::panic::panic_any(Crash(name));
    }
}

/// Whether a write at this place is to be refused, as by a full disk; only tests have that.
#[cfg(not(test))]
#[inline]
pub(crate) fn refuses(_name: &'static str) -> bool {
    false
}

/// Whether a write at this place is to be refused, as by a full disk.
#[cfg(test)]
pub(crate) fn refuses(name: &'static str) -> bool {
    REFUSING.with(|refusing| is_due(refusing, name))
}

/// Has a place on this thread refuse, when it is passed for so many times, or none.
#[cfg(test)]
pub(crate) fn refuse(place: Option<(&'static str, u32)>) {
    REFUSING.with(|refusing| refusing.set(place));
}

#[cfg(test)]
fn is_due(place: &Place, name: &'static str) -> bool {
    match place.get() {
        Some((wanted, left)) if wanted == name => {
            place.set((left > 1).then(|| (wanted, left - 1)));
            left == 1
        }
        _ => false,
    }
}

/// Arms a place on this thread, for when it is passed for so many times, or none.
#[cfg(test)]
pub(crate) fn arm(place: Option<(&'static str, u32)>) {
    ARMED.with(|armed| armed.set(place));
}

/// What a test's crash panics with.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Crash(pub(crate) &'static str);

#[cfg(test)]
thread_local! {
    static ARMED: Place = const { std::cell::Cell::new(None) };
    static REFUSING: Place = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
type Place = std::cell::Cell<Option<(&'static str, u32)>>;

/// Reads the variable.
#[cfg(any(test, debug_assertions))]
fn parse(text: &str) -> Option<(&'static str, u64)> {
    let (name, count) = text.split_once(':')?;
    let name = NAMES.into_iter().find(|known| *known == name)?;
    let count = count.parse().ok().filter(|count| *count > 0)?;
    Some((name, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_point_and_a_count() {
        for name in NAMES {
            assert_eq!(parse(&format!("{name}:3")), Some((name, 3)));
        }
        for wrong in ["", "files.read", "files.read:0", "nowhere:1", ":1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
