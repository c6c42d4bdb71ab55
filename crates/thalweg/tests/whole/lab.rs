//! The lab lists its experiments, runs one, and writes its report.

use serde_json::Value;

use crate::harness::{folder, sibling, succeed, thalweg_command};

#[test]
fn the_line_experiment_runs_in_its_short_form_and_draws_its_report() {
    sibling("thalweg-lab");
    sibling("thalweg-agent");
    let listed = succeed(thalweg_command().args(["lab", "list"]));
    assert!(listed.contains("line "), "{listed}");
    let dir = folder();
    let mut command = thalweg_command();
    command
        .args([
            "lab",
            "run",
            "line",
            "--quick",
            "--output",
            "json",
            "--results",
        ])
        .arg(dir.path());
    // Whether a goal of speed holds is not this test's matter: a debug build runs here.
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}\n{said}", output.status));
    let rows = result["rows"].as_array().unwrap();
    let row = |name: &str| {
        rows.iter()
            .find(|row| row["name"] == name)
            .unwrap_or_else(|| panic!("no row {name} in {rows:?}"))
    };
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
