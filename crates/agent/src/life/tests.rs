//! Agents as processes of their own, with settings that a control plane changed.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::flow_tests::agent;
use crate::properties::{Change, Told};
use crate::testing::{make_and_log, wait_until};

fn change(dir: &Path, settings: &[(&str, &str)]) {
    let changes = settings.iter().map(|(key, value)| Change {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        persists: true,
    });
    let told = Told {
        dir: dir.to_owned(),
        ..Told::default()
    };
    std::fs::create_dir_all(dir).unwrap();
    told.record(&changes.collect::<Vec<_>>()).unwrap();
}

#[test]
fn a_change_with_which_the_agent_does_not_come_up_is_taken_back_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (data, flow) = (dir.path().join("data"), dir.path().join("flow.yml"));
    std::fs::write(&flow, make_and_log("first")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let publisher = "nifi.metrics.publisher.PrometheusMetricsPublisher";
    // Each is good by itself; that the port is taken shows only when the agent starts.
    change(
        &data,
        &[
            ("nifi.metrics.publisher.class", "PrometheusMetricsPublisher"),
            (&format!("{publisher}.host"), "127.0.0.1"),
            (&format!("{publisher}.port"), &port),
        ],
    );
    let mut child = agent(dir.path(), &flow);
    let withdrawn = data.join("c2.properties.withdrawn");
    wait_until("the change is taken back", || withdrawn.exists());
    let socket = data.join("agent.sock");
    wait_until("the agent is up without it", || {
        UnixStream::connect(&socket).is_ok()
    });
    assert_eq!(child.try_wait().unwrap(), None, "it is the same process");
    child.kill().unwrap();
    child.wait().unwrap();
    let now = std::fs::read_to_string(data.join("c2.properties")).unwrap();
    assert!(!now.contains("publisher"), "{now}");
    assert!(std::fs::read_to_string(withdrawn).unwrap().contains(&port));
    assert!(!data.join("c2.properties.before").exists());
}

#[test]
fn a_change_with_which_the_agent_comes_up_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (data, flow) = (dir.path().join("data"), dir.path().join("flow.yml"));
    std::fs::write(&flow, make_and_log("first")).unwrap();
    change(
        &data,
        &[("nifi.metrics.publisher.class", "LogMetricsPublisher")],
    );
    let mut child = agent(dir.path(), &flow);
    let before = data.join("c2.properties.before");
    wait_until("it has proved itself", || !before.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let now = std::fs::read_to_string(data.join("c2.properties")).unwrap();
    assert!(now.contains("LogMetricsPublisher"), "{now}");
    assert!(!data.join("c2.properties.withdrawn").exists());
}
