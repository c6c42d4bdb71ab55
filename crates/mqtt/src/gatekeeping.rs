//! Settings of what stands around the protocol: further listeners, logins, ACLs, rates.

use access::{ClientAuth, Policy, Principal, TlsConfig};
use base::ByteSize;
use serde::{Deserialize, Serialize};

use crate::guard::GuardSettings;

/// MQTT over WebSocket: section `[mqtt.websocket]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSocketConfig {
    /// Address and port without TLS; no such listener when absent.
    pub listen: Option<String>,
    /// Address and port with TLS; no such listener when absent.
    pub tls_listen: Option<String>,
    /// Origins of pages on other servers that may connect, such as `https://ui.example.org`; `*`
    /// for all.
    pub origins: Vec<String>,
}

/// Who clients are and what they may do: section `[mqtt.security]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Whether clients have to show a password, a token or a certificate.
    pub logins: bool,
    /// Whether the ACLs on MQTT topics are followed.
    pub authorization: Authorization,
    /// Who may do everything, whatever the ACLs say.
    pub super_users: Vec<Principal>,
    /// Whether everybody may do everything to topics that no ACL names.
    pub allow_if_no_acl: bool,
}

/// Whether ACLs are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authorization {
    /// Everybody may do everything.
    #[default]
    Off,
    /// The ACLs decide.
    Acl,
}

/// What one client or user may use: section `[mqtt.rates]`; zero is no bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RatesConfig {
    /// Connections of one user at once.
    pub clients_per_user_max: usize,
    /// PUBLISH packets that one client may send in a second, held back beyond.
    pub client_messages_per_second: u64,
    /// Bytes that one client may send in a second, held back beyond.
    pub client_bytes_per_second: ByteSize,
}

impl Default for RatesConfig {
    fn default() -> Self {
        RatesConfig {
            clients_per_user_max: 0,
            client_messages_per_second: 0,
            client_bytes_per_second: ByteSize(0),
        }
    }
}

/// What tenants' clients see: section `[mqtt.tenants]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantsConfig {
    /// Whether the topics of whoever belongs to a tenant lie below the tenant's name, unwritten.
    pub mount: bool,
}

/// The settings that decide about clients, taken together.
#[derive(Clone, Copy)]
pub(crate) struct Gatekeeping<'c> {
    pub(crate) tls_listen: Option<&'c str>,
    pub(crate) tls: &'c TlsConfig,
    pub(crate) websocket: &'c WebSocketConfig,
    pub(crate) security: &'c SecurityConfig,
    pub(crate) rates: &'c RatesConfig,
    pub(crate) tenants: &'c TenantsConfig,
}

impl Gatekeeping<'_> {
    /// The first thing that is wrong: its key and what would be right.
    pub(crate) fn problem(self) -> Option<(&'static str, String)> {
        if let Some(problem) = self.tls.problems().into_iter().next() {
            return Some(("tls", format!("cannot work: {problem}")));
        }
        let needs_tls = [
            ("tls_listen", self.tls_listen),
            ("websocket.tls_listen", self.websocket.tls_listen.as_deref()),
        ];
        for (key, listen) in needs_tls {
            if listen.is_some() && !self.tls.is_on() {
                let problem = "needs mqtt.tls.certificate and mqtt.tls.key".to_owned();
                return Some((key, problem));
            }
        }
        let is_anybody_known = self.security.logins || self.tls.client_auth != ClientAuth::None;
        if self.tenants.mount && !is_anybody_known {
            let problem = "needs mqtt.security.logins or mqtt.tls.client_auth: else nobody who comes \
                belongs to a tenant";
            return Some(("tenants.mount", problem.to_owned()));
        }
        None
    }

    /// What clients are judged by; none when everybody is let in and may do everything.
    pub(crate) fn guard(self) -> Option<GuardSettings> {
        let policy = (self.security.authorization == Authorization::Acl).then(|| Policy {
            super_users: self.security.super_users.clone(),
            allow_if_no_acl: self.security.allow_if_no_acl,
        });
        let rates = self.rates;
        let is_open = !self.security.logins
            && policy.is_none()
            && self.tls.client_auth == ClientAuth::None
            && *rates == RatesConfig::default();
        (!is_open).then_some(GuardSettings {
            logins: self.security.logins,
            policy,
            clients_per_user_max: rates.clients_per_user_max,
            client_message_rate: rates.client_messages_per_second,
            client_byte_rate: rates.client_bytes_per_second.0,
            mounts_tenants: self.tenants.mount,
        })
    }

    /// Whether everybody who comes to a listener shows who they are, and no password travels in
    /// the clear.
    pub(crate) fn knows_every_client(self, is_tls: bool) -> bool {
        let asks_for_certificates = self.tls.client_auth == ClientAuth::Required;
        is_tls && (self.security.logins || asks_for_certificates)
    }
}
