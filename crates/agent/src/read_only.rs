//! What the agent does while its repository's file system is read-only.
//!
//! Nothing can be committed, so that the whole flow rests: no source is read or answered, and no
//! sink sends what would be sent again. Calls to the control plane, status and metrics go on. When
//! the file system is writable the agent starts anew, as after any failed write: recovery then
//! decides what of the last commits is on the disk.

use std::sync::Arc;
use std::time::Duration;

use crate::bulletins::Level;
use crate::supervisor::{Stop, Supervisor};

/// Lets the flow rest and waits until the file system is writable; looks again after `every`.
pub(crate) async fn rest(supervisor: Arc<Supervisor>, every: Duration) {
    loop {
        let looking = Arc::clone(&supervisor);
        match tokio::task::spawn_blocking(move || look(&looking)).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => tracing::error!(%error, "the file system was not looked at"),
        }
        tokio::time::sleep(every).await;
    }
}

/// Looks once; whether the file system is read-only.
fn look(supervisor: &Supervisor) -> bool {
    supervisor.stop_for(Stop::ReadOnly);
    let folder = supervisor.repository().folder();
    let dir = folder.dir.display();
    if folder.is_read_only() {
        let message = format!(
            "the file system of {dir} is read-only: remount it writable, and look into the \
             system's log, since an error of the disk makes it so; until then the flow rests, and \
             goes on by itself"
        );
        supervisor.post(Level::Error, &message);
        return true;
    }
    tracing::info!(%dir, "the file system is writable; the agent starts anew");
    false
}
