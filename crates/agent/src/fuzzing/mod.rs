//! What the fuzz targets throw bytes at, and what must hold whatever the bytes are.

use std::sync::{Arc, OnceLock};

use base::UnixMillis;
use bytes::Bytes;
use rustls::pki_types::PrivateKeyDer;

use crate::cron::Cron;
use crate::definition::{Flow, seal};
use crate::expression::{Expression, Scope};
use crate::extensions;
use crate::flowfile::Attributes;
use crate::kafka;
use crate::modbus;
use crate::net::frames::{Frames, Framing};
use crate::opcua;
use crate::parameters::{SecretKey, Surroundings};
use crate::record_sets;
use crate::repository::fuzzing::open_anything;
use crate::s2s::codec;
use crate::syslog;

/// Flow definitions: read and checked, sealed, read again to an equal flow.
pub fn flow_definition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let key = SecretKey::parse(&"07".repeat(32)).expect("the key is one");
    let surroundings = Surroundings {
        key: Some(key.clone()),
        ..Surroundings::default()
    };
    if let Ok(flow) = Flow::load(text, &surroundings) {
        let sealed = seal(text, &key).expect("what was read as a flow can be sealed");
        if let Some(sealed) = sealed {
            let again = Flow::load(&sealed, &surroundings);
            assert_eq!(again.as_ref(), Ok(&flow), "sealing changed the flow");
        }
    }
    if let Ok(cron) = Cron::parse(text) {
        let start = jiff::civil::date(2026, 1, 1).at(0, 0, 0, 0);
        if let Some(due) = cron.next(start) {
            assert!(due > start, "it is due before it was asked for");
        }
    }
}

/// Expressions: parsed, and evaluated unless that would ask the network.
pub fn expression(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(expression) = Expression::parse(text) else {
        return;
    };
    if text.contains("reverseDnsLookup") {
        return;
    }
    let attributes = Attributes::new([("a", text), ("b", "1,2;\"3\""), ("c", "{\"d\":[1]}")]);
    let scope = Scope {
        attributes: Some(&attributes),
        flow_file: None,
        now: UnixMillis(1_453_843_201_123),
    };
    // An error is an answer too.
    let _ = expression.evaluate(scope);
}

/// Reads `input` by one of the network decoders, as its first byte says.
pub fn network(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 5 {
        0 => codec::read_anything(rest),
        1 => {
            let read = kafka::read_records(Bytes::copy_from_slice(rest), 0, vec![(1, 0)], 1_000);
            drop(read);
        }
        2 => {
            if let Ok(text) = std::str::from_utf8(rest) {
                let _ = syslog::parse(text);
            }
        }
        3 => {
            let mut frames = Frames::new(Framing::Syslog, 100);
            for piece in rest.chunks(7) {
                frames.buffer().extend_from_slice(piece);
                while frames.next().is_some() {}
            }
            drop(frames.rest());
        }
        _ => opcua::read_anything(rest),
    }
}

/// A hostile OPC UA server behind all that protects a channel; `keys` are two identities of either
/// side, each a certificate and its key of PKCS #1, both in DER.
pub fn channel(keys: &[[&[u8]; 2]; 2], input: &[u8]) {
    opcua::talk(identities(keys), input);
}

/// Who is on a channel; read once.
fn identities(keys: &[[&[u8]; 2]; 2]) -> &'static [Arc<opcua::Identity>; 2] {
    static IDENTITIES: OnceLock<[Arc<opcua::Identity>; 2]> = OnceLock::new();
    IDENTITIES.get_or_init(|| {
        keys.map(|[certificate, key]| {
            let certificate = opcua::Certificate::sent(certificate).expect("it is a certificate");
            let key = PrivateKeyDer::Pkcs1(key.into());
            Arc::new(opcua::Identity::new(certificate, &key).expect("it is its key"))
        })
    })
}

/// Reads `input` as records, as a device's answer, as an extension's frames or as a statement with
/// places for arguments, as its first byte says.
pub fn records(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 9 {
        kind @ 0..=4 => record_sets::read_anything(kind, rest),
        5 => modbus::read_anything(rest),
        6 => extensions::read_anything(rest),
        #[cfg(feature = "sql")]
        7 => crate::database::read_anything(rest),
        _ => {
            if let Ok(text) = std::str::from_utf8(rest)
                && let Ok(tag) = modbus::Tag::parse(text)
            {
                // A device that says too little is told before this, but costs nothing here.
                drop(tag.value(rest));
            }
        }
    }
}

/// Repositories of any frames: opened, looked through and opened again, or refused.
pub fn repository(input: &[u8]) {
    open_anything(input);
}

#[cfg(test)]
mod mutation;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use journal::SimDisk;

    use super::mutation;
    use crate::flowfile::Attributes;
    use crate::repository::fuzzing::{input_of, open_for_corpus};
    use crate::testing::HandFlow;

    /// The corpus holds what sessions write; `UPDATE_EXPECT=1` writes it anew.
    #[test]
    fn the_corpus_of_repositories_holds() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/agent_repository"
        );
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            for kinds in 0..4 {
                let disk = SimDisk::new(1);
                written(HandFlow::new(open_for_corpus(kinds, &disk), FLOW));
                std::fs::write(format!("{folder}/sessions-{kinds}"), input_of(kinds, &disk))
                    .unwrap();
            }
        }
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::repository(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 4, "{count} files are no corpus");
    }

    /// Sessions of every kind of operation.
    fn written(flow: HandFlow) {
        let mut session = flow.session("make");
        let attributes = Arc::new(Attributes::new([("filename", "a.log".to_owned())]));
        let block = session.block(Bytes::from_static(b"one two three")).unwrap();
        let views = session.create_views(&attributes, &block, [(0, 3), (4, 3), (8, 5)].into_iter());
        session.transfer_all(views, 0);
        session.set_state(Bytes::from_static(b"13")).unwrap();
        session.commit_and_wait().unwrap();
        let mut session = flow.session("end");
        let mut taken = session.take(3, u64::MAX);
        let own = session.content(Bytes::from_static(b"and ")).unwrap();
        let both = crate::content::Content::join(vec![own, taken[0].content.clone()]);
        let mut rope = session.create_child(&[&taken[0], &taken[1]], attributes);
        session.set_content(&mut rope, both).unwrap();
        session.remove_all(taken.split_off(2));
        session.transfer(rope, AGAIN);
        session.transfer_all(taken, AGAIN);
        session.commit_and_wait().unwrap();
        flow.repository().replace().unwrap();
        let mut session = flow.session("end");
        let taken = session.take(1, u64::MAX);
        session.remove_all(taken);
        session.commit_and_wait().unwrap();
        flow.repository().close().unwrap();
    }

    /// The place of a connection back, among RouteOnAttribute's relationships.
    const AGAIN: usize = 2;

    const FLOW: &str = "
MiNiFi Config Version: 3
Flow Controller: {name: corpus}
Processors:
- {name: make, id: make, class: GenerateFlowFile}
- {name: end, id: end, class: RouteOnAttribute, auto-terminated relationships list: [unmatched, failure],
   Properties: {again: 'true'}}
Connections:
- {id: way, source name: make, source relationship name: success, destination name: end}
- {id: round, source name: end, source relationship name: again, destination name: end}
";

    /// The corpus holds what a server says that means well; `UPDATE_EXPECT=1` writes it anew.
    #[test]
    fn the_corpus_of_channels_holds() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/agent_channel"
        );
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            for (name, input) in crate::opcua::corpus(super::identities(&mutation::KEYS)) {
                std::fs::write(format!("{folder}/{name}"), input).unwrap();
            }
        }
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            mutation::channel(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 8, "{count} files are no corpus");
    }

    #[test]
    fn the_corpus_of_flow_definitions_holds() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/flow_definition"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::flow_definition(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 8, "{count} files are no corpus");
    }

    #[test]
    fn the_corpus_of_expressions_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/expression");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::expression(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 11, "{count} files are no corpus");
    }
}
