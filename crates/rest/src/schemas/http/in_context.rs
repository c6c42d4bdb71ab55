//! Paths of a context: `/contexts/{context}/…` is the same call on the subjects of that context.
//!
//! Clients whose base address ends in `/contexts/{context}` name subjects as they would elsewhere,
//! in the path and in parameters, so both are read as that context's unless they name one.

use axum::extract::Request;
use axum::http::Uri;

/// Reads a call of a context as what it means; every other is left as it is.
pub(super) fn in_context(mut request: Request) -> Request {
    if let Some(uri) = meant(request.uri()) {
        *request.uri_mut() = uri;
    }
    request
}

fn meant(uri: &Uri) -> Option<Uri> {
    let (context, rest) = uri.path().strip_prefix("/contexts/")?.split_once('/')?;
    let qualifier = qualifier(context)?;
    let qualified = |name: &str| match is_qualified(name) {
        true => name.to_owned(),
        false => format!("{qualifier}{name}"),
    };
    let (first, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (path, parameter) = match (first, rest) {
        ("subjects" | "schemas", "") => (format!("/{first}"), Some("subjectPrefix")),
        ("subjects" | "config" | "mode", _) => (format!("/{first}/{}", qualified(rest)), None),
        ("compatibility", _) => {
            let rest = rest.strip_prefix("subjects/")?;
            (format!("/{first}/subjects/{}", qualified(rest)), None)
        }
        ("schemas", _) => (format!("/{first}/{rest}"), Some("subject")),
        _ => return None,
    };
    let sent = uri.query().unwrap_or_default().split('&');
    let sent = sent.filter(|part| !part.is_empty());
    let mut is_sent = false;
    let mut query: Vec<String> = sent
        .map(|part| match part.split_once('=').unwrap_or((part, "")) {
            (name, value) if Some(name) == parameter => {
                is_sent = true;
                format!("{name}={}", qualified(value))
            }
            _ => part.to_owned(),
        })
        .collect();
    if let Some(name) = parameter.filter(|_| !is_sent) {
        query.push(format!("{name}={qualifier}"));
    }
    let uri = match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    };
    uri.parse().ok()
}

/// What names of a context begin with; colons around it and the first dot may be left out.
fn qualifier(context: &str) -> Option<String> {
    let context = plain(context);
    let context = context.strip_prefix(':').unwrap_or(&context);
    let context = context.strip_suffix(':').unwrap_or(context);
    if context.is_empty() || context.contains(':') {
        return None;
    }
    let dot = if context.starts_with('.') { "" } else { "." };
    Some(format!("%3A{dot}{context}%3A"))
}

/// Whether a name tells its context, or that it is of every one.
fn is_qualified(name: &str) -> bool {
    let name = plain(name);
    name.starts_with(":.") || name.starts_with(":*:")
}

/// A text with the signs that tell contexts decoded.
fn plain(text: &str) -> String {
    let signs = [("%3a", ":"), ("%2e", "."), ("%2a", "*")];
    signs.iter().fold(text.to_owned(), |text, (code, sign)| {
        text.replace(code, sign).replace(&code.to_uppercase(), sign)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_the_context_unless_they_tell_one() {
        let meanings = [
            (
                "/contexts/.eu/subjects",
                "/subjects?subjectPrefix=%3A.eu%3A",
            ),
            (
                "/contexts/eu/schemas?subjectPrefix=a",
                "/schemas?subjectPrefix=%3A.eu%3Aa",
            ),
            (
                "/contexts/:.eu:/subjects/a/versions",
                "/subjects/%3A.eu%3Aa/versions",
            ),
            (
                "/contexts/%3A.eu%3A/subjects/:.us:a?deleted=true",
                "/subjects/:.us:a?deleted=true",
            ),
            (
                "/contexts/.eu/subjects?subjectPrefix=%3a*:a",
                "/subjects?subjectPrefix=%3a*:a",
            ),
            (
                "/contexts/.eu/schemas/ids/1?subject=a",
                "/schemas/ids/1?subject=%3A.eu%3Aa",
            ),
            (
                "/contexts/.eu/schemas/ids/1?format=x&deleted",
                "/schemas/ids/1?format=x&deleted&subject=%3A.eu%3A",
            ),
            (
                "/contexts/./schemas/ids/1",
                "/schemas/ids/1?subject=%3A.%3A",
            ),
            ("/contexts/.eu/config", "/config/%3A.eu%3A"),
            ("/contexts/.eu/mode/a", "/mode/%3A.eu%3Aa"),
            (
                "/contexts/.eu/compatibility/subjects/a/versions/1",
                "/compatibility/subjects/%3A.eu%3Aa/versions/1",
            ),
        ];
        for (path, expected) in meanings {
            let uri = meant(&path.parse().unwrap()).unwrap();
            assert_eq!(uri.to_string(), expected, "{path}");
        }
        for other in [
            "/subjects/a",
            "/contexts",
            "/contexts/.eu",
            "/contexts/a:b/subjects",
        ] {
            assert_eq!(meant(&other.parse().unwrap()), None, "{other}");
        }
    }
}
