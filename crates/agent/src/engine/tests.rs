//! Back pressure and loops: whole flows on real queues, their tasks chosen at random; and what
//! threads alone can show.

use std::path::Path;
use std::sync::atomic::Ordering;

use base::Rng;

use super::schedule::Surroundings;
use super::*;
use crate::bulletins::Level;
use crate::connection::Available;
use crate::repository::{ContentKind, FlowFileKind, RepositoryOptions};
use crate::testing::{ground_with, runtime, start, wait_until};

/// A repository in memory.
fn ground(dir: &Path, runtime: &tokio::runtime::Runtime) -> Ground {
    let options = RepositoryOptions {
        flow_files: FlowFileKind::Volatile,
        content: ContentKind::VOLATILE,
        ..RepositoryOptions::default()
    };
    ground_with(dir, runtime, options)
}

fn assemble(ground: &Ground, text: &str) -> (Engine, Vec<Worker>) {
    let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
    let prepared = Prepared::new(ground.clock.now(), flow).unwrap();
    Engine::assemble(ground.clone(), prepared)
}

/// Whether the engine would let the task run, but for its timer.
fn may_run(worker: &Worker, now: UnixMillis) -> bool {
    let node = &worker.context.node;
    matches!(node.available(now), None | Some(Available::Now)) && !node.is_held_back()
}

/// A source that makes `batch` at once, a loop that each FlowFile goes round `rounds` times, and
/// a sink; every queue has its own bound, some by bytes.
fn loop_flow(random: &mut Rng, batch: u64, rounds: u64) -> String {
    let mut bound = || match random.below(4) {
        0 => "max work queue size: 0, max work queue data size: 0 B".to_owned(),
        1 => format!(
            "max work queue size: 0, max work queue data size: {} B",
            1 + random.below(50)
        ),
        _ => format!("max work queue size: {}", 1 + random.below(8)),
    };
    format!(
        "
MiNiFi Config Version: 3
Flow Controller: {{name: loop}}
Processors:
- {{name: make, class: GenerateFlowFile, scheduling period: 0 sec,
   Properties: {{Batch Size: {batch}, File Size: 3 B}}}}
- {{name: count, class: UpdateAttribute, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure],
   Properties: {{rounds: '${{rounds:replaceNull(0):plus(1)}}'}}}}
- {{name: route, class: RouteOnAttribute, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure],
   Properties: {{again: '${{rounds:lt({rounds})}}'}}}}
- {{name: sink, class: LogAttribute, scheduling strategy: EVENT_DRIVEN,
   Properties: {{Log Level: trace}}, auto-terminated relationships list: [success]}}
Connections:
- {{id: in, source name: make, source relationship name: success, destination name: count, {a}}}
- {{id: on, source name: count, source relationship name: success, destination name: route, {b}}}
- {{id: back, source name: route, source relationship name: again, destination name: count, {c}}}
- {{id: out, source name: route, source relationship name: unmatched, destination name: sink, {d}}}
",
        a = bound(),
        b = bound(),
        c = bound(),
        d = bound()
    )
}

#[test]
fn queues_overshoot_by_one_session_at_most_and_loops_never_lock_up() {
    let runtime = runtime();
    let mut random = Rng::from_entropy();
    for _ in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let ground = ground(dir.path(), &runtime);
        let (batch, rounds) = (1 + random.below(6), 1 + random.below(4));
        let text = loop_flow(&mut random, batch, rounds);
        let (engine, mut workers) = assemble(&ground, &text);
        let mut made = 0;
        for step in 0..100_000 {
            let now = ground.clock.now();
            // The source goes on for the first half.
            let is_open = step < 1_000;
            let can: Vec<usize> = (0..workers.len())
                .filter(|at| may_run(&workers[*at], now))
                .filter(|at| is_open || workers[*at].context.name() != "make")
                .collect();
            let queued: u64 = engine.connections.iter().map(|queue| queue.count()).sum();
            if can.is_empty() {
                assert_eq!(
                    queued,
                    0,
                    "the flow locked up:\n{text}\n{:?}",
                    engine.queues()
                );
                break;
            }
            let at = can[random.below(can.len() as u64) as usize];
            let before: Vec<u64> = engine
                .connections
                .iter()
                .map(|queue| queue.count())
                .collect();
            let full: Vec<bool> = engine
                .connections
                .iter()
                .map(|queue| queue.is_full())
                .collect();
            let Worker { context, processor } = &mut workers[at];
            let taken: u64 = context.node.inputs.iter().map(|queue| queue.count()).sum();
            trigger(context, processor.as_mut()).unwrap();
            let is_source = context.name() == "make";
            made += if is_source { batch } else { 0 };
            let session = if is_source { batch } else { taken };
            // Only what is in a full loop may put more into a full queue.
            let is_loop = context.node.inputs.iter().any(|queue| queue.in_cycle);
            for ((queue, before), was_full) in engine.connections.iter().zip(before).zip(full) {
                let more = queue.count().saturating_sub(before);
                assert!(more <= session, "{more} came by a session of {session}");
                assert!(more == 0 || !was_full || is_loop, "a full queue was filled");
            }
        }
        let sink = engine
            .nodes
            .iter()
            .find(|node| node.name == "sink")
            .unwrap();
        assert_eq!(
            sink.stats.flow_files_in.load(Ordering::Relaxed),
            made,
            "{text}"
        );
        ground.repository.close().unwrap();
    }
}

#[test]
fn a_queue_without_bounds_holds_whatever_comes() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let text = loop_flow(&mut Rng::from_seed(1), 50, 1)
        .lines()
        .map(|line| match line.split_once("max work queue") {
            Some((line, _)) => {
                format!("{line}max work queue size: 0, max work queue data size: 0 B}}\n")
            }
            None => format!("{line}\n"),
        })
        .collect::<String>();
    let (engine, mut workers) = assemble(&ground, &text);
    let make = workers
        .iter_mut()
        .find(|w| w.context.name() == "make")
        .unwrap();
    for _ in 0..200 {
        assert!(may_run(make, ground.clock.now()));
        trigger(&make.context, make.processor.as_mut()).unwrap();
    }
    assert_eq!(engine.connections[0].count(), 10_000);
    ground.repository.close().unwrap();
}

#[test]
fn concurrent_tasks_share_a_queue_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let engine = start(
        &ground,
        "
MiNiFi Config Version: 3
Flow Controller: {name: tasks}
Processors:
- {name: make, class: GenerateFlowFile, scheduling period: 0 sec,
   Properties: {Batch Size: 100, File Size: 3 B}}
- {name: mark, class: UpdateAttribute, max concurrent tasks: 4,
   scheduling strategy: EVENT_DRIVEN, auto-terminated relationships list: [failure],
   Properties: {mark: '${UUID()}'}}
- {name: sink, class: LogAttribute, scheduling strategy: EVENT_DRIVEN, max concurrent tasks: 2,
   Properties: {Log Level: trace}, auto-terminated relationships list: [success]}
Connections:
- {source name: make, source relationship name: success, destination name: mark}
- {source name: mark, source relationship name: success, destination name: sink}
",
    );
    assert_eq!(engine.threads.len(), 6, "LogAttribute runs as one task");
    let status = |name: &str| {
        let nodes = engine.nodes();
        nodes.into_iter().find(|node| node.name == name).unwrap()
    };
    wait_until("much went through", || {
        status("sink").flow_files_in >= 50_000
    });
    let nodes = engine.nodes.clone();
    engine.stop();
    let count = |name: &str| {
        let stats = &nodes.iter().find(|node| node.name == name).unwrap().stats;
        (
            stats.flow_files_in.load(Ordering::Relaxed),
            stats.flow_files_out.load(Ordering::Relaxed),
        )
    };
    let (taken, sent) = count("mark");
    assert_eq!(taken, sent, "what was taken was sent on");
    assert!(taken <= count("make").1);
    ground.repository.close().unwrap();
}

#[test]
fn one_session_spans_triggers_where_the_flow_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let mut ground = ground(dir.path(), &runtime);
    ground.options.event_driven_slice = Duration::ZERO;
    let text = |run: &str| {
        format!(
            "
MiNiFi Config Version: 3
Flow Controller: {{name: run}}
Processors:
- {{name: make, class: GenerateFlowFile, Properties: {{Batch Size: 12000, File Size: 0 B}}}}
- {{name: mark, class: UpdateAttribute, scheduling period: 0 sec, {run}
   auto-terminated relationships list: [failure], Properties: {{mark: x}}}}
- {{name: sink, class: LogAttribute, auto-terminated relationships list: [success]}}
Connections:
- {{source name: make, source relationship name: success, destination name: mark, max work queue size: 0}}
- {{source name: mark, source relationship name: success, destination name: sink, max work queue size: 0}}
"
        )
    };
    for (run, is_spanned) in [("", false), ("run duration nanos: 5000000000,", true)] {
        let (engine, mut workers) = assemble(&ground, &text(run));
        for name in ["make", "mark"] {
            let worker = workers
                .iter_mut()
                .find(|w| w.context.name() == name)
                .unwrap();
            trigger(&worker.context, worker.processor.as_mut()).unwrap();
        }
        let mark = engine
            .nodes
            .iter()
            .find(|node| node.name == "mark")
            .unwrap();
        let triggers = mark.stats.invocations.load(Ordering::Relaxed);
        assert_eq!(
            triggers > 1,
            is_spanned,
            "{triggers} triggers in one session"
        );
        engine.stop();
    }
    ground.repository.close().unwrap();
}

#[test]
fn what_would_go_to_a_loose_end_stays_and_a_bulletin_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let text = "
MiNiFi Config Version: 3
Flow Controller: {name: loose}
Processors:
- {name: make, class: GenerateFlowFile}
- {name: route, class: RouteOnAttribute, auto-terminated relationships list: [failure]}
Connections:
- {id: c, source name: make, source relationship name: success, destination name: route}
";
    let (engine, mut workers) = assemble(&ground, text);
    let mut run = |name: &str| {
        let mut workers = workers.iter_mut();
        let worker = workers.find(|w| w.context.name() == name).unwrap();
        trigger(&worker.context, worker.processor.as_mut()).map_err(|error| error.to_string())
    };
    run("make").unwrap();
    let error = run("route").unwrap_err();
    assert!(error.contains("'unmatched', which is neither"), "{error}");
    assert_eq!(engine.queues()[0].flow_files, 1);
    engine.stop();
    ground.repository.close().unwrap();
}

#[test]
fn bulletins_milder_than_a_processors_level_are_not_put_up() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    for (level, shown) in [("DEBUG", 3), ("WARN", 2), ("ERROR", 1), ("NONE", 0)] {
        let text = format!(
            "
MiNiFi Config Version: 3
Flow Controller: {{name: levels}}
Processors:
- {{name: '{level}', class: GenerateFlowFile, bulletin level: {level},
   auto-terminated relationships list: [success]}}
"
        );
        let (engine, workers) = assemble(&ground, &text);
        for level in [Level::Info, Level::Warning, Level::Error] {
            workers[0].context.post(level, &format!("{level:?}"));
        }
        let all = ground.bulletins.since(ground.clock.now(), Duration::MAX);
        let own = all.iter().filter(|bulletin| bulletin.source_name == level);
        assert_eq!(own.count(), shown, "{level}");
        engine.stop();
    }
    ground.repository.close().unwrap();
}
