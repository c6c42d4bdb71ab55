//! The HTTP ports as the configuration has them: what each is served with, and what is read again
//! on SIGHUP.

use std::sync::Arc;
use std::time::Duration;

use access::{AccessError, Jwts, Tls};
use base::Clock;

use super::config::HttpConfig;
use super::door::Manners;
use super::guard::Guard;
use super::limits::BODY_IDLE_MAX;
use super::serve::Transport;
use crate::config::Config;

/// All HTTP ports of the process, and whose tokens they take.
pub struct Ports {
    /// The REST proxy's.
    pub rest: Port,
    /// The schema registry's.
    pub schemas: Port,
    /// That of the management APIs, the console and the agents.
    pub management: Port,
    /// Checks tokens that somebody else issued.
    pub jwts: Option<Arc<Jwts>>,
}

/// One HTTP port.
pub struct Port {
    name: &'static str,
    tls: Option<Arc<Tls>>,
    manners: Arc<Manners>,
    idle_timeout: Duration,
    connections_max: usize,
    max_connections_per_ip: usize,
    /// Holds callers to what they may ask for; within the logins, as it asks who calls.
    pub rates: Option<Arc<rest::RateLimit>>,
}

impl Ports {
    /// Reads certificates and keys.
    ///
    /// # Errors
    /// [`AccessError::Tls`], [`AccessError::Jwks`].
    pub fn open(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, AccessError> {
        let port = |name, http: &HttpConfig, knows_everybody, body_idle_max, own_origin| {
            let manners = Manners {
                body_idle_max,
                guard: match config.access.allow_remote || knows_everybody {
                    true => Guard::Origin,
                    false => Guard::OriginAndHost,
                },
                own_origin,
                ..http.manners()
            };
            Ok(Port {
                name,
                tls: http.open_tls()?,
                manners: Arc::new(manners),
                idle_timeout: http.idle_timeout.0,
                connections_max: http.connections_max,
                max_connections_per_ip: http.max_connections_per_ip,
                rates: rest::RateLimit::of(&http.rate_limit, clock.clone()),
            })
        };
        Ok(Ports {
            // The proxy bounds its bodies itself: a stream of records may be silent for longer.
            rest: port(
                "rest",
                &config.rest.http,
                config.knows_callers_of(&config.rest.http),
                None,
                None,
            )?,
            schemas: port(
                "schemas",
                &config.schemas.http,
                config.knows_callers_of(&config.schemas.http),
                Some(BODY_IDLE_MAX),
                None,
            )?,
            management: port(
                "fleet",
                &config.fleet.http,
                config.knows_callers_of_management(),
                Some(BODY_IDLE_MAX),
                config.access.sign_in.origin(),
            )?,
            jwts: Jwts::open(config.access.jwt.clone())?.map(Arc::new),
        })
    }

    /// The ports that speak TLS, by the names of their endpoints.
    pub fn with_tls(&self) -> Vec<&'static str> {
        let ports = [
            ("rest", &self.rest),
            ("schemas", &self.schemas),
            ("management", &self.management),
            ("fleet", &self.management),
        ];
        let with_tls = ports.into_iter().filter(|(_, port)| port.tls.is_some());
        with_tls.map(|(name, _)| name).collect()
    }

    /// The certificates of these ports, by the ports' names.
    pub fn certificates(&self) -> Vec<(&'static str, access::CertificateFacts)> {
        let each = self
            .each()
            .into_iter()
            .filter_map(|port| Some((port.name, port.tls.as_ref()?.own_certificate())));
        each.collect()
    }

    /// Whether anything is read again by [`Ports::reload`].
    pub fn has_files(&self) -> bool {
        self.jwts.is_some() || self.each().iter().any(|port| port.tls.is_some())
    }

    /// Reads certificates and keys again; what is wrong with some changes nothing of them.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn reload(&self) -> Result<(), AccessError> {
        let tls = self.each().map(|port| port.tls.as_ref());
        let mut done: Vec<_> = tls.into_iter().flatten().map(|tls| tls.reload()).collect();
        done.extend(self.jwts.as_ref().map(|jwts| jwts.reload()));
        done.into_iter().collect()
    }

    fn each(&self) -> [&Port; 3] {
        [&self.rest, &self.schemas, &self.management]
    }
}

impl Port {
    /// Whom its own certificate names.
    pub fn own_name(&self) -> Option<access::Principal> {
        self.tls.as_ref()?.own_name()
    }

    /// What [`super::serve`] needs for it.
    pub fn transport(&self) -> Transport {
        Transport {
            name: self.name,
            tls: self.tls.clone(),
            manners: self.manners.clone(),
            idle_timeout: self.idle_timeout,
            connections_max: self.connections_max,
            max_connections_per_ip: self.max_connections_per_ip,
        }
    }
}
