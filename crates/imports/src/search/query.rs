//! What a search asks for.

use crate::limits;

/// Something that a record must have: a word, words that stand together, or how a word begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term<'q> {
    pub text: &'q str,
    pub is_prefix: bool,
}

/// The terms of a query: words, `"words together"` and `stem*`; the first
/// [`limits::QUERY_WORDS_MAX`] of them.
pub(crate) fn terms(query: &str) -> Vec<Term<'_>> {
    let mut terms = Vec::new();
    for (index, part) in query.split('"').enumerate() {
        if index % 2 == 1 {
            terms.push(Term {
                text: part.trim(),
                is_prefix: false,
            });
            continue;
        }
        for word in part.split_whitespace() {
            let stem = word.strip_suffix('*');
            terms.push(Term {
                text: stem.unwrap_or(word),
                is_prefix: stem.is_some(),
            });
        }
    }
    terms.retain(|term| term.text.chars().any(char::is_alphanumeric));
    terms.truncate(limits::QUERY_WORDS_MAX);
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_phrases_and_stems_are_told_apart() {
        let term = |text, is_prefix| Term { text, is_prefix };
        assert_eq!(
            terms("hist* \"New York\" - AND"),
            [
                term("hist", true),
                term("New York", false),
                term("AND", false)
            ]
        );
        assert_eq!(terms(" - \" \" * "), []);
        assert_eq!(terms(&"a ".repeat(100)).len(), limits::QUERY_WORDS_MAX);
    }
}
