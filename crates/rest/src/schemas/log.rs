//! The registry's topic: read whole before the first answer and followed from then on; written, and
//! answered only after the record was read back.
//!
//! The state of the registry is what the reader has applied, nothing else: a write goes to the topic
//! and comes back by the reader, in the log's order among those of other processes. So what was
//! acknowledged has the topic's durability and is what everybody else reads too.
//!
//! The topic is opened when it is first needed, so that a process that nobody asks for schemas has
//! no such topic. Where it goes away, the next call opens it anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use streams::{
    ConfigChange, ConsumedRecord, Consumer, ConsumerConfig, EventStore, ProduceBatch, Record,
    StreamsError, TopicConfig, TopicInfo, TopicName, TopicSpec,
};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use super::error::SchemaError;
use super::limits::{
    BATCH_RECORDS_MAX, CATCH_UP_MAX, LOAD_MAX, LOAD_WAIT, POLL_BYTES, POLL_WAIT, READ_BACK_MAX,
    READER_RETRY,
};
use super::record::{Entry, Expected};
use super::state::{State, TooMuch};

/// The topic, its state, and its reader.
pub(super) struct Log {
    store: Arc<dyn EventStore>,
    topic: TopicName,
    following: Arc<Following>,
    /// Held by who opens the topic; ends the reader that follows it.
    reader: Mutex<CancellationToken>,
    closing: CancellationToken,
}

/// What the reader and the calls share.
struct Following {
    state: RwLock<State>,
    /// The offset of the next record to be applied.
    next: watch::Sender<i64>,
    /// Whether the topic was read whole and a reader follows it.
    is_ready: AtomicBool,
}

impl Log {
    pub fn new(store: Arc<dyn EventStore>, topic: TopicName) -> Self {
        Log {
            store,
            topic,
            following: Arc::new(Following {
                state: RwLock::default(),
                next: watch::Sender::new(0),
                is_ready: AtomicBool::new(false),
            }),
            reader: Mutex::default(),
            closing: CancellationToken::new(),
        }
    }

    /// The topic's name.
    pub fn topic(&self) -> &TopicName {
        &self.topic
    }

    /// The id of the cluster that has the topic.
    pub async fn cluster_id(&self) -> Result<String, SchemaError> {
        Ok(self.store.cluster().await?.id)
    }

    /// What is known now. Not to be held over anything that waits.
    pub fn state(&self) -> parking_lot::RwLockReadGuard<'_, State> {
        self.following.state.read()
    }

    /// Returns when the topic was read whole.
    ///
    /// # Errors
    /// What keeps the topic from being read; worth a retry when the store is only away.
    pub async fn ready(&self) -> Result<(), SchemaError> {
        if self.following.is_ready() {
            return Ok(());
        }
        let mut reader = self.reader.lock().await;
        if self.following.is_ready() {
            return Ok(());
        }
        if self.closing.is_cancelled() {
            return Err(SchemaError::Closed);
        }
        reader.cancel();
        let began = Instant::now();
        let info = self.open().await?;
        let loading = self.load(info);
        let consumer = tokio::time::timeout(LOAD_MAX, loading)
            .await
            .map_err(|_| SchemaError::TimedOut)??;
        let (versions, bytes) = self.state().size();
        let took_ms = began.elapsed().as_millis();
        tracing::info!(topic = %self.topic, versions, bytes, took_ms, "schemas were read");
        let (following, ended) = (self.following.clone(), self.closing.child_token());
        *reader = ended.clone();
        self.following.is_ready.store(true, Ordering::Release);
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = following.follow(consumer) => following.is_ready.store(false, Ordering::Release),
            }
        });
        Ok(())
    }

    /// Finds the topic or makes it, and refuses one that would not keep schemas.
    async fn open(&self) -> Result<TopicInfo, SchemaError> {
        let unfit = |why: String| SchemaError::Topic {
            topic: self.topic.display().to_owned(),
            why,
        };
        let info = match self.store.topic(&self.topic).await {
            Err(StreamsError::UnknownTopic(_)) => match self.create().await {
                // Another process was faster.
                Err(StreamsError::TopicExists(_)) => self.store.topic(&self.topic).await?,
                created => return Ok(created?),
            },
            found => found?,
        };
        if info.partitions != 1 {
            return Err(unfit(format!(
                "it has {} partitions, and one is needed to order them",
                info.partitions
            )));
        }
        let settings = self.store.topic_settings(&self.topic).await?;
        let policy = settings.iter().find(|setting| setting.name == POLICY);
        match policy.map(|setting| setting.value.as_str()) {
            Some(COMPACT) => Ok(info),
            // A client that looked for the topic has made it, and nothing lies in it yet.
            Some(_) if info.records_in_total == 0 => {
                let compact = ConfigChange::Set(POLICY.to_owned(), COMPACT.to_owned());
                self.store.alter_topic(&self.topic, vec![compact]).await?;
                Ok(info)
            }
            policy => Err(unfit(format!(
                "its {POLICY} is '{}', and what is not '{COMPACT}' would lose them",
                policy.unwrap_or_default()
            ))),
        }
    }

    async fn create(&self) -> Result<TopicInfo, StreamsError> {
        let spec = TopicSpec {
            config: TopicConfig::of([(POLICY, COMPACT)])?,
            ..TopicSpec::of(self.topic.clone()).with_partitions(1)
        };
        self.store.create_topic(spec).await
    }

    /// Reads the topic from its beginning to the end that it has now.
    async fn load(&self, info: TopicInfo) -> Result<Box<dyn Consumer>, SchemaError> {
        let config = ConsumerConfig::alone("thalweg-schemas");
        let mut consumer = self.store.consumer(config).await?;
        consumer.assign(vec![(self.topic.clone(), 0)]).await?;
        let mut state = State::default();
        let range = info.partition_offsets.first();
        let (mut next, mut end) = range.map_or((0, 0), |range| (range.start, range.end));
        while next < end {
            let records = consumer.poll(LOAD_WAIT, POLL_BYTES).await?;
            if let Some(last) = records.last() {
                next = last.offset + 1;
            } else if consumer.position(&self.topic, 0).unwrap_or(0) >= end {
                next = end;
            } else {
                // What lay at the end is no more, or is slow to come. A record of our own ends the
                // doubt; it keeps what is known of ids.
                let noop = Entry::noop(&state.id_maxima());
                end = self.append(&state, vec![noop]).await? + 1;
            }
            for record in records {
                apply(&mut state, &record).map_err(|TooMuch| self.too_much())?;
            }
        }
        *self.following.state.write() = state;
        self.following.next.send_replace(next);
        Ok(consumer)
    }

    /// Waits for what is in the topic now, for a bounded time: another process may have written it.
    pub async fn catch_up(&self) -> Result<(), SchemaError> {
        let info = self.store.topic(&self.topic).await;
        let info = info.map_err(|error| self.noted(error))?;
        let end = info.partition_offsets.first().map_or(0, |range| range.end);
        let mut next = self.following.next.subscribe();
        let reached = next.wait_for(|next| *next >= end);
        // Its end may be records that nobody is shown; then there is nothing to wait for.
        let _ = tokio::time::timeout(CATCH_UP_MAX, reached).await;
        Ok(())
    }

    /// Writes records together; answers when they were read back, and whether all of them counted.
    ///
    /// # Errors
    /// What the store answers, and [`SchemaError::TimedOut`]: it may have been done then.
    pub async fn write(&self, mut entries: Vec<Entry>) -> Result<bool, SchemaError> {
        let offsets = {
            let mut all = self.state().repairs();
            all.append(&mut entries);
            let mut offsets = Vec::with_capacity(all.len());
            while !all.is_empty() {
                let rest = all.split_off(all.len().min(BATCH_RECORDS_MAX));
                let batch = std::mem::replace(&mut all, rest);
                let count = batch.len();
                let records = self.records(&self.state(), batch);
                let last = self.produce(records).await?;
                offsets.extend((0..count).map(|back| last - back as i64));
            }
            offsets
        };
        let Some(last) = offsets.iter().max().copied() else {
            return Ok(true);
        };
        let mut next = self.following.next.subscribe();
        let read_back = next.wait_for(|next| *next > last);
        match tokio::time::timeout(READ_BACK_MAX, read_back).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return Err(SchemaError::Closed),
            Err(_) => return Err(SchemaError::TimedOut),
        }
        let state = self.state();
        Ok(!offsets.iter().any(|offset| state.has_lost(*offset)))
    }

    /// Writes a record whose coming back nobody here waits for; answers its offset.
    async fn append(&self, state: &State, entries: Vec<Entry>) -> Result<i64, SchemaError> {
        let records = self.records(state, entries);
        self.produce(records).await
    }

    fn records(&self, state: &State, entries: Vec<Entry>) -> Vec<Record> {
        let entries = entries.into_iter();
        entries
            .map(|entry| {
                let key = state.key_bytes(&entry.key);
                entry.record(key)
            })
            .collect()
    }

    /// Stores records as one batch; answers the offset of the last.
    async fn produce(&self, records: Vec<Record>) -> Result<i64, SchemaError> {
        let count = records.len() as i64;
        let batch = ProduceBatch {
            topic: self.topic.clone(),
            partition: 0,
            records,
            sequence: None,
        };
        match self.store.produce(batch).await {
            Ok(placed) => Ok(placed.base_offset + count - 1),
            Err(error) => Err(self.noted(error)),
        }
    }

    /// Notes that the topic was deleted where an error says so; the next call makes it anew.
    fn noted(&self, error: StreamsError) -> SchemaError {
        if matches!(error, StreamsError::UnknownTopic(_)) {
            self.following.is_ready.store(false, Ordering::Release);
        }
        error.into()
    }

    fn too_much(&self) -> SchemaError {
        SchemaError::Topic {
            topic: self.topic.display().to_owned(),
            why: TooMuch.to_string(),
        }
    }

    /// Ends the reader.
    pub fn close(&self) {
        self.closing.cancel();
    }
}

impl Following {
    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Applies what comes, until the topic cannot be followed any more.
    async fn follow(&self, mut consumer: Box<dyn Consumer>) {
        loop {
            match consumer.poll(POLL_WAIT, POLL_BYTES).await {
                Ok(records) => {
                    let Some(last) = records.last().map(|record| record.offset) else {
                        continue;
                    };
                    let mut state = self.state.write();
                    for record in &records {
                        if let Err(TooMuch) = apply(&mut state, record) {
                            tracing::error!("{TooMuch}; they are read again");
                            return;
                        }
                    }
                    drop(state);
                    self.next.send_replace(last + 1);
                }
                Err(error @ (StreamsError::UnknownTopic(_) | StreamsError::Closed)) => {
                    tracing::warn!(%error, "the schemas' topic cannot be followed");
                    return;
                }
                Err(error) => {
                    let error = base::report(&error);
                    tracing::warn!(error, "the schemas' topic cannot be read for now");
                    tokio::time::sleep(READER_RETRY).await;
                }
            }
        }
    }
}

fn apply(state: &mut State, record: &ConsumedRecord) -> Result<(), TooMuch> {
    let Some(key) = &record.key else {
        return Ok(());
    };
    let expected = Expected::of(&record.headers);
    state.apply(record.offset, key, record.value.as_deref(), expected)
}

const POLICY: &str = "cleanup.policy";
const COMPACT: &str = "compact";
