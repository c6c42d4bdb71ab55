//! ProxyConfigurationService: by which proxy processors go out.

use std::fmt;
use std::sync::Arc;

use super::ServiceKind;
use crate::processors::{Dynamic, PropertyKind, Settings, Shape};

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyConfiguration {
    /// How it is spoken to.
    pub kind: ProxyType,
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who we are there: name and password.
    pub user: Option<(String, String)>,
}

/// How a proxy is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyType {
    /// There is none.
    Direct,
    /// In plain text; what goes through may be TLS.
    Http,
    /// By TLS.
    Https,
}

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "ProxyConfigurationService",
    provides: "ProxyConfigurationService",
    description: "The HTTP proxy by which processors go out.",
    properties: &[
        PropertyKind::new(
            "Proxy Type",
            "How the proxy is spoken to; DIRECT is none at all.",
        )
        .default("HTTP")
        .allowed(&["DIRECT", "HTTP", "HTTPS"]),
        PropertyKind::new("Proxy Server Host", "Host name or address of the proxy."),
        PropertyKind::new("Proxy Server Port", "Port of the proxy.").shape(Shape::Integer(1)),
        PropertyKind::new("Proxy User Name", "Who we are at the proxy."),
        PropertyKind::new("Proxy User Password", "The user's password.").sensitive(),
    ],
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(make(settings)?)),
};

impl ProxyConfiguration {
    /// The proxy's address without user, as `http://host:port`; none for a direct way.
    pub fn url(&self) -> Option<String> {
        let scheme = match self.kind {
            ProxyType::Direct => return None,
            ProxyType::Http => "http",
            ProxyType::Https => "https",
        };
        Some(format!("{scheme}://{}:{}", self.host, self.port))
    }
}

impl fmt::Debug for ProxyConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        write!(f, "ProxyConfiguration({:?}, user {user:?})", self.url())
    }
}

fn make(settings: &Settings<'_>) -> Result<ProxyConfiguration, String> {
    let kind = match settings.needed("Proxy Type")?.as_str() {
        "DIRECT" => ProxyType::Direct,
        "HTTPS" => ProxyType::Https,
        _ => ProxyType::Http,
    };
    let (host, port) = match kind {
        ProxyType::Direct => (String::new(), 0),
        _ => (
            settings.needed("Proxy Server Host")?,
            match settings.text("Proxy Server Port")? {
                Some(_) => settings.integer("Proxy Server Port")?,
                None => PORT_DEFAULT,
            },
        ),
    };
    let name = settings.text("Proxy User Name")?;
    let password = settings.text("Proxy User Password")?;
    let user = match (name, password) {
        (Some(name), password) => Some((name, password.unwrap_or_default())),
        (None, None) => None,
        (None, Some(_)) => return Err("Proxy User Password needs Proxy User Name".to_owned()),
    };
    Ok(ProxyConfiguration {
        kind,
        host,
        port,
        user,
    })
}

/// Where proxies usually listen.
const PORT_DEFAULT: u16 = 8080;

#[cfg(test)]
mod tests {
    use base::UnixMillis;

    use super::*;
    use crate::definition::ServiceDefinition;
    use crate::services::Services;

    fn made(properties: &[(&str, &str)]) -> Result<Arc<ProxyConfiguration>, String> {
        let definition = ServiceDefinition {
            id: "p".to_owned(),
            name: "p".to_owned(),
            path: String::new(),
            group_id: String::new(),
            kind: &KIND,
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let services = Services::make(UnixMillis(0), &[definition]).map_err(|e| e.to_string())?;
        Ok(services.find("p").expect("it was made"))
    }

    #[test]
    fn a_proxy_is_an_address_and_never_shows_its_password() {
        let proxy = made(&[
            ("Proxy Server Host", "proxy.example"),
            ("Proxy Server Port", "3128"),
            ("Proxy User Name", "ann"),
            ("Proxy User Password", "secret"),
        ])
        .unwrap();
        assert_eq!(proxy.url().as_deref(), Some("http://proxy.example:3128"));
        assert_eq!(proxy.user, Some(("ann".to_owned(), "secret".to_owned())));
        assert!(!format!("{proxy:?}").contains("secret"));
        let direct = made(&[("Proxy Type", "DIRECT")]).unwrap();
        assert_eq!(direct.url(), None);
        for (properties, message) in [
            (vec![], "Proxy Server Host is required"),
            (
                vec![("Proxy Server Host", "p"), ("Proxy Server Port", "70000")],
                "'70000' is out of range",
            ),
            (
                vec![("Proxy Server Host", "p"), ("Proxy User Password", "x")],
                "needs Proxy User Name",
            ),
        ] {
            let error = made(&properties).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
