//! The MQTT server alone: `mqtt-only FOLDER [ADDRESS]`. Prints the address it listens on, counts
//! everything that passes on an in-process sink, and stops on Ctrl-C.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::SystemClock;
use mqtt::{Delivery, Message, MessageSink, MqttConfig, Server};
use tokio_util::sync::CancellationToken;

struct Counting(AtomicU64);

impl MessageSink for Counting {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        self.0.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Delivery::Taken
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("give a folder")?;
    let config = match args.next() {
        Some(listen) => MqttConfig {
            listen,
            ..MqttConfig::default()
        },
        None => MqttConfig::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(&dir, config))
}

async fn run(dir: &str, config: MqttConfig) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::bind(&config.listen).await?;
    println!("listening on {}", listener.local_addr()?);
    let server = Server::open(Path::new(dir), config, Arc::new(SystemClock))?;
    let sink = Arc::new(Counting(AtomicU64::new(0)));
    server.subscribe("#".parse()?, sink.clone());
    let shutdown = CancellationToken::new();
    let serving = tokio::spawn({
        let (server, shutdown) = (server.clone(), shutdown.clone());
        async move { server.serve(listener, shutdown).await }
    });
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    serving.await?;
    server.close().await;
    println!(
        "{} messages, {:?}",
        sink.0.load(Ordering::Relaxed),
        server.stats()
    );
    Ok(())
}
