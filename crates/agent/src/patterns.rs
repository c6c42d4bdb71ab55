//! Regular expressions as flows write them, and Java's replacement texts: `$1`, `${name}`, `\$`.
//!
//! Patterns run in linear time whatever their text. Those of expressions ([`Pattern`]) and of content
//! ([`ContentPattern`]) may look around and refer back as Java's do; they go step by step then, and
//! give up after so many. Elsewhere such patterns are refused when the flow is loaded.

mod content;

use std::borrow::Cow;
use std::ops::Range;

use crate::limits::PATTERN_STEPS_MAX;

pub(crate) use content::ContentPattern;

/// A pattern of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// In linear time.
    Linear(regex::Regex),
    /// With look-around or back references, in a bounded number of steps.
    Looking(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// Compiles a pattern over text.
    pub(crate) fn new(pattern: &str) -> Result<Pattern, String> {
        let why = match text(pattern) {
            Ok(linear) => return Ok(Pattern::Linear(linear)),
            Err(why) => why,
        };
        let looking = fancy_regex::RegexBuilder::new(pattern)
            .backtrack_limit(PATTERN_STEPS_MAX)
            .delegate_size_limit(COMPILED_BYTES_MAX)
            .build();
        match looking {
            Ok(looking) => Ok(Pattern::Looking(Box::new(looking))),
            Err(error) if why.contains("not supported") => {
                Err(format!("no regular expression: {error}"))
            }
            // What neither reads is told by the usual one.
            Err(_) => Err(why),
        }
    }

    /// Compiles a pattern over text that is about the whole of it.
    pub(crate) fn whole(pattern: &str) -> Result<Pattern, String> {
        Pattern::new(&format!("^(?:{pattern})$"))
    }

    /// Whether it is found in `text`; the error says that it took too many steps.
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, String> {
        match self {
            Pattern::Linear(pattern) => Ok(pattern.is_match(text)),
            Pattern::Looking(pattern) => pattern.is_match(text).map_err(given_up),
        }
    }
}

fn given_up(_: fancy_regex::Error) -> String {
    format!("the pattern looks around or back in more than {PATTERN_STEPS_MAX} steps")
}

/// Compiles a pattern over text.
pub(crate) fn text(pattern: &str) -> Result<regex::Regex, String> {
    regex::RegexBuilder::new(pattern)
        .size_limit(COMPILED_BYTES_MAX)
        .build()
        .map_err(|error| refused(&error))
}

/// Compiles a pattern over text that is about the whole of it.
pub(crate) fn whole_text(pattern: &str) -> Result<regex::Regex, String> {
    text(&format!("^(?:{pattern})$"))
}

/// A replacement text, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Replacement<'t>(Vec<Piece<'t>>);

#[derive(Clone, Debug)]
enum Piece<'t> {
    Plain(&'t str),
    Group(usize),
}

impl<'t> Replacement<'t> {
    /// Takes `text` apart for a pattern with these groups: the whole match is the first, and
    /// groups without a name are `None`.
    ///
    /// `$12` is group 12 where there is one, else group 1 and the digit 2, as in Java.
    pub(crate) fn parse<'n>(
        text: &'t str,
        groups: impl Iterator<Item = Option<&'n str>> + Clone,
    ) -> Result<Self, String> {
        let count = groups.clone().count();
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['$', '\\']) {
            let (plain, special) = rest.split_at(at);
            push_plain(&mut pieces, plain);
            let after = &special[1..];
            if special.starts_with('\\') {
                let len = after.chars().next().map_or(0, char::len_utf8);
                push_plain(&mut pieces, &after[..len]);
                rest = &after[len..];
            } else if let Some(named) = after.strip_prefix('{') {
                let (name, tail) = named.split_once('}').ok_or_else(|| {
                    format!("'{text}' opens a group's name and does not close it")
                })?;
                let group = groups
                    .clone()
                    .position(|known| known == Some(name))
                    .ok_or_else(|| format!("the pattern has no group '{name}'"))?;
                pieces.push(Piece::Group(group));
                rest = tail;
            } else {
                let (group, len) = numbered(after, count)
                    .ok_or_else(|| format!("'{text}' names a group that the pattern has not"))?;
                pieces.push(Piece::Group(group));
                rest = &after[len..];
            }
        }
        push_plain(&mut pieces, rest);
        Ok(Replacement(pieces))
    }

    /// Takes `text` apart as MiNiFi C++ and JavaScript do, for a pattern of so many groups with
    /// the whole match: `$&` is that, `$$` a dollar sign, and groups that are not there are empty.
    pub(crate) fn script(text: &'t str, groups: usize) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (plain, special) = rest.split_at(at);
            push_plain(&mut pieces, plain);
            let after = &special[1..];
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if let Some(behind) = after.strip_prefix('$') {
                push_plain(&mut pieces, "$");
                rest = behind;
            } else if let Some(behind) = after.strip_prefix('&') {
                pieces.push(Piece::Group(0));
                rest = behind;
            } else if digits > 0 {
                let (group, len) = numbered(after, groups).unwrap_or((groups, digits.min(2)));
                pieces.push(Piece::Group(group));
                rest = &after[len..];
            } else {
                push_plain(&mut pieces, "$");
                rest = after;
            }
        }
        push_plain(&mut pieces, rest);
        Replacement(pieces)
    }

    /// Writes the replacement of one match; a group that took no part is empty.
    pub(crate) fn write<'c>(&self, group: impl Fn(usize) -> Option<&'c [u8]>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                Piece::Plain(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Group(index) => out.extend_from_slice(group(*index).unwrap_or_default()),
            }
        }
    }
}

/// Replaces up to `count_max` matches in `text`; the error says when the result is longer than
/// `bytes_max`, or the pattern takes too many steps.
pub(crate) fn replace<'s>(
    text: &'s str,
    pattern: &Pattern,
    replacement: &str,
    count_max: usize,
    bytes_max: usize,
) -> Result<Cow<'s, str>, String> {
    let names: Vec<Option<&str>> = match pattern {
        Pattern::Linear(pattern) => pattern.capture_names().collect(),
        Pattern::Looking(pattern) => pattern.capture_names().collect(),
    };
    let replacement = Replacement::parse(replacement, names.iter().copied())?;
    let mut out: Vec<u8> = Vec::new();
    let mut end = 0;
    let mut put = |all: Range<usize>, group: &dyn Fn(usize) -> Option<&'s str>| {
        out.extend_from_slice(&text.as_bytes()[end..all.start]);
        replacement.write(|index| group(index).map(str::as_bytes), &mut out);
        end = all.end;
        match out.len() > bytes_max {
            true => Err(format!("the result is longer than {bytes_max} bytes")),
            false => Ok(()),
        }
    };
    match pattern {
        Pattern::Linear(pattern) => {
            for found in pattern.captures_iter(text).take(count_max) {
                let all = found.get(0).ok_or("a match has no text")?;
                put(all.range(), &|index| {
                    found.get(index).map(|group| group.as_str())
                })?;
            }
        }
        Pattern::Looking(pattern) => {
            for found in pattern.captures_iter(text).take(count_max) {
                let found = found.map_err(given_up)?;
                let all = found.get(0).ok_or("a match has no text")?;
                put(all.range(), &|index| {
                    found.get(index).map(|group| group.as_str())
                })?;
            }
        }
    }
    if end == 0 && out.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    out.extend_from_slice(&text.as_bytes()[end..]);
    // Matches of a text pattern begin and end between characters, so what is put together from
    // such pieces is text again.
    String::from_utf8(out)
        .map(Cow::Owned)
        .map_err(|error| error.to_string())
}

fn push_plain<'t>(pieces: &mut Vec<Piece<'t>>, text: &'t str) {
    if !text.is_empty() {
        pieces.push(Piece::Plain(text));
    }
}

/// The group that the digits at the start of `text` name, and how many digits that takes.
fn numbered(text: &str, count: usize) -> Option<(usize, usize)> {
    let mut found = None;
    let mut number = 0_usize;
    for (at, digit) in text
        .bytes()
        .enumerate()
        .take_while(|(_, b)| b.is_ascii_digit())
    {
        number = number
            .saturating_mul(10)
            .saturating_add(usize::from(digit - b'0'));
        if number >= count {
            break;
        }
        found = Some((number, at + 1));
    }
    found
}

/// The last line of what the library says: what is wrong, without the drawing of where.
fn refused(error: &regex::Error) -> String {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    format!("no regular expression: {reason}")
}

/// Bytes of a compiled pattern: a few KiB are usual, hostile ones explode.
const COMPILED_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(subject: &str, pattern: &str, replacement: &str) -> Result<String, String> {
        let pattern = Pattern::new(pattern).unwrap();
        replace(subject, &pattern, replacement, usize::MAX, 100).map(Cow::into_owned)
    }

    #[test]
    fn replacements_are_java_s() {
        for (subject, pattern, replacement, expected) in [
            ("ab", "(a)(b)", "$2$1x", "bax"),
            ("ab", "(a)(b)", "$1abc", "aabc"),
            ("ab", "(a)(b)", "$20", "b0"),
            ("ab", "(?P<first>a)b", "<${first}>", "<a>"),
            ("ab", "a", "\\$1\\\\", "$1\\b"),
            ("ab", "(x)?a", "[$1]", "[]b"),
            ("aab", "a", "", "b"),
            ("äöü", "", "-", "-ä-ö-ü-"),
            ("ab", "$", "!", "ab!"),
        ] {
            assert_eq!(
                replaced(subject, pattern, replacement).as_deref(),
                Ok(expected),
                "{subject} {pattern} {replacement}"
            );
        }
        for bad in ["$3", "$x", "${a", "${nobody}", "$"] {
            assert!(replaced("ab", "(a)(b)", bad).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn patterns_look_around_and_back_as_java_s_do_within_a_bound() {
        for (subject, pattern, replacement, expected) in [
            ("1234567", r"(?<=\d)(?=(\d{3})+$)", ",", "1,234,567"),
            ("foobar foobaz", "foo(?!bar)", "x", "foobar xbaz"),
            ("aa bb ab", r"(\w)\1", "<$1>", "<a> <b> ab"),
            ("price: 5 EUR", r"\d+(?= EUR)", "[$0]", "price: [5] EUR"),
            ("äöü", "(?<=ä)ö", "o", "äoü"),
        ] {
            let replaced = replaced(subject, pattern, replacement);
            assert_eq!(replaced.as_deref(), Ok(expected), "{subject} {pattern}");
        }
        assert!(matches!(Pattern::new("a+b"), Ok(Pattern::Linear(_))));
        let whole = Pattern::whole("(?!.*x)[a-z]+").unwrap();
        assert_eq!(whole.is_match("abc"), Ok(true));
        assert_eq!(whole.is_match("abxc"), Ok(false));
        let hostile = Pattern::new(r"(?=(a+)+\1b)a").unwrap();
        let error = hostile.is_match(&"a".repeat(5_000)).unwrap_err();
        assert!(error.contains("steps"), "{error}");
        assert!(Pattern::new("(?<=a").is_err());
    }

    #[test]
    fn a_result_that_grows_without_end_is_refused() {
        let error = replaced(&"a".repeat(50), "a", "0123456789").unwrap_err();
        assert_eq!(error, "the result is longer than 100 bytes");
    }
}
