//! A client's enhanced login (5.0 section 4.12): which method, and how far it has come.

use std::sync::Arc;

use crate::codec;
use crate::gate::{Exchange, Gate, Hello, Pass, Progress};
use crate::limits::AUTH_DATA_BYTES_MAX;
use crate::link::LinkEnd;
use crate::reason::ReasonCode;

/// The login of one link, from its CONNECT to its end: it may be repeated.
pub(crate) struct Login {
    method: String,
    exchange: Option<Box<dyn Exchange>>,
}

/// What the client is to be told.
pub(crate) enum Answer {
    /// Send this AUTH, and wait for the client's.
    Ask(Vec<u8>),
    /// The client is in, and gets this data.
    In(Vec<u8>, Arc<dyn Pass>),
}

impl Login {
    /// Begins, or begins again; the method stays that of the CONNECT.
    pub(crate) fn begin(
        gate: &dyn Gate,
        method: &str,
        hello: &Hello<'_>,
    ) -> Result<Login, ReasonCode> {
        let exchange = gate.exchange(method, hello);
        Ok(Login {
            exchange: Some(exchange.ok_or(ReasonCode::BadAuthenticationMethod)?),
            method: method.to_owned(),
        })
    }

    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Takes an AUTH of the client; `hello` is needed where it begins again.
    pub(crate) fn hear(
        &mut self,
        gate: &dyn Gate,
        hello: &Hello<'_>,
        (reason, method, data): (u8, Option<&str>, &[u8]),
    ) -> Result<Answer, LinkEnd> {
        if method != Some(&self.method) {
            return Err(LinkEnd::Protocol(
                "an AUTH of another method than the CONNECT",
            ));
        }
        if reason == ReasonCode::ReAuthenticate.byte() {
            let begun = Login::begin(gate, &self.method, hello);
            self.exchange = begun.map_err(LinkEnd::Told)?.exchange;
        }
        self.step(data).map_err(LinkEnd::Told)
    }

    /// Takes the client's data one step further.
    pub(crate) fn step(&mut self, data: &[u8]) -> Result<Answer, ReasonCode> {
        let exchange = self.exchange.as_mut().ok_or(ReasonCode::ProtocolError)?;
        let progress = exchange.step(data);
        if let Progress::Continue(data) | Progress::Done { data, .. } = &progress
            && data.len() > AUTH_DATA_BYTES_MAX
        {
            return Err(ReasonCode::ImplementationSpecificError);
        }
        match progress {
            Progress::Continue(data) => {
                let mut out = Vec::new();
                let reason = ReasonCode::ContinueAuthentication;
                codec::auth(&mut out, reason, &self.method, &data);
                Ok(Answer::Ask(out))
            }
            Progress::Done { data, pass } => {
                self.exchange = None;
                Ok(Answer::In(data, pass))
            }
            Progress::Refused(reason) => {
                self.exchange = None;
                Err(reason)
            }
        }
    }
}
