//! Signing in to the console by an issuer: the test is the browser, and the issuer is its own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::{Response, Url};
use serde_json::{Value, json};

use crate::fleet_roles::Fleet;
use crate::harness::{eventually, folder, succeed};
use crate::transport_tls::Issuer;

/// An issuer that knows one client, and asks nobody for a password.
struct Provider {
    url: String,
    shared: Arc<Shared>,
}

struct Shared {
    url: Mutex<String>,
    keys: String,
    key: Issuer,
    /// What was asked for with each code that is still good.
    codes: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
    /// Stands in the token in the place of the nonce that was asked for.
    nonce: Mutex<Option<String>>,
}

impl Provider {
    fn start(folder: &Path) -> Provider {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let key = Issuer::make(folder);
        let keys = std::fs::read_to_string(folder.join("jwks.json")).unwrap();
        let shared = Arc::new(Shared {
            url: Mutex::new(url.clone()),
            keys,
            key,
            codes: Mutex::default(),
            nonce: Mutex::default(),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = link.unwrap();
                let (head, body) = request_of(&mut link);
                let path = head.split(' ').nth(1).unwrap_or_default();
                let (status, answer) = serving.answer(path, &head, &body);
                let answer = answer.to_string();
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                    answer.len()
                );
                let _ = link.write_all(answer.as_bytes());
            }
        });
        Provider { url, shared }
    }

    /// What the issuer's page does once somebody has said who they are: where the browser goes back.
    fn approve(&self, address: &str) -> (String, BTreeMap<String, String>) {
        let address = Url::parse(address).unwrap();
        let asked: BTreeMap<String, String> = address.query_pairs().into_owned().collect();
        assert_eq!(
            format!("{}/ask", self.url),
            address.as_str().split('?').next().unwrap()
        );
        assert_eq!(asked["response_type"], "code");
        assert_eq!(
            (&*asked["client_id"], &*asked["scope"]),
            ("console", "openid groups")
        );
        assert_eq!(asked["code_challenge_method"], "S256");
        let mut codes = self.shared.codes.lock().unwrap();
        let code = format!("code-{}", asked["state"]);
        codes.insert(code.clone(), asked.clone());
        let back = format!(
            "{}?code={code}&state={}",
            asked["redirect_uri"], asked["state"]
        );
        (back, asked)
    }
}

impl Shared {
    fn answer(&self, path: &str, head: &str, body: &str) -> (u16, Value) {
        let url = self.url.lock().unwrap().clone();
        match path {
            "/.well-known/openid-configuration" => (
                200,
                json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
                    "authorization_endpoint": format!("{url}/ask"),
                    "token_endpoint": format!("{url}/token")}),
            ),
            "/keys" => (200, serde_json::from_str(&self.keys).unwrap()),
            "/token" => self.token(head, body),
            _ => (404, json!({})),
        }
    }

    fn token(&self, head: &str, body: &str) -> (u16, Value) {
        let refused = |word: &str| (400, json!({"error": word}));
        let login = format!("basic {}", STANDARD.encode("console:s%3Acret")).to_lowercase();
        if !head.to_lowercase().contains(&login) {
            return refused("invalid_client");
        }
        let form = Url::parse(&format!("form:?{body}")).unwrap();
        let form: BTreeMap<String, String> = form.query_pairs().into_owned().collect();
        assert_eq!(form["grant_type"], "authorization_code");
        let Some(asked) = self.codes.lock().unwrap().remove(&form["code"]) else {
            return refused("invalid_grant");
        };
        if asked["code_challenge"] != s256(&form["code_verifier"])
            || asked["redirect_uri"] != form["redirect_uri"]
        {
            return refused("invalid_grant");
        }
        let nonce = self.nonce.lock().unwrap().clone();
        let claims = self.claims(nonce.as_ref().unwrap_or(&asked["nonce"]));
        (
            200,
            json!({"token_type": "Bearer", "id_token": self.key.sign(&claims)}),
        )
    }
}

impl Shared {
    fn claims(&self, nonce: &str) -> Value {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        json!({"iss": *self.url.lock().unwrap(), "aud": "console", "sub": "ann", "nonce": nonce,
            "exp": now + 3_600, "iat": now, "groups": ["ops"]})
    }
}

fn request_of(link: &mut impl Read) -> (String, String) {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = link.read(&mut piece).unwrap_or(0);
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut lines = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length: usize = lines
                .next()
                .map_or(0, |(_, value)| value.trim().parse().unwrap());
            if body.len() >= length || read == 0 {
                return (head.to_owned(), body.to_owned());
            }
        }
        if read == 0 {
            return Default::default();
        }
    }
}

/// What RFC 7636 has of a verifier, as another program computes it.
fn s256(verifier: &str) -> String {
    let mut digest = std::process::Command::new("python3");
    let script = "import hashlib,sys;print(hashlib.sha256(sys.argv[1].encode()).hexdigest())";
    let hex = succeed(digest.args(["-c", script, verifier]));
    let pairs = hex.trim().as_bytes().chunks(2);
    let bytes =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
    URL_SAFE_NO_PAD.encode(bytes.collect::<Vec<u8>>())
}

/// A browser: it follows nothing by itself, and keeps its cookies where the test sees them.
struct Browser {
    http: reqwest::Client,
    base: String,
}

impl Browser {
    async fn get(&self, path: &str, cookies: &str) -> Response {
        let url = if path.starts_with("http") {
            path.to_owned()
        } else {
            format!("{}{path}", self.base)
        };
        let request = self.http.get(url).header("cookie", cookies);
        request
            .header("sec-fetch-mode", "cors")
            .send()
            .await
            .unwrap()
    }

    async fn post(&self, path: &str, cookies: &str, site: &str) -> Response {
        let request = self.http.post(format!("{}{path}", self.base));
        let request = request
            .header("cookie", cookies)
            .header("sec-fetch-site", site);
        request.body("{}").send().await.unwrap()
    }

    /// Begins to sign in: where the browser is sent, and the cookie that it gets.
    async fn begin(&self) -> (String, String) {
        let sent = self.get("/api/v1/sign-in", "").await;
        assert_eq!(sent.status(), 302);
        let kept = cookies_of(&sent);
        assert!(kept[0].contains("; HttpOnly; SameSite=Lax"), "{kept:?}");
        let address = sent.headers()["location"].to_str().unwrap().to_owned();
        (address, value(&kept[0]))
    }
}

fn cookies_of(response: &Response) -> Vec<String> {
    let all = response.headers().get_all("set-cookie").iter();
    all.map(|cookie| cookie.to_str().unwrap().to_owned())
        .collect()
}

/// `NAME=VALUE` of a cookie that was set.
fn value(cookie: &str) -> String {
    cookie.split(';').next().unwrap().to_owned()
}

async fn refused(response: Response, status: u16, word: &str) {
    assert_eq!(response.status().as_u16(), status);
    assert!(
        cookies_of(&response)
            .iter()
            .all(|kept| !kept.starts_with("thalweg_login=e"))
    );
    let told: Value = response.json().await.unwrap();
    assert!(told["message"].as_str().unwrap().contains(word), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_sign_in_by_their_issuer_and_are_who_it_says() {
    let dir = folder();
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let provider = Provider::start(dir.path());
    let secret = dir.path().join("client-secret");
    std::fs::write(&secret, "s:cret\n").unwrap();
    let settings = [
        "access.jwt.discover=true".to_owned(),
        format!("access.jwt.issuer={}", provider.url),
        "access.jwt.audience=console".to_owned(),
        "access.jwt.groups_claim=groups".to_owned(),
        "access.roles.group:ops=viewer".to_owned(),
        "access.sign_in.client_id=console".to_owned(),
        "access.sign_in.scope=openid groups".to_owned(),
        format!("access.sign_in.client_secret_file={}", secret.display()),
    ];
    let fleet = Fleet::start(dir.path(), &settings);
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    let browser = Browser {
        http: builder.build().unwrap(),
        base: fleet.up.url("management", ""),
    };
    // The page comes without a login, what it asks for does not, and the browser asks for no password.
    assert_eq!(browser.get("/", "").await.status(), 200);
    let asked = browser.get("/api/v1/agents", "").await;
    assert_eq!(asked.status(), 401);
    let challenges: Vec<_> = asked.headers().get_all("www-authenticate").iter().collect();
    assert_eq!(challenges, ["Bearer realm=\"thalweg\""]);
    let offer: Value = browser
        .get("/api/v1/sign-in/offer", "")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(offer, json!({"issuer": provider.url}));

    let (address, begun) = browser.begin().await;
    let (back, asked) = provider.approve(&address);
    assert_eq!(
        asked["redirect_uri"],
        format!("{}/api/v1/sign-in/back", browser.base)
    );
    // An answer to nobody, to another sign-in, and a refusal of the issuer.
    refused(browser.get(&back, "").await, 400, "began no sign-in").await;
    let (_, other) = browser.begin().await;
    refused(browser.get(&back, &other).await, 400, "another sign-in").await;
    let denied = format!(
        "/api/v1/sign-in/back?error=access_denied&state={}",
        asked["state"]
    );
    refused(browser.get(&denied, &begun).await, 400, "access_denied").await;
    // A code that somebody else asked for: the issuer finds that the verifier is another one.
    let (theirs, _) = provider.approve(&browser.begin().await.0);
    let code = theirs
        .split("code=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    let injected = format!("/api/v1/sign-in/back?code={code}&state={}", asked["state"]);
    refused(browser.get(&injected, &begun).await, 502, "invalid_grant").await;

    eventually("the issuer's keys are known", || {
        let claims = provider.shared.claims("a bearer's");
        let known = fleet.call(&provider.shared.key.sign(&claims), "GET", "/api/v1/me", "");
        (known.status == 200).then_some(())
    });
    let signed_in = browser.get(&back, &begun).await;
    assert_eq!(signed_in.status(), 303);
    assert_eq!(signed_in.headers()["location"], "/");
    let kept = cookies_of(&signed_in);
    assert!(kept[0].contains("; HttpOnly; SameSite=Strict"), "{kept:?}");
    assert!(kept[1].starts_with("thalweg_signing_in=; ") && kept[1].contains("Max-Age=0"));
    let login = value(&kept[0]);
    let me: Value = browser
        .get("/api/v1/me", &login)
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(me, json!({"principal": "User:ann", "roles": ["viewer"]}));
    assert_eq!(browser.get("/api/v1/agents", &login).await.status(), 200);
    refused(browser.get(&back, &begun).await, 502, "invalid_grant").await;
    // A viewer is held to it; another site's page is nobody.
    let roles = "/api/v1/roles";
    assert_eq!(
        browser.post(roles, &login, "same-origin").await.status(),
        403
    );
    assert_eq!(
        browser.post(roles, &login, "cross-site").await.status(),
        401
    );

    // A token that was made for another login opens nothing.
    *provider.shared.nonce.lock().unwrap() = Some("another".to_owned());
    let (address, begun) = browser.begin().await;
    let (back, _) = provider.approve(&address);
    refused(browser.get(&back, &begun).await, 403, "another login").await;

    let out = browser
        .post("/api/v1/sign-out", &login, "same-origin")
        .await;
    assert_eq!(out.status(), 204);
    assert!(cookies_of(&out)[0].starts_with("thalweg_login=; "));
    // What the browser kept in spite of it, once it is no good, is forgotten too.
    let stale = browser.get("/api/v1/me", "thalweg_login=e.x.y").await;
    assert_eq!(stale.status(), 401);
    assert!(cookies_of(&stale)[0].starts_with("thalweg_login=; "));
    let log = std::fs::read_to_string(dir.path().join("data/thalweg.log")).unwrap();
    let token = login.split('=').nth(1).unwrap();
    assert!(!log.contains(token) && !log.contains("s:cret"));
}
