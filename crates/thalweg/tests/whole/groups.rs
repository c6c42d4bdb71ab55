//! `thalweg groups` as operators use it: lag, resets that show first and write then, refusals.

use serde_json::Value;

use crate::harness::{Up, folder, post, text};

/// Makes the topic `orders` with 10 records in each of 2 partitions.
fn with_orders(up: &Up) {
    up.cli_json(&["topics", "create", "orders", "--partitions", "2"]);
    for partition in 0..2 {
        let records: Vec<Value> = (0..10)
            .map(|n| serde_json::json!({"partition": partition, "value": n}))
            .collect();
        let body = serde_json::json!({"records": records}).to_string();
        let json = "application/vnd.kafka.json.v2+json";
        let answer = post(&up.url("rest", "/topics/orders"), json, &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

fn reset(up: &Up, arguments: &[&str]) -> Vec<(i64, i64)> {
    let mut all = vec!["groups", "reset-offsets", "billing"];
    all.extend(arguments);
    let answer = up.cli_json(&all);
    let offsets = answer["offsets"].as_array().unwrap();
    let of = |o: &Value| (o["partition"].as_i64().unwrap(), o["to"].as_i64().unwrap());
    offsets.iter().map(of).collect()
}

fn currents(up: &Up) -> Vec<Option<i64>> {
    let group = up.cli_json(&["groups", "describe", "billing"]);
    let offsets = group["offsets"].as_array().unwrap();
    offsets.iter().map(|o| o["current"].as_i64()).collect()
}

#[test]
fn a_reset_shows_first_and_writes_when_told() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    with_orders(&up);
    let earliest = ["--topic", "orders", "--to-earliest"];
    assert_eq!(reset(&up, &earliest), [(0, 0), (1, 0)]);
    let unknown = up.cli(&["groups", "describe", "billing"]);
    assert!(
        text(&unknown.stderr).contains("not found"),
        "a dry run wrote"
    );

    let execute = ["--topic", "orders", "--to-offset", "4", "--execute"];
    assert_eq!(reset(&up, &execute), [(0, 4), (1, 4)]);
    assert_eq!(currents(&up), [Some(4), Some(4)]);
    let group = up.cli_json(&["groups", "describe", "billing"]);
    assert_eq!(
        (&group["lag_total"], &group["state"]),
        (&12.into(), &"Empty".into())
    );

    let shift = ["--topic", "orders:1", "--shift-by", "-3", "--execute"];
    assert_eq!(reset(&up, &shift), [(1, 1)]);
    assert_eq!(currents(&up), [Some(4), Some(1)]);
    let before = ["--all-topics", "--to-datetime", "2026-01-31T12:00:00Z"];
    assert_eq!(reset(&up, &before), [(0, 0), (1, 0)]);
    let after = ["--all-topics", "--to-datetime", "2999-12-31", "--execute"];
    assert_eq!(reset(&up, &after), [(0, 10), (1, 10)]);
    let hour = ["--all-topics", "--by-duration", "PT1H"];
    assert_eq!(reset(&up, &hour), [(0, 0), (1, 0)]);
    assert_eq!(currents(&up), [Some(10), Some(10)]);
    let described = up.cli(&["groups", "describe", "billing"]);
    let described = text(&described.stdout);
    assert!(described.contains("CURRENT OFFSET"), "{described}");
    assert!(described.contains("no active members"), "{described}");

    let deleted = up.cli(&["groups", "delete", "billing"]);
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    let list = up.cli_json(&["groups", "list"]);
    assert_eq!(list["groups"].as_array().unwrap().len(), 0);
}

#[test]
fn a_group_with_members_is_described_and_not_reset() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    with_orders(&up);
    let v2 = "application/vnd.kafka.v2+json";
    let made = post(
        &up.url("rest", "/consumers/billing"),
        v2,
        r#"{"auto.offset.reset": "earliest"}"#,
    );
    let instance = made.json()["base_uri"].as_str().unwrap().to_owned();
    let topics = r#"{"topics": ["orders"]}"#;
    assert_eq!(
        post(&format!("{instance}/subscription"), v2, topics).status,
        204
    );
    let read = crate::harness::curl(&[
        "--header",
        "Accept: application/vnd.kafka.binary.v2+json",
        &format!("{instance}/records"),
    ]);
    assert_eq!(read.status, 200, "{}", read.body);
    let group = crate::harness::eventually("the member holds both partitions", || {
        let group = up.cli_json(&["groups", "describe", "billing"]);
        let held = group["members"][0]["partitions"].as_array()?.len();
        (held == 2).then_some(group)
    });
    assert_eq!(group["state"], "Stable");
    assert_eq!(
        group["offsets"][0]["member_id"],
        group["members"][0]["member_id"]
    );
    for arguments in [
        &[
            "groups",
            "reset-offsets",
            "billing",
            "--topic",
            "orders",
            "--to-earliest",
            "--execute",
        ][..],
        &["groups", "delete", "billing"],
    ] {
        let refused = up.cli(arguments);
        assert!(!refused.status.success());
        let why = text(&refused.stderr);
        assert!(why.contains("members"), "{why}");
    }
}

#[test]
fn a_reset_says_what_is_missing() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    with_orders(&up);
    let check = |arguments: &[&str], says: &str| {
        let mut all = vec!["groups", "reset-offsets", "billing"];
        all.extend(arguments);
        let refused = up.cli(&all);
        assert!(!refused.status.success(), "{arguments:?}");
        let why = text(&refused.stderr);
        assert!(why.contains(says), "{arguments:?}: {why}");
    };
    check(&["--to-earliest"], "name what to reset");
    check(&["--topic", "orders"], "--to-earliest");
    check(&["--topic", "orders:9", "--to-earliest"], "partition 9");
    check(&["--topic", "absent", "--to-earliest"], "absent");
    check(
        &["--topic", "orders", "--shift-by", "3"],
        "nothing to count from",
    );
    check(
        &["--topic", "orders", "--to-datetime", "soon"],
        "2026-01-31T12:00:00Z",
    );
    check(&["--all-topics", "--to-latest"], "not found");
}
