//! The client commands against a running process.

use crate::harness::{Up, folder, succeed, text, thalweg_command};

#[test]
fn produced_lines_come_back_and_a_group_goes_on_where_it_stopped() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = dir.path().join("lines");
    let produce = |lines: &str| {
        std::fs::write(&file, lines).unwrap();
        let output = up.cli(&[
            "produce",
            "/s/cli:t",
            file.to_str().unwrap(),
            "--key-separator",
            "=",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let consume = |max: &str| {
        let arguments = [
            "consume",
            "/s/cli:t",
            "--from-beginning",
            "--group",
            "g",
            "--max",
            max,
        ];
        let output = up.cli(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(produce("a=1\nb=2\n\nplain\n"), "4 records acknowledged\n");
    assert_eq!(consume("4"), "1\n2\n\nplain\n");
    produce("c=3\n");
    assert_eq!(consume("1"), "3\n");
}

#[test]
fn every_command_explains_itself_and_completes() {
    let help = succeed(thalweg_command().arg("--help"));
    for command in [
        "up",
        "agent",
        "topics",
        "produce",
        "consume",
        "statements",
        "import",
        "lab",
    ] {
        assert!(
            help.contains(&format!("\n  {command} ")),
            "{command} is missing in:\n{help}"
        );
        if command != "lab" {
            succeed(thalweg_command().args([command, "--help"]));
        }
    }
    let completions = succeed(thalweg_command().args(["completions", "bash"]));
    assert!(completions.contains("_thalweg"), "{completions}");
    let config = succeed(thalweg_command().arg("config"));
    assert!(config.contains("[streams]"), "{config}");
}

#[test]
fn tables_are_for_people_and_json_is_for_scripts() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    up.cli_json(&["topics", "create", "shown", "--partitions", "3"]);
    let table = text(&up.cli(&["topics", "list"]).stdout);
    assert!(
        table.starts_with("TOPIC") && table.contains("\nshown  3"),
        "{table}"
    );
    let json = up.cli_json(&["topics", "list"]);
    assert_eq!(json["topics"][0]["partitions"], 3, "{json}");
    assert!(up.cli(&["topics", "delete", "shown"]).status.success());
    assert!(
        up.cli_json(&["topics", "list"])["topics"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}
