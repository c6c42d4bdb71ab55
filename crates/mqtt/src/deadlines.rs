//! When to look at which session: its will or its end is due.
//!
//! One entry for each session at most. One that comes too early, since its client was back
//! meanwhile, is harmless: the session says when to look again.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base::UnixMillis;

/// Client ids by the time when something may be due for them.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    by_time: BTreeSet<(UnixMillis, Arc<str>)>,
    by_client: HashMap<Arc<str>, UnixMillis>,
}

impl Deadlines {
    /// Notes that a session is to be looked at; tells whether nothing is due earlier.
    pub(crate) fn note(&mut self, client_id: &Arc<str>, at: UnixMillis) -> bool {
        match self.by_client.get(client_id) {
            Some(known) if *known <= at => return false,
            Some(known) => {
                self.by_time.remove(&(*known, client_id.clone()));
            }
            None => {}
        }
        let is_first = self.next().is_none_or(|first| at < first);
        self.by_time.insert((at, client_id.clone()));
        self.by_client.insert(client_id.clone(), at);
        is_first
    }

    /// Takes the first that is due.
    pub(crate) fn take(&mut self, now: UnixMillis) -> Option<Arc<str>> {
        if self.next()? > now {
            return None;
        }
        let (_, client_id) = self.by_time.pop_first()?;
        self.by_client.remove(&client_id);
        Some(client_id)
    }

    /// When the first is due.
    pub(crate) fn next(&self) -> Option<UnixMillis> {
        self.by_time.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_stands_once_at_its_earliest_time() {
        let mut deadlines = Deadlines::default();
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(deadlines.note(&a, UnixMillis(50)));
        for later in 51..1_000 {
            assert!(!deadlines.note(&a, UnixMillis(later)));
        }
        assert!(!deadlines.note(&b, UnixMillis(70)));
        assert!(deadlines.note(&b, UnixMillis(20)));
        assert_eq!((deadlines.by_time.len(), deadlines.by_client.len()), (2, 2));
        assert_eq!(deadlines.take(UnixMillis(19)), None);
        assert_eq!(deadlines.take(UnixMillis(50)), Some(b));
        assert_eq!(deadlines.take(UnixMillis(50)), Some(a));
        assert_eq!(deadlines.take(UnixMillis(5_000)), None);
        assert!(deadlines.by_client.is_empty());
    }
}
