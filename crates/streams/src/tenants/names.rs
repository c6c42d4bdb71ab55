//! The names of a tenant's topics: `….TENANT.EVENT`, or `imports-TENANT`, where a collection that
//! several share stands in the tenant's place.

use access::IMPORTS_TOPIC;

/// What stands around a tenant, or a collection, in the name of a topic, see [`access::OfTopic`].
pub(super) fn around<'t>(topic: &'t str, part: &str) -> Option<(&'t str, &'t str)> {
    if topic.strip_prefix(IMPORTS_TOPIC) == Some(part) {
        return Some((IMPORTS_TOPIC, ""));
    }
    let (first, behind_first) = topic.split_once('.')?;
    let (second, behind_second) = behind_first.split_once('.')?;
    let begins = match behind_second.split_once('.') {
        Some((third, _)) if third == part => first.len() + second.len() + 2,
        _ if second == part => first.len() + 1,
        _ => return None,
    };
    Some((&topic[..begins], &topic[begins + part.len()..]))
}

/// What a topic's records are about, whosever they are.
pub(super) fn event<'t>(topic: &'t str, part: &str) -> &'t str {
    match around(topic, part) {
        Some((IMPORTS_TOPIC, "")) => IMPORTS_TOPIC.trim_end_matches('-'),
        Some((_, behind)) => behind.trim_start_matches('.'),
        None => topic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_stands_in_the_tenants_place() {
        for (topic, shared, of) in [
            (
                "folio.Default.diku.ORDERS",
                Some("folio.Default.ALL.ORDERS"),
                "ORDERS",
            ),
            ("folio.diku.a.b", Some("folio.ALL.a.b"), "a.b"),
            ("imports-diku", Some("imports-ALL"), "imports"),
            ("imports-dikus", None, "imports-dikus"),
            ("diku", None, "diku"),
        ] {
            let renamed =
                around(topic, "diku").map(|(before, behind)| format!("{before}ALL{behind}"));
            assert_eq!(renamed.as_deref(), shared, "{topic}");
            assert_eq!(event(topic, "diku"), of, "{topic}");
        }
    }
}
