//! What an agent's settings come to, and those of the control plane over them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::AgentError;
use crate::cli::RunArgs;
use crate::configuration::{Configuration, Sources};
use crate::control::ControlConfig;
use crate::limits::FLOW_STOP_WAIT_DEFAULT;
use crate::logs::{LogConfig, Logs};
use crate::metrics::MetricsConfig;
use crate::properties::{self, Overlay, Told};
use crate::repository::Repository;
use crate::supervisor::StopTimes;
use crate::watchdog::WatchdogConfig;

/// What the settings of an agent come to.
pub(super) struct Plan {
    pub(super) flow_file: Option<PathBuf>,
    pub(super) assets: PathBuf,
    pub(super) times: StopTimes,
    pub(super) watchdog: Option<WatchdogConfig>,
    pub(super) metrics: Option<MetricsConfig>,
    pub(super) logs: Option<LogConfig>,
}

impl Plan {
    /// Errors: a value that cannot be; the text names its key.
    pub(super) fn of(
        args: &RunArgs,
        dir: &Path,
        configuration: &Configuration,
    ) -> Result<Plan, AgentError> {
        let property = |key: &str| configuration.get(key);
        let grace = configuration.duration(GRACE);
        Ok(Plan {
            flow_file: args.flow.clone().or_else(|| configuration.path(FLOW_FILE)),
            assets: configuration
                .path(ASSET_DIRECTORY)
                .unwrap_or_else(|| dir.join("asset")),
            times: StopTimes {
                drain: configuration.duration(DRAIN).unwrap_or_default(),
                grace: grace.unwrap_or(FLOW_STOP_WAIT_DEFAULT),
            },
            watchdog: WatchdogConfig::of(&property)?,
            metrics: MetricsConfig::of(&property)?,
            logs: LogConfig::of(configuration.values())?,
        })
    }
}

/// The operator's settings with those of the control plane over them, and both as they are told.
/// If the agent could not start with a change of the latter, it starts without that.
pub(super) fn settle(
    args: &RunArgs,
    dir: &Path,
    logs: &Logs,
) -> Result<(Configuration, Arc<Told>), AgentError> {
    let mut beginning = properties::begin(dir)?;
    let configuration = match checked(args, dir, &beginning.overlay) {
        Ok(configuration) => configuration,
        Err(error) => match beginning.trial.take() {
            Some(trial) => {
                tracing::error!(error = base::report(&error), "changed settings cannot be");
                trial.withdraw()?;
                beginning = properties::begin(dir)?;
                beginning.is_withdrawn = true;
                // If it is the operator's own that are wrong, that is said.
                checked(args, dir, &beginning.overlay)?
            }
            None => return Err(error),
        },
    };
    if beginning.is_withdrawn {
        tracing::error!("{WITHDRAWN}");
    }
    let overlay = beginning.overlay;
    let mut sources = configuration.files.clone();
    sources.extend(properties::lasting(dir));
    let (args, folder) = (args.clone(), dir.to_owned());
    let told = Told {
        values: configuration.values().clone(),
        sources,
        decided: args.decided(),
        dir: dir.to_owned(),
        logs: Some(logs.clone()),
        check: Some(Arc::new(move |changes| {
            let mut all = overlay.clone();
            all.extend(changes.clone());
            checked(&args, &folder, &all).map(drop)
        })),
        trial: beginning.trial.map(Arc::new),
        is_withdrawn: beginning.is_withdrawn,
    };
    Ok((configuration, Arc::new(told)))
}

/// The settings, if an agent could start with them.
fn checked(args: &RunArgs, dir: &Path, overlay: &Overlay) -> Result<Configuration, AgentError> {
    let given = overlay.iter().map(|(key, value)| format!("{key}={value}"));
    let sources = Sources {
        properties: args.properties.clone(),
        toml: args.config.clone(),
        // The command line's come last and win.
        set: given.chain(args.set.iter().cloned()).collect(),
    };
    let configuration = Configuration::read(&sources, dir)?;
    configuration.repository()?;
    Plan::of(args, dir, &configuration)?;
    let property = |key: &str| configuration.get(key);
    ControlConfig::of(args, &property, String::new())?;
    Ok(configuration)
}

/// The agent's identifier: as told, else the one it had before, else a new one.
pub(super) fn identifier(
    args: &RunArgs,
    values: &BTreeMap<String, String>,
    repository: &Repository,
) -> Result<String, AgentError> {
    let set = IDENTIFIERS.iter().find_map(|key| values.get(*key).cloned());
    let told = args.id.clone().or(set);
    if let Some(told) = told.filter(|id| !id.is_empty()) {
        return Ok(told);
    }
    if let Some(kept) = repository.state(IDENTIFIER_STATE)
        && let Ok(kept) = std::str::from_utf8(&kept)
    {
        return Ok(kept.to_owned());
    }
    let fresh = uuid::Uuid::new_v4().to_string();
    repository.save_state(IDENTIFIER_STATE, fresh.clone().into())?;
    Ok(fresh)
}

/// What is said of a change that was taken back.
pub(super) const WITHDRAWN: &str = "the control plane's last change of settings was taken back: \
                                    the agent did not come up with it, or did not reach the control plane";

const FLOW_FILE: &str = "nifi.flow.configuration.file";
const ASSET_DIRECTORY: &str = "nifi.asset.directory";
const DRAIN: &str = "nifi.flowcontroller.drain.timeout";
const GRACE: &str = "nifi.flowcontroller.graceful.shutdown.period";

/// The second one stands in where the first one is not set.
const IDENTIFIERS: [&str; 2] = [
    "nifi.c2.agent.identifier",
    "nifi.c2.agent.identifier.fallback",
];

/// The repository's key of the agent's identifier.
const IDENTIFIER_STATE: &str = "$identifier";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::Change;
    use crate::testing;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        pairs.collect()
    }

    fn args_with(dir: &Path, properties: &str) -> RunArgs {
        let path = dir.join("minifi.properties");
        std::fs::write(&path, properties).unwrap();
        RunArgs {
            properties: Some(path),
            ..RunArgs::default()
        }
    }

    #[test]
    fn an_identifier_is_told_or_stands_in_or_is_made_up_once() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = testing::runtime();
        let ground = testing::ground(dir.path(), &runtime);
        let of = |args: &RunArgs, pairs: &[(&str, &str)]| {
            identifier(args, &values(pairs), &ground.repository).unwrap()
        };
        let args = RunArgs::default();
        let made = of(&args, &[]);
        assert_eq!(made.len(), 36);
        assert_eq!(of(&args, &[]), made);
        let fallback = (IDENTIFIERS[1], "spare");
        assert_eq!(of(&args, &[fallback]), "spare");
        assert_eq!(of(&args, &[fallback, (IDENTIFIERS[0], "mine")]), "mine");
        let told = RunArgs {
            id: Some("told".to_owned()),
            ..RunArgs::default()
        };
        assert_eq!(of(&told, &[fallback]), "told");
    }

    #[test]
    fn settings_of_the_control_plane_win_unless_the_agent_cannot_start_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut args = args_with(
            dir.path(),
            &format!("{GRACE}=5 sec\nnifi.c2.rest.url=http://localhost:1\n"),
        );
        let settled = |args: &RunArgs| settle(args, dir.path(), &Logs::silent()).unwrap();
        let change = |key: &str, value: &str| Change {
            key: key.to_owned(),
            value: value.to_owned(),
            persists: true,
        };
        let (_, first) = settled(&args);
        assert_eq!(first.values[GRACE], "5 sec");
        first.record(&[change(GRACE, "7 sec")]).unwrap();
        let (_, second) = settled(&args);
        assert_eq!(second.values[GRACE], "7 sec");
        for (key, value) in [
            (GRACE, "soon"),
            ("no.such.key", "1"),
            ("controller.socket.enable", "true"),
            ("nifi.c2.root.classes", "Nonsense"),
            ("minifi.disk.space.watchdog.stop.threshold", "1 TB"),
        ] {
            assert!(
                second.check(&[change(key, value)]).is_err(),
                "{key}={value}"
            );
        }
        // The command line wins over both.
        args.set.push(format!("{GRACE}=9 sec"));
        let (_, third) = settled(&args);
        assert_eq!(third.values[GRACE], "9 sec");
        assert_eq!(third.decided, [GRACE]);
        args.set.clear();
        // Whatever wrote it, the agent starts.
        second.record(&[change(GRACE, "soon")]).unwrap();
        assert_eq!(settled(&args).1.values[GRACE], "5 sec");
    }

    #[test]
    fn logs_are_set_in_either_file() {
        let dir = tempfile::tempdir().unwrap();
        let args = args_with(dir.path(), "nifi.log.logger.root=DEBUG,stderr\n");
        let beside = "logger.root=INFO,rolling\nappender.rolling.max_files=2\n";
        std::fs::write(dir.path().join("minifi-log.properties"), beside).unwrap();
        let (configuration, _) = settle(&args, dir.path(), &Logs::silent()).unwrap();
        let plan = Plan::of(&args, dir.path(), &configuration).unwrap();
        let logs = plan.logs.unwrap();
        assert_eq!((logs.filter.as_str(), logs.is_shown), ("debug", true));
        assert!(logs.file.is_none());
    }
}
