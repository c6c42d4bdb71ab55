//! What ConsumeKafka and PublishKafka have in common: brokers, TLS and SASL.

use super::{Expressions, PropertyKind, Settings, Shape};
use crate::kafka::{Mechanism, Sasl, ScramHash, Security};
use crate::net::tls;
use crate::services::SslContext;

pub(super) const SECURITY_PROTOCOL: PropertyKind = PropertyKind::new(
    "Security Protocol",
    "plaintext, ssl, sasl_plaintext or sasl_ssl: whether links are TLS and whether the agent \
     logs in.",
)
.default("plaintext")
.allowed(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]);

pub(super) const SASL_MECHANISM: PropertyKind = PropertyKind::new(
    "SASL Mechanism",
    "How the agent logs in. MiNiFi's default is GSSAPI, which is not supported here.",
)
.default("PLAIN")
.allowed(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);

pub(super) const USERNAME: PropertyKind =
    PropertyKind::new("Username", "Who the agent is to the brokers.")
        .expressions(Expressions::Once);

pub(super) const PASSWORD: PropertyKind = PropertyKind::new("Password", "The user's password.")
    .expressions(Expressions::Once)
    .sensitive();

pub(super) const SSL_CONTEXT: PropertyKind = PropertyKind::new(
    "SSL Context Service",
    "The agent's certificate and the authorities that brokers are checked with; the system's \
     when there is none.",
)
.shape(Shape::Service("SSLContextService"));

/// Reads addresses `host:port` separated by commas.
pub(super) fn brokers(settings: &Settings<'_>, name: &str) -> Result<Vec<String>, String> {
    let text = settings.needed(name)?;
    let brokers: Vec<String> = text
        .split(',')
        .map(|broker| broker.trim().to_owned())
        .collect();
    for broker in &brokers {
        let port = broker.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return Err(format!("{name}: '{broker}' is no host:port"));
        }
    }
    Ok(brokers)
}

/// Reads the properties above.
pub(super) fn security(settings: &Settings<'_>) -> Result<Security, String> {
    let protocol = settings.needed("Security Protocol")?;
    let context = settings.service::<SslContext>("SSL Context Service")?;
    let is_tls = matches!(protocol.as_str(), "ssl" | "sasl_ssl");
    if context.is_some() && !is_tls {
        return Err(format!(
            "SSL Context Service is set but Security Protocol is {protocol}: write ssl or sasl_ssl"
        ));
    }
    let tls = match is_tls {
        true => Some(tls::client(context.as_deref(), true)?),
        false => None,
    };
    let sasl = match protocol.starts_with("sasl") {
        false => None,
        true => Some(Sasl {
            mechanism: match settings.needed("SASL Mechanism")?.as_str() {
                "SCRAM-SHA-256" => Mechanism::Scram(ScramHash::Sha256),
                "SCRAM-SHA-512" => Mechanism::Scram(ScramHash::Sha512),
                _ => Mechanism::Plain,
            },
            user: settings.needed("Username")?,
            password: settings.text("Password")?.unwrap_or_default(),
        }),
    };
    Ok(Security { tls, sasl })
}
