//! The client commands' way to the HTTP API: where it is, and one shape of error.

use std::error::Error;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Clock, HumanDuration, SystemClock, UnixMillis};
use reqwest::{Method, RequestBuilder, Response};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Map, Value};
use tokio::io::AsyncWriteExt;

use super::{Failure, Output, out, table};
use crate::endpoints::Endpoints;

/// Speaks to one running `thalweg up`.
pub struct Client {
    http: reqwest::Client,
    management: String,
    output: Output,
    login: Option<Login>,
    trust: Trust,
}

/// Whom a client believes, and by which certificate it is known itself.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// File with the certificates of those who sign servers'; whom this machine believes when absent.
    pub ca: Option<PathBuf>,
    /// File with the client's own certificate, and what it is signed by.
    pub certificate: Option<PathBuf>,
    /// File with its key.
    pub key: Option<PathBuf>,
}

/// How somebody shows who they are.
pub enum Login {
    /// By a user's name and password.
    Password { name: String, password: String },
    /// By an API token.
    Token(String),
}

impl Login {
    /// Takes the password from the first line of a file, or asks for it.
    pub fn of(name: String, password_file: Option<&Path>) -> Result<Self, Failure> {
        let is_given = password_file.is_some() || std::io::stdin().is_terminal();
        if !is_given {
            // What is piped in is for the command, not for the login.
            let text = "name the file that holds the password with --login-password-file";
            return Err(Failure(text.to_owned()));
        }
        let password = super::users::password(&name, password_file, "--login-password-file")?;
        Ok(Login::Password { name, password })
    }

    /// Takes the token in the first line of a file.
    pub fn by_token(file: &Path) -> Result<Self, Failure> {
        let read = std::fs::read_to_string(file);
        let what = format!("cannot read the token in {}", file.display());
        let text = read.map_err(|error| Failure::because(&what, &error))?;
        match text.lines().next().map(str::trim) {
            Some(token) if !token.is_empty() => Ok(Login::Token(token.to_owned())),
            _ => {
                let text = format!("there is no token in the first line of {}", file.display());
                Err(Failure(text))
            }
        }
    }
}

impl Client {
    /// A client of `server`, or of the process that wrote the endpoints file of the data folder,
    /// or of the default port.
    pub fn new(
        server: Option<String>,
        output: Output,
        login: Option<Login>,
        trust: Trust,
    ) -> Result<Self, Failure> {
        let management = match server {
            Some(url) if ["http://", "https://"].iter().any(|s| url.starts_with(s)) => {
                url.trim_end_matches('/').to_owned()
            }
            Some(url) => {
                let text = format!("write the server '{url}' as http://HOST:PORT");
                return Err(Failure(text));
            }
            None => Endpoints::of_default_folder()
                .and_then(|endpoints| {
                    // A process of an older version calls it by its role.
                    endpoints.get("management").or(endpoints.get("fleet"))
                })
                .map_or_else(
                    || DEFAULT_SERVER.to_owned(),
                    |address| format!("http://{address}"),
                ),
        };
        let http = http_client(&trust, Some(&management))?;
        Ok(Client {
            http,
            management,
            output,
            login,
            trust,
        })
    }

    /// The name and the password, or token, that this client logs in with.
    pub fn credentials(&self) -> Option<(String, String)> {
        match &self.login {
            Some(Login::Password { name, password }) => Some((name.clone(), password.clone())),
            Some(Login::Token(token)) => Some((String::new(), token.clone())),
            None => None,
        }
    }

    /// What this client believes where it speaks TLS without HTTP.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub fn tls_config(&self) -> Result<rustls::ClientConfig, Failure> {
        let unusable = |error: &dyn std::fmt::Display| {
            Failure(format!(
                "cannot use the certificates of --ca, --client-cert and --client-key: {error}"
            ))
        };
        let mut roots = rustls::RootCertStore::empty();
        match &self.trust.ca {
            Some(path) => {
                let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
                for certificate in read {
                    let certificate = certificate.map_err(|error| unusable(&error))?;
                    roots.add(certificate).map_err(|error| unusable(&error))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
            }
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = builder.with_root_certificates(roots);
        match self.trust.own() {
            None => Ok(builder.with_no_client_auth()),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_file_iter(certificate)
                    .and_then(Iterator::collect)
                    .map_err(|error| unusable(&error))?;
                let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(&error))?;
                let config = builder.with_client_auth_cert(chain, key);
                config.map_err(|error| unusable(&error))
            }
        }
    }

    /// True when the caller asked for JSON.
    pub fn wants_json(&self) -> bool {
        self.output == Output::Json
    }

    /// A request to the management API at `path`, such as `/api/v1/topics`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.request_url(method, &format!("{}{path}", self.management))
    }

    /// A request to any URL with the same connection pool.
    pub fn request_url(&self, method: Method, url: &str) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.login {
            Some(Login::Password { name, password }) => request.basic_auth(name, Some(password)),
            Some(Login::Token(token)) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Reads a JSON answer of the management API.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.send(self.request(Method::GET, path)).await
    }

    /// Reads a list to its end, page by page: each tells in `next` what the following one is asked for
    /// with as `cursor`.
    pub async fn get_all(&self, path: &str, list: &str, cursor: &str) -> Result<Value, Failure> {
        let mut items = Vec::new();
        let mut next = path.to_owned();
        loop {
            let mut page = self.get(&next).await?;
            if let Some(of_page) = page[list].as_array_mut() {
                items.append(of_page);
            }
            let Some(last) = page["next"].as_str() else {
                return Ok(serde_json::json!({list: items}));
            };
            let joined = if path.contains('?') { '&' } else { '?' };
            next = format!("{path}{joined}{cursor}={}", segment(last));
        }
    }

    /// Says how to go on after a page of a list, where it has not come to its end: by `option`. Who
    /// reads JSON finds that in `next`.
    pub fn tell_next(&self, page: &Value, option: &str) {
        if let (false, Some(next)) = (self.wants_json(), page["next"].as_str()) {
            eprintln!("there are more: {option} {next}");
        }
    }

    /// Sends a request and reads its JSON answer; an empty answer reads as null.
    pub async fn send(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = self.raw(request).await?;
        let body = response
            .bytes()
            .await
            .map_err(|error| Failure::because("the answer broke off", &error))?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| Failure::because("the answer is not JSON", &error))
    }

    /// Sends a request about a text; an error in it is shown at its place.
    pub async fn send_text(&self, request: RequestBuilder, text: &str) -> Result<Value, Failure> {
        let response = self.raw_about(request, Some(text)).await?;
        let answer = response.json().await;
        answer.map_err(|error| Failure::because("the answer is not JSON", &error))
    }

    /// Sends a request; an error answer becomes a failure with the server's own words.
    pub async fn raw(&self, request: RequestBuilder) -> Result<Response, Failure> {
        self.raw_about(request, None).await
    }

    async fn raw_about(
        &self,
        request: RequestBuilder,
        text: Option<&str>,
    ) -> Result<Response, Failure> {
        let response = request
            .send()
            .await
            .map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        if status.as_u16() == 401 && self.login.is_none() {
            let text = "the server asks who you are: name a user with --login, and a file with the \
                        password with --login-password-file, or one with a token with --token-file";
            return Err(Failure(text.to_owned()));
        }
        let body = response.text().await.unwrap_or_default();
        let place = text.map_or_else(String::new, |text| pointed(text, &body));
        Err(Failure(refusal(status.as_u16(), &body) + &place))
    }

    /// Base URL of a role of the same process that speaks HTTP.
    pub async fn role_url(&self, role: &str) -> Result<String, Failure> {
        let status = self.get("/api/v1/status").await?;
        let speaks_tls = status["tls"]
            .as_array()
            .is_some_and(|all| all.contains(&role.into()));
        let scheme = if speaks_tls { "https" } else { "http" };
        status["endpoints"][role]
            .as_str()
            .map(|address| format!("{scheme}://{}", self.reachable(address)))
            .ok_or_else(|| {
                Failure(format!(
                    "{} runs no role {role}; start `up` with it",
                    self.management
                ))
            })
    }

    /// The address that a role listens on, as it is reached from here: `0.0.0.0` says nothing, and
    /// another machine's own address is that of this one.
    pub fn reachable(&self, address: &str) -> String {
        let Ok(listens) = address.parse::<SocketAddr>() else {
            return address.to_owned();
        };
        let host = host_of(&self.management);
        let is_far = listens.ip().is_loopback() && !is_here(host);
        match listens.ip().is_unspecified() || is_far {
            true => format!("{host}:{}", listens.port()),
            false => address.to_owned(),
        }
    }

    /// Prints a list answer: the JSON as it is, or `columns` of each item as a table.
    pub fn print_list(&self, answer: &Value, list: &str, columns: &[(&str, &str)]) {
        out::text(self.list_text(answer, list, columns));
    }

    /// What [`Client::print_list`] prints.
    pub fn list_text(&self, answer: &Value, list: &str, columns: &[(&str, &str)]) -> String {
        if self.wants_json() {
            return format!("{answer:#}\n");
        }
        let head: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
        let items = answer[list].as_array().map_or(&[][..], Vec::as_slice);
        let rows: Vec<Vec<String>> = items
            .iter()
            .map(|item| {
                columns
                    .iter()
                    .map(|(_, key)| field(key, &item[*key]))
                    .collect()
            })
            .collect();
        table::table(&head, &rows)
    }

    /// Prints one object: the JSON as it is, or a line a field.
    pub fn print_object(&self, answer: &Value) {
        out::text(self.object_text(answer));
    }

    /// What [`Client::print_object`] prints.
    pub fn object_text(&self, answer: &Value) -> String {
        if self.wants_json() {
            return format!("{answer:#}\n");
        }
        let Some(fields) = answer.as_object() else {
            return String::new();
        };
        let (rows, parts): (Vec<_>, Vec<_>) = fields
            .iter()
            .map(|(key, value)| (key, value, field(key, value)))
            .partition(|(_, value, shown)| !has_lines(value) || shown.len() <= CELL_BYTES_MAX);
        let rows: Vec<Vec<String>> = rows
            .into_iter()
            .map(|(key, _, shown)| vec![key.clone(), shown])
            .collect();
        let mut text = table::table(&["FIELD", "VALUE"], &rows);
        for (key, value, _) in parts {
            text.push_str(&format!("\n{key}:\n{}", part(value)));
        }
        text
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        // Without the query, which may tell more than an address.
        let asked = error.url().map(|url| url.origin().ascii_serialization());
        let asked = asked.unwrap_or_else(|| self.management.clone());
        let is_of_tls = asked.starts_with("https://");
        Failure(match error.is_connect() {
            true if is_of_tls => {
                let why = causes(error)
                    .last()
                    .map_or_else(String::new, ToString::to_string);
                format!(
                    "cannot speak TLS with {asked}: {why}; where whoever signed its certificate is not \
                     believed, name them with --ca FILE, and where it does not speak TLS, the server as \
                     http://HOST:PORT"
                )
            }
            true => format!(
                "nothing answers at {asked}; start `thalweg up`, or name the server with --server"
            ),
            false if !is_of_tls && causes(error).any(is_no_http) => format!(
                "what answers at {asked} is no HTTP; where it is TLS, name the server with \
                 --server https://HOST:PORT"
            ),
            false => return Failure::because("the request failed", error),
        })
    }
}

/// An error, and what caused it.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Whether an answer cannot be read as HTTP.
fn is_no_http(error: &(dyn Error + 'static)) -> bool {
    let hyper = error.downcast_ref::<hyper::Error>();
    hyper.is_some_and(|error| error.is_parse() || error.is_incomplete_message())
}

impl Trust {
    fn own(&self) -> Option<(&Path, &Path)> {
        Some((self.certificate.as_deref()?, self.key.as_deref()?))
    }

    /// The own certificate and its key, for an HTTP client.
    fn identity(&self) -> Result<Option<reqwest::Identity>, Failure> {
        let Some((certificate, key)) = self.own() else {
            return Ok(None);
        };
        let read = |path: &Path| {
            let what = format!("cannot read {}", path.display());
            std::fs::read(path).map_err(|error| Failure::because(&what, &error))
        };
        let mut pem = read(certificate)?;
        pem.push(b'\n');
        pem.extend(read(key)?);
        let identity = reqwest::Identity::from_pem(&pem);
        let what = format!("cannot use {} with its key", certificate.display());
        identity
            .map(Some)
            .map_err(|error| Failure::because(&what, &error))
    }
}

/// The host in a URL, with the brackets of an IPv6 address.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    }
}

/// Whether a host is this machine by its own address.
fn is_here(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A client that trusts as it is told. `server` is the one that it is for: no proxy of the
/// environment stands between it and this machine itself.
pub fn http_client(trust: &Trust, server: Option<&str>) -> Result<reqwest::Client, Failure> {
    let ca = trust.ca.as_deref();
    let unusable = |error: &dyn std::fmt::Display| {
        let path = ca.map(Path::display);
        Failure(match path {
            Some(path) => format!("cannot use the certificates in {path}: {error}"),
            None => format!("cannot make an HTTP client: {error}"),
        })
    };
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity = trust.identity()?;
    let builder = || {
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_WAIT);
        if server.is_some_and(|server| is_here(host_of(server))) {
            builder = builder.no_proxy();
        }
        match &identity {
            Some(identity) => builder.identity(identity.clone()),
            None => builder,
        }
    };
    let only = |roots: Vec<reqwest::Certificate>| {
        let builder = builder().tls_certs_only(roots);
        builder.build().map_err(|error| unusable(&error))
    };
    match ca {
        Some(ca) => {
            let pem = std::fs::read(ca).map_err(|error| unusable(&error))?;
            let roots = reqwest::Certificate::from_pem_bundle(&pem);
            only(roots.map_err(|error| unusable(&error))?)
        }
        // A machine that believes nobody can still call a server without TLS.
        None => builder().build().or_else(|_| only(Vec::new())),
    }
}

/// One path segment, percent-encoded so that a stream path stays one segment.
pub fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The parameters of an address that are given.
pub fn query<const N: usize>(wanted: [(&str, Option<String>); N]) -> String {
    let given = wanted.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(format!("{name}={}", segment(&value)))
    });
    let all: Vec<String> = given.collect();
    match all.is_empty() {
        true => String::new(),
        false => format!("?{}", all.join("&")),
    }
}

/// Writes an answer's body to a file as it comes; tells how many bytes there were.
pub async fn download(client: &Client, path: &str, to: &Path) -> Result<u64, Failure> {
    let mut answer = client.raw(client.request(Method::GET, path)).await?;
    let failed =
        |error: std::io::Error| Failure::because(&format!("cannot write {}", to.display()), &error);
    let mut file = tokio::fs::File::create(to).await.map_err(failed)?;
    let mut count = 0;
    while let Some(bytes) = answer
        .chunk()
        .await
        .map_err(|error| Failure::because("the answer broke off", &error))?
    {
        file.write_all(&bytes).await.map_err(failed)?;
        count += bytes.len() as u64;
    }
    file.flush().await.map_err(failed)?;
    Ok(count)
}

fn refusal(status: u16, body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    match parsed["message"].as_str() {
        Some(message) => {
            let place = match (parsed["line"].as_u64(), parsed["column"].as_u64()) {
                (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
                _ => String::new(),
            };
            format!("{message}{place}")
        }
        None if status == 404 && body.is_empty() => "the server has nothing of this kind: it runs \
             without the role, or without the logins, that this command is about"
            .to_owned(),
        None => format!("the server answered {status}: {}", body.trim()),
    }
}

/// The line of a text that an answer names, with a mark under the character.
fn pointed(text: &str, body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let place = |key: &str| parsed[key].as_u64().and_then(|at| usize::try_from(at).ok());
    let (Some(line), Some(column)) = (place("line"), place("column")) else {
        return String::new();
    };
    let Some(shown) = text.lines().nth(line.saturating_sub(1)) else {
        return String::new();
    };
    let before = shown.chars().take(column.saturating_sub(1));
    // A tab moves the mark as far as the text above it.
    let gap: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    format!("\n  {shown}\n  {gap}^")
}

/// A field for people: an instant (`…_ms`, milliseconds since 1970) as its age, and what is too small
/// for one as the time that it lasts.
fn field(key: &str, value: &Value) -> String {
    if key.ends_with("_ms")
        && let Some(lasts) = value.as_u64().filter(|ms| *ms < INSTANT_MS_MIN)
    {
        return HumanDuration(Duration::from_millis(lasts)).to_string();
    }
    match value {
        Value::Number(instant) if key.ends_with("_ms") => {
            let instant = instant.as_i64().map(UnixMillis);
            instant.map_or_else(String::new, |instant| match SystemClock.now() {
                now if instant.since(now) > CLOCKS_APART => {
                    format!("in {}", span(instant.since(now).as_secs()))
                }
                now => format!("{} ago", span(now.since(instant).as_secs())),
            })
        }
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        other => other.to_string(),
    }
}

/// Whether a value is read by lines of its own.
fn has_lines(value: &Value) -> bool {
    is_nested(value) || value.as_str().is_some_and(|text| text.contains('\n'))
}

fn is_nested(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// What is too long for a cell: a table of objects that are flat, a text as it is, else JSON with a line
/// for each field.
fn part(value: &Value) -> String {
    let lines = |text: &str| text.replace(|c: char| is_obeyed(c) && c != '\n', "\u{fffd}");
    if let Some(text) = value.as_str() {
        return lines(text.trim_end()) + "\n";
    }
    let objects: Option<Vec<&Map<String, Value>>> = value
        .as_array()
        .and_then(|items| items.iter().map(Value::as_object).collect());
    let is_flat = |item: &&Map<String, Value>| !item.values().any(is_nested);
    if let Some(items) = objects
        && let Some(first) = items.first()
        && items.iter().all(is_flat)
    {
        let head: Vec<String> = first.keys().map(|key| key.to_uppercase()).collect();
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let row = |item: &&Map<String, Value>| {
            let cell = |key: &String| field(key, item.get(key).unwrap_or(&Value::Null));
            first.keys().map(cell).collect()
        };
        let rows: Vec<Vec<String>> = items.iter().map(row).collect();
        return table::table(&head, &rows);
    }
    lines(&format!("{value:#}\n"))
}

/// A text on one line, without what a terminal would obey: agents and programs write such texts.
pub fn harmless(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(is_obeyed, "\u{fffd}")
}

/// Whether a terminal does something else than to show it.
fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Bytes of JSON that a cell of a table may hold.
const CELL_BYTES_MAX: usize = 60;
/// Nobody tells of what was before 1980, and nothing lasts for ten years.
const INSTANT_MS_MIN: u64 = 315_360_000_000;
/// What lies no further ahead is taken for just now: the server's clock may go before ours.
const CLOCKS_APART: Duration = Duration::from_secs(5);
/// How long a server may take to accept a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
const DEFAULT_SERVER: &str = "http://127.0.0.1:10090";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_path_is_one_segment() {
        assert_eq!(
            segment("/streams/test:topic1"),
            "%2Fstreams%2Ftest%3Atopic1"
        );
    }

    #[test]
    fn an_instant_reads_as_its_age() {
        let now = SystemClock.now().0;
        assert_eq!(field("last_seen_ms", &Value::from(now - 90_500)), "90s ago");
        assert_eq!(field("retention_ms", &Value::from(7_200_000)), "2h");
        assert_eq!(
            field("updated_ms", &Value::from(now - 3 * 86_400_000)),
            "3d ago"
        );
        assert_eq!(
            field("expires_ms", &Value::from(now + 30 * 86_400_000 + 60_000)),
            "in 30d"
        );
        assert_eq!(field("last_seen_ms", &Value::from(now + 1_000)), "0s ago");
        assert_eq!(field("records", &Value::from(5)), "5");
    }

    #[test]
    fn what_is_too_long_for_a_cell_stands_below_the_table() {
        let client = client_of("http://127.0.0.1:1").unwrap();
        let offsets: Vec<Value> = (0..3)
            .map(|n| serde_json::json!({"end": n * 10, "partition": n, "start": 0}))
            .collect();
        let deep = serde_json::json!({"a": {"b": "x".repeat(80)}, "c": "\u{202e}"});
        let plan = format!("Plan {{\n    {}\u{1b}\n}}\n", "x".repeat(60));
        let answer = serde_json::json!(
            {"deep": deep, "name": "t", "offsets": offsets, "few": [1, 2], "plan": plan}
        );
        let text = client.object_text(&answer);
        let (fields, below) = text.split_once("\n\n").unwrap();
        assert!(
            fields.contains("name   t") && fields.contains("few    [1,2]"),
            "{fields}"
        );
        assert!(
            below.contains("offsets:\nEND  PARTITION  START\n0    0          0\n10   1"),
            "{below}"
        );
        assert!(below.contains("deep:\n{\n  \"a\": {\n"), "{below}");
        assert!(below.contains("plan:\nPlan {\n    xx"), "{below}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
    }

    #[test]
    fn an_error_is_marked_under_its_character() {
        let body = r#"{"message":"x","line":2,"column":4}"#;
        assert_eq!(
            pointed("SELECT a\n\tb + FROM t", body),
            "\n  \tb + FROM t\n  \t  ^"
        );
        assert_eq!(pointed("one line", body), "");
        assert_eq!(pointed("one line", "{}"), "");
    }

    #[test]
    fn a_refusal_speaks_in_the_servers_words() {
        let body = r#"{"error_code":400,"message":"expected FROM","line":2,"column":7}"#;
        assert_eq!(refusal(400, body), "expected FROM (line 2, column 7)");
        assert_eq!(
            refusal(502, "bad gateway\n"),
            "the server answered 502: bad gateway"
        );
        assert!(refusal(404, "").contains("without the role"));
    }

    #[test]
    fn a_server_is_written_with_its_scheme() {
        let of = client_of;
        let told = of("127.0.0.1:10090").err().unwrap().to_string();
        assert!(told.contains("as http://HOST:PORT"), "{told}");
        assert!(of("https://thalweg.example.org/").is_ok());
    }

    fn client_of(url: &str) -> Result<Client, Failure> {
        Client::new(Some(url.to_owned()), Output::Table, None, Trust::default())
    }

    #[test]
    fn a_role_is_reached_where_its_server_is() {
        for (server, listens, reached) in [
            ("http://fleet:10090", "0.0.0.0:8082", "fleet:8082"),
            ("http://fleet:10090", "127.0.0.1:8082", "fleet:8082"),
            ("http://fleet:10090", "10.0.0.7:8082", "10.0.0.7:8082"),
            ("http://127.0.0.1:10090", "127.0.0.1:8082", "127.0.0.1:8082"),
            ("http://[::1]:10090", "[::]:8082", "[::1]:8082"),
            ("https://fleet/", "[::]:8082", "fleet:8082"),
        ] {
            let client = client_of(server).unwrap();
            assert_eq!(client.reachable(listens), reached, "{server} {listens}");
        }
    }

    #[test]
    fn terminals_obey_nothing_that_is_shown() {
        let text = serde_json::json!("one\u{1b}]52;c;eA==\u{7}\ntwo\u{202e}three");
        let shown = field("message", &text);
        assert_eq!(shown, "one\u{fffd}]52;c;eA==\u{fffd} two\u{fffd}three");
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_end() {
        use axum::extract::RawQuery;
        use axum::{Json, Router, routing::get};
        use serde_json::json;
        let page = |RawQuery(query): RawQuery| async move {
            Json(match query.as_deref() {
                Some("class=a") => json!({"agents": [1, 2], "next": "2 b"}),
                // Pages may hold nothing and yet go on.
                Some("class=a&after=2%20b") => json!({"agents": [], "next": "3"}),
                Some("class=a&after=3") => json!({"agents": [4], "next": null}),
                other => json!({"agents": [], "next": null, "unexpected": other}),
            })
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/agents", get(page));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let client = client_of(&server).unwrap();
        let all = client.get_all("/agents?class=a", "agents", "after").await;
        assert_eq!(all.unwrap(), json!({"agents": [1, 2, 4]}));
    }
}
