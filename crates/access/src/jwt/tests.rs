//! An issuer made here, and the example of the RFC.

use base::Rng;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

use super::*;

struct Issuer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    jwts: Jwts,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

impl Issuer {
    fn new() -> Self {
        Issuer::with(JwtConfig::default())
    }

    /// One whose tokens are read as `config` says.
    fn with(config: JwtConfig) -> Self {
        let random = SystemRandom::new();
        let (key, set) = key_pair(&random);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwks.json");
        std::fs::write(&path, set).unwrap();
        let config = JwtConfig {
            jwks: Some(path.clone()),
            issuer: Some("https://id.example.org".to_owned()),
            audience: Some("thalweg".to_owned()),
            ..config
        };
        Issuer {
            jwts: Jwts::open(config).unwrap().unwrap(),
            key,
            random,
            path,
            _folder: folder,
        }
    }

    fn who(&self, now: UnixMillis, token: &str) -> Result<Principal, &'static str> {
        let bearer = self.jwts.check(now, token);
        bearer.map(|(bearer, _)| bearer.principal)
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(&self.random, signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }
}

fn key_pair(random: &SystemRandom) -> (EcdsaKeyPair, String) {
    let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(kind, random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), random).unwrap();
    let point = key.public_key().as_ref();
    let coordinate = |at: usize| URL_SAFE_NO_PAD.encode(&point[at..at + COORDINATE_BYTES]);
    let set = json!({"keys": [
        {"kty": "oct", "k": "AAAA"},
        {"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig",
         "x": coordinate(1), "y": coordinate(1 + COORDINATE_BYTES)},
    ]});
    (key, set.to_string())
}

fn good() -> Value {
    json!({"iss": "https://id.example.org", "aud": ["other", "thalweg"], "sub": "ann",
           "exp": NOW.0 / 1_000 + 60, "nbf": NOW.0 / 1_000})
}

#[test]
fn a_token_of_the_issuer_names_its_caller_until_it_expires() {
    let issuer = Issuer::new();
    let es256 = json!({"alg": "ES256", "kid": "one"});
    let token = issuer.sign(&es256, &good());
    let later = NOW + Duration::from_secs(60) + LEEWAY;
    for _ in 0..2 {
        assert_eq!(issuer.who(NOW, &token), Ok(Principal::user("ann")));
        let (_, until) = issuer.jwts.check(NOW, &token).unwrap();
        assert_eq!(until, later);
    }
    assert_eq!(
        issuer.jwts.check(later, &token),
        Err("the token has expired")
    );
    let cases = [
        ("exp", json!(null), "the token has no expiry"),
        ("exp", json!(NOW.0 / 1_000 - 31), "the token has expired"),
        (
            "nbf",
            json!(NOW.0 / 1_000 + 40),
            "the token is not good yet",
        ),
        (
            "iss",
            json!("https://evil"),
            "the token is by another issuer",
        ),
        ("aud", json!("other"), "the token is for somebody else"),
        ("sub", json!(""), "the token names nobody"),
        ("sub", json!(7), "the token names nobody"),
    ];
    for (claim, value, refusal) in cases {
        let mut claims = good();
        claims[claim] = value;
        let token = issuer.sign(&es256, &claims);
        assert_eq!(issuer.jwts.check(NOW, &token), Err(refusal), "{claim}");
    }
}

#[test]
fn a_claim_can_name_the_callers_tenant() {
    let issuer = Issuer::with(JwtConfig {
        tenant_claim: Some("org".to_owned()),
        ..JwtConfig::default()
    });
    let check = |tenant: Value| {
        let mut claims = good();
        claims["org"] = tenant;
        let token = issuer.sign(&json!({"alg": "ES256", "kid": "one"}), &claims);
        issuer.who(NOW, &token)
    };
    assert_eq!(check(json!("acme")), Ok(Principal::user("acme/ann")));
    for none in [json!(null), json!(""), json!("a/b"), json!("*"), json!(7)] {
        assert_eq!(
            check(none.clone()),
            Err("the token names no tenant"),
            "{none}"
        );
    }
}

#[test]
fn a_claim_can_name_the_callers_groups() {
    let claims = |of: Value| {
        let mut claims = good();
        claims["realm_access"] = json!({"roles": of});
        claims
    };
    for (claim, of, expected) in [
        (
            Some("realm_access.roles"),
            json!(["a", 7, "b"]),
            vec!["a", "b"],
        ),
        (Some("realm_access.roles"), json!("a"), vec!["a"]),
        (Some("realm_access.roles"), json!(null), vec![]),
        (Some("sub"), json!([]), vec!["ann"]),
        (Some("groups"), json!(["a"]), vec![]),
        (None, json!(["a"]), vec![]),
    ] {
        let issuer = Issuer::with(JwtConfig {
            groups_claim: claim.map(str::to_owned),
            ..JwtConfig::default()
        });
        let token = issuer.sign(&json!({"alg": "ES256"}), &claims(of));
        // The second time it is remembered.
        for _ in 0..2 {
            let (bearer, _) = issuer.jwts.check(NOW, &token).unwrap();
            assert_eq!(*bearer.groups, expected, "{claim:?}");
        }
    }
}

#[tokio::test]
async fn keys_that_the_issuer_is_asked_for_are_taken_later() {
    let (issuer, random) = (Issuer::new(), SystemRandom::new());
    let jwts = Jwts::open(JwtConfig {
        discover: true,
        issuer: Some("https://id.example.org".to_owned()),
        ..JwtConfig::default()
    });
    let jwts = jwts.unwrap().unwrap();
    assert_eq!(jwts.asked_issuer(), Some("https://id.example.org"));
    let token = issuer.sign(&json!({"alg": "ES256"}), &good());
    assert!(jwts.check(NOW, &token).is_err());
    // Somebody showed a token that no known key has signed.
    jwts.stale().await;
    let keys = std::fs::read(&issuer.path).unwrap();
    assert_eq!(jwts.take_keys(&keys), Ok(1));
    assert!(jwts.check(NOW, &token).is_ok());
    assert!(jwts.take_keys(b"{}").is_err());
    assert!(jwts.check(NOW, &token).is_ok());
    jwts.take_keys(key_pair(&random).1.as_bytes()).unwrap();
    assert!(jwts.check(NOW, &token).is_err());
}

#[test]
fn what_no_key_of_the_issuer_signed_is_refused() {
    let (issuer, other) = (Issuer::new(), Issuer::new());
    let es256 = json!({"alg": "ES256", "kid": "one"});
    let unsigned = "no key of the issuer has signed the token";
    let refused = |token: &str| issuer.who(NOW, token);
    assert_eq!(refused(&other.sign(&es256, &good())), Err(unsigned));
    for alg in ["none", "HS256", "RS256", "es256", ""] {
        let token = issuer.sign(&json!({"alg": alg}), &good());
        assert_eq!(refused(&token), Err(unsigned), "{alg}");
    }
    let unknown = json!({"alg": "ES256", "kid": "two"});
    assert_eq!(refused(&issuer.sign(&unknown, &good())), Err(unsigned));
    let critical = json!({"alg": "ES256", "crit": ["b64"]});
    assert!(refused(&issuer.sign(&critical, &good())).is_err());
    let token = issuer.sign(&es256, &good());
    assert!(refused(&token).is_ok());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let mut claims = good();
    claims["sub"] = json!("root");
    let forged = URL_SAFE_NO_PAD.encode(claims.to_string());
    let (header, _) = signed.split_once('.').unwrap();
    assert_eq!(
        refused(&format!("{header}.{forged}.{signature}")),
        Err(unsigned)
    );
    for end in 0..token.len() {
        assert!(refused(&token[..end]).is_err(), "{end}");
    }
    for text in [
        "",
        ".",
        "..",
        "a.b.c",
        "....",
        &"x".repeat(JWT_BYTES_MAX + 1),
    ] {
        assert!(refused(text).is_err());
    }
}

#[test]
fn a_token_with_any_byte_changed_is_refused() {
    let issuer = Issuer::new();
    let token = issuer.sign(&json!({"alg": "ES256"}), &good());
    for seed in 0..2_000 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = token.clone().into_bytes();
        let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
        bytes[at] = u8::try_from(rng.below(128)).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            issuer.jwts.check(NOW, &text).is_ok(),
            text == token,
            "{text}"
        );
    }
}

#[test]
fn a_login_takes_the_token_that_was_made_for_it() {
    let issuer = Issuer::new();
    let token = |nonce: Value| {
        let mut claims = good();
        claims["nonce"] = nonce;
        issuer.sign(&json!({"alg": "ES256"}), &claims)
    };
    let check = |token: &str| issuer.jwts.check_login(NOW, token, "this one");
    let signed_in = check(&token(json!("this one"))).unwrap();
    assert!(signed_in.until > NOW);
    assert_eq!(Some(&*signed_in.subject), good()["sub"].as_str());
    for other in [json!("another"), Value::Null, json!(["this one"])] {
        let refused = check(&token(other));
        assert_eq!(refused, Err("the token was made for another login"));
    }
    let mut expired = good();
    expired["nonce"] = json!("this one");
    expired["exp"] = json!(1);
    let expired = issuer.sign(&json!({"alg": "ES256"}), &expired);
    assert_eq!(check(&expired), Err("the token has expired"));
    let mut nobody = good();
    nobody["nonce"] = json!("this one");
    nobody["sub"] = Value::Null;
    let nobody = issuer.sign(&json!({"alg": "ES256"}), &nobody);
    assert!(check(&nobody).is_err());
}

#[test]
fn a_renewed_token_is_of_the_same_login() {
    let issuer = Issuer::new();
    let renewed = |nonce: Value, subject: &str| {
        let mut claims = good();
        claims["nonce"] = nonce;
        let token = issuer.sign(&json!({"alg": "ES256"}), &claims);
        issuer.jwts.check_renewed(NOW, &token, "this one", subject)
    };
    let good = good();
    let subject = good["sub"].as_str().unwrap();
    for nonce in [Value::Null, json!("this one")] {
        assert!(renewed(nonce.clone(), subject).is_ok_and(|token| token.subject == subject));
        let other = renewed(nonce, "somebody else");
        assert_eq!(other, Err("the token was made for another login"));
    }
    let other = renewed(json!("another"), subject);
    assert_eq!(other, Err("the token was made for another login"));
}

#[test]
fn new_keys_end_what_the_old_ones_signed() {
    let issuer = Issuer::new();
    let token = issuer.sign(&json!({"alg": "ES256"}), &good());
    assert!(issuer.jwts.check(NOW, &token).is_ok());
    std::fs::write(&issuer.path, "{}").unwrap();
    assert!(issuer.jwts.reload().is_err());
    assert!(issuer.jwts.check(NOW, &token).is_ok());
    std::fs::write(&issuer.path, key_pair(&issuer.random).1).unwrap();
    issuer.jwts.reload().unwrap();
    assert!(issuer.jwts.check(NOW, &token).is_err());
}

#[test]
fn rs256_is_checked_as_rfc_7515_has_it() {
    // Appendix A.2 of RFC 7515: the key, and a token that expired in 2011.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1\
             Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSH\
             SXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_\
             I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let set = json!({"keys": [{"kty": "RSA", "n": n, "e": "AQAB"}]});
    std::fs::write(&path, set.to_string()).unwrap();
    let config = JwtConfig {
        jwks: Some(path),
        principal_claim: "iss".to_owned(),
        ..JwtConfig::default()
    };
    let jwts = Jwts::open(config).unwrap().unwrap();
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly\
                 9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr\
                 9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAy\
                 nRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_\
                 dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98r\
                 qVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let before = UnixMillis(1_300_819_379_000);
    let joe = jwts
        .check(before, token)
        .map(|(bearer, _)| bearer.principal);
    assert_eq!(joe, Ok(Principal::user("joe")));
    assert_eq!(jwts.check(NOW, token), Err("the token has expired"));
}
