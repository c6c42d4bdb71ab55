//! Frames written and read back, and those of earlier versions.

use super::*;

fn apply(recovered: &mut Recovered, version: u8, kind: u8, payload: &[u8]) {
    assert!(
        recovered.read(kind, version, payload).is_some(),
        "kind {kind}"
    );
}

pub(crate) fn put(recovered: &mut Recovered, change: Change<'_>) {
    let mut bytes = Vec::new();
    let (kind, tail) = change.encode(&mut bytes);
    tail.iter().for_each(|part| bytes.extend_from_slice(part));
    apply(recovered, VERSION, kind, &bytes);
}

#[test]
fn frames_of_the_first_version_are_read() {
    let mut recovered = Recovered::new();
    let mut session = 7u64.to_le_bytes().to_vec();
    session.extend(1_000i64.to_le_bytes());
    session.extend(b"old");
    apply(&mut recovered, 1, SESSION, &session);
    let mut subscribed = 7u64.to_le_bytes().to_vec();
    subscribed.extend(b"\x01a/#");
    apply(&mut recovered, 1, SUBSCRIBED, &subscribed);
    let mut queued = 7u64.to_le_bytes().to_vec();
    queued.extend(9u64.to_le_bytes());
    queued.extend([0, 2]);
    queued.extend(500i64.to_le_bytes());
    queued.extend(b"\x03\0a/bpayload");
    apply(&mut recovered, 1, QUEUED, &queued);
    let session = &recovered.sessions[&7];
    assert_eq!(session.last_seen, Some(UnixMillis(1_000)));
    assert_eq!(
        (session.expiry_s, session.client_id.as_str()),
        (None, "old")
    );
    assert_eq!(session.owner, None);
    let subscription = session.subscriptions[&"a/#".parse().unwrap()];
    assert_eq!(subscription.options.qos, Qos::AtLeastOnce);
    let message = &session.queue[&9];
    assert_eq!(
        (message.qos, message.message.qos),
        (Qos::AtLeastOnce, Qos::ExactlyOnce)
    );
    assert_eq!(&*message.message.payload, b"payload");
    assert_eq!(recovered.next_number, 10);
}

#[test]
fn what_is_put_is_read_back() {
    let message = Stored {
        topic: "t".into(),
        payload: b"p".as_slice().into(),
        qos: Qos::ExactlyOnce,
        received: UnixMillis(5),
        expires: Some(UnixMillis(99)),
        properties: b"\x26\0\x01a\0\x01b".as_slice().into(),
    };
    let mut recovered = Recovered::new();
    put(&mut recovered, Change::Retained(&message));
    assert_eq!(*recovered.retained["t"], message);
    let last_seen = None;
    put(
        &mut recovered,
        Change::Session {
            session: 1,
            last_seen,
            expiry_s: 30,
            client_id: "c",
        },
    );
    let owner = |user: Option<&str>| Owner {
        user: user.map(Box::from),
        host: "10.0.0.7".into(),
    };
    for user in [Some("acme/ann"), None] {
        let owner = &owner(user);
        put(&mut recovered, Change::Owned { session: 1, owner });
        assert_eq!(recovered.sessions[&1].owner.as_ref(), Some(owner));
    }
    let (qos, retain, identifiers) = (Qos::ExactlyOnce, true, [3, 70_000].as_slice());
    let (session, number, message) = (1, 4, &message);
    put(
        &mut recovered,
        Change::Queued {
            session,
            number,
            qos,
            retain,
            identifiers,
            message,
        },
    );
    put(
        &mut recovered,
        Change::Sent {
            session,
            number,
            id: 12,
        },
    );
    put(&mut recovered, Change::Received { session, number });
    let filter: TopicFilter = "$share/g/a".parse().unwrap();
    let subscription = Subscription {
        options: Options::from_byte(0b10_1101).unwrap(),
        identifier: Some(8),
    };
    put(
        &mut recovered,
        Change::Subscribed {
            session,
            subscription,
            filter: &filter,
        },
    );
    let back = &recovered.sessions[&1];
    assert_eq!((back.last_seen, back.expiry_s), (None, Some(30)));
    assert_eq!(back.subscriptions[&filter], subscription);
    let queued = &back.queue[&4];
    assert_eq!(*queued.message, *message);
    assert_eq!(
        (queued.qos, queued.retain, queued.received),
        (qos, true, true)
    );
    assert_eq!(
        (queued.identifiers.as_slice(), queued.sent),
        (identifiers, Some(12))
    );
    put(&mut recovered, Change::Delivered { session, number });
    assert!(recovered.sessions[&1].queue.is_empty());
}
