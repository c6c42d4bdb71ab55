//! A link to one broker: requests and their answers, on a socket with deadlines.
//!
//! A request may be sent before the last one's answer was taken; answers that come before they are
//! wanted are kept.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, RequestHeader, ResponseHeader,
    SaslAuthenticateRequest, SaslHandshakeRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use super::security::{Sasl, Security};
use crate::limits::KAFKA_ANSWER_BYTES_MAX;
use crate::net::STOP_LOOK;
use crate::net::socket::{Socket, read_exact_until};

/// Why a broker could not be talked to; worth a retry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KafkaError {
    /// No connection.
    #[error("cannot reach {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// The connection broke or the answer is late.
    #[error("lost {address}: {source}")]
    Lost { address: String, source: io::Error },
    /// The answer is not what was asked for.
    #[error("{address} gave an answer that is none: {reason}")]
    Answer { address: String, reason: String },
    /// The broker cannot do what is needed.
    #[error("{address} {reason}")]
    Unable { address: String, reason: String },
    /// The processor is being stopped.
    #[error("stopped")]
    Stopped,
}

/// A connected broker.
#[derive(Debug)]
pub(crate) struct Link {
    stream: Socket,
    address: String,
    client: StrBytes,
    correlation: i32,
    /// Requests whose answers were not taken, with those that are there.
    awaited: Vec<(i32, Option<Bytes>)>,
    versions: Vec<(i16, i16, i16)>,
    out: BytesMut,
}

/// A request that was sent, by which its answer is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    correlation: i32,
    version: i16,
}

impl Link {
    /// Connects, asks what the broker understands, and logs in where that is wanted.
    pub(crate) fn connect(
        address: &str,
        client: &str,
        security: &Security,
        stops: &dyn Fn() -> bool,
    ) -> Result<Link, KafkaError> {
        let tls = security.tls.as_ref();
        let stream = Socket::connect(address, tls, CONNECT_WAIT, STOP_LOOK, WRITE_WAIT);
        let stream = stream.map_err(|source| KafkaError::Connect {
            address: address.to_owned(),
            source,
        })?;
        let mut link = Link {
            stream,
            address: address.to_owned(),
            client: StrBytes::from_string(client.to_owned()),
            correlation: 0,
            awaited: Vec::new(),
            versions: Vec::new(),
            out: BytesMut::new(),
        };
        let request = ApiVersionsRequest::default();
        let answer: ApiVersionsResponse =
            link.call_version(&request, 0, API_VERSIONS_WAIT, stops)?;
        link.versions = answer
            .api_keys
            .iter()
            .map(|k| (k.api_key, k.min_version, k.max_version))
            .collect();
        if let Some(sasl) = &security.sasl {
            link.log_in(sasl, stops)?;
        }
        Ok(link)
    }

    fn log_in(&mut self, sasl: &Sasl, stops: &dyn Fn() -> bool) -> Result<(), KafkaError> {
        let name = sasl.mechanism.name();
        let request =
            SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(name));
        let version = self.version::<SaslHandshakeRequest>(1)?;
        if version < 1 {
            return Err(self.unable("is too old for a login by SASL"));
        }
        let (answer, _) = self.call(&request, 1, LOGIN_WAIT, stops)?;
        if answer.error_code != 0 {
            let known: Vec<String> = answer.mechanisms.iter().map(|m| m.to_string()).collect();
            let reason = format!("does not take {name}; it takes: {}", known.join(", "));
            return Err(self.unable(&reason));
        }
        let (mut message, mut conversation) = sasl.start();
        loop {
            let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
            let (answer, _) = self.call(&request, 1, LOGIN_WAIT, stops)?;
            if answer.error_code != 0 {
                let reason = answer
                    .error_message
                    .as_ref()
                    .map_or("", |text| text.as_str());
                let user = &sasl.user;
                return Err(self.unable(&format!("refuses the login of '{user}': {reason}")));
            }
            match conversation.next(&answer.auth_bytes) {
                Ok(Some(next)) => message = next,
                Ok(None) => return Ok(()),
                Err(reason) => {
                    return Err(self.unable(&format!("cannot be logged in to: {reason}")));
                }
            }
        }
    }

    /// Sends a request at the highest version up to `version_max` and reads its answer.
    pub(crate) fn call<Q: Request>(
        &mut self,
        request: &Q,
        version_max: i16,
        wait: Duration,
        stops: &dyn Fn() -> bool,
    ) -> Result<(Q::Response, i16), KafkaError> {
        let version = self.version::<Q>(version_max)?;
        Ok((self.call_version(request, version, wait, stops)?, version))
    }

    /// The version at which a request will be sent.
    pub(crate) fn version<Q: Request>(&self, version_max: i16) -> Result<i16, KafkaError> {
        let known = self.versions.iter().find(|(key, _, _)| *key == Q::KEY);
        let version = known.map(|(_, min, max)| (*min, (*max).min(version_max)));
        match version {
            Some((min, version)) if version >= min => Ok(version),
            _ => Err(self.unable(&format!("does not understand request {}", Q::KEY))),
        }
    }

    /// Sends without expecting an answer (acks 0).
    pub(crate) fn send<Q: Request>(&mut self, request: &Q, version: i16) -> Result<(), KafkaError> {
        self.write(request, version)
    }

    /// Sends; the answer is taken by [`Self::answer`].
    pub(crate) fn ask<Q: Request>(
        &mut self,
        request: &Q,
        version: i16,
    ) -> Result<Asked, KafkaError> {
        self.write(request, version)?;
        let correlation = self.correlation;
        self.awaited.push((correlation, None));
        Ok(Asked {
            correlation,
            version,
        })
    }

    /// Whether the answer to this is still to be taken: not so on a link that came after its own.
    pub(crate) fn awaits(&self, asked: Asked) -> bool {
        let mut awaited = self.awaited.iter();
        awaited.any(|(correlation, _)| *correlation == asked.correlation)
    }

    /// The answer to what was asked.
    pub(crate) fn answer<A: Decodable + HeaderVersion>(
        &mut self,
        asked: Asked,
        wait: Duration,
        stops: &dyn Fn() -> bool,
    ) -> Result<A, KafkaError> {
        let deadline = Instant::now() + wait;
        loop {
            let at = self
                .awaited
                .iter()
                .position(|(correlation, _)| *correlation == asked.correlation);
            let Some(at) = at else {
                return Err(self.no_answer("nobody asked for it"));
            };
            if self.awaited[at].1.is_some() {
                let mut answer = self.awaited.remove(at).1.unwrap_or_default();
                let header = A::header_version(asked.version);
                return ResponseHeader::decode(&mut answer, header)
                    .and_then(|_| A::decode(&mut answer, asked.version))
                    .map_err(|error| self.no_answer(&error.to_string()));
            }
            let answer = self.read(deadline, stops)?;
            // Every header begins with the number of its request.
            let number = answer.first_chunk().map(|bytes| i32::from_be_bytes(*bytes));
            let mut awaited = self.awaited.iter_mut();
            match awaited.find(|(correlation, _)| Some(*correlation) == number) {
                Some((_, kept)) => *kept = Some(answer),
                None => return Err(self.no_answer("it belongs to another request")),
            }
        }
    }

    fn call_version<Q: Request, A: Decodable + HeaderVersion>(
        &mut self,
        request: &Q,
        version: i16,
        wait: Duration,
        stops: &dyn Fn() -> bool,
    ) -> Result<A, KafkaError> {
        let asked = self.ask(request, version)?;
        self.answer(asked, wait, stops)
    }

    fn write<Q: Request>(&mut self, request: &Q, version: i16) -> Result<(), KafkaError> {
        self.correlation = self.correlation.wrapping_add(1);
        let header = RequestHeader::default()
            .with_request_api_key(Q::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation)
            .with_client_id(Some(self.client.clone()));
        self.out.clear();
        self.out.extend_from_slice(&[0; 4]);
        header
            .encode(&mut self.out, Q::header_version(version))
            .and_then(|()| request.encode(&mut self.out, version))
            .map_err(|error| self.unable(&format!("cannot be sent this: {error}")))?;
        let len = (self.out.len() - 4) as u32;
        self.out[..4].copy_from_slice(&len.to_be_bytes());
        self.stream
            .write_all(&self.out)
            .and_then(|()| self.stream.flush())
            .map_err(|source| self.lost(source))
    }

    fn read(&mut self, deadline: Instant, stops: &dyn Fn() -> bool) -> Result<Bytes, KafkaError> {
        let mut len = [0; 4];
        self.read_exact(&mut len, deadline, stops)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > KAFKA_ANSWER_BYTES_MAX {
            return Err(self.no_answer(&format!("it has {len} bytes")));
        }
        let mut answer = vec![0; len];
        self.read_exact(&mut answer, deadline, stops)?;
        Ok(Bytes::from(answer))
    }

    fn read_exact(
        &mut self,
        buffer: &mut [u8],
        deadline: Instant,
        stops: &dyn Fn() -> bool,
    ) -> Result<(), KafkaError> {
        let mut stop_seen: Option<Instant> = None;
        let mut is_stopped = false;
        let read = read_exact_until(&mut self.stream, buffer, deadline, || {
            // What is in flight may still be answered; a broken-off batch is in doubt.
            is_stopped = stops()
                && stop_seen.get_or_insert_with(Instant::now).elapsed() > crate::limits::STOP_WAIT;
            is_stopped
        });
        match read {
            Err(_) if is_stopped => Err(KafkaError::Stopped),
            read => read.map_err(|source| self.lost(source)),
        }
    }

    fn lost(&self, source: io::Error) -> KafkaError {
        KafkaError::Lost {
            address: self.address.clone(),
            source,
        }
    }

    fn no_answer(&self, reason: &str) -> KafkaError {
        KafkaError::Answer {
            address: self.address.clone(),
            reason: reason.to_owned(),
        }
    }

    fn unable(&self, reason: &str) -> KafkaError {
        KafkaError::Unable {
            address: self.address.clone(),
            reason: reason.to_owned(),
        }
    }
}

/// Longest wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(3);
/// Longest wait for a socket that takes no more bytes.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for one answer of a login.
const LOGIN_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for a broker's versions.
const API_VERSIONS_WAIT: Duration = Duration::from_secs(10);
