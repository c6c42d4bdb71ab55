//! What fuzzing drives: decoders of texts and bytes that flows and peers bring.

use base::UnixMillis;

use crate::expression::{Expression, Scope};
use crate::flowfile::Attributes;

/// An expression: parsed, and evaluated unless it would ask the network.
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
