//! SUBSCRIBE and UNSUBSCRIBE with their options.

use super::super::Running;
use super::super::client::packet;
use super::{Connect, each_ends_its_link, publish, subscribe, unsubscribe};
use crate::config::MqttConfig;

/// Options of a filter.
const NO_LOCAL: u8 = 4;
const AS_PUBLISHED: u8 = 8;
const IF_NEW: u8 = 0x10;
const NEVER: u8 = 0x20;

#[tokio::test]
pub(in crate::server) async fn overlapping_filters_give_one_copy_with_all_their_identifiers() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    client.subscribe5(&[11, 7], &[("a/#", 1)]).await;
    client.subscribe5(&[11, 0xac, 0x02], &[("a/+", 2)]).await;
    client.subscribe5(&[], &[("a/b", 0)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x34, "a/b", 1, &[], "x")).await;
    assert_eq!(publisher.packet().await.0, 0x50);
    let got = client.got().await;
    assert_eq!(got.qos(), 2, "the highest of all");
    let mut identifiers: Vec<_> = got.properties().walk().map(|p| p.value).collect();
    identifiers.sort_by_key(|value| format!("{value:?}"));
    let variable = crate::codec::Value::Variable;
    assert_eq!(identifiers, [variable(300), variable(7)]);
    client.ack(0x50, got.id).await;
    client.packet().await;
    client.expect_nothing().await;
    // A subscription is replaced whole: this one loses its identifier and its quality.
    client.subscribe5(&[], &[("a/#", 0)]).await;
    publisher.publish5("a/x/y", "x", &[]).await;
    let got = client.got().await;
    assert_eq!((got.qos(), got.properties().is_empty()), (0, true));
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn no_local_keeps_a_clients_own_messages_from_it() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    client
        .subscribe5(
            &[],
            &[("own", NO_LOCAL | 1), ("both/#", NO_LOCAL), ("both/+", 1)],
        )
        .await;
    let mut other = Connect::new("o").go(running.port).await;
    client.publish5("own", "mine", &[]).await;
    client.expect_nothing().await;
    other.publish5("own", "theirs", &[]).await;
    assert_eq!(client.got().await.payload, "theirs");
    // Another filter of the same client wants them.
    client
        .send(&publish(0x30, "both/x", 0, &[], "wanted"))
        .await;
    assert_eq!(client.got().await.payload, "wanted");
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn retained_messages_come_as_the_options_say() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.send(&publish(0x33, "r", 1, &[], "kept")).await;
    publisher.packet().await;
    let mut client = Connect::new("c").go(running.port).await;
    client.subscribe5(&[], &[("r", NEVER | 1)]).await;
    client.expect_nothing().await;
    // It exists, so it is not new.
    client.subscribe5(&[], &[("r", IF_NEW | 1)]).await;
    client.expect_nothing().await;
    for options in [1, 1] {
        client.subscribe5(&[11, 9], &[("r", options)]).await;
        let got = client.got().await;
        assert!(got.is_retained());
        assert_eq!((got.qos(), got.properties().variable(11)), (1, Some(9)));
        client.ack(0x40, got.id).await;
    }
    client.send(&unsubscribe(3, &["r"])).await;
    client.packet().await;
    client.subscribe5(&[], &[("r", IF_NEW)]).await;
    assert_eq!(client.got().await.payload, "kept");
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn the_retain_flag_passes_only_where_it_is_asked_for() {
    let running = Running::start(MqttConfig::default()).await;
    let mut plain = Connect::new("plain").go(running.port).await;
    plain.subscribe5(&[], &[("r", 1)]).await;
    let mut faithful = Connect::new("faithful").go(running.port).await;
    faithful.subscribe5(&[], &[("r", AS_PUBLISHED | 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    for (first, flag) in [(0x33, true), (0x32, false), (0x31, true), (0x30, false)] {
        publisher.send(&publish(first, "r", 1, &[], "x")).await;
        assert_eq!(faithful.got().await.is_retained(), flag);
        assert!(!plain.got().await.is_retained());
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn retained_messages_are_replaced_deleted_and_left_alone() {
    let running = Running::start(MqttConfig::default()).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    let mut client = Connect::new("c").go(running.port).await;
    for (first, payload, found) in [
        (0x33, "one", Some("one")),
        (0x33, "two", Some("two")),
        (0x32, "not kept", Some("two")),
        (0x32, "", Some("two")),
        (0x33, "", None),
    ] {
        publisher.send(&publish(first, "r", 1, &[], payload)).await;
        publisher.packet().await;
        client.subscribe5(&[], &[("r", 0)]).await;
        if let Some(found) = found {
            assert_eq!(client.got().await.payload, found);
        }
        client.send(&unsubscribe(3, &["r"])).await;
        assert_eq!(client.packet().await.0, 0xb0);
    }
    assert_eq!(running.server.stats().retained, 0);
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn acknowledgements_carry_a_code_for_each_filter_in_order() {
    let config = MqttConfig {
        subscriptions_per_client_max: 3,
        ..MqttConfig::default()
    };
    let running = Running::start(config).await;
    let mut client = Connect::new("c").go(running.port).await;
    let filters = [
        ("a", 0),
        ("b#", 1),
        ("c/+", 1),
        ("#/d", 0),
        ("e/#", 2),
        ("f", 0),
        ("", 0),
    ];
    let codes = client.subscribe5(&[], &filters).await;
    assert_eq!(codes, [0, 0x8f, 1, 0x8f, 2, 0x97, 0x8f]);
    let gone = ["a", "never", "c/+", "c/#", "b#"];
    client.send(&unsubscribe(9, &gone)).await;
    let answer = vec![0, 9, 0, 0, 0x11, 0, 0x11, 0x8f];
    assert_eq!(client.packet().await, (0xb0, answer));
    let mut publisher = Connect::new("p").go(running.port).await;
    for topic in ["a", "c/x", "e/x"] {
        publisher.publish5(topic, topic, &[]).await;
    }
    assert_eq!(client.got().await.topic, "e/x");
    client.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
async fn filters_have_a_bound_in_bytes_that_holds_over_a_restart() {
    // Ten kilobytes in all.
    let config = || MqttConfig {
        subscriptions_per_client_max: 10,
        ..MqttConfig::default()
    };
    let running = Running::start(config()).await;
    let long = |number: u8| format!("{number}{}", "x".repeat(3_000));
    let deep = "a/".repeat(119);
    let mut client = Connect::kept("c", 60).go(running.port).await;
    let granted = [(long(1), 0), (long(2), 0), (long(3), 0), (long(4), 0x97)];
    for (filter, code) in &granted {
        let codes = client.subscribe5(&[], &[(filter, 0), (&deep, 0)]).await;
        // Each level counts, however short.
        assert_eq!(codes, [*code, 0x97]);
    }
    // What is there already may be had again.
    assert_eq!(client.subscribe5(&[], &[(&long(1), 1)]).await, [1]);
    drop(client);
    let running = running.restart(config()).await;
    let mut client = Connect::kept("c", 60).go(running.port).await;
    assert_eq!(client.subscribe5(&[], &[(&long(4), 0)]).await, [0x97]);
    client.send(&unsubscribe(2, &[&long(1)])).await;
    assert_eq!(client.packet().await, (0xb0, vec![0, 2, 0, 0]));
    for (filter, code) in [(long(4), 0), (long(5), 0x97)] {
        assert_eq!(client.subscribe5(&[], &[(&filter, 0)]).await, [code]);
    }
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn what_was_sent_is_delivered_also_after_an_unsubscribe() {
    let running = Running::start(MqttConfig::default()).await;
    let mut keeper = Connect::kept("k", 60).go(running.port).await;
    keeper.subscribe5(&[], &[("t", 1)]).await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("t", "x", &[]).await;
    let sent = keeper.got().await;
    keeper.send(&unsubscribe(2, &["t"])).await;
    assert_eq!(keeper.packet().await, (0xb0, vec![0, 2, 0, 0]));
    publisher.publish5("t", "late", &[]).await;
    keeper.expect_nothing().await;
    drop(keeper);
    let mut keeper = Connect::kept("k", 60).go(running.port).await;
    let again = keeper.got().await;
    assert_eq!((again.id, again.is_dup()), (sent.id, true));
    keeper.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn a_subscribe_that_is_wrong_ends_the_link() {
    let running = Running::start(MqttConfig::default()).await;
    let reserved_flags = packet(0x80, b"\0\x01\0\0\x01a\0");
    each_ends_its_link(
        &running,
        [
            ("no filter", subscribe(1, &[], &[]), 0x82),
            ("identifier 0", subscribe(0, &[], &[("a", 0)]), 0x81),
            ("QoS 3", subscribe(1, &[], &[("a", 3)]), 0x81),
            ("reserved bits", subscribe(1, &[], &[("a", 0x40)]), 0x81),
            ("retain handling 3", subscribe(1, &[], &[("a", 0x30)]), 0x81),
            (
                "subscription identifier 0",
                subscribe(1, &[11, 0], &[("a", 0)]),
                0x82,
            ),
            (
                "no-local on a share",
                subscribe(1, &[], &[("$share/g/a", NO_LOCAL)]),
                0x82,
            ),
            ("reserved flags", reserved_flags, 0x81),
            (
                "filter not UTF-8",
                packet(0x82, b"\0\x01\0\0\x01\xff\0"),
                0x81,
            ),
            (
                "filter with U+0000",
                packet(0x82, b"\0\x01\0\0\x01\0\0"),
                0x81,
            ),
            ("unsubscribe of nothing", unsubscribe(1, &[]), 0x82),
            (
                "unsubscribe with flags",
                packet(0xa0, b"\0\x01\0\0\x01a"),
                0x81,
            ),
            (
                "unsubscribe not UTF-8",
                packet(0xa2, b"\0\x01\0\0\x01\xff"),
                0x81,
            ),
        ],
    )
    .await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn dollar_topics_need_a_filter_that_says_so() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    client
        .subscribe5(&[], &[("#", 0), ("+/x", 0), ("$own/#", 0)])
        .await;
    let mut publisher = Connect::new("p").go(running.port).await;
    publisher.publish5("$own/x", "once", &[]).await;
    assert_eq!(client.got().await.payload, "once");
    client.expect_nothing().await;
    running.stop().await;
}

#[tokio::test]
pub(in crate::server) async fn topics_are_compared_as_they_are() {
    let running = Running::start(MqttConfig::default()).await;
    let mut client = Connect::new("c").go(running.port).await;
    // A precomposed letter, its parts, a byte order mark, a trailing slash, a space.
    let topics = ["\u{e5}", "a\u{30a}", "\u{feff}x", "a/", "a ", "A"];
    for topic in topics {
        client.subscribe5(&[], &[(topic, 1)]).await;
        client.publish5_and_get(topic).await;
        client.send(&unsubscribe(1, &[topic])).await;
        assert_eq!(client.packet().await.1, [0, 1, 0, 0]);
    }
    client.subscribe5(&[], &[("a", 1), ("\u{e5}", 1)]).await;
    for topic in ["a/", "a ", "A", "a\u{30a}", "/a"] {
        assert_eq!(
            client.publish5(topic, "x", &[]).await,
            0,
            "{topic} met another topic"
        );
    }
    client.expect_nothing().await;
    running.stop().await;
}

impl super::Client {
    /// Publishes to a topic that it subscribes to itself, and takes PUBACK and PUBLISH.
    async fn publish5_and_get(&mut self, topic: &str) {
        self.send(&publish(0x30, topic, 0, &[], "x")).await;
        assert_eq!(self.got().await.topic, topic);
    }
}
