//! Bulletins: what processors want people to know, kept for the control plane and logged once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use base::UnixMillis;
use parking_lot::Mutex;

use crate::limits::{BULLETIN_BYTES_MAX, BULLETINS_MAX};

/// One message of a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulletin {
    /// Grows by one with each.
    pub id: i64,
    /// When.
    pub timestamp: UnixMillis,
    /// How bad.
    pub level: Level,
    /// What.
    pub message: String,
    /// The processor's id.
    pub source_id: String,
    /// The processor's name.
    pub source_name: String,
    /// The id of its process group.
    pub group_id: String,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who look for a mistake.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is late or doubtful.
    Warning,
    /// Something failed.
    Error,
    /// Worse than anything: as a bound it lets nothing through.
    None,
}

impl Level {
    /// As C2 writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning => "WARN",
            Level::Error => "ERROR",
            Level::None => "NONE",
        }
    }

    /// Reads a level as flows write it, in any case.
    pub fn parse(text: &str) -> Option<Level> {
        Some(match text.trim().to_ascii_uppercase().as_str() {
            "TRACE" | "DEBUG" => Level::Debug,
            "INFO" => Level::Info,
            "WARN" | "WARNING" => Level::Warning,
            "ERROR" | "FATAL" | "CRITICAL" => Level::Error,
            "NONE" | "OFF" => Level::None,
            _ => return None,
        })
    }
}

/// The newest bulletins of an agent.
#[derive(Debug, Default)]
pub struct Bulletins {
    board: Mutex<Board>,
}

#[derive(Debug, Default)]
struct Board {
    next: i64,
    kept: VecDeque<Bulletin>,
    /// The last message of each processor, so that a lasting trouble is logged once a minute.
    last: HashMap<String, (String, UnixMillis)>,
}

impl Bulletins {
    /// Puts up a bulletin; the same one of the same processor within a minute is left out.
    pub fn post(&self, now: UnixMillis, level: Level, source: Source<'_>, message: &str) {
        let cut = message.floor_char_boundary(BULLETIN_BYTES_MAX);
        let message = &message[..cut];
        let mut board = self.board.lock();
        if let Some((last, at)) = board.last.get(source.id)
            && last == message
            && now.since(*at) < REPEAT_AFTER
        {
            return;
        }
        board
            .last
            .insert(source.id.to_owned(), (message.to_owned(), now));
        let id = board.next;
        board.next += 1;
        if board.kept.len() == BULLETINS_MAX {
            board.kept.pop_front();
        }
        board.kept.push_back(Bulletin {
            id,
            timestamp: now,
            level,
            message: message.to_owned(),
            source_id: source.id.to_owned(),
            source_name: source.name.to_owned(),
            group_id: source.group_id.to_owned(),
        });
        drop(board);
        let processor = source.name;
        match level {
            Level::Debug | Level::None => tracing::debug!(processor, "{message}"),
            Level::Info => tracing::info!(processor, "{message}"),
            Level::Warning => tracing::warn!(processor, "{message}"),
            Level::Error => tracing::error!(processor, "{message}"),
        }
    }

    /// Those of the last `age`, oldest first.
    pub fn since(&self, now: UnixMillis, age: Duration) -> Vec<Bulletin> {
        let board = self.board.lock();
        board
            .kept
            .iter()
            .filter(|b| now.since(b.timestamp) <= age)
            .cloned()
            .collect()
    }
}

/// Who posts.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The id of its process group.
    pub group_id: &'a str,
}

/// A trouble that lasts is said again after this long.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lasting_trouble_is_posted_once_a_minute() {
        let bulletins = Bulletins::default();
        let source = Source {
            id: "p",
            name: "p",
            group_id: "",
        };
        for second in 0..90 {
            bulletins.post(
                UnixMillis(second * 1_000),
                Level::Error,
                source,
                "no broker",
            );
        }
        let all = bulletins.since(UnixMillis(90_000), Duration::from_secs(3_600));
        assert_eq!(
            all.iter().map(|b| b.timestamp.0).collect::<Vec<_>>(),
            [0, 60_000]
        );
        assert_eq!(
            bulletins
                .since(UnixMillis(90_000), Duration::from_secs(60))
                .len(),
            1
        );
    }
}
