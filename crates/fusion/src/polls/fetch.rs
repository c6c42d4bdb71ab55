//! One GET: within a time, up to a size, without redirects, proxies and compression.

use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use reqwest::header::ACCEPT;
use reqwest::{Client, Response, Url};
use tokio::sync::Semaphore;

use super::PollsConfig;
use crate::limits::POLLS_AT_ONCE;
use crate::sinks::client;

/// Gets answers; one pool of connections for all statements, made at the first request.
pub struct Fetcher {
    client: OnceLock<Result<Client, String>>,
    room: Semaphore,
}

impl Default for Fetcher {
    fn default() -> Self {
        Fetcher {
            client: OnceLock::new(),
            room: Semaphore::new(POLLS_AT_ONCE),
        }
    }
}

impl Fetcher {
    /// The body of an answer, whole.
    ///
    /// # Errors
    /// Why there is none: nobody answered in time, with a status below 300, in so many bytes.
    pub async fn get(&self, address: &Url, config: &PollsConfig) -> Result<Bytes, String> {
        // A proxy of the environment would be a way around the list of servers.
        let made = || client(reqwest::ClientBuilder::no_proxy);
        let client = self.client.get_or_init(made).as_ref()?;
        let _place = self
            .room
            .acquire()
            .await
            .map_err(|error| error.to_string())?;
        let request = client
            .get(address.clone())
            .header(ACCEPT, "application/json")
            .timeout(config.timeout.0);
        match request.send().await {
            Ok(response) => body(response, config).await,
            Err(error) => Err(told(error)),
        }
    }
}

async fn body(mut response: Response, config: &PollsConfig) -> Result<Bytes, String> {
    let status = response.status();
    if status.is_redirection() {
        return Err(format!(
            "the server answered {status}, which is not followed"
        ));
    }
    if !status.is_success() {
        return Err(format!("the server answered {status}"));
    }
    let most = config.answer_max;
    let is_full = |bytes: u64| bytes > most.0;
    let too_large = || format!("the answer has more than {most} (fusion.polls.answer_max)");
    if response.content_length().is_some_and(is_full) {
        return Err(too_large());
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(told)? {
        if is_full((body.len() + chunk.len()) as u64) {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

fn told(error: reqwest::Error) -> String {
    match error.is_timeout() {
        true => "no answer in time (fusion.polls.timeout)".to_owned(),
        false => base::report(&error.without_url()),
    }
}
