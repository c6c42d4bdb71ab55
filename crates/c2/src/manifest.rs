//! The manifest: what an agent's build can do. Up to a megabyte, and equal for all agents of a
//! build, so it travels and rests as text; only the few fields that decide are read.

use std::collections::BTreeMap;

use crate::error::C2Error;
use crate::heartbeat::filled;
use crate::operation::{Operand, OperationKind};
use crate::wire::{self, RawJson, message};

message! {
    /// A manifest's head; the components stay text.
    pub struct AgentManifest {
        /// The build's name.
        pub identifier: Option<String> = "identifier",
        /// `cpp`, `minifi-java`, `nifi`, or a third party's own word.
        pub agent_type: Option<String> = "agentType",
        /// The manifest's or the agent's version.
        pub version: Option<String> = "version",
        /// The build.
        pub build_info: Option<BuildInfo> = "buildInfo",
        /// The bundles of components; a C++ manifest with one bundle has it without a list, see
        /// [`RawJson::items`].
        pub bundles: Option<RawJson> = "bundles",
        /// Defaults of scheduling.
        pub scheduling_defaults: Option<RawJson> = "schedulingDefaults",
        /// The operations that the agent takes; empty for agents older than this field.
        pub supported_operations: Vec<SupportedOperation> = "supportedOperations",
    }
}

message! {
    /// How an agent was built.
    pub struct BuildInfo {
        /// The agent's version.
        pub version: Option<String> = "version",
        /// The source's revision.
        pub revision: Option<String> = "revision",
        /// Seconds (C++) or milliseconds (Java) since 1970.
        pub timestamp: Option<i64> = "timestamp",
        /// The machine that it was built for.
        pub target_arch: Option<String> = "targetArch",
        /// The compiler.
        pub compiler: Option<String> = "compiler",
        /// The compiler's flags.
        pub compiler_flags: Option<String> = "compilerFlags" | "flags",
    }
}

message! {
    /// An operation that an agent takes, with its operands.
    pub struct SupportedOperation {
        /// The operation.
        pub kind: Option<OperationKind> = "type",
        /// Operand (in the agent's own case) to what the agent tells of it.
        pub properties: BTreeMap<String, RawJson> = "properties",
    }
}

impl AgentManifest {
    /// Reads a manifest's head.
    pub fn parse(text: &RawJson) -> Result<AgentManifest, C2Error> {
        wire::from_slice("manifest", text.as_str().as_bytes())
    }

    /// The agent's version: that of the build, or else that of the manifest.
    pub fn agent_version(&self) -> Option<&str> {
        let build = self
            .build_info
            .as_ref()
            .and_then(|build| filled(&build.version));
        build.or_else(|| filled(&self.version))
    }

    /// Whether the agent says that it takes this operation; `None` when it says nothing at all.
    pub fn supports(&self, kind: &OperationKind, operand: Option<&Operand>) -> Option<bool> {
        if self.supported_operations.is_empty() {
            return None;
        }
        let fits = |supported: &SupportedOperation| {
            supported.kind.as_ref() == Some(kind)
                && operand.is_none_or(|operand| {
                    supported
                        .properties
                        .keys()
                        .any(|key| Operand::from(key.as_str()) == *operand)
                })
        };
        Some(self.supported_operations.iter().any(fits))
    }
}
