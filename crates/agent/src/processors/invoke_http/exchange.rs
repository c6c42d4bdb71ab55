//! One request and its answer.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use reqwest::{Response, StatusCode};

use super::{CONTENT_TYPE_DEFAULT, FAILURE, InvokeHttp, NO_RETRY, RESPONSE, RETRY, Ready, SUCCESS};
use crate::bulletins::Level;
use crate::content::Content;
use crate::engine::Context;
use crate::flowfile::{Attributes, FlowFile};
use crate::net::http_client::{self, PIECE_BYTES, Progress};
use crate::net::limits::{HTTP_ANSWER_ATTRIBUTE_BYTES_MAX, HTTP_ANSWER_HEADERS_MAX};
use crate::net::pace::Pace;
use crate::net::run_until_stop;
use crate::processors::ProcessorError;
use crate::provenance::EventKind;
use crate::session::ProcessSession;

/// What came back.
struct Answer {
    status: StatusCode,
    headers: Vec<(String, String)>,
    body: Body,
}

/// What was kept of an answer's body.
enum Body {
    Nothing,
    Attribute(String),
    Content(Content),
}

/// Why there is no answer.
enum Broken {
    /// The peer's or the way's fault.
    Lost(String),
    /// Our own repository's.
    Ours(ProcessorError),
}

impl InvokeHttp {
    /// Makes the request, and sends the FlowFile and the answer on their ways.
    pub(super) fn exchange(
        &self,
        context: &Context,
        session: &mut ProcessSession<'_>,
        mut flow_file: FlowFile,
        ready: Ready,
    ) -> Result<(), ProcessorError> {
        let url = shown(&ready.url);
        let sends_body = ready.sends_body;
        let attribute = match &self.answer_attribute {
            Some(name) => Some(
                name.evaluate(session.scope(&flow_file))
                    .map_err(|error| ProcessorError::Failed(error.to_string()))?
                    .into_owned(),
            )
            .filter(|name| !name.is_empty()),
            None => None,
        };
        let progress = Progress::new();
        let request = self.request(context, session, &flow_file, ready, &progress)?;
        let answering = self.answer(session, request, &progress, attribute.is_some());
        let answer = match run_until_stop(context, answering) {
            Some(Ok(answer)) => answer,
            Some(Err(Broken::Ours(error))) => return Err(error),
            Some(Err(Broken::Lost(reason))) => {
                context.post(Level::Error, &format!("no answer of {url}: {reason}"));
                session.transfer_penalized(flow_file, FAILURE);
                return Ok(());
            }
            None => {
                return Err(ProcessorError::Failed(
                    "stopped before an answer".to_owned(),
                ));
            }
        };
        let facts = [
            ("invokehttp.status.code", answer.status.as_str().to_owned()),
            (
                "invokehttp.status.message",
                answer
                    .status
                    .canonical_reason()
                    .unwrap_or_default()
                    .to_owned(),
            ),
            ("invokehttp.request.url", url.clone()),
            ("invokehttp.tx.id", uuid::Uuid::new_v4().to_string()),
        ];
        let mut attributes = Attributes::clone(flow_file.attributes());
        for (name, value) in &facts {
            attributes.set(name, value.as_str());
        }
        if let Body::Content(content) = answer.body {
            let mut of_answer = attributes.clone();
            for (name, value) in &answer.headers {
                of_answer.set(name, value.as_str());
            }
            let kind = answer
                .headers
                .iter()
                .find(|(name, _)| name == "content-type");
            let kind = kind.map_or(CONTENT_TYPE_DEFAULT, |(_, kind)| kind);
            of_answer.set("mime.type", kind);
            let mut response = session.create_child(&[&flow_file], Arc::new(of_answer));
            session.set_content(&mut response, content)?;
            session.note(&response, EventKind::Fetch, &url);
            session.transfer(response, RESPONSE);
        } else if let (Body::Attribute(text), Some(name)) = (answer.body, &attribute) {
            attributes.set(name, text);
        }
        session.set_attributes(&mut flow_file, Arc::new(attributes));
        if sends_body && answer.status.is_success() {
            session.note(&flow_file, EventKind::Send, &url);
        }
        if answer.status.is_success() {
            session.transfer(flow_file, SUCCESS);
        } else if answer.status.is_server_error() {
            session.transfer_penalized(flow_file, RETRY);
        } else if self.penalizes_no_retry {
            session.transfer_penalized(flow_file, NO_RETRY);
        } else {
            session.transfer(flow_file, NO_RETRY);
        }
        Ok(())
    }

    fn request(
        &self,
        context: &Context,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
        ready: Ready,
        progress: &Progress,
    ) -> Result<reqwest::RequestBuilder, ProcessorError> {
        let mut request = self
            .client
            .request(ready.method, ready.url)
            .headers(ready.headers);
        if let Some((user, password)) = &self.credentials {
            request = request.basic_auth(user, Some(password));
        }
        if !ready.sends_body {
            return Ok(request);
        }
        let size = flow_file.size();
        let is_small = size <= PIECE_BYTES as u64 && !self.is_chunked;
        Ok(if is_small && self.upload_speed.is_none() {
            request.body(session.read(flow_file)?)
        } else {
            let len = (!self.is_chunked).then_some(size);
            let reader = session.reader(flow_file);
            let runtime = context.runtime();
            request.body(http_client::body(
                runtime,
                reader,
                len,
                self.upload_speed,
                progress,
            ))
        })
    }

    async fn answer(
        &self,
        session: &mut ProcessSession<'_>,
        request: reqwest::RequestBuilder,
        progress: &Progress,
        is_attribute: bool,
    ) -> Result<Answer, Broken> {
        let late = || Broken::Lost(format!("nothing within {} s", self.read_wait.as_secs_f32()));
        let response = tokio::select! {
            response = request.send() => response.map_err(lost)?,
            () = progress.stands_still(self.connect_wait + self.read_wait) => return Err(late()),
        };
        let status = response.status();
        let headers = response
            .headers()
            .iter()
            .take(HTTP_ANSWER_HEADERS_MAX)
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.as_str().to_owned(), value)
            })
            .collect();
        let body = if is_attribute {
            let bytes = self.beginning(response).await?;
            Body::Attribute(String::from_utf8_lossy(&bytes).into_owned())
        } else if status.is_success() || self.always_answers {
            Body::Content(self.content(session, response).await?)
        } else {
            // Read, so that the connection can serve the next request too.
            self.beginning(response).await?;
            Body::Nothing
        };
        Ok(Answer {
            status,
            headers,
            body,
        })
    }

    /// The first bytes of an answer's body.
    async fn beginning(&self, mut response: Response) -> Result<Vec<u8>, Broken> {
        let mut bytes = Vec::new();
        while bytes.len() < HTTP_ANSWER_ATTRIBUTE_BYTES_MAX {
            let Some(piece) = self.piece(&mut response).await? else {
                break;
            };
            let room = HTTP_ANSWER_ATTRIBUTE_BYTES_MAX - bytes.len();
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Ok(bytes)
    }

    async fn content(
        &self,
        session: &mut ProcessSession<'_>,
        mut response: Response,
    ) -> Result<Content, Broken> {
        let mut pace = Pace::new(Instant::now(), self.download_speed);
        let mut writer = session.writer();
        while let Some(piece) = self.piece(&mut response).await? {
            writer.write_all(&piece).map_err(|error| ours(&error))?;
            let rest = pace.rest(Instant::now(), piece.len());
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
            }
        }
        writer.finish().map_err(Broken::Ours)
    }

    async fn piece(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, Broken> {
        match tokio::time::timeout(self.read_wait, response.chunk()).await {
            Ok(piece) => piece.map_err(lost),
            Err(_) => Err(Broken::Lost("the answer broke off".to_owned())),
        }
    }
}

/// An address as it may be seen: without a password.
fn shown(url: &reqwest::Url) -> String {
    let mut url = url.clone();
    if url.password().is_some() && url.set_password(None).is_err() {
        return url.host_str().unwrap_or_default().to_owned();
    }
    url.into()
}

fn lost(error: reqwest::Error) -> Broken {
    // Without its address, which may hold a password.
    Broken::Lost(base::report(&error.without_url()))
}

fn ours(error: &io::Error) -> Broken {
    Broken::Ours(ProcessorError::Failed(base::report(error)))
}
