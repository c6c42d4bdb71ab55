//! The edge that a fuzz target drives: packets of any bytes, in every version. No API: only
//! `fuzz/` and the replay of its corpus call it.

use crate::codec::{self, Outgoing, Packet, Publish, Version};

/// Frames and decodes a stream as a link would: the first byte says the version. What a PUBLISH
/// says must survive being written and read again.
pub fn packet(input: &[u8]) {
    let Some((version, mut stream)) = input.split_first() else {
        return;
    };
    let version = match version % 3 {
        0 => Version::V31,
        1 => Version::V311,
        _ => Version::V5,
    };
    while let Ok(Ok(frame)) = codec::frame(stream, BYTES_MAX) {
        let Ok(packet) = codec::decode(version, frame) else {
            return;
        };
        match packet {
            Packet::Publish(publish) => check_publish(version, &publish),
            Packet::Subscribe { filters, .. } | Packet::Unsubscribe { filters, .. } => {
                assert!(filters.count() > 0, "a packet without filters was taken");
            }
            Packet::Connect(connect) => {
                let properties = connect.will.map(|will| will.properties);
                let named = properties.map_or(0, |p| p.user().count());
                assert!(named <= stream.len(), "more properties than bytes");
            }
            _ => {}
        }
        stream = &stream[frame.len..];
    }
}

fn check_publish(version: Version, publish: &Publish<'_>) {
    let Publish {
        topic,
        payload,
        qos,
        retain,
        dup,
        id,
        properties,
    } = *publish;
    let alias = properties.two(codec::TOPIC_ALIAS).unwrap_or(0);
    let outgoing = Outgoing {
        topic,
        payload,
        qos,
        retain,
        dup,
        id,
        properties,
        expiry_s: properties.message_expiry_s(),
        identifiers: &[],
        alias,
    };
    let mut out = Vec::new();
    codec::publish(&mut out, version, &outgoing);
    let frame = codec::frame(&out, usize::MAX);
    let Ok(Ok(frame)) = frame else {
        panic!("what was written is no packet");
    };
    let again = codec::decode_publish(version, frame.first, frame.body, "");
    let again = again.expect("what was written is read");
    assert_eq!(
        (again.topic, again.payload, again.qos),
        (topic, payload, qos)
    );
    assert_eq!((again.retain, again.dup, again.id), (retain, dup, id));
    assert!(
        again.properties.user().eq(properties.user()),
        "user properties changed"
    );
    assert_eq!(
        again.properties.correlation_data(),
        properties.correlation_data()
    );
    assert_eq!(
        again.properties.message_expiry_s(),
        properties.message_expiry_s()
    );
}

/// Bytes of the largest packet that is tried.
const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::packet;

    #[test]
    fn what_fuzzing_found_stays_found() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/mqtt_packet");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            packet(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 10, "the corpus is not there");
    }
}
