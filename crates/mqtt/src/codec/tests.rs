//! Golden bytes from the specification's tables, and seeded random bytes.

use base::Rng;

use super::encode::fixed_header;
use super::*;

const MAX: usize = 1 << 20;

fn whole(bytes: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame(bytes, MAX)?.expect("the test gives whole packets");
    assert_eq!(frame.len, bytes.len());
    decode(frame)
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
fn a_full_connect_is_read() {
    // Figure 3.6 of the specification, with a will, a user name and a password.
    let mut bytes = vec![0x10, 0, 0, 4, b'M', b'Q', b'T', b'T', 4, 0b1110_1110, 0, 10];
    for field in ["id", "w/t", "gone", "me", "pw"] {
        bytes.extend_from_slice(&[0, field.len() as u8]);
        bytes.extend_from_slice(field.as_bytes());
    }
    bytes[1] = (bytes.len() - 2) as u8;
    let expected = Connect {
        version: Version::V311,
        clean_session: true,
        keep_alive_s: 10,
        client_id: "id",
        will: Some(Will {
            topic: "w/t",
            payload: b"gone",
            qos: Qos::AtLeastOnce,
            retain: true,
        }),
        username: Some("me"),
        password: Some(b"pw"),
    };
    assert_eq!(whole(&bytes), Ok(Packet::Connect(expected)));
    for cut in 2..bytes.len() - 1 {
        let mut short = bytes[..cut].to_vec();
        short[1] = (cut - 2) as u8;
        assert!(whole(&short).is_err(), "cut at {cut} was taken");
    }
}

#[test]
fn protocol_versions_are_told_apart() {
    let v31 = b"\x10\x0f\0\x06MQIsdp\x03\x02\0\x3c\0\x01a";
    assert!(matches!(whole(v31), Ok(Packet::Connect(c)) if c.version == Version::V31));
    let v5 = b"\x10\x0e\0\x04MQTT\x05\x02\0\x3c\0\0\x01a";
    assert_eq!(whole(v5), Err(DecodeError::UnsupportedVersion(5)));
    refused(b"\x10\x0d\0\x04MQTX\x04\x02\0\x3c\0\x01a", "protocol name");
    refused(b"\x10\x0d\0\x04MQTT\x04\x03\0\x3c\0\x01a", "reserved flag");
    refused(b"\x10\x0d\0\x04MQTT\x04\x22\0\x3c\0\x01a", "without a will");
    refused(
        b"\x10\x0d\0\x04MQTT\x04\x42\0\x3c\0\x01a",
        "password without",
    );
}

#[test]
fn publish_is_read_and_written_alike() {
    let golden = b"\x33\x0a\0\x03a/b\0\x0axyz";
    let read = Publish {
        topic: "a/b",
        payload: b"xyz",
        qos: Qos::AtLeastOnce,
        retain: true,
        dup: false,
        id: 10,
    };
    assert_eq!(whole(golden), Ok(Packet::Publish(read)));
    let mut out = Vec::new();
    publish(
        &mut out,
        Version::V311,
        "a/b",
        b"xyz",
        Qos::AtLeastOnce,
        true,
        false,
        10,
    );
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
fn subscribe_and_unsubscribe_give_their_filters() {
    let bytes = b"\x82\x0e\0\x0a\0\x03a/b\x01\0\x03c/d\x02";
    let Ok(Packet::Subscribe { id: 10, filters }) = whole(bytes) else {
        panic!("not a SUBSCRIBE of id 10");
    };
    let read: Vec<_> = filters.collect();
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
fn small_packets_have_their_golden_bytes() {
    assert_eq!(whole(b"\x40\x02\x12\x34"), Ok(Packet::Puback(0x1234)));
    assert_eq!(whole(b"\x50\x02\0\x01"), Ok(Packet::Pubrec(1)));
    assert_eq!(whole(b"\x62\x02\0\x01"), Ok(Packet::Pubrel(1)));
    assert_eq!(whole(b"\x70\x02\0\x01"), Ok(Packet::Pubcomp(1)));
    assert_eq!(whole(b"\xc0\0"), Ok(Packet::Pingreq));
    assert_eq!(whole(b"\xe0\0"), Ok(Packet::Disconnect));
    refused(b"\x60\x02\0\x01", "reserved flags");
    refused(b"\xc0\x01\0", "after the end");
    refused(b"\x20\x02\0\0", "does not come from clients");
    refused(b"\xf0\0", "does not come from clients");
    let mut out = Vec::new();
    connack(&mut out, true, ConnectCode::Accepted);
    connack(&mut out, true, ConnectCode::UnacceptableProtocol);
    suback(&mut out, Version::V311, 10, &[1, SUBSCRIBE_FAILED]);
    unsuback(&mut out, Version::V311, 11);
    pingresp(&mut out);
    ack(&mut out, Version::V311, PUBREL, 7);
    ack(&mut out, Version::V311, PUBACK, 0x1234);
    let golden: &[u8] = b"\x20\x02\x01\0\x20\x02\0\x01\x90\x04\0\x0a\x01\x80\xb0\x02\0\x0b\xd0\0\
        \x62\x02\0\x07\x40\x02\x12\x34";
    assert_eq!(out, golden);
}

#[test]
fn remaining_lengths_of_table_2_4_read_back() {
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
fn random_bytes_never_panic_and_packets_survive_any_cut() {
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = vec![0; 2 + rng.below(60) as usize];
        rng.fill(&mut bytes);
        if rng.one_in(2) {
            // Half the time the frame is whole, so that the bodies are reached.
            bytes[1] = (bytes.len() - 2) as u8;
            if rng.one_in(3) && bytes.len() > 12 {
                bytes[0] = 0x10;
                bytes[2..10].copy_from_slice(b"\0\x04MQTT\x04\x02");
            }
        }
        if let Ok(Ok(frame)) = frame(&bytes, MAX)
            && let Ok(packet) = decode(frame)
            && let Packet::Subscribe { filters, .. } | Packet::Unsubscribe { filters, .. } = packet
        {
            assert!(filters.count() > 0, "seed {seed}");
        }
    }
}

#[test]
fn a_random_stream_of_publishes_reads_back_whatever_the_reads_are() {
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
            publish(
                &mut stream,
                Version::V311,
                &topic,
                &payload,
                qos,
                retain,
                dup,
                id,
            );
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
                let read = decode_publish(frame.first, frame.body, &known).unwrap();
                let (topic, payload, qos, retain, dup, id) = sent.next().unwrap();
                let id = if qos == Qos::AtMostOnce { 0 } else { id };
                let expected = Publish {
                    topic: &topic,
                    payload: &payload,
                    qos,
                    retain,
                    dup,
                    id,
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
