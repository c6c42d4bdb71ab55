//! What was refused, for whoever looks: counted, the newest kept, and logged at a bounded rate.

use std::collections::VecDeque;

use base::{LinesPerMinute, UnixMillis};
use parking_lot::Mutex;
use serde::Serialize;

use crate::limits::{REFUSALS_KEPT, REFUSALS_LOGGED_PER_MINUTE};

/// One refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// When, milliseconds since 1970.
    pub at_ms: i64,
    /// The client.
    pub client_id: String,
    /// The user that it is, or said that it was; may be empty.
    pub user: String,
    /// From which address.
    pub host: String,
    /// What was refused.
    pub what: Refused,
    /// The topic or filter; empty for a connection.
    pub topic: String,
    /// The reason code of MQTT 5.0.
    pub code: u8,
    /// The reason in words.
    pub reason: &'static str,
}

/// What can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Refused {
    /// A CONNECT.
    Connect,
    /// A PUBLISH, or a will.
    Publish,
    /// A filter of a SUBSCRIBE.
    Subscribe,
    /// A message that had waited for the client.
    Receive,
}

/// The refusals of one guard.
#[derive(Default)]
pub(super) struct Refusals {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    newest: VecDeque<Refusal>,
    logged: LinesPerMinute,
}

impl Refused {
    fn name(self) -> &'static str {
        match self {
            Refused::Connect => "connect",
            Refused::Publish => "publish",
            Refused::Subscribe => "subscribe",
            Refused::Receive => "receive",
        }
    }
}

impl Refusals {
    pub(super) fn note(&self, refusal: Refusal) {
        let what = refusal.what.name();
        metrics::counter!("thalweg_mqtt_refused_total", "what" => what).increment(1);
        let mut kept = self.kept.lock();
        let at = UnixMillis(refusal.at_ms);
        if kept.logged.admits(at, REFUSALS_LOGGED_PER_MINUTE) {
            let Refusal {
                client_id,
                user,
                host,
                topic,
                reason,
                ..
            } = &refusal;
            tracing::warn!(client = %client_id, %user, %host, what, %topic, reason, "refused over MQTT");
        }
        if kept.newest.len() >= REFUSALS_KEPT {
            kept.newest.pop_front();
        }
        kept.newest.push_back(refusal);
    }

    pub(super) fn newest(&self, count: usize) -> Vec<Refusal> {
        let kept = self.kept.lock();
        kept.newest.iter().rev().take(count).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(at_ms: i64) -> Refusal {
        Refusal {
            at_ms,
            client_id: "c".to_owned(),
            user: String::new(),
            host: "127.0.0.1".to_owned(),
            what: Refused::Publish,
            topic: "t".to_owned(),
            code: 0x87,
            reason: "no",
        }
    }

    #[test]
    fn the_newest_are_kept_and_told_first() {
        let refusals = Refusals::default();
        for at in 0..REFUSALS_KEPT as i64 + 5 {
            refusals.note(refusal(at));
        }
        let newest = refusals.newest(2);
        let last = REFUSALS_KEPT as i64 + 4;
        assert_eq!([newest[0].at_ms, newest[1].at_ms], [last, last - 1]);
        assert_eq!(refusals.newest(usize::MAX).len(), REFUSALS_KEPT);
    }
}
