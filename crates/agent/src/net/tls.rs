//! TLS for clients: whom they believe, and what is known of a peer.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use crate::services::{SslContext, SslFiles};

/// What a client presents and believes: those of `context`, else the system's; it believes
/// anything when it does not verify.
pub(crate) fn client(
    context: Option<&SslContext>,
    verifies: bool,
) -> Result<Arc<ClientConfig>, String> {
    let config = match context {
        Some(context) => context.client(),
        None => SslContext::open(&SslFiles::default())?.client(),
    };
    if verifies {
        return Ok(config);
    }
    let mut config = ClientConfig::clone(&config);
    let provider = Arc::clone(config.crypto_provider());
    config
        .dangerous()
        .set_certificate_verifier(Arc::new(Trusting(provider)));
    Ok(Arc::new(config))
}

/// The subject of a peer's certificate as RFC 2253 text.
pub(crate) fn subject(certificates: Option<&[CertificateDer<'_>]>) -> Option<String> {
    access::certificate_subject(certificates?.first()?)
}

/// The name that a server's certificate must bear.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
        .map_err(|_| format!("'{host}' is no name that a certificate can bear"))
}

/// Believes every server: what "Disable Peer Verification" asks for.
#[derive(Debug)]
struct Trusting(Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
