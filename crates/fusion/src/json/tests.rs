//! The field scanner against the full parser, on good and on bad JSON.

use base::Rng;
use serde_json::Value as Dom;

use super::*;

#[test]
fn both_passes_agree_with_a_document_tree_on_random_documents() {
    let paths = ["a", "b", "c.d", "c", "c.d.e", "f.g", "é"].map(path);
    let scanner = Scanner::new(&paths);
    let mut fast_taken = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let mut text = String::new();
        write_random(&mut rng, 0, &mut text);
        if rng.one_in(8) {
            damage(&mut rng, &mut text);
        }
        let mut full = Vec::new();
        let by_full = scanner.scan_fully(&text, &mut full);
        let dom = serde_json::from_str::<Dom>(&text);
        if let Ok(dom) = &dom {
            assert_eq!(by_full, Ok(()), "seed {seed}: {text}");
            for (path, value) in paths.iter().zip(&full) {
                assert_same(dom, path, value, &format!("seed {seed}: {path} of {text}"));
            }
        }
        let mut fast = vec![Value::Null; paths.len()];
        if fast::scan(&scanner.tree, &text, &mut fast).is_some() {
            fast_taken += 1;
            assert!(
                dom.is_ok(),
                "seed {seed}: the fast pass took what is no JSON: {text}"
            );
            assert_eq!(fast, full, "seed {seed}: {text}");
        }
    }
    assert!(
        fast_taken > 8_000,
        "the fast pass took only {fast_taken} of 20000"
    );
}

#[test]
fn payloads_that_are_no_json_say_where() {
    let scanner = Scanner::new(&[path("a")]);
    let mut values = Vec::new();
    for bad in [
        "",
        "{",
        "{\"a\":01}",
        "{\"a\":1} x",
        "{\"a\" 1}",
        "nul",
        "{\"a\":\"\u{1}\"}",
    ] {
        assert!(
            scanner.scan(bad.as_bytes(), &mut values).is_err(),
            "{bad:?} was taken"
        );
        assert_eq!(values, [Value::Null]);
    }
    assert!(scanner.scan(b"{\"a\":\"\xff\"}", &mut values).is_err());
    let error = scanner
        .scan(b"{\"a\":1,}", &mut values)
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 1 column 8"), "{error}");
}

#[test]
fn deep_nesting_is_read_without_recursing_for_ever() {
    let deep = format!(
        "{{\"x\":{}{},\"a\":7}}",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let mut values = Vec::new();
    Scanner::new(&[path("a")])
        .scan(deep.as_bytes(), &mut values)
        .unwrap();
    assert_eq!(values, [Value::Int(7)]);
}

#[test]
fn a_bare_value_is_the_payload() {
    let scanner = Scanner::new(&[path(""), path("a")]);
    let mut values = Vec::new();
    scanner.scan(b" 21.5 ", &mut values).unwrap();
    assert_eq!(values, [Value::Float(21.5), Value::Null]);
    scanner.scan(b"{\"a\": [1, 2]}", &mut values).unwrap();
    assert_eq!(
        values,
        [
            Value::Json("{\"a\": [1, 2]}".into()),
            Value::Json("[1, 2]".into())
        ]
    );
}

fn path(text: &str) -> FieldPath {
    FieldPath(
        text.split('.')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn assert_same(dom: &Dom, path: &FieldPath, value: &Value<'_>, context: &str) {
    let expected = path
        .0
        .iter()
        .try_fold(dom, |dom, name| dom.get(name))
        .unwrap_or(&Dom::Null);
    match (expected, value) {
        (Dom::Number(number), Value::Int(int)) => {
            assert!(
                number.as_i64() == Some(*int) || number.as_f64() == Some(0.0),
                "{context}"
            );
        }
        (Dom::Number(number), Value::Float(float)) => {
            let expected = number.as_f64().unwrap();
            let difference = (expected - float).abs();
            assert!(
                difference <= expected.abs() * 4e-16,
                "{context}: {expected} {float}"
            );
        }
        (Dom::Array(_) | Dom::Object(_), Value::Json(raw)) => {
            assert_eq!(
                serde_json::from_str::<Dom>(raw).unwrap(),
                *expected,
                "{context}"
            );
        }
        (Dom::String(text), Value::Text(own)) => assert_eq!(text, own, "{context}"),
        (Dom::Bool(truth), Value::Bool(own)) => assert_eq!(truth, own, "{context}"),
        (Dom::Null, Value::Null) => {}
        _ => panic!("{context}: {expected} became {value:?}"),
    }
}

fn write_random(rng: &mut Rng, depth: u32, out: &mut String) {
    let kinds = if depth == 0 { 1 } else { 10 };
    match if depth > 4 {
        2 + rng.below(8)
    } else {
        rng.below(kinds)
    } {
        0 => {
            out.push('{');
            for index in 0..rng.below(6) {
                space(rng, out);
                if index > 0 {
                    out.push(',');
                    space(rng, out);
                }
                let name = ["a", "b", "c", "d", "e", "f", "g", "other", "é", "\\u0061"];
                out.push_str(&format!("\"{}\"", name[rng.below(10) as usize]));
                space(rng, out);
                out.push(':');
                space(rng, out);
                write_random(rng, depth + 1, out);
            }
            space(rng, out);
            out.push('}');
        }
        1 => {
            out.push('[');
            for index in 0..rng.below(4) {
                if index > 0 {
                    out.push(',');
                }
                write_random(rng, depth + 1, out);
            }
            out.push(']');
        }
        2 => out.push_str("true"),
        3 => out.push_str("false"),
        4 => out.push_str("null"),
        5 => out.push_str(&format!("{}", rng.next_u64() as i64 >> rng.below(64))),
        6 => out.push_str(&format!("{:?}", random_float(rng))),
        7 => out.push_str(
            [
                "0",
                "-0",
                "1E5",
                "1e-7",
                "123456789012345678901",
                "0.10",
                "-0.0",
            ][rng.below(7) as usize],
        ),
        _ => {
            let texts = [
                "",
                "plain",
                "a longer text that passes the short loop at once",
                "é€😀",
                "tab\\t",
                "\\\"quoted\\\"",
                "\\u00e9",
                "x",
            ];
            out.push_str(&format!("\"{}\"", texts[rng.below(8) as usize]));
        }
    }
}

fn random_float(rng: &mut Rng) -> f64 {
    let float = match rng.below(3) {
        0 => (rng.below(2_000_000) as f64 - 1e6) / 1e3,
        1 => f64::from_bits(rng.next_u64()),
        _ => (rng.next_u64() as f64) / 1e9,
    };
    if float.is_finite() { float } else { 0.5 }
}

fn space(rng: &mut Rng, out: &mut String) {
    out.push_str(["", "", "", " ", "\n\t"][rng.below(5) as usize]);
}

fn damage(rng: &mut Rng, text: &mut String) {
    let place = rng.below(text.len() as u64 + 1) as usize;
    if !text.is_char_boundary(place) {
        return;
    }
    let wrong = ["", "}", ",", "\"", "0", "\\", "\u{1}", "-"][rng.below(8) as usize];
    if wrong.is_empty() {
        text.truncate(place);
    } else {
        text.insert_str(place, wrong);
    }
}
