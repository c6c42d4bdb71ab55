//! What answers say beside their codes: nothing, so that none is larger than its client takes.

use std::sync::Arc;

use super::super::Running;
use super::super::client::Client;
use super::login::Asking;
use super::{Connect, disconnect, four, one, publish, subscribe, unsubscribe};
use crate::config::MqttConfig;

/// The packet must be this answer: its code, and no properties.
async fn says(client: &mut Client, first: u8, id: u16, code: u8) {
    let (got, body) = client.packet().await;
    let [high, low] = id.to_be_bytes();
    assert_eq!((got, &body[..2]), (first, &[high, low][..]));
    assert_eq!(body.get(2).copied().unwrap_or(0), code, "{body:?}");
    assert!(matches!(body.get(3..), None | Some([] | [0])), "{body:?}");
}

/// The packet must be a SUBACK or UNSUBACK of one code, without properties.
async fn tells(client: &mut Client, first: u8, id: u16, code: u8) {
    let (got, body) = client.packet().await;
    let [high, low] = id.to_be_bytes();
    assert_eq!((got, body), (first, vec![high, low, 0, code]));
}

#[tokio::test]
pub(in crate::server) async fn answers_have_neither_reason_strings_nor_user_properties() {
    for wants_them in [0, 1] {
        let running = Running::start(MqttConfig::default()).await;
        let asked = Connect::new("c")
            .with(one(23, wants_them))
            .with(four(39, 40));
        let (mut client, connack) = asked.told(running.port).await;
        assert_eq!(connack.reason, 0);
        assert_eq!(connack.properties().text(31), None);
        assert_eq!(connack.properties().user().count(), 0);
        client.send(&subscribe(1, &[], &[("t", 2)])).await;
        tells(&mut client, 0x90, 1, 2).await;
        // Each of the four packets, both ways.
        client.send(&publish(0x34, "t", 7, &[], "x")).await;
        let (mut seen, mut own) = (Vec::new(), 0);
        while seen.len() < 2 {
            let (first, body) = client.packet().await;
            if first >> 4 == 3 {
                own = u16::from_be_bytes([body[3], body[4]]);
            } else {
                assert_eq!((first, body), (0x50, vec![0, 7]));
            }
            seen.push(first);
        }
        client.ack(0x50, own).await;
        says(&mut client, 0x62, own, 0).await;
        client.ack(0x70, own).await;
        client.ack(0x62, 7).await;
        says(&mut client, 0x70, 7, 0).await;
        // What fails says so by its code alone.
        client.ack(0x62, 8).await;
        says(&mut client, 0x70, 8, 0x92).await;
        client.send(&unsubscribe(2, &["never"])).await;
        tells(&mut client, 0xb0, 2, 0x11).await;
        client.send(&publish(0x32, "t", 9, &[], "x")).await;
        loop {
            let (first, body) = client.packet().await;
            if first >> 4 != 3 {
                assert_eq!((first, &body[..2]), (0x40, &[0, 9][..]));
                assert!(matches!(body.get(3..), None | Some([] | [0])), "{body:?}");
                break;
            }
        }
        client.send(&asked.bytes()).await;
        loop {
            let (first, body) = client.packet().await;
            if first >> 4 != 3 {
                assert_eq!((first, body[0]), (0xe0, 0x82));
                assert!(matches!(body[1..], [] | [0]), "{body:?}");
                break;
            }
        }
        running.stop().await;
    }
}

#[tokio::test]
pub(in crate::server) async fn refusals_have_neither_reason_strings_nor_user_properties() {
    let running = Running::start_guarded(Arc::new(Asking)).await;
    let wanted = Connect::new("c").with(one(23, 1)).with(four(39, 40));
    let refused = Connect::new("b")
        .with(one(23, 1))
        .password(Some("banned"), "x");
    let (_, connack) = refused.told(running.port).await;
    assert_eq!(connack.reason, 0x8a);
    assert_eq!(connack.properties().text(31), None);
    assert_eq!(connack.properties().user().count(), 0);
    let mut client = wanted.go(running.port).await;
    client.send(&publish(0x32, "shut", 3, &[], "x")).await;
    says(&mut client, 0x40, 3, 0x87).await;
    client.send(&publish(0x34, "shut", 4, &[], "x")).await;
    says(&mut client, 0x50, 4, 0x87).await;
    client.send(&subscribe(5, &[], &[("secret/#", 0)])).await;
    tells(&mut client, 0x90, 5, 0x87).await;
    client.send(&disconnect(0, &[])).await;
    client.expect_end().await;
    running.stop().await;
}
