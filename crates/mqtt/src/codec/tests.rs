//! Golden bytes from the specification's tables, and seeded random bytes.

use base::Rng;

use super::encode::fixed_header;
use super::*;

const MAX: usize = 1 << 20;
const GOODBYE: Packet<'static> = Packet::Disconnect {
    reason: 0,
    session_expiry_s: None,
};

fn whole(bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame(bytes, MAX)?.expect("the test gives whole packets");
    assert_eq!(frame.len, bytes.len());
    decode(Version::V311, frame)
}

/// A CONNECT of 3.1.1 that says nothing.
fn plain_connect() -> Connect<'static> {
    Connect {
        version: Version::V311,
        clean_start: true,
        keep_alive_s: 60,
        client_id: "a",
        will: None,
        username: None,
        password: None,
        session_expiry_s: None,
        receive_maximum: u16::MAX,
        packet_bytes_max: u32::MAX,
        topic_alias_maximum: 0,
        wants_response_information: false,
        wants_problem_information: true,
        auth_method: None,
        auth_data: &[],
    }
}

#[track_caller]
fn refused(bytes: &[u8], reason: &str) {
    let error = whole(bytes).expect_err("the packet was taken");
    assert!(
        error.to_string().contains(reason),
        "{error} does not say {reason}"
    );
}

#[test]
pub(crate) fn a_full_connect_is_read() {
    // Figure 3.6 of the specification, with a will, a user name and a password.
    let mut bytes = vec![0x10, 0, 0, 4, b'M', b'Q', b'T', b'T', 4, 0b1110_1110, 0, 10];
    for field in ["id", "w/t", "gone", "me", "pw"] {
        bytes.extend_from_slice(&[0, field.len() as u8]);
        bytes.extend_from_slice(field.as_bytes());
    }
    bytes[1] = (bytes.len() - 2) as u8;
    let expected = Connect {
        keep_alive_s: 10,
        client_id: "id",
        will: Some(Will {
            topic: "w/t",
            payload: b"gone",
            qos: Qos::AtLeastOnce,
            retain: true,
            delay_s: 0,
            properties: Properties::default(),
        }),
        username: Some("me"),
        password: Some(b"pw"),
        ..plain_connect()
    };
    assert_eq!(whole(&bytes), Ok(Packet::Connect(Box::new(expected))));
    for cut in 2..bytes.len() - 1 {
        let mut short = bytes[..cut].to_vec();
        short[1] = (cut - 2) as u8;
        assert!(whole(&short).is_err(), "cut at {cut} was taken");
    }
}

#[test]
pub(crate) fn protocol_versions_are_told_apart() {
    let v31 = b"\x10\x0f\0\x06MQIsdp\x03\x02\0\x3c\0\x01a";
    assert!(matches!(whole(v31), Ok(Packet::Connect(c)) if c.version == Version::V31));
    let v5 = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";
    assert!(matches!(whole(v5), Ok(Packet::Connect(c)) if c.version == Version::V5));
    let v6 = b"\x10\x0e\0\x04MQTT\x06\x02\0\x3c\0\0\x01a";
    assert_eq!(whole(v6), Err(DecodeError::UnsupportedVersion(6)));
    refused(b"\x10\x0d\0\x04MQTX\x04\x02\0\x3c\0\x01a", "protocol name");
    refused(b"\x10\x0d\0\x04MQTT\x04\x03\0\x3c\0\x01a", "reserved flag");
    refused(b"\x10\x0d\0\x04MQTT\x04\x22\0\x3c\0\x01a", "without a will");
    refused(
        b"\x10\x0d\0\x04MQTT\x04\x42\0\x3c\0\x01a",
        "password without",
    );
}

#[test]
pub(crate) fn publish_is_read_and_written_alike() {
    let golden = b"\x33\x0a\0\x03a/b\0\x0axyz";
    let read = Publish {
        topic: "a/b",
        payload: b"xyz",
        qos: Qos::AtLeastOnce,
        retain: true,
        dup: false,
        id: 10,
        properties: Properties::default(),
    };
    assert_eq!(whole(golden), Ok(Packet::Publish(read)));
    let mut out = Vec::new();
    let written = Outgoing::plain("a/b", b"xyz", Qos::AtLeastOnce, true, 10);
    publish(&mut out, Version::V311, &written);
    assert_eq!(out, golden);
    refused(b"\x36\x05\0\x01a\0\x01", "QoS 3");
    refused(b"\x38\x03\0\x01a", "DUP");
    refused(b"\x32\x05\0\x01a\0\0", "identifier 0");
    refused(b"\x30\x03\0\x01+", "topic");
    refused(b"\x30\x02\0\0", "topic");
    refused(b"\x30\x03\0\x02a", "past the end");
    refused(b"\x30\x03\0\x01\xff", "UTF-8");
    refused(b"\x30\x05\0\x03\xed\xa0\x80", "UTF-8");
    refused(b"\x30\x03\0\x01\0", "topic");
    refused(b"\x32\x05\0\x01a\0\0", "identifier 0");
}

#[test]
pub(crate) fn subscribe_and_unsubscribe_give_their_filters() {
    let bytes = b"\x82\x0e\0\x0a\0\x03a/b\x01\0\x03c/d\x02";
    let Ok(Packet::Subscribe {
        id: 10, filters, ..
    }) = whole(bytes)
    else {
        panic!("not a SUBSCRIBE of id 10");
    };
    let read: Vec<_> = filters
        .map(|(filter, options)| (filter, options.qos))
        .collect();
    assert_eq!(read, [("a/b", Qos::AtLeastOnce), ("c/d", Qos::ExactlyOnce)]);
    let bytes = b"\xa2\x0c\0\x0a\0\x03a/b\0\x03c/d";
    let Ok(Packet::Unsubscribe { id: 10, filters }) = whole(bytes) else {
        panic!("not an UNSUBSCRIBE of id 10");
    };
    assert_eq!(
        filters.map(|(filter, _)| filter).collect::<Vec<_>>(),
        ["a/b", "c/d"]
    );
    refused(b"\x82\x02\0\x0a", "no filter");
    refused(b"\x80\x06\0\x0a\0\x01a\0", "reserved flags");
    refused(b"\x82\x06\0\x0a\0\x01a\x03", "QoS of a filter");
    refused(b"\x82\x06\0\0\0\x01a\0", "identifier 0");
}

#[test]
pub(crate) fn small_packets_have_their_golden_bytes() {
    let of = |kind, id| Packet::Ack {
        kind,
        id,
        reason: 0,
    };
    assert_eq!(whole(b"\x40\x02\x12\x34"), Ok(of(PUBACK, 0x1234)));
    assert_eq!(whole(b"\x50\x02\0\x01"), Ok(of(PUBREC, 1)));
    assert_eq!(whole(b"\x62\x02\0\x01"), Ok(of(PUBREL, 1)));
    assert_eq!(whole(b"\x70\x02\0\x01"), Ok(of(PUBCOMP, 1)));
    assert_eq!(whole(b"\xc0\0"), Ok(Packet::Pingreq));
    assert_eq!(whole(b"\xe0\0"), Ok(GOODBYE));
    refused(b"\x60\x02\0\x01", "reserved flags");
    refused(b"\xc0\x01\0", "after the end");
    refused(b"\x20\x02\0\0", "does not come from clients");
    refused(b"\xf0\0", "does not come from clients");
    let mut out = Vec::new();
    let says = Connack {
        session_present: true,
        ..Connack::default()
    };
    let v311 = Version::V311;
    connack(&mut out, v311, ReasonCode::Success, &says);
    connack(
        &mut out,
        v311,
        ReasonCode::UnsupportedProtocolVersion,
        &says,
    );
    suback(&mut out, v311, 10, &[1, 0x80]);
    unsuback(&mut out, v311, 11, &[0]);
    pingresp(&mut out);
    ack(&mut out, v311, PUBREL, 7, ReasonCode::Success);
    ack(&mut out, v311, PUBACK, 0x1234, ReasonCode::NotAuthorized);
    let golden: &[u8] = b"\x20\x02\x01\0\x20\x02\0\x01\x90\x04\0\x0a\x01\x80\xb0\x02\0\x0b\xd0\0\
        \x62\x02\0\x07\x40\x02\x12\x34";
    assert_eq!(out, golden);
}

#[test]
pub(crate) fn remaining_lengths_of_table_2_4_read_back() {
    for (length, bytes) in [
        (0, 1),
        (127, 1),
        (128, 2),
        (16_383, 2),
        (16_384, 3),
        (2_097_151, 3),
        (2_097_152, 4),
    ] {
        let mut out = Vec::new();
        fixed_header(&mut out, 0xc0, length);
        assert_eq!(out.len(), 1 + bytes, "{length}");
        if length > 0 {
            // The header alone says how much is needed; nothing is set aside for it.
            assert_eq!(frame(&out, usize::MAX), Ok(Err(out.len() + length)));
        }
    }
    let five = [0x30, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert!(matches!(
        frame(&five, usize::MAX),
        Err(DecodeError::Malformed(_))
    ));
    let large = [0x30, 0xff, 0xff, 0xff, 0x7f];
    let refused = DecodeError::TooLarge {
        bytes: 268_435_455,
        bytes_max: MAX,
    };
    assert_eq!(frame(&large, MAX), Err(refused));
}

#[test]
pub(crate) fn random_bytes_never_panic_and_packets_survive_any_cut() {
    for seed in 0..40_000 {
        let version = [Version::V31, Version::V311, Version::V5][seed as usize % 3];
        let mut rng = Rng::from_seed(seed);
        let mut bytes = vec![0; 2 + rng.below(60) as usize];
        rng.fill(&mut bytes);
        if rng.one_in(2) {
            // Half the time the frame is whole, so that the bodies are reached.
            bytes[1] = (bytes.len() - 2) as u8;
            if rng.one_in(3) && bytes.len() > 12 {
                bytes[0] = 0x10;
                bytes[2..10].copy_from_slice(b"\0\x04MQTT\x05\x02");
            }
        }
        if let Ok(Ok(frame)) = frame(&bytes, MAX)
            && let Ok(packet) = decode(version, frame)
            && let Packet::Subscribe { filters, .. } | Packet::Unsubscribe { filters, .. } = packet
        {
            assert!(filters.count() > 0, "seed {seed}");
        }
    }
}

#[test]
pub(crate) fn a_random_stream_of_publishes_reads_back_whatever_the_reads_are() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for id in 1..=20u16 {
            let topic = "t/".repeat(1 + rng.below(5) as usize);
            let mut payload = vec![0; rng.below(300) as usize];
            rng.fill(&mut payload);
            let qos = Qos::from_bits(rng.below(3) as u8).unwrap();
            let (retain, dup) = (rng.one_in(2), qos != Qos::AtMostOnce && rng.one_in(2));
            let plain = Outgoing::plain(&topic, &payload, qos, retain, id);
            publish(&mut stream, Version::V311, &Outgoing { dup, ..plain });
            sent.push((topic, payload, qos, retain, dup, id));
        }
        let (mut buffer, mut at) = (Vec::new(), 0);
        let mut sent = sent.into_iter();
        let mut known = String::new();
        while at < stream.len() {
            let more = (1 + rng.below(400) as usize).min(stream.len() - at);
            buffer.extend_from_slice(&stream[at..at + more]);
            at += more;
            let mut used = 0;
            while let Ok(frame) = frame(&buffer[used..], MAX).unwrap() {
                let read = decode_publish(Version::V311, frame.first, frame.body, &known).unwrap();
                let (topic, payload, qos, retain, dup, id) = sent.next().unwrap();
                let id = if qos == Qos::AtMostOnce { 0 } else { id };
                let expected = Publish {
                    topic: &topic,
                    payload: &payload,
                    qos,
                    retain,
                    dup,
                    id,
                    properties: Properties::default(),
                };
                assert_eq!(read, expected, "seed {seed}");
                topic.clone_into(&mut known);
                used += frame.len;
            }
            buffer.drain(..used);
        }
        assert_eq!(sent.next(), None, "seed {seed}");
    }
}

/// A whole packet of 5.0.
fn of_5(bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame(bytes, MAX)?.expect("the test gives whole packets");
    assert_eq!(frame.len, bytes.len());
    decode(Version::V5, frame)
}

#[test]
pub(crate) fn a_full_connect_of_5_0_is_read() {
    let mut body = b"\0\x04MQTT\x05\xe6\0\x0a".to_vec();
    let properties = b"\x11\0\0\0\x3c\x21\0\x0a\x27\0\0\x10\0\x22\0\x05\x19\x01\x17\0\
        \x26\0\x01a\0\x01b\x15\0\x01m\x16\0\x01d";
    body.push(properties.len() as u8);
    body.extend(properties);
    body.extend(b"\0\x02id\x05\x18\0\0\0\x09\0\x03w/t\0\x04gone\0\x02me\0\x02pw");
    let mut bytes = vec![0x10, body.len() as u8];
    bytes.extend(&body);
    let Ok(Packet::Connect(connect)) = of_5(&bytes) else {
        panic!("no CONNECT");
    };
    let will = connect.will.as_ref().expect("a will");
    assert_eq!(
        (will.topic, will.payload, will.delay_s),
        ("w/t", b"gone".as_slice(), 9)
    );
    assert!(will.retain);
    let expected = Connect {
        version: Version::V5,
        keep_alive_s: 10,
        client_id: "id",
        will: connect.will.clone(),
        username: Some("me"),
        password: Some(b"pw"),
        session_expiry_s: Some(60),
        receive_maximum: 10,
        packet_bytes_max: 4_096,
        topic_alias_maximum: 5,
        wants_response_information: true,
        wants_problem_information: false,
        auth_method: Some("m"),
        auth_data: b"d",
        ..plain_connect()
    };
    assert_eq!(*connect, expected);
    let me = bytes
        .windows(2)
        .rposition(|w| w == b"me")
        .expect("the user name");
    bytes[me] = 0xff;
    assert_eq!(of_5(&bytes), Err(DecodeError::Malformed("not UTF-8")));
    for cut in 2..body.len() {
        let mut short = vec![0x10, cut as u8];
        short.extend(&body[..cut]);
        assert!(of_5(&short).is_err(), "cut at {cut} was taken");
    }
}

#[test]
pub(crate) fn properties_are_checked_against_their_table() {
    let publish = |properties: &[u8]| {
        let mut bytes = vec![
            0x30,
            (4 + properties.len()) as u8,
            0,
            1,
            b't',
            properties.len() as u8,
        ];
        bytes.extend(properties);
        bytes
    };
    for (properties, taken) in [
        (
            b"\x01\x01\x02\0\0\0\x01\x03\0\0\x08\0\x01r\x09\0\0\x23\0\x01".as_slice(),
            true,
        ),
        (b"\x26\0\0\0\0\x26\0\0\0\0", true),
        (b"\x26\0\x01\xff\0\0", false),
        (b"\x26\0\0\0\x01\xff", false),
        (b"\x26\0\x01\0\0\0", false),
        (b"\x26\0\x01a", false),
        (b"\x03\0\0\x03\0\0", false),
        (b"\x08\0\0", false),
        (b"\x0b\x01", false),
        (b"\x1f\0\0", false),
        (b"\x81\0\x01", false),
        (b"\0", false),
    ] {
        let bytes = publish(properties);
        assert_eq!(of_5(&bytes).is_ok(), taken, "{properties:?}");
    }
    // The same id may stand in one packet and not in another.
    for (bytes, taken) in [
        (b"\x82\x08\0\x01\x02\x0b\x01\0\x01a\0".as_slice(), false),
        (b"\x82\x09\0\x01\x02\x0b\x01\0\x01a\0", true),
        (b"\x82\x09\0\x01\x02\x01\x01\0\x01a\0", false),
        (b"\xa2\x0c\0\x01\x05\x26\0\0\0\0\0\x01a", false),
        (b"\xa2\x0b\0\x01\x05\x26\0\0\0\0\0\x01a", true),
        (b"\x40\x07\0\x01\0\x03\x1f\0\0", true),
        (b"\x40\x06\0\x01\0\x02\x01\0", false),
        (b"\xe0\x07\0\x05\x11\0\0\0\0", true),
        (b"\xe0\x05\0\x03\x1c\0\0", false),
    ] {
        let known = match frame(bytes, MAX) {
            Ok(Ok(frame)) if frame.len == bytes.len() => decode(Version::V5, frame).is_ok(),
            _ => false,
        };
        assert_eq!(known, taken, "{bytes:?}");
    }
}

#[test]
pub(crate) fn what_5_0_adds_has_its_golden_bytes() {
    let mut out = Vec::new();
    let v5 = Version::V5;
    publish(
        &mut out,
        v5,
        &Outgoing::plain("t", b"x", Qos::AtMostOnce, false, 0),
    );
    assert_eq!(out, b"\x30\x05\0\x01t\0x");
    out.clear();
    let properties = b"\x23\0\x09\x02\0\0\0\x09\x26\0\x01a\0\x01b\x01\x01";
    let full = Outgoing {
        dup: true,
        properties: Properties::stored(properties),
        expiry_s: Some(3),
        identifiers: &[7, 300],
        alias: 2,
        ..Outgoing::plain("t", b"x", Qos::AtLeastOnce, true, 10)
    };
    publish(&mut out, v5, &full);
    let golden = b"\x3b\x1d\0\x01t\0\x0a\x16\x26\0\x01a\0\x01b\x01\x01\x02\0\0\0\x03\
        \x23\0\x02\x0b\x07\x0b\xac\x02x";
    assert_eq!(
        out.escape_ascii().to_string(),
        golden.escape_ascii().to_string()
    );
    out.clear();
    ack(&mut out, v5, PUBACK, 1, ReasonCode::Success);
    ack(
        &mut out,
        v5,
        PUBREL,
        1,
        ReasonCode::PacketIdentifierNotFound,
    );
    suback(&mut out, v5, 2, &[1, 0x87]);
    unsuback(&mut out, v5, 3, &[0x11]);
    disconnect(&mut out, ReasonCode::SessionTakenOver, None);
    disconnect(&mut out, ReasonCode::ServerBusy, Some("why"));
    auth(&mut out, ReasonCode::ContinueAuthentication, "m", b"d");
    let golden = b"\x40\x02\0\x01\x62\x03\0\x01\x92\x90\x05\0\x02\0\x01\x87\
        \xb0\x04\0\x03\0\x11\xe0\x01\x8e\xe0\x08\x89\x06\x1f\0\x03why\
        \xf0\x0a\x18\x08\x15\0\x01m\x16\0\x01d";
    assert_eq!(
        out.escape_ascii().to_string(),
        golden.escape_ascii().to_string()
    );
}
