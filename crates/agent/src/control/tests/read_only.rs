//! An agent whose repository's file system becomes read-only, and writable again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use journal::{Disk, SimDisk};
use serde_json::json;

use super::plane::Plane;
use crate::AgentError;
use crate::engine::Ground;
use crate::read_only;
use crate::repository::{Repository, RepositoryOptions};
use crate::sealing::Keyring;
use crate::supervisor::{Stop, StopTimes, Supervisor};
use crate::testing::{ground_on, make_and_log, runtime, wait_until};

const DIR: &str = "/agent";

fn open(disk: &SimDisk) -> Result<Arc<Repository>, AgentError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Repository::open(disk, Path::new(DIR), RepositoryOptions::default())
}

fn supervisor(ground: Ground, dir: &Path) -> Arc<Supervisor> {
    Arc::new(Supervisor::new(ground, dir, StopTimes::default()))
}

fn bulletins(supervisor: &Supervisor) -> Vec<String> {
    let now = supervisor.clock().now();
    let all = supervisor.bulletins().since(now, Duration::from_secs(60));
    all.into_iter().map(|bulletin| bulletin.message).collect()
}

#[test]
fn the_flow_rests_and_the_control_plane_is_called_until_it_is_writable() {
    let (dir, runtime, disk) = (tempfile::tempdir().unwrap(), runtime(), SimDisk::new(1));
    let ground = ground_on(open(&disk).unwrap(), &runtime);
    let failure = Arc::clone(&ground.failure);
    let running = supervisor(ground, dir.path());
    running
        .update(Some("f1".to_owned()), &make_and_log("first"))
        .unwrap();
    let plane = Plane::start();
    let client = plane.client(&running, &runtime);
    wait_until("it works", || running.nodes()[1].flow_files_in > 0);
    disk.set_read_only(true);
    let error = runtime.block_on(failure.wait());
    assert!(error.is_read_only(), "{}", base::report(&error));
    let resting = runtime.spawn(read_only::rest(Arc::clone(&running), LOOK));
    wait_until("it rests", || !running.is_running());
    wait_until("it is told", || !bulletins(&running).is_empty());
    let told = bulletins(&running);
    let expected = "the file system of /agent is read-only: remount it writable";
    assert!(told.iter().any(|text| text.contains(expected)), "{told:?}");
    // The control plane hears of it, and changes nothing.
    let beat = plane.next_heartbeat();
    let run_status = beat.flow_info.unwrap().run_status;
    assert_eq!(run_status.as_deref(), Some("STOPPED"));
    let (state, ack) = plane.ask("start", "START", "flow", json!({}));
    assert_eq!(state, "NOT_APPLIED", "{ack:?}");
    let second = json!({ "flowId": "f2", "configuration_data": make_and_log("second") });
    let (state, _) = plane.ask("update", "UPDATE", "configuration", second);
    assert_eq!(state, "NOT_APPLIED");
    assert_eq!(running.flow_name().as_deref(), Some("first"));
    assert!(!resting.is_finished());
    disk.set_read_only(false);
    runtime.block_on(resting).unwrap();
    client.end();
    running.stop();
    drop(running);
    // It starts anew.
    disk.kill();
    let again = supervisor(ground_on(open(&disk).unwrap(), &runtime), dir.path());
    again.start(None).unwrap();
    assert_eq!(again.flow_name().as_deref(), Some("first"));
    wait_until("it goes on", || again.nodes()[1].flow_files_in > 0);
    again.stop();
}

#[test]
fn an_operation_that_cannot_be_put_on_record_shows_that_the_repository_failed() {
    let (dir, runtime, disk) = (tempfile::tempdir().unwrap(), runtime(), SimDisk::new(2));
    let ground = ground_on(open(&disk).unwrap(), &runtime);
    let failure = Arc::clone(&ground.failure);
    let idle = supervisor(ground, dir.path());
    let plane = Plane::start();
    let client = plane.client(&idle, &runtime);
    disk.set_read_only(true);
    let (state, _) = plane.ask("stop", "STOP", "flow", json!({}));
    assert_eq!(state, "FULLY_APPLIED");
    assert!(runtime.block_on(failure.wait()).is_read_only());
    client.end();
}

#[test]
fn an_agent_that_starts_there_has_its_flow_and_states_and_rests() {
    let (dir, runtime, disk) = (tempfile::tempdir().unwrap(), runtime(), SimDisk::new(3));
    let before = supervisor(ground_on(open(&disk).unwrap(), &runtime), dir.path());
    before.update(None, &make_and_log("first")).unwrap();
    before.set_processor("log", false).unwrap();
    wait_until("something waits", || before.queues()[0].flow_files > 0);
    let repository = before.repository();
    repository.save_state("$known", "id".into()).unwrap();
    before.stop();
    let waiting = before.repository().status().parked;
    drop(before);
    disk.kill();
    disk.set_read_only(true);
    assert!(open(&disk).unwrap_err().is_read_only());
    let read = Repository::open_to_read(
        Arc::new(disk.clone()),
        Path::new(DIR),
        RepositoryOptions::default(),
        Keyring::default(),
    );
    let resting = supervisor(ground_on(read.unwrap(), &runtime), dir.path());
    resting.stop_for(Stop::ReadOnly);
    resting.start(None).unwrap();
    assert_eq!(resting.flow_name().as_deref(), Some("first"));
    assert!(!resting.is_running());
    let repository = resting.repository();
    assert_eq!(repository.state("$known").as_deref(), Some(&b"id"[..]));
    assert_eq!(repository.status().parked, waiting);
    assert!(repository.folder().is_read_only());
    disk.set_read_only(false);
    assert!(!repository.folder().is_read_only());
}

const LOOK: Duration = Duration::from_millis(1);
