//! What the fuzz target drives: every decoder, and that what was read can be written and is read the
//! same again.

use crate::{Acknowledge, AgentManifest, Glance, Heartbeat, HeartbeatResponse, RawJson};

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
            let read = Heartbeat::parse(bytes);
            if let Some(glance) = Glance::at(bytes) {
                let read = read.as_ref().expect("what a glance accepts can be read");
                agree(&glance, read);
            }
            let Ok(read) = read else {
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

/// Checks that a glance at a heartbeat says what its whole reading says.
///
/// # Panics
/// When it does not.
pub fn agree(glance: &Glance<'_>, read: &Heartbeat) {
    assert_eq!(glance.sender(), read.sender());
    assert_eq!(glance.class(), read.class());
    assert_eq!(glance.has_created, read.created.is_some());
    let (device, agent) = (read.device_info.as_ref(), read.agent_info.as_ref());
    let seen = glance.device.as_ref().map(|device| {
        let (identifier, hostname) = (&device.identifier, &device.hostname);
        (identifier.as_deref(), hostname.as_deref())
    });
    let whole = device.map(|device| {
        let network = device.network_info.as_ref();
        let hostname = network.and_then(|network| network.hostname.as_deref());
        (device.identifier.as_deref(), hostname)
    });
    assert_eq!(seen, whole);
    let seen = glance.agent.as_ref();
    let seen = seen.map(|agent| (agent.manifest_hash.as_deref(), agent.uptime));
    let whole = agent.map(|agent| {
        let uptime = agent.status.as_ref().and_then(|status| status.uptime);
        (agent.agent_manifest_hash.as_deref(), uptime)
    });
    assert_eq!(seen, whole);
    assert!(agent.is_none_or(|agent| agent.agent_manifest.is_none()));
    let flow = read.flow_info.as_ref();
    assert_eq!(
        glance.flow.as_ref().map(Option::as_deref),
        flow.map(|_| read.flow_id())
    );
    assert!(flow.is_none_or(|flow| flow.processor_bulletins.is_empty()));
    let resources = read.resource_info.as_ref();
    assert_eq!(glance.resources.is_some(), resources.is_some());
    assert_eq!(glance.digest(), resources.and_then(|info| info.digest()));
    assert!(glance.others.iter().eq(read.other.keys()));
}

fn manifest(raw: &RawJson) {
    if let Ok(manifest) = AgentManifest::parse(raw) {
        let _ = manifest.agent_version();
        let _ = manifest.bundles.as_ref().map(RawJson::items);
    }
}
