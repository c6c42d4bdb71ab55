//! InvokeHTTP: a request for each FlowFile, bodies of any size both ways.
//!
//! At least once: a FlowFile leaves after its request was answered, in the same commit as the
//! answer; after a crash in between the request is made again.
//!
//! | answer | original goes to | penalized |
//! | --- | --- | --- |
//! | 2xx | `success`, and the answer to `response` | no |
//! | 5xx | `retry` | yes |
//! | any other | `no retry` | as Penalize on "No Retry" says |
//! | none | `failure` | yes |

mod exchange;
mod kind;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::{Next, Processor, ProcessorError, Settings};
use crate::bulletins::Level;
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::{Attributes, FlowFile};
use crate::net::{http_client, tls};
use crate::patterns;
use crate::services::{ProxyConfiguration, ProxyType, SslContext};
use crate::session::ProcessSession;

pub(super) use kind::KIND;

struct InvokeHttp {
    client: reqwest::Client,
    method: Expression,
    url: Expression,
    content_type: Expression,
    /// Names of attributes that become headers.
    sends: Option<Regex>,
    bad_names: BadNames,
    credentials: Option<(String, String)>,
    has_date: bool,
    has_body: bool,
    is_chunked: bool,
    answer_attribute: Option<Expression>,
    always_answers: bool,
    penalizes_no_retry: bool,
    upload_speed: Option<u64>,
    download_speed: Option<u64>,
    connect_wait: Duration,
    read_wait: Duration,
}

/// What becomes of an attribute whose name is no header's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadNames {
    Fail,
    Transform,
    Drop,
}

/// A request that is ready but for its body.
struct Ready {
    method: Method,
    url: reqwest::Url,
    headers: HeaderMap,
    sends_body: bool,
}

impl InvokeHttp {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let context = settings.service::<SslContext>("SSL Context Service")?;
        let verifies = !settings.flag("Disable Peer Verification")?;
        let tls = match (&context, verifies) {
            (None, true) => None,
            (context, verifies) => Some(tls::client(context.as_deref(), verifies)?),
        };
        let connect_wait = settings.duration("Connection Timeout")?;
        let client = http_client::client(&http_client::ClientSettings {
            connect_wait,
            tls,
            proxy: proxy(settings)?,
            follows_redirects: settings.flag("Follow Redirects")?,
        })?;
        let sends = settings.text("Attributes to Send")?;
        let sends = sends
            .map(|pattern| patterns::whole_text(&pattern))
            .transpose();
        let user = settings.text("Request Username")?;
        let password = settings.text("Request Password")?.unwrap_or_default();
        Ok(InvokeHttp {
            client,
            method: settings
                .expression("HTTP Method")?
                .ok_or("HTTP Method is empty")?,
            url: settings
                .expression("Remote URL")?
                .ok_or("Remote URL is empty")?,
            content_type: settings
                .expression("Content-type")?
                .unwrap_or_else(|| Expression::literal(CONTENT_TYPE_DEFAULT)),
            sends: sends.map_err(|error| format!("Attributes to Send: {error}"))?,
            bad_names: match settings
                .needed("Invalid HTTP Header Field Handling Strategy")?
                .as_str()
            {
                "fail" => BadNames::Fail,
                "drop" => BadNames::Drop,
                _ => BadNames::Transform,
            },
            credentials: user.map(|user| (user, password)),
            has_date: settings.flag("Include Date Header")?,
            has_body: settings.flag("Send Message Body")?,
            is_chunked: settings.flag("Use Chunked Encoding")?,
            answer_attribute: settings.expression("Put Response Body in Attribute")?,
            always_answers: settings.flag("Always Output Response")?,
            penalizes_no_retry: settings.flag("Penalize on \"No Retry\"")?,
            upload_speed: settings.speed("Upload Speed Limit")?,
            download_speed: settings.speed("Download Speed Limit")?,
            connect_wait,
            read_wait: settings.duration("Read Timeout")?,
        })
    }

    /// Everything about the request that can be wrong before it is made.
    fn prepare(&self, session: &ProcessSession<'_>, flow_file: &FlowFile) -> Result<Ready, String> {
        let scope = session.scope(flow_file);
        let text = |expression: &Expression| match expression.evaluate(scope) {
            Ok(text) => Ok(text.into_owned()),
            Err(error) => Err(error.to_string()),
        };
        let method = text(&self.method)?;
        let method = Method::from_bytes(method.trim().as_bytes())
            .map_err(|_| format!("'{method}' is no HTTP method"))?;
        let url = text(&self.url)?;
        let url: reqwest::Url = url
            .parse()
            .map_err(|error| format!("'{url}' is no URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("'{url}' is neither http:// nor https://"));
        }
        let mut headers = self.headers(&session.all_attributes(flow_file))?;
        if self.has_date {
            let now = std::time::UNIX_EPOCH + Duration::from_millis(session.now().0.max(0) as u64);
            if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(now)) {
                headers.insert(reqwest::header::DATE, date);
            }
        }
        let takes_body = matches!(method, Method::POST | Method::PUT | Method::PATCH);
        let sends_body = takes_body && self.has_body;
        let is_empty = !self.has_body || (flow_file.size() == 0 && !self.is_chunked);
        if takes_body && is_empty {
            // Servers want to be told that nothing comes; the client says it only of what comes.
            headers.insert(
                reqwest::header::CONTENT_LENGTH,
                HeaderValue::from_static("0"),
            );
        }
        if sends_body {
            let mut kind = text(&self.content_type)?;
            if kind.is_empty() {
                kind = CONTENT_TYPE_DEFAULT.to_owned();
            }
            let kind =
                HeaderValue::from_str(&kind).map_err(|_| format!("'{kind}' is no content type"))?;
            headers.insert(reqwest::header::CONTENT_TYPE, kind);
        }
        Ok(Ready {
            method,
            url,
            headers,
            sends_body,
        })
    }

    fn headers(&self, attributes: &Attributes) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let Some(sends) = &self.sends else {
            return Ok(headers);
        };
        for (name, value) in attributes.iter().filter(|(name, _)| sends.is_match(name)) {
            let header = match (HeaderName::from_bytes(name.as_bytes()), self.bad_names) {
                (Ok(header), _) => header,
                (Err(_), BadNames::Drop) => continue,
                (Err(_), BadNames::Transform) => transformed(name),
                (Err(_), BadNames::Fail) => {
                    return Err(format!("the attribute '{name}' cannot be a header's name"));
                }
            };
            let value = HeaderValue::from_bytes(value.as_bytes())
                .map_err(|_| format!("the attribute '{name}' has a value that no header takes"))?;
            headers.insert(header, value);
        }
        Ok(headers)
    }
}

impl Processor for InvokeHttp {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let flow_file = match session.take_one() {
            Some(flow_file) => flow_file,
            // What was there has expired.
            None if context.has_incoming() => return Ok(Next::Scheduled),
            None => session.create(Arc::default()),
        };
        let ready = match self.prepare(session, &flow_file) {
            Ok(ready) => ready,
            Err(reason) => {
                context.post(Level::Error, &reason);
                session.transfer_penalized(flow_file, FAILURE);
                return Ok(Next::Scheduled);
            }
        };
        self.exchange(context, session, flow_file, ready)?;
        Ok(Next::Scheduled)
    }
}

/// The nearest name that a header can have.
fn transformed(name: &str) -> HeaderName {
    let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let name: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    HeaderName::from_bytes(name.as_bytes()).unwrap_or(HeaderName::from_static("x-attribute"))
}

/// The proxy that a service names, or the properties do.
fn proxy(settings: &Settings<'_>) -> Result<Option<Arc<ProxyConfiguration>>, String> {
    let service = settings.service::<ProxyConfiguration>("Proxy Configuration Service")?;
    if service.is_some() {
        return Ok(service);
    }
    let Some(host) = settings.text("Proxy Host")? else {
        return Ok(None);
    };
    let (kind, host) = match host.split_once("://") {
        Some(("https", host)) => (ProxyType::Https, host.to_owned()),
        Some((_, host)) => (ProxyType::Http, host.to_owned()),
        None => (ProxyType::Http, host),
    };
    let port = match settings.text("Proxy Port")? {
        Some(_) => settings.integer("Proxy Port")?,
        None => PROXY_PORT_DEFAULT,
    };
    let user = settings.text("invokehttp-proxy-username")?;
    let password = settings.text("invokehttp-proxy-password")?;
    Ok(Some(Arc::new(ProxyConfiguration {
        kind,
        host,
        port,
        user: user.map(|user| (user, password.unwrap_or_default())),
    })))
}

const SUCCESS: usize = 0;
const RESPONSE: usize = 1;
const RETRY: usize = 2;
const NO_RETRY: usize = 3;
const FAILURE: usize = 4;

const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// Where proxies usually listen.
const PROXY_PORT_DEFAULT: u16 = 8080;
