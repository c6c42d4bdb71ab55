//! Azure's Shared Key authorization, version 2015-02-21 and later, without IO.

use ring::hmac;

use crate::object_storage::base64;

/// What is signed.
#[derive(Clone, Debug)]
pub(crate) struct Signed<'r> {
    pub(crate) method: &'r str,
    /// Names in small letters.
    pub(crate) headers: &'r [(String, String)],
    /// Bytes of the body.
    pub(crate) len: u64,
    /// Percent-encoded, with its slash before it.
    pub(crate) path: &'r str,
    /// Names in small letters, values as they are meant.
    pub(crate) query: &'r [(&'r str, String)],
}

/// The value of the header `Authorization`.
pub(crate) fn authorization(account: &str, key: &[u8], signed: &Signed<'_>) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, text_to_sign(account, signed).as_bytes());
    format!("SharedKey {account}:{}", base64(tag))
}

fn text_to_sign(account: &str, signed: &Signed<'_>) -> String {
    let mut text = format!("{}\n", signed.method);
    for name in LINES {
        if name == "content-length" && signed.len > 0 {
            text += &signed.len.to_string();
        }
        let found = signed.headers.iter().find(|(known, _)| known == name);
        text += found.map_or("", |(_, value)| value.trim());
        text.push('\n');
    }
    let is_theirs = |name: &str| name.starts_with("x-ms-");
    let theirs = signed.headers.iter().filter(|(name, _)| is_theirs(name));
    let mut theirs: Vec<&(String, String)> = theirs.collect();
    theirs.sort();
    for (name, value) in theirs {
        text += &format!("{name}:{}\n", value.trim());
    }
    text += &format!("/{account}{}", signed.path);
    let mut query: Vec<&(&str, String)> = signed.query.iter().collect();
    query.sort();
    for (name, value) in query {
        text += &format!("\n{name}:{value}");
    }
    text
}

/// Headers of which each has a line, in this order.
const LINES: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_storage::base64_bytes;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// The first is the documentation's example, which names no key.
    #[test]
    fn a_request_gives_the_text_that_is_documented() {
        let listing = Signed {
            method: "GET",
            headers: &[
                pair("x-ms-version", "2015-02-21"),
                pair("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
            ],
            len: 0,
            path: "/mycontainer",
            query: &[
                ("restype", "container".to_owned()),
                ("comp", "metadata".to_owned()),
                ("timeout", "20".to_owned()),
            ],
        };
        assert_eq!(
            text_to_sign("myaccount", &listing),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\n\
             x-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\n\
             restype:container\ntimeout:20"
        );
        let put = Signed {
            method: "PUT",
            headers: &[
                pair("content-type", "text/plain; charset=UTF-8"),
                pair("x-ms-version", "2015-02-21"),
                pair("x-ms-date", "Sun, 02 Aug 2009 17:30:45 GMT"),
                pair("x-ms-meta-m1", "v1"),
            ],
            len: 11,
            path: "/mycontainer/hello.txt",
            query: &[],
        };
        assert_eq!(
            text_to_sign("myaccount", &put),
            "PUT\n\n\n11\n\ntext/plain; charset=UTF-8\n\n\n\n\n\n\n\
             x-ms-date:Sun, 02 Aug 2009 17:30:45 GMT\nx-ms-meta-m1:v1\n\
             x-ms-version:2015-02-21\n/myaccount/mycontainer/hello.txt"
        );
    }

    /// Computed by `openssl dgst -sha256 -mac HMAC` from the text and the key.
    #[test]
    fn a_text_gets_the_signature_that_others_compute() {
        let key = base64_bytes("c2VjcmV0IG9mIHRoZSBhY2NvdW50").unwrap();
        let signed = Signed {
            method: "GET",
            headers: &[
                pair("range", "bytes=0-9"),
                pair("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
                pair("x-ms-version", "2020-10-02"),
            ],
            len: 0,
            path: "/box/a%20b",
            query: &[("comp", "list".to_owned())],
        };
        assert_eq!(
            authorization("myaccount", &key, &signed),
            "SharedKey myaccount:UJzZxZQ1zOPcFoJASNvJj/6+q5yRbR+rOQGS3iPXsQ8="
        );
    }
}
