//! Calls in statements: where they stand, and what becomes of events on which they fail.

use super::*;

#[test]
fn calls_are_checked_when_the_text_is_compiled() {
    let modules = numbers();
    let catalog = Catalog::default().with_modules(modules.clone());
    for (call, why) in [
        (
            "m.hlaf(v)",
            "there is no function m.hlaf; did you mean half?",
        ),
        ("n.half(v)", "n.half"),
        ("half(v)", "did you mean m.half?"),
        ("m.add(v)", "m.add is written m.add(long, long) -> long"),
        (
            "m.half('a')",
            "argument 1 of m.half(double) -> double is a string: CAST it",
        ),
        (
            "m.add(1, 2.5)",
            "argument 2 of m.add(long, long) -> long is a double: CAST it",
        ),
        ("m.add(1, m.half(2))", "is a double"),
        ("m.add(1, a = b)", "is a boolean"),
    ] {
        let text = format!("SELECT {call} AS v FROM mqtt.\"t\"");
        let refused = sql::compile_with(&text, &modules).unwrap_err();
        assert!(refused.message.contains(why), "{call}: {refused}");
        assert_eq!(refused.column, 8, "{call}: {refused}");
        let text = format!("select {call} as v from \"t\"");
        let refused = epl::compile(&text, &catalog).unwrap_err();
        let is_told = refused.message.contains(why) || call.starts_with("n.");
        assert!(is_told, "{call}: {refused}");
    }
    assert!(sql_of(&modules, "SELECT v FROM mqtt.\"t\"").calls.is_none());
    assert!(epl_of(&modules, "select v from \"t\"").calls.is_none());
    let used = sql_of(&modules, "SELECT m.half(v) AS h FROM mqtt.\"t\"")
        .calls
        .unwrap();
    assert!(used.uses("m") && !used.uses("n"));
}

#[test]
fn functions_stand_wherever_an_expression_may() {
    let modules = numbers();
    let payloads = [
        r#"{"k":"a","v":1}"#,
        r#"{"k":"b","v":3}"#,
        r#"{"k":"a","v":4}"#,
        r#"{"k":"c","v":9}"#,
    ];
    for (text, expected) in [
        (
            "SELECT k, m.half(v) AS h FROM mqtt.\"t\" WHERE m.add(v, 1) > 3",
            "{\"k\":\"b\",\"h\":1.5}\n{\"k\":\"a\",\"h\":2.0}\n{\"k\":\"c\",\"h\":4.5}",
        ),
        (
            "SELECT m.add(v, 0) % 2 AS odd, sum(m.half(v)) AS s, m.add(count(*), 10) AS n \
             FROM TUMBLE(mqtt.\"t\", INTERVAL '1 second') GROUP BY m.add(v, 0) % 2 \
             HAVING m.add(count(*), 0) > 1",
            "{\"odd\":1,\"s\":6.5,\"n\":13}",
        ),
        (
            "SELECT max(m.half(v)) FILTER (WHERE m.add(v, 0) < 9) AS top \
             FROM TUMBLE(mqtt.\"t\", INTERVAL '1 second')",
            "{\"top\":2.0}",
        ),
    ] {
        let (rows, errored, ..) = run(sql_of(&modules, text), OnError::Drop, &payloads);
        assert_eq!((rows.as_str(), errored), (expected, 0), "{text}");
    }
    for (text, expected) in [
        (
            "select k, m.half(v) as h from \"t\"(m.add(v, 1) > 3) where M.HALF(v) < 4",
            "{\"k\":\"b\",\"h\":1.5}\n{\"k\":\"a\",\"h\":2.0}",
        ),
        (
            "select k, sum(m.half(v)) as s from \"t\"#length(2) group by k having m.half(sum(v)) > 1",
            "{\"k\":\"b\",\"s\":1.5}\n{\"k\":\"a\",\"s\":2.0}\n{\"k\":\"c\",\"s\":4.5}",
        ),
        (
            "select a.v as a, b.v as b from pattern [every a=\"t\"(k='a') -> b=\"t\"(m.add(v, 0) > a.v)]",
            "{\"a\":1,\"b\":3}\n{\"a\":4,\"b\":9}",
        ),
    ] {
        let (rows, errored, ..) = run(epl_of(&modules, text), OnError::Drop, &payloads);
        assert_eq!((rows.as_str(), errored), (expected, 0), "{text}");
    }
}

#[test]
fn what_becomes_of_an_event_on_which_a_call_fails_is_the_policy() {
    let modules = numbers();
    let payloads = [r#"{"v":6,"d":3}"#, r#"{"v":6,"d":0}"#, r#"{"v":6,"d":2}"#];
    let select = "m.ratio(v, d) AS r FROM mqtt.\"t\"";
    let told = "the function m.ratio failed";
    // A row, a filter, a group's key, an aggregate, its filter.
    for (text, dropped, nulls, filtered) in [
        (
            format!("SELECT {select}"),
            "{\"r\":2}\n{\"r\":3}",
            "{\"r\":2}\n{\"r\":null}\n{\"r\":3}",
            0,
        ),
        (
            "SELECT d FROM mqtt.\"t\" WHERE m.ratio(v, d) > 2".to_owned(),
            "{\"d\":2}",
            "{\"d\":2}",
            1,
        ),
        (
            "SELECT m.ratio(v, d) AS r, count(*) AS n FROM TUMBLE(mqtt.\"t\", INTERVAL '1 second') \
             GROUP BY m.ratio(v, d)"
                .to_owned(),
            "{\"r\":2,\"n\":1}\n{\"r\":3,\"n\":1}",
            "{\"r\":2,\"n\":1}\n{\"r\":null,\"n\":1}\n{\"r\":3,\"n\":1}",
            0,
        ),
        (
            "SELECT count(*) AS n, sum(m.ratio(v, d)) AS s FROM HOP(mqtt.\"t\", INTERVAL '1 second', \
             INTERVAL '1 second')"
                .to_owned(),
            "{\"n\":2,\"s\":5}",
            "{\"n\":3,\"s\":5}",
            0,
        ),
        (
            "SELECT count(*) FILTER (WHERE m.ratio(v, d) > 1) AS n \
             FROM TUMBLE(mqtt.\"t\", INTERVAL '1 second')"
                .to_owned(),
            "{\"n\":2}",
            "{\"n\":2}",
            0,
        ),
    ] {
        let (rows, errored, seen, error) = run(sql_of(&modules, &text), OnError::Drop, &payloads);
        assert_eq!((rows.as_str(), errored, seen), (dropped, 1, filtered), "{text}");
        assert!(error.unwrap().contains(told), "{text}");
        let (rows, errored, _, error) = run(sql_of(&modules, &text), OnError::Null, &payloads);
        assert_eq!((rows.as_str(), errored, error), (nulls, 0, None), "{text}");
    }
    // Of what a window gives, the window's events.
    let window =
        "SELECT m.ratio(count(*), min(d)) AS r FROM TUMBLE(mqtt.\"t\", INTERVAL '1 second')";
    let (rows, errored, _, error) = run(sql_of(&modules, window), OnError::Drop, &payloads);
    assert_eq!((rows.as_str(), errored), ("", 3));
    assert!(error.unwrap().contains(told));
}

#[test]
fn statements_that_keep_events_go_on_without_what_failed() {
    let modules = numbers();
    let payloads = [
        r#"{"v":6,"d":3}"#,
        r#"{"v":6,"d":0}"#,
        r#"{"v":6,"d":2}"#,
        r#"{"v":6,"d":1}"#,
    ];
    for (text, expected) in [
        // The row that fails is not told.
        (
            "select m.ratio(v, d) as r from \"t\"#length(1)",
            "{\"r\":2}\n{\"r\":3}\n{\"r\":6}",
        ),
        // A condition that fails is not true.
        (
            "select d from \"t\"(m.ratio(v, d) > 0)#length(1)",
            "{\"d\":3}\n{\"d\":2}\n{\"d\":1}",
        ),
        // An aggregate skips it, when it comes and when it leaves, and the event that lets it leave
        // is not blamed.
        (
            "select sum(m.ratio(v, d)) as s from \"t\"#length(2)",
            "{\"s\":2}\n{\"s\":2}\n{\"s\":3}\n{\"s\":9}",
        ),
    ] {
        let (rows, errored, _, error) = run(epl_of(&modules, text), OnError::Drop, &payloads);
        assert_eq!((rows.as_str(), errored), (expected, 1), "{text}");
        assert!(
            error.unwrap().contains("the function m.ratio failed"),
            "{text}"
        );
    }
    let text = "select m.ratio(v, d) as r from \"t\"#length(1)";
    let (rows, errored, ..) = run(epl_of(&modules, text), OnError::Null, &payloads);
    assert_eq!(
        (rows.as_str(), errored),
        ("{\"r\":2}\n{\"r\":null}\n{\"r\":3}\n{\"r\":6}", 0)
    );
}

#[test]
fn a_window_is_told_whatever_fails_on_the_event_that_closes_it() {
    let modules = numbers();
    let text = "SELECT count(*) AS n FROM TUMBLE(mqtt.\"t\", coalesce(m.ratio(ts, d), ts), INTERVAL '1 \
                second')";
    let payloads = [
        r#"{"d":1,"ts":0}"#,
        r#"{"d":1,"ts":500}"#,
        r#"{"d":0,"ts":1500}"#,
        r#"{"d":1,"ts":1600}"#,
        r#"{"d":1,"ts":2500}"#,
    ];
    let (rows, errored, _, error) = run(sql_of(&modules, text), OnError::Drop, &payloads);
    assert_eq!((rows.as_str(), errored), ("{\"n\":2}\n{\"n\":1}", 1));
    assert!(error.unwrap().contains("the function m.ratio failed"));
}

/// The page's examples are assembled, added and called as they stand.
#[test]
fn the_examples_of_the_page_work() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/functions.md");
    let page = std::fs::read_to_string(path).unwrap();
    let block = |language: &str| {
        let start = format!("```{language}\n");
        let (_, rest) = page.split_once(&start).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let bytes = wat::parse_str(block("wat")).unwrap();
    let signatures = [
        "slug(string) -> string?",
        "mean(double?, double?) -> double",
    ];
    for signature in signatures {
        assert!(
            page.contains(&format!("--signature '{signature}'")),
            "{signature}"
        );
    }
    let signatures = signatures.map(str::to_owned);
    let module = UserModule::read("own", &bytes, &signatures, BOUNDS).unwrap();
    let modules = Modules::default().with(module);
    let plan = sql_of(&modules, block("sql").trim());
    let events = block("events");
    let payloads: Vec<&str> = events.lines().collect();
    let (rows, errored, ..) = run(plan, OnError::Drop, &payloads);
    assert_eq!((rows + "\n", errored), (block("rows"), 0));
}

/// What a call costs, of either kind of module: run with
/// `cargo test -p fusion --release -- --ignored --nocapture cost_of_calls`.
#[test]
#[ignore = "a measurement"]
fn cost_of_calls() {
    let kept = numbers();
    let fresh = modules(
        &[
            TEXTS,
            NUMBERS,
            "(func (export \"same\") (param i32 i32) (result i64) \
        (call $packed (local.get 0) (local.get 1)))",
        ],
        &["half(double) -> double", "same(string) -> string"],
    );
    let wide = Modules::default().with(
        UserModule::read(
            "m",
            &wat::parse_str(
                format!("(module (memory 17) {TEXTS} {NUMBERS})")
                    .replace("(memory (export \"memory\") 1)", ""),
            )
            .unwrap(),
            &[],
            Bounds {
                fuel: 100_000,
                memory: 16 << 20,
            },
        )
        .unwrap(),
    );
    for (what, modules, text) in [
        ("no call", &kept, "SELECT v / 2 AS h FROM mqtt.\"t\""),
        (
            "numbers, instance kept",
            &kept,
            "SELECT m.half(v) AS h FROM mqtt.\"t\"",
        ),
        (
            "numbers, fresh instance of 64 KiB",
            &fresh,
            "SELECT m.half(v) AS h FROM mqtt.\"t\"",
        ),
        (
            "numbers, fresh instance of 1 MiB",
            &wide,
            "SELECT m.half(v) AS h FROM mqtt.\"t\"",
        ),
        (
            "text, fresh instance of 64 KiB",
            &fresh,
            "SELECT m.same(k) AS h FROM mqtt.\"t\"",
        ),
        (
            "a call without an end",
            &kept,
            "SELECT m.spin(1) AS h FROM mqtt.\"t\"",
        ),
    ] {
        let payloads = vec![r#"{"k":"some-device-0001","v":3}"#; 20_000];
        let plan = sql_of(modules, text);
        let began = std::time::Instant::now();
        run(plan, OnError::Drop, &payloads);
        let each = began.elapsed() / 20_000;
        println!("{what}: {each:?} an event");
    }
}
