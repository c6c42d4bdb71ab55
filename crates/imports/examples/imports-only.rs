//! Bulk imports and their event store alone, to try with curl:
//! `cargo run -p imports --example imports-only -- FOLDER ADDRESS
//! [DATABASE]`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use base::SystemClock;
use imports::{Imports, ImportsConfig};
use streams::{Streams, StreamsConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: imports-only FOLDER ADDRESS [DATABASE]";
    let folder = args.next().map(PathBuf::from).ok_or(usage)?;
    let address = args.next().ok_or(usage)?;
    let clock = Arc::new(SystemClock);
    let (streams, _) = Streams::open(
        &folder.join("streams"),
        StreamsConfig::default(),
        clock.clone(),
    )?;
    let config = ImportsConfig {
        database: args.next().map(Into::into),
        ..ImportsConfig::default()
    };
    let imports = Imports::open(&folder.join("imports"), config, streams.store(), clock).await?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("imports listens on {}", listener.local_addr()?);
    let stop = async {
        // Without a signal handler there is nothing to wait for but the end of the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let router = imports::http::routes(imports.clone());
    axum::serve(listener, router)
        .with_graceful_shutdown(stop)
        .await?;
    imports.close().await;
    streams.close().await;
    Ok(())
}
