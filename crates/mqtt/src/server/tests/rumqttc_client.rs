//! rumqttc, a client that others wrote, in 3.1.1 and 5.0.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS as Qos5;
use rumqttc::v5::mqttbytes::v5::{Packet as Packet5, Publish as Publish5, PublishProperties};
use rumqttc::{Packet, Publish, QoS};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use super::{DEADLINE, Running};
use crate::config::MqttConfig;

/// A client of 3.1.1 and what it gets.
fn open_4(port: u16, id: &str) -> (rumqttc::AsyncClient, Receiver<Packet>) {
    let mut options = rumqttc::MqttOptions::new(id, "127.0.0.1", port);
    options.set_clean_session(false);
    let (client, mut events) = rumqttc::AsyncClient::new(options, 100);
    let (inbox, packets) = channel(1_000);
    tokio::spawn(async move {
        while let Ok(event) = events.poll().await {
            if let rumqttc::Event::Incoming(packet) = event
                && inbox.send(packet).await.is_err()
            {
                break;
            }
        }
    });
    (client, packets)
}

/// A client of 5.0 and what it gets.
fn open_5(port: u16, id: &str) -> (rumqttc::v5::AsyncClient, Receiver<Packet5>) {
    let mut options = rumqttc::v5::MqttOptions::new(id, "127.0.0.1", port);
    options.set_clean_start(false);
    options.set_session_expiry_interval(Some(60));
    options.set_keep_alive(Duration::from_secs(30));
    let (client, mut events) = rumqttc::v5::AsyncClient::new(options, 100);
    let (inbox, packets) = channel(1_000);
    tokio::spawn(async move {
        while let Ok(event) = events.poll().await {
            if let rumqttc::v5::Event::Incoming(packet) = event
                && inbox.send(packet).await.is_err()
            {
                break;
            }
        }
    });
    (client, packets)
}

/// The first packet that `pick` takes.
async fn next<P, T>(packets: &mut Receiver<P>, pick: impl Fn(P) -> Option<T>) -> T {
    let found = async {
        loop {
            let packet = packets.recv().await.expect("the link ended");
            if let Some(found) = pick(packet) {
                return found;
            }
        }
    };
    timeout(DEADLINE, found).await.expect("nothing came")
}

fn publish_4(packet: Packet) -> Option<Publish> {
    match packet {
        Packet::Publish(publish) => Some(publish),
        _ => None,
    }
}

fn publish_5(packet: Packet5) -> Option<Publish5> {
    match packet {
        Packet5::Publish(publish) => Some(publish),
        _ => None,
    }
}

#[tokio::test]
async fn rumqttc_does_its_steps_in_3_1_1() {
    let running = Running::start(MqttConfig::default()).await;
    let (subscriber, mut inbox) = open_4(running.port, "s");
    subscriber.subscribe("a/#", QoS::ExactlyOnce).await.unwrap();
    next(&mut inbox, |p| matches!(p, Packet::SubAck(_)).then_some(())).await;
    let (publisher, mut answers) = open_4(running.port, "p");
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        publisher.publish("a/b", qos, false, "x").await.unwrap();
        let got = next(&mut inbox, publish_4).await;
        assert_eq!(
            (got.topic.as_str(), got.qos, &got.payload[..]),
            ("a/b", qos, &b"x"[..])
        );
    }
    next(&mut answers, |p| {
        matches!(p, Packet::PubComp(_)).then_some(())
    })
    .await;
    // A new client of rumqttc knows nothing of what the one before had begun.
    next(&mut inbox, |p| {
        matches!(p, Packet::PubRel(_)).then_some(())
    })
    .await;
    subscriber.disconnect().await.unwrap();
    while inbox.recv().await.is_some() {}
    publisher
        .publish("a/away", QoS::ExactlyOnce, true, "kept")
        .await
        .unwrap();
    next(&mut answers, |p| {
        matches!(p, Packet::PubComp(_)).then_some(())
    })
    .await;
    let (subscriber, mut inbox) = open_4(running.port, "s");
    let connack = next(&mut inbox, |p| match p {
        Packet::ConnAck(connack) => Some(connack),
        _ => None,
    });
    assert!(connack.await.session_present);
    let got = next(&mut inbox, publish_4).await;
    assert_eq!((got.qos, got.retain), (QoS::ExactlyOnce, false));
    subscriber
        .subscribe("a/away", QoS::AtLeastOnce)
        .await
        .unwrap();
    let got = next(&mut inbox, publish_4).await;
    assert_eq!((got.qos, got.retain), (QoS::AtLeastOnce, true));
    running.stop().await;
}

#[tokio::test]
async fn rumqttc_does_its_steps_in_5_0() {
    let running = Running::start(MqttConfig::default()).await;
    let (subscriber, mut inbox) = open_5(running.port, "s");
    subscriber
        .subscribe("a/#", Qos5::ExactlyOnce)
        .await
        .unwrap();
    subscriber
        .subscribe("$share/g/b", Qos5::AtLeastOnce)
        .await
        .unwrap();
    for _ in 0..2 {
        next(&mut inbox, |p| {
            matches!(p, Packet5::SubAck(_)).then_some(())
        })
        .await;
    }
    let (publisher, mut answers) = open_5(running.port, "p");
    let properties = PublishProperties {
        response_topic: Some("answer".to_owned()),
        user_properties: vec![("b".into(), "1".into()), ("a".into(), "2".into())],
        message_expiry_interval: Some(60),
        ..PublishProperties::default()
    };
    for qos in [Qos5::AtMostOnce, Qos5::AtLeastOnce, Qos5::ExactlyOnce] {
        publisher
            .publish_with_properties("a/b", qos, false, "x", properties.clone())
            .await
            .unwrap();
        let got = next(&mut inbox, publish_5).await;
        assert_eq!(
            (&got.topic[..], got.qos, &got.payload[..]),
            (&b"a/b"[..], qos, &b"x"[..])
        );
        let told = got.properties.unwrap();
        assert_eq!(told.user_properties, properties.user_properties);
        assert_eq!(told.response_topic, properties.response_topic);
    }
    publisher
        .publish("b", Qos5::ExactlyOnce, false, "shared")
        .await
        .unwrap();
    assert_eq!(next(&mut inbox, publish_5).await.qos, Qos5::AtLeastOnce);
    for _ in 0..2 {
        next(&mut answers, |p| {
            matches!(p, Packet5::PubComp(_)).then_some(())
        })
        .await;
    }
    subscriber.disconnect().await.unwrap();
    while inbox.recv().await.is_some() {}
    publisher
        .publish("a/away", Qos5::AtLeastOnce, false, "kept")
        .await
        .unwrap();
    next(&mut answers, |p| {
        matches!(p, Packet5::PubAck(_)).then_some(())
    })
    .await;
    let (_subscriber, mut inbox) = open_5(running.port, "s");
    let connack = next(&mut inbox, |p| match p {
        Packet5::ConnAck(connack) => Some(connack),
        _ => None,
    });
    assert!(connack.await.session_present);
    assert_eq!(&next(&mut inbox, publish_5).await.payload[..], b"kept");
    running.stop().await;
}
