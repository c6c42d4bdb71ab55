//! What ConsumeKafka and PublishKafka have in common: brokers, TLS and SASL.

use super::{Expressions, PropertyKind, Settings, Shape, tls_files};
use crate::kafka::{Mechanism, Sasl, ScramHash, Security};
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
    "How the agent logs in. GSSAPI, MiNiFi's default, is not supported: it is taken only where the \
     agent does not log in.",
)
.default("PLAIN")
.allowed(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"]);

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
        true => Some(tls_files::client(settings)?),
        false => None,
    };
    let sasl = match protocol.starts_with("sasl") {
        false => None,
        true => Some(Sasl {
            mechanism: match settings.needed("SASL Mechanism")?.as_str() {
                "SCRAM-SHA-256" => Mechanism::Scram(ScramHash::Sha256),
                "SCRAM-SHA-512" => Mechanism::Scram(ScramHash::Sha512),
                "GSSAPI" => {
                    return Err(format!(
                        "SASL Mechanism: GSSAPI is not supported, and Security Protocol is \
                         {protocol}: write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"
                    ));
                }
                _ => Mechanism::Plain,
            },
            user: settings.needed("Username")?,
            password: settings.text("Password")?.unwrap_or_default(),
        }),
    };
    Ok(Security { tls, sasl })
}

#[cfg(test)]
mod tests {
    use crate::testing::Rig;

    #[test]
    fn kerberos_is_refused_where_the_agent_would_log_in() {
        let properties = [
            ("Known Brokers", "localhost:9092"),
            ("Topic Name", "t"),
            ("Client Name", "c"),
            ("SASL Mechanism", "GSSAPI"),
            ("Security Protocol", "sasl_plaintext"),
        ];
        let made = |count: usize| {
            Rig::try_new("PublishKafka", &properties[..count], serde_json::json!({}))
        };
        assert!(made(4).is_ok());
        let error = made(5).err().unwrap();
        assert!(error.contains("GSSAPI is not supported"), "{error}");
    }
}
