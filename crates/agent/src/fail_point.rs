//! Spots at which a test has the process end as a crash would. Debug builds only.
//!
//! `THALWEG_FAIL_POINT=NAME:COUNT` ends the process, with nothing cleaned up or flushed, when the
//! spot NAME is passed for the COUNT-th time; the next start of the same command would end there
//! too, so a test takes the variable away again. Release builds have neither the spots nor the
//! variable.

#[cfg(debug_assertions)]
use std::sync::OnceLock;
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering};

/// A spot between two steps that a crash must be allowed to part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// Content has been handed to its store, its session is not on record.
    ContentAppended,
    /// A session is complete in memory, its record not yet given to the journal.
    BeforeFlush,
    /// A session's record is on the disk, nobody has been told.
    AfterFlush,
    /// A part of a snapshot is written.
    InSnapshot,
    /// Space was found free and not yet given back.
    InReclaim,
    /// A source's session is durable, its file still there.
    SourceDelete,
    /// A session's state is in effect, its FlowFiles are in no queue yet.
    StateAndTransfer,
}

impl FailPoint {
    /// Every spot.
    pub const ALL: [FailPoint; 7] = [
        FailPoint::ContentAppended,
        FailPoint::BeforeFlush,
        FailPoint::AfterFlush,
        FailPoint::InSnapshot,
        FailPoint::InReclaim,
        FailPoint::SourceDelete,
        FailPoint::StateAndTransfer,
    ];

    /// The name in the variable.
    pub fn name(self) -> &'static str {
        match self {
            FailPoint::ContentAppended => "content-appended",
            FailPoint::BeforeFlush => "before-flush",
            FailPoint::AfterFlush => "after-flush",
            FailPoint::InSnapshot => "in-snapshot",
            FailPoint::InReclaim => "in-reclaim",
            FailPoint::SourceDelete => "source-delete",
            FailPoint::StateAndTransfer => "state-and-transfer",
        }
    }

    /// Ends the process here if the variable asks for it.
    #[inline]
    pub fn pass(self) {
        #[cfg(debug_assertions)]
        count_down(self);
    }
}

/// The variable.
pub const VARIABLE: &str = "THALWEG_FAIL_POINT";

#[cfg(debug_assertions)]
fn count_down(point: FailPoint) {
    static ASKED: OnceLock<Option<(FailPoint, AtomicU64)>> = OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let text = std::env::var(VARIABLE).ok()?;
        match parse(&text) {
            Some((point, count)) => Some((point, AtomicU64::new(count))),
            None => {
                eprintln!("{VARIABLE}={text} is no NAME:COUNT of a fail point");
                std::process::abort();
            }
        }
    });
    if let Some((wanted, left)) = asked
        && *wanted == point
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        eprintln!("the fail point {} ends this process", point.name());
        std::process::abort();
    }
}

#[cfg(debug_assertions)]
fn parse(text: &str) -> Option<(FailPoint, u64)> {
    let (name, count) = text.split_once(':')?;
    let point = FailPoint::ALL
        .into_iter()
        .find(|point| point.name() == name)?;
    let count = count.parse().ok().filter(|count| *count > 0)?;
    Some((point, count))
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn the_variable_names_a_point_and_a_count() {
        for point in FailPoint::ALL {
            assert_eq!(parse(&format!("{}:3", point.name())), Some((point, 3)));
        }
        for wrong in ["", "in-snapshot", "in-snapshot:0", "nowhere:1", ":1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
