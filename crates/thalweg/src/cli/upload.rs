//! Files of imports on their way to the server: shown on a bar, and large ones in pieces, so that what
//! breaks off goes on where it stopped.

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use reqwest::{Body, Method, RequestBuilder};
use serde_json::Value;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

use super::client::segment;
use super::progress::{Shown, bar};
use super::{Client, Failure};

/// Creates an import of a file by `request`; answers the job. One whose file could not be sent to its
/// end is cancelled, unless it `is_kept` for another try.
pub async fn create(
    client: &Client,
    request: RequestBuilder,
    path: &Path,
    is_kept: bool,
) -> Result<Value, Failure> {
    let (file, bytes) = open(path).await?;
    let Some(bytes) = bytes.filter(|bytes| *bytes > PIECE_BYTES) else {
        return send_opened(client, request, file, bytes).await;
    };
    let job = client.send(request.query(&[("resumable", "true")])).await?;
    let bar = bar(bytes, BAR);
    let whole = Whole {
        path,
        bytes,
        piece_bytes: PIECE_BYTES,
        bar: bar.clone(),
    };
    let sent = tokio::select! {
        sent = whole.send(client, job.clone()) => sent,
        _ = tokio::signal::ctrl_c() => Err(Failure("the file was not sent to its end".to_owned())),
    };
    bar.finish_and_clear();
    match sent {
        Err(Failure(reason)) if is_kept => Err(Failure(format!(
            "{reason}; the same command goes on where it stopped, within a day"
        ))),
        Err(failure) => {
            let cancelled = client.request(Method::DELETE, &path_of(&job, ""));
            // Where this fails too, the server gives the upload up after a day.
            let _ = client.send(cancelled).await;
            Err(failure)
        }
        sent => sent,
    }
}

/// Sends a request with a file, which is read meanwhile; the answer.
pub async fn send(client: &Client, request: RequestBuilder, path: &Path) -> Result<Value, Failure> {
    let (file, bytes) = open(path).await?;
    send_opened(client, request, file, bytes).await
}

async fn send_opened(
    client: &Client,
    request: RequestBuilder,
    file: File,
    bytes: Option<u64>,
) -> Result<Value, Failure> {
    let bar = match bytes {
        Some(bytes) => bar(bytes, BAR),
        None => bar(0, BAR_OF_PIPE),
    };
    let request = with_body(request, Shown::new(file, bar.clone()), bytes);
    let answer = client.send(request).await;
    bar.finish_and_clear();
    answer
}

/// A file, and how many bytes it has; none of what ends when it ends, such as a pipe.
async fn open(path: &Path) -> Result<(File, Option<u64>), Failure> {
    let file = File::open(path).await.map_err(cannot_read(path))?;
    let found = file.metadata().await.map_err(cannot_read(path))?;
    let bytes = found.is_file().then_some(found.len());
    Ok((file, bytes))
}

fn with_body(
    request: RequestBuilder,
    file: impl AsyncRead + Send + Unpin + 'static,
    bytes: Option<u64>,
) -> RequestBuilder {
    let request = request.header("Content-Type", "application/octet-stream");
    let request = match bytes {
        Some(bytes) => request.header("Content-Length", bytes),
        None => request,
    };
    request.body(Body::wrap_stream(ReaderStream::with_capacity(
        file,
        CHUNK_BYTES,
    )))
}

/// A file that is sent in pieces.
struct Whole<'p> {
    path: &'p Path,
    bytes: u64,
    piece_bytes: u64,
    bar: ProgressBar,
}

impl Whole<'_> {
    /// Sends what the server does not have yet of an upload, piece by piece; answers the job, which runs
    /// then.
    ///
    /// # Errors
    /// When the server refuses a piece again and again, or does not answer for a while.
    async fn send(&self, client: &Client, mut job: Value) -> Result<Value, Failure> {
        let (mut refused, mut away) = (0, 0);
        while job["state"] == "uploading" {
            let failure = match self.send_piece(client, &job).await {
                Ok(after) => {
                    (refused, away) = (0, 0);
                    job = after;
                    continue;
                }
                Err(failure) => failure,
            };
            tokio::time::sleep(PAUSE).await;
            match client.get(&path_of(&job, "")).await {
                Ok(found) => {
                    refused = match found["bytes_total"] == job["bytes_total"] {
                        true => refused + 1,
                        false => 0,
                    };
                    away = 0;
                    job = found;
                }
                Err(_) => away += 1,
            }
            if refused >= REFUSED_MAX || away >= AWAY_MAX {
                return Err(failure);
            }
        }
        Ok(job)
    }

    async fn send_piece(&self, client: &Client, job: &Value) -> Result<Value, Failure> {
        let from = job["bytes_total"].as_u64().unwrap_or(0);
        let Some(left) = self.bytes.checked_sub(from) else {
            let path = self.path.display();
            return Err(Failure(format!(
                "{path} is shorter than what was sent of it"
            )));
        };
        let bytes = left.min(self.piece_bytes);
        let is_last = bytes == left;
        let mut file = File::open(self.path)
            .await
            .map_err(cannot_read(self.path))?;
        let sought = file.seek(std::io::SeekFrom::Start(from)).await;
        sought.map_err(cannot_read(self.path))?;
        self.bar.set_position(from);
        let piece = Shown::new(file, self.bar.clone()).take(bytes);
        let path = path_of(job, &format!("/file?offset={from}&last={is_last}"));
        let request = client.request(Method::PATCH, &path);
        client.send(with_body(request, piece, Some(bytes))).await
    }
}

fn path_of(job: &Value, under: &str) -> String {
    let id = job["id"].as_str().unwrap_or_default();
    format!("/api/v1/imports/{}{under}", segment(id))
}

fn cannot_read(file: &Path) -> impl Fn(std::io::Error) -> Failure + use<> {
    let what = format!("cannot read {}", file.display());
    move |error| Failure::because(&what, &error)
}

const BAR: &str = "{bar:40.cyan} {bytes}/{total_bytes} sent, {bytes_per_sec}, {eta} to go";
const BAR_OF_PIPE: &str = "{spinner} {bytes} sent, {bytes_per_sec}";
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a piece, and of a file that goes in one: sent anew in some seconds.
const PIECE_BYTES: u64 = 64 << 20;
/// How long is waited before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// How often a piece is refused, of which no byte came in, before that is told.
const REFUSED_MAX: u32 = 3;
/// How often in a row a server does not answer: it is started again in less than half a minute.
const AWAY_MAX: u32 = 60;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Bytes;
    use axum::extract::{RawQuery, State};
    use axum::http::StatusCode;
    use axum::{Json, Router, routing::get};
    use parking_lot::Mutex;
    use serde_json::json;

    use super::super::{Output, client::Trust};
    use super::*;

    /// A server that takes half of every other piece, and says that it failed.
    #[derive(Default)]
    struct Double {
        file: Vec<u8>,
        pieces: usize,
        is_over: bool,
        /// It takes no more than this.
        most: Option<usize>,
    }

    type Shared = Arc<Mutex<Double>>;

    fn job(double: &Double) -> Value {
        let state = if double.is_over {
            "running"
        } else {
            "uploading"
        };
        json!({"id": "j", "state": state, "bytes_total": double.file.len()})
    }

    async fn take(
        State(double): State<Shared>,
        RawQuery(query): RawQuery,
        piece: Bytes,
    ) -> (StatusCode, Json<Value>) {
        let mut double = double.lock();
        let query = query.unwrap_or_default();
        let expected = format!("offset={}&", double.file.len());
        assert!(query.starts_with(&expected), "{query}");
        let room = double
            .most
            .map_or(usize::MAX, |most| most - double.file.len());
        if piece.len() > room {
            let told = json!({"message": "the file is too large"});
            return (StatusCode::PAYLOAD_TOO_LARGE, Json(told));
        }
        double.pieces += 1;
        if double.pieces.is_multiple_of(2) {
            double.file.extend_from_slice(&piece[..piece.len() / 2]);
            return (StatusCode::BAD_GATEWAY, Json(json!({"message": "gone"})));
        }
        double.file.extend_from_slice(&piece);
        double.is_over = query.ends_with("last=true");
        (StatusCode::OK, Json(job(&double)))
    }

    /// Sends a file of 100,000 bytes in pieces of 30,000; what became of it, and of the double.
    async fn sent(most: Option<usize>) -> (Result<Value, Failure>, Shared, Vec<u8>) {
        let double = Shared::default();
        double.lock().most = most;
        let show = async |State(double): State<Shared>| Json(job(&double.lock()));
        let routes = Router::new()
            .route("/api/v1/imports/j", get(show))
            .route("/api/v1/imports/j/file", axum::routing::patch(take))
            .with_state(Arc::clone(&double));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let client = Client::new(Some(server), Output::Table, None, Trust::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &file).unwrap();
        let whole = Whole {
            path: &path,
            bytes: file.len() as u64,
            piece_bytes: 30_000,
            bar: ProgressBar::hidden(),
        };
        let begun = job(&double.lock());
        let sent = whole.send(&client, begun).await;
        (sent, double, file)
    }

    #[tokio::test]
    async fn a_file_in_pieces_goes_on_where_it_broke_off() {
        let (sent, double, file) = sent(None).await;
        assert_eq!(sent.unwrap()["state"], "running");
        let double = double.lock();
        assert!(
            double.file == file && double.pieces > 4,
            "{}",
            double.pieces
        );
    }

    #[tokio::test]
    async fn what_is_refused_again_and_again_is_told() {
        let (sent, double, _) = sent(Some(70_000)).await;
        assert_eq!(sent.unwrap_err().0, "the file is too large");
        assert!(double.lock().file.len() <= 70_000);
    }
}
