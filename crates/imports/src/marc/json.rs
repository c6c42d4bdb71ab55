//! MARC-in-JSON: `{"leader": …, "fields": [{"001": …}, {"245": {"subfields": [{"a": …}],
//! "ind1": "0", "ind2": "0"}}]}`, as Ross Singer proposed it and pymarc, marc4j and ruby-marc write
//! it.

use super::MarcRecord;

/// Appends the record as compact JSON text.
pub(crate) fn write_json(record: &MarcRecord<'_>, out: &mut String) {
    out.push_str("{\"leader\":");
    quote(&record.leader, out);
    out.push_str(",\"fields\":[");
    for (index, field) in record.fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push('{');
        quote(&field.tag, out);
        out.push(':');
        if field.is_text() {
            quote(&field.data, out);
        } else {
            out.push_str("{\"subfields\":[");
            for (index, (code, text)) in field.subfields().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push('{');
                quote(code.encode_utf8(&mut [0; 4]), out);
                out.push(':');
                quote(text, out);
                out.push('}');
            }
            let [first, second] = field.indicators();
            out.push_str("],\"ind1\":");
            quote(first.encode_utf8(&mut [0; 4]), out);
            out.push_str(",\"ind2\":");
            quote(second.encode_utf8(&mut [0; 4]), out);
            out.push('}');
        }
        out.push('}');
    }
    out.push_str("]}");
}

/// Appends `text` as a JSON string; whole runs of plain characters are copied at once.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0..0x20 => "",
            _ => continue,
        };
        out.push_str(&text[plain..at]);
        plain = at + 1;
        if escape.is_empty() {
            out.push_str("\\u00");
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 0xf)]));
        } else {
            out.push_str(escape);
        }
    }
    out.push_str(&text[plain..]);
    out.push('"');
}

const HEX: &[u8; 16] = b"0123456789abcdef";
