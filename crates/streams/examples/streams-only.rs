//! The event store and its Kafka listener alone, for trying clients and measuring.
//!
//! `cargo run -p streams --example streams-only -- [DIR] [LISTEN] [KEY=VALUE…]`: keys are
//! `durability`, `default_partitions` and `max_message_bytes` of the store's configuration.
//! Without DIR the store lives in a temporary folder. Stops on Ctrl-C.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use base::SystemClock;
use streams::{Streams, StreamsConfig};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let dir = args
        .next()
        .map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let mut config = serde_json::to_value(StreamsConfig::default())?;
    for pair in args {
        let (key, value) = pair.split_once('=').ok_or("write KEY=VALUE")?;
        // A value that is no JSON is a plain text.
        config[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }
    let config: StreamsConfig = serde_json::from_value(config)?;
    let (streams, recovery) = Streams::open(&dir, config, Arc::new(SystemClock))?;
    eprintln!("opened {}: {recovery:?}", dir.display());
    let listener = TcpListener::bind(&listen).await?;
    println!("{}", listener.local_addr()?);
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    tokio::spawn(async move {
        // Without a signal handler the process just ends, which the store survives too.
        if wait_for_signal().await.is_ok() {
            stop.cancel();
        }
    });
    streams::kafka::serve(listener, Arc::clone(&streams), shutdown).await;
    streams.close().await;
    Ok(())
}

async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
