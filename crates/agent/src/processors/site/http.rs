//! Transactions of site-to-site over HTTP, as a client.
//!
//! A transaction is made by POST and has an address. Packets go to or come from its
//! `flow-files`, one behind the other without answers between them; then the checksum is
//! compared, and DELETE with a code ends the transaction: 12 confirms it, 19 says that the
//! checksums differ, 15 cancels it.

use std::io::{self, Read, Write};
use std::time::Duration;

use bytes::Bytes;
use flate2::Crc;
use reqwest::header::LOCATION;
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::common::Broken;
use crate::net::http_client::{PieceBody, PieceWriter};
use crate::net::limits::S2S_DETAILS_BYTES_MAX;
use crate::s2s::client::PortRequest;
use crate::s2s::codec::invalid;
use crate::s2s::transaction::End;

/// A transaction on its way.
pub(super) struct Transaction {
    client: Client,
    runtime: Handle,
    url: Url,
    request: PortRequest,
    wait: Duration,
}

/// Reads an answer's body.
pub(super) struct Download {
    answer: Response,
    runtime: Handle,
    piece: Bytes,
    wait: Duration,
}

impl Transaction {
    /// Makes a transaction with a port at `api`; `is_input` when it takes what we send.
    pub(super) fn begin(
        client: &Client,
        runtime: &Handle,
        api: &Url,
        is_input: bool,
        request: &PortRequest,
    ) -> Result<Transaction, Broken> {
        let kind = if is_input {
            "input-ports"
        } else {
            "output-ports"
        };
        let mut url = api.clone();
        let path = api.path().trim_end_matches('/');
        let id = &request.port_id;
        url.set_path(&format!("{path}/data-transfer/{kind}/{id}/transactions"));
        let mut transaction = Transaction {
            client: client.clone(),
            runtime: runtime.clone(),
            url,
            request: request.clone(),
            wait: request.expiration,
        };
        let asked = transaction.client.post(transaction.url.clone());
        let answer = transaction.call(transaction.headed(asked))?;
        if answer.status() != StatusCode::CREATED {
            return Err(refused(&answer).into());
        }
        let place = answer
            .headers()
            .get(LOCATION)
            .and_then(|place| place.to_str().ok());
        let place = place.and_then(|place| transaction.url.join(place).ok());
        transaction.url = place.ok_or_else(|| invalid("the remote names no transaction"))?;
        Ok(transaction)
    }

    /// Sends what `write` writes, and compares the checksum that it returns.
    pub(super) fn send(
        &self,
        write: impl FnOnce(&mut PieceWriter) -> Result<Crc, Broken>,
    ) -> Result<End, Broken> {
        let (pieces, body) = mpsc::channel(PIECES_AHEAD);
        let body = reqwest::Body::wrap(PieceBody::channel(body, None));
        let asked = self.client.post(self.flow_files()).body(body);
        let asked = self
            .headed(asked)
            .header("Content-Type", "application/octet-stream");
        let sending = self.runtime.spawn(asked.send());
        let mut upload = PieceWriter::new(pieces);
        let written = write(&mut upload).and_then(|crc| Ok(upload.flush().map(|()| crc)?));
        if written.is_err() {
            // A body that only stops would look whole.
            if !upload.break_off() {
                sending.abort();
            }
        }
        drop(upload);
        let crc = match written {
            Ok(crc) => crc,
            Err(broken) => {
                sending.abort();
                return Err(broken);
            }
        };
        let wait = self.wait;
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(wait, sending).await });
        let answer = answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let answer = answer.map_err(io::Error::other)?.map_err(lost)?;
        if answer.status() != StatusCode::ACCEPTED {
            return Err(refused(&answer).into());
        }
        let theirs = self.text(answer)?;
        if theirs.trim() != crc.sum().to_string() {
            self.end(19, None)?;
            return Err(invalid("the checksums differ").into());
        }
        self.end(12, None)
    }

    /// What the remote has for us, if anything.
    pub(super) fn receive(&self) -> Result<Option<Download>, Broken> {
        let asked = self.headed(self.client.get(self.flow_files()));
        let answer = self.call(asked)?;
        match answer.status() {
            StatusCode::ACCEPTED => Ok(Some(Download {
                answer,
                runtime: self.runtime.clone(),
                piece: Bytes::new(),
                wait: self.wait,
            })),
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(None),
            _ => Err(refused(&answer).into()),
        }
    }

    /// Ends the transaction by a code, with our checksum where the remote sent.
    pub(super) fn end(&self, code: u8, crc: Option<&Crc>) -> Result<End, Broken> {
        let mut url = self.url.clone();
        url.query_pairs_mut()
            .append_pair("responseCode", &code.to_string());
        if let Some(crc) = crc {
            url.query_pairs_mut()
                .append_pair("checksum", &crc.sum().to_string());
        }
        let answer = self.call(self.headed(self.client.delete(url)))?;
        if !answer.status().is_success() {
            return Err(refused(&answer).into());
        }
        let text = self.text(answer)?;
        let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(match told["responseCode"].as_u64() {
            Some(14) => End::FinishedButFull,
            _ => End::Finished,
        })
    }

    fn flow_files(&self) -> Url {
        let mut url = self.url.clone();
        let path = format!("{}/flow-files", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url
    }

    fn headed(&self, asked: RequestBuilder) -> RequestBuilder {
        let (count, bytes, millis) = self.request.batch;
        let expiration = self.request.expiration.as_millis();
        let mut asked = asked
            .header("x-nifi-site-to-site-protocol-version", "1")
            .header(
                "x-nifi-site-to-site-use-compression",
                self.request.is_packed.to_string(),
            )
            .header(
                "x-nifi-site-to-site-request-expiration",
                expiration.to_string(),
            );
        for (name, wish) in [("count", count), ("size", bytes), ("duration", millis)] {
            if wish > 0 {
                asked = asked.header(
                    format!("x-nifi-site-to-site-batch-{name}"),
                    wish.to_string(),
                );
            }
        }
        asked
    }

    fn call(&self, asked: RequestBuilder) -> Result<Response, Broken> {
        let wait = self.wait;
        let answer = self
            .runtime
            .block_on(async { tokio::time::timeout(wait, asked.send()).await });
        let answer = answer.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        Ok(answer.map_err(lost)?)
    }

    fn text(&self, answer: Response) -> Result<String, Broken> {
        let mut body = Download {
            answer,
            runtime: self.runtime.clone(),
            piece: Bytes::new(),
            wait: self.wait,
        };
        let mut text = String::new();
        (&mut body)
            .take(S2S_DETAILS_BYTES_MAX as u64)
            .read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Download {
    /// Whether anything is left of the body.
    pub(super) fn has_more(&mut self) -> io::Result<bool> {
        while self.piece.is_empty() {
            let (answer, wait) = (&mut self.answer, self.wait);
            let next = async { tokio::time::timeout(wait, answer.chunk()).await };
            let next = self.runtime.block_on(next);
            let next = next.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            match next.map_err(lost)? {
                Some(piece) => self.piece = piece,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_more()? {
            return Ok(0);
        }
        let len = buffer.len().min(self.piece.len());
        buffer[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

fn lost(error: reqwest::Error) -> io::Error {
    io::Error::other(base::report(&error.without_url()))
}

fn refused(answer: &Response) -> io::Error {
    let reason = match answer.status() {
        StatusCode::SERVICE_UNAVAILABLE => "it takes no more for now".to_owned(),
        StatusCode::NOT_FOUND => "it has no such port".to_owned(),
        status => format!("it answers {status}"),
    };
    invalid(&reason)
}

/// Pieces written ahead of the socket.
const PIECES_AHEAD: usize = 4;
