//! The management API of backups: a topic as one file out, and in again.
//!
//! Both stream: a backup is read as fast as its client takes it, a restoring takes its body as
//! fast as the store writes it, and neither holds more than a few blocks.

use std::sync::Arc;

use ::access::{Granted, Role};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use serde::Deserialize;
use streams::backup::{
    BackupBlock, BackupError, BackupReader, TopicBackup, TopicRestore, failed_block,
};
use streams::{Caller, EventStore, TopicInfo, TopicName, as_caller};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::Semaphore;

use crate::answer::{self, Parameters, Segments};
use crate::error::RestError;
use crate::limits::{BACKUP_PIPE_BYTES, BODY_READ_MAX};
use crate::management::topic_object;

struct Backups {
    store: Arc<dyn EventStore>,
    restores: Semaphore,
}

/// The routes of backups over `store`.
///
/// - `GET /api/v1/topics/{name}/backup?groups=true`: the file, for administrators and for those who may
///   read the topic; a backup that ends without its last block was broken off
/// - `POST /api/v1/topics/{name}/restore` with the file as body: 201 and the topic's object; 409
///   when the topic is there, 422 when the file is not whole. The topic cannot be seen before.
pub fn routes(store: Arc<dyn EventStore>) -> Router {
    let backups = Arc::new(Backups {
        store,
        restores: Semaphore::new(streams::limits::RESTORES_MAX),
    });
    Router::new()
        .route("/api/v1/topics/{name}/backup", get(back_up))
        .route("/api/v1/topics/{name}/restore", post(restore))
        .with_state(backups)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default)]
    groups: bool,
}

async fn back_up(
    State(backups): State<Arc<Backups>>,
    known: (Option<Extension<Arc<Granted>>>, Option<Extension<Caller>>),
    Segments(name): Segments<String>,
    Parameters(wanted): Parameters<Wanted>,
) -> Result<Response, RestError> {
    let name = answer::topic_name(&name)?;
    let mut store = Arc::clone(&backups.store);
    // It has all that was ever written: who may look at topics need not be one who may read them.
    if let (Some(Extension(granted)), Some(Extension(caller))) = known
        && !granted.roles.may_everywhere(Role::Administrator)
    {
        store = as_caller(store, caller);
    }
    let taking = store.back_up(&name, wanted.groups).await?;
    let body = answer::piped(BACKUP_PIPE_BYTES, |out| send(taking, out, name));
    let content_type = (header::CONTENT_TYPE, "application/octet-stream");
    Ok(([content_type], body).into_response())
}

/// Sends the file; whoever reads it learns from its last block whether it is whole.
async fn send(mut taking: Box<dyn TopicBackup>, mut out: DuplexStream, name: TopicName) {
    loop {
        let piece = match taking.next().await {
            Ok(Some(piece)) => piece,
            Ok(None) => return,
            Err(error) => {
                let reason = base::report(&error);
                tracing::error!(topic = name.display(), "a backup was given up: {reason}");
                let _ = out.write_all(&failed_block(&reason)).await;
                return;
            }
        };
        if out.write_all(&piece).await.is_err() {
            // Nobody reads any more.
            return;
        }
    }
}

async fn restore(
    State(backups): State<Arc<Backups>>,
    Segments(name): Segments<String>,
    mut body: Body,
) -> Result<Response, RestError> {
    let name: TopicName = name.parse().map_err(streams::StreamsError::InvalidTopic)?;
    let _place = backups
        .restores
        .try_acquire()
        .map_err(|_| RestError::TooManyRestores(streams::limits::RESTORES_MAX))?;
    let mut reader = BackupReader::new();
    let mut restoring = None;
    while let Some(frame) = tokio::time::timeout(BODY_READ_MAX, body.frame())
        .await
        .map_err(|_| RestError::BodyTimeout)?
    {
        let frame =
            frame.map_err(|error| RestError::BadRequest(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        reader.feed(&data);
        while let Some(block) = reader.next_block().map_err(not_whole)? {
            backups.put(&mut restoring, &name, block).await?;
        }
    }
    reader.finish().map_err(not_whole)?;
    let Some(restoring) = restoring else {
        return Err(not_whole(BackupError::NotABackup));
    };
    let info: TopicInfo = restoring.finish().await?;
    let object = topic_object(&info);
    Ok(answer::json(
        StatusCode::CREATED,
        "application/json",
        &object,
    ))
}

impl Backups {
    async fn put(
        &self,
        restoring: &mut Option<Box<dyn TopicRestore>>,
        name: &TopicName,
        block: BackupBlock,
    ) -> Result<(), RestError> {
        match (restoring, block) {
            (restoring, BackupBlock::Head(head)) => {
                *restoring = Some(self.store.restore(head, name.clone()).await?);
            }
            (Some(restoring), block) => restoring.put(block).await?,
            // The reader has seen to it that the head comes first.
            (None, _) => {}
        }
        Ok(())
    }
}

fn not_whole(error: BackupError) -> RestError {
    RestError::InvalidEntity(error.to_string())
}
