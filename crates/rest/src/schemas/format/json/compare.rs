//! Whether everything that a writer's JSON Schema lets through, a reader's takes too.

use super::JsonSchema;

/// Why `reader` would refuse what `writer` lets through.
pub(in crate::schemas::format) fn incompatibilities(
    _reader: &JsonSchema,
    _writer: &JsonSchema,
) -> Vec<String> {
    Vec::new()
}
