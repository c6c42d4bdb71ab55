//! Whether two call as one agent. Without IO.
//!
//! A caller shows itself by its device, its host's name, its certificate and the time at which it
//! started (its uptime tells). One change is a machine that was replaced, a certificate that was
//! renewed or an agent that was restarted; a caller that comes back soon means that there are two.

use std::time::Duration;

use base::UnixMillis;
use c2::Heartbeat;

use crate::agent::Agent;
use crate::events::{Event, Kind};

/// What is known of a caller; what it does not tell is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its device.
    pub device: Option<String>,
    /// Its host's name.
    pub hostname: Option<String>,
    /// When its process started.
    pub started: Option<UnixMillis>,
    /// Its certificate's mark.
    pub certificate: Option<u64>,
}

/// One that called under an agent's identifier before another one did.
#[derive(Clone, Debug)]
pub struct Rival {
    /// Who it is.
    pub caller: Caller,
    /// How it is told from the one that calls now, for people.
    pub told: String,
    /// When the other one took over.
    pub at: UnixMillis,
    /// When one was last seen to come back, so that there are two.
    pub confirmed: Option<UnixMillis>,
}

impl Agent {
    /// The caller that was there before, where this heartbeat is not its.
    pub fn caller_before(
        &self,
        heartbeat: &Heartbeat,
        certificate: Option<u64>,
        now: UnixMillis,
    ) -> Option<Caller> {
        let device = heartbeat.device_info.as_ref();
        let network = device.and_then(|device| device.network_info.as_ref());
        let differs = |known: &Option<String>, told: Option<&str>| matches!((known, told), (Some(known), Some(told)) if !told.is_empty() && known != told);
        let is_other = differs(&self.device, device.and_then(|d| d.identifier.as_deref()))
            || differs(
                &self.hostname,
                network.and_then(|network| network.hostname.as_deref()),
            )
            || differ(self.certificate, certificate)
            || is_other_start(self.started, started(heartbeat, now));
        is_other.then(|| self.caller())
    }

    /// Whether a process that started so many milliseconds ago, with this certificate, is the known
    /// one; one that does not say so is.
    pub fn is_caller(
        &self,
        uptime: Option<i64>,
        certificate: Option<u64>,
        now: UnixMillis,
    ) -> bool {
        let told = started_before(uptime, now);
        (told.is_none() || self.started.is_some())
            && !is_other_start(self.started, told)
            && !differ(self.certificate, certificate)
    }

    /// Takes over what a heartbeat tells of its caller, beside its device and host.
    pub fn take_caller(
        &mut self,
        heartbeat: &Heartbeat,
        certificate: Option<u64>,
        now: UnixMillis,
    ) {
        let told = started(heartbeat, now);
        // The first estimate stays, so that those of one process do not drift apart.
        if told.is_some() && (self.started.is_none() || is_other_start(self.started, told)) {
            self.started = told;
        }
        self.certificate = certificate.or(self.certificate);
    }

    /// Notes that another one calls than `before`; an event when both do.
    pub fn note_caller(&mut self, before: Caller, now: UnixMillis) -> Option<Event> {
        let caller = self.caller();
        if caller.is_same(&before) {
            return None;
        }
        let rival = self.rival.as_deref();
        let is_back = rival
            .is_some_and(|rival| rival.caller.is_same(&caller) && now.since(rival.at) < RIVALRY);
        let known = rival.and_then(|rival| rival.confirmed);
        let is_news = is_back && known.is_none_or(|at| now.since(at) >= RIVALRY);
        let told = before.told_from(&caller);
        let event = is_news.then(|| {
            metrics::counter!("thalweg_fleet_duplicate_identifiers_total").increment(1);
            let message = format!(
                "two agents call by this identifier: {} and {told}; give one of them another",
                caller.told_from(&before)
            );
            Event::new(Kind::DuplicateIdentifier, Some(self), message, now)
        });
        self.rival = Some(Box::new(Rival {
            caller: before,
            told,
            at: now,
            confirmed: if is_back { Some(now) } else { known },
        }));
        event
    }

    /// The other one that uses this agent's identifier, while it does.
    pub fn duplicate(&self, now: UnixMillis) -> Option<&str> {
        let rival = self.rival.as_deref()?;
        let at = rival.confirmed?;
        (now.since(at) < RIVALRY).then_some(rival.told.as_str())
    }

    /// Who called last.
    pub fn caller(&self) -> Caller {
        Caller {
            device: self.device.clone(),
            hostname: self.hostname.clone(),
            started: self.started,
            certificate: self.certificate,
        }
    }
}

impl Caller {
    /// Whether nothing that both tell is different.
    fn is_same(&self, other: &Caller) -> bool {
        !differ(self.device.as_ref(), other.device.as_ref())
            && !differ(self.hostname.as_ref(), other.hostname.as_ref())
            && !differ(self.certificate, other.certificate)
            && !is_other_start(self.started, other.started)
    }

    /// What tells it from another one: the device's identifier where that does.
    fn told_from(&self, other: &Caller) -> String {
        match (&self.device, &self.hostname) {
            (Some(device), _) if other.device.as_ref() != Some(device) => device.clone(),
            (_, Some(host)) if other.hostname.as_ref() != Some(host) => format!("host {host}"),
            _ if differ(self.certificate, other.certificate) => {
                format!("certificate {:016x}", self.certificate.unwrap_or_default())
            }
            _ => format!(
                "a process started at {} ms",
                self.started.map_or(0, |at| at.0)
            ),
        }
    }
}

/// Whether both are known and not the same.
fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

fn is_other_start(one: Option<UnixMillis>, other: Option<UnixMillis>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one.0.abs_diff(other.0) > START_SLACK_MS)
}

/// When the heartbeat's sender started.
fn started(heartbeat: &Heartbeat, now: UnixMillis) -> Option<UnixMillis> {
    let status = heartbeat.agent_info.as_ref()?.status.as_ref()?;
    started_before(status.uptime, now)
}

fn started_before(uptime: Option<i64>, now: UnixMillis) -> Option<UnixMillis> {
    let uptime = uptime.filter(|uptime| *uptime > 0)?;
    Some(UnixMillis(now.0.saturating_sub(uptime)))
}

/// How soon one comes back that is one of two; machines are not replaced to and fro so fast.
const RIVALRY: Duration = Duration::from_secs(600);

/// How far two estimates of one start may lie apart, milliseconds: a heartbeat may be on its way for
/// ten seconds, and clocks are set.
const START_SLACK_MS: u64 = 30_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    struct World {
        agent: Agent,
        now: UnixMillis,
    }

    impl World {
        fn new() -> World {
            World {
                agent: Agent::new(Arc::from("a"), UnixMillis(0)),
                now: UnixMillis(1_000_000_000),
            }
        }

        /// A heartbeat `after` seconds; tells whether an event came, and the duplicate.
        fn call(
            &mut self,
            after: u64,
            (device, host): (&str, &str),
            uptime: Option<i64>,
            certificate: Option<u64>,
        ) -> (bool, Option<String>) {
            self.now = self.now + Duration::from_secs(after);
            let text = json!({
                "deviceInfo": {"identifier": device, "networkInfo": {"hostname": host}},
                "agentInfo": {"identifier": "a", "status": {"uptime": uptime}},
            });
            let heartbeat = Heartbeat::parse(text.to_string().as_bytes()).unwrap();
            let (agent, now) = (&mut self.agent, self.now);
            let before = agent.caller_before(&heartbeat, certificate, now);
            agent.observe(heartbeat.device_info.as_ref(), None, now);
            agent.take_caller(&heartbeat, certificate, now);
            let event = before.and_then(|before| agent.note_caller(before, now));
            if let Some(event) = &event {
                assert_eq!(event.kind, Kind::DuplicateIdentifier);
            }
            (event.is_some(), agent.duplicate(now).map(str::to_owned))
        }
    }

    #[test]
    fn a_replaced_device_is_no_rival_and_two_at_a_time_are() {
        let mut world = World::new();
        let mut call = |device: &str, after: u64| world.call(after, (device, "h"), None, None);
        for (device, after) in [("one", 30), ("one", 30), ("two", 30), ("two", 30)] {
            assert_eq!(call(device, after), (false, None), "{device}");
        }
        assert_eq!(call("one", 700), (false, None), "it went back, long after");
        assert_eq!(call("two", 30), (true, Some("one".to_owned())));
        assert_eq!(
            call("one", 30),
            (false, Some("two".to_owned())),
            "told once"
        );
        assert_eq!(call("one", 700), (false, None), "the other one is gone");
    }

    #[test]
    fn two_processes_of_one_machine_are_told_by_their_starts() {
        let mut world = World::new();
        let mut call = |uptime: i64| world.call(10, ("d", "h"), Some(uptime), None);
        assert_eq!(call(500_000), (false, None));
        assert_eq!(call(5_000), (false, None), "a restart");
        assert_eq!(call(15_000), (false, None));
        let (event, duplicate) = call(530_000);
        assert!(event && duplicate.is_some(), "the first one is still there");
    }

    #[test]
    fn an_agent_that_crashes_again_and_again_is_alone() {
        let mut world = World::new();
        for _ in 0..1_000 {
            for uptime in [1_000, 11_000, 21_000, 51_000] {
                let after = if uptime == 51_000 { 30 } else { 10 };
                let told = world.call(after, ("d", "h"), Some(uptime), None);
                assert_eq!(told, (false, None));
            }
        }
    }

    #[test]
    fn hosts_and_certificates_tell_two_apart_and_a_renewed_one_does_not() {
        let mut world = World::new();
        assert_eq!(world.call(10, ("d", "h"), None, Some(1)), (false, None));
        assert_eq!(world.call(10, ("d", "h"), None, Some(2)), (false, None));
        assert_eq!(world.call(10, ("d", "h"), None, None), (false, None));
        let told = world.call(10, ("d", "h"), None, Some(1));
        assert!(told.0 && told.1.unwrap().starts_with("certificate "));
        let mut world = World::new();
        for (host, event) in [("one", false), ("two", false), ("one", true)] {
            assert_eq!(world.call(10, ("d", host), None, None).0, event, "{host}");
        }
    }
}
