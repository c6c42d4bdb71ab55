//! Calls of librdkafka that are no production and no consumption: each waits on a thread of its
//! own, so that no worker of the runtime does, and at most [`CALLS_MAX`] at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, ConsumerContext};
use rdkafka::error::KafkaError;
use tokio::sync::Semaphore;

use super::config::ClusterConfig;
use super::error::{self, About};
use crate::error::StreamsError;
use crate::limits::CLUSTER_CALLS_MAX as CALLS_MAX;

/// The clients for calls, and how to wait for them.
#[derive(Clone)]
pub(super) struct Calls {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClusterConfig,
    trouble: Trouble,
    admin: AdminClient<Context>,
    /// A consumer that reads nothing: it asks for offsets.
    asker: BaseConsumer<Context>,
    permits: Semaphore,
}

/// What the clients last complained of, until one of them has success.
#[derive(Clone, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

/// What a client without callbacks of its own reports to.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) trouble: Trouble,
}

impl Calls {
    /// Makes the clients; reaches for nothing yet.
    pub(super) fn new(config: ClusterConfig, trouble: Trouble) -> Result<Self, StreamsError> {
        let context = || Context {
            trouble: trouble.clone(),
        };
        let made = |error: KafkaError| StreamsError::Refused(error.to_string());
        let mut client = config.client();
        // Both answer of all that is stored, transactions still open included.
        let admin = AdminClient::from_config_and_context(&client, context()).map_err(made)?;
        client.set("isolation.level", "read_uncommitted");
        let asker = BaseConsumer::from_config_and_context(&client, context()).map_err(made)?;
        let inner = Inner {
            config,
            trouble,
            admin,
            asker,
            permits: Semaphore::new(CALLS_MAX),
        };
        Ok(Calls {
            inner: Arc::new(inner),
        })
    }

    /// The configuration of the cluster.
    pub(super) fn config(&self) -> &ClusterConfig {
        &self.inner.config
    }

    /// What the clients complain of.
    pub(super) fn trouble(&self) -> &Trouble {
        &self.inner.trouble
    }

    /// Runs a call that blocks, on a thread where it may.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        about: About<'_>,
        call: impl FnOnce(&BaseConsumer<Context>, Duration) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, StreamsError> {
        // It is never closed.
        let _permit = self.inner.permits.acquire().await;
        let calls = self.clone();
        let timeout = self.inner.config.call_timeout();
        let called = tokio::task::spawn_blocking(move || {
            calls.serve();
            call(&calls.inner.asker, timeout)
        });
        let called = called.await;
        match called {
            Ok(outcome) => self.judged(about, outcome),
            Err(broke) if broke.is_panic() => Err(StreamsError::Refused(
                "the call broke off: see the log".to_owned(),
            )),
            // The runtime is going down.
            Err(_) => Err(StreamsError::Closed),
        }
    }

    /// Takes up what the clients complained of meanwhile; somebody has to now and then.
    pub(super) fn serve(&self) {
        while let Some(polled) = self.inner.asker.poll(Duration::ZERO) {
            if let Err(error) = polled {
                self.inner.trouble.note(&error.to_string());
            }
        }
    }

    /// The client for administration, whose calls do not block.
    pub(super) fn admin(&self) -> &AdminClient<Context> {
        &self.inner.admin
    }

    /// How long a call of the administration may take.
    pub(super) fn options(&self) -> AdminOptions {
        let timeout = self.inner.config.call_timeout();
        AdminOptions::new()
            .request_timeout(Some(timeout))
            .operation_timeout(Some(timeout))
    }

    /// An outcome in the store's words.
    pub(super) fn judged<T>(
        &self,
        about: About<'_>,
        outcome: Result<T, KafkaError>,
    ) -> Result<T, StreamsError> {
        match outcome {
            Ok(value) => {
                self.inner.trouble.clear();
                Ok(value)
            }
            Err(error) => Err(error::of_call(
                &error,
                about,
                self.inner.trouble.told().as_deref(),
            )),
        }
    }
}

impl Trouble {
    /// Notes a complaint, and logs it when it is another than before.
    pub(super) fn note(&self, text: &str) {
        let mut told = self.0.lock();
        if told.as_deref() != Some(text) {
            tracing::warn!(trouble = text, "the Kafka cluster gives trouble");
            *told = Some(text.to_owned());
        }
    }

    /// Forgets the complaint.
    pub(super) fn clear(&self) {
        if self.0.lock().take().is_some() {
            tracing::info!("the Kafka cluster answers again");
        }
    }

    /// The complaint, while it stands.
    pub(super) fn told(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, _: KafkaError, reason: &str) {
        self.trouble.note(reason);
    }
}

impl ConsumerContext for Context {}

/// Puts a line of librdkafka's into our log; what matters comes by errors too.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => tracing::warn!(facility, message, "librdkafka"),
        _ => tracing::debug!(facility, message, "librdkafka"),
    }
}
