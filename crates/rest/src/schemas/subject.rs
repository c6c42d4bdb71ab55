//! Names of subjects, and the contexts that they lie in.
//!
//! A subject is `name` in the default context, `:.context:name` in another. Ids count on their own
//! in each context. `:.context:` alone names the context itself, for its settings.

use super::error::SchemaError;
use super::limits::SUBJECT_BYTES_MAX;

/// The context of names without one.
pub(super) const DEFAULT_CONTEXT: &str = ".";

/// The context of settings that hold in every context; it has no subjects.
pub(super) const GLOBAL_CONTEXT: &str = ".__GLOBAL";

/// Which subjects a list is of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    /// Those of every context whose name there begins so.
    Everywhere(&'a str),
    /// Those of one context whose name there begins so.
    In(&'a str, &'a str),
}

/// A subject's name as it is kept: without the default context's prefix.
///
/// # Errors
/// [`SchemaError::InvalidSubject`] when it is too long, or holds what no name does.
pub(super) fn checked(name: &str) -> Result<String, SchemaError> {
    let (context, rest) = parts(name);
    let is_odd = |text: &str| text.chars().any(char::is_control);
    let reserved = ["__GLOBAL", "__EMPTY"];
    if name.len() > SUBJECT_BYTES_MAX
        || is_odd(name)
        || rest.is_empty() && context == DEFAULT_CONTEXT
        || reserved.contains(&rest)
        || context == GLOBAL_CONTEXT && !rest.is_empty()
        || rest.starts_with(":.")
    {
        let shown: String = name.chars().take(NAME_SHOWN).collect();
        return Err(SchemaError::InvalidSubject(shown));
    }
    Ok(qualified(context, rest))
}

/// Context and name of a subject.
pub(super) fn parts(name: &str) -> (&str, &str) {
    let qualified = name.strip_prefix(':').filter(|rest| rest.starts_with('.'));
    match qualified.and_then(|rest| rest.split_once(':')) {
        Some((context, rest)) => (context, rest),
        None => (DEFAULT_CONTEXT, name),
    }
}

/// The context of a subject.
pub(super) fn context_of(name: &str) -> &str {
    parts(name).0
}

/// A subject of a context.
pub(super) fn qualified(context: &str, name: &str) -> String {
    match context {
        DEFAULT_CONTEXT => name.to_owned(),
        context => format!(":{context}:{name}"),
    }
}

/// Reads a list's `subjectPrefix`; none, and one that begins with `:*:`, is every context's.
pub(super) fn wanted(prefix: Option<&str>) -> Wanted<'_> {
    let Some(prefix) = prefix else {
        return Wanted::Everywhere("");
    };
    match prefix.strip_prefix(EVERY_CONTEXT) {
        Some(rest) => Wanted::Everywhere(rest),
        None => {
            let (context, rest) = parts(prefix);
            Wanted::In(context, rest)
        }
    }
}

impl Wanted<'_> {
    /// Whether a subject is one of them.
    pub fn has(&self, name: &str) -> bool {
        let (context, rest) = parts(name);
        match self {
            Wanted::Everywhere(prefix) => rest.starts_with(prefix),
            Wanted::In(wanted, prefix) => context == *wanted && rest.starts_with(prefix),
        }
    }
}

const EVERY_CONTEXT: &str = ":*:";
/// How much of a refused name is repeated, in characters.
const NAME_SHOWN: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_without_the_default_contexts_prefix() {
        let kept = [
            ("orders-value", "orders-value"),
            (":.:orders-value", "orders-value"),
            (":.eu:orders-value", ":.eu:orders-value"),
            (":.eu:", ":.eu:"),
            (":.__GLOBAL:", ":.__GLOBAL:"),
            (":odd", ":odd"),
        ];
        for (name, expected) in kept {
            assert_eq!(checked(name).unwrap(), expected, "{name}");
        }
        let long = "x".repeat(SUBJECT_BYTES_MAX + 1);
        for refused in [
            "",
            ":.:",
            "a\nb",
            "__GLOBAL",
            ":.eu:__EMPTY",
            ":.__GLOBAL:a",
            &long,
        ] {
            assert!(checked(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn prefixes_choose_contexts() {
        let names = ["a1", ":.eu:a2", ":.eu:b"];
        let chosen = |prefix| {
            let wanted = wanted(prefix);
            let chosen = names.iter().filter(|name| wanted.has(name));
            chosen.copied().collect::<Vec<_>>()
        };
        assert_eq!(chosen(None), names);
        assert_eq!(chosen(Some(":*:")), names);
        assert_eq!(chosen(Some(":*:a")), ["a1", ":.eu:a2"]);
        assert_eq!(chosen(Some("")), ["a1"]);
        assert_eq!(chosen(Some("b")), Vec::<&str>::new());
        assert_eq!(chosen(Some(":.eu:")), [":.eu:a2", ":.eu:b"]);
        assert_eq!(chosen(Some(":.eu:b")), [":.eu:b"]);
    }
}
