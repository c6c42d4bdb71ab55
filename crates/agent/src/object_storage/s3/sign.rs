//! AWS Signature Version 4, in a request's header, without IO.

use std::fmt;

use ring::{digest, hmac};

/// Who signs.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Of temporary credentials.
    pub(crate) session_token: Option<String>,
}

/// What is signed.
#[derive(Clone, Debug)]
pub(crate) struct Signed<'r> {
    pub(crate) method: &'r str,
    /// Percent-encoded, with its slash before it.
    pub(crate) path: &'r str,
    /// Percent-encoded pairs in order of their names, joined.
    pub(crate) query: &'r str,
    /// Names in small letters, in order.
    pub(crate) headers: &'r [(String, String)],
    /// SHA-256 of the body in hexadecimal.
    pub(crate) payload: &'r str,
    /// `20130524T000000Z`.
    pub(crate) time: &'r str,
    pub(crate) region: &'r str,
}

/// The value of the header `Authorization`.
pub(crate) fn authorization(credentials: &Credentials, signed: &Signed<'_>) -> String {
    let date = signed.time.get(..8).unwrap_or_default();
    let names: Vec<&str> = signed
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let names = names.join(";");
    let mut headers = String::new();
    for (name, value) in signed.headers {
        // Blanks within a value count as one.
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        headers += &format!("{name}:{}\n", words.join(" "));
    }
    let request = format!(
        "{}\n{}\n{}\n{headers}\n{names}\n{}",
        signed.method, signed.path, signed.query, signed.payload
    );
    let scope = format!("{date}/{}/s3/aws4_request", signed.region);
    let text = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        signed.time,
        hash(request.as_bytes())
    );
    let mut key = hmac_of(format!("AWS4{}", credentials.secret_key).as_bytes(), date);
    for part in [signed.region, "s3", "aws4_request"] {
        key = hmac_of(key.as_ref(), part);
    }
    let signature = hexadecimal(hmac_of(key.as_ref(), &text).as_ref());
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope},SignedHeaders={names},Signature={signature}",
        credentials.access_key
    )
}

/// SHA-256 in hexadecimal.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hexadecimal(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// Bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac_of(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secret: this goes into logs.
        write!(f, "Credentials({})", self.access_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the signature's documentation.
    #[test]
    fn the_documented_requests_get_the_documented_signatures() {
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let empty = hash(b"");
        let check = |path: &str, query: &str, more: &[(&str, &str)], signature: &str| {
            let mut headers = vec![
                (
                    "host".to_owned(),
                    "examplebucket.s3.amazonaws.com".to_owned(),
                ),
                ("x-amz-content-sha256".to_owned(), empty.clone()),
                ("x-amz-date".to_owned(), "20130524T000000Z".to_owned()),
            ];
            headers.extend(more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
            headers.sort();
            let signed = Signed {
                method: "GET",
                path,
                query,
                headers: &headers,
                payload: &empty,
                time: "20130524T000000Z",
                region: "us-east-1",
            };
            let text = authorization(&credentials, &signed);
            assert!(text.ends_with(&format!("Signature={signature}")), "{text}");
        };
        check(
            "/test.txt",
            "",
            &[("range", "bytes=0-9")],
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        );
        check(
            "/",
            "lifecycle=",
            &[],
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        );
        check(
            "/",
            "max-keys=2&prefix=J",
            &[],
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        );
    }
}
