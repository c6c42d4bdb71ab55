//! The cookies of a sign-in. No script reads them, and they go to this port alone.

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

/// A cookie that is set, or with no seconds left forgotten.
pub struct Cookie<'a> {
    name: &'static str,
    value: &'a str,
    path: &'static str,
    /// `Lax`: it comes along when the issuer sends the browser back.
    same_site: &'static str,
    seconds: u64,
}

impl<'a> Cookie<'a> {
    /// The secrets of a sign-in under way.
    pub fn signing_in(value: &'a str, seconds: u64) -> Cookie<'a> {
        Cookie {
            name: SIGNING_IN,
            value,
            path: "/api/v1/sign-in",
            same_site: "Lax",
            seconds,
        }
    }

    /// The token of whoever signed in.
    pub fn login(value: &'a str, seconds: u64) -> Cookie<'a> {
        Cookie {
            name: LOGIN,
            value,
            path: "/",
            same_site: "Strict",
            seconds,
        }
    }

    /// What a login is renewed by, sealed; it goes only where that is done.
    pub fn renewal(value: &'a str, seconds: u64) -> Cookie<'a> {
        Cookie {
            name: RENEWAL,
            value,
            path: "/api/v1/sign-in",
            same_site: "Strict",
            seconds,
        }
    }

    /// The value of `Set-Cookie`.
    pub fn set(&self, is_secure: bool) -> String {
        let Cookie {
            name,
            value,
            path,
            same_site,
            seconds,
        } = self;
        let secure = if is_secure { "; Secure" } else { "" };
        format!(
            "{name}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite={same_site}{secure}"
        )
    }
}

/// The value of the cookie `name` that a request brings; where there are several, the first.
pub fn value_of(headers: &HeaderMap, name: &str) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter();
    let texts = lines.filter_map(|line| line.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name && !value.is_empty()).then(|| value.to_owned())
    })
}

/// The cookie of a sign-in under way.
pub const SIGNING_IN: &str = "thalweg_signing_in";
/// The cookie of whoever signed in.
pub const LOGIN: &str = "thalweg_login";
/// The cookie of what a login is renewed by.
pub const RENEWAL: &str = "thalweg_renewal";
/// Browsers take 4,096 bytes of a cookie with its name and attributes.
pub const VALUE_BYTES_MAX: usize = 3_900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_comes_back() {
        let set = Cookie::login("a.b-c_d", 60).set(true);
        assert_eq!(
            set,
            "thalweg_login=a.b-c_d; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
        );
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "x=1; thalweg_login=a.b-c_d;y".parse().unwrap());
        assert_eq!(value_of(&headers, LOGIN).as_deref(), Some("a.b-c_d"));
        assert_eq!(value_of(&headers, SIGNING_IN), None);
        headers.insert(COOKIE, "thalweg_login=".parse().unwrap());
        assert_eq!(value_of(&headers, LOGIN), None);
    }
}
