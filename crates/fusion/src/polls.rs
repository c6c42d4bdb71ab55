//! Servers that are asked for events: what a DFM statement with the publisher `HTTP_GET` does.
//!
//! In the DFM each row of such a statement sends a GET to every path of its `output` on every server
//! of its `scope`, and what is answered enters the engine as an Observation; the row itself is not
//! sent. So it is here. An answer is published, as it came, on the statement's own topic below
//! `LS/`, which is one of `Observation`'s.
//!
//! * A statement that reads that topic itself would ask because it asked. It asks by the clock
//!   instead, each [`PollsConfig::interval`]; its rows ask nothing.
//! * Each address is asked by itself ([`asker`]): a slow server holds up no other one. Rows that
//!   come while it is being asked, or within [`PollsConfig::gap`] of that, ask once more together.
//! * Only servers that the configuration names are asked, by the alias that it gives them. That is
//!   looked up whenever the statement starts, and a path does not lead out of the server's base.
//! * Nothing of this is kept: after a restart, or a pause, rows and the clock ask anew.

mod asker;
mod config;
mod fetch;

use std::collections::BTreeMap;
use std::sync::Arc;

use metrics::counter;
use mqtt::TopicName;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use asker::Asker;
pub use config::PollsConfig;
pub use fetch::Fetcher;

use crate::limits::TARGETS_MAX;
use crate::statement::PollInfo;

/// What a statement asks for, as it says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Polled {
    /// Aliases of servers.
    pub scopes: Vec<String>,
    /// Paths on each of them; none for the server's base itself.
    pub paths: Vec<String>,
}

impl Polled {
    /// The addresses of all paths on all servers.
    ///
    /// # Errors
    /// There is no server, one that `servers` does not name, a path that leads elsewhere, or more
    /// than [`TARGETS_MAX`] addresses.
    pub fn addresses(&self, servers: &BTreeMap<String, String>) -> Result<Vec<Url>, String> {
        if self.scopes.is_empty() {
            return Err("the publisher needs a scope: the alias of a server".to_owned());
        }
        let mut addresses = Vec::new();
        for scope in &self.scopes {
            let server = servers.get(scope).ok_or_else(|| {
                format!("the scope '{scope}' is no server: fusion.control.servers lists them")
            })?;
            if self.paths.is_empty() {
                addresses.push(address(server, "")?);
            }
            for path in &self.paths {
                addresses.push(address(server, path)?);
            }
        }
        if addresses.len() > TARGETS_MAX {
            return Err(format!(
                "the statement has {} addresses: name at most {TARGETS_MAX}",
                addresses.len()
            ));
        }
        Ok(addresses)
    }
}

impl std::fmt::Display for Polled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (scopes, paths) = (self.scopes.join(","), self.paths.join(","));
        write!(f, "get@{scopes}:{paths}")
    }
}

/// The address of a path on a server.
fn address(server: &str, path: &str) -> Result<Url, String> {
    let wrong =
        |why: &dyn std::fmt::Display| format!("{server} with '{path}' is no address: {why}");
    let server = server.trim_end_matches('/');
    let base = server.parse::<Url>().map_err(|error| wrong(&error))?;
    let text = match path.trim_start_matches('/') {
        "" => server.to_owned(),
        path => format!("{server}/{path}"),
    };
    let address = text.parse::<Url>().map_err(|error| wrong(&error))?;
    let below = base.path().trim_end_matches('/');
    let rest = address.path().strip_prefix(below);
    let is_below = rest.is_some_and(|rest| {
        (rest.is_empty() || rest.starts_with('/')) && !climbs_when_decoded(rest)
    });
    match is_below && address.origin() == base.origin() {
        true => Ok(address),
        false => Err(wrong(&"it leads out of the server's base")),
    }
}

/// Whether a path has a part that leads up for a server that decodes separators or takes away a
/// part's parameters, which an address as such does not.
fn climbs_when_decoded(path: &str) -> bool {
    let decoded = path
        .to_ascii_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "\\")
        .replace("%3b", ";");
    let mut parts = decoded.split(['/', '\\']);
    parts.any(|part| part.split(';').next() == Some(".."))
}

/// A statement's servers.
#[derive(Debug)]
pub struct Poll {
    addresses: Vec<Url>,
    /// Where answers are published.
    topic: TopicName,
    /// Whether it asks by the clock rather than with each row.
    is_timed: bool,
    config: PollsConfig,
    /// How often rows asked.
    asked: watch::Sender<u64>,
    books: Mutex<Books>,
    stop: Mutex<CancellationToken>,
}

#[derive(Debug, Default)]
struct Books {
    asked: u64,
    answered: u64,
    empty: u64,
    failed: u64,
    /// Why an address does not answer at the moment, by its place.
    troubles: BTreeMap<usize, String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// The answer is published.
    Answered,
    /// There was nothing in it.
    Empty,
    /// It failed.
    Failed(String),
}

impl Poll {
    /// Servers whose answers go to `topic`.
    pub fn new(addresses: Vec<Url>, topic: TopicName, is_timed: bool, config: PollsConfig) -> Self {
        Poll {
            addresses,
            topic,
            is_timed,
            config,
            asked: watch::Sender::default(),
            books: Mutex::default(),
            stop: Mutex::default(),
        }
    }

    /// A row came.
    pub fn ask(&self) {
        self.asked
            .send_modify(|asked| *asked = asked.wrapping_add(1));
    }

    /// The places of the addresses.
    pub fn places(&self) -> std::ops::Range<usize> {
        0..self.addresses.len()
    }

    /// A token that ends a new turn of asking, before `parent` does.
    pub fn starts(&self, parent: &CancellationToken) -> CancellationToken {
        let token = parent.child_token();
        *self.stop.lock() = token.clone();
        token
    }

    /// Asks nobody any more.
    pub fn stop(&self) {
        self.stop.lock().cancel();
    }

    /// As it is shown.
    pub fn info(&self) -> PollInfo {
        let books = self.books.lock();
        let interval_ms = u64::try_from(self.config.interval.0.as_millis()).unwrap_or(u64::MAX);
        PollInfo {
            topic: self.topic.to_string(),
            interval_ms: self.is_timed.then_some(interval_ms),
            asked_total: books.asked,
            answered_total: books.answered,
            empty_total: books.empty,
            failed_total: books.failed,
        }
    }

    /// Counts a request to the address at `place`; the trouble that the statement has then, or none.
    fn count(&self, place: usize, asked: &Asked) -> Option<String> {
        let mut books = self.books.lock();
        books.asked += 1;
        let outcome = match asked {
            Asked::Answered => {
                books.answered += 1;
                "answered"
            }
            Asked::Empty => {
                books.empty += 1;
                "empty"
            }
            Asked::Failed(_) => {
                books.failed += 1;
                "failed"
            }
        };
        counter!("thalweg_fusion_polls_total", "outcome" => outcome).increment(1);
        match asked {
            Asked::Failed(why) => {
                let address = &self.addresses[place];
                let trouble = format!("cannot get events from {address}: {why}");
                books.troubles.insert(place, trouble);
            }
            Asked::Answered | Asked::Empty => {
                books.troubles.remove(&place);
            }
        }
        books.troubles.values().next().cloned()
    }

    /// Forgets why an address did not answer; the trouble that is left.
    fn forget(&self, place: usize) -> Option<String> {
        let mut books = self.books.lock();
        books.troubles.remove(&place);
        books.troubles.values().next().cloned()
    }
}

/// What asks the servers of one lane, one for each address. They hear rows from now on.
pub fn askers(
    lane: &Arc<crate::lane::Lane>,
    fetcher: &Arc<Fetcher>,
    server: &mqtt::Server,
) -> Vec<Asker> {
    let Some(poll) = lane.poll() else {
        return Vec::new();
    };
    let asker = |place| Asker {
        lane: lane.clone(),
        asked: poll.asked.subscribe(),
        poll: poll.clone(),
        place,
        fetcher: fetcher.clone(),
        server: server.clone(),
        has_failed: false,
    };
    poll.places().map(asker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_named_servers_are_addresses() {
        let servers = BTreeMap::from([
            ("a".to_owned(), "http://a:1/".to_owned()),
            ("b".to_owned(), "https://b/api/v1".to_owned()),
        ]);
        let asked = |scopes: &[&str], paths: &[&str]| -> Result<Vec<String>, String> {
            let texts = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect();
            let polled = Polled {
                scopes: texts(scopes),
                paths: texts(paths),
            };
            let addresses = polled.addresses(&servers)?;
            Ok(addresses.iter().map(Url::to_string).collect())
        };
        assert_eq!(
            asked(&["a", "b"], &["/t?x=1", "u"]),
            Ok(vec![
                "http://a:1/t?x=1".to_owned(),
                "http://a:1/u".to_owned(),
                "https://b/api/v1/t?x=1".to_owned(),
                "https://b/api/v1/u".to_owned(),
            ])
        );
        assert_eq!(asked(&["b"], &[]), Ok(vec!["https://b/api/v1".to_owned()]));
        assert_eq!(
            asked(&["a"], &["@evil/x"]),
            Ok(vec!["http://a:1/@evil/x".to_owned()])
        );
        assert_eq!(
            asked(&["b"], &["a%2Fb;c/..d?to=../e"]),
            Ok(vec!["https://b/api/v1/a%2Fb;c/..d?to=../e".to_owned()])
        );
        for (scopes, paths, says) in [
            (&[][..], &[][..], "needs a scope"),
            (&["c"][..], &["t"][..], "no server"),
            (&["b"][..], &["../admin"][..], "leads out"),
            (&["b"][..], &["%2e%2e/v2"][..], "leads out"),
            (&["b"][..], &["..%2fadmin"][..], "leads out"),
            (&["b"][..], &["..%5Cadmin"][..], "leads out"),
            (&["b"][..], &["..;/admin"][..], "leads out"),
            (&["b"][..], &["%2E.%3Bx=1/admin"][..], "leads out"),
            (&["b"][..], &["x%2f..%2f..%2fy"][..], "leads out"),
            (&["a"][..], &["t"; 17][..], "at most 16"),
        ] {
            let error = asked(scopes, paths).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_trouble_stays_until_its_own_address_answers() {
        let addresses = ["http://a/", "http://b/"].map(|address| address.parse::<Url>().unwrap());
        let topic = "t".parse().unwrap();
        let poll = Poll::new(addresses.to_vec(), topic, false, PollsConfig::default());
        let failed = Asked::Failed("no".to_owned());
        let says = |trouble: Option<String>, address: &str| trouble.unwrap().contains(address);
        assert!(says(poll.count(1, &failed), "http://b/"));
        assert!(says(poll.count(0, &failed), "http://a/"));
        assert!(says(poll.count(0, &Asked::Empty), "http://b/"));
        assert_eq!(poll.count(1, &Asked::Answered), None);
        let info = poll.info();
        assert_eq!(info.interval_ms, None);
        assert_eq!(
            (
                info.asked_total,
                info.answered_total,
                info.empty_total,
                info.failed_total
            ),
            (4, 1, 1, 2)
        );
    }
}
