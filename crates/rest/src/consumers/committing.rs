//! The commits that an instance makes by itself, where its settings ask for them.
//!
//! What was answered is committed at a read some seconds later, before the topics of a pattern
//! change, and at the end. A group that shares its partitions anew takes no commits for a moment; a
//! poll brings a member to what its group is by then, so that a read goes on without such a commit.

use std::time::Duration;

use base::UnixMillis;
use streams::StreamsError;
use streams::groups::GroupError;

use super::{Instance, InstanceKey, Reader};
use crate::limits;

impl Reader {
    /// Commits what earlier reads answered, as often as Kafka's own clients do.
    pub(super) async fn commit_when_due(
        &mut self,
        instance: &Instance,
        now: UnixMillis,
    ) -> Result<(), StreamsError> {
        match now.since(self.committed_at) >= limits::AUTO_COMMIT_INTERVAL {
            true => self.commit_answered(instance, now).await,
            false => Ok(()),
        }
    }

    /// Commits what earlier reads answered, if the instance does that by itself.
    pub(super) async fn commit_answered(
        &mut self,
        instance: &Instance,
        now: UnixMillis,
    ) -> Result<(), StreamsError> {
        if !(instance.config.auto_commit && self.uncommitted) {
            return Ok(());
        }
        match self.consumer()?.commit(None).await {
            Ok(_) => self.uncommitted = false,
            Err(error) if passes(&error) => tell(instance, &error, "offsets are committed later"),
            Err(error) => return Err(error),
        }
        self.committed_at = now;
        Ok(())
    }

    /// Commits what was answered before the consumer goes, if the instance does that by itself.
    pub(super) async fn commit_last(&mut self, instance: &Instance) {
        if !std::mem::take(&mut self.uncommitted) || !instance.config.auto_commit {
            return;
        }
        for tries_left in (0..LAST_TRIES).rev() {
            let committed = async {
                self.put_back().await?;
                self.consumer()?.commit(None).await
            };
            match committed.await {
                Err(error) if passes(&error) && tries_left > 0 => {
                    tokio::time::sleep(LAST_PAUSE).await;
                }
                Err(error) => {
                    tell(instance, &error, "the last offsets were not committed");
                    return;
                }
                Ok(_) => return,
            }
        }
    }
}

/// Whether a commit was refused only because the group is about to be, or is by now, another one.
fn passes(error: &StreamsError) -> bool {
    let StreamsError::Group { reason, .. } = error else {
        return false;
    };
    matches!(
        reason,
        GroupError::UnknownMember | GroupError::IllegalGeneration | GroupError::RebalanceInProgress
    )
}

fn tell(instance: &Instance, error: &StreamsError, what: &str) {
    let InstanceKey { group, instance } = &instance.key;
    let error = base::report(error);
    tracing::warn!(group, instance, error, "{what}");
}

/// How often the last commit is tried while the group shares its partitions, and the pause between.
const LAST_TRIES: usize = 5;
const LAST_PAUSE: Duration = Duration::from_millis(200);
