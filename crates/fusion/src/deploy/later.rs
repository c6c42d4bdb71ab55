//! Desired state that could not be followed yet, though nothing is wrong with it: the event store is
//! away, a sink is behind, the disk is full. It is tried again, one name after another, until it is
//! done or a newer generation of its name is. What finds no place here is not kept as seen either: the
//! retained message counts at the next start. No IO.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::node::Heard;
use crate::limits::{DESIRED_RETRY_WAIT, DESIRED_WAITING_BYTES_MAX, DESIRED_WAITING_MAX};

/// What is tried again.
#[derive(Default)]
pub struct Later {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The rest before the next try, which doubles with each that fails.
    rest: Duration,
    due: Option<Instant>,
}

/// A message that waits: one for each name.
struct Waiting {
    name: String,
    generation: u64,
    heard: Heard,
}

impl Later {
    /// The generation of a name that waits.
    pub fn generation(&self, name: &str) -> Option<u64> {
        let mut waiting = self.waiting.iter();
        let found = waiting.find(|waiting| waiting.name == name);
        found.map(|waiting| waiting.generation)
    }

    /// Has a message wait, in the place of an earlier one of its name; false where there is no room.
    pub fn put(&mut self, name: &str, generation: u64, heard: Heard) -> bool {
        self.forget(name);
        self.rest = (self.rest * 2).clamp(DESIRED_RETRY_WAIT.0, DESIRED_RETRY_WAIT.1);
        self.due = Some(Instant::now() + self.rest);
        let bytes = self.bytes + heard.payload.len();
        let has_room =
            self.waiting.len() < DESIRED_WAITING_MAX && bytes <= DESIRED_WAITING_BYTES_MAX;
        if has_room {
            self.bytes = bytes;
            self.waiting.push_back(Waiting {
                name: name.to_owned(),
                generation,
                heard,
            });
        }
        has_room
    }

    /// What waits of a name waits no more.
    pub fn forget(&mut self, name: &str) {
        self.waiting.retain(|waiting| {
            let is_other = waiting.name != name;
            if !is_other {
                self.bytes -= waiting.heard.payload.len();
            }
            is_other
        });
    }

    /// Something was done: what waits is tried at once.
    pub fn went_well(&mut self) {
        self.rest = Duration::ZERO;
        self.due = None;
    }

    /// The message to be tried now; waits until there is one.
    pub async fn due(&mut self) -> Heard {
        if self.waiting.is_empty() {
            std::future::pending::<()>().await;
        }
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
        match self.waiting.pop_front() {
            Some(waiting) => {
                self.bytes -= waiting.heard.payload.len();
                waiting.heard
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Heard {
        Heard {
            topic: text.to_owned(),
            payload: text.as_bytes().to_vec(),
        }
    }

    #[tokio::test]
    async fn each_name_waits_once_and_rests_grow_until_something_is_done() {
        let began = Instant::now();
        let mut later = Later::default();
        assert!(later.put("a", 1, heard("a1")));
        assert!(later.put("b", 1, heard("b1")));
        assert!(later.put("a", 2, heard("a2")));
        assert_eq!(
            (later.generation("a"), later.generation("c")),
            (Some(2), None)
        );
        assert_eq!(later.rest, DESIRED_RETRY_WAIT.0 * 4);
        assert_eq!(later.due().await.topic, "b1");
        assert!(began.elapsed() >= DESIRED_RETRY_WAIT.0 * 4);
        later.went_well();
        assert_eq!(later.due().await.topic, "a2");
        assert!(later.put("a", 2, heard("a2")));
        assert_eq!(later.rest, DESIRED_RETRY_WAIT.0);
        later.forget("a");
        assert_eq!((later.generation("a"), later.bytes), (None, 0));
    }

    #[test]
    fn what_waits_has_a_bound() {
        let mut later = Later::default();
        let large = || Heard {
            topic: String::new(),
            payload: vec![0; DESIRED_WAITING_BYTES_MAX],
        };
        assert!(later.put("a", 1, large()));
        assert!(!later.put("b", 1, heard("b")));
        assert!(later.put("a", 2, large()), "an earlier one gives way");
        later.forget("a");
        for index in 0..DESIRED_WAITING_MAX {
            assert!(later.put(&format!("{index}"), 1, heard("x")));
        }
        assert!(!later.put("b", 1, heard("b")));
    }
}
