//! Rows by POST.

use std::sync::OnceLock;

use bytes::Bytes;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, StatusCode};

use crate::limits::POST_TIMEOUT;

/// Posts rows; one pool of connections for all statements, made when the first row is posted.
#[derive(Default)]
pub struct Poster {
    client: OnceLock<Result<Client, String>>,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The server has it.
    Taken,
    /// It may take it later.
    Later(String),
    /// It never will.
    Never(String),
}

impl Poster {
    /// Posts one row and waits for the answer, [`POST_TIMEOUT`] at most.
    pub async fn post(&self, url: &str, row: Bytes) -> Posted {
        let made = || client(|settings| settings.timeout(POST_TIMEOUT));
        let client = match self.client.get_or_init(made) {
            Ok(client) => client,
            Err(why) => return Posted::Later(why.clone()),
        };
        let request = client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .body(row);
        match request.send().await {
            Ok(response) => judged(response.status()),
            Err(error) => Posted::Later(base::report(&error.without_url())),
        }
    }
}

fn judged(status: StatusCode) -> Posted {
    let may_pass = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS
    );
    match status {
        status if status.is_success() => Posted::Taken,
        status if may_pass || status.is_server_error() => {
            Posted::Later(format!("the server answered {status}"))
        }
        status => Posted::Never(format!("the server answered {status}")),
    }
}

/// A client that follows no redirects: one would turn a POST into a GET, and lead to servers that
/// nobody named.
pub fn client(set: impl Fn(ClientBuilder) -> ClientBuilder) -> Result<Client, String> {
    // Whoever did it before did the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = || set(Client::builder().redirect(reqwest::redirect::Policy::none()));
    // A machine that believes nobody can still call a server without TLS.
    let made = settings().build();
    made.or_else(|_| settings().tls_certs_only(Vec::new()).build())
        .map_err(|error| format!("cannot make an HTTP client: {error}"))
}
