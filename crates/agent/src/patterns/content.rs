//! Patterns over content. Its bytes need not be UTF-8: what is not is matched by no character. Only
//! patterns that look around or back need text, and say so.

use std::ops::Range;

use super::{COMPILED_BYTES_MAX, given_up, refused};
use crate::limits::PATTERN_STEPS_MAX;

/// A pattern over content.
#[derive(Clone, Debug)]
pub(crate) enum ContentPattern {
    /// In linear time.
    Linear(regex::bytes::Regex),
    /// With look-around or back references, in a bounded number of steps for each match.
    Looking(Box<fancy_regex::Regex>),
}

/// What one match found.
#[derive(Debug)]
pub(crate) enum Found<'t> {
    Linear(regex::bytes::Captures<'t>),
    Looking(fancy_regex::Captures<'t, str>),
}

/// All matches in a content, one after the other; after an error there is none.
pub(crate) enum FindAll<'p, 't> {
    Linear(regex::bytes::CaptureMatches<'p, 't>),
    Looking(fancy_regex::CaptureMatches<'p, 't, str>),
    /// What is still to be said, once.
    Failed(Option<String>),
}

impl ContentPattern {
    /// Compiles a pattern.
    pub(crate) fn new(pattern: &str, ignores_case: bool) -> Result<ContentPattern, String> {
        let linear = regex::bytes::RegexBuilder::new(pattern)
            .case_insensitive(ignores_case)
            .size_limit(COMPILED_BYTES_MAX)
            .build();
        let why = match linear {
            Ok(linear) => return Ok(ContentPattern::Linear(linear)),
            Err(why) => refused(&why),
        };
        let looking = fancy_regex::RegexBuilder::new(pattern)
            .case_insensitive(ignores_case)
            .backtrack_limit(PATTERN_STEPS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .build();
        match looking {
            Ok(looking) => Ok(ContentPattern::Looking(Box::new(looking))),
            Err(error) if why.contains("not supported") => {
                Err(format!("no regular expression: {error}"))
            }
            // What neither reads is told by the usual one.
            Err(_) => Err(why),
        }
    }

    /// How many groups it has, the whole match among them.
    pub(crate) fn groups(&self) -> usize {
        match self {
            ContentPattern::Linear(pattern) => pattern.captures_len(),
            ContentPattern::Looking(pattern) => pattern.captures_len(),
        }
    }

    /// Whether it is found; the error says that it took too many steps, or that the bytes are no
    /// UTF-8 and it needs that.
    pub(crate) fn is_match(&self, bytes: &[u8]) -> Result<bool, String> {
        match self {
            ContentPattern::Linear(pattern) => Ok(pattern.is_match(bytes)),
            ContentPattern::Looking(pattern) => pattern.is_match(text(bytes)?).map_err(given_up),
        }
    }

    /// All matches that do not overlap. Errors as [`ContentPattern::is_match`].
    pub(crate) fn find_all<'p, 't>(&'p self, bytes: &'t [u8]) -> FindAll<'p, 't> {
        match self {
            ContentPattern::Linear(pattern) => FindAll::Linear(pattern.captures_iter(bytes)),
            ContentPattern::Looking(pattern) => match text(bytes) {
                Ok(text) => FindAll::Looking(pattern.captures_iter(text)),
                Err(why) => FindAll::Failed(Some(why)),
            },
        }
    }
}

impl<'t> Found<'t> {
    /// Where the whole match is.
    pub(crate) fn range(&self) -> Range<usize> {
        let range = match self {
            Found::Linear(found) => found.get(0).map(|all| all.range()),
            Found::Looking(found) => found.get(0).map(|all| all.start()..all.end()),
        };
        range.expect("the whole match is always a group of its own")
    }

    /// What a group found; none where it took no part.
    pub(crate) fn group(&self, index: usize) -> Option<&'t [u8]> {
        match self {
            Found::Linear(found) => found.get(index).map(|group| group.as_bytes()),
            Found::Looking(found) => found.get(index).map(|group| group.as_str().as_bytes()),
        }
    }
}

impl<'t> Iterator for FindAll<'_, 't> {
    type Item = Result<Found<'t>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            FindAll::Linear(all) => all.next().map(|found| Ok(Found::Linear(found))),
            FindAll::Looking(all) => match all.next()? {
                Ok(found) => Some(Ok(Found::Looking(found))),
                Err(error) => {
                    *self = FindAll::Failed(None);
                    Some(Err(given_up(error)))
                }
            },
            FindAll::Failed(why) => why.take().map(Err),
        }
    }
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes)
        .map_err(|_| "the content is no UTF-8, which a pattern that looks around needs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pattern: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
        let pattern = ContentPattern::new(pattern, false).unwrap();
        let all = pattern.find_all(bytes).map(|found| found.unwrap());
        all.map(|found| {
            found
                .group(pattern.groups() - 1)
                .unwrap_or_default()
                .to_vec()
        })
        .collect()
    }

    #[test]
    fn patterns_look_around_and_back_in_text() {
        for (pattern, bytes, expected) in [
            (r"(?<=\d)(\d)(?!\d)", &b"12 345"[..], &[&b"2"[..], b"5"][..]),
            (r"(\w)\1", b"aa bb ab", &[b"a", b"b"]),
            ("(?<=\u{e4})\u{f6}", "äöü".as_bytes(), &["ö".as_bytes()]),
            (r"^(?!#)(\w+)=", b"key=", &[b"key"]),
            // Others take any bytes.
            (r"(\d)\d", b"12\xff67", &[b"1", b"6"]),
        ] {
            assert_eq!(groups(pattern, bytes), expected, "{pattern}");
        }
        let linear = ContentPattern::new("a+b", true).unwrap();
        assert!(matches!(linear, ContentPattern::Linear(_)));
        let looking = ContentPattern::new("(?=a)A", true).unwrap();
        assert!(matches!(looking, ContentPattern::Looking(_)));
        assert_eq!(looking.is_match(b"xA"), Ok(true));
        assert!(
            looking
                .is_match(b"xA\xff")
                .unwrap_err()
                .contains("no UTF-8")
        );
        let found: Vec<_> = looking.find_all(b"xA\xff").collect();
        assert!(matches!(&found[..], [Err(why)] if why.contains("no UTF-8")));
        let error = ContentPattern::new("(?<=a", false).unwrap_err();
        assert!(error.contains("no regular expression"), "{error}");
    }

    #[test]
    fn what_takes_too_many_steps_is_given_up_and_ends() {
        let hostile = ContentPattern::new(r"(?=(a+)+\1b)a", false).unwrap();
        let bytes = vec![b'a'; 5_000];
        let error = hostile.is_match(&bytes).unwrap_err();
        assert!(error.contains("steps"), "{error}");
        let found: Vec<_> = hostile.find_all(&bytes).collect();
        assert_eq!(found.len(), 1);
        assert!(found[0].is_err());
    }

    #[test]
    fn no_bytes_bring_a_pattern_down() {
        let patterns = [
            r"(?<=.)(.)(?=.)",
            r"(\w+)\s\1",
            r"(?i)(?<!ä)ö",
            r"(?s)(?=.*x)^.",
            r"\b(?!\d)\w+\b",
            r"(?<=^|,)([^,]*)(?=,|$)",
            r"(?m)^(?=.+$)",
        ];
        let mut rng = base::Rng::from_seed(3);
        for pattern in patterns {
            let pattern = ContentPattern::new(pattern, false).unwrap();
            for _ in 0..300 {
                let mut bytes = vec![0; rng.below(60) as usize];
                rng.fill(&mut bytes);
                for byte in &mut bytes {
                    if rng.one_in(2) {
                        *byte = b"a,x \xc3\xb6"[usize::from(*byte) % 6];
                    }
                }
                if rng.one_in(2) {
                    bytes = String::from_utf8_lossy(&bytes).into_owned().into_bytes();
                }
                let mut end = 0;
                for found in pattern.find_all(&bytes) {
                    let Ok(found) = found else { break };
                    let range = found.range();
                    assert!(end <= range.start && range.end <= bytes.len());
                    end = range.end;
                }
            }
        }
    }
}
