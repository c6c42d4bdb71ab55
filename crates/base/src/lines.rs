//! How much is logged of what strangers may bring about as often as they like.

use crate::UnixMillis;

/// Lets so many lines a minute into the log: who tries for ever must neither fill the disk nor push what
/// else was logged out of it. What is left out is for counters to tell.
#[derive(Debug, Default)]
pub struct LinesPerMinute {
    minute: i64,
    logged: usize,
}

impl LinesPerMinute {
    /// Whether one more is logged, of `most` a minute.
    pub fn admits(&mut self, now: UnixMillis, most: usize) -> bool {
        let minute = now.0 / 60_000;
        if minute != self.minute {
            (self.minute, self.logged) = (minute, 0);
        }
        let admits = self.logged < most;
        self.logged += usize::from(admits);
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_minute_are_logged() {
        let mut lines = LinesPerMinute::default();
        let logged = (0..1_000).filter(|_| lines.admits(UnixMillis(60_000), 60));
        assert_eq!(logged.count(), 60);
        assert!(lines.admits(UnixMillis(120_000), 60));
    }
}
