//! Modules and calls: what goes in and comes out, and what is refused or ended.

mod statements;

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
