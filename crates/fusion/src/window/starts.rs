//! Where windows begin.

/// Starts of windows, in order.
#[derive(Clone, Copy, Debug)]
pub struct Starts {
    pub(super) next: i64,
    pub(super) last: i64,
    step_ms: i64,
}

impl Iterator for Starts {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        if self.next > self.last {
            return None;
        }
        let start = self.next;
        self.next = start.saturating_add(self.step_ms);
        Some(start)
    }
}

/// The starts of the windows of that length, one every `step_ms`, that `time` lies in.
pub fn starts(length_ms: i64, step_ms: i64, time: i64) -> Starts {
    let last = time.div_euclid(step_ms).saturating_mul(step_ms);
    // Of the windows that end after `time` the first.
    let next = (time.saturating_sub(length_ms).div_euclid(step_ms) + 1).saturating_mul(step_ms);
    Starts {
        next,
        last,
        step_ms,
    }
}
