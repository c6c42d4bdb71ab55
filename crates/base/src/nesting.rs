//! How deep a text's brackets nest, before a parser is asked.

/// Where brackets of `text` nest too deep for its YAML to be parsed: line and column, from one.
///
/// A YAML scanner's time grows with the square of the depth, and it is done scanning before its reader
/// refuses anything deeper than a hundred or so: a hundred thousand brackets are some 20 seconds.
/// Brackets in quoted text and in comments count too, so the bound is far above what people nest.
pub fn nests_too_deep(text: &str) -> Option<(usize, usize)> {
    let mut depth = 0_usize;
    let found = text.bytes().position(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > NESTING_MAX
    })?;
    let before = &text[..found];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    Some((line, before[line_start..].chars().count() + 1))
}

/// Less than a tenth of a second of scanning.
const NESTING_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nests_too_deep_is_found_at_its_place() {
        let open = "[{".repeat(NESTING_MAX / 2);
        assert_eq!(nests_too_deep(&open), None);
        assert_eq!(nests_too_deep(&format!("{open}]}}é{{[")), None);
        assert_eq!(
            nests_too_deep(&format!("a: é{open}\n é[")),
            Some((2, 3)),
            "the place of the one too many"
        );
        assert_eq!(nests_too_deep(&"[]".repeat(2 * NESTING_MAX)), None);
        assert_eq!(nests_too_deep(&format!("{}{open}", "]".repeat(9))), None);
    }
}
