//! Pairs of schemas in a data file: what a reader's schema has against a writer's. Answers follow each
//! pair, `= fits` or `- reason`; `UPDATE_EXPECT=1` rewrites them. A title begins with the type of both,
//! `JSON LENIENT` for JSON Schemas that are compared by the lenient policy.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use super::{ParsedSchema, Policy, SchemaSource, SchemaType};

#[test]
fn pairs_of_schemas_fit_or_not_as_the_file_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schemas/format/compatibility.txt");
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut actual = String::new();
    for pair in expected
        .split("\n\n")
        .filter(|pair| !pair.trim().is_empty())
    {
        let mut lines = pair.trim().lines();
        let mut next = |prefix: &str| {
            let line = lines.next().unwrap();
            let text = line.strip_prefix(prefix);
            text.unwrap_or_else(|| panic!("{line:?} does not begin with {prefix}"))
                .to_owned()
        };
        let (title, reader, writer) = (next("# "), next("reader "), next("writer "));
        let (kind, _) = title.split_once(':').unwrap();
        let (kind, policy) = match kind.strip_suffix(" LENIENT") {
            Some(kind) => (kind, Policy::Lenient),
            None => (kind, Policy::Strict),
        };
        let kind = SchemaType::of_name(kind).unwrap();
        let parse = |text: &str| {
            let source = SchemaSource {
                kind,
                text: Arc::from(text),
                references: Vec::new(),
            };
            ParsedSchema::parse(&source).unwrap_or_else(|fault| panic!("{title}: {fault}"))
        };
        let (to, from) = (parse(&reader), parse(&writer));
        let same = ParsedSchema::incompatibilities(&to, &to, policy);
        assert!(same.is_empty(), "{title}: a schema fits itself: {same:?}");
        writeln!(actual, "# {title}\nreader {reader}\nwriter {writer}").unwrap();
        let reasons = ParsedSchema::incompatibilities(&to, &from, policy);
        if reasons.is_empty() {
            actual.push_str("= fits\n");
        }
        for reason in reasons {
            writeln!(actual, "- {reason}").unwrap();
        }
        actual.push('\n');
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, actual).unwrap();
    } else {
        assert_eq!(actual, expected);
    }
}
