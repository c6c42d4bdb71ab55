//! Whether a reader's Protobuf schema can read what a writer's wrote.

use super::ProtobufSchema;

/// Why `reader` cannot read what `writer` wrote.
pub(in crate::schemas::format) fn incompatibilities(
    _reader: &ProtobufSchema,
    _writer: &ProtobufSchema,
) -> Vec<String> {
    Vec::new()
}
