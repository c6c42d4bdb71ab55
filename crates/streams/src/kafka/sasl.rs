//! SaslHandshake and SaslAuthenticate: a client shows who it is.
//!
//! After version 0 of the handshake the messages of the login come bare, each after its length;
//! since version 1 they come in requests of their own. A refused login is answered after a while,
//! and the connection ends with the answer. A client whose login expires logs in again on the same
//! connection (KIP-368), as the same user.

use std::sync::Arc;

use access::{Login, Mechanism, Step};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use tokio::time::Instant;

use super::Context;
use super::limits::LOGIN_REFUSED_WAIT;
use super::reply::{Answer, Call, Ending, Reply, owned, text};
use super::security::{SaslSettings, Stage};

/// The client chooses a mechanism.
pub(super) fn handshake(call: Call) -> Result<Reply, Ending> {
    let request: SaslHandshakeRequest = call.decode("SaslHandshake")?;
    let context = &call.context;
    let Some(sasl) = &context.shared.security.sasl else {
        return call.now(&refused_handshake(ResponseError::IllegalSaslState, &[]));
    };
    if context.session.is_open() && sasl.lifetime.is_none() {
        // Nobody has to log in twice here, so this client is mistaken.
        return call.now(&refused_handshake(ResponseError::IllegalSaslState, &[]));
    }
    let wanted = request.mechanism.as_str();
    let found = sasl.mechanisms.iter().find(|known| known.name() == wanted);
    let Some(mechanism) = found else {
        let code = ResponseError::UnsupportedSaslMechanism;
        let body = refused_handshake(code, &sasl.mechanisms);
        context.session.enter(Stage::Shut);
        return call.answer(&body).map(Reply::Last);
    };
    context.session.enter(Stage::Speaking {
        login: Login::new(*mechanism),
        is_raw: call.version == 0,
    });
    call.now(&SaslHandshakeResponse::default().with_mechanisms(names(&sasl.mechanisms)))
}

/// The client speaks its mechanism.
pub(super) fn authenticate(call: Call) -> Result<Reply, Ending> {
    let request: SaslAuthenticateRequest = call.decode("SaslAuthenticate")?;
    let session = &call.context.session;
    let is_awaited = call.context.shared.security.sasl.is_some() && !session.is_open();
    let stage = match is_awaited {
        true => session.enter(Stage::Shut),
        false => Stage::Closed,
    };
    let Stage::Speaking { login, .. } = stage else {
        let body = SaslAuthenticateResponse::default()
            .with_error_code(ResponseError::IllegalSaslState.code())
            .with_error_message(Some(text("SaslHandshake comes first")));
        return match is_awaited {
            true => call.answer(&body).map(Reply::Last),
            false => call.now(&body),
        };
    };
    let context = Arc::clone(&call.context);
    step(&context, login, request.auth_bytes, Speaker::Framed(call))
}

/// The client speaks its mechanism without Kafka's headers.
pub(super) fn raw_token(
    context: &Arc<Context>,
    login: Login,
    token: Bytes,
) -> Result<Reply, Ending> {
    step(context, login, token, Speaker::Raw(Arc::clone(context)))
}

/// Whom an answer goes to.
enum Speaker {
    Framed(Call),
    Raw(Arc<Context>),
}

/// Judges one message of a login.
fn step(
    context: &Arc<Context>,
    mut login: Login,
    token: Bytes,
    speaker: Speaker,
) -> Result<Reply, Ending> {
    let Some(access) = context.shared.security.access.clone() else {
        return Err(Ending::LoginRefused);
    };
    if !login.mechanism().is_slow() {
        let step = login.step(&access.snapshot(), access.secret(), &token);
        return speaker.settle(login, step);
    }
    let places = Arc::clone(&context.shared.logins);
    Ok(Reply::HeldBack(Box::pin(async move {
        let place = places.acquire_owned().await;
        let judged = tokio::task::spawn_blocking(move || {
            let step = login.step(&access.snapshot(), access.secret(), &token);
            drop(place);
            (login, step)
        });
        let (login, step) = judged.await.map_err(|_| Ending::LoginRefused)?;
        speaker.settle(login, step)
    })))
}

impl Speaker {
    fn context(&self) -> &Arc<Context> {
        match self {
            Speaker::Framed(call) => &call.context,
            Speaker::Raw(context) => context,
        }
    }

    fn settle(self, login: Login, step: Step) -> Result<Reply, Ending> {
        let context = Arc::clone(self.context());
        let mechanism = login.mechanism();
        match step {
            Step::Continue(token) => {
                let is_raw = matches!(self, Speaker::Raw(_));
                context.session.enter(Stage::Speaking { login, is_raw });
                self.answer(token, 0)
            }
            Step::Done(principal, token) => {
                let sasl = context.shared.security.sasl.as_ref();
                let lifetime = sasl.and_then(|sasl: &SaslSettings| sasl.lifetime);
                let until = lifetime.map(|lifetime| Instant::now() + lifetime);
                if !context.session.open(principal, until) {
                    return self.refuse(mechanism, "it is another user's connection");
                }
                let millis = lifetime.map_or(0, |lifetime| lifetime.as_millis());
                self.answer(token, i64::try_from(millis).unwrap_or(i64::MAX))
            }
            Step::Refused(refusal) => self.refuse(mechanism, &refusal.to_string()),
        }
    }

    fn answer(self, token: Vec<u8>, lifetime_ms: i64) -> Result<Reply, Ending> {
        match self {
            Speaker::Framed(call) => {
                let body = SaslAuthenticateResponse::default().with_auth_bytes(token.into());
                // The lifetime is told since version 1.
                let body = match call.version {
                    0 => body,
                    _ => body.with_session_lifetime_ms(lifetime_ms),
                };
                call.now(&body)
            }
            Speaker::Raw(_) => {
                let mut bytes = BytesMut::with_capacity(4 + token.len());
                bytes.put_i32(i32::try_from(token.len()).unwrap_or(i32::MAX));
                bytes.put_slice(&token);
                Ok(Reply::Now(Answer::Whole(bytes.freeze())))
            }
        }
    }

    /// Ends the connection, after a while; the log is told more than the client.
    fn refuse(self, mechanism: Mechanism, reason: &str) -> Result<Reply, Ending> {
        let context = self.context();
        context.session.enter(Stage::Shut);
        context.shared.telemetry().refused.increment(1);
        let (client, mechanism) = (&context.client_host, mechanism.name());
        if context.shared.logs_refusal() {
            tracing::warn!(%client, mechanism, "Kafka login refused: {reason}");
        }
        Ok(Reply::HeldBack(Box::pin(async move {
            tokio::time::sleep(LOGIN_REFUSED_WAIT).await;
            let Speaker::Framed(call) = self else {
                // Bare messages have no words for a refusal.
                return Err(Ending::LoginRefused);
            };
            let message = format!("Authentication failed: wrong user or password for {mechanism}");
            let body = SaslAuthenticateResponse::default()
                .with_error_code(ResponseError::SaslAuthenticationFailed.code())
                .with_error_message(Some(owned(message)));
            call.answer(&body).map(Reply::Last)
        })))
    }
}

fn refused_handshake(code: ResponseError, mechanisms: &[Mechanism]) -> SaslHandshakeResponse {
    SaslHandshakeResponse::default()
        .with_error_code(code.code())
        .with_mechanisms(names(mechanisms))
}

fn names(mechanisms: &[Mechanism]) -> Vec<kafka_protocol::protocol::StrBytes> {
    mechanisms.iter().map(|known| text(known.name())).collect()
}
