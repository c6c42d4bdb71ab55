//! Certificates that are about to end: agents' as their connections show them, and our own. Without
//! IO.
//!
//! Each is told at some days before its end, and once more after it: once by all nodes, which note in
//! the database what was told (`store::told`).

use std::collections::BTreeMap;
use std::time::Duration;

use access::CertificateFacts;
use base::UnixMillis;

use crate::agent::Agent;
use crate::events::{Event, Kind, Once};
use crate::operation::Policy;
use crate::registry::operation_id;

/// A certificate that a connection showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownCertificate {
    /// Tells it from others.
    pub mark: u64,
    /// The end of its validity.
    pub until: Option<UnixMillis>,
}

impl Agent {
    /// Takes over the certificate of a heartbeat's connection; an event when its end has come nearer
    /// than was told.
    pub fn note_certificate(
        &mut self,
        shown: Option<ShownCertificate>,
        policy: &Policy,
        now: UnixMillis,
    ) -> Option<Event> {
        let shown = shown?;
        if self.certificate_until != shown.until {
            self.certificate_until = shown.until;
            self.certificate_stage = 0;
        }
        let until = shown.until?;
        let stage = stage(until, policy.certificate_warning, now);
        if stage <= self.certificate_stage {
            return None;
        }
        self.certificate_stage = stage;
        let message = message("the agent's certificate", until, now);
        Some(Event {
            // Whatever nodes it calls, each stage is told once.
            once: Some(once(&self.id, shown.mark, stage, until)),
            ..Event::new(Kind::CertificateEnding, Some(self), message, now)
        })
    }
}

/// What was told of our own certificates.
#[derive(Debug, Default)]
pub struct Own {
    told: BTreeMap<&'static str, (u64, u8)>,
}

impl Own {
    /// Looks at the ports' certificates; returns what to tell.
    pub fn look(
        &mut self,
        certificates: &[(&'static str, CertificateFacts)],
        warning: Duration,
        now: UnixMillis,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for (port, CertificateFacts { not_after, mark }) in certificates {
            let Some(until) = *not_after else { continue };
            let told = self.told.entry(port).or_insert((*mark, 0));
            if told.0 != *mark {
                *told = (*mark, 0);
            }
            let stage = stage(until, warning, now);
            if stage > told.1 {
                told.1 = stage;
                let message = message(&format!("the certificate of the port {port}"), until, now);
                events.push(Event {
                    once: Some(once(port, *mark, stage, until)),
                    ..Event::new(Kind::CertificateEnding, None, message, now)
                });
            }
        }
        events
    }
}

/// What is told of a certificate of an agent, or of a port of ours.
fn once(holder: &str, mark: u64, stage: u8, until: UnixMillis) -> Once {
    Once {
        key: operation_id(holder, &format!("certificate {mark:016x}"), None),
        stage,
        until,
    }
}

/// How near its end a certificate is; 0: not near.
pub fn stage(until: UnixMillis, warning: Duration, now: UnixMillis) -> u8 {
    let left = until.0.saturating_sub(now.0);
    let within = |wait: Duration| left <= i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    if warning.is_zero() {
        0
    } else if left <= 0 {
        4
    } else if within(warning.min(DAY)) {
        3
    } else if within(warning.min(WEEK)) {
        2
    } else {
        u8::from(within(warning))
    }
}

/// What is told of it, for people.
pub fn message(what: &str, until: UnixMillis, now: UnixMillis) -> String {
    let hours = until.0.saturating_sub(now.0) / 3_600_000;
    match hours {
        _ if until <= now => format!("{what} has ended: replace it"),
        0..48 => format!("{what} ends in {hours} hours: replace it"),
        _ => format!("{what} ends in {} days: replace it", hours / 24),
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_certificate_is_told_of_at_fewer_and_fewer_days() {
        let now = UnixMillis(1_800_000_000_000);
        let month = 30 * DAY;
        for (left, wanted) in [
            (31 * DAY, 0),
            (month, 1),
            (8 * DAY, 1),
            (WEEK, 2),
            (DAY, 3),
            (Duration::from_secs(1), 3),
        ] {
            assert_eq!(stage(now + left, month, now), wanted, "{left:?}");
        }
        assert_eq!(stage(now, month, now), 4);
        assert_eq!(stage(now - DAY, month, now), 4);
        assert_eq!(
            stage(now + WEEK, 3 * DAY, now),
            0,
            "no earlier than is wanted"
        );
        assert_eq!(stage(now, Duration::ZERO, now), 0, "not at all");
    }

    #[test]
    fn an_agents_certificate_is_told_once_a_stage_and_anew_after_its_renewal() {
        let mut agent = Agent::new(Arc::from("a"), UnixMillis(0));
        let policy = crate::config::FleetConfig::default().policy();
        let until = UnixMillis(1_800_000_000_000);
        let mut call = |left: Duration, mark: u64, until: UnixMillis| {
            let shown = ShownCertificate {
                mark,
                until: Some(until),
            };
            let now = UnixMillis(1_800_000_000_000) - left;
            let event = agent.note_certificate(Some(shown), &policy, now);
            event.map(|event| (event.kind.as_str(), event.kind.is_alert(), event.message))
        };
        assert_eq!(call(31 * DAY, 1, until), None);
        let (kind, is_alert, message) = call(20 * DAY, 1, until).unwrap();
        assert_eq!((kind, is_alert), ("certificate-ending", true));
        assert!(message.contains("20 days"), "{message}");
        assert_eq!(call(19 * DAY, 1, until), None);
        assert!(call(6 * DAY, 1, until).is_some());
        assert_eq!(call(5 * DAY, 2, until + 90 * DAY), None, "it was renewed");
        assert!(call(5 * DAY, 3, until).is_some());
    }

    #[test]
    fn our_own_certificates_are_told_by_their_ports() {
        let now = UnixMillis(1_800_000_000_000);
        let mut own = Own::default();
        let ending = |mark: u64, left: Duration| CertificateFacts {
            not_after: Some(now + left),
            mark,
        };
        let all = [
            ("fleet", ending(1, 3 * DAY)),
            ("rest", ending(2, 300 * DAY)),
        ];
        let events = own.look(&all, 30 * DAY, now);
        assert_eq!(events.len(), 1);
        assert!(events[0].message.contains("port fleet"), "{events:?}");
        assert!(own.look(&all, 30 * DAY, now).is_empty());
        let renewed = [("fleet", ending(3, 90 * DAY))];
        assert!(own.look(&renewed, 30 * DAY, now).is_empty());
        assert_eq!(own.look(&all, 30 * DAY, now).len(), 1);
    }

    #[test]
    fn the_message_says_how_long_there_is() {
        let now = UnixMillis(1_800_000_000_000);
        for (until, wanted) in [
            (now + 3 * DAY, "x ends in 3 days: replace it"),
            (now + DAY, "x ends in 24 hours: replace it"),
            (now - DAY, "x has ended: replace it"),
        ] {
            assert_eq!(message("x", until, now), wanted);
        }
    }
}
