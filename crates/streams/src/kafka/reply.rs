//! From a request to the bytes of its answer.

use std::collections::HashSet;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

use super::Context;
use super::guard::Refused;
use super::permissions::Asks;
use super::unsent::Piece;
use crate::store::CHANGE_ROOM_BYTES;

/// A request that has passed the guard.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) context: Arc<Context>,
    pub(super) version: i16,
    pub(super) correlation: i32,
    /// What the table of APIs says that may be asked of the caller.
    pub(super) asks: Asks,
    pub(super) client_id: StrBytes,
    pub(super) body: Bytes,
}

/// What became of a request when it was begun.
pub(super) enum Reply {
    /// The client wants no answer.
    Nothing,
    /// The answer.
    Now(Answer),
    /// The request has had its effect; the answer is still to come.
    Later(Pin<Box<dyn Future<Output = Result<Answer, Ending>> + Send>>),
    /// The store is busy: the request must be driven until it has begun, before the next one is
    /// looked at.
    HeldBack(Pin<Box<dyn Future<Output = Result<Reply, Ending>> + Send>>),
    /// The last answer: the connection ends with it.
    Last(Answer),
}

/// An answer with its length in front.
pub(super) enum Answer {
    Whole(Bytes),
    Pieces(Vec<Piece>),
}

/// Why a connection is closed: there is no way to answer such a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ending {
    #[error("a frame announces {0} bytes")]
    FrameLength(i32),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("API {key} version {version} is not served")]
    UnknownApi { key: i16, version: i16 },
    #[error("{api} request cannot be decoded: {reason}")]
    Undecodable { api: &'static str, reason: String },
    #[error("the answer cannot be encoded: {0}")]
    Unencodable(String),
    #[error("acks=0 batch was refused: {0}")]
    UnansweredRefusal(String),
    #[error("{0} was asked before the login")]
    NotLoggedIn(&'static str),
    #[error("nobody logged in in time")]
    NoLogin,
    #[error("the login expired")]
    LoginExpired,
    #[error("the login was refused")]
    LoginRefused,
    #[error("a frame stood still for too long")]
    Stalled,
    #[error("answers found no reader for too long")]
    Unread,
    #[error("records cannot be read any more that were to be sent: {0}")]
    Unreadable(String),
    #[error("it held memory for long that others needed")]
    GaveWay,
    #[error("it asked for nothing for long")]
    Idle,
    #[error("the socket failed")]
    Socket(#[from] std::io::Error),
}

impl Call {
    /// Decodes the body, which the guard has walked.
    pub(super) fn decode<T: Decodable>(&self, api: &'static str) -> Result<T, Ending> {
        self.decode_in(self.version, api)
    }

    /// Decodes the body as one of another version, which is written the same.
    pub(super) fn decode_in<T: Decodable>(
        &self,
        version: i16,
        api: &'static str,
    ) -> Result<T, Ending> {
        let mut body = self.body.clone();
        T::decode(&mut body, version).map_err(|error| Ending::Undecodable {
            api,
            reason: error.to_string(),
        })
    }

    /// Encodes an answer of this request's version.
    pub(super) fn answer<T: Encodable + HeaderVersion>(&self, body: &T) -> Result<Answer, Ending> {
        self.answer_in(self.version, body)
    }

    /// Encodes an answer of another version.
    pub(super) fn answer_in<T: Encodable + HeaderVersion>(
        &self,
        version: i16,
        body: &T,
    ) -> Result<Answer, Ending> {
        let size = body
            .compute_size(version)
            .map_err(|e| Ending::Unencodable(e.to_string()))?;
        let mut bytes = BytesMut::with_capacity(ANSWER_HEAD_BYTES_MAX + size);
        bytes.put_i32(0);
        bytes.put_i32(self.correlation);
        if T::header_version(version) > 0 {
            // No tagged fields in the header.
            bytes.put_u8(0);
        }
        body.encode(&mut bytes, version)
            .map_err(|e| Ending::Unencodable(e.to_string()))?;
        Ok(Answer::Whole(with_length(bytes)))
    }

    /// Encodes an answer at once.
    pub(super) fn now<T: Encodable + HeaderVersion>(&self, body: &T) -> Result<Reply, Ending> {
        self.answer(body).map(Reply::Now)
    }
}

impl Answer {
    /// What it takes in memory.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Answer::Whole(bytes) => bytes.len(),
            Answer::Pieces(pieces) => pieces.iter().map(Piece::held_bytes).sum(),
        }
    }

    /// Bytes that it has on the wire.
    pub(super) fn len(&self) -> usize {
        match self {
            Answer::Whole(bytes) => bytes.len(),
            Answer::Pieces(pieces) => pieces.iter().map(Piece::len).sum(),
        }
    }
}

impl Reply {
    /// Answers when `answer` is there.
    pub(super) fn later(
        answer: impl Future<Output = Result<Answer, Ending>> + Send + 'static,
    ) -> Result<Reply, Ending> {
        Ok(Reply::Later(Box::pin(answer)))
    }
}

/// Begins a call anew, with all that it checks, once the store has room for what it asks; what came
/// after it on its connection waits meanwhile.
pub(super) fn begun_again(call: Call, begin: fn(Call) -> Result<Reply, Ending>) -> Reply {
    Reply::HeldBack(Box::pin(async move {
        // What is written is a little larger than what asks for it.
        let bytes = CHANGE_ROOM_BYTES.max(2 * call.body.len() as u64);
        call.context.streams().room(bytes).await;
        begin(call)
    }))
}

/// Begins a call that takes long on a thread of its own; what came after it on its connection waits
/// meanwhile, and no other connection does.
pub(super) fn begun_aside(call: Call, begin: fn(Call) -> Result<Reply, Ending>) -> Reply {
    Reply::HeldBack(Box::pin(async move {
        match tokio::task::spawn_blocking(move || begin(call)).await {
            Ok(reply) => reply,
            Err(error) => Err(Ending::Unencodable(error.to_string())),
        }
    }))
}

/// Writes the frame's length into the four bytes left for it.
fn with_length(mut bytes: BytesMut) -> Bytes {
    let length = i32::try_from(bytes.len() - 4).unwrap_or(i32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes.freeze()
}

/// The entries of a request that differ, in order: one asked a thousand times in a request would be
/// answered a thousand times at once, whatever the answer takes.
pub(super) fn once<T, K: Hash + Eq>(entries: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = HashSet::with_capacity(entries.len());
    let mut entries = entries;
    entries.retain(|entry| seen.insert(key(entry)));
    entries
}

/// A text without copying when it is static.
pub(super) fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// A text of its own.
pub(super) fn owned(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// Length, correlation id and empty tagged fields.
const ANSWER_HEAD_BYTES_MAX: usize = 9;
