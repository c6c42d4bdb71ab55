//! Lets the flow's sources rest when the disk is nearly full, and go on when there is room.
//!
//! All other processors go on, for what they send on is what frees the disk; so do calls to the
//! control plane. Keys and defaults are MiNiFi C++'s, which stops the whole flow.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::AgentError;
use crate::bulletins::Level;
use crate::control::{flag, wrong};
use crate::host;
use crate::supervisor::{Stop, Supervisor};
use crate::units;

/// When sources stop for want of room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchdogConfig {
    pub(crate) interval: Duration,
    /// Free bytes below which they stop.
    pub(crate) stop_bytes: u64,
    /// Free bytes from which on they start again.
    pub(crate) restart_bytes: u64,
}

impl WatchdogConfig {
    /// Reads the settings; `None` when they say that nobody shall watch.
    pub(crate) fn of(
        property: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<WatchdogConfig>, AgentError> {
        if !flag(property, ENABLE, true)? {
            return Ok(None);
        }
        let size = |key: &str, default: u64| match property(key) {
            None => Ok(default),
            Some(text) => {
                units::size(&text).ok_or_else(|| wrong(key, &text, "a size such as 100 MB"))
            }
        };
        let interval = match property(INTERVAL) {
            None => INTERVAL_DEFAULT,
            Some(text) => units::duration(&text)
                .filter(|interval| !interval.is_zero())
                .ok_or_else(|| wrong(INTERVAL, &text, "a duration such as 15 sec"))?,
        };
        let config = WatchdogConfig {
            interval,
            stop_bytes: size(STOP, STOP_DEFAULT)?,
            restart_bytes: size(RESTART, RESTART_DEFAULT)?,
        };
        if config.restart_bytes < config.stop_bytes {
            return Err(AgentError::Setting(format!(
                "{RESTART} must not be below {STOP}, or the flow would stop and start in turn"
            )));
        }
        Ok(Some(config))
    }
}

/// Watches the file system of `path` until it is dropped.
pub(crate) async fn watch(config: WatchdogConfig, path: PathBuf, supervisor: Arc<Supervisor>) {
    loop {
        let (config, path) = (config.clone(), path.clone());
        let interval = config.interval;
        let supervisor = Arc::clone(&supervisor);
        // Whoever changes the flow just now is waited for.
        let looked = tokio::task::spawn_blocking(move || {
            look(&config, &supervisor, &|| host::free_bytes(&path));
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "the disk was not looked at");
        }
        tokio::time::sleep(interval).await;
    }
}

/// Looks once.
fn look(config: &WatchdogConfig, supervisor: &Supervisor, free: &dyn Fn() -> io::Result<u64>) {
    let free = match free() {
        Ok(free) => free,
        Err(error) => {
            tracing::warn!(%error, "cannot tell how full the disk is");
            return;
        }
    };
    let is_stopped = supervisor.stops().contains(&Stop::Disk);
    if !is_stopped && free < config.stop_bytes {
        supervisor.stop_for(Stop::Disk);
        let message = format!(
            "the flow's sources are stopped: {free} bytes are free on the disk, less than {}; they start again at {}",
            config.stop_bytes, config.restart_bytes
        );
        supervisor.post(Level::Error, &message);
    } else if is_stopped && free >= config.restart_bytes {
        match supervisor.start_for(Stop::Disk) {
            Ok(_) => supervisor.post(Level::Info, "there is room on the disk again"),
            Err(error) => supervisor.post(Level::Error, &base::report(&error)),
        }
    }
}

const ENABLE: &str = "minifi.disk.space.watchdog.enable";
const INTERVAL: &str = "minifi.disk.space.watchdog.interval";
const STOP: &str = "minifi.disk.space.watchdog.stop.threshold";
const RESTART: &str = "minifi.disk.space.watchdog.restart.threshold";

const INTERVAL_DEFAULT: Duration = Duration::from_secs(15);
const STOP_DEFAULT: u64 = 100 << 20;
const RESTART_DEFAULT: u64 = 150 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervisor::{StopTimes, Updated};
    use crate::testing::{ground, make_and_log, runtime, wait_until};

    fn config() -> WatchdogConfig {
        WatchdogConfig {
            interval: Duration::from_secs(1),
            stop_bytes: 100,
            restart_bytes: 150,
        }
    }

    #[test]
    fn a_nearly_full_disk_stops_the_sources_until_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let ground = ground(dir.path(), &runtime);
        let supervisor = Supervisor::new(ground, dir.path(), StopTimes::default());
        supervisor.update(None, &make_and_log("first")).unwrap();
        let look = |free: u64| look(&config(), &supervisor, &|| Ok(free));
        let running = || {
            let nodes = supervisor.nodes();
            let running: Vec<bool> = nodes.iter().map(|node| node.is_running).collect();
            running
        };
        look(100);
        assert_eq!(running(), [true, true]);
        look(99);
        assert_eq!(running(), [false, true]);
        // Between the two it stays as it is, whoever starts the flow or brings another one.
        look(149);
        assert_eq!(supervisor.stop_for(Stop::Operator), Updated::Applied);
        let started = supervisor.start_for(Stop::Operator);
        assert_eq!(started.unwrap(), Updated::Applied);
        assert_eq!(running(), [false, true]);
        let updated = supervisor.update(Some("f2".to_owned()), &make_and_log("second"));
        assert_eq!(updated.unwrap(), Updated::Applied);
        assert_eq!(running(), [false, true]);
        assert_eq!(supervisor.nodes()[0].flow_files_out, 0);
        look(150);
        assert_eq!(running(), [true, true]);
        assert_eq!(supervisor.flow_name().as_deref(), Some("second"));
        wait_until("it works", || supervisor.nodes()[0].flow_files_out > 0);
        // What an operator stopped, room does not start.
        supervisor.set_processor("make", false).unwrap();
        look(0);
        look(200);
        assert_eq!(running(), [false, true]);
        supervisor.stop_for(Stop::Operator);
        look(0);
        look(200);
        assert!(!supervisor.is_running());
        supervisor.start_for(Stop::Operator).unwrap();
        assert!(supervisor.is_running());
        supervisor.stop();
    }

    #[test]
    fn what_waits_on_a_nearly_full_disk_drains_when_its_sink_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let ground = ground(dir.path(), &runtime);
        let supervisor = Supervisor::new(ground, dir.path(), StopTimes::default());
        supervisor.update(None, &make_and_log("first")).unwrap();
        let look = |free: u64| look(&config(), &supervisor, &|| Ok(free));
        let queued = || supervisor.queues()[0].flow_files;
        supervisor.set_processor("log", false).unwrap();
        wait_until("something waits", || queued() >= 20);
        look(99);
        supervisor.set_processor("log", true).unwrap();
        // Nothing comes after it: it can only become empty when its source rests.
        wait_until("it is drained", || {
            queued() == 0
                && supervisor.nodes()[1].flow_files_in == supervisor.nodes()[0].flow_files_out
        });
        assert!(supervisor.stops().contains(&Stop::Disk));
        let made = supervisor.nodes()[0].flow_files_out;
        look(150);
        wait_until("it works", || supervisor.nodes()[0].flow_files_out > made);
        supervisor.stop();
    }

    #[test]
    fn thresholds_are_read_and_checked() {
        let read = |pairs: &[(&str, &str)]| {
            let property = |key: &str| {
                let found = pairs.iter().find(|(name, _)| *name == key);
                found.map(|(_, value)| (*value).to_owned())
            };
            WatchdogConfig::of(&property).map_err(|error| error.to_string())
        };
        let config = read(&[]).unwrap().unwrap();
        assert_eq!(
            (config.stop_bytes, config.restart_bytes),
            (100 << 20, 150 << 20)
        );
        assert_eq!(read(&[(ENABLE, "false")]).unwrap(), None);
        let error = read(&[(STOP, "1 GB")]).unwrap_err();
        assert!(error.contains(RESTART), "{error}");
        assert!(read(&[(INTERVAL, "often")]).unwrap_err().contains(INTERVAL));
    }
}
