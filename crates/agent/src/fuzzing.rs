//! What the fuzz targets throw bytes at, and what must hold whatever the bytes are.

use base::UnixMillis;

use crate::cron::Cron;
use crate::definition::{Flow, seal};
use crate::expression::{Expression, Scope};
use crate::flowfile::Attributes;
use crate::parameters::{SecretKey, Surroundings};

/// Flow definitions: read and checked, sealed, read again to an equal flow.
pub fn flow_definition(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let key = SecretKey::parse(&"07".repeat(32)).expect("the key is one");
    let surroundings = Surroundings {
        key: Some(key.clone()),
        ..Surroundings::default()
    };
    if let Ok(flow) = Flow::load(text, &surroundings) {
        let sealed = seal(text, &key).expect("what was read as a flow can be sealed");
        if let Some(sealed) = sealed {
            let again = Flow::load(&sealed, &surroundings);
            assert_eq!(again.as_ref(), Ok(&flow), "sealing changed the flow");
        }
    }
    if let Ok(cron) = Cron::parse(text) {
        let start = jiff::civil::date(2026, 1, 1).at(0, 0, 0, 0);
        if let Some(due) = cron.next(start) {
            assert!(due > start, "it is due before it was asked for");
        }
    }
}

/// Expressions: parsed, and evaluated unless that would ask the network.
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_flow_definitions_holds() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fuzz/corpus/flow_definition"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::flow_definition(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 8, "{count} files are no corpus");
    }

    #[test]
    fn the_corpus_of_expressions_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/expression");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            super::expression(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 11, "{count} files are no corpus");
    }
}
