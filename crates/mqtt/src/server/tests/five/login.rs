//! Enhanced authentication, with a method that asks one question.

use std::sync::Arc;

use base::UnixMillis;

use super::super::Running;
use super::super::client::Client;
use super::{Connect, auth, named, publish};
use crate::gate::{Admission, Exchange, Gate, Hello, OpenPass, Pass, Progress};
use crate::message::Qos;
use crate::reason::ReasonCode;
use crate::topic::TopicFilter;

/// Lets in who gives the right answers; others may publish to `open` and see `open/#`.
pub(super) struct Asking;

struct Question(bool);

/// What those may do who did not answer, and until when.
struct Few(Option<UnixMillis>);

impl Gate for Asking {
    fn admit<'a>(&'a self, hello: &'a Hello<'a>) -> Admission<'a> {
        let admitted: Result<Arc<dyn Pass>, ReasonCode> = match hello.username {
            Some("banned") => Err(ReasonCode::Banned),
            Some("wrong") => Err(ReasonCode::BadUserNameOrPassword),
            Some("brief") => Ok(Arc::new(Few(Some(UnixMillis(1))))),
            _ => Ok(Arc::new(Few(None))),
        };
        Box::pin(std::future::ready(admitted))
    }

    fn exchange(&self, method: &str, _hello: &Hello<'_>) -> Option<Box<dyn Exchange>> {
        (method == "riddle").then(|| Box::new(Question(false)) as Box<dyn Exchange>)
    }
}

impl Exchange for Question {
    fn step(&mut self, data: &[u8]) -> Progress {
        match (std::mem::replace(&mut self.0, true), data) {
            (false, b"hello") => Progress::Continue(b"what walks?".to_vec()),
            (true, b"man") => Progress::Done {
                data: b"right".to_vec(),
                pass: Arc::new(OpenPass),
            },
            _ => Progress::Refused(ReasonCode::NotAuthorized),
        }
    }
}

impl Pass for Few {
    fn may_publish(&self, topic: &str, _qos: Qos, _retain: bool) -> Result<(), ReasonCode> {
        match topic {
            "open" => Ok(()),
            _ => Err(ReasonCode::NotAuthorized),
        }
    }

    fn may_subscribe(&self, filter: &TopicFilter, _qos: Qos) -> Result<Qos, ReasonCode> {
        match filter.as_str() {
            "secret/#" => Err(ReasonCode::NotAuthorized),
            _ => Ok(Qos::AtMostOnce),
        }
    }

    fn may_receive(&self, topic: &str) -> bool {
        !topic.starts_with("secret")
    }

    fn ends(&self) -> Option<UnixMillis> {
        self.0
    }
}

fn riddle(id: &str) -> Connect {
    let data = [22, 0, 5].into_iter().chain(*b"hello").collect();
    Connect::new(id).with(named(21, "riddle")).with(data)
}

/// Answers the question and takes the CONNACK.
async fn log_in(port: u16) -> Client {
    let mut client = Client::open(port).await;
    client.send(&riddle("c").bytes()).await;
    expect_question(&mut client).await;
    client.send(&auth(0x18, "riddle", b"man")).await;
    let connack = client.connack().await;
    assert_eq!(
        (connack.reason, connack.properties().text(21)),
        (0, Some("riddle"))
    );
    assert_eq!(connack.properties().data(22), Some(b"right".as_slice()));
    client
}

async fn expect_question(client: &mut Client) {
    let (first, body) = client.packet().await;
    assert_eq!((first, body[0]), (0xf0, 0x18));
    assert_eq!(
        [&[first][..], &[body.len() as u8], &body].concat(),
        auth(0x18, "riddle", b"what walks?")
    );
}

#[tokio::test]
pub(in crate::server) async fn a_login_of_several_steps_lets_a_client_in_and_may_be_repeated() {
    let running = Running::start_guarded(Arc::new(Asking)).await;
    let mut client = log_in(running.port).await;
    assert_eq!(client.publish5("anything", "x", &[]).await, 0);
    client.send(&auth(0x19, "riddle", b"hello")).await;
    expect_question(&mut client).await;
    client.send(&auth(0x18, "riddle", b"man")).await;
    let (first, body) = client.packet().await;
    assert_eq!((first, body[0]), (0xf0, 0));
    assert_eq!(client.publish5("anything", "x", &[]).await, 0);
    client.send(&auth(0x19, "riddle", b"hello")).await;
    expect_question(&mut client).await;
    client.send(&auth(0x18, "riddle", b"horse")).await;
    client.told_to_go(0x87).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_login_that_goes_wrong_is_refused() {
    let running = Running::start_guarded(Arc::new(Asking)).await;
    let (mut client, connack) = Connect::new("c")
        .with(named(21, "none"))
        .told(running.port)
        .await;
    assert_eq!(connack.reason, 0x8c);
    client.expect_end().await;
    for (answer, reason) in [
        (auth(0x18, "riddle", b"horse"), 0x87),
        (auth(0x18, "other", b"man"), 0x82),
        (publish(0x30, "open", 0, &[], "x"), 0x82),
        (vec![0xf1, 0], 0x81),
    ] {
        let mut client = Client::open(running.port).await;
        client.send(&riddle("c").bytes()).await;
        expect_question(&mut client).await;
        client.send(&answer).await;
        assert_eq!(client.connack().await.reason, reason);
        client.expect_end().await;
    }
    // Data without a method, and an AUTH where the CONNECT had none.
    let data = [22, 0, 1, b'x'].to_vec();
    let (_, connack) = Connect::new("c").with(data).told(running.port).await;
    assert_eq!(connack.reason, 0x82);
    let (mut client, connack) = Connect::new("c").told(running.port).await;
    assert_eq!(connack.properties().text(21), None);
    client.send(&auth(0x19, "riddle", b"hello")).await;
    client.told_to_go(0x82).await;
    let mut client = log_in(running.port).await;
    client.send(&auth(0x19, "other", b"hello")).await;
    client.told_to_go(0x82).await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn what_a_client_may_not_do_is_told_with_its_reason() {
    let running = Running::start_guarded(Arc::new(Asking)).await;
    for (name, reason, old) in [("banned", 0x8a, 5), ("wrong", 0x86, 4)] {
        let refused = Connect::new("c")
            .password(Some(name), "p")
            .told(running.port)
            .await;
        assert_eq!(refused.1.reason, reason);
        let mut client = Client::open(running.port).await;
        let mut body = b"\0\x04MQTT\x04\xc2\0\0".to_vec();
        for field in ["id", name, "p"] {
            body.extend(super::text(field));
        }
        client
            .send(&super::super::client::packet(0x10, &body))
            .await;
        assert_eq!(client.packet().await, (0x20, vec![0, old]));
        client.expect_end().await;
    }
    let (_, connack) = Connect::new("c")
        .will("secret", 0, Vec::new())
        .told(running.port)
        .await;
    assert_eq!(connack.reason, 0x87);
    let mut client = Connect::new("c").go(running.port).await;
    let filters = [("secret/#", 1), ("$share/g/secret/#", 1), ("#", 2)];
    assert_eq!(client.subscribe5(&[], &filters).await, [0x87, 0x87, 0]);
    client.send(&publish(0x30, "open", 0, &[], "x")).await;
    assert_eq!(client.got().await.payload, "x");
    assert_eq!(client.publish5("secret", "x", &[]).await, 0x87);
    client.send(&publish(0x34, "secret", 3, &[], "x")).await;
    assert_eq!(client.packet().await, (0x50, vec![0, 3, 0x87]));
    client.send(&publish(0x31, "secret", 0, &[], "x")).await;
    client.expect_nothing().await;
    assert_eq!(running.server.stats().retained, 0);
    // An old client is not told, and the message goes to nobody all the same.
    let mut old = running.client("old").await;
    old.send(&super::super::client::publish("secret", b"x", 1, false, 1))
        .await;
    assert_eq!(old.packet().await, (0x40, vec![0, 1]));
    // `#` was granted, yet not for this.
    let topic = "secret/plan".parse().unwrap();
    running
        .server
        .publish(&topic, b"x", Qos::AtMostOnce, false)
        .unwrap();
    client.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn a_link_ends_with_what_its_client_has_shown() {
    let running = Running::start_guarded(Arc::new(Asking)).await;
    let connect = Connect::new("c").password(Some("brief"), "x");
    let mut client = connect.go(running.port).await;
    client.told_to_go(0xa0).await;
    running.stop().await;
}
