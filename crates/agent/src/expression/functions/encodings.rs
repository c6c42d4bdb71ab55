//! Escapes, encodings, hashes and ids made of names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::entities::{self, Dialect};
use super::{Function, Given, on};
use crate::expression::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    on("escapeJson", 0, 0, |given| {
        let quoted = crate::json::Json::Text(given.text()).to_text();
        Ok(Value::Text(quoted[1..quoted.len() - 1].to_owned()))
    }),
    on("unescapeJson", 0, 0, |given| {
        // What stands between two quotes; one that is not escaped may stand there too.
        let text = unescape_json(&given.text())?;
        Ok(Value::Text(text))
    }),
    on("escapeXml", 0, 0, |given| escaped(&given, Dialect::Xml)),
    on("unescapeXml", 0, 0, |given| unescaped(&given, Dialect::Xml)),
    on("escapeHtml3", 0, 0, |given| escaped(&given, Dialect::Html3)),
    on("unescapeHtml3", 0, 0, |given| {
        unescaped(&given, Dialect::Html3)
    }),
    on("escapeHtml4", 0, 0, |given| escaped(&given, Dialect::Html4)),
    on("unescapeHtml4", 0, 0, |given| {
        unescaped(&given, Dialect::Html4)
    }),
    on("escapeCsv", 0, 0, |given| {
        let text = given.text();
        Ok(Value::Text(if text.contains(CSV_SPECIAL) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text
        }))
    }),
    on("unescapeCsv", 0, 0, |given| {
        let text = given.text();
        let inner = text
            .strip_prefix('"')
            .and_then(|text| text.strip_suffix('"'))
            // Quotes that nothing needed are the text's own.
            .filter(|inner| inner.contains(CSV_SPECIAL));
        Ok(Value::Text(match inner {
            Some(inner) => inner.replace("\"\"", "\""),
            None => text,
        }))
    }),
    on("urlEncode", 0, 0, |given| {
        let mut out = String::new();
        for byte in given.text().bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    out.push(char::from(byte));
                }
                _ => out.push_str(&format!("%{byte:02X}")),
            }
        }
        Ok(Value::Text(out))
    }),
    on("urlDecode", 0, 0, |given| {
        let text = given.text();
        let (mut out, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, tail @ ..] = rest {
            let decoded = match tail {
                [high, low, ..] if *first == b'%' => hex(*high).zip(hex(*low)),
                _ => None,
            };
            match decoded {
                Some((high, low)) => {
                    out.push(high << 4 | low);
                    rest = &tail[2..];
                }
                None => {
                    out.push(*first);
                    rest = tail;
                }
            }
        }
        text_of(out)
    }),
    on("base64Encode", 0, 0, |given| {
        Ok(Value::Text(STANDARD.encode(given.text())))
    }),
    on("base64Decode", 0, 0, |given| {
        let text = given.text();
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|error| format!("'{text}' is no base64: {error}"))?;
        text_of(bytes)
    }),
    on("hash", 1, 1, |mut given| {
        let algorithm = given.argument(0);
        let text = given.text();
        Ok(Value::Text(hex_of(&digest(&algorithm, text.as_bytes())?)))
    }),
    on("UUID3", 1, 1, |mut given| {
        let named = given.named_by_namespace()?;
        let hash = digest("MD5", &named)?;
        Ok(Value::Text(uuid_of(&hash, uuid::Builder::from_md5_bytes)))
    }),
    on("UUID5", 1, 1, |mut given| {
        let named = given.named_by_namespace()?;
        let hash = digest("SHA-1", &named)?;
        Ok(Value::Text(uuid_of(&hash, uuid::Builder::from_sha1_bytes)))
    }),
];

impl Given<'_> {
    /// The namespace's bytes and the subject behind them.
    fn named_by_namespace(&mut self) -> Result<Vec<u8>, String> {
        let text = self.argument(0);
        let namespace: uuid::Uuid = text
            .trim()
            .parse()
            .map_err(|_| format!("'{text}' is no UUID to be the namespace"))?;
        let mut bytes = namespace.as_bytes().to_vec();
        bytes.extend_from_slice(self.text().as_bytes());
        Ok(bytes)
    }
}

fn escaped(given: &Given<'_>, dialect: Dialect) -> Result<Value, String> {
    Ok(Value::Text(entities::escape(&given.text(), dialect)))
}

fn unescaped(given: &Given<'_>, dialect: Dialect) -> Result<Value, String> {
    Ok(Value::Text(entities::unescape(&given.text(), dialect)))
}

fn unescape_json(text: &str) -> Result<String, String> {
    let mut quoted = String::from("\"");
    let mut is_escaped = false;
    for c in text.chars() {
        match c {
            '"' if !is_escaped => quoted.push_str("\\\""),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ => quoted.push(c),
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    quoted.push('"');
    serde_json::from_str(&quoted).map_err(|error| format!("'{text}' has a bad escape: {error}"))
}

fn digest(algorithm: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    use md5::Digest;
    use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384, SHA512, SHA512_256, digest};
    let known = match algorithm.to_ascii_uppercase().as_str() {
        "MD5" => return Ok(md5::Md5::digest(bytes).to_vec()),
        "SHA-1" | "SHA1" | "SHA" => &SHA1_FOR_LEGACY_USE_ONLY,
        "SHA-256" | "SHA256" => &SHA256,
        "SHA-384" | "SHA384" => &SHA384,
        "SHA-512" | "SHA512" => &SHA512,
        "SHA-512/256" => &SHA512_256,
        _ => {
            return Err(format!(
                "'{algorithm}' is none of MD5, SHA-1, SHA-256, SHA-384, SHA-512, SHA-512/256"
            ));
        }
    };
    Ok(digest(known, bytes).as_ref().to_vec())
}

fn uuid_of(hash: &[u8], build: fn([u8; 16]) -> uuid::Builder) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    build(bytes).into_uuid().to_string()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

fn text_of(bytes: Vec<u8>) -> Result<Value, String> {
    String::from_utf8(bytes)
        .map(Value::Text)
        .map_err(|_| "the result is no UTF-8 text".to_owned())
}

/// What makes quotes needed.
const CSV_SPECIAL: [char; 4] = [',', '"', '\r', '\n'];
