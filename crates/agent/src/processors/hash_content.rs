//! HashContent: the checksum of a content as an attribute.

use std::sync::Arc;

use ring::digest;

use super::files::{CopyError, write_out};
use super::{
    AttributeKind, Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind,
    RelationshipKind, Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "HashContent",
    description: "Puts the checksum of each FlowFile's content into an attribute.",
    properties: &[
        PropertyKind::new("Hash Attribute", "The attribute.")
            .default("Checksum")
            .required(),
        PropertyKind::new(
            "Hash Algorithm",
            "How the checksum is made: MD5, SHA1 or SHA256, as in sha-256 too.",
        )
        .default("SHA256"),
        PropertyKind::new("Fail on empty", "Whether a FlowFile without content fails.")
            .default("false")
            .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    relationships: &[
        RelationshipKind {
            name: "success",
            description: "FlowFiles with their checksum.",
        },
        RelationshipKind {
            name: "failure",
            description: "FlowFiles without content, where these are to fail.",
        },
    ],
    writes: &[AttributeKind::new(
        "<Hash Attribute>",
        "The checksum in hexadecimal digits, capital ones as in MiNiFi.",
    )],
    input: Input::Required,
    make: |settings| HashContent::new(settings).map(|made| Box::new(made) as _),
};

struct HashContent {
    attribute: String,
    algorithm: Algorithm,
    fails_on_empty: bool,
}

#[derive(Clone, Copy)]
enum Algorithm {
    Md5,
    Sha1,
    Sha256,
}

/// A checksum that is being made.
enum Hasher {
    Md5(md5::Md5),
    Sha(digest::Context),
}

impl HashContent {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(HashContent {
            attribute: settings.needed("Hash Attribute")?,
            algorithm: algorithm(&settings.needed("Hash Algorithm")?)?,
            fails_on_empty: settings.flag("Fail on empty")?,
        })
    }

    fn hash(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<String, ProcessorError> {
        let mut hasher = Hasher::new(self.algorithm);
        match write_out(session, flow_file, &mut hasher) {
            Ok(()) => Ok(hasher.finish()),
            Err(CopyError::Outside(error)) => Err(ProcessorError::Failed(error.to_string())),
            Err(CopyError::Session(error)) => Err(error),
        }
    }
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    match text.to_ascii_uppercase().replace('-', "").as_str() {
        "MD5" => Ok(Algorithm::Md5),
        "SHA1" => Ok(Algorithm::Sha1),
        "SHA256" => Ok(Algorithm::Sha256),
        _ => Err(format!(
            "Hash Algorithm: '{text}' is none of MD5, SHA1, SHA256"
        )),
    }
}

impl Processor for HashContent {
    fn trigger(
        &mut self,
        _context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        for mut flow_file in session.take(BATCH, BATCH_BYTES) {
            if flow_file.size() == 0 && self.fails_on_empty {
                session.transfer(flow_file, FAILURE);
                continue;
            }
            let mut attributes = flow_file.attributes().as_ref().clone();
            attributes.set(&self.attribute, self.hash(session, &flow_file)?);
            session.set_attributes(&mut flow_file, Arc::new(attributes));
            session.transfer(flow_file, SUCCESS);
        }
        Ok(Next::Scheduled)
    }

    fn is_concurrent(&self) -> bool {
        true
    }
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Md5 => Hasher::Md5(md5::Digest::new()),
            Algorithm::Sha1 => Hasher::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            Algorithm::Sha256 => Hasher::Sha(digest::Context::new(&digest::SHA256)),
        }
    }

    fn finish(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        match self {
            Hasher::Md5(context) => hex(md5::Digest::finalize(context).as_ref()),
            Hasher::Sha(context) => hex(context.finish().as_ref()),
        }
    }
}

impl std::io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Hasher::Md5(context) => md5::Digest::update(context, bytes),
            Hasher::Sha(context) => context.update(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const SUCCESS: usize = 0;
const FAILURE: usize = 1;

/// FlowFiles in one commit, and their bytes, so that a crash repeats little.
const BATCH: usize = 1_000;
const BATCH_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use crate::testing::Rig;

    #[test]
    fn checksums_are_the_well_known_ones() {
        for (algorithm, expected) in [
            ("MD5", "900150983CD24FB0D6963F7D28E17F72"),
            ("SHA1", "A9993E364706816ABA3E25717850C26C9CD0D89D"),
            (
                "sha-256",
                "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
            ),
        ] {
            let properties = [("Hash Algorithm", algorithm), ("Hash Attribute", "sum")];
            let mut rig = Rig::new("HashContent", &properties);
            rig.put(&[("a", "1")], "abc");
            rig.run();
            let out = rig.one("success");
            assert_eq!(out.attribute("sum"), expected, "{algorithm}");
            assert_eq!((out.text(), out.attribute("a")), ("abc", "1"));
        }
    }

    #[test]
    fn an_algorithm_that_is_none_is_refused() {
        let made = Rig::try_new(
            "HashContent",
            &[("Hash Algorithm", "CRC")],
            serde_json::json!({}),
        );
        let error = made.err().unwrap();
        assert!(error.contains("'CRC' is none of MD5"), "{error}");
    }

    #[test]
    fn a_content_of_many_pieces_is_one() {
        let mut rig = Rig::new("HashContent", &[]);
        rig.put(&[], vec![b'a'; 5_000_000]);
        rig.run();
        let expected = ring::digest::digest(&ring::digest::SHA256, &vec![b'a'; 5_000_000]);
        let hex: Vec<String> = expected
            .as_ref()
            .iter()
            .map(|b| format!("{b:02X}"))
            .collect();
        assert_eq!(rig.one("success").attribute("Checksum"), hex.concat());
    }

    #[test]
    fn an_empty_content_has_a_checksum_or_fails() {
        let mut rig = Rig::new("HashContent", &[]);
        rig.put(&[], "");
        rig.run();
        assert!(
            rig.one("success")
                .attribute("Checksum")
                .starts_with("E3B0C442")
        );
        let mut rig = Rig::new("HashContent", &[("Fail on empty", "true")]);
        rig.put(&[], "");
        rig.run();
        assert_eq!(rig.counts(), [("failure", 1)]);
    }
}
