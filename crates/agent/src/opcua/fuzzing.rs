//! What the fuzz targets say to the client: a hostile server's bytes, in the clear and behind all that
//! protects a channel.

use std::sync::Arc;

use super::frame::{self, Assembly, HEAD_BYTES, Way};
use super::guard::{BLOCK_BYTES, Guard};
use super::identity::{Certificate, Identity, NONCE_BYTES};
use super::policy::Policy;
use super::{Login, message, secrecy, size, text, time};

/// Reads bytes as a server's.
pub(crate) fn read_anything(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    if let Ok(head) = frame::head(*first) {
        let body = &rest[..head.len.min(rest.len())];
        // A fault is an answer too.
        let _ = frame::acknowledged(body);
        let _ = frame::opened(None, body);
        let _ = Assembly::default().add(None, &head, body, Way::default(), 0);
    }
    if let Ok(answer) = message::answer(message::CREATE_SESSION, rest) {
        drop(message::created(answer).map(|told| Certificate::sent(&told.certificate)));
    }
    read_answer(rest);
}

/// Reads a message as an answer to what FetchOPC asks.
fn read_answer(bytes: &[u8]) {
    if let Ok(answer) = message::answer(message::BROWSE, bytes) {
        drop(message::browsed(answer));
    }
    if let Ok(answer) = message::answer(message::TRANSLATE, bytes) {
        drop(message::translated(answer));
    }
    if let Ok(answer) = message::answer(message::READ, bytes)
        && let Ok(values) = message::values(answer, 1)
    {
        for value in values.iter().filter_map(|told| told.value.as_ref()) {
            drop((text(value), size(value)));
        }
        drop(values.iter().map(|told| told.source_time.map(time)).max());
    }
}

/// A server on a protected channel, which signs and encrypts as it should and says anything within,
/// or neither. The first byte says what comes, the second by which policy, and which of the two keys
/// each side has.
pub(crate) fn talk(identities: &[Arc<Identity>; 2], input: &[u8]) {
    let [kind, how, rest @ ..] = input else {
        return;
    };
    let mut how = usize::from(*how);
    let mut choose = |count: usize| {
        let chosen = how % count;
        how /= count;
        chosen
    };
    let policy = Policy::ALL[choose(Policy::ALL.len())];
    let (own, peer) = (&identities[choose(2)], &identities[choose(2)]);
    let mut guard = Guard::new(policy, own.clone(), peer.certificate.clone());
    let server = Guard::new(policy, peer.clone(), own.certificate.clone());
    match kind % 5 {
        0 => {
            let forged = frame::opened(Some(&mut guard), rest);
            assert!(forged.is_err(), "what nobody signed opens a channel");
        }
        1 => open(guard, &server, rest),
        2 => say(guard, server, rest),
        3 => {
            guard.derive(&NONCES[0], &NONCES[1]).expect(NONCES_FIT);
            if let Some((first, body)) = rest.split_first_chunk::<HEAD_BYTES>()
                && let Ok(head) = frame::head(*first)
            {
                let forged = Assembly::default().add(Some(&mut guard), &head, body, WAY, REQUEST);
                assert!(forged.is_err(), "what nobody signed is a message");
            }
        }
        _ => offer(&guard, rest),
    }
}

/// Opens a channel; all that is signed and encrypted is the input's.
fn open(mut guard: Guard, server: &Guard, content: &[u8]) {
    let content = &content[..content.len().min(OPENING_BYTES_MAX)];
    let Ok(chunk) = server.seal_opening_padded(WAY.channel, content.to_vec()) else {
        return;
    };
    let body = &chunk[HEAD_BYTES..];
    let Ok(message) = frame::opened(Some(&mut guard), body).map(|told| told.into_owned()) else {
        return;
    };
    let sent = content.get(frame::SEQUENCE_HEAD_BYTES..);
    assert!(
        sent.is_some_and(|sent| sent.starts_with(&message)),
        "it reads what was not sent"
    );
    let again = frame::opened(Some(&mut guard), body);
    assert!(again.is_err(), "a chunk is taken twice");
    let answer = message::answer(message::OPEN_CHANNEL, &message);
    if let Ok(Ok(channel)) = answer.map(message::channel) {
        let _ = guard.derive(&NONCES[0], &channel.nonce);
    }
}

/// Says chunk after chunk; of each the letters, the part and the whole content are the input's.
fn say(mut guard: Guard, mut server: Guard, mut rest: &[u8]) {
    guard.derive(&NONCES[0], &NONCES[1]).expect(NONCES_FIT);
    server.derive(&NONCES[1], &NONCES[0]).expect(NONCES_FIT);
    let mut assembly = Assembly::default();
    while let [which, low, high, more @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(more.len());
        let (content, next) = more.split_at(len);
        rest = next;
        let letters = [*b"MSG", *b"MSG", *b"OPN", *b"ERR"][usize::from(which % 4)];
        let part = b"FFCA"[usize::from(which / 4 % 4)];
        let channel = WAY.channel + u32::from(which >> 7);
        let way = [channel.to_le_bytes(), WAY.token.to_le_bytes()].concat();
        let whole_blocks = &content[..len / BLOCK_BYTES * BLOCK_BYTES];
        let chunk = server.seal_padded(letters, part, &way, whole_blocks);
        let Some((first, body)) = chunk.split_first_chunk::<HEAD_BYTES>() else {
            return;
        };
        let Ok(head) = frame::head(*first) else {
            return;
        };
        let Ok(whole) = assembly.add(Some(&mut guard), &head, body, WAY, REQUEST) else {
            return;
        };
        let again = Assembly::default().add(Some(&mut guard), &head, body, WAY, REQUEST);
        assert!(again.is_err(), "a chunk is taken twice");
        if let Some(message) = whole {
            read_answer(&message);
        }
    }
}

/// Offers ways to log in, and shows who it is.
fn offer(guard: &Guard, answer: &[u8]) {
    let told = message::answer(message::GET_ENDPOINTS, answer);
    if let Ok(Ok(endpoints)) = told.map(|mut from| message::endpoints(&mut from)) {
        let _ = secrecy::best(&endpoints);
    }
    let told = message::answer(message::CREATE_SESSION, answer);
    let Ok(Ok(created)) = told.map(message::created) else {
        return;
    };
    let _ = secrecy::proven(guard, &created, &NONCES[0]);
    let login = Login {
        user: "somebody".to_owned(),
        password: "secret".to_owned(),
    };
    for channel in [None, Some(guard.policy)] {
        let _ = secrecy::token(&created.endpoints, channel, false);
        let Ok((_, sealing)) = secrecy::token(&created.endpoints, channel, true) else {
            continue;
        };
        let peer = match channel {
            Some(_) => Ok(guard.peer.clone()),
            None => Certificate::sent(&created.certificate),
        };
        let sealing = sealing.and_then(|policy| Some((policy, peer.ok()?)));
        let _ = secrecy::credentials(&login, sealing, &created.nonce);
    }
}

/// Where messages go.
pub(super) const WAY: Way = Way {
    channel: 5,
    token: 6,
};

/// The request that is answered.
pub(super) const REQUEST: u32 = 9;

/// The client's nonce and the server's.
pub(super) const NONCES: [[u8; NONCE_BYTES]; 2] = [[1; NONCE_BYTES], [2; NONCE_BYTES]];

const NONCES_FIT: &str = "nonces are as long as they have to be";

/// A few blocks of either key.
const OPENING_BYTES_MAX: usize = 1_500;
