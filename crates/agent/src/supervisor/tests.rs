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

#[test]
fn a_flow_that_has_gone_bad_on_the_disk_is_set_aside_and_the_files_runs() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let file = dir.path().join("flow.yml");
    std::fs::write(&file, make_and_log("of the file")).unwrap();
    let ground = ground(dir.path(), &runtime);
    let start = || Supervisor::new(ground.clone(), dir.path(), StopTimes::default());
    let first = start();
    let given = make_and_log("of the control plane");
    first.update(Some("f1".to_owned()), &given).unwrap();
    first.stop();
    let applied = dir.path().join("applied-flow.json");
    let aside = dir.path().join("applied-flow.json.damaged");
    let whole = std::fs::read(&applied).unwrap();
    let mut set_aside = 0;
    for at in (0..whole.len()).step_by(29) {
        for is_cut in [false, true] {
            let mut bad = whole.clone();
            match is_cut {
                true => bad.truncate(at),
                false => bad[at] ^= 0x80,
            }
            std::fs::write(&applied, &bad).unwrap();
            let supervisor = start();
            let place = format!("byte {at}, cut: {is_cut}");
            let started = supervisor.start(Some(&file));
            started.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(
                supervisor.flow_name().as_deref(),
                Some("of the file"),
                "{place}"
            );
            assert_eq!(std::fs::read(&aside).unwrap(), bad, "{place}");
            std::fs::remove_file(&aside).unwrap();
            set_aside += 1;
            supervisor.stop();
        }
    }
    assert!(set_aside > 20);
    // Without another flow the file stays where it is, and the error says so.
    std::fs::write(&applied, "{").unwrap();
    let error = start().start(None).unwrap_err();
    assert!(error.to_string().contains("applied-flow.json"), "{error}");
    assert!(applied.exists());
}

#[test]
fn a_changed_letter_in_an_applied_flow_is_no_other_flow() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let start = || Supervisor::new(ground.clone(), dir.path(), StopTimes::default());
    let first = start();
    first.update(None, &make_and_log("first")).unwrap();
    first.stop();
    let applied = dir.path().join("applied-flow.json");
    let text = std::fs::read_to_string(&applied).unwrap();
    std::fs::write(&applied, text.replace("10 ms", "90 ms")).unwrap();
    let error = base::report(&start().start(None).unwrap_err());
    assert!(error.contains("not the one that was written"), "{error}");
    // Flows of before have no checksum.
    let old: String = text
        .lines()
        .filter(|line| !line.contains("crc32c"))
        .collect();
    std::fs::write(&applied, old.replace(",}", "}")).unwrap();
    let supervisor = start();
    supervisor.start(None).unwrap();
    assert_eq!(supervisor.flow_name().as_deref(), Some("first"));
    supervisor.stop();
}
