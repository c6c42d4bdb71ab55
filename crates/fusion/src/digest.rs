//! What tells one content from others, in names of files and in forms of statements.

use ring::digest::{SHA256, digest};

/// Enough of a content's SHA-256 to tell it from others, in hexadecimal digits.
pub fn of(content: &[u8]) -> String {
    let digest = digest(&SHA256, content);
    let digits = digest.as_ref()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"));
    digits.collect()
}
