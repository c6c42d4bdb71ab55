//! A body whose pieces are made by a task of its own. Where the task fails the body breaks off, so that
//! whoever reads it never takes a part for the whole.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::ImportsError;
use crate::limits;

/// Where the pieces go; what is sent fails when nobody reads them any more.
pub(crate) type Told = Sender<Result<Bytes, ImportsError>>;

/// The pieces as they come.
pub(crate) struct Pieces(Receiver<Result<Bytes, ImportsError>>);

impl Pieces {
    /// A body, and where its pieces go.
    pub fn new() -> (Told, Pieces) {
        let (told, pieces) = channel(limits::PIECES_MAX);
        (told, Pieces(pieces))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = ImportsError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ImportsError>>> {
        let next = self.0.poll_recv(context);
        next.map(|next| next.map(|bytes| bytes.map(Frame::data)))
    }
}
