//! Signing in to the console by an issuer: the test is the browser, and the issuer is its own.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use reqwest::{Response, Url};
use serde_json::{Value, json};

use crate::fleet_roles::Fleet;
use crate::harness::{Running, eventually, folder, repository, succeed};
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
    /// The refresh token that is good: each for once.
    refresh: Mutex<Option<String>>,
    /// How its tokens are.
    given: Mutex<Tokens>,
}

/// How an issuer's tokens are.
#[derive(Clone)]
struct Tokens {
    /// For how long they are good, counted to the last moment at which clocks that differ take them.
    seconds: i64,
    subject: &'static str,
    /// How many there were.
    count: u64,
}

impl Default for Tokens {
    fn default() -> Tokens {
        Tokens {
            seconds: 3_600,
            subject: "ann",
            count: 0,
        }
    }
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
            refresh: Mutex::default(),
            given: Mutex::default(),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for link in listener.incoming() {
                let mut link = link.unwrap();
                let (head, body) = request_of(&mut link);
                let path = head.split(' ').nth(1).unwrap_or_default();
                let answer = match path.split_once('?') {
                    Some(("/ask", _)) => serving.send_back(path),
                    Some(("/end", _)) => {
                        let page = "<p>Signed out at the issuer</p>";
                        let kind = "Content-Type: text/html\r\n";
                        format!("HTTP/1.1 200 X\r\n{kind}Connection: close\r\n\r\n{page}")
                    }
                    _ => {
                        let (status, answer) = serving.answer(path, &head, &body);
                        let answer = answer.to_string();
                        let length = answer.len();
                        format!(
                            "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\
                             Connection: close\r\n\r\n{answer}"
                        )
                    }
                };
                let _ = link.write_all(answer.as_bytes());
            }
        });
        Provider { url, shared }
    }

    /// What the issuer's page does once somebody has said who they are: where the browser goes back.
    fn approve(&self, address: &str) -> (String, BTreeMap<String, String>) {
        self.shared.approve(address)
    }
}

impl Shared {
    /// The answer to a browser that comes to be asked: nobody is, and it goes back at once.
    fn send_back(&self, path: &str) -> String {
        let address = format!("{}{path}", self.url.lock().unwrap());
        let (back, _) = self.approve(&address);
        format!("HTTP/1.1 302 X\r\nLocation: {back}\r\nConnection: close\r\n\r\n")
    }

    fn approve(&self, address: &str) -> (String, BTreeMap<String, String>) {
        let address = Url::parse(address).unwrap();
        let asked: BTreeMap<String, String> = address.query_pairs().into_owned().collect();
        assert_eq!(
            format!("{}/ask", self.url.lock().unwrap()),
            address.as_str().split('?').next().unwrap()
        );
        assert_eq!(asked["response_type"], "code");
        assert_eq!(
            (&*asked["client_id"], &*asked["scope"]),
            ("console", "openid groups")
        );
        assert_eq!(asked["code_challenge_method"], "S256");
        let mut codes = self.codes.lock().unwrap();
        let code = format!("code-{}", asked["state"]);
        codes.insert(code.clone(), asked.clone());
        let back = format!(
            "{}?code={code}&state={}",
            asked["redirect_uri"], asked["state"]
        );
        (back, asked)
    }

    fn answer(&self, path: &str, head: &str, body: &str) -> (u16, Value) {
        let url = self.url.lock().unwrap().clone();
        match path {
            "/.well-known/openid-configuration" => (
                200,
                json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
                    "authorization_endpoint": format!("{url}/ask"),
                    "token_endpoint": format!("{url}/token"),
                    "end_session_endpoint": format!("{url}/end")}),
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
        if form["grant_type"] == "refresh_token" {
            let good = self.refresh.lock().unwrap().take();
            return match good.as_ref() == Some(&form["refresh_token"]) {
                true => (200, self.given(json!(null))),
                false => refused("invalid_grant"),
            };
        }
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
        let nonce = nonce.as_ref().unwrap_or(&asked["nonce"]);
        (200, self.given(json!(nonce)))
    }

    /// An ID token, with a refresh token that takes the place of the one before.
    fn given(&self, nonce: Value) -> Value {
        let mut claims = self.claims("");
        claims["nonce"] = nonce;
        let count = {
            let mut given = self.given.lock().unwrap();
            given.count += 1;
            given.count
        };
        let refresh = format!("refresh-{count}");
        *self.refresh.lock().unwrap() = Some(refresh.clone());
        json!({"token_type": "Bearer", "id_token": self.key.sign(&claims),
            "refresh_token": refresh})
    }

    fn claims(&self, nonce: &str) -> Value {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let given = self.given.lock().unwrap().clone();
        // Clocks that differ by this much are taken for the same.
        let end = i64::try_from(now).unwrap() + given.seconds - 30;
        json!({"iss": *self.url.lock().unwrap(), "aud": "console", "sub": given.subject,
            "nonce": nonce, "exp": end, "iat": now, "groups": ["ops"], "jti": given.count})
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

/// How a fleet has people sign in by this issuer.
fn settings(dir: &Path, provider: &Provider) -> Vec<String> {
    let secret = dir.join("client-secret");
    std::fs::write(&secret, "s:cret\n").unwrap();
    vec![
        "access.jwt.discover=true".to_owned(),
        format!("access.jwt.issuer={}", provider.url),
        "access.jwt.audience=console".to_owned(),
        "access.jwt.groups_claim=groups".to_owned(),
        "access.roles.group:ops=viewer".to_owned(),
        "access.sign_in.client_id=console".to_owned(),
        "access.sign_in.scope=openid groups".to_owned(),
        format!("access.sign_in.client_secret_file={}", secret.display()),
    ]
}

impl Provider {
    /// Waits until the fleet has its keys.
    fn is_known_to(&self, fleet: &Fleet) {
        eventually("the issuer's keys are known", || {
            let claims = self.shared.claims("a bearer's");
            let known = fleet.call(&self.shared.key.sign(&claims), "GET", "/api/v1/me", "");
            (known.status == 200).then_some(())
        });
    }
}

/// A browser: it follows nothing by itself, and keeps its cookies where the test sees them.
struct Browser {
    http: reqwest::Client,
    base: String,
}

impl Browser {
    fn new(fleet: &Fleet) -> Browser {
        let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        Browser {
            http: builder.build().unwrap(),
            base: fleet.up.url("management", ""),
        }
    }

    /// Signs in: the cookies of the login, and of what it is renewed by.
    async fn sign_in(&self, provider: &Provider) -> (String, String) {
        let (address, begun) = self.begin().await;
        let (back, _) = provider.approve(&address);
        let signed_in = self.get(&back, &begun).await;
        assert_eq!(signed_in.status(), 303);
        let kept = cookies_of(&signed_in);
        (value(&kept[0]), value(&kept[1]))
    }

    /// Asks for a new token: when to ask again, and the cookies.
    async fn renew(&self, kept: &str) -> (Option<u64>, Vec<String>) {
        let path = "/api/v1/sign-in/renew";
        let answer = self.post(path, kept, "same-origin").await;
        assert_eq!(answer.status(), 200);
        let cookies = cookies_of(&answer);
        let told: Value = answer.json().await.unwrap();
        (told["again_ms"].as_u64(), cookies)
    }

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
    let fleet = Fleet::start(dir.path(), &settings(dir.path(), &provider));
    let browser = Browser::new(&fleet);
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

    provider.is_known_to(&fleet);
    let signed_in = browser.get(&back, &begun).await;
    assert_eq!(signed_in.status(), 303);
    assert_eq!(signed_in.headers()["location"], "/");
    let kept = cookies_of(&signed_in);
    assert!(kept[0].contains("; HttpOnly; SameSite=Strict"), "{kept:?}");
    assert!(kept[1].starts_with("thalweg_renewal=") && kept[1].contains("Path=/api/v1/sign-in;"));
    assert!(kept[2].starts_with("thalweg_signing_in=; ") && kept[2].contains("Max-Age=0"));
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
    assert_eq!(out.status(), 200);
    assert!(cookies_of(&out)[0].starts_with("thalweg_login=; "));
    assert!(cookies_of(&out)[1].starts_with("thalweg_renewal=; "));
    let address: Value = out.json().await.unwrap();
    let address = Url::parse(address["address"].as_str().unwrap()).unwrap();
    let told: BTreeMap<String, String> = address.query_pairs().into_owned().collect();
    assert!(
        address
            .as_str()
            .starts_with(&format!("{}/end?", provider.url))
    );
    let home = format!("{}/", browser.base);
    let wanted = [
        ("client_id", "console"),
        ("post_logout_redirect_uri", &home),
    ];
    let wanted = wanted.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(
        told,
        BTreeMap::from(wanted),
        "no token goes into an address"
    );
    // What the browser kept in spite of it, once it is no good, is forgotten too.
    let stale = browser.get("/api/v1/me", "thalweg_login=e.x.y").await;
    assert_eq!(stale.status(), 401);
    assert!(cookies_of(&stale)[0].starts_with("thalweg_login=; "));
    let log = std::fs::read_to_string(dir.path().join("data/thalweg.log")).unwrap();
    let token = login.split('=').nth(1).unwrap();
    assert!(!log.contains(token) && !log.contains("s:cret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_is_renewed_before_its_end_by_any_node_and_for_its_owner_only() {
    let dir = folder();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let provider = Provider::start(dir.path());
    let fleet = Fleet::start(dir.path(), &settings(dir.path(), &provider));
    let browser = Browser::new(&fleet);
    provider.is_known_to(&fleet);
    let (_, kept) = browser.sign_in(&provider).await;
    // Nobody asks the issuer before it is time.
    let (again_ms, cookies) = browser.renew(&kept).await;
    let wait = again_ms.unwrap();
    assert!((3_400_000..3_600_000).contains(&wait), "{wait}");
    assert!(cookies.is_empty() && provider.shared.given.lock().unwrap().count == 1);
    for stranger in ["", "thalweg_renewal=e.x.y", "thalweg_renewal=AAAA"] {
        assert_eq!(browser.renew(stranger).await, (None, vec![]));
    }
    let path = "/api/v1/sign-in/renew";
    assert_eq!(browser.post(path, &kept, "cross-site").await.status(), 403);
    assert!(!kept.contains("refresh-"), "it is sealed");

    // One that is good for seconds is replaced, by another node of the same client too.
    provider.shared.given.lock().unwrap().seconds = 4;
    let (login, kept) = browser.sign_in(&provider).await;
    let another = dir.path().join("another");
    std::fs::create_dir(&another).unwrap();
    let node = Fleet::join(&another, &fleet, &settings(dir.path(), &provider));
    provider.is_known_to(&node);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let by_node = Browser::new(&node);
    let (again_ms, cookies) = by_node.renew(&kept).await;
    assert!(again_ms.is_some_and(|wait| wait <= 2_000), "{again_ms:?}");
    let (renewed, next) = (value(&cookies[0]), value(&cookies[1]));
    assert!(renewed.starts_with("thalweg_login=e") && renewed != login);
    assert!(next.starts_with("thalweg_renewal=") && next != kept);
    let me = by_node.get("/api/v1/me", &renewed).await;
    let me: Value = me.json().await.unwrap();
    assert_eq!(me["principal"], "User:ann");
    // What was used is used up: the login ends with its token.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let (again_ms, cookies) = browser.renew(&kept).await;
    assert_eq!(again_ms, None);
    assert!(cookies[0].starts_with("thalweg_renewal=; "), "{cookies:?}");
    // An issuer that answers for somebody else makes nobody of them.
    let (_, kept) = browser.sign_in(&provider).await;
    provider.shared.given.lock().unwrap().subject = "bob";
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let (again_ms, cookies) = browser.renew(&kept).await;
    assert_eq!(again_ms, None);
    assert!(
        cookies
            .iter()
            .all(|kept| !kept.starts_with("thalweg_login=e"))
    );
    for folder in ["data", "another/data"] {
        let log = dir.path().join(folder).join("thalweg.log");
        let log = std::fs::read_to_string(log).unwrap();
        assert!(
            log.contains("not renewed any more") || folder != "data",
            "{log}"
        );
        assert!(!log.contains("refresh-"), "{log}");
    }
}

#[test]
fn the_consoles_button_signs_in_and_out_by_the_issuer() {
    let dir = folder();
    let provider = Provider::start(dir.path());
    provider.shared.given.lock().unwrap().seconds = 6;
    let fleet = Fleet::start(dir.path(), &settings(dir.path(), &provider));
    provider.is_known_to(&fleet);
    let mut node = Command::new("node");
    node.arg(repository().join("console/test/sign_in.mjs"))
        .arg(fleet.up.url("management", "/"))
        .arg(&provider.url);
    let browser = Running::start(&mut node, &dir.path().join("browser.log"));
    browser.finish("the console's way in and out is as expected");
}
