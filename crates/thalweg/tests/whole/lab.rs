//! The lab lists its experiments, runs one, and writes its report.

use std::path::Path;

use serde_json::Value;

use crate::harness::{folder, sibling, succeed, thalweg_command};

#[test]
fn the_line_experiment_runs_in_its_short_form_and_draws_its_report() {
    sibling("thalweg-lab");
    sibling("thalweg-agent");
    let listed = succeed(thalweg_command().args(["lab", "list"]));
    assert!(listed.contains("line "), "{listed}");
    let dir = folder();
    let result = run_quick("line", dir.path());
    let rows = result["rows"].as_array().unwrap();
    let row = |name: &str| row_of(rows, name);
    for name in ["lines lost", "lines doubled"] {
        assert_eq!(
            (row(name)["value"].as_f64(), &row(name)["holds"]),
            (Some(0.0), &true.into())
        );
    }
    assert!(row("server CPU per record")["value"].as_f64().unwrap() > 0.0);
    assert!(result["host"]["disk_sync_us"].as_f64().unwrap() > 0.0);
    let html = std::fs::read_to_string(dir.path().join("line.html")).unwrap();
    assert!(html.contains("<svg") && html.contains("server CPU per record"));
    assert!(
        !html.contains("src=") && !html.contains("href="),
        "not self-contained"
    );
    assert!(dir.path().join("line.json").is_file());
}

#[test]
fn the_topics_experiment_runs_in_its_short_form() {
    sibling("thalweg-lab");
    let dir = folder();
    let result = run_quick("store-topics", dir.path());
    let rows = result["rows"].as_array().unwrap();
    // What holds of any build on any machine; of so few topics memory is known only roughly.
    let at_rest = row_of(rows, "memory per topic, after creation");
    assert!(at_rest["value"].as_f64().unwrap() < 4.0, "{at_rest}");
    assert_eq!(row_of(rows, "open handles")["holds"], true, "{rows:?}");
    for name in [
        "any topic: rate",
        "100 topics a request: rate",
        "consumers waiting 500 ms",
    ] {
        assert!(row_of(rows, name)["value"].as_f64().unwrap() > 0.0);
    }
    let html = std::fs::read_to_string(dir.path().join("store-topics.html")).unwrap();
    assert!(html.contains("while topics are created") && html.contains("<svg"));
}

#[test]
fn the_fleets_experiments_run_in_their_short_form() {
    sibling("thalweg-lab");
    let dir = folder();
    let result = run_part("fleet-register", Some("SQLite"), dir.path());
    let rows = result["rows"].as_array().unwrap();
    // What holds of any build on any machine.
    for name in ["SQLite: errors", "SQLite: agents lost"] {
        assert_eq!(row_of(rows, name)["value"], 0.0, "{rows:?}");
    }
    assert_eq!(row_of(rows, "SQLite: manifests stored")["value"], 1.0);
    let asked = row_of(rows, "SQLite: agents asked to describe themselves");
    assert_eq!(asked["holds"], true, "{asked}");

    let load = "100,000 agents, SQLite";
    let result = run_part("fleet-heartbeat", Some(load), dir.path());
    let rows = result["rows"].as_array().unwrap();
    let row = |figure: &str| row_of(rows, &format!("{load}: {figure}"))["value"].as_f64();
    assert_eq!(row("errors"), Some(0.0));
    for figure in ["rate", "p99", "CPU per heartbeat", "memory per agent"] {
        assert!(row(figure).unwrap() > 0.0, "{figure}: {rows:?}");
    }
    assert!(row("lists, filters and searches meanwhile, p99").unwrap() > 0.0);
    let html = std::fs::read_to_string(dir.path().join("fleet-heartbeat.html")).unwrap();
    assert!(html.contains("EFM sizing guide") && html.contains("<svg"));
}

#[test]
fn the_statements_experiments_lose_nothing_in_their_short_form() {
    sibling("thalweg-lab");
    let dir = folder();
    // What holds of any build on any machine.
    for (experiment, part, exact) in [
        (
            "fusion-burst",
            Some("output"),
            &["lost, an output each"][..],
        ),
        (
            "fusion-layers",
            None,
            &["sums off by", "the other's sum off by"],
        ),
    ] {
        let result = run_part(experiment, part, dir.path());
        let rows = result["rows"].as_array().unwrap();
        for name in exact {
            assert_eq!(row_of(rows, name)["value"], 0.0, "{experiment}: {rows:?}");
        }
    }
}

/// Runs an experiment's short form; its result. Whether a goal of speed holds is not the tests'
/// matter: a debug build runs here.
fn run_quick(experiment: &str, results: &Path) -> Value {
    run_part(experiment, None, results)
}

/// The same with only the loads that have `part` in their names.
fn run_part(experiment: &str, part: Option<&str>, results: &Path) -> Value {
    let mut command = thalweg_command();
    command
        .args(["lab", "run", experiment, "--quick"])
        .args(["--output", "json", "--results"])
        .arg(results);
    command.args(part.map(|part| format!("--only={part}")));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{said}", output.status))
}

fn row_of<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no row {name} in {rows:?}"))
}
