//! JSON Web Tokens that somebody else issued (RFC 7519), checked against the issuer's keys.
//!
//! Only signatures by RS256 and ES256 are taken, each only by a key of its own kind: which
//! algorithm is used is the key's to say, never the token's. A token needs an expiry, and the
//! issuer and audience where those are configured. The keys lie in a file, or the issuer tells them
//! (OpenID Connect Discovery): then whoever opened [`Jwts`] fetches them when it asks. What was good is remembered by its hash until
//! it expires, as checking a signature takes some 50 microseconds.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{TenantId, UnixMillis};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::{Mutex, RwLock};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;

use crate::limits::{
    JWKS_BYTES_MAX, JWKS_KEYS_MAX, JWT_BYTES_MAX, JWT_GROUPS_MAX, JWTS_VERIFIED_MAX, NAME_BYTES_MAX,
};
use crate::token::TokenHash;
use crate::{AccessError, Principal};

/// Whose tokens are taken; nobody's without keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtConfig {
    /// File with the issuer's public keys, a JSON Web Key Set (RFC 7517).
    pub jwks: Option<PathBuf>,
    /// Asks the issuer for its keys instead: `issuer` is then an address, under which
    /// `/.well-known/openid-configuration` lies.
    pub discover: bool,
    /// What the claim `iss` has to be; not looked at when absent.
    pub issuer: Option<String>,
    /// What the claim `aud` has to be, or to hold; not looked at when absent.
    pub audience: Option<String>,
    /// The claim that becomes the caller's name.
    pub principal_claim: String,
    /// The claim that names the caller's tenant, which then stands before the name:
    /// `User:acme/ann`. A token without it is refused; no tenants when absent.
    pub tenant_claim: Option<String>,
    /// The claim that holds the caller's groups, a list of texts or one text, which
    /// `access.roles` gives roles to; dots lead into objects: `realm_access.roles`.
    pub groups_claim: Option<String>,
}

/// Whom a token stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bearer {
    /// Who.
    pub principal: Principal,
    /// The groups that the issuer says they are in.
    pub groups: Arc<[String]>,
}

/// What an ID token of a login says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedIn {
    /// Whom the issuer signed in, by the claim `sub`.
    pub subject: String,
    /// Until when the token is good.
    pub until: UnixMillis,
}

/// Checks JSON Web Tokens.
pub struct Jwts {
    config: JwtConfig,
    keys: RwLock<Arc<Vec<Key>>>,
    /// Told when a token was shown that no known key has signed.
    stale: Notify,
    verified: Mutex<HashMap<TokenHash, Verified>>,
}

struct Verified {
    bearer: Bearer,
    until: UnixMillis,
}

struct Key {
    id: Option<String>,
    public: Public,
}

enum Public {
    /// Modulus and exponent.
    Rsa(Vec<u8>, Vec<u8>),
    /// An uncompressed point on P-256.
    P256(Vec<u8>),
}

impl Default for JwtConfig {
    fn default() -> Self {
        JwtConfig {
            jwks: None,
            discover: false,
            issuer: None,
            audience: None,
            principal_claim: "sub".to_owned(),
            tenant_claim: None,
            groups_claim: None,
        }
    }
}

impl Jwts {
    /// Reads the issuer's keys from their file, or waits for [`Jwts::take_keys`]; none when neither
    /// is configured.
    ///
    /// # Errors
    /// [`AccessError::Jwks`].
    pub fn open(config: JwtConfig) -> Result<Option<Self>, AccessError> {
        let keys = match &config.jwks {
            Some(path) => read_keys(path)?,
            None if config.discover => Vec::new(),
            None => return Ok(None),
        };
        Ok(Some(Jwts {
            config,
            keys: RwLock::new(Arc::new(keys)),
            stale: Notify::new(),
            verified: Mutex::default(),
        }))
    }

    /// The issuer to ask for keys, where it is to be asked.
    pub fn asked_issuer(&self) -> Option<&str> {
        self.config
            .issuer
            .as_deref()
            .filter(|_| self.config.discover)
    }

    /// Waits until keys may be missing: a token was shown that none has signed.
    pub async fn stale(&self) {
        self.stale.notified().await;
    }

    /// Takes the issuer's keys, a JSON Web Key Set; what is wrong with it changes nothing. Answers
    /// how many keys it holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn take_keys(&self, text: &[u8]) -> Result<usize, String> {
        let keys = parse_keys(text)?;
        let count = keys.len();
        self.put_keys(keys);
        Ok(count)
    }

    /// Reads the keys again; what is wrong with them changes nothing.
    ///
    /// # Errors
    /// As [`Jwts::open`].
    pub fn reload(&self) -> Result<(), AccessError> {
        if let Some(path) = &self.config.jwks {
            self.put_keys(read_keys(path)?);
        }
        Ok(())
    }

    fn put_keys(&self, keys: Vec<Key>) {
        *self.keys.write() = Arc::new(keys);
        // What was good by a key that is gone is not good any more.
        self.verified.lock().clear();
    }

    /// Whom the token stands for, when it is good, and until when.
    ///
    /// # Errors
    /// Why it is not, in words that hold nothing of the token.
    pub fn check(
        &self,
        now: UnixMillis,
        token: &str,
    ) -> Result<(Bearer, UnixMillis), &'static str> {
        if token.len() > JWT_BYTES_MAX {
            return Err("the token is too long");
        }
        let hash = TokenHash::of(token);
        if let Some(known) = self.verified.lock().get(&hash)
            && now < known.until
        {
            return Ok((known.bearer.clone(), known.until));
        }
        let keys = Arc::clone(&self.keys.read());
        let claims = self.verify(&keys, token)?;
        let (bearer, until) = self.judge(now, &claims)?;
        let mut verified = self.verified.lock();
        if verified.len() >= JWTS_VERIFIED_MAX {
            verified.retain(|_, known| now < known.until);
        }
        if verified.len() >= JWTS_VERIFIED_MAX {
            verified.clear();
        }
        // Keys that were read again meanwhile have cleared what is known; this is not to survive.
        if Arc::ptr_eq(&keys, &self.keys.read()) {
            let bearer = bearer.clone();
            verified.insert(hash, Verified { bearer, until });
        }
        Ok((bearer, until))
    }

    /// What an ID token says that an issuer gave for a login (OpenID Connect Core 1.0, section
    /// 3.1.3.7): one that is good at all, and was made for this login alone.
    ///
    /// # Errors
    /// As [`Jwts::check`].
    pub fn check_login(
        &self,
        now: UnixMillis,
        token: &str,
        nonce: &str,
    ) -> Result<SignedIn, &'static str> {
        let (claims, signed_in) = self.check_id_token(now, token)?;
        match claims["nonce"].as_str() == Some(nonce) {
            true => Ok(signed_in),
            false => Err("the token was made for another login"),
        }
    }

    /// What an ID token says that an issuer gave in the place of an older one of the same login
    /// (section 12.2): it is for the same subject, and has no nonce or the login's own.
    ///
    /// # Errors
    /// As [`Jwts::check`].
    pub fn check_renewed(
        &self,
        now: UnixMillis,
        token: &str,
        nonce: &str,
        subject: &str,
    ) -> Result<SignedIn, &'static str> {
        let (claims, signed_in) = self.check_id_token(now, token)?;
        let is_same_login = claims["nonce"].is_null() || claims["nonce"].as_str() == Some(nonce);
        match is_same_login && signed_in.subject == subject {
            true => Ok(signed_in),
            false => Err("the token was made for another login"),
        }
    }

    /// The claims of a good token, which names a subject.
    fn check_id_token(
        &self,
        now: UnixMillis,
        token: &str,
    ) -> Result<(Value, SignedIn), &'static str> {
        if token.len() > JWT_BYTES_MAX {
            return Err("the token is too long");
        }
        let keys = Arc::clone(&self.keys.read());
        let claims = self.verify(&keys, token)?;
        let (_, until) = self.judge(now, &claims)?;
        let subject = claims["sub"].as_str().ok_or("the token names no subject")?;
        let subject = subject.to_owned();
        Ok((claims, SignedIn { subject, until }))
    }

    /// The claims of a token whose signature is right.
    fn verify(&self, keys: &[Key], token: &str) -> Result<Value, &'static str> {
        let malformed = "the token is no JSON Web Token";
        let (signed, signature) = token.rsplit_once('.').ok_or(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(malformed)?;
        let header: Header = decode(header).ok_or(malformed)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed)?;
        if header.crit.is_some() {
            return Err("the token asks for an extension that is not known");
        }
        let fitting = keys.iter().filter(|key| {
            let is_named = header.kid.is_none() || key.id.is_none() || key.id == header.kid;
            is_named && key.public.algorithm() == header.alg
        });
        // A set has few keys, but a token without a key's id must not try a hundred.
        let mut tried = fitting.take(KEYS_TRIED_MAX);
        match tried.any(|key| key.public.has_signed(signed.as_bytes(), &signature)) {
            true => decode(claims).ok_or(malformed),
            false => {
                self.stale.notify_one();
                Err("no key of the issuer has signed the token")
            }
        }
    }

    fn judge(&self, now: UnixMillis, claims: &Value) -> Result<(Bearer, UnixMillis), &'static str> {
        let at = |name: &str| claims[name].as_f64().map(|seconds| seconds * 1_000.0);
        let leeway = LEEWAY.as_millis() as f64;
        let now_ms = now.0 as f64;
        let expiry = at("exp").ok_or("the token has no expiry")? + leeway;
        if now_ms >= expiry {
            return Err("the token has expired");
        }
        if at("nbf").is_some_and(|begin| now_ms + leeway < begin) {
            return Err("the token is not good yet");
        }
        if let Some(issuer) = &self.config.issuer
            && claims["iss"].as_str() != Some(issuer)
        {
            return Err("the token is by another issuer");
        }
        if let Some(audience) = &self.config.audience {
            let is_ours = |value: &Value| value.as_str() == Some(audience);
            let several = claims["aud"].as_array();
            let is_among = several.is_some_and(|all| all.iter().any(is_ours));
            if !is_ours(&claims["aud"]) && !is_among {
                return Err("the token is for somebody else");
            }
        }
        let name = claims[&self.config.principal_claim].as_str();
        let name = name.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
        let name = name.ok_or("the token names nobody")?;
        let principal = match &self.config.tenant_claim {
            None => Principal::user(name),
            Some(claim) => {
                let tenant = claims[claim].as_str().and_then(|text| text.parse().ok());
                let tenant: TenantId = tenant.ok_or("the token names no tenant")?;
                let principal = Principal::of_tenant(&tenant, name);
                principal.ok_or("the token names nobody")?
            }
        };
        // A float beyond what the type holds becomes its largest value.
        let groups = self.groups(claims);
        Ok((Bearer { principal, groups }, UnixMillis(expiry as i64)))
    }

    /// The groups that the claims name; none when they name none.
    fn groups(&self, claims: &Value) -> Arc<[String]> {
        let Some(claim) = &self.config.groups_claim else {
            return Arc::default();
        };
        let path = format!("/{}", claim.replace('.', "/"));
        let found = claims.get(claim).or_else(|| claims.pointer(&path));
        let named = match found {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one.as_str()],
            _ => Vec::new(),
        };
        let named = named.into_iter().take(JWT_GROUPS_MAX);
        named.map(str::to_owned).collect()
    }
}

impl Public {
    fn algorithm(&self) -> &'static str {
        match self {
            Public::Rsa(..) => "RS256",
            Public::P256(_) => "ES256",
        }
    }

    fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Public::Rsa(n, e) => RsaPublicKeyComponents { n, e }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            Public::P256(point) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
                    .is_ok()
            }
        }
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// A key as RFC 7517 and 7518 write it; fields that are not needed are not read.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Jwk {
    /// The key, if it is of a kind that is taken.
    fn into_key(self) -> Option<Key> {
        if self.r#use.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let public = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Public::Rsa(bytes(self.n)?, bytes(self.e)?),
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(self.x)?, bytes(self.y)?);
                if x.len() != COORDINATE_BYTES || y.len() != COORDINATE_BYTES {
                    return None;
                }
                Public::P256([&[UNCOMPRESSED][..], &x, &y].concat())
            }
            _ => return None,
        };
        let is_fitting = self.alg.is_none_or(|alg| alg == public.algorithm());
        is_fitting.then_some(Key {
            id: self.kid,
            public,
        })
    }
}

fn decode<T: for<'a> Deserialize<'a>>(part: &str) -> Option<T> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn read_keys(path: &Path) -> Result<Vec<Key>, AccessError> {
    let refusal = |reason: String| AccessError::Jwks {
        path: path.to_owned(),
        reason,
    };
    let file = std::fs::metadata(path).map_err(|error| refusal(error.to_string()))?;
    if file.len() > JWKS_BYTES_MAX {
        return Err(refusal(format!("more than {JWKS_BYTES_MAX} bytes")));
    }
    let text = std::fs::read(path).map_err(|error| refusal(error.to_string()))?;
    parse_keys(&text).map_err(refusal)
}

fn parse_keys(text: &[u8]) -> Result<Vec<Key>, String> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    let set: Set = serde_json::from_slice(text)
        .map_err(|error| format!("it is no JSON Web Key Set: {error}"))?;
    // Keys of other kinds may stand beside ours; they are for others.
    let read = set.keys.into_iter().take(JWKS_KEYS_MAX);
    let keys = read.filter_map(|key| serde_json::from_value::<Jwk>(key).ok()?.into_key());
    let keys: Vec<Key> = keys.collect();
    match keys.is_empty() {
        true => Err("it holds no key for RS256 or ES256".to_owned()),
        false => Ok(keys),
    }
}

/// Clocks that differ by this much are taken for the same.
const LEEWAY: Duration = Duration::from_secs(30);
/// Keys that one token may be tried with.
const KEYS_TRIED_MAX: usize = 8;
const COORDINATE_BYTES: usize = 32;
/// The first byte of a point whose both coordinates follow.
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests;
