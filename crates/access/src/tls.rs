//! What a listener needs for TLS: its certificate and key, and whose certificates it believes.
//!
//! The files are PEM. [`Tls::reload`] reads them again, for connections that come after; files
//! that cannot be used leave the old ones in place.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::UnixMillis;
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use serde::{Deserialize, Serialize};

use crate::limits::{CRL_FILE_BYTES_MAX, TLS_FILE_BYTES_MAX};
use crate::subject::subject_of;
use crate::{AccessError, CertificateFacts, Principal};

/// The settings of TLS for one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// File with the listener's certificate and the chain above it; no TLS when absent.
    pub certificate: Option<PathBuf>,
    /// File with the certificate's private key.
    pub key: Option<PathBuf>,
    /// File with the certificates of those who may sign clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// File with the lists of certificates that these have revoked (CRLs), one of each authority in
    /// clients' chains; nobody's is asked after when absent.
    pub client_crl: Option<PathBuf>,
    /// Whether clients are asked for a certificate.
    pub client_auth: ClientAuth,
    /// What of a certificate becomes the caller's name.
    pub principal: PrincipalName,
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// Not asked.
    #[default]
    None,
    /// Asked; who has none is nobody known.
    Requested,
    /// Asked; who has none is refused.
    Required,
}

/// What of a certificate becomes the caller's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalName {
    /// The whole subject, as Kafka writes it: `CN=alice,OU=ops,O=example`.
    #[default]
    Subject,
    /// The common name alone: `alice`.
    CommonName,
}

/// TLS of one listener.
pub struct Tls {
    config: TlsConfig,
    protocols: &'static [&'static str],
    now: RwLock<Shown>,
}

/// What is shown to new connections, and who is believed.
struct Shown {
    server: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    own: CertificateFacts,
    own_name: Option<Principal>,
}

impl TlsConfig {
    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        self.certificate.is_some() || self.key.is_some()
    }

    /// All that is wrong with the settings, one line each, in the keys' names.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.certificate.is_some() != self.key.is_some() {
            problems.push("tls.certificate and tls.key belong together: write both".to_owned());
        }
        if self.client_auth != ClientAuth::None && self.client_ca.is_none() {
            problems.push("tls.client_auth needs tls.client_ca".to_owned());
        }
        if self.client_crl.is_some() && self.client_auth == ClientAuth::None {
            let text = "tls.client_crl needs tls.client_auth = \"required\" or \"requested\"";
            problems.push(text.to_owned());
        }
        if self.client_ca.is_some() && !self.is_on() {
            problems.push("tls.client_ca needs tls.certificate and tls.key".to_owned());
        }
        problems
    }
}

impl Tls {
    /// Reads the files. Clients that ask which protocol to speak (ALPN) are told the first of
    /// `protocols` that they know; a listener with one protocol names none.
    ///
    /// # Errors
    /// [`AccessError::Tls`] names the setting and the file.
    pub fn open(
        config: TlsConfig,
        protocols: &'static [&'static str],
    ) -> Result<Self, AccessError> {
        let now = RwLock::new(shown(&config, protocols)?);
        Ok(Tls {
            config,
            protocols,
            now,
        })
    }

    /// Reads the files again; what is wrong with them changes nothing.
    ///
    /// # Errors
    /// As [`Tls::open`].
    pub fn reload(&self) -> Result<(), AccessError> {
        let fresh = shown(&self.config, self.protocols)?;
        *self.now.write() = fresh;
        Ok(())
    }

    /// What a new connection is to use.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.now.read().server)
    }

    /// Refuses who goes on with a TLS session of before by a certificate that is not good any more: rustls
    /// looks at it when a session begins, and gives tickets for more of them each time.
    ///
    /// # Errors
    /// What is wrong with the certificate.
    pub fn check_resumed(&self, session: &ServerConnection, now: UnixMillis) -> io::Result<()> {
        if session.handshake_kind() != Some(HandshakeKind::Resumed) {
            return Ok(());
        }
        let Some((own, above)) = session.peer_certificates().and_then(<[_]>::split_first) else {
            return Ok(());
        };
        let verifier = Arc::clone(&self.now.read().verifier);
        let since = Duration::from_millis(u64::try_from(now.0).unwrap_or(0));
        let verified = verifier.verify_client_cert(own, above, UnixTime::since_unix_epoch(since));
        verified
            .map(drop)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// The listener's own certificate, as it was last read.
    pub fn own_certificate(&self) -> CertificateFacts {
        self.now.read().own
    }

    /// Who this process is to those whom it shows the listener's own certificate; none where that
    /// has no name.
    pub fn own_name(&self) -> Option<Principal> {
        self.now.read().own_name.clone()
    }

    /// What of a certificate becomes the caller's name.
    pub fn naming(&self) -> PrincipalName {
        self.config.principal
    }

    /// Who a client is whose chain of certificates was verified; none without one.
    pub fn principal_of(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<Principal> {
        subject_principal(chain?.first()?, self.naming())
    }
}

/// The principal of a certificate that was verified; none when its subject cannot be read, or has
/// no common name where that is wanted.
pub(crate) fn subject_principal(
    certificate: &CertificateDer<'_>,
    naming: PrincipalName,
) -> Option<Principal> {
    let subject = subject_of(certificate)?;
    let name = match naming {
        PrincipalName::Subject => subject.to_string(),
        PrincipalName::CommonName => subject.common_name()?.to_owned(),
    };
    Some(Principal::user(&name))
}

fn shown(config: &TlsConfig, protocols: &[&str]) -> Result<Shown, AccessError> {
    let certificate = file_of("tls.certificate", &config.certificate)?;
    let key_file = file_of("tls.key", &config.key)?;
    let chain = certificates("tls.certificate", certificate)?;
    let own = CertificateFacts::of(&chain[0]);
    // A certificate whose subject is empty is nobody's in particular.
    let own_name = subject_principal(&chain[0], config.principal);
    let own_name = own_name.filter(|principal| !principal.name().is_empty());
    let key_refused = |reason: String| refusal("tls.key", key_file, reason);
    check_size("tls.key", key_file, TLS_FILE_BYTES_MAX)?;
    let key =
        PrivateKeyDer::from_pem_file(key_file).map_err(|error| key_refused(error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ClientCertVerifier> = match config.client_auth {
        ClientAuth::None => WebPkiClientVerifier::no_client_auth(),
        asked => {
            let path = file_of("tls.client_ca", &config.client_ca)?;
            let refused = |reason: String| refusal("tls.client_ca", path, reason);
            let mut roots = RootCertStore::empty();
            for root in certificates("tls.client_ca", path)? {
                roots
                    .add(root)
                    .map_err(|error| refused(error.to_string()))?;
            }
            let builder =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
            let builder = match asked {
                ClientAuth::Requested => builder.allow_unauthenticated(),
                _ => builder,
            };
            let builder = match &config.client_crl {
                Some(path) => builder.with_crls(revocations(path)?),
                None => builder,
            };
            builder.build().map_err(|error| {
                let reason = error.to_string();
                match (error, &config.client_crl) {
                    (VerifierBuilderError::InvalidCrl(_), Some(path)) => {
                        refusal(CLIENT_CRL, path, format!("{reason}; {FIT_CRL}"))
                    }
                    _ => refused(reason),
                }
            })?
        }
    };
    let mut made = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| key_refused(error.to_string()))?
        .with_client_cert_verifier(Arc::clone(&verifier))
        .with_single_cert(chain, key)
        .map_err(|error| key_refused(error.to_string()))?;
    let names = protocols.iter().map(|name| name.as_bytes().to_vec());
    made.alpn_protocols = names.collect();
    Ok(Shown {
        server: Arc::new(made),
        verifier,
        own,
        own_name,
    })
}

fn certificates(
    key: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    check_size(key, path, TLS_FILE_BYTES_MAX)?;
    let read: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).and_then(|certificates| certificates.collect());
    let found = read.map_err(|error| refusal(key, path, error.to_string()))?;
    if found.is_empty() {
        return Err(refusal(key, path, "it holds no certificate".to_owned()));
    }
    Ok(found)
}

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, AccessError> {
    check_size(CLIENT_CRL, path, CRL_FILE_BYTES_MAX)?;
    let read: Result<Vec<_>, _> =
        CertificateRevocationListDer::pem_file_iter(path).and_then(|lists| lists.collect());
    let found = read.map_err(|error| refusal(CLIENT_CRL, path, error.to_string()))?;
    if found.is_empty() {
        let reason = "it holds no list (X509 CRL)".to_owned();
        return Err(refusal(CLIENT_CRL, path, reason));
    }
    Ok(found)
}

fn check_size(key: &'static str, path: &Path, bytes_max: u64) -> Result<(), AccessError> {
    let file = std::fs::metadata(path).map_err(|e| refusal(key, path, e.to_string()))?;
    if file.len() > bytes_max {
        return Err(refusal(key, path, format!("more than {bytes_max} bytes")));
    }
    Ok(())
}

fn file_of<'c>(key: &'static str, path: &'c Option<PathBuf>) -> Result<&'c Path, AccessError> {
    let missing = || refusal(key, Path::new(""), "it is not set".to_owned());
    path.as_deref().ok_or_else(missing)
}

fn refusal(key: &'static str, path: &Path, reason: String) -> AccessError {
    AccessError::Tls {
        key,
        path: path.to_owned(),
        reason,
    }
}

const CLIENT_CRL: &str = "tls.client_crl";
/// What a list of revoked certificates has to be.
const FIT_CRL: &str = "a list is of version 2 (openssl's has `crlnumber` set) and whole, no delta";

#[cfg(test)]
mod tests {
    use base::{Clock, SystemClock};
    use rustls::{ClientConfig, ClientConnection};

    use super::*;

    #[test]
    fn settings_that_do_not_fit_are_told() {
        let config = TlsConfig {
            certificate: Some("c.pem".into()),
            client_auth: ClientAuth::Required,
            ..TlsConfig::default()
        };
        assert_eq!(config.problems().len(), 2);
        let listed = TlsConfig {
            client_crl: Some("revoked.pem".into()),
            ..TlsConfig::default()
        };
        assert_eq!(listed.problems().len(), 1);
        assert_eq!(TlsConfig::default().problems(), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_with_its_setting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.pem");
        let config = TlsConfig {
            certificate: Some(path.clone()),
            key: Some(path.clone()),
            ..TlsConfig::default()
        };
        for text in [None, Some("no certificate\n")] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let Err(error) = Tls::open(config.clone(), &[]) else {
                panic!("{text:?} was taken");
            };
            let said = error.to_string();
            assert!(
                said.starts_with("tls.certificate = ") && said.contains("c.pem"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_session_is_not_gone_on_with_beyond_the_end_of_its_certificate() {
        let dir = tempfile::tempdir().unwrap();
        make_certificates(dir.path());
        let config = TlsConfig {
            certificate: Some(dir.path().join("server.pem")),
            key: Some(dir.path().join("server.key")),
            client_ca: Some(dir.path().join("ca.pem")),
            client_auth: ClientAuth::Required,
            principal: PrincipalName::CommonName,
            ..TlsConfig::default()
        };
        let tls = Tls::open(config, &[]).unwrap();
        let client = client(dir.path());
        let now = SystemClock.now();
        let later = now + Duration::from_secs(3 * 24 * 3_600);
        let first = shake_hands(&tls, &client);
        assert_eq!(first.handshake_kind(), Some(HandshakeKind::Full));
        // It was looked at just now.
        tls.check_resumed(&first, later).unwrap();
        let again = shake_hands(&tls, &client);
        assert_eq!(again.handshake_kind(), Some(HandshakeKind::Resumed));
        let known = tls.principal_of(again.peer_certificates()).unwrap();
        assert_eq!(known.name(), "agent-1");
        tls.check_resumed(&again, now).unwrap();
        let refused = tls.check_resumed(&again, later).unwrap_err();
        assert!(refused.to_string().contains("expired"), "{refused}");
    }

    #[test]
    fn who_was_revoked_is_refused_also_with_a_session_of_before() {
        let dir = tempfile::tempdir().unwrap();
        make_certificates(dir.path());
        let settings = "[ca]\ndefault_ca = d\n[d]\ndatabase = index\ndefault_md = sha256\n\
                        default_crl_days = 2\n";
        let numbered = format!("{settings}crlnumber = number\n");
        for (file, text) in [("ca.cnf", &*numbered), ("old.cnf", settings)] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        for (file, text) in [("index", ""), ("number", "01\n")] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        let authority = "ca -config ca.cnf -keyfile ca.key -cert ca.pem";
        let list = format!("{authority} -gencrl -out crl.pem");
        openssl(dir.path(), &list);
        let config = TlsConfig {
            certificate: Some(dir.path().join("server.pem")),
            key: Some(dir.path().join("server.key")),
            client_ca: Some(dir.path().join("ca.pem")),
            client_crl: Some(dir.path().join("crl.pem")),
            client_auth: ClientAuth::Required,
            ..TlsConfig::default()
        };
        let tls = Tls::open(config, &[]).unwrap();
        let before = client(dir.path());
        shake_hands(&tls, &before);
        openssl(dir.path(), &format!("{authority} -revoke client.pem"));
        openssl(dir.path(), &list);
        tls.reload().unwrap();
        let Err(refused) = try_hands(&tls, &client(dir.path())) else {
            panic!("let in");
        };
        assert!(refused.to_string().contains("Revoked"), "{refused}");
        let again = try_hands(&tls, &before);
        let again = again.map_err(|error| error.to_string()).and_then(|again| {
            let checked = tls.check_resumed(&again, SystemClock.now());
            checked.map_err(|error| error.to_string())
        });
        assert!(again.is_err_and(|error| error.contains("Revoked")));
        // Of whose authority there is no list, nobody knows.
        let of_another = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                          -keyout other.key -out other.pem -days 2 -subj /CN=other";
        openssl(dir.path(), of_another);
        std::fs::write(dir.path().join("index"), "").unwrap();
        openssl(
            dir.path(),
            &list
                .replace("ca.key", "other.key")
                .replace("ca.pem", "other.pem"),
        );
        tls.reload().unwrap();
        assert!(try_hands(&tls, &client(dir.path())).is_err());
        // A file that is no list is told, and leaves the one before.
        std::fs::write(dir.path().join("crl.pem"), "nothing\n").unwrap();
        let said = tls.reload().unwrap_err().to_string();
        assert!(said.starts_with("tls.client_crl = "), "{said}");
        openssl(dir.path(), &list.replace("ca.cnf", "old.cnf"));
        let said = tls.reload().unwrap_err().to_string();
        assert!(
            said.starts_with("tls.client_crl = ") && said.contains("crlnumber"),
            "{said}"
        );
        assert!(try_hands(&tls, &client(dir.path())).is_err());
    }

    fn openssl(dir: &Path, line: &str) {
        let mut command = std::process::Command::new("openssl");
        let out = command.current_dir(dir).args(line.split(' ')).output();
        let out = out.expect("openssl is installed");
        assert!(out.status.success(), "openssl {line}: {out:?}");
    }

    /// An authority, and two whose certificates are good for two days: `localhost` and `agent-1`.
    fn make_certificates(dir: &Path) {
        let openssl = |line: &str| openssl(dir, line);
        let new = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!(
            "req -x509 {new} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca"
        ));
        std::fs::write(dir.join("san"), "subjectAltName=DNS:localhost").unwrap();
        for (name, subject) in [("server", "localhost"), ("client", "agent-1")] {
            openssl(&format!(
                "req {new} -keyout {name}.key -out {name}.csr -subj /CN={subject}"
            ));
            openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile san -out {name}.pem"
            ));
        }
    }

    /// A client that has a certificate and remembers its sessions.
    fn client(dir: &Path) -> Arc<ClientConfig> {
        let certificate = |name: &str| CertificateDer::from_pem_file(dir.join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate("ca.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivateKeyDer::from_pem_file(dir.join("client.key")).unwrap();
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate("client.pem")], key)
            .unwrap();
        Arc::new(config)
    }

    /// A connection through which both have said what they have to say.
    fn shake_hands(tls: &Tls, client: &Arc<ClientConfig>) -> ServerConnection {
        try_hands(tls, client).unwrap()
    }

    /// The same, or why the server breaks off.
    fn try_hands(tls: &Tls, client: &Arc<ClientConfig>) -> Result<ServerConnection, rustls::Error> {
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut server = ServerConnection::new(tls.server_config()).unwrap();
        while client.wants_write() || server.wants_write() {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            client.write_tls(&mut there).unwrap();
            if !there.is_empty() {
                server.read_tls(&mut there.as_slice()).unwrap();
                server.process_new_packets()?;
            }
            server.write_tls(&mut back).unwrap();
            if !back.is_empty() {
                client.read_tls(&mut back.as_slice()).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        assert!(!server.is_handshaking());
        Ok(server)
    }
}
