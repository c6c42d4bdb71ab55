//! What other nodes changed, read from the database about once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::FleetError;
use crate::fleet::Inner;
use crate::limits;
use crate::registry::News;
use crate::resource;

/// Runs until `stop`. Where nobody else uses the database there is nothing to read.
pub async fn run(fleet: Arc<Inner>, stop: CancellationToken) {
    if !fleet.store.is_shared() {
        return;
    }
    let mut read_at = Instant::now();
    let mut is_away = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(limits::FEED_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        let missed = read_at.elapsed() >= limits::FEED_AGE / 2;
        match fleet.read_feed(missed).await {
            Ok(()) => {
                if std::mem::take(&mut is_away) {
                    tracing::info!("other nodes' changes are read again");
                }
                read_at = Instant::now();
            }
            Err(error) if !is_away => {
                tracing::warn!(error = %base::report(&error), "cannot read other nodes' changes");
                is_away = true;
            }
            Err(_) => {}
        }
    }
}

impl Inner {
    /// Takes over what other nodes changed since the last time; everything, where that was so long
    /// ago that the feed may have forgotten some of it.
    pub(crate) async fn read_feed(&self, missed: bool) -> Result<(), FleetError> {
        let news = if missed {
            Some(self.store.everything().await?)
        } else {
            self.store.news(self.feed.load(Ordering::Acquire)).await?
        };
        if let Some(mut news) = news {
            let seq = news.seq;
            let mut requests = match missed {
                true => self.requests.all().await?,
                false => Vec::new(),
            };
            for id in std::mem::take(&mut news.requests) {
                requests.extend(self.requests.find(&id).await?);
            }
            self.adopt(news);
            let mut registry = self.registry.lock();
            let requests = requests.into_iter().map(Arc::new);
            requests.for_each(|request| registry.keep_request(request));
            drop(registry);
            self.feed.fetch_max(seq, Ordering::AcqRel);
        }
        if self.store.is_shared() {
            // What this node itself is changing comes after.
            let _one = self.publishing.lock().await;
            let shelf = resource::read(&self.tables).await?;
            shelf.put(&mut self.registry.lock());
        }
        Ok(())
    }

    /// Takes over what others changed, so that heartbeats wait for no more than a piece of it.
    pub(crate) fn adopt(&self, news: News) {
        for piece in news.pieces() {
            self.registry.lock().adopt(piece);
        }
    }

    /// Hears of all that other nodes have done up to now; for many that ask at once it is read once.
    pub(crate) async fn catch_up(&self) -> Result<(), FleetError> {
        let asked = self.catching_up.asked.fetch_add(1, Ordering::AcqRel);
        let mut answered = self.catching_up.answered.lock().await;
        if *answered > asked {
            return Ok(());
        }
        let all = self.catching_up.asked.load(Ordering::Acquire);
        self.read_feed(false).await?;
        *answered = all;
        Ok(())
    }
}

/// Who wants to know what other nodes have done.
#[derive(Debug, Default)]
pub(crate) struct CatchingUp {
    asked: AtomicU64,
    /// How many of these know it.
    answered: Mutex<u64>,
}
