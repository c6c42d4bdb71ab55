//! Expressions, by the examples in `examples/` and by texts that are none.
//!
//! An example file: `with NAME = "VALUE"` lines (the value in JSON's quotes) set the attributes for
//! what follows; an expression, over as many lines as it takes, is followed by `= RESULT` or by
//! `! ERROR`; `UPDATE_EXPECT=1` writes these anew.

use std::fmt::Write;
use std::path::Path;

use base::Rng;

use super::*;

/// 2016-01-26T21:20:01.123Z, the guide's own example.
const NOW: UnixMillis = UnixMillis(1_453_843_201_123);

fn checked(text: &str) -> String {
    let mut out = String::new();
    let mut attributes = Attributes::default();
    let mut was_with = false;
    let mut expression: Vec<&str> = Vec::new();
    for line in text.lines() {
        if expression.is_empty() {
            if let Some(with) = line.strip_prefix("with ") {
                if !was_with {
                    attributes = Attributes::default();
                }
                let (name, value) = with.rsplit_once(" = \"").expect("with NAME = \"VALUE\"");
                let value: String = serde_json::from_str(&format!("\"{value}")).unwrap();
                attributes.set(&name.replace("\\\\", "\\"), value);
            }
            was_with = line.starts_with("with ");
            if was_with || line.is_empty() || line.starts_with('#') {
                writeln!(out, "{line}").unwrap();
                continue;
            }
        } else if line.starts_with("= ") || line.starts_with("! ") || line == "=" {
            let source = expression.join("\n");
            writeln!(out, "{source}\n{}", answer(&source, &attributes)).unwrap();
            expression.clear();
            continue;
        }
        expression.push(line);
    }
    assert!(expression.is_empty(), "without a result: {expression:?}");
    out
}

fn answer(source: &str, attributes: &Attributes) -> String {
    let scope = Scope {
        attributes: Some(attributes),
        flow_file: None,
        now: NOW,
    };
    let result = Expression::parse(source)
        .and_then(|expression| expression.evaluate(scope).map(Cow::into_owned));
    let escaped = |text: &str| {
        let text = text.replace('\\', "\\\\").replace('\n', "\\n");
        text.replace('\t', "\\t").replace('\r', "\\r")
    };
    match result {
        Ok(value) if value.contains(['\n', '\t', '\r']) => format!("= {}", escaped(&value)),
        Ok(value) => format!("= {value}"),
        Err(error) => format!("! {}", escaped(&error.to_string())),
    }
}

#[test]
fn the_documented_examples_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/expression/examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let found = checked(&text);
        seen += 1;
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, found).unwrap();
            continue;
        }
        for (expected, found) in text.lines().zip(found.lines()) {
            assert_eq!(expected, found, "in {}", path.display());
        }
    }
    assert!(seen >= 8, "only {seen} files of examples");
}

#[test]
fn every_function_has_an_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/expression/examples");
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        all += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let mut names: Vec<&str> = FUNCTIONS
        .iter()
        .copied()
        .flatten()
        .map(|f| f.name)
        .collect();
    names.extend(["anyAttribute", "allAttributes", "anyMatchingAttribute"]);
    names.extend([
        "allMatchingAttributes",
        "anyDelineatedValue",
        "allDelineatedValues",
    ]);
    names.extend(["join", "count"]);
    assert!(names.len() >= 73, "{} functions", names.len());
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is used twice");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/expressions.md");
    let page = std::fs::read_to_string(page).unwrap();
    for name in names {
        assert!(all.contains(&format!("{name}(")), "{name} has no example");
        assert!(
            page.contains(&format!("`{name}`")),
            "{name} is not on the page"
        );
    }
}

#[test]
fn parsing_and_evaluating_any_text_never_panics() {
    let pieces = [
        "${",
        "}",
        "$$",
        "(",
        ")",
        ",",
        ":",
        "'",
        "\"",
        "\\",
        " ",
        "a",
        "é",
        "1",
        "-1.5",
        "true",
        "toUpper",
        "plus",
        "matches",
        "replaceAll",
        "substring",
        "format",
        "toDate",
        "literal",
        "allAttributes",
        "anyDelineatedValue",
        "join",
        "count",
        "jsonPath",
        "padLeft",
        "repeat",
        "fromRadix",
        "getDelimitedField",
        "yyyy",
        "'$.a[?(@.b)]'",
        "'(.)'",
        "'$1'",
        "unescapeXml",
        "evaluateELString",
        "${a:",
        "('",
        "')",
        "()",
        "9999999999",
    ];
    let attributes = Attributes::new([("a", "${a:repeat(2)}"), ("é", "1,2")]);
    let scope = Scope {
        attributes: Some(&attributes),
        flow_file: None,
        now: NOW,
    };
    let mut random = Rng::from_seed(5);
    let mut parsed = 0;
    for _ in 0..200_000 {
        let text: String = (0..random.below(16))
            .map(|_| pieces[random.below(pieces.len() as u64) as usize])
            .collect();
        if let Ok(expression) = Expression::parse(&text) {
            parsed += 1;
            let _ = expression.evaluate(scope);
        }
    }
    assert!(parsed > 1_000, "only {parsed} texts were expressions");
}

#[test]
fn long_chains_and_deep_nests_take_no_stack() {
    let chain = format!("${{a{}}}", ":toUpper()".repeat(100_000));
    let scope = Scope {
        attributes: None,
        flow_file: None,
        now: NOW,
    };
    let chain = Expression::parse(&chain).unwrap();
    assert_eq!(chain.evaluate(scope).unwrap(), "");
    drop(chain);
    for (open, close) in [
        ("${a:equals(", ")}"),
        ("${a:equals(\"", "\")}"),
        ("${literal(", ")}"),
    ] {
        let deep = format!("{}x{}", open.repeat(1_000), close.repeat(1_000));
        assert!(Expression::parse(&deep).is_err(), "{open}");
    }
}

#[test]
fn a_result_beyond_the_bound_is_an_error() {
    let attributes = Attributes::new([("a", "x".repeat(EXPRESSION_RESULT_BYTES_MAX))]);
    let scope = Scope {
        attributes: Some(&attributes),
        flow_file: None,
        now: NOW,
    };
    for text in [
        "${a:append('y')}",
        "${a}y",
        "${a:replace('x', 'yy')}",
        "${a:replaceAll('x', '$0$0')}",
        "${a:urlEncode():append('y')}",
        "${allAttributes('a', 'a'):join('')}",
        "${a:padLeft(2000000)}",
        "${literal(\"${a}${a}\")}",
    ] {
        let error = Expression::parse(text)
            .unwrap()
            .evaluate(scope)
            .unwrap_err();
        assert!(error.to_string().contains("longer than"), "{text}: {error}");
    }
}

#[test]
fn mistakes_are_named_when_the_flow_is_loaded() {
    for (text, part) in [
        ("${filename", "'}' is missing"),
        ("${filename:frobnicate()}", "no function 'frobnicate'"),
        ("${filename:equals()}", "takes 1 argument"),
        ("${filename:matches('(')}", "regular expression"),
        ("${now(1)}", "takes 0 arguments"),
        ("${filename:now()}", "takes no subject"),
        ("${}", "a name is missing"),
        ("${a:equals('x}", "closing"),
    ] {
        let error = Expression::parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let deep = format!("{}x{}", "${a:equals(".repeat(1_000), ")}".repeat(1_000));
    assert!(
        Expression::parse(&deep)
            .unwrap_err()
            .to_string()
            .contains("nested")
    );
}

#[test]
fn a_number_that_is_none_is_an_error_and_not_zero() {
    let attributes = Attributes::new([("a", "abc")]);
    let scope = Scope {
        attributes: Some(&attributes),
        flow_file: None,
        now: UnixMillis(0),
    };
    let error = Expression::parse("${a:plus(1)}")
        .unwrap()
        .evaluate(scope)
        .unwrap_err();
    assert_eq!(error.to_string(), "plus: 'abc' is no number");
}

#[test]
fn purity_follows_the_parts() {
    let unnamed = Attributes::new([("a", "1")]);
    let named = Attributes::new([("filename", "a.log")]);
    for (text, is_pure) in [
        ("${a:append('x')}", true),
        ("${a:append(${now()})}", false),
        ("${uuid}", false),
        ("${anyAttribute('a', 'b'):isNull()}", true),
        ("${anyAttribute('a', 'uuid'):isNull()}", false),
        ("${anyAttribute(${a}):isNull()}", false),
        ("${allMatchingAttributes('a.*'):join(${UUID()})}", false),
        ("${literal(\"${a} ${b}\")}", true),
        ("${literal(\"${nextInt()}\")}", false),
    ] {
        let expression = Expression::parse(text).unwrap();
        assert_eq!(expression.is_pure(&unnamed), is_pure, "{text}");
        assert_eq!(expression.is_pure(&named), is_pure, "{text}");
    }
    for text in [
        "${filename}",
        "${anyAttribute('filename'):isNull()}",
        "${allMatchingAttributes('f.*'):isNull()}",
    ] {
        let expression = Expression::parse(text).unwrap();
        let pure = [&unnamed, &named].map(|attributes| expression.is_pure(attributes));
        assert_eq!(pure, [false, true], "{text}");
    }
}
