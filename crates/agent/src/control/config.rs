//! What the agent's side of C2 is told: where the control plane is, what heartbeats hold, by which
//! certificates it is known. Keys and defaults are MiNiFi C++'s; the heartbeat's period is ours.

use std::time::Duration;

use base::HumanDuration;

use crate::AgentError;
use crate::cli::RunArgs;
use crate::services::SslFiles;
use crate::units;

/// Where the control plane is and who the agent is to it.
#[derive(Clone)]
pub struct ControlConfig {
    /// Where heartbeats go.
    pub heartbeat_url: String,
    /// Where acknowledgements go.
    pub acknowledge_url: String,
    /// What relative addresses of flows, assets and bundles are taken from.
    pub flow_base_url: String,
    /// The agent's identifier, the same for its whole life.
    pub identifier: String,
    /// The agent's class.
    pub class: Option<String>,
    /// Time between two heartbeats.
    pub period: HumanDuration,
    /// Whether every heartbeat brings the manifest, not only the first one.
    pub is_full: bool,
    /// What heartbeats hold.
    pub roots: Vec<Root>,
    /// How many bulletins a heartbeat holds at most.
    pub bulletins_max: usize,
    /// Whether requests are packed.
    pub is_gzip: bool,
    /// Whether what did not change since the last heartbeat is left out.
    pub is_minimized: bool,
    /// Longest download of one asset.
    pub asset_wait: Duration,
    /// Who the agent is in TLS and whom it believes.
    pub tls: SslFiles,
}

/// A part of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// The machine.
    Device,
    /// The agent.
    Agent,
    /// The flow with its queues and processors.
    Flow,
    /// The assets' digest.
    Assets,
    /// Digests of the files that configure the agent.
    Checksums,
}

impl ControlConfig {
    /// Reads the settings; `None` without an address, or when they say that there is no C2.
    ///
    /// Errors: a value that cannot be; the text names the key.
    pub(crate) fn of(
        args: &RunArgs,
        property: &dyn Fn(&str) -> Option<String>,
        identifier: String,
    ) -> Result<Option<ControlConfig>, AgentError> {
        let Some(urls) = Urls::of(args, property)? else {
            return Ok(None);
        };
        let period = args
            .heartbeat
            .clone()
            .or_else(|| property(PERIOD))
            .unwrap_or_else(|| PERIOD_DEFAULT.to_owned());
        let is_gzip = match property(ENCODING).as_deref() {
            None | Some("none") => false,
            Some("gzip") => true,
            Some(other) => return Err(wrong(ENCODING, other, "none or gzip")),
        };
        let bulletins_max = match property(BULLETINS) {
            None => usize::MAX,
            Some(text) => text
                .parse()
                .map_err(|_| wrong(BULLETINS, &text, "a number of bulletins"))?,
        };
        let asset_wait = match property(ASSET_WAIT) {
            None => ASSET_WAIT_DEFAULT,
            Some(text) => units::duration(&text)
                .filter(|wait| !wait.is_zero())
                .ok_or_else(|| wrong(ASSET_WAIT, &text, "a duration such as 30 sec"))?,
        };
        Ok(Some(ControlConfig {
            heartbeat_url: urls.heartbeat,
            acknowledge_url: urls.acknowledge,
            flow_base_url: urls.base,
            identifier,
            class: args.class.clone().or_else(|| property(CLASS)),
            period: period_of(&period)?,
            is_full: flag(property, FULL, false)?,
            roots: roots(property(ROOTS).as_deref())?,
            bulletins_max,
            is_gzip,
            is_minimized: flag(property, MINIMIZE, false)?,
            asset_wait,
            tls: tls(property)?,
        }))
    }
}

/// The addresses of a control plane.
struct Urls {
    heartbeat: String,
    acknowledge: String,
    base: String,
}

impl Urls {
    fn of(
        args: &RunArgs,
        property: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Urls>, AgentError> {
        let base = property("nifi.c2.rest.path.base");
        let absolute = |url: String| match &base {
            Some(base) if !url.contains("://") => joined(base, &url),
            _ => url,
        };
        let is_enabled = flag(property, "nifi.c2.enable", true)?;
        let from_file = property("nifi.c2.rest.url").filter(|_| is_enabled);
        let Some(url) = args.c2_url.clone().or(from_file.map(&absolute)) else {
            return Ok(None);
        };
        let heartbeat = heartbeat_url(&url)?;
        let beside = heartbeat.rsplit_once('/').map_or("", |(beside, _)| beside);
        let acknowledge = args
            .c2_ack_url
            .clone()
            .or_else(|| property("nifi.c2.rest.url.ack").map(&absolute))
            .unwrap_or_else(|| format!("{beside}/acknowledge"));
        Ok(Some(Urls {
            acknowledge,
            base: property("nifi.c2.flow.base.url")
                .or(base)
                .unwrap_or_else(|| beside.to_owned()),
            heartbeat,
        }))
    }
}

/// An address relative to another one.
pub(crate) fn joined(base: &str, path: &str) -> String {
    format!(
        "{}/{}",
        base.trim_end_matches('/'),
        path.trim_start_matches('/')
    )
}

fn tls(property: &dyn Fn(&str) -> Option<String>) -> Result<SslFiles, AgentError> {
    let tls = SslFiles {
        certificate: property(CERTIFICATE),
        key: property(PRIVATE_KEY),
        passphrase: property(PASS_PHRASE),
        authority: property(AUTHORITIES),
        system: flag(property, SYSTEM_STORE, false)?,
    };
    if tls.certificate.is_none() && tls.key.is_some() {
        return Err(AgentError::Setting(format!(
            "{PRIVATE_KEY} needs {CERTIFICATE}, the certificate of that key"
        )));
    }
    Ok(tls)
}

fn heartbeat_url(url: &str) -> Result<String, AgentError> {
    let schemes = ["http://", "https://"];
    let rest = schemes
        .into_iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else {
        return Err(AgentError::Setting(format!(
            "--c2-url '{url}' must be an http:// or https:// address"
        )));
    };
    match rest.trim_end_matches('/').split_once('/') {
        None => Ok(format!("{}{EFM_HEARTBEAT}", url.trim_end_matches('/'))),
        Some(_) => Ok(url.to_owned()),
    }
}

/// A heartbeat's period: `5s`, `30 sec`, or bare milliseconds, as both MiNiFis write it.
fn period_of(text: &str) -> Result<HumanDuration, AgentError> {
    let bare = text.parse().ok().map(Duration::from_millis);
    match bare.or_else(|| units::duration(text)) {
        Some(period) if !period.is_zero() => Ok(HumanDuration(period)),
        _ => Err(AgentError::Setting(format!(
            "heartbeat period '{text}' is no duration: write it as 30 sec or 5s"
        ))),
    }
}

fn roots(text: Option<&str>) -> Result<Vec<Root>, AgentError> {
    let Some(text) = text else {
        return Ok(ROOTS_DEFAULT.to_vec());
    };
    let mut roots = Vec::new();
    for word in text
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
    {
        let known = ROOTS_KNOWN.iter().find(|(_, known)| *known == word);
        let Some((root, _)) = known else {
            let known: Vec<&str> = ROOTS_KNOWN.iter().map(|(_, word)| *word).collect();
            return Err(wrong(ROOTS, word, &format!("some of {}", known.join(", "))));
        };
        roots.push(*root);
    }
    if !roots.contains(&Root::Agent) {
        return Err(AgentError::Setting(format!(
            "{ROOTS} must have AgentInformation: no control plane knows an agent without it"
        )));
    }
    Ok(roots)
}

/// A value that is `true` or `false`.
pub(crate) fn flag(
    property: &dyn Fn(&str) -> Option<String>,
    key: &str,
    default: bool,
) -> Result<bool, AgentError> {
    match property(key).as_deref() {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(wrong(key, other, "true or false")),
    }
}

/// The error for a value that cannot be.
pub(crate) fn wrong(key: &str, value: &str, right: &str) -> AgentError {
    AgentError::Setting(format!("{key}: '{value}' is not {right}"))
}

const CLASS: &str = "nifi.c2.agent.class";
const PERIOD: &str = "nifi.c2.agent.heartbeat.period";
const FULL: &str = "nifi.c2.full.heartbeat";
const ROOTS: &str = "nifi.c2.root.classes";
const BULLETINS: &str = "nifi.c2.flow.info.processor.bulletin.limit";
const ENCODING: &str = "nifi.c2.rest.request.encoding";
const MINIMIZE: &str = "nifi.c2.rest.heartbeat.minimize.updates";
const ASSET_WAIT: &str = "nifi.c2.asset.download.timeout";
const CERTIFICATE: &str = "nifi.security.client.certificate";
const PRIVATE_KEY: &str = "nifi.security.client.private.key";
const PASS_PHRASE: &str = "nifi.security.client.pass.phrase";
const AUTHORITIES: &str = "nifi.security.client.ca.certificate";
const SYSTEM_STORE: &str = "nifi.security.use.system.cert.store";

const ROOTS_KNOWN: &[(Root, &str)] = &[
    (Root::Device, "DeviceInfoNode"),
    (Root::Agent, "AgentInformation"),
    (Root::Flow, "FlowInformation"),
    (Root::Assets, "AssetInformation"),
    (Root::Checksums, "ConfigurationChecksums"),
];

/// What MiNiFi C++'s own settings file has.
const ROOTS_DEFAULT: &[Root] = &[Root::Device, Root::Agent, Root::Flow, Root::Assets];

/// Where a control plane listens when only its host is named.
const EFM_HEARTBEAT: &str = "/efm/api/c2-protocol/heartbeat";

const PERIOD_DEFAULT: &str = "5s";

/// Enough for the largest asset over a slow line; a stalled one ends sooner.
const ASSET_WAIT_DEFAULT: Duration = Duration::from_secs(3_600);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(properties: &[(&str, &str)]) -> Result<Option<ControlConfig>, String> {
        let property = |key: &str| {
            let found = properties.iter().find(|(name, _)| *name == key);
            found.map(|(_, value)| (*value).to_owned())
        };
        ControlConfig::of(&RunArgs::default(), &property, "a".to_owned())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn properties_say_where_the_control_plane_is_and_what_it_is_told() {
        let config = read(&[
            ("nifi.c2.rest.path.base", "http://fleet:10090/efm/api"),
            ("nifi.c2.rest.url", "/c2-protocol/heartbeat"),
            ("nifi.c2.rest.url.ack", "/c2-protocol/acknowledge"),
            ("nifi.c2.agent.heartbeat.period", "30 sec"),
            ("nifi.c2.full.heartbeat", "true"),
            ("nifi.c2.flow.info.processor.bulletin.limit", "3"),
            ("nifi.c2.rest.request.encoding", "gzip"),
            ("nifi.c2.root.classes", "AgentInformation, FlowInformation"),
        ])
        .unwrap()
        .unwrap();
        let base = "http://fleet:10090/efm/api";
        assert_eq!(
            config.heartbeat_url,
            format!("{base}/c2-protocol/heartbeat")
        );
        assert_eq!(
            config.acknowledge_url,
            format!("{base}/c2-protocol/acknowledge")
        );
        assert_eq!(config.flow_base_url, base);
        assert_eq!(config.period.0, Duration::from_secs(30));
        assert_eq!(config.roots, [Root::Agent, Root::Flow]);
        assert!(config.is_full && config.is_gzip && !config.is_minimized);
        assert_eq!(config.bulletins_max, 3);
        let plain = read(&[("nifi.c2.rest.url", "http://fleet:10090")])
            .unwrap()
            .unwrap();
        assert_eq!(
            plain.flow_base_url,
            "http://fleet:10090/efm/api/c2-protocol"
        );
        assert!(!plain.is_full && !plain.is_gzip);
        assert_eq!(plain.roots.len(), 4);
        let off = [
            ("nifi.c2.rest.url", "http://fleet:10090"),
            ("nifi.c2.enable", "false"),
        ];
        assert!(read(&off).unwrap().is_none());
    }

    #[test]
    fn values_that_cannot_be_are_refused_with_their_key() {
        let url = ("nifi.c2.rest.url", "http://fleet:10090");
        for (key, value) in [
            ("nifi.c2.rest.request.encoding", "zip"),
            ("nifi.c2.flow.info.processor.bulletin.limit", "many"),
            ("nifi.c2.root.classes", "AgentInformation,Nonsense"),
            ("nifi.c2.root.classes", "FlowInformation"),
            ("nifi.c2.full.heartbeat", "yes"),
            ("nifi.c2.asset.download.timeout", "0 sec"),
            ("nifi.security.client.private.key", "a.key"),
        ] {
            let error = read(&[url, (key, value)]).map(drop).unwrap_err();
            assert!(error.contains(key), "{key}={value}: {error}");
        }
    }
}
