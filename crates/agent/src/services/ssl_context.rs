//! SSLContextService: who we are and whom we believe in TLS, for clients and for servers.
//!
//! Files are PEM: a certificate with the chain above it, its private key (PKCS#8, PKCS#1 or SEC1;
//! encrypted PKCS#8 with a passphrase), and the certificates of those whom we believe. They are
//! read when the flow starts; a flow update reads them again.
//!
//! Left out: PKCS#12 files (`openssl pkcs12 -in x.p12 -out x.pem` makes PEM of them) and keys
//! encrypted in OpenSSL's old way (`openssl pkcs8 -topk8` makes PKCS#8 of them).

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::der::SecretDocument;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::ServiceKind;
use crate::limits::TLS_FILE_BYTES_MAX;
use crate::processors::{Dynamic, PropertyKind, Settings, Shape};

/// Who we are and whom we believe.
pub struct SslContext {
    provider: Arc<CryptoProvider>,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    roots: Arc<RootCertStore>,
    client: Arc<ClientConfig>,
}

/// Whether a server asks clients for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuthentication {
    /// It does not.
    None,
    /// It asks; who has none is let in.
    Wanted,
    /// It asks; who has none is refused.
    Required,
}

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "SSLContextService",
    provides: "SSLContextService",
    description: "Who the agent is and whom it believes in TLS.",
    properties: &[
        PropertyKind::new(
            CERTIFICATE,
            "PEM file with the agent's certificate and the chain above it.",
        ),
        PropertyKind::new(
            KEY,
            "PEM file with the certificate's private key; without it, the certificate's file is \
             searched.",
        ),
        PropertyKind::new(
            PASSPHRASE,
            "Passphrase of the private key: the text itself, or a file that holds it.",
        )
        .sensitive(),
        PropertyKind::new(
            AUTHORITY,
            "PEM file, or a folder of such files, with the certificates that are believed.",
        ),
        PropertyKind::new(
            SYSTEM,
            "Whether the operating system's certificates are believed too.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(make(settings)?)),
};

impl SslContext {
    /// Reads the files; empty texts stand for what is not set.
    ///
    /// Errors: the property and the file, and what is wrong with it.
    pub fn open(files: &SslFiles) -> Result<SslContext, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(files)?);
        let identity = identity(files)?;
        let unsound = |error: rustls::Error| format!("{CERTIFICATE}: {error}");
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unsound)?
            .with_root_certificates(Arc::clone(&roots));
        let client = match &identity {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(unsound)?,
            None => builder.with_no_client_auth(),
        };
        Ok(SslContext {
            provider,
            identity,
            roots,
            client: Arc::new(client),
        })
    }

    /// What a client needs: shows our certificate to servers that ask, believes our authorities.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// Whether there is a certificate with its key.
    pub fn has_identity(&self) -> bool {
        self.identity.is_some()
    }

    /// What a server needs, from TLS 1.2 or 1.3 (`versions`) upwards.
    ///
    /// Errors: there is no certificate, or nobody who could sign clients' certificates.
    pub fn server(
        &self,
        authentication: ClientAuthentication,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Arc<ServerConfig>, String> {
        let Some((chain, key)) = &self.identity else {
            return Err(format!(
                "a server needs a certificate: set {CERTIFICATE} and {KEY} of the SSLContextService"
            ));
        };
        let verifier = if authentication == ClientAuthentication::None {
            WebPkiClientVerifier::no_client_auth()
        } else {
            let builder = WebPkiClientVerifier::builder_with_provider(
                Arc::clone(&self.roots),
                Arc::clone(&self.provider),
            );
            let builder = match authentication {
                ClientAuthentication::Wanted => builder.allow_unauthenticated(),
                _ => builder,
            };
            builder
                .build()
                .map_err(|error| format!("{AUTHORITY}: {error}"))?
        };
        let unsound = |error: rustls::Error| format!("{CERTIFICATE}: {error}");
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(versions)
            .map_err(unsound)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(unsound)?;
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for SslContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (identity, roots) = (self.has_identity(), self.roots.len());
        write!(f, "SslContext(identity {identity}, {roots} authorities)")
    }
}

/// Where the parts of a TLS context lie, by whatever they were named.
#[derive(Clone, Default)]
pub struct SslFiles {
    /// PEM file of our certificate and its chain.
    pub certificate: Option<String>,
    /// PEM file of its key; the certificate's file when absent.
    pub key: Option<String>,
    /// The key's passphrase, or a file that holds it.
    pub passphrase: Option<String>,
    /// PEM file or folder of those whom we believe.
    pub authority: Option<String>,
    /// Whether the system's certificates are believed too.
    pub system: bool,
}

fn make(settings: &Settings<'_>) -> Result<SslContext, String> {
    SslContext::open(&SslFiles {
        certificate: settings.text(CERTIFICATE)?,
        key: settings.text(KEY)?,
        passphrase: settings.text(PASSPHRASE)?,
        authority: settings.text(AUTHORITY)?,
        system: settings.flag(SYSTEM)?,
    })
}

fn roots(files: &SslFiles) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &files.authority {
        for file in pem_files(Path::new(path))? {
            for certificate in certificates(AUTHORITY, &file)? {
                roots
                    .add(certificate)
                    .map_err(|error| at(AUTHORITY, &file, &error))?;
            }
        }
    }
    // With nobody named, a client believes whom the system believes, as everyone expects.
    if files.system || files.authority.is_none() {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a certificate of the system cannot be used");
        }
        roots.add_parsable_certificates(found.certs);
    }
    Ok(roots)
}

/// A file itself, or a folder's files in their order.
fn pem_files(path: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let unread = |error: std::io::Error| at(AUTHORITY, path, &error);
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(unread)? {
        let file = entry.map_err(unread)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str());
        if matches!(ending, Some("pem" | "crt" | "cer")) {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(at(
            AUTHORITY,
            path,
            &"the folder has no .pem, .crt or .cer file",
        ));
    }
    Ok(files)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(files: &SslFiles) -> Result<Option<Identity>, String> {
    let Some(certificate) = &files.certificate else {
        return match &files.key {
            None => Ok(None),
            Some(_) => Err(format!("{KEY} needs {CERTIFICATE}")),
        };
    };
    let chain = certificates(CERTIFICATE, Path::new(certificate))?;
    let key_file = Path::new(files.key.as_ref().unwrap_or(certificate));
    let key = key(key_file, files.passphrase.as_deref())?;
    Ok(Some((chain, key)))
}

fn key(path: &Path, passphrase: Option<&str>) -> Result<PrivateKeyDer<'static>, String> {
    let text = read(KEY, path)?;
    if text.contains("Proc-Type: 4,ENCRYPTED") {
        return Err(at(
            KEY,
            path,
            &"the key is encrypted in an old way; `openssl pkcs8 -topk8` makes PKCS#8 of it",
        ));
    }
    let Some(start) = text.find(ENCRYPTED_LABEL) else {
        return PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| at(KEY, path, &error));
    };
    let Some(passphrase) = passphrase else {
        return Err(at(
            KEY,
            path,
            &format!("the key is encrypted: set {PASSPHRASE}"),
        ));
    };
    let passphrase = passphrase_of(passphrase)?;
    let sealed = |error: &dyn fmt::Display| at(KEY, path, error);
    let (_, document) = SecretDocument::from_pem(&text[start..]).map_err(|e| sealed(&e))?;
    let info = EncryptedPrivateKeyInfo::try_from(document.as_bytes()).map_err(|e| sealed(&e))?;
    let key = info
        .decrypt(passphrase.as_bytes())
        .map_err(|_| sealed(&format!("{PASSPHRASE} does not open the key")))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

/// The passphrase itself, or the first line of the file that it names.
fn passphrase_of(text: &str) -> Result<String, String> {
    let path = Path::new(text);
    if !path.is_file() {
        return Ok(text.to_owned());
    }
    let content = read(PASSPHRASE, path)?;
    Ok(content.lines().next().unwrap_or_default().to_owned())
}

fn certificates(property: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(property, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| at(property, path, &error))?;
    if found.is_empty() {
        return Err(at(property, path, &"it holds no PEM certificate"));
    }
    Ok(found)
}

fn read(property: &str, path: &Path) -> Result<String, String> {
    let unread = |error: std::io::Error| at(property, path, &error);
    let len = std::fs::metadata(path).map_err(unread)?.len();
    if len > TLS_FILE_BYTES_MAX {
        let message = format!("{len} bytes are more than {TLS_FILE_BYTES_MAX}");
        return Err(at(property, path, &message));
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    String::from_utf8(bytes).map_err(|_| {
        let hint =
            "it is no PEM text; `openssl pkcs12 -in FILE -out FILE.pem` makes PEM of PKCS#12";
        at(property, path, &hint)
    })
}

fn at(property: &str, path: &Path, reason: &dyn fmt::Display) -> String {
    format!("{property} '{}': {reason}", path.display())
}

const CERTIFICATE: &str = "Client Certificate";
const KEY: &str = "Private Key";
const PASSPHRASE: &str = "Passphrase";
const AUTHORITY: &str = "CA Certificate";
const SYSTEM: &str = "Use System Cert Store";

const ENCRYPTED_LABEL: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";

#[cfg(test)]
#[path = "ssl_context_tests.rs"]
mod tests;
