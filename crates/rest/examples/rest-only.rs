//! The REST proxy and its event store alone, to try with curl:
//! `cargo run -p rest --example rest-only -- FOLDER [ADDRESS]`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use base::SystemClock;
use rest::RestConfig;
use streams::{Streams, StreamsConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = args
        .next()
        .map(PathBuf::from)
        .ok_or("usage: rest-only FOLDER [ADDRESS]")?;
    let config = RestConfig::default();
    let address = args.next().unwrap_or_else(|| config.listen.clone());
    let clock = Arc::new(SystemClock);
    let (streams, _) = Streams::open(&folder, StreamsConfig::default(), clock.clone())?;
    let (router, handle) = rest::routes(streams.store(), config, clock, None, None);
    let router = router.merge(rest::management(streams.store()));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("rest listens on {}", listener.local_addr()?);
    let stop = async {
        // Without a signal handler there is nothing to wait for but the end of the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    handle.close().await;
    streams.close().await;
    Ok(())
}
