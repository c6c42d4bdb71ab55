//! What parses, how it binds, and where errors point.

use super::ast::Statement;
use super::ast::{
    Body, Choices, Expr, ExprKind, Join, Output, OutputKind, OutputWhen, Pattern, RowRegex, Select,
    Source, Step,
};
use super::parser::parse_expression;
use crate::error::TextError;

fn parse(text: &str) -> Result<Statement, TextError> {
    super::parser::parse(text).map(|mut statements| statements.remove(0))
}

/// An expression with every binding in brackets.
fn shown(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Null => "null".to_owned(),
        ExprKind::Bool(truth) => truth.to_string(),
        ExprKind::Int(number) => number.to_string(),
        ExprKind::Float(number) => format!("{number:?}"),
        ExprKind::Text(text) => format!("'{text}'"),
        ExprKind::Star => "*".to_owned(),
        ExprKind::Period(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|(amount, unit)| format!("{} {unit:?}", shown(amount)))
                .collect();
            parts.join(" ")
        }
        ExprKind::Path(steps) => path(steps),
        ExprKind::Call(call) => {
            let arguments: Vec<String> = call.arguments.iter().map(shown).collect();
            let distinct = if call.distinct { "distinct " } else { "" };
            let filter = call
                .filter
                .as_ref()
                .map_or_else(String::new, |f| format!(" if {}", shown(f)));
            let then: String = call
                .then
                .iter()
                .map(|(name, _)| format!(".{name}"))
                .collect();
            format!(
                "{}({distinct}{}{filter}){then}",
                path(&call.path),
                arguments.join(" ")
            )
        }
        ExprKind::Unary(operator, inner) => format!("({operator:?} {})", shown(inner)),
        ExprKind::Binary(operator, sides) => {
            format!("({} {operator:?} {})", shown(&sides[0]), shown(&sides[1]))
        }
        ExprKind::IsNull(inner, negated) => format!("({} null {negated})", shown(inner)),
        ExprKind::In(inner, Choices::List(list), negated) => {
            let list: Vec<String> = list.iter().map(shown).collect();
            format!("({} in {} {negated})", shown(inner), list.join(" "))
        }
        ExprKind::In(
            inner,
            Choices::Range {
                ends,
                has_low,
                has_high,
            },
            negated,
        ) => format!(
            "({} from {} {has_low} to {} {has_high} {negated})",
            shown(inner),
            shown(&ends[0]),
            shown(&ends[1])
        ),
        ExprKind::In(inner, Choices::Subquery(_), negated) => {
            format!("({} in select {negated})", shown(inner))
        }
        ExprKind::Between(parts, negated) => {
            format!(
                "({} {} {} {negated})",
                shown(&parts[0]),
                shown(&parts[1]),
                shown(&parts[2])
            )
        }
        ExprKind::Like(sides, escape, negated) => format!(
            "({} like {}{} {negated})",
            shown(&sides[0]),
            shown(&sides[1]),
            escape
                .as_ref()
                .map_or_else(String::new, |escape| format!(" escape {}", shown(escape)))
        ),
        ExprKind::Regexp(sides, negated) => {
            format!(
                "({} regexp {} {negated})",
                shown(&sides[0]),
                shown(&sides[1])
            )
        }
        ExprKind::Case {
            operand,
            branches,
            otherwise,
        } => {
            let operand = operand
                .as_ref()
                .map_or_else(String::new, |operand| shown(operand));
            let branches: Vec<String> = branches
                .iter()
                .map(|(condition, result)| format!("{}:{}", shown(condition), shown(result)))
                .collect();
            let otherwise = otherwise
                .as_ref()
                .map_or_else(String::new, |other| shown(other));
            format!("case({operand} {} {otherwise})", branches.join(" "))
        }
        ExprKind::Cast(inner, to) => format!("({} as {to})", shown(inner)),
        ExprKind::Subquery(_) => "select".to_owned(),
        ExprKind::Exists(_) => "exists".to_owned(),
    }
}

fn path(steps: &[Step]) -> String {
    let steps: Vec<String> = steps
        .iter()
        .map(|step| match step {
            Step::Name(name) => name.clone(),
            Step::Index(index) => format!("[{index}]"),
        })
        .collect();
    steps.join(".")
}

#[track_caller]
fn check(text: &str, expected: &str) {
    match parse_expression(text) {
        Ok(expr) => assert_eq!(shown(&expr), expected, "{text}"),
        Err(error) => panic!("{text}: {error}"),
    }
}

#[track_caller]
fn select(text: &str) -> Select {
    match parse(text) {
        Ok(statement) => match statement.body {
            Body::Select(select) => *select,
            other => panic!("{text}: {other:?}"),
        },
        Err(error) => panic!("{text}: {error}"),
    }
}

#[track_caller]
fn refused(text: &str, line: u64, column: u64, part: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!(
        (error.line, error.column),
        (line, column),
        "{text}: {error}"
    );
    assert!(error.message.contains(part), "{text}: {error}");
}

#[test]
fn operators_bind_as_in_epl() {
    check("a or b and not c = 1", "(a Or (b And (Not (c Equal 1))))");
    check(
        "a + b * -c % 2",
        "(a Add ((b Multiply (Minus c)) Remainder 2))",
    );
    check("-5 - -2.5", "(-5 Subtract -2.5)");
    check("a || b = 'x'", "((a Concat b) Equal 'x')");
    check(
        "a < b + 1 and a >= 0",
        "((a Less (b Add 1)) And (a GreaterOrEqual 0))",
    );
    check("a <> b != c", "((a NotEqual b) NotEqual c)");
    check("a & 1 = 1", "((a BitAnd 1) Equal 1)");
    check(
        "a is null and b is not null",
        "((a null false) And (b null true))",
    );
    check("a is not b", "(a IsNot b)");
    check("(a or b) and c", "((a Or b) And c)");
}

#[test]
fn word_operators_take_their_parts() {
    check("a not in (1, 2)", "(a in 1 2 true)");
    check("a in (1:5]", "(a from 1 false to 5 true false)");
    check("a in [x:y)", "(a from x true to y false false)");
    check("a between 1 and 2 and b", "((a 1 2 false) And b)");
    check("a not between 1 and 2 + 3", "(a 1 (2 Add 3) true)");
    check("a like 'x!%' escape '!'", "(a like 'x!%' escape '!' false)");
    check("a not regexp '\\d+'", "(a regexp '\\d+' true)");
    check(
        "case when a then 1 when b then 2 else 3 end",
        "case( a:1 b:2 3)",
    );
    check("case k when 'x' then 1 end", "case(k 'x':1 )");
    check(
        "cast(a, long) + cast(b as double)",
        "((a as long) Add (b as double))",
    );
}

#[test]
fn values_and_calls_are_read() {
    check("10 sec", "10 Second");
    check("1 day 2 hours 3.5 min", "1 Day 2 Hour 3.5 Minute");
    check("500 msec", "500 Millisecond");
    check("0xff + 10L + 2d + 1.5f", "(((255 Add 10) Add 2.0) Add 1.5)");
    check("\"it's\" || 'a\\u00e9\\n'", "('it's' Concat 'a\u{e9}\n')");
    check("count(*)", "count(*)");
    check(
        "sum(distinct a.b, filter: c > 1)",
        "sum(distinct a.b if (c Greater 1))",
    );
    check("Math.max(a, 1)", "Math.max(a 1)");
    check(
        "maxby(v).k || name.trim().length()",
        "(maxby(v).k Concat name.trim().length)",
    );
    check("a[1].b.c", "a.[1].b.c");
    check("a?.b?", "a.b");
    check("`group`.`a b`", "group.a b");
}

#[test]
fn a_select_has_all_its_clauses() {
    let select = select(
        "@name('x') insert rstream into Out(a, b) select irstream distinct a, sum(b) as total, e.* \
         from E(v > 1, k = 'x').win:time(10 sec).std:unique(k) as e where a > 1 group by a, c \
         having sum(b) > 2 output last every 5 events order by a desc, c limit 3 offset 1",
    );
    assert_eq!(select.items.len(), 3);
    assert!(select.distinct);
    let source = &select.sources[0];
    let Source::Stream(stream) = &source.source else {
        panic!("no stream: {source:?}");
    };
    assert_eq!((stream.name.text.as_str(), stream.filters.len()), ("E", 2));
    let views: Vec<&str> = source.views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(views, ["time", "unique"]);
    assert_eq!(
        source.alias.as_ref().map(|alias| alias.text.as_str()),
        Some("e")
    );
    assert_eq!(select.group_by.len(), 2);
    assert_eq!(select.limit, Some((3, 1)));
    assert!(select.order_by[0].1 && !select.order_by[1].1);
    let Some(Output {
        kind: OutputKind::Last,
        when: Some(OutputWhen::Every(_)),
        ..
    }) = select.output
    else {
        panic!("{:?}", select.output);
    };
}

#[test]
fn joins_keep_their_kind_and_condition() {
    let select = select(
        "select * from A#time(5 sec) as a left outer join B#lastevent b on a.k = b.k \
         full outer join C#keepall as c on c.k = a.k and c.x = b.x, D unidirectional",
    );
    let joins: Vec<Join> = select.sources.iter().map(|source| source.join).collect();
    assert_eq!(joins, [Join::Inner, Join::Left, Join::Full, Join::Inner]);
    assert!(select.sources[3].unidirectional && select.sources[2].on.is_some());
}

#[test]
fn patterns_bind_as_in_epl() {
    let select = select(
        "select * from pattern [every a=A -> (b=B(k=a.k) or timer:interval(5 sec)) and not C \
         where timer:within(10 sec)]",
    );
    let Source::Pattern(pattern, _) = &select.sources[0].source else {
        panic!("no pattern");
    };
    let Pattern::FollowedBy(steps) = &**pattern else {
        panic!("{pattern:?}");
    };
    assert!(
        matches!(&steps[0], Pattern::Every(inner) if matches!(**inner, Pattern::Filter(Some(_), _)))
    );
    let Pattern::And(parts) = &steps[1] else {
        panic!("{steps:?}");
    };
    assert!(matches!(&parts[0], Pattern::Or(choices) if choices.len() == 2));
    assert!(matches!(&parts[1], Pattern::Not(inner) if matches!(**inner, Pattern::Within(..))));
}

#[test]
fn repeats_and_row_patterns_are_read() {
    let repeat = select("select * from pattern [[2:] a=A until B]");
    let Source::Pattern(pattern, _) = &repeat.sources[0].source else {
        panic!("no pattern");
    };
    assert!(matches!(
        &**pattern,
        Pattern::Repeat {
            least: Some(2),
            most: None,
            until: Some(_),
            ..
        }
    ));
    let rows = select(
        "select * from E match_recognize (partition by k measures A.v as a, last(B.v) as b \
         all matches after match skip to next row pattern (A B{2,3}? (C | D)*) \
         interval 10 seconds or terminated define B as B.v > A.v)",
    );
    let rows = rows.row_pattern.expect("a row pattern");
    let RowRegex::Sequence(parts) = &rows.pattern else {
        panic!("{:?}", rows.pattern);
    };
    assert!(matches!(
        &parts[1],
        RowRegex::Repeat {
            least: 2,
            most: Some(3),
            greedy: false,
            ..
        }
    ));
    assert!(matches!(&rows.interval, Some((_, true))));
}

#[test]
fn every_form_of_statement_parses() {
    for text in [
        "select 1 as a from \"site/+/temp\"",
        "select * from mqtt.\"site/+/temp\"#length(5)",
        "select * from a.b.Type#time_batch(1 min, 0L, \"FORCE_UPDATE, START_EAGER\")",
        "create window W#time(10 sec) as (a int, b string)",
        "create window W.win:keepall() as select a, b from E",
        "create window W#unique(k) as E insert where a > 1",
        "create table T (k string primary key, n count(*), total sum(double))",
        "create json schema S as (a int, b java.lang.String, c double[])",
        "create schema S2 () copyfrom S",
        "create schema S3 copyfrom S",
        "create context C partition by k from E, k from F(x > 1)",
        "create context C start E(a = 1) as e end after 10 sec",
        "create context C initiated by E as e terminated by F(k = e.k)",
        "create context C initiated @now terminated after 1 min",
        "create context C group a < 1 as low, group by a >= 1 as high from E",
        "create context C start (0, 9, *, *, *) end (*/15, 8:17, *, *, *)",
        "context C select count(*) from E",
        "on E as e select and delete w.* from W as w where w.k = e.k",
        "on E delete from W where W.k = E.k",
        "on E e update W w set a = e.a, w.b = w.b + 1 where w.k = e.k",
        "on E e merge W w where w.k = e.k when matched and e.x then delete when matched then \
         update set a = 1 when not matched then insert (k, a) select e.k, 1",
        "on E merge into W insert into X select * where a > 1",
        "on E insert into X select a where a > 1 insert into Y select a",
        "on pattern [every timer:interval(5 sec)] select * from W",
        "delete from W where k = 'x'",
        "update W set a = 1 where k = 2",
        "insert into W (a, b) values (1, 'x')",
        "select (select max(v) from W) as m, exists (select * from W) as e from E where k in (select k from W);",
        "select * from E output snapshot every 1 sec",
        "select * from E output after 3 events all every 2 events",
        "select * from E output when count_insert > 2",
        "select * from E output after 10 sec",
        "select * from E output at (*/5, *, *, *, *)",
        "select prev(1, v), prior(2, v) from E#length(3) retain-intersection",
        "/* a */ select // b\n a from E",
        "select * from pattern [every-distinct(a.k, 10 sec) a=A]",
        "select * from pattern [every a=A -> b=B while (a.v < 10)]",
        "select * from pattern [a=A where timer:withinmax(10 sec, 5)]",
        "select * from pattern @DiscardPartialsOnMatch [every [3] A]",
    ] {
        if let Err(error) = parse(text) {
            panic!("{text}: {error}");
        }
    }
}

#[test]
fn errors_point_at_the_character_and_suggest() {
    refused("", 1, 1, "the text is empty");
    refused("selct a from E", 1, 1, "did you mean select?");
    refused("select a form E", 1, 15, "the statement ends before it");
    refused(
        "select a\nfrom E\nwehre a > 1",
        3,
        7,
        "the statement ends before it",
    );
    refused("select a from E where", 1, 22, "a value is missing");
    refused("select a + from E", 1, 12, "a value is missing");
    refused("select a from E group a", 1, 23, "by has to come before it");
    refused("select a from E where a == 1", 1, 26, "equality is one =");
    refused("select 'a from E", 1, 8, "not closed");
    refused("select a /* from E", 1, 10, "not closed");
    refused("select a from E#length(5", 1, 25, "',' or ')'");
    refused("select a from E output every", 1, 29, "a value is missing");
    refused(
        "select a from E output lst every 5 sec",
        1,
        24,
        "did you mean last?",
    );
    refused("select 5x from E", 1, 8, "runs into a name");
    refused("select a from E where a ~ 1", 1, 25, "means nothing here");
    refused("create windw W as E", 1, 8, "did you mean window?");
    refused("select * from pattern [a=A where 5]", 1, 34, "timer:within");
    refused("select * from pattern [[3:1] A]", 1, 24, "wrong way round");
    refused("update istream E set a = 1", 1, 8, "not supported");
    refused(
        "select a from E select",
        1,
        17,
        "the statement ends before it",
    );
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = format!(
        "select {}1{} as a from E",
        "(".repeat(5_000),
        ")".repeat(5_000)
    );
    assert!(
        parse(&deep).unwrap_err().message.contains("more than"),
        "too many words"
    );
    let deep = format!("select {}1{} as a from E", "(".repeat(900), ")".repeat(900));
    assert!(parse(&deep).unwrap_err().message.contains("nests deeper"));
    for deep in ["not ", "- ", "case when ", "f(", "(select "] {
        let deep = format!("select {}", deep.repeat(600));
        assert!(parse(&deep).is_err(), "{deep}");
    }
    let deep = format!("select * from pattern [{}A", "every (".repeat(600));
    assert!(parse(&deep).unwrap_err().message.contains("nests deeper"));
    let chain = format!("select a{} as s from E", " + a".repeat(900));
    assert!(parse(&chain).is_ok(), "a chain does not nest");
    let long = format!("select '{}' as a from E", "x".repeat(20_000));
    assert!(parse(&long).unwrap_err().message.contains("shorten"));
}
