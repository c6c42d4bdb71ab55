use super::*;
use crate::epl::{self, Catalog};
use crate::expression::{Event, Scope};
use crate::machine::{Machine, MachineOptions};
use crate::output::Output;
use crate::plan::{OnError, Plan};
use crate::{json::Scanner, sql, window::Choices};

/// What most modules need that take and give texts.
const TEXTS: &str = r#"
  (memory (export "memory") 1)
  (global $next (mut i32) (i32.const 1024))
  (func (export "alloc") (param i32) (result i32)
    (global.get $next)
    (global.set $next (i32.add (global.get $next) (local.get 0))))
  (func $packed (param $at i32) (param $len i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
      (i64.extend_i32_u (local.get $len))))"#;

const NUMBERS: &str = r#"
  (func (export "add") (param i64 i64) (result i64) (i64.add (local.get 0) (local.get 1)))
  (func (export "half") (param f64) (result f64) (f64.div (local.get 0) (f64.const 2)))
  (func (export "narrow") (param i32 f32) (result f32)
    (f32.add (f32.convert_i32_s (local.get 0)) (local.get 1)))
  (func (export "ratio") (param i64 i64) (result i64) (i64.div_s (local.get 0) (local.get 1)))
  (func (export "spin") (param i64) (result i64) (loop $again (br $again)) (unreachable))
  (func (export "deep") (param i64) (result i64) (call $deep (local.get 0)))
  (func $deep (param i64) (result i64) (i64.add (call $deep (local.get 0)) (i64.const 1)))
  (func (export "_hidden") (param i64) (result i64) (local.get 0))
  (func (export "pair") (result i64 i64) (i64.const 1) (i64.const 2))"#;

const BOUNDS: Bounds = Bounds {
    fuel: 100_000,
    memory: 1 << 20,
};

fn read(parts: &[&str], signatures: &[&str]) -> Result<UserModule, String> {
    let bytes = wat::parse_str(format!("(module {})", parts.concat())).unwrap();
    let signatures: Vec<String> = signatures.iter().map(|text| (*text).to_owned()).collect();
    UserModule::read("m", &bytes, &signatures, BOUNDS)
}

fn modules(parts: &[&str], signatures: &[&str]) -> Modules {
    Modules::default().with(read(parts, signatures).unwrap())
}

fn numbers() -> Modules {
    modules(&[NUMBERS], &[])
}

/// The value of a call of constants, or why it failed.
fn value(modules: &Modules, call: &str) -> Result<String, String> {
    let text = format!("SELECT m.{call} AS v FROM mqtt.\"t\"");
    let plan = sql::compile_with(&text, modules).map_err(|error| error.message)?;
    let crate::plan::Column::Named { expression, .. } = &plan.columns[0] else {
        panic!("{call} is a named column");
    };
    let mut out = Vec::new();
    expression.evaluate(&Scope::empty()).write_json(&mut out);
    match plan.calls.as_ref().unwrap().take() {
        Some(why) => Err(why),
        None => Ok(String::from_utf8(out).unwrap()),
    }
}

fn check(modules: &Modules, cases: &[(&str, &str)]) {
    for (call, expected) in cases {
        assert_eq!(value(modules, call).as_deref(), Ok(*expected), "{call}");
    }
}

/// What a machine with that policy makes of payloads: its rows, and its errored and filtered events.
fn run(plan: Plan, on_error: OnError, payloads: &[&str]) -> (String, u64, u64, Option<String>) {
    let options = MachineOptions {
        lateness_ms: 0,
        groups_max: 100,
        state_bytes_max: 1 << 20,
        partitions: 1,
        close_delay_ms: 0,
        idle_ms: 0,
        on_error,
        choices: Choices::default(),
    };
    let scanner = Scanner::new(&plan.fields);
    let mut machine = Machine::new(Arc::new(plan), options);
    let mut out = Output::default();
    let mut values = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        let event = Event {
            topic: "t",
            payload: Some(payload.as_bytes()),
            key: None,
            partition: 0,
            offset: None,
            timestamp: base::UnixMillis(index as i64 * 100),
        };
        let scanned = scanner.scan(payload.as_bytes(), &mut values);
        let scanned = scanned.as_ref().map(|()| values.as_slice());
        machine.on_source_event(0, &event, scanned, &mut out);
    }
    machine.on_clock(base::UnixMillis(10_000), &mut out);
    let rows: Vec<&str> = out
        .texts()
        .map(|text| std::str::from_utf8(text).unwrap())
        .collect();
    let books = machine.books();
    assert_eq!(
        books.received,
        books.filtered + books.errored + out.events() + (books.in_flight() - out.events()),
        "the books balance"
    );
    let error = machine.error().map(str::to_owned);
    (rows.join("\n"), books.errored, books.filtered, error)
}

fn sql_of(modules: &Modules, text: &str) -> Plan {
    sql::compile_with(text, modules).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn epl_of(modules: &Modules, text: &str) -> Plan {
    let catalog = Catalog::default().with_modules(modules.clone());
    epl::compile(text, &catalog).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn numbers_go_in_and_come_out_as_they_are() {
    check(
        &numbers(),
        &[
            ("add(40, 2)", "42"),
            ("ADD(-9223372036854775807, -1)", "-9223372036854775808"),
            ("half(3)", "1.5"),
            ("half(1e300 * 10)", "5e+300"),
            ("narrow(2, 0.5)", "2.5"),
            ("add(1, m.add(2, 3))", "6"),
            // Null, another type, and a number that is too large give null without a call.
            ("add(1, NULL)", "null"),
            ("add(nothing, 1)", "null"),
            ("narrow(3000000000, 1)", "null"),
            ("half(1 / 0)", "null"),
        ],
    );
}

#[test]
fn what_is_exported_otherwise_is_no_function() {
    let module = read(&[NUMBERS], &[]).unwrap();
    let names: Vec<String> = module.functions.iter().map(Signature::to_string).collect();
    assert_eq!(
        names,
        [
            "add(long, long) -> long",
            "deep(long) -> long",
            "half(double) -> double",
            "narrow(int, float) -> float",
            "ratio(long, long) -> long",
            "spin(long) -> long"
        ]
    );
}

#[test]
fn texts_go_through_memory() {
    let text = modules(
        &[
            TEXTS,
            r#"(func (export "same") (param i32 i32) (result i64)
                 (call $packed (local.get 0) (local.get 1)))
               (func (export "rest") (param i32 i32 i64) (result i64)
                 (call $packed (i32.add (local.get 0) (i32.wrap_i64 (local.get 2)))
                   (i32.sub (local.get 1) (i32.wrap_i64 (local.get 2)))))
               (func (export "size") (param i32 i32 i32 i32) (result i64)
                 (i64.extend_i32_u (i32.add (local.get 1) (local.get 3))))
               (func (export "away") (param i32) (result i64)
                 (call $packed (local.get 0) (i32.const 8)))
               (func (export "none") (result i64) (i64.const -1))"#,
        ],
        &[
            "same(string) -> string",
            "rest(string, long) -> string",
            "size(string, string?) -> long",
            "away(int) -> string",
            "none() -> string?",
        ],
    );
    check(
        &text,
        &[
            ("same('tür \"\"')", "\"tür \\\"\\\"\""),
            ("same('')", "\"\""),
            ("rest('abc', 1)", "\"bc\""),
            ("rest(m.same('abc'), 2)", "\"c\""),
            ("size('ab', 'tür')", "6"),
            ("size('ab', NULL)", "1"),
            ("size(NULL, 'ab')", "null"),
            ("same(nothing)", "null"),
            ("none()", "null"),
            (
                "away(0)",
                "\"\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\\u0000\"",
            ),
        ],
    );
    for (call, why) in [
        ("rest('tür', 2)", "no UTF-8"),
        ("away(65530)", "outside of its memory"),
        ("away(-8)", "outside of its memory"),
        ("rest('a', 2)", "more than a row may have"),
    ] {
        let failed = value(&text, call).unwrap_err();
        assert!(
            failed.contains(why) && failed.contains("m."),
            "{call}: {failed}"
        );
    }
}

#[test]
fn null_is_the_least_value_of_a_type_that_may_be_null() {
    let own = modules(
        &[
            r#"(func (export "l") (param i64) (result i64) (local.get 0))
             (func (export "i") (param i32) (result i32) (local.get 0))
             (func (export "b") (param i32) (result i32) (local.get 0))
             (func (export "d") (param f64) (result f64) (local.get 0))
             (func (export "zero") (param f64) (result i32)
               (f64.ne (local.get 0) (local.get 0)))"#,
        ],
        &[
            "l(long?) -> long?",
            "i(int?) -> int?",
            "b(boolean?) -> boolean?",
            "d(double?) -> double",
            "zero(double?) -> boolean",
        ],
    );
    check(
        &own,
        &[
            ("l(NULL)", "null"),
            ("l(-9223372036854775807)", "-9223372036854775807"),
            ("i(7)", "7"),
            ("i(NULL)", "null"),
            ("b(TRUE)", "true"),
            ("b(1 = 2)", "false"),
            ("b(NULL)", "null"),
            ("d(NULL)", "null"),
            ("zero(NULL)", "true"),
            ("zero(1)", "false"),
        ],
    );
}

#[test]
fn calls_that_cannot_end_well_end_with_a_reason() {
    let hostile = modules(
        &[
            NUMBERS,
            TEXTS,
            r#"(func (export "grow") (param i64) (result i64)
                 (i64.extend_i32_s (memory.grow (i32.const 1000))))
               (func (export "stop") (param i64) (result i64) (unreachable))
               (func (export "far") (param i64) (result i64)
                 (i64.load (i32.const -8)))"#,
        ],
        &[],
    );
    for (call, why) in [
        ("spin(1)", "used up its fuel of 100000"),
        (
            "grow(1)",
            "1048576 bytes of memory (fusion.functions.memory_max)",
        ),
        ("stop(1)", "it gave up"),
        ("far(1)", "out of bounds"),
        ("deep(1)", "nest too deep"),
        ("ratio(1, 0)", "divi"),
    ] {
        let failed = value(&hostile, call).unwrap_err();
        assert!(failed.contains(why), "{call}: {failed}");
        // The next call is a fresh one.
        check(&hostile, &[("add(1, 1)", "2"), ("ratio(4, 2)", "2")]);
    }
}

#[test]
fn nothing_stays_from_one_call_to_the_next() {
    let counts = modules(
        &[r#"(memory 1) (global $n (mut i64) (i64.const 0))
             (func (export "calls") (result i64)
               (global.set $n (i64.add (global.get $n) (i64.const 1)))
               (i64.store (i32.const 8) (i64.add (i64.load (i32.const 8)) (global.get $n)))
               (i64.load (i32.const 8)))"#],
        &[],
    );
    let plan = sql_of(
        &counts,
        "SELECT m.calls() AS n, m.calls() + m.calls() AS t FROM mqtt.\"t\"",
    );
    let (rows, ..) = run(plan, OnError::Drop, &["{}", "{}"]);
    assert_eq!(rows, "{\"n\":1,\"t\":2}\n{\"n\":1,\"t\":2}");
    assert!(!counts.named("m").unwrap().is_stateless);
    assert!(numbers().named("m").unwrap().is_stateless);
}

#[test]
fn a_module_is_initialized_before_its_functions_are_called() {
    let reactor = modules(
        &[r#"(global $n (mut i64) (i64.const 1)) (start $s)
             (func $s (global.set $n (i64.mul (global.get $n) (i64.const 3))))
             (func (export "_initialize") (global.set $n (i64.add (global.get $n) (i64.const 4))))
             (func (export "n") (result i64) (global.get $n))"#],
        &[],
    );
    check(&reactor, &[("n()", "7"), ("n()", "7")]);
}

#[test]
fn modules_that_cannot_be_used_are_refused_with_a_reason() {
    let own = "(func (export \"f\") (param f64) (result f64) (local.get 0))";
    for (parts, signatures, why) in [
        (
            vec!["(import \"env\" \"now\" (func (result f64)))", own],
            vec![],
            "imports env.now",
        ),
        (
            vec!["(import \"env\" \"memory\" (memory 1))", own],
            vec![],
            "imports env.memory",
        ),
        (
            vec!["(memory 17)", own],
            vec![],
            "fusion.functions.memory_max",
        ),
        (
            vec!["(start $s) (func $s (loop $l (br $l)))", own],
            vec![],
            "used up its fuel",
        ),
        (
            vec!["(start $s) (func $s unreachable)", own],
            vec![],
            "cannot be started",
        ),
        (vec!["(table 100001 funcref)", own], vec![], "tables"),
        (
            vec!["(func (export \"_f\"))"],
            vec![],
            "exports no function of numbers",
        ),
        (vec![own], vec!["g(long) -> long"], "exports no function g"),
        (
            vec![own],
            vec!["f(long) -> double"],
            "(i64) -> (f64) in a module, and this one has (f64) -> (f64)",
        ),
        (vec![own], vec!["f(decimal) -> double"], "is no signature"),
        (vec![own], vec!["f(double) double"], "is no signature"),
        (
            vec![own],
            vec!["f(double) -> double", "f(double?) -> double"],
            "two functions are called f",
        ),
        (
            vec![own, "(func (export \"F\") (result i32) (i32.const 1))"],
            vec![],
            "two functions are called f",
        ),
        (
            vec!["(func (export \"length\") (result i32) (i32.const 1))"],
            vec![],
            "a method of values",
        ),
        (
            vec!["(func (export \"t\") (param i32 i32) (result i64) (i64.const 0))"],
            vec!["t(string) -> long"],
            "export its memory",
        ),
    ] {
        let refused = read(&parts, &signatures).map(|_| ()).unwrap_err();
        assert!(refused.contains(why), "{parts:?}: {refused}");
    }
    for name in ["", "Geo", "geo.x", "../geo", "math", "ü", "1a"] {
        let bytes = wat::parse_str(format!("(module {own})")).unwrap();
        assert!(
            UserModule::read(name, &bytes, &[], BOUNDS).is_err(),
            "{name}"
        );
    }
    let long = vec![0; FUNCTION_MODULE_BYTES + 1];
    let refused = UserModule::read("m", &long, &[], BOUNDS)
        .map(|_| ())
        .unwrap_err();
    assert!(refused.contains("more than"), "{refused}");
}

const FUNCTION_MODULE_BYTES: usize = crate::limits::FUNCTION_MODULE_BYTES_MAX;

#[test]
fn damaged_modules_are_refused_or_run_within_their_bounds() {
    let bytes = wat::parse_str(format!("(module {NUMBERS} {TEXTS})")).unwrap();
    let mut rng = base::Rng::from_seed(7);
    let mut usable = 0;
    for _ in 0..2_000 {
        let mut damaged = bytes.clone();
        for _ in 0..1 + rng.next_u64() % 3 {
            let place = rng.next_u64() as usize % damaged.len();
            damaged[place] = rng.next_u64() as u8;
        }
        let Ok(module) = UserModule::read("m", &damaged, &[], BOUNDS) else {
            continue;
        };
        usable += 1;
        let modules = Modules::default().with(module);
        for signature in &modules.named("m").unwrap().functions.clone() {
            let arguments = vec!["1"; signature.parameters.len()].join(", ");
            let _ = value(&modules, &format!("{}({arguments})", signature.name));
        }
    }
    assert!(
        usable > 50,
        "only {usable} could be used: damage more gently"
    );
}

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
