//! Inputs that the fuzz target of protected channels begins with: what a server says that means well.

use std::sync::Arc;

use super::frame::POLICY_NONE;
use super::fuzzing::{NONCES, REQUEST, WAY};
use super::guard::{BLOCK_BYTES, padded};
use super::identity::Identity;
use super::message::{self, Service};
use super::policy::Policy;
use super::wire::NodeId;
use super::writer::Writer;

/// Inputs by their names; `identities` are the target's.
pub(crate) fn corpus(identities: &[Arc<Identity>; 2]) -> Vec<(String, Vec<u8>)> {
    let mut all = vec![
        ("unsigned-opening".to_owned(), opening(0, 0, identities)),
        (
            "unsigned-chunk".to_owned(),
            [&[3, 0][..], b"MSGF\x20\0\0\0", &[7; 24]].concat(),
        ),
        ("chunk".to_owned(), said(0, &[(0, &values())])),
        ("parts".to_owned(), said(1, &in_parts())),
        ("aborted".to_owned(), said(2, &[(12, &[0, 0, 0x80, 0x80])])),
        ("another-way".to_owned(), said(0, &[(0x80, &values())])),
        (
            "endpoints".to_owned(),
            offered(message::GET_ENDPOINTS, 0, identities),
        ),
    ];
    for (policy, keys) in [(0, 0), (1, 1), (2, 2), (2, 3)] {
        let how = policy + 3 * keys;
        all.push((format!("opening-{how}"), opening(1, how, identities)));
        all.push((
            format!("session-{how}"),
            offered(message::CREATE_SESSION, how, identities),
        ));
    }
    all
}

/// The policy and both sides' identities, as the target reads them from a byte.
fn sides(how: u8, identities: &[Arc<Identity>; 2]) -> (Policy, &Arc<Identity>, &Arc<Identity>) {
    let how = usize::from(how);
    let policy = Policy::ALL[how % 3];
    (policy, &identities[how / 3 % 2], &identities[how / 6 % 2])
}

fn opening(kind: u8, how: u8, identities: &[Arc<Identity>; 2]) -> Vec<u8> {
    let (policy, own, peer) = sides(how, identities);
    let mut content = Writer::default();
    content.u32(1);
    content.u32(1);
    let mut to = begin(message::OPEN_CHANNEL);
    to.u32(0);
    to.u32(WAY.channel);
    to.u32(WAY.token);
    to.i64(0);
    to.u32(3_600_000);
    to.bytes(&NONCES[1]);
    content.raw(&to.into_bytes());
    let block = own.certificate.key_bytes();
    let room = block - policy.oaep().overhead();
    let signature_bytes = peer.certificate.key_bytes();
    let padded = padded(&content.into_bytes(), room, signature_bytes, block > 256);
    [&[kind, how][..], &padded].concat()
}

/// Chunks, each with what says its letters and part, and what it carries.
fn said(policy: u8, chunks: &[(u8, &[u8])]) -> Vec<u8> {
    let mut input = vec![2, policy];
    for (index, (which, part)) in chunks.iter().enumerate() {
        let mut content = Writer::default();
        content.u32(1 + index as u32);
        content.u32(REQUEST);
        content.raw(part);
        let content = padded(&content.into_bytes(), BLOCK_BYTES, 32, false);
        input.push(*which);
        input.extend((content.len() as u16).to_le_bytes());
        input.extend(content);
    }
    input
}

/// The answer to a reading: a number with its time.
fn values() -> Vec<u8> {
    let mut to = begin(message::READ);
    to.count(1);
    to.u8(1 | 4);
    to.u8(6);
    to.i32(-7);
    to.i64(133_000_000_000_000_000);
    to.null();
    to.into_bytes()
}

/// The same in two parts.
fn in_parts() -> [(u8, &'static [u8]); 2] {
    let whole: &'static [u8] = values().leak();
    let (first, second) = whole.split_at(20);
    [(8, first), (0, second)]
}

/// Ways to log in, and a session's proof where `service` makes one.
fn offered(service: Service, how: u8, identities: &[Arc<Identity>; 2]) -> Vec<u8> {
    let (policy, own, peer) = sides(how, identities);
    let is_session = service.answer == message::CREATE_SESSION.answer;
    let mut to = begin(service);
    if is_session {
        to.node_id(&NodeId::standard(7));
        to.node_id(&NodeId::standard(99));
        to.f64(600_000.0);
        to.bytes(&NONCES[1]);
        to.bytes(peer.certificate.der());
    }
    to.count(2);
    for (mode, uri) in [(message::SIGN_AND_ENCRYPT, policy.uri()), (1, POLICY_NONE)] {
        to.text("opc.tcp://here:4840");
        to.text("urn:here");
        to.null();
        to.localized_text("here");
        to.u32(0);
        to.null();
        to.null();
        to.count(0);
        to.bytes(peer.certificate.der());
        to.u32(mode);
        to.text(uri);
        to.count(2);
        for (name, kind) in [
            ("nobody", message::ANONYMOUS),
            ("somebody", message::USER_NAME),
        ] {
            to.text(name);
            to.u32(kind);
            to.null();
            to.null();
            to.text(policy.uri());
        }
        to.text("http://opcfoundation.org/UA-Profile/Transport/uatcp-uasc-uabinary");
        to.u8(0);
    }
    if is_session {
        to.count(0);
        to.text(policy.signing_uri());
        let signed = [own.certificate.der(), &NONCES[0]].concat();
        to.bytes(&peer.sign(policy, &signed));
        to.u32(0);
    }
    [&[4, how][..], &to.into_bytes()].concat()
}

fn begin(service: Service) -> Writer {
    let mut to = Writer::default();
    to.node_id(&NodeId::standard(service.answer));
    to.i64(0);
    to.u32(REQUEST);
    to.u32(0);
    to.u8(0);
    to.null();
    to.no_extension_object();
    to
}
