//! Serves the fleet alone: `fleet-only DIR [ADDRESS]`; prints where it listens.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use base::SystemClock;
use fleet::{Fleet, FleetConfig};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let dir = args
        .next()
        .map(PathBuf::from)
        .ok_or("usage: fleet-only DIR [ADDRESS]")?;
    let address = args.next().and_then(|text| text.into_string().ok());
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let config = FleetConfig {
        listen: listener.local_addr()?.to_string(),
        ..FleetConfig::default()
    };
    println!("http://{}", config.listen);
    let fleet = Fleet::open(&dir, config, Arc::new(SystemClock)).await?;
    axum::serve(listener, fleet::http::routes(fleet.clone()))
        .with_graceful_shutdown(async {
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?;
    fleet.close().await;
    Ok(())
}
