//! What an operator may set for an HTTP port, beside what its role has to be told: the tables `tls`,
//! `cors` and `rate_limit` of the role's section.

use std::ops::Deref;
use std::sync::Arc;

use access::{AccessError, ClientAuth, Tls, TlsConfig};
use base::HumanDuration;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cors::{Cors, CorsConfig};
use super::door::Manners;
use super::limits::{CONNECTIONS_MAX, IDLE_TIMEOUT, IDLE_TIMEOUT_MIN};
use super::link::PROTOCOLS;

/// A role's section, with the settings of its port among its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Section<T> {
    /// The role's own settings.
    #[serde(flatten)]
    pub role: T,
    /// Those of its port.
    #[serde(flatten)]
    pub http: HttpConfig,
}

/// How a port is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Whether answers are packed for those who ask for it.
    pub compression: bool,
    /// A connection on which no whole head of a request comes for so long is closed, be it idle or
    /// slow.
    pub idle_timeout: HumanDuration,
    /// Connections open at a time; more wait.
    pub connections_max: usize,
    /// Connections of one address at a time; one more is closed. 0 is no bound.
    pub max_connections_per_ip: usize,
    /// TLS, by the same words as the Kafka listener's.
    pub tls: TlsConfig,
    /// Which other sites' pages may call.
    pub cors: CorsConfig,
    /// How much each caller may ask for.
    pub rate_limit: rest::RateLimitConfig,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            compression: true,
            idle_timeout: HumanDuration(IDLE_TIMEOUT),
            connections_max: CONNECTIONS_MAX,
            max_connections_per_ip: 0,
            tls: TlsConfig::default(),
            cors: CorsConfig::default(),
            rate_limit: rest::RateLimitConfig::default(),
        }
    }
}

impl<T> Deref for Section<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.role
    }
}

impl<T: DeserializeOwned> Section<T> {
    /// Reads a section: what is not the port's is the role's.
    ///
    /// # Errors
    /// What does not fit.
    pub fn read(section: Value) -> Result<Self, serde_json::Error> {
        let known = serde_json::to_value(HttpConfig::default())?;
        let all: Map<String, Value> = serde_json::from_value(section)?;
        let (http, role): (Map<_, _>, Map<_, _>) = all
            .into_iter()
            .partition(|(key, _)| known.get(key).is_some());
        Ok(Section {
            role: serde_json::from_value(Value::Object(role))?,
            http: serde_json::from_value(Value::Object(http))?,
        })
    }
}

impl HttpConfig {
    /// All that is wrong with the settings, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.tls.problems();
        problems.extend(self.cors.problems());
        if self.idle_timeout.0 < IDLE_TIMEOUT_MIN {
            problems.push(format!(
                "idle_timeout: {} is too short; at least {}",
                self.idle_timeout,
                HumanDuration(IDLE_TIMEOUT_MIN)
            ));
        }
        if self.connections_max == 0 {
            problems.push("connections_max: at least 1".to_owned());
        }
        problems
    }

    /// Whether everybody who connects shows a certificate.
    pub fn asks_for_certificates(&self) -> bool {
        self.tls.is_on() && self.tls.client_auth == ClientAuth::Required
    }

    /// TLS of the port, when it speaks it.
    ///
    /// # Errors
    /// [`AccessError::Tls`].
    pub fn open_tls(&self) -> Result<Option<Arc<Tls>>, AccessError> {
        match self.tls.is_on() {
            true => Ok(Some(Arc::new(Tls::open(self.tls.clone(), PROTOCOLS)?))),
            false => Ok(None),
        }
    }

    /// What is done to the port's requests.
    pub fn manners(&self) -> Manners {
        Manners {
            cors: Cors::of(&self.cors),
            compression: self.compression,
            ..Manners::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Role {
        listen: String,
    }

    #[test]
    fn a_section_is_parted_into_the_roles_and_the_ports() {
        let section = serde_json::json!({"listen": "a", "tls": {"principal": "common_name"}});
        let port: Section<Role> = Section::read(section).unwrap();
        assert_eq!(port.listen, "a");
        assert_eq!(port.http.tls.principal, access::PrincipalName::CommonName);
        for wrong in [
            serde_json::json!({"listen": "a", "unknown": 1}),
            serde_json::json!({"listen": "a", "tls": {"unknown": 1}}),
        ] {
            assert!(Section::<Role>::read(wrong).is_err());
        }
    }
}
