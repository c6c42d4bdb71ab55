//! Heartbeats of Kafka Streams applications, byte by byte: the codec does not know them.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::*;

use super::access::{allow, client, server, text};
use super::client::{Client, Server, metadata};

/// A heartbeat of a member of an application that counts the words of a topic.
pub(super) struct Heartbeat {
    group: &'static str,
    member: &'static str,
    epoch: i32,
    instance: Option<&'static str>,
    regex: Option<&'static str>,
    /// The places of the topics that are to be read together.
    set: Option<i16>,
    is_full: bool,
}

/// What of an answer the tests look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) code: i16,
    reason: String,
    epoch: i32,
    notices: Vec<(i8, String)>,
    active: Option<BTreeMap<String, Vec<i32>>>,
}

impl Heartbeat {
    pub(super) fn joining(group: &'static str, member: &'static str) -> Self {
        Heartbeat {
            group,
            member,
            epoch: 0,
            instance: None,
            regex: None,
            set: None,
            is_full: true,
        }
    }

    fn at(group: &'static str, member: &'static str, epoch: i32) -> Self {
        Heartbeat {
            epoch,
            is_full: false,
            ..Heartbeat::joining(group, member)
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_text(&mut out, Some(self.group));
        put_text(&mut out, Some(self.member));
        out.put_i32(self.epoch);
        out.put_i32(0);
        put_text(&mut out, self.instance);
        put_text(&mut out, None);
        out.put_i32(if self.is_full { 30_000 } else { -1 });
        if self.is_full {
            out.put_u8(1);
            self.put_topology(&mut out);
        } else {
            out.put_i8(-1);
        }
        for _ in 0..3 {
            out.put_u8(u8::from(self.is_full));
        }
        put_text(&mut out, self.is_full.then_some("process"));
        out.put_i8(-1);
        // No tags, no offsets, no end, no tagged fields.
        out.put_slice(&[0; 5]);
        out.to_vec()
    }

    fn put_topology(&self, out: &mut BytesMut) {
        out.put_i32(0);
        out.put_u8(3);
        put_text(out, Some("0"));
        put_texts(out, &["t"]);
        put_texts(out, &self.regex.map_or_else(Vec::new, |regex| vec![regex]));
        out.put_u8(1);
        put_texts(out, &["app-by-word"]);
        out.put_u8(1);
        match self.set {
            None => out.put_u8(1),
            Some(place) => {
                out.put_slice(&[2, 2]);
                out.put_i16(place);
                out.put_slice(&[1, 1, 0]);
            }
        }
        out.put_u8(0);
        put_text(out, Some("1"));
        out.put_slice(&[1, 1, 2]);
        put_text(out, Some("app-counts"));
        out.put_i32(0);
        out.put_i16(0);
        out.put_u8(2);
        put_text(out, Some("cleanup.policy"));
        put_text(out, Some("compact"));
        out.put_slice(&[0, 0]);
        out.put_u8(1);
        out.put_u8(2);
        put_text(out, Some("app-by-word"));
        out.put_i32(0);
        out.put_i16(0);
        out.put_slice(&[1, 0]);
        out.put_slice(&[1, 0]);
        out.put_u8(0);
    }
}

fn put_text(out: &mut BytesMut, text: Option<&str>) {
    let text = text.map(str::as_bytes);
    let length = text.map_or(0, |text| text.len() + 1);
    assert!(length < 0x80, "one byte holds the lengths here");
    out.put_u8(u8::try_from(length).unwrap());
    out.put_slice(text.unwrap_or_default());
}

fn put_texts(out: &mut BytesMut, texts: &[&str]) {
    out.put_u8(u8::try_from(texts.len() + 1).unwrap());
    texts.iter().for_each(|text| put_text(out, Some(text)));
}

fn get_text(from: &mut Bytes) -> String {
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = from.get_u8();
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    let bytes = from.split_to(length.saturating_sub(1));
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn get_tasks(from: &mut Bytes) -> Option<BTreeMap<String, Vec<i32>>> {
    let count = from.get_u8().checked_sub(1)?;
    let each = (0..count).map(|_| {
        let of = get_text(from);
        let numbers = (1..from.get_u8()).map(|_| from.get_i32()).collect();
        from.advance(1);
        (of, numbers)
    });
    Some(each.collect())
}

pub(super) async fn heartbeat(client: &mut Client, beat: &Heartbeat) -> Told {
    let mut answer = client.call_raw(88, 0, &beat.body()).await;
    assert_eq!(answer.get_i32(), 0);
    let code = answer.get_i16();
    let reason = get_text(&mut answer);
    let member = get_text(&mut answer);
    let epoch = answer.get_i32();
    if code == 0 {
        assert_eq!(member, beat.member);
        assert!((1..=5_000).contains(&answer.get_i32()));
        assert_eq!((answer.get_i32(), answer.get_i32()), (10_000, 60_000));
    } else {
        answer.advance(12);
    }
    let count = answer.get_u8().saturating_sub(1);
    let notices = (0..count).map(|_| {
        let notice = (answer.get_i8(), get_text(&mut answer));
        answer.advance(1);
        notice
    });
    let notices = notices.collect();
    let active = get_tasks(&mut answer);
    assert_eq!(get_tasks(&mut answer).is_some(), active.is_some());
    assert_eq!(get_tasks(&mut answer).is_some(), active.is_some());
    Told {
        code,
        reason,
        epoch,
        notices,
        active,
    }
}

/// What is told first of a group: its code, its state as the reason, its epoch.
pub(super) async fn described(client: &mut Client, group: &'static str) -> Told {
    let mut body = BytesMut::new();
    put_texts(&mut body, &[group]);
    body.put_slice(&[0, 0]);
    let mut answer = client.call_raw(89, 0, &body).await;
    assert_eq!((answer.get_i32(), answer.get_u8()), (0, 2));
    let code = answer.get_i16();
    get_text(&mut answer);
    assert_eq!(get_text(&mut answer), group);
    let reason = get_text(&mut answer);
    Told {
        code,
        reason,
        epoch: answer.get_i32(),
        ..Told::default()
    }
}

#[tokio::test]
async fn a_heartbeat_makes_the_internal_topics_that_it_needs() {
    let server = Server::start_with(|config| {
        config.groups.streams_initial_rebalance_delay =
            base::HumanDuration(std::time::Duration::ZERO);
    })
    .await;
    let mut c = Client::connect(&server).await;
    let waits = heartbeat(&mut c, &Heartbeat::joining("app", "m")).await;
    assert_eq!(
        waits.notices,
        [(1, "Source topics t are missing.".to_owned())]
    );
    assert_eq!(described(&mut c, "app").await.reason, "NotReady");
    c.call(9, &metadata("t")).await;
    let told = heartbeat(&mut c, &Heartbeat::at("app", "m", waits.epoch)).await;
    let active = [("0".to_owned(), vec![0, 1]), ("1".to_owned(), vec![0, 1])];
    assert_eq!((told.active, told.notices), (Some(active.into()), vec![]));
    assert_eq!(described(&mut c, "app").await.reason, "Stable");
    let made = server.streams.topic_by_name(&"app-counts".parse().unwrap());
    let made = made.unwrap();
    assert_eq!(made.config().value("cleanup.policy"), Some("compact"));
    // Nothing has changed: it is told no more than that it lives.
    let told = heartbeat(&mut c, &Heartbeat::at("app", "m", told.epoch)).await;
    assert_eq!((told.active, told.notices), (None, vec![]));
    let left = heartbeat(&mut c, &Heartbeat::at("app", "m", -1)).await;
    assert_eq!((left.code, left.epoch), (0, -1));
    assert_eq!(described(&mut c, "app").await.reason, "Empty");
    server.stop().await;
}

#[tokio::test]
async fn what_kafka_does_not_serve_is_refused_in_its_words() {
    let server = Server::start().await;
    let mut c = Client::connect(&server).await;
    for (beat, told) in [
        (
            Heartbeat {
                instance: Some("i"),
                ..Heartbeat::joining("app", "m")
            },
            "Static membership",
        ),
        (
            Heartbeat {
                regex: Some(".*"),
                ..Heartbeat::joining("app", "m")
            },
            "Regular expressions",
        ),
        (
            Heartbeat {
                set: Some(1),
                ..Heartbeat::joining("app", "m")
            },
            "does not read",
        ),
        (
            Heartbeat {
                set: Some(-1),
                ..Heartbeat::joining("app", "m")
            },
            "does not read",
        ),
    ] {
        let refused = heartbeat(&mut c, &beat).await;
        assert_eq!(refused.code, 42, "{refused:?}");
        assert!(refused.reason.contains(told), "{refused:?}");
    }
    // UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, and no member of an application in a share group.
    let unknown = heartbeat(&mut c, &Heartbeat::at("app", "m", 3)).await;
    assert_eq!(unknown.code, 25);
    assert_eq!(described(&mut c, "app").await.code, 69);
    heartbeat(&mut c, &Heartbeat::joining("app", "m")).await;
    let beat = ShareGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("app")))
        .with_member_id(text("s"))
        .with_subscribed_topic_names(Some(vec![TopicName(text("t"))]));
    assert_eq!(c.call(1, &beat).await.error_code, 69);
    server.stop().await;
}

#[tokio::test]
async fn internal_topics_are_made_with_the_rights_of_the_member() {
    let server = server().await;
    let (mut root, _) = client(&server, "root", "pw").await;
    root.call(9, &metadata("t")).await;
    let (mut ann, _) = client(&server, "ann", "pw").await;
    root.call(3, &allow(GROUP, "app", READ)).await;
    // She may not know of the topics.
    let refused = heartbeat(&mut ann, &Heartbeat::joining("app", "m")).await;
    assert_eq!(refused.code, 29);
    for topic in ["t", "app-by-word", "app-counts"] {
        root.call(3, &allow(TOPIC, topic, DESCRIBE)).await;
    }
    root.call(3, &allow(TOPIC, "app-by-word", CREATE)).await;
    let told = heartbeat(&mut ann, &Heartbeat::joining("app", "m")).await;
    let (kind, detail) = &told.notices[0];
    assert_eq!((*kind, told.notices.len()), (3, 1), "{told:?}");
    let expected =
        "Internal topics are missing: app-counts. app-counts may not be created by the member.";
    assert_eq!(detail, expected);
    root.call(3, &allow(TOPIC, "app-counts", CREATE)).await;
    let told = heartbeat(&mut ann, &Heartbeat::at("app", "m", told.epoch)).await;
    assert!(
        told.notices.iter().all(|(kind, _)| *kind == DELAYED),
        "{told:?}"
    );
    server.stop().await;
}

/// Kafka's numbers.
const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const READ: i8 = 3;
const CREATE: i8 = 5;
const DESCRIBE: i8 = 8;

/// The notice that the first tasks wait for more members.
const DELAYED: i8 = 5;
