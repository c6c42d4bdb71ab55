//! Files of openssl's, and a handshake over them.

use std::path::{Path, PathBuf};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection};

use super::*;
use crate::testing::openssl;

/// An authority, and a certificate with a plain key and with an encrypted one.
struct Files(PathBuf);

impl Files {
    fn make(dir: &Path) -> Self {
        let run = |text: &str| openssl(dir, text);
        let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        run(&format!(
            "req -x509 {curve} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority \
             -addext basicConstraints=critical,CA:TRUE"
        ));
        run(&format!(
            "req {curve} -keyout own.key -out own.csr -subj /CN=localhost"
        ));
        std::fs::write(dir.join("own.ext"), "subjectAltName=DNS:localhost\n").unwrap();
        run(
            "x509 -req -in own.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out own.pem -days 2 \
             -extfile own.ext",
        );
        run("pkcs8 -topk8 -in own.key -out sealed.key -v2 aes-256-cbc -passout pass:open-sesame");
        std::fs::write(dir.join("passphrase"), "open-sesame\n").unwrap();
        Files(dir.to_owned())
    }

    fn path(&self, name: &str) -> Option<String> {
        Some(self.0.join(name).display().to_string())
    }

    fn context(&self, key: &str, passphrase: Option<String>) -> Result<SslContext, String> {
        SslContext::open(&SslFiles {
            certificate: self.path("own.pem"),
            key: self.path(key),
            passphrase,
            authority: self.path("ca.pem"),
            system: false,
        })
    }
}

/// Whether a client and a server come to terms.
fn shake(client: &SslContext, server: Arc<ServerConfig>) -> Result<(), rustls::Error> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(client.client(), name)?;
    let mut server = ServerConnection::new(server)?;
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = wire.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            return Ok(());
        }
    }
    panic!("the handshake does not end")
}

#[test]
fn clients_and_servers_know_each_other_by_their_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::make(dir.path());
    let context = files.context("own.key", None).unwrap();
    let server = context
        .server(ClientAuthentication::Required, rustls::ALL_VERSIONS)
        .unwrap();
    shake(&context, Arc::clone(&server)).unwrap();
    let nobody = SslContext::open(&SslFiles {
        authority: files.path("ca.pem"),
        ..SslFiles::default()
    })
    .unwrap();
    assert!(shake(&nobody, server).is_err(), "no certificate was needed");
    let open = context
        .server(ClientAuthentication::Wanted, rustls::ALL_VERSIONS)
        .unwrap();
    shake(&nobody, open).unwrap();
    let error = nobody
        .server(ClientAuthentication::None, rustls::ALL_VERSIONS)
        .unwrap_err();
    assert!(error.contains("set Client Certificate"), "{error}");
}

#[test]
fn an_encrypted_key_opens_by_its_passphrase_or_the_file_that_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::make(dir.path());
    for passphrase in [Some("open-sesame".to_owned()), files.path("passphrase")] {
        let context = files.context("sealed.key", passphrase).unwrap();
        assert!(context.has_identity());
    }
    for (passphrase, message) in [
        (None, "the key is encrypted: set Passphrase"),
        (Some("wrong".to_owned()), "Passphrase does not open the key"),
    ] {
        let error = files.context("sealed.key", passphrase).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert!(!error.contains("wrong"), "the passphrase is told: {error}");
    }
}

#[test]
fn bad_files_are_named_with_their_property() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::make(dir.path());
    for (key, message) in [
        ("absent.key", "Private Key '"),
        ("own.pem", "Private Key '"),
    ] {
        let error = files.context(key, None).unwrap_err();
        assert!(error.contains(message) && error.contains(key), "{error}");
    }
    let error = SslContext::open(&SslFiles {
        authority: files.path("own.key"),
        ..SslFiles::default()
    })
    .unwrap_err();
    assert!(error.contains("holds no PEM certificate"), "{error}");
}
