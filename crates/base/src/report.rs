//! One line for a chain of errors: what failed, then why, each once.

use std::error::Error;

/// Writes `error` and its sources as `what: why: why`, leaving out a cause that repeats its effect.
pub fn report(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if cause_text != last {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        last = cause_text;
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the journal")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_report_names_each_cause_once() {
        let error = Outer(std::io::Error::other("disk is full"));
        assert_eq!(report(&error), "cannot open the journal: disk is full");
    }
}
