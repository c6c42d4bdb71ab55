//! Logging in over the wire: what is served before, the mechanisms, refusals and expiry.

use std::sync::Arc;
use std::time::Duration;

use access::{Access, Credential, Mechanism, ScramHash, UserChange};
use bytes::Bytes;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::StrBytes;
use tokio::io::AsyncWriteExt;

use super::super::{SaslSettings, Security};
use super::client::{Client, Server, metadata};

async fn server(lifetime: Option<Duration>) -> Server {
    Server::start_secured(|folder| {
        let access = Access::open(folder).unwrap();
        for name in ["ann", "bob"] {
            let credential = Credential::of_password(ScramHash::Sha256, "pw", 4_096).unwrap();
            let change = UserChange::Set(name.to_owned(), credential);
            access.alter_users(&[change]).unwrap();
        }
        Security {
            access: Some(Arc::new(access)),
            sasl: Some(SaslSettings {
                mechanisms: vec![Mechanism::Plain, Mechanism::ScramSha256],
                lifetime,
            }),
            ..Security::default()
        }
    })
    .await
}

fn choose(mechanism: &'static str) -> SaslHandshakeRequest {
    SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism))
}

fn plain(name: &str, password: &str) -> SaslAuthenticateRequest {
    let token = format!("\0{name}\0{password}");
    SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(token))
}

#[tokio::test]
async fn nothing_is_served_before_the_login() {
    let server = server(None).await;
    let mut client = Client::connect(&server).await;
    client.call(3, &api_versions()).await;
    client.send(9, &metadata("t")).await;
    assert!(client.is_closed().await);
    // Nor is the same between the handshake and the login.
    let mut client = Client::connect(&server).await;
    client.call(1, &choose("PLAIN")).await;
    client.send(9, &metadata("t")).await;
    assert!(client.is_closed().await);
    // A large frame of a stranger is refused by its length.
    let mut client = Client::connect(&server).await;
    client
        .socket
        .write_all(&(1_i32 << 20).to_be_bytes())
        .await
        .unwrap();
    assert!(client.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn the_right_password_opens_and_a_wrong_one_ends_the_connection() {
    let server = server(None).await;
    for version in [0, 1, 2] {
        let mut client = Client::connect(&server).await;
        let told = client.call(1, &choose("PLAIN")).await;
        let names: Vec<&str> = told.mechanisms.iter().map(|name| name.as_str()).collect();
        assert_eq!(
            (told.error_code, names),
            (0, vec!["PLAIN", "SCRAM-SHA-256"])
        );
        let answer = client.call(version, &plain("ann", "pw")).await;
        assert_eq!((answer.error_code, answer.session_lifetime_ms), (0, 0));
        assert_eq!(client.call(9, &metadata("t")).await.topics[0].error_code, 0);
        // Nobody has to log in twice here.
        assert_eq!(client.call(1, &choose("PLAIN")).await.error_code, 34);
        assert_eq!(
            client.call(version, &plain("ann", "pw")).await.error_code,
            34
        );
        assert_eq!(client.call(9, &metadata("t")).await.topics[0].error_code, 0);
        for (name, password) in [("ann", "wrong"), ("eve", "pw")] {
            let mut client = Client::connect(&server).await;
            client.call(1, &choose("PLAIN")).await;
            let answer = client.call(version, &plain(name, password)).await;
            assert_eq!(answer.error_code, 58);
            assert!(!answer.error_message.unwrap().contains(name));
            assert!(client.is_closed().await);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn pipelined_requests_wait_for_the_login() {
    let server = server(None).await;
    let mut client = Client::connect(&server).await;
    client.send(1, &choose("PLAIN")).await;
    client.send(2, &plain("ann", "pw")).await;
    client.send(9, &metadata("t")).await;
    client.receive::<SaslHandshakeRequest>(1).await;
    assert_eq!(
        client
            .receive::<SaslAuthenticateRequest>(2)
            .await
            .1
            .error_code,
        0
    );
    let told = client.receive::<MetadataRequest>(9).await.1;
    assert_eq!(told.topics[0].error_code, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_of_version_0_is_followed_by_bare_messages() {
    let server = server(None).await;
    let mut client = Client::connect(&server).await;
    assert_eq!(client.call(0, &choose("PLAIN")).await.error_code, 0);
    client
        .socket
        .write_all(b"\0\0\0\x07\0ann\0pw")
        .await
        .unwrap();
    assert_eq!(client.frame().await, Bytes::new());
    assert_eq!(client.call(9, &metadata("t")).await.topics[0].error_code, 0);
    let mut client = Client::connect(&server).await;
    client.call(0, &choose("PLAIN")).await;
    client
        .socket
        .write_all(b"\0\0\0\x07\0ann\0no")
        .await
        .unwrap();
    assert!(client.is_closed().await);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_mechanism_and_a_login_without_one_are_refused() {
    let server = server(None).await;
    let mut client = Client::connect(&server).await;
    let told = client.call(1, &choose("GSSAPI")).await;
    assert_eq!((told.error_code, told.mechanisms.len()), (33, 2));
    assert!(client.is_closed().await);
    let mut client = Client::connect(&server).await;
    assert_eq!(client.call(2, &plain("ann", "pw")).await.error_code, 34);
    assert!(client.is_closed().await);
    // A listener that asks nobody has no login.
    let open = Server::start().await;
    let mut client = Client::connect(&open).await;
    assert_eq!(client.call(1, &choose("PLAIN")).await.error_code, 34);
    open.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn a_login_that_expired_is_made_again_on_the_same_connection() {
    let server = server(Some(Duration::from_secs(3_600))).await;
    let mut client = Client::connect(&server).await;
    for _ in 0..2 {
        client.call(1, &choose("PLAIN")).await;
        let answer = client.call(2, &plain("ann", "pw")).await;
        assert_eq!(
            (answer.error_code, answer.session_lifetime_ms),
            (0, 3_600_000)
        );
        assert_eq!(client.call(9, &metadata("t")).await.topics[0].error_code, 0);
    }
    // The connection stays its user's.
    client.call(1, &choose("PLAIN")).await;
    assert_eq!(client.call(2, &plain("bob", "pw")).await.error_code, 58);
    assert!(client.is_closed().await);
    server.stop().await;
    // Expired at once: only another login is served.
    let server = self::server(Some(Duration::ZERO)).await;
    let mut client = Client::connect(&server).await;
    for _ in 0..2 {
        client.call(1, &choose("PLAIN")).await;
        assert_eq!(client.call(2, &plain("ann", "pw")).await.error_code, 0);
    }
    client.send(9, &metadata("t")).await;
    assert!(client.is_closed().await);
    server.stop().await;
}

fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest::default()
        .with_client_software_name(StrBytes::from_static_str("test"))
        .with_client_software_version(StrBytes::from_static_str("1"))
}
