//! What the fuzz target drives: every decoder, and that what was read can be written and is read the
//! same again.

use crate::{Acknowledge, AgentManifest, Heartbeat, HeartbeatResponse, RawJson};

/// Reads `bytes` as each message; the first byte says as which.
///
/// # Panics
/// When a message that was read is not written, or is another one when it is read again.
pub fn c2_message(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => {
            let Ok(read) = Heartbeat::parse(bytes) else {
                return;
            };
            let _ = (read.sender(), read.class(), read.flow_id());
            let info = read.agent_info.as_ref();
            if let Some(raw) = info.and_then(|info| info.agent_manifest.as_ref()) {
                manifest(raw);
            }
            let written = read.to_vec().expect("what was read can be written");
            let again = Heartbeat::parse(&written).expect("what was written can be read");
            let twice = again.to_vec().expect("what was read can be written");
            assert!(
                written == twice,
                "a heartbeat changes each time it is written"
            );
        }
        1 => {
            let Ok(read) = Acknowledge::parse(bytes) else {
                return;
            };
            let _ = (read.operation(), read.state(), read.details());
            let written = read.to_vec().expect("what was read can be written");
            let again = Acknowledge::parse(&written).expect("what was written can be read");
            let twice = again.to_vec().expect("what was read can be written");
            assert!(
                written == twice,
                "an acknowledge changes each time it is written"
            );
        }
        2 => {
            let Ok(read) = HeartbeatResponse::parse(bytes) else {
                return;
            };
            let written = read.to_vec().expect("what was read can be written");
            HeartbeatResponse::parse(&written).expect("what was written can be read");
        }
        _ => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            if let Ok(raw) = RawJson::parse(text) {
                manifest(&raw);
            }
        }
    }
}

fn manifest(raw: &RawJson) {
    if let Ok(manifest) = AgentManifest::parse(raw) {
        let _ = manifest.agent_version();
        let _ = manifest.bundles.as_ref().map(RawJson::items);
    }
}
