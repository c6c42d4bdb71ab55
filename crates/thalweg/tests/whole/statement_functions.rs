//! Functions of one's own in WebAssembly: added by command and by HTTP, called by a statement over
//! MQTT, there again after a restart, and bounded.

use serde_json::{Value, json};

use crate::harness::{Up, curl, eventually, folder, post, text};

const SHOUT: &str = r#"(module
  (memory (export "memory") 1)
  (global $next (mut i32) (i32.const 1024))
  (func (export "alloc") (param i32) (result i32)
    (global.get $next)
    (global.set $next (i32.add (global.get $next) (local.get 0))))
  (func (export "shout") (param $at i32) (param $len i32) (result i64)
    (local $i i32) (local $c i32)
    (block $done (loop $more
      (br_if $done (i32.ge_u (local.get $i) (local.get $len)))
      (local.set $c (i32.load8_u (i32.add (local.get $at) (local.get $i))))
      (if (i32.lt_u (i32.sub (local.get $c) (i32.const 97)) (i32.const 26))
        (then (i32.store8 (i32.add (local.get $at) (local.get $i))
          (i32.sub (local.get $c) (i32.const 32)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $more)))
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
      (i64.extend_i32_u (local.get $len))))
  (func (export "area") (param f64 f64) (result f64)
    (f64.mul (local.get 0) (local.get 1)))
  (func (export "spin") (param i64) (result i64) (loop $again (br $again)) (unreachable)))"#;

const SIGNATURES: [&str; 3] = [
    "shout(string) -> string",
    "area(double, double) -> double",
    "spin(long) -> long",
];

fn publish(up: &Up, topic: &str, payload: &Value) {
    let body = json!({"topic": topic, "text": payload.to_string()}).to_string();
    let url = up.url("management", "/api/v1/mqtt/publish");
    let published = post(&url, "application/json", &body);
    assert!(published.status < 300, "{}", published.body);
}

#[test]
fn functions_of_ones_own_are_added_called_kept_over_a_restart_and_removed() {
    let dir = folder();
    let data = dir.path().join("data");
    let file = dir.path().join("shapes.wasm");
    std::fs::write(&file, wat::parse_str(SHOUT).unwrap()).unwrap();
    let file = file.display().to_string();
    let up = Up::start(&data);

    let mut add = vec!["statements", "functions", "add", "shapes", &file];
    for signature in &SIGNATURES {
        add.extend(["--signature", signature]);
    }
    let added = up.cli_json(&add);
    assert_eq!(
        added["functions"],
        json!([
            "shapes.shout(string) -> string",
            "shapes.area(double, double) -> double",
            "shapes.spin(long) -> long"
        ])
    );
    let again = up.cli(&add);
    assert!(
        text(&again.stderr).contains("already called 'shapes'"),
        "{}",
        text(&again.stderr)
    );

    let wrong = up.cli(&[
        "statements",
        "add",
        "SELECT shapes.aera(w, h) FROM mqtt.\"in\"",
    ]);
    let told = text(&wrong.stderr);
    assert!(told.contains("did you mean area?"), "{told}");

    let sql = "INSERT INTO kafka.out SELECT shapes.shout(name) AS name, shapes.area(w, h) AS area \
               FROM mqtt.\"in\" WHERE shapes.area(w, h) > 1";
    up.cli_json(&["statements", "add", "--name", "s", sql]);
    let looping = "SELECT shapes.spin(n) AS n FROM mqtt.\"loop\"";
    up.cli_json(&["statements", "add", "--name", "l", looping]);
    publish(&up, "in", &json!({"name": "a small one", "w": 0.5, "h": 1}));
    publish(&up, "in", &json!({"name": "tür", "w": 2, "h": 3.5}));
    eventually("a row", || (up.records_in("out") == 1).then_some(()));

    publish(&up, "loop", &json!({"n": 1}));
    let failed = eventually("the call without an end is ended", || {
        let statement = up.get("/api/v1/statements/l");
        (statement["errored_total"] == 1).then_some(statement)
    });
    let error = failed["error"].as_str().unwrap();
    assert!(
        error.contains("shapes.spin") && error.contains("used up its fuel"),
        "{error}"
    );

    let kept = up.cli(&["statements", "functions", "remove", "shapes"]);
    let told = text(&kept.stderr);
    assert!(
        !kept.status.success() && told.contains("'s'") && told.contains("'l'"),
        "{told}"
    );
    assert!(up.stop().success());

    let up = Up::start(&data);
    let listed = up.cli_json(&["statements", "functions", "list"]);
    let mut users: Vec<Value> = listed["modules"][0]["statements"]
        .as_array()
        .unwrap()
        .clone();
    users.sort_by_key(Value::to_string);
    assert_eq!(users, [json!("l"), json!("s")]);
    publish(&up, "in", &json!({"name": "after", "w": 3, "h": 3}));
    // It waits for both.
    let rows = up.cli(&["consume", "out", "--from-beginning", "--max", "2"]);
    let rows = text(&rows.stdout);
    assert!(rows.contains("TüR") && rows.contains("7.0"), "{rows}");
    assert!(rows.contains("AFTER") && rows.contains("9.0"), "{rows}");

    for name in ["s", "l"] {
        assert!(up.cli(&["statements", "remove", name]).status.success());
    }
    let removed = up.cli(&["statements", "functions", "remove", "shapes"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert_eq!(
        up.get("/api/v1/statement-functions"),
        json!({"modules": []})
    );
}

#[test]
fn modules_that_cannot_be_are_refused_with_a_reason() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let url = up.url("management", "/api/v1/statement-functions");
    let add = |module: &[u8], signatures: &[&str]| {
        use base64::Engine as _;
        let module = base64::engine::general_purpose::STANDARD.encode(module);
        let body = json!({"name": "m", "module": module, "signatures": signatures}).to_string();
        // A body of megabytes is no argument of a command.
        let file = dir.path().join("body.json");
        std::fs::write(&file, body).unwrap();
        let data = format!("@{}", file.display());
        let answer = curl(&[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/json",
            "--data-binary",
            &data,
            &url,
        ]);
        (answer.status, answer.body)
    };
    let wat = |text: &str| wat::parse_str(text).unwrap();
    let import = wat(
        r#"(module (import "wasi_snapshot_preview1" "clock_time_get" (func (param i32 i64 i32) (result i32)))
             (func (export "f") (param f64) (result f64) (local.get 0)))"#,
    );
    let endless = wat(r#"(module (start $s) (func $s (loop $l (br $l)))
             (func (export "f") (param f64) (result f64) (local.get 0)))"#);
    let wide = wat(r#"(module (memory 65536) (func (export "f") (result i32) (i32.const 1)))"#);
    let mut huge = wat("(module)");
    huge.resize((2 << 20) + 1, 0);
    let texts = wat(r#"(module (func (export "f") (param i32 i32) (result i64) (i64.const 0)))"#);
    for (what, module, signatures, status, reason) in [
        (
            "no module",
            b"MZ not wasm".to_vec(),
            &[][..],
            400,
            "no WebAssembly module",
        ),
        (
            "an import",
            import,
            &[],
            400,
            "imports wasi_snapshot_preview1.clock_time_get",
        ),
        (
            "a start without an end",
            endless,
            &[],
            400,
            "used up its fuel",
        ),
        (
            "4 GiB of memory",
            wide,
            &[],
            400,
            "fusion.functions.memory_max",
        ),
        ("a byte too many", huge, &[], 400, "more than 2097152"),
        ("nothing", wat("(module)"), &[], 400, "exports no function"),
        (
            "texts without memory",
            texts,
            &["f(string) -> string"],
            400,
            "export its memory",
        ),
    ] {
        let (answered, body) = add(&module, signatures);
        assert!(
            answered == status && body.contains(reason),
            "{what}: {answered} {body}"
        );
    }
    let wrong = post(&url, "application/json", "{\"name\": \"m\"}");
    assert_eq!(wrong.status, 400, "{}", wrong.body);
    assert_eq!(
        up.get("/api/v1/statement-functions"),
        json!({"modules": []})
    );
}
