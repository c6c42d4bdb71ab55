//! JSON for people, in the order that it has.

/// JSON with a line for each field and item, in the order that they have.
pub fn broken_into_lines(json: &str) -> String {
    let mut lines = String::with_capacity(json.len() * 2);
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let end_line = |lines: &mut String, depth: usize| {
        lines.push('\n');
        lines.extend(std::iter::repeat_n("  ", depth));
    };
    for letter in json.chars() {
        if is_text {
            lines.push(letter);
            is_text = is_escaped || letter != '"';
            is_escaped = !is_escaped && letter == '\\';
            continue;
        }
        let is_empty = lines.ends_with(['{', '[']);
        match letter {
            ' ' | '\t' | '\r' | '\n' => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !is_empty {
                    end_line(&mut lines, depth);
                }
            }
            _ if is_empty => end_line(&mut lines, depth),
            _ => {}
        }
        lines.push(letter);
        match letter {
            '"' => is_text = true,
            '{' | '[' => depth += 1,
            ',' => end_line(&mut lines, depth),
            ':' => lines.push(' '),
            _ => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_broken_into_lines_in_its_order() {
        let broken = broken_into_lines(r#"{"b": [1,{}, "x\",{"], "a":{"c":[]}}"#);
        let expected = r#"{
  "b": [
    1,
    {},
    "x\",{"
  ],
  "a": {
    "c": []
  }
}"#;
        assert_eq!(broken, expected);
    }
}
