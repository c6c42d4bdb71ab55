//! Manifests as the fleet keeps them: the text compressed, once per hash; the head in memory.

use std::io::Write;
use std::sync::Arc;

use c2::{AgentInfo, AgentManifest, RawJson};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::limits;

/// A manifest that is ready to be stored.
#[derive(Clone, Debug)]
pub struct NewManifest {
    /// The agents' own hash, or one of ours for agents that give none.
    pub hash: Arc<str>,
    /// What decides about operations; without the components.
    pub head: Arc<AgentManifest>,
    /// The whole text, gzip.
    pub content: Arc<[u8]>,
    /// Bytes of the text.
    pub bytes: usize,
}

/// A manifest's head as it is kept and stored: the components are left out.
pub fn head_of(text: &RawJson) -> Option<AgentManifest> {
    let mut head = AgentManifest::parse(text).ok()?;
    head.bundles = None;
    head.scheduling_defaults = None;
    head.other.clear();
    for operation in &mut head.supported_operations {
        operation.other.clear();
    }
    Some(head)
}

/// The hash that the agent gives of its manifest.
pub fn hash_of(agent: &AgentInfo) -> Option<&str> {
    let hash = agent.agent_manifest_hash.as_deref();
    hash.filter(|hash| !hash.is_empty() && hash.len() <= limits::HASH_BYTES_MAX)
}

/// The key under which the agent's manifest is stored.
pub fn key_of(agent: &AgentInfo) -> Option<Arc<str>> {
    if let Some(hash) = hash_of(agent) {
        return Some(Arc::from(hash));
    }
    let text = agent.agent_manifest.as_ref()?;
    Some(Arc::from(format!(
        "sha256:{}",
        hex(&Sha256::digest(text.as_str()))
    )))
}

/// Makes a manifest ready: tens of milliseconds for a large one, so not under a lock.
pub fn prepare(hash: Arc<str>, text: &RawJson) -> Option<NewManifest> {
    let head = Arc::new(head_of(text)?);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_str().as_bytes()).ok()?;
    let content = Arc::from(encoder.finish().ok()?);
    Some(NewManifest {
        hash,
        head,
        content,
        bytes: text.as_str().len(),
    })
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
