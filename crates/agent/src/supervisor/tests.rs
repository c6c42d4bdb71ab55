//! Stops, starts and the agent's end, without a control plane.

use std::time::{Duration, Instant};

use super::{Stop, StopTimes, Supervisor, Updated};
use crate::testing::{ground, make_and_log, runtime, wait_until};

/// A flow whose queue is worked off one FlowFile at a time.
fn slow_flow() -> String {
    make_and_log("slow")
        .replace(
            "class: GenerateFlowFile",
            "class: GenerateFlowFile, Properties: {Batch Size: 500}",
        )
        .replace("FlowFiles To Log: 0", "FlowFiles To Log: 1")
}

#[test]
fn at_the_end_what_is_queued_flows_out_if_there_is_time_for_it() {
    let runtime = runtime();
    for (drain, holds_sink) in [
        (Duration::from_secs(60), false),
        (Duration::from_millis(50), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let times = StopTimes {
            drain,
            ..StopTimes::default()
        };
        let supervisor = Supervisor::new(ground(dir.path(), &runtime), dir.path(), times);
        supervisor.update(None, &slow_flow()).unwrap();
        supervisor.set_processor("log", false).unwrap();
        let queued = || supervisor.queues()[0].flow_files;
        wait_until("the queue is full", || queued() >= 2_000);
        if !holds_sink {
            supervisor.set_processor("log", true).unwrap();
        }
        let began = Instant::now();
        supervisor.stop();
        let left = supervisor.repository().status().parked;
        assert_eq!(left > 0, holds_sink, "{left} are left");
        assert!(began.elapsed() >= drain.min(Duration::from_millis(50)) || !holds_sink);
    }
}

#[test]
fn a_processor_that_was_stopped_stays_so_over_a_start_of_the_flow_but_not_over_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let supervisor = Supervisor::new(ground, dir.path(), StopTimes::default());
    supervisor.update(None, &make_and_log("first")).unwrap();
    supervisor.set_processor("make", false).unwrap();
    assert_eq!(supervisor.stop_for(Stop::Operator), Updated::Applied);
    assert_eq!(
        supervisor.start_for(Stop::Operator).unwrap(),
        Updated::Applied
    );
    let make = || supervisor.nodes()[0].clone();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!((make().is_running, make().flow_files_out), (false, 0));
    supervisor.update(None, &make_and_log("second")).unwrap();
    wait_until("it works", || make().flow_files_out > 0);
    supervisor.stop();
}
