//! `#{name}`, `##{name}` and `@{asset-id:…}` in texts.
//!
//! Hashes before a brace count in pairs: each pair is one hash, and an odd one left over makes
//! the name a parameter. `##{a}` is the text `#{a}`, `###{a}` a hash before the value of `a`.

/// Puts what `value` says for each name into `text`.
pub(super) fn substitute(
    text: &str,
    value: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("#{") {
        // The run of hashes that ends at this brace.
        let before = &rest[..=start];
        let plain = before.trim_end_matches('#');
        let hashes = before.len() - plain.len();
        let body = &rest[start + 2..];
        let Some(end) = body.find('}') else {
            break;
        };
        out.push_str(plain);
        out.extend(std::iter::repeat_n('#', hashes / 2));
        let name = &body[..end];
        if hashes.is_multiple_of(2) {
            out.push('{');
            out.push_str(name);
            out.push('}');
        } else {
            let bare = name.trim_matches(|c| c == '\'' || c == '"');
            if bare.is_empty() || !bare.chars().all(is_of_a_name) {
                return Err(format!(
                    "'#{{{name}}}' is no parameter: names have letters, digits, '-', '_', '.' \
                     and spaces; write '##{{' for the text itself"
                ));
            }
            out.push_str(&value(bare)?);
        }
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// Puts the path that `file` says for each id into `text`.
pub(super) fn place_assets(
    text: &str,
    file: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    const MARK: &str = "@{asset-id:";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(MARK) {
        let body = &rest[start + MARK.len()..];
        let Some(end) = body.find('}') else {
            break;
        };
        out.push_str(&rest[..start]);
        out.push_str(&file(&body[..end])?);
        rest = &body[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_values_and_pairs_of_hashes_become_one() {
        let mut value = |name: &str| Ok(format!("<{name}>"));
        for (text, expected) in [
            ("plain # text {x}", "plain # text {x}"),
            ("#{a}", "<a>"),
            ("x#{a b.c-d_1}y#{z}", "x<a b.c-d_1>y<z>"),
            ("##{a}", "#{a}"),
            ("###{a}", "#<a>"),
            ("####{a}", "##{a}"),
            ("#{'quoted'}", "<quoted>"),
            ("open #{a", "open #{a"),
            ("#{a}}", "<a>}"),
            ("é#{ü}é", "é<ü>é"),
        ] {
            assert_eq!(
                substitute(text, &mut value).as_deref(),
                Ok(expected),
                "{text}"
            );
        }
        for bad in ["#{}", "#{a/b}", "#{${x}}"] {
            let error = substitute(bad, &mut value).unwrap_err();
            assert!(error.contains("is no parameter"), "{bad}: {error}");
        }
    }
}
