//! Whether a signed control message is new: it says when it was issued, and counts once, for a while.
//!
//! What was had is remembered for as long as it could come again, and what was issued before this
//! process began counts as old, since nobody knows whether it was had then. No IO.

use std::collections::{BTreeSet, HashSet};

use base::UnixMillis;

use crate::limits::CONTROL_HAD_MAX;

/// The messages that were had.
pub struct Fresh {
    began: UnixMillis,
    /// How far from now a message may say that it was issued, ms.
    age_max: i64,
    /// Whether each has to say it.
    is_demanded: bool,
    had: HashSet<String>,
    /// The same by the time at which they are forgotten.
    until: BTreeSet<(i64, String)>,
}

impl Fresh {
    /// Nothing was had. With `age_max` of 0 those alone are judged that say when they were issued, by
    /// [`AGE_MS`].
    pub fn new(began: UnixMillis, age_max: std::time::Duration) -> Self {
        let age_ms = i64::try_from(age_max.as_millis()).unwrap_or(i64::MAX);
        Fresh {
            began,
            age_max: if age_ms == 0 { AGE_MS } else { age_ms },
            is_demanded: age_ms != 0,
            had: HashSet::new(),
            until: BTreeSet::new(),
        }
    }

    /// Takes a message by what tells it from others, once.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn take(
        &mut self,
        now: UnixMillis,
        digest: String,
        issued_ms: Option<i64>,
    ) -> Result<(), String> {
        let Some(issued) = issued_ms else {
            return match self.is_demanded {
                true => {
                    Err("it does not say when it was issued: sign it with issued_ms".to_owned())
                }
                false => Ok(()),
            };
        };
        while let Some((until, _)) = self.until.first()
            && *until < now.0
        {
            if let Some((_, digest)) = self.until.pop_first() {
                self.had.remove(&digest);
            }
        }
        let age = now.0.saturating_sub(issued);
        if age > self.age_max {
            return Err("it was issued too long ago: sign it anew".to_owned());
        }
        if age < -self.age_max {
            return Err("it was issued in the future: see to the clocks".to_owned());
        }
        if issued < self.began.0 {
            return Err("it was issued before this node started: sign it anew".to_owned());
        }
        if self.had.contains(&digest) {
            return Err("it was had before: sign it anew".to_owned());
        }
        if self.had.len() >= CONTROL_HAD_MAX {
            return Err(format!(
                "{CONTROL_HAD_MAX} messages came in a while: send it later"
            ));
        }
        self.had.insert(digest.clone());
        self.until
            .insert((issued.saturating_add(self.age_max), digest));
        Ok(())
    }
}

/// Five minutes: what clocks and networks are apart, with room.
const AGE_MS: i64 = 300_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_message_counts_once_and_for_a_while() {
        let mut fresh = Fresh::new(UnixMillis(1_000_000), Duration::from_secs(60));
        let mut take = |now: i64, digest: &str, issued: Option<i64>| {
            fresh.take(UnixMillis(now), digest.to_owned(), issued)
        };
        assert_eq!(take(1_000_000, "a", Some(1_000_000)), Ok(()));
        assert_eq!(take(1_030_000, "b", Some(1_020_000)), Ok(()));
        for (now, digest, issued, why) in [
            (1_010_000, "a", Some(1_000_000), "had before"),
            (1_060_000, "a", Some(1_000_000), "had before"),
            (1_061_000, "a", Some(1_000_000), "too long ago"),
            (1_000_000, "c", Some(999_999), "before this node"),
            (1_000_000, "c", Some(1_061_000), "future"),
            (1_000_000, "c", None, "issued_ms"),
        ] {
            let refused = take(now, digest, issued).unwrap_err();
            assert!(refused.contains(why), "{digest} {now}: {refused}");
        }
        // What could not come again is forgotten.
        assert_eq!(take(1_200_000, "d", Some(1_200_000)), Ok(()));
        assert_eq!((fresh.had.len(), fresh.until.len()), (1, 1));
    }

    #[test]
    fn without_a_demand_a_message_that_says_nothing_counts_each_time() {
        let mut fresh = Fresh::new(UnixMillis(0), Duration::ZERO);
        for _ in 0..2 {
            assert_eq!(fresh.take(UnixMillis(5), "a".to_owned(), None), Ok(()));
        }
        assert_eq!(fresh.take(UnixMillis(5), "a".to_owned(), Some(5)), Ok(()));
        assert!(fresh.take(UnixMillis(6), "a".to_owned(), Some(5)).is_err());
    }
}
