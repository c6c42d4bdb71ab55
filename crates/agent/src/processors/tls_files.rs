//! TLS by files that a processor's own properties name, where it has no service.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;

use super::{PropertyKind, Settings};
use crate::net::tls;
use crate::services::{SslContext, SslFiles};

pub(super) const SECURITY_CA: PropertyKind =
    PropertyKind::new("Security CA", "PEM file of authorities.");

pub(super) const SECURITY_CERT: PropertyKind =
    PropertyKind::new("Security Cert", "PEM file of the agent's certificate.");

pub(super) const SECURITY_KEY: PropertyKind =
    PropertyKind::new("Security Private Key", "PEM file of its key.");

pub(super) const SECURITY_PASS_PHRASE: PropertyKind =
    PropertyKind::new("Security Pass Phrase", "The key's passphrase.").sensitive();

/// TLS of an agent whose files or whose service the properties name.
pub(super) fn client(settings: &Settings<'_>) -> Result<Arc<ClientConfig>, String> {
    if let Some(context) = settings.service::<SslContext>("SSL Context Service")? {
        return Ok(context.client());
    }
    let files = SslFiles {
        certificate: settings.text("Security Cert")?,
        key: settings.text("Security Private Key")?,
        passphrase: settings.text("Security Pass Phrase")?,
        authority: settings.text("Security CA")?,
        system: false,
    };
    for file in [&files.certificate, &files.key, &files.authority]
        .into_iter()
        .flatten()
    {
        if !Path::new(file).exists() {
            return Err(format!(
                "the file '{file}' of the TLS properties is not there"
            ));
        }
    }
    tls::client(Some(&SslContext::open(&files)?), true)
}
