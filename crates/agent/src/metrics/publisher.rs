//! Publishes the metrics: a small HTTP server for Prometheus, or lines of the log.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::MetricsConfig;
use super::exposition::write;
use crate::AgentError;
use crate::host::CpuMeter;
use crate::limits::{QUESTION_BYTES_MAX, QUESTION_WAIT, QUESTIONS_AT_ONCE_MAX};
use crate::local::StatusView;
use crate::supervisor::Supervisor;

/// A publisher that is ready to publish.
pub(crate) struct Publisher {
    listener: Option<TcpListener>,
    source: Arc<Source>,
}

struct Source {
    config: MetricsConfig,
    supervisor: Arc<Supervisor>,
    cpu: Mutex<CpuMeter>,
}

impl Publisher {
    /// Errors: nobody can listen on the address.
    pub(crate) async fn open(
        config: MetricsConfig,
        supervisor: Arc<Supervisor>,
    ) -> Result<Publisher, AgentError> {
        let listener = match config.listen {
            Some(address) => {
                let listener = TcpListener::bind(address).await.map_err(|error| {
                    AgentError::Setting(format!(
                        "metrics cannot be published on {address}: {error}"
                    ))
                })?;
                tracing::info!(%address, "metrics for Prometheus");
                Some(listener)
            }
            None => None,
        };
        let source = Arc::new(Source {
            config,
            supervisor,
            cpu: Mutex::default(),
        });
        Ok(Publisher { listener, source })
    }

    #[cfg(test)]
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.listener.as_ref().unwrap().local_addr().unwrap()
    }

    /// Publishes until it is dropped.
    pub(crate) async fn run(self) {
        let log_every = self.source.config.log_every;
        let logging = log(Arc::clone(&self.source), log_every);
        match self.listener {
            Some(listener) => {
                tokio::join!(serve(listener, self.source), logging);
            }
            None => logging.await,
        }
    }
}

impl Source {
    fn text(&self) -> String {
        let status = StatusView::of(&self.supervisor);
        write(&status, &self.config, &mut self.cpu.lock())
    }
}

async fn log(source: Arc<Source>, every: Option<Duration>) {
    let Some(every) = every else { return };
    loop {
        tokio::time::sleep(every).await;
        for line in source.text().lines().filter(|line| !line.starts_with('#')) {
            tracing::info!(target: "agent::metrics", "{line}");
        }
    }
}

async fn serve(listener: TcpListener, source: Arc<Source>) {
    let places = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let source = Arc::clone(&source);
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, &source).await {
                        tracing::debug!(%error, "metrics were not fetched");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "nobody can fetch metrics now");
                tokio::time::sleep(QUESTION_WAIT).await;
            }
        }
    }
}

/// One request, one answer, no more on a connection.
async fn answer(mut stream: TcpStream, source: &Source) -> io::Result<()> {
    let head = timeout(QUESTION_WAIT, head_of(&mut stream)).await??;
    let (status, body) = match route(&head) {
        Route::Metrics => ("200 OK", source.text()),
        Route::Nothing => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        Route::Refused => (
            "405 Method Not Allowed",
            "only GET is answered\n".to_owned(),
        ),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let send = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    };
    timeout(QUESTION_WAIT, send).await?
}

/// Reads a request's head, up to the empty line.
async fn head_of(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !is_whole(&head) {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&buffer[..read]);
        if head.len() > QUESTION_BYTES_MAX {
            return Err(io::Error::other("the request's head is too long"));
        }
    }
    Ok(head)
}

fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|window| window == b"\r\n\r\n")
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Metrics,
    Nothing,
    Refused,
}

fn route(head: &[u8]) -> Route {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"GET"), Some(path)) => match path.split(|byte| *byte == b'?').next() {
            Some(b"/metrics" | b"/") => Route::Metrics,
            _ => Route::Nothing,
        },
        _ => Route::Refused,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::supervisor::StopTimes;
    use crate::testing::{ground, make_and_log, runtime, wait_until};

    #[test]
    fn prometheus_fetches_queues_processors_and_the_agent_itself() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let ground = ground(dir.path(), &runtime);
        let supervisor = Arc::new(Supervisor::new(ground, dir.path(), StopTimes::default()));
        supervisor.update(None, &make_and_log("first")).unwrap();
        wait_until("it works", || supervisor.nodes()[0].flow_files_out > 0);
        let config = MetricsConfig {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            log_every: None,
            classes: super::super::Classes::default(),
            identifier: "a1".to_owned(),
        };
        let publisher = runtime
            .block_on(Publisher::open(config, Arc::clone(&supervisor)))
            .unwrap();
        let address = publisher.address();
        runtime.spawn(publisher.run());
        let ask = |request: &str| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let text = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        for line in [
            "minifi_queue_size_max{metric_class=\"QueueMetrics\",connection_uuid=\"q\",\
             connection_name=\"q\",agent_identifier=\"a1\"} 2000",
            "minifi_onTrigger_invocations{metric_class=\"GenerateFlowFileMetrics\",\
             processor_name=\"make\"",
            "minifi_is_running{metric_class=\"FlowInformation\",",
            "minifi_memory_usage{metric_class=\"DeviceInfoNode\",agent_identifier=\"a1\"} ",
            "thalweg_agent_repository_disk_bytes ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        // A family has one head, whatever number of classes tell it.
        assert_eq!(text.matches("# TYPE minifi_is_running gauge").count(), 1);
        assert!(ask("GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        supervisor.stop();
    }
}
