//! Just as much of XML as storages' answers need: flat elements and their text, without IO.

/// The text of each element `name`, markup and all, wherever it stands.
pub(crate) fn elements<'x>(text: &'x str, name: &str) -> Vec<&'x str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(&open) {
        let Some((inside, behind)) = behind.split_once(&close) else {
            break;
        };
        found.push(inside);
        rest = behind;
    }
    found
}

/// The text of the first element `name`, its escapes read.
pub(crate) fn text(xml: &str, name: &str) -> Option<String> {
    elements(xml, name).first().map(|text| unescape(text))
}

/// Writes text so that it can stand in an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let Some((name, behind)) = behind.split_once(';') else {
            out.push('&');
            rest = behind;
            continue;
        };
        let number = name
            .strip_prefix('#')
            .and_then(|number| match number.strip_prefix('x') {
                Some(digits) => u32::from_str_radix(digits, 16).ok(),
                None => number.parse().ok(),
            });
        match name {
            "amp" => out.push('&'),
            "lt" => out.push('<'),
            "gt" => out.push('>'),
            "quot" => out.push('"'),
            "apos" => out.push('\''),
            _ => match number.and_then(char::from_u32) {
                Some(c) => out.push(c),
                None => out.push_str(&format!("&{name};")),
            },
        }
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_their_text_are_found() {
        let xml = "<L><K>a&amp;b&#10;&quot;&#x41;</K><C><K>2</K></C><C>x</C><E/></L>";
        assert_eq!(text(xml, "K").as_deref(), Some("a&b\n\"A"));
        assert_eq!(elements(xml, "C"), ["<K>2</K>", "x"]);
        assert_eq!(text(xml, "E"), None);
        assert_eq!(text("<K>open", "K"), None);
        assert_eq!(
            unescape("a & b &nope; &#99999999;"),
            "a & b &nope; &#99999999;"
        );
        assert_eq!(unescape(&escape("<a&b>")), "<a&b>");
    }
}
