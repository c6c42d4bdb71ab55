//! What a bridge shows and believes when it speaks TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::bridge::config::BridgeConfig;

/// The settings of TLS, read from the bridge's files: a certificate that was renewed holds from the
/// next connect on.
pub(super) fn client_config(config: &BridgeConfig) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            for certificate in certificates(path)? {
                roots
                    .add(certificate)
                    .map_err(|error| format!("ca = {}: {error}", path.display()))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    if roots.is_empty() {
        return Err("no certificate is believed: name a file with ca".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let made = match (&config.certificate, &config.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let read = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("key = {}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(chain, read)
                .map_err(|error| format!("certificate = {}: {error}", certificate.display()))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(made))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let read = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let all: Result<Vec<_>, _> = read.collect();
    all.map_err(|error| wrong(&error))
}
