//! The client for calls that other proxies answer. Over TLS it believes whom the configuration names,
//! and shows the proxy's own certificate to those who ask for one.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use reqwest::{Certificate, Client, ClientBuilder, Identity};

use crate::config::RestConfig;
use crate::limits;

/// Other proxies on the same store, as one client for all of them, made when it is first needed:
/// reading the system's certificates takes a while, and most proxies have no peers.
pub(crate) struct Peers {
    trust: Trust,
    client: OnceLock<Client>,
}

/// Whom to believe, and what to show.
#[derive(Clone)]
struct Trust {
    ca: Option<PathBuf>,
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
}

/// The files by which proxies know each other cannot be used; the operator's fault.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used for calls to other proxies: {reason}", path.display())]
pub struct PeersError {
    path: PathBuf,
    reason: String,
}

impl Peers {
    pub(crate) fn new(config: &RestConfig) -> Self {
        Peers {
            trust: Trust::of(config),
            client: OnceLock::new(),
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.client.get_or_init(|| {
            self.trust.client().unwrap_or_else(|error| {
                // They were good when the process started.
                let error = base::report(&error);
                tracing::warn!(error, "calls to other proxies go without certificates");
                plain()
            })
        })
    }
}

impl RestConfig {
    /// Looks whether the files can be used by which other proxies are believed.
    ///
    /// # Errors
    /// Which cannot, and why.
    pub fn check_peers(&self) -> Result<(), PeersError> {
        match &self.peer_ca {
            Some(_) => Trust::of(self).client().map(drop),
            None => Ok(()),
        }
    }
}

impl Trust {
    fn of(config: &RestConfig) -> Self {
        Trust {
            ca: config.peer_ca.clone(),
            identity: config.peer_identity.clone(),
        }
    }

    fn client(&self) -> Result<Client, PeersError> {
        let mut builder = builder();
        if let Some(ca) = &self.ca {
            let refused = |error: reqwest::Error| unusable(ca, &error);
            let roots = Certificate::from_pem_bundle(&read(ca)?).map_err(refused)?;
            if roots.is_empty() {
                let reason = "it holds no certificate".to_owned();
                let path = ca.clone();
                return Err(PeersError { path, reason });
            }
            builder = builder.tls_certs_only(roots);
        }
        if let Some((certificate, key)) = &self.identity {
            let pem = [read(key)?, vec![b'\n'], read(certificate)?].concat();
            let identity = Identity::from_pem(&pem);
            builder = builder.identity(identity.map_err(|error| unusable(key, &error))?);
        }
        match builder.build() {
            Ok(client) => Ok(client),
            // A machine that believes nobody can still call proxies without TLS.
            Err(_) if self.ca.is_none() => Ok(plain()),
            Err(error) => Err(unusable(
                self.ca.as_deref().unwrap_or(Path::new("")),
                &error,
            )),
        }
    }
}

fn builder() -> ClientBuilder {
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(limits::PEER_CONNECT_MAX)
        // Of each part: a large answer takes as long as its reader does.
        .read_timeout(limits::PEER_ANSWER_MAX)
        // What is between proxies is not between this machine and the world.
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
}

fn plain() -> Client {
    let client = builder().tls_certs_only([]).build();
    client.expect("with its own certificates nothing of a client can fail")
}

fn read(path: &Path) -> Result<Vec<u8>, PeersError> {
    std::fs::read(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &(dyn std::error::Error + 'static)) -> PeersError {
    PeersError {
        path: path.to_owned(),
        reason: base::report(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let config = RestConfig {
            peer_ca: Some(path.clone()),
            ..RestConfig::default()
        };
        assert!(RestConfig::default().check_peers().is_ok());
        let told = config.check_peers().unwrap_err().to_string();
        assert!(told.contains("ca.pem"), "{told}");
        std::fs::write(&path, "nothing").unwrap();
        let told = config.check_peers().unwrap_err().to_string();
        assert!(told.contains("no certificate"), "{told}");
    }
}
