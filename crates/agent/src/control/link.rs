//! HTTP towards the control plane: bounded answers, gzip requests, certificates.
//!
//! Redirects are not followed: an address that moved is the operator's to change.

use std::io::Write;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{RequestBuilder, Response, redirect};
use rustls::ClientConfig;

use super::config::{ControlConfig, joined};
use crate::AgentError;
use crate::limits::CONTROL_ANSWER_BYTES_MAX;
use crate::services::{SslContext, SslFiles};

/// The way to the control plane.
pub(crate) struct Link {
    client: reqwest::Client,
    is_gzip: bool,
    base: String,
}

impl Link {
    /// Errors: certificates that cannot be used, with their file.
    pub(crate) fn new(config: &ControlConfig) -> Result<Link, AgentError> {
        // Whoever did it before did the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Link {
            client: client(&config.tls)?,
            is_gzip: config.is_gzip,
            base: config.flow_base_url.clone(),
        })
    }

    /// Sends JSON and returns what came back.
    pub(crate) async fn post(&self, url: &str, body: Vec<u8>) -> Result<Vec<u8>, AgentError> {
        let request = self
            .client
            .post(url)
            .timeout(CALL_WAIT)
            .header("Content-Type", "application/json");
        let request = match self.is_gzip {
            true => {
                let packed = gzip(&body).map_err(|error| control_error("pack a request", error))?;
                request.header("Content-Encoding", "gzip").body(packed)
            }
            false => request.body(body),
        };
        whole(request, CONTROL_ANSWER_BYTES_MAX).await
    }

    /// Fetches a text of up to `bytes_max`.
    pub(crate) async fn text(
        &self,
        url: &str,
        accept: &str,
        bytes_max: usize,
    ) -> Result<String, AgentError> {
        let request = self
            .client
            .get(url)
            .timeout(CALL_WAIT)
            .header("Accept", accept);
        let body = whole(request, bytes_max).await?;
        String::from_utf8(body).map_err(|error| control_error("read the answer", error))
    }

    /// Begins to fetch a file; its body comes by pieces.
    pub(crate) async fn file(&self, url: &str, wait: Duration) -> Result<Response, AgentError> {
        send(self.client.get(url).timeout(wait)).await
    }

    /// Uploads a file as the field `file` of a form.
    pub(crate) async fn upload(
        &self,
        url: &str,
        name: &str,
        content: &[u8],
    ) -> Result<(), AgentError> {
        let boundary = format!("thalweg-{}", uuid::Uuid::new_v4().simple());
        let mut body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/gzip\r\n\r\n"
        )
        .into_bytes();
        body.extend_from_slice(content);
        body.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        let request = self
            .client
            .post(url)
            .timeout(UPLOAD_WAIT)
            .header(
                "Content-Type",
                format!("multipart/form-data; boundary={boundary}"),
            )
            .body(body);
        whole(request, CONTROL_ANSWER_BYTES_MAX).await.map(drop)
    }

    /// The address that an operation means: absolute, or relative to the control plane's.
    pub(crate) fn address(&self, url: &str) -> String {
        if url.starts_with("http://") || url.starts_with("https://") {
            url.to_owned()
        } else {
            joined(&self.base, url)
        }
    }
}

/// Whether the control plane answered that it will never take this.
pub(super) fn is_final(error: &AgentError) -> bool {
    let AgentError::Control { source, .. } = error else {
        return false;
    };
    // A login that is missing, a slow line or a crowd may be mended.
    source
        .downcast_ref::<Refusal>()
        .is_some_and(|refusal| matches!(refusal.status, 400 | 404 | 405 | 409..=428 | 430..=499))
}

/// An answer that is no success.
#[derive(Debug, thiserror::Error)]
#[error("{path} answered {status}")]
struct Refusal {
    /// Addresses may carry what is not for logs: only their path is shown.
    path: String,
    status: u16,
}

/// What is wrong between agent and control plane.
pub(crate) fn control_error(
    action: &'static str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> AgentError {
    AgentError::Control {
        action,
        source: source.into(),
    }
}

fn client(tls: &SslFiles) -> Result<reqwest::Client, AgentError> {
    let builder = || {
        reqwest::Client::builder()
            .connect_timeout(CONNECT_WAIT)
            .redirect(redirect::Policy::none())
            .user_agent(concat!("thalweg-agent/", env!("CARGO_PKG_VERSION")))
    };
    let is_plain = tls.certificate.is_none() && tls.authority.is_none();
    let built = if is_plain {
        // A machine that believes nobody can still call a fleet without TLS.
        builder()
            .build()
            .or_else(|_| builder().tls_certs_only([]).build())
    } else {
        let context = SslContext::open(tls)
            .map_err(|error| AgentError::Setting(format!("nifi.security.client: {error}")))?;
        let config = ClientConfig::clone(&context.client());
        builder().tls_backend_preconfigured(config).build()
    };
    built.map_err(|error| control_error("prepare calls", error))
}

fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(bytes)?;
    packer.finish()
}

async fn send(request: RequestBuilder) -> Result<Response, AgentError> {
    let answer = request
        .send()
        .await
        .map_err(|error| control_error("send a request", error.without_url()))?;
    let status = answer.status();
    if !status.is_success() {
        let refusal = Refusal {
            path: answer.url().path().to_owned(),
            status: status.as_u16(),
        };
        return Err(control_error("get an answer", refusal));
    }
    Ok(answer)
}

async fn whole(request: RequestBuilder, bytes_max: usize) -> Result<Vec<u8>, AgentError> {
    let mut answer = send(request).await?;
    let mut body = Vec::new();
    while let Some(chunk) = answer
        .chunk()
        .await
        .map_err(|error| control_error("read an answer", error))?
    {
        if body.len() + chunk.len() > bytes_max {
            let reason = format!("it is longer than {bytes_max} bytes");
            return Err(control_error("read an answer", reason));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Longest wait for a connection, as Java agents have it.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Longest wait for a whole exchange.
const CALL_WAIT: Duration = Duration::from_secs(30);

/// Longest upload of a bundle: 16 MiB at some 30 kB/s.
const UPLOAD_WAIT: Duration = Duration::from_secs(600);
