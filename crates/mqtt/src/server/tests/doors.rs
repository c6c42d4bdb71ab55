//! Clients that come by TLS and WebSocket.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, ClientAuth, PrincipalName, Tls, TlsConfig};
use base::{HumanDuration, SystemClock};
use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::client::{connect, publish, subscribe};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::door::Door;
use crate::guard::Guard;
use crate::server::Server;
use crate::websocket::Pages;

/// Makes `ca.pem`, and `NAME.crt` and `NAME.key` for each name.
fn certificates(dir: &Path, names: &[&str]) {
    let run = |text: &str| {
        let out = Command::new("openssl")
            .current_dir(dir)
            .args(text.split_whitespace())
            .output()
            .expect("openssl is installed");
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{text}: {error}");
    };
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!(
        "req -x509 {curve} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority \
         -addext basicConstraints=critical,CA:TRUE"
    ));
    std::fs::write(dir.join("names.ext"), "subjectAltName=DNS:localhost\n").unwrap();
    for name in names {
        run(&format!(
            "req {curve} -keyout {name}.key -out {name}.csr -subj /O=thalweg/CN={name}"
        ));
        run(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out {name}.crt \
             -days 2 -extfile names.ext"
        ));
    }
}

fn tls_of(dir: &Path, client_auth: ClientAuth) -> Arc<Tls> {
    let config = TlsConfig {
        certificate: Some(dir.join("server.crt")),
        key: Some(dir.join("server.key")),
        client_ca: Some(dir.join("ca.pem")),
        client_auth,
        principal: PrincipalName::CommonName,
        ..TlsConfig::default()
    };
    Arc::new(Tls::open(config, &[]).unwrap())
}

async fn tls_client(
    dir: &Path,
    port: u16,
    name: Option<&str>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match name {
        Some(name) => {
            let shown = CertificateDer::from_pem_file(dir.join(format!("{name}.crt"))).unwrap();
            let key = PrivateKeyDer::from_pem_file(dir.join(format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![shown], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let server = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(server, tcp)
        .await
}

async fn bytes<S: AsyncRead + Unpin>(stream: &mut S, count: usize) -> Vec<u8> {
    let mut got = vec![0; count];
    let reading = tokio::time::timeout(super::DEADLINE, stream.read_exact(&mut got));
    reading.await.expect("bytes in time").unwrap();
    got
}

/// Connects, subscribes, publishes a large message to itself and gets it whole.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) {
    stream
        .write_all(&connect("c", true, 0, None))
        .await
        .unwrap();
    stream.flush().await.unwrap();
    assert_eq!(bytes(stream, 4).await, [0x20, 2, 0, 0]);
    stream.write_all(&subscribe(1, &[("t", 0)])).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(bytes(stream, 5).await, [0x90, 3, 0, 1, 0]);
    let payload: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let whole = publish("t", &payload, 0, false, 0);
    stream.write_all(&whole).await.unwrap();
    stream.flush().await.unwrap();
    assert!(bytes(stream, whole.len()).await == whole, "it came changed");
}

#[tokio::test]
async fn a_client_talks_over_tls_and_is_known_by_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path(), &["server", "dev1"]);
    let data = Arc::new(tempfile::tempdir().unwrap());
    let users = tempfile::tempdir().unwrap();
    let access = Arc::new(Access::open(users.path()).unwrap());
    let config: MqttConfig = serde_json::from_str(r#"{"security": {"logins": true}}"#).unwrap();
    let clock = Arc::new(SystemClock);
    let guard = Guard::new(access, None, config.guard().unwrap(), clock.clone());
    let server = Server::open_guarded(data.path(), config, clock, Arc::new(guard)).unwrap();
    let door = Door {
        tls: Some(tls_of(dir.path(), ClientAuth::Requested)),
        websocket: None,
    };
    let running = Running::serve(data, server, door).await;
    let mut stream = tls_client(dir.path(), running.port, Some("dev1"))
        .await
        .unwrap();
    talk(&mut stream).await;
    let clients = running.server.clients();
    assert_eq!(clients[0].user.as_deref(), Some("dev1"));
    // Without a certificate, and without a password.
    let mut stream = tls_client(dir.path(), running.port, None).await.unwrap();
    stream
        .write_all(&connect("d", true, 0, None))
        .await
        .unwrap();
    assert_eq!(bytes(&mut stream, 4).await, [0x20, 2, 0, 5]);
    running.stop().await;
}

#[tokio::test]
async fn handshakes_that_fail_or_take_too_long_end_and_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path(), &["server"]);
    let data = Arc::new(tempfile::tempdir().unwrap());
    let config = MqttConfig {
        connect_timeout: HumanDuration(Duration::from_millis(300)),
        ..MqttConfig::default()
    };
    let server = Server::open(data.path(), config, Arc::new(SystemClock)).unwrap();
    let door = Door {
        tls: Some(tls_of(dir.path(), ClientAuth::Required)),
        websocket: None,
    };
    let running = Running::serve(data, server, door).await;
    // Says nothing at all.
    let mut silent = TcpStream::connect(("127.0.0.1", running.port))
        .await
        .unwrap();
    assert_eq!(silent.read(&mut [0; 16]).await.unwrap(), 0);
    // Speaks MQTT where TLS is spoken.
    let mut plain = TcpStream::connect(("127.0.0.1", running.port))
        .await
        .unwrap();
    plain.write_all(&connect("c", true, 0, None)).await.unwrap();
    let _ = plain.read_to_end(&mut Vec::new()).await;
    // Shows no certificate.
    if let Ok(mut stream) = tls_client(dir.path(), running.port, None).await {
        stream
            .write_all(&connect("c", true, 0, None))
            .await
            .unwrap();
        assert!(!matches!(stream.read(&mut [0; 16]).await, Ok(1..)));
    }
    let failed = || running.server.stats().handshakes_failed_total;
    until("three are counted", || failed() == 3).await;
    assert_eq!(running.server.clients().len(), 0);
    running.stop().await;
}

#[tokio::test]
pub(super) async fn a_client_talks_over_websocket_in_frames_of_any_size() {
    let data = Arc::new(tempfile::tempdir().unwrap());
    let config = MqttConfig::default();
    let server = Server::open(data.path(), config, Arc::new(SystemClock)).unwrap();
    let door = Door {
        tls: None,
        websocket: Some(Pages::default()),
    };
    let running = Running::serve(data, server, door).await;
    let tcp = TcpStream::connect(("127.0.0.1", running.port))
        .await
        .unwrap();
    let mut request = format!("ws://127.0.0.1:{}/mqtt", running.port)
        .into_client_request()
        .unwrap();
    let protocol = "mqtt".parse().unwrap();
    request
        .headers_mut()
        .insert("sec-websocket-protocol", protocol);
    let (mut socket, _) = client_async(request, tcp).await.unwrap();
    let whole = publish("t", &[7; 100_000], 1, false, 9);
    let mut sent = connect("w", true, 0, None);
    sent.extend_from_slice(&subscribe(1, &[("t", 0)]));
    sent.extend_from_slice(&whole);
    // Packets and frames have nothing to do with each other.
    for piece in sent.chunks(30_001) {
        socket.send(Frame::binary(piece.to_vec())).await.unwrap();
    }
    let mut expected = vec![0x20, 2, 0, 0, 0x90, 3, 0, 1, 0];
    let echo = publish("t", &[7; 100_000], 0, false, 0);
    let mut got = Vec::new();
    while got.len() < expected.len() + echo.len() + 4 {
        let next = tokio::time::timeout(super::DEADLINE, socket.next());
        match next.await.unwrap().unwrap().unwrap() {
            Frame::Binary(bytes) => got.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    // The acknowledgement may come before the message or behind it.
    let ack = [0x40, 2, 0, 9];
    let mut other = expected.clone();
    other.extend_from_slice(&ack);
    other.extend_from_slice(&echo);
    expected.extend_from_slice(&echo);
    expected.extend_from_slice(&ack);
    assert!(got == expected || got == other, "it came changed");
    // Until the link ends it is one of the clients.
    assert_eq!(running.server.stats().clients_connected, 1);
    socket.close(None).await.unwrap();
    until("it has gone", || {
        running.server.stats().clients_connected == 0
    })
    .await;
    running.stop().await;
}
