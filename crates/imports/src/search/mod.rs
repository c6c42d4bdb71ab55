//! The search index: which records have which words, tenant by tenant.
//!
//! It is filled behind the commit of slices (`indexer.rs`) from the queue that these leave in the
//! sink's database, and can be built again from the sink at any time: what it holds is a copy. It is
//! at home in a file beside the jobs, or in OpenSearch.

mod file;
mod opensearch;
mod query;
mod words;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base::TenantId;
use serde::Serialize;
use tokio::sync::{Mutex, Notify};

use crate::config::ImportsConfig;
use crate::error::ImportsError;
use crate::limits;
use crate::registry::Registry;
use file::FileIndex;
use opensearch::OpenSearch;
pub(crate) use words::text_of;

/// The index as this process uses it.
pub(crate) struct Search {
    home: Home,
    woken: Notify,
    /// Whether it was looked at since the start.
    is_prepared: AtomicBool,
    /// Held from the look at the queue until what it named is out of it, and while the index is
    /// emptied: else an entry of the new queue could go for what the old index had.
    pub turn: Mutex<()>,
}

/// Where it is.
enum Home {
    File(FileIndex),
    OpenSearch(OpenSearch),
}

/// A record as the index takes it in.
pub(crate) struct Document {
    pub id: String,
    pub title: Option<String>,
    pub text: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// All records that have the words.
    pub total: u64,
    /// The best of them.
    pub records: Vec<Hit>,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: Option<String>,
}

/// Which of the records that a search finds are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// How many of the best are left out.
    pub offset: u32,
    pub count: u32,
}

impl Page {
    /// # Errors
    /// When it would lie deeper than an index goes.
    pub fn of(offset: Option<u32>, limit: Option<u32>) -> Result<Page, ImportsError> {
        let (offset, most) = (offset.unwrap_or(0), limits::FOUND_OFFSET_MAX);
        if offset > most {
            let text = format!("offset is {most} at most; search for more words at once");
            return Err(ImportsError::Invalid(text));
        }
        let count = limit.unwrap_or(FOUND_USUALLY).min(limits::FOUND_MAX);
        Ok(Page { offset, count })
    }

    /// Where the next page begins, if there is one.
    pub fn next(self, found: &Found) -> Option<u32> {
        let records = u32::try_from(found.records.len()).unwrap_or(u32::MAX);
        let next = self.offset.saturating_add(records);
        let is_one = records > 0 && u64::from(next) < found.total;
        Some(next).filter(|next| is_one && *next <= limits::FOUND_OFFSET_MAX)
    }
}

impl Search {
    /// Opens the index in `dir`, or names the server that has it.
    pub async fn open(dir: &Path, config: &ImportsConfig) -> Result<Search, ImportsError> {
        let home = match &config.opensearch {
            Some(address) => Home::OpenSearch(OpenSearch::at(address.reveal())?),
            None => Home::File(FileIndex::open(dir).await?),
        };
        Ok(Search {
            home,
            woken: Notify::new(),
            is_prepared: AtomicBool::new(false),
            turn: Mutex::new(()),
        })
    }

    /// Makes the index where it is missing, and has an empty one filled with what is in the sink
    /// already; once.
    pub async fn prepare(&self, registry: &Registry) -> Result<(), ImportsError> {
        if self.is_prepared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let is_empty = match &self.home {
            Home::File(file) => file.is_empty().await?,
            Home::OpenSearch(server) => {
                server.make().await?;
                server.is_empty().await?
            }
        };
        if is_empty {
            // What comes from the sink now is after these.
            self.note_followed(registry.latest_purge().await?).await?;
            registry.queue_again(None).await?;
        }
        self.is_prepared.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Empties the index and has it filled from the sink; where that breaks off,
    /// [`Search::prepare`] does it.
    pub async fn refill(&self, registry: &Registry) -> Result<(), ImportsError> {
        self.is_prepared.store(false, Ordering::Relaxed);
        self.clear().await?;
        registry.queue_again(None).await?;
        self.is_prepared.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Says that there is something to index.
    pub fn wake(&self) {
        self.woken.notify_one();
    }

    /// Waits for [`Search::wake`].
    pub async fn woken(&self) {
        self.woken.notified().await;
    }

    /// Takes records of a tenant in, in the place of what the index had of them.
    pub async fn put(&self, tenant: &str, documents: &[Document]) -> Result<(), ImportsError> {
        match &self.home {
            Home::File(file) => file.put(tenant, documents).await,
            Home::OpenSearch(server) => server.put(tenant, documents).await,
        }
    }

    /// Forgets some records of a tenant; false when it had none. For who has the turn.
    pub async fn forget_some(&self, tenant: &TenantId) -> Result<bool, ImportsError> {
        match &self.home {
            Home::File(file) => file.forget_some(tenant).await,
            Home::OpenSearch(server) => server.forget_some(tenant).await,
        }
    }

    /// Whether it is this process' alone.
    pub fn is_own(&self) -> bool {
        matches!(self.home, Home::File(_))
    }

    /// The number of the last purge that an own index has followed; none where processes share it, as
    /// whoever purges has it forget.
    pub async fn followed(&self) -> Result<Option<i64>, ImportsError> {
        match &self.home {
            Home::File(file) => Ok(Some(file.followed().await?)),
            Home::OpenSearch(_) => Ok(None),
        }
    }

    /// Notes that the index has followed the purges up to one.
    pub async fn note_followed(&self, number: i64) -> Result<(), ImportsError> {
        match &self.home {
            Home::File(file) => file.note_followed(number).await,
            Home::OpenSearch(_) => Ok(()),
        }
    }

    async fn clear(&self) -> Result<(), ImportsError> {
        match &self.home {
            Home::File(file) => file.clear().await,
            Home::OpenSearch(server) => server.clear().await,
        }
    }

    /// The tenant's records that have all words of `query`, best first. A word may end with `*`;
    /// words in quotes must stand together.
    ///
    /// # Errors
    /// When the query has no word in it; when the index cannot be reached (retry).
    pub async fn find(
        &self,
        tenant: &TenantId,
        query: &str,
        page: Page,
    ) -> Result<Found, ImportsError> {
        let terms = query::terms(query);
        if terms.is_empty() {
            let text = "the query has no word in it; give one or more";
            return Err(ImportsError::Invalid(text.to_owned()));
        }
        match &self.home {
            Home::File(file) => file.find(tenant, &terms, page).await,
            Home::OpenSearch(server) => server.find(tenant, &terms, page).await,
        }
    }

    pub async fn close(&self) {
        if let Home::File(file) = &self.home {
            file.close().await;
        }
    }
}

/// Records of an answer that names no number.
const FOUND_USUALLY: u32 = 20;
