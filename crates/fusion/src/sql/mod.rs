//! The SQL front end: text to [`Plan`], by sqlparser's generic dialect.
//!
//! ```sql
//! [INSERT INTO mqtt."topic" | kafka."topic" | stream."name"]
//! SELECT columns
//! FROM mqtt."filter/+/x" | kafka."topic" | stream."name"
//!    | TUMBLE(source[, time_column], INTERVAL '10 seconds')
//!    | HOP(source[, time_column], INTERVAL '5 seconds', INTERVAL '10 seconds')
//!    | SESSION(source[, time_column], INTERVAL '10 seconds')
//! [WHERE condition] [GROUP BY keys [, TUMBLINGWINDOW(ss, 10) | HOPPINGWINDOW(ss, 10, 5)]]
//! [HAVING condition]
//! ```
//!
//! or of two sources that are joined within a time ([`join`]):
//!
//! ```sql
//! SELECT columns FROM source AS a [INNER | LEFT | RIGHT | FULL] JOIN source AS b
//!   ON a.id = b.id AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts + INTERVAL '5' SECOND
//! [WHERE condition]
//! ```
//!
//! Names are payload fields; `a.b` is field `b` of object `a`, and `payload.a.b` the same for
//! fields that are called like something else. What a construct means that is taken is written in
//! the crate's head; every construct that is not taken is refused at its place in the text, never
//! ignored.

mod aggregates;
mod expressions;
mod join;
mod names;
mod source;

use sqlparser::ast::{
    GroupByExpr, Insert, Query, Select, SelectItem, SetExpr, Spanned, Statement, TableObject,
};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer};

use crate::error::TextError;
use crate::expression::Expression;
use crate::functions::user::{Binder, Modules};
use crate::limits::{
    COLUMNS_MAX, SQL_RECURSION_MAX, STATEMENT_TEXT_BYTES_MAX, STATEMENT_TOKENS_MAX,
};
use crate::plan::{Column, Plan, Sink, Stage};
use crate::sql::names::Names;

/// Compiles one statement.
///
/// # Errors
/// The text is no statement, or one that is not supported; the error points at the place.
pub fn compile(text: &str) -> Result<Plan, TextError> {
    compile_with(text, &Modules::default())
}

/// As [`compile`], for a statement that may call functions of these modules.
///
/// # Errors
/// As [`compile`].
pub fn compile_with(text: &str, modules: &Modules) -> Result<Plan, TextError> {
    if text.len() > STATEMENT_TEXT_BYTES_MAX {
        let message = format!(
            "the statement has {} bytes, more than {STATEMENT_TEXT_BYTES_MAX}: shorten it",
            text.len()
        );
        return Err(TextError {
            message,
            line: 1,
            column: 1,
        });
    }
    let statement = parse(text)?;
    let (sink, query) = match &statement {
        Statement::Query(query) => (None, query.as_ref()),
        Statement::Insert(insert) => insert_parts(insert)?,
        other => {
            return Err(at(
                other.span(),
                "a statement is a SELECT, or an INSERT INTO … SELECT",
            ));
        }
    };
    let binder = Binder::new(modules);
    let mut plan = of_select(sink, select_of(query)?, binder.clone())?;
    plan.calls = binder.into_calls();
    Ok(plan)
}

type Checked<T> = Result<T, TextError>;

/// An error at the start of `span`, or at the text's start where the parser kept no place.
fn at(span: Span, message: impl Into<String>) -> TextError {
    let (line, column) = if span.start.line == 0 {
        (1, 1)
    } else {
        (span.start.line, span.start.column)
    };
    TextError {
        message: message.into(),
        line,
        column,
    }
}

fn parse(text: &str) -> Checked<Statement> {
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text)
        .tokenize_with_location()
        .map_err(|error| {
            let Location { line, column } = error.location;
            TextError {
                message: format!("{}{TOKEN_HINT}", error.message),
                line,
                column,
            }
        })?;
    let words: Vec<&TokenWithSpan> = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    if words.len() > STATEMENT_TOKENS_MAX {
        let message =
            format!("the statement has more than {STATEMENT_TOKENS_MAX} words and signs: split it");
        return Err(TextError {
            message,
            line: 1,
            column: 1,
        });
    }
    refuse_missing_values(&words)?;
    let mut parser = Parser::new(&dialect)
        .with_recursion_limit(SQL_RECURSION_MAX)
        .with_tokens_with_locations(tokens);
    let mut statements = parser
        .parse_statements()
        .map_err(|error| of_parser(text, &error))?;
    if statements.len() > 1 {
        return Err(at(
            statements[1].span(),
            "one statement at a time: post the others by themselves",
        ));
    }
    statements.pop().ok_or_else(|| TextError {
        message: "the text is empty: write SELECT … FROM …".to_owned(),
        line: 1,
        column: 1,
    })
}

/// Refuses a clause's keyword right after a sign that a value has to follow: the parser would take
/// the keyword for a name and stumble much later.
fn refuse_missing_values(words: &[&TokenWithSpan]) -> Checked<()> {
    for pair in words.windows(2) {
        let Token::Word(word) = &pair[1].token else {
            continue;
        };
        let is_clause = word.quote_style.is_none()
            && matches!(
                word.keyword,
                Keyword::FROM | Keyword::WHERE | Keyword::GROUP | Keyword::HAVING
            );
        let wants_value = matches!(
            pair[0].token,
            Token::Comma
                | Token::Plus
                | Token::Minus
                | Token::Div
                | Token::Mod
                | Token::StringConcat
                | Token::Eq
                | Token::Neq
                | Token::Lt
                | Token::LtEq
                | Token::Gt
                | Token::GtEq
        );
        if is_clause && wants_value {
            let (sign, word) = (&pair[0].token, &word.value);
            let message = format!("between '{sign}' and {word} a value is missing");
            return Err(at(pair[1].span, message));
        }
    }
    Ok(())
}

/// Words a parser's error and finds its place: the parser writes it at the end of its text.
fn of_parser(text: &str, error: &ParserError) -> TextError {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            let message = format!("brackets nest deeper than {SQL_RECURSION_MAX}: flatten them");
            return TextError {
                message,
                line: 1,
                column: 1,
            };
        }
    };
    let placed = message
        .rsplit_once(" at Line: ")
        .and_then(|(message, place)| {
            let (line, column) = place.split_once(", Column: ")?;
            Some((
                message,
                line.trim().parse().ok()?,
                column.trim().parse().ok()?,
            ))
        });
    let (message, line, column) = placed.unwrap_or_else(|| {
        let (line, column) = end_of(text);
        (message.as_str(), line, column)
    });
    let message = message
        .replacen("Expected: ", "expected ", 1)
        .replace("found: EOF", "found the end");
    let message = message.replacen("found: ", "found ", 1);
    TextError {
        message: format!("{message}{}", hint(&message)),
        line,
        column,
    }
}

/// The place after the text's last character that is not blank.
fn end_of(text: &str) -> (u64, u64) {
    let text = text.trim_end();
    let line = text.matches('\n').count() as u64 + 1;
    let last = text.rsplit('\n').next().unwrap_or("");
    (line, last.chars().count() as u64 + 1)
}

fn hint(message: &str) -> &'static str {
    if message.contains("expected an SQL statement") {
        "; a statement begins with SELECT or INSERT INTO"
    } else if message.contains("expected identifier") {
        "; write MQTT filters and Kafka topics as mqtt.\"a/+/b\" and kafka.\"topic\""
    } else if message.contains("expected an expression") {
        "; a value is missing before it"
    } else if message.contains("expected end of statement") {
        "; a comma, an operator or a keyword is missing before it, or it is one word too many"
    } else {
        ""
    }
}

fn insert_parts(insert: &Insert) -> Checked<(Option<Sink>, &Query)> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(at(insert.insert_token.0.span, SINK_USAGE));
    };
    let span = name.span();
    let simple = insert.columns.is_empty()
        && insert.assignments.is_empty()
        && insert.partitioned.is_none()
        && insert.after_columns.is_empty()
        && insert.on.is_none()
        && insert.returning.is_none()
        && insert.table_alias.is_none()
        && !insert.overwrite
        && !insert.ignore;
    if !simple {
        return Err(at(
            span,
            "INSERT INTO takes a topic and a SELECT, nothing else",
        ));
    }
    let Some(query) = insert.source.as_deref() else {
        return Err(at(
            span,
            "after INSERT INTO and its topic a SELECT has to follow",
        ));
    };
    Ok((Some(source::sink(name)?), query))
}

fn select_of(query: &Query) -> Checked<&Select> {
    let span = query.span();
    if let Some(with) = &query.with {
        return Err(at(with.span(), "WITH is not supported: write one SELECT"));
    }
    if let Some(order_by) = &query.order_by {
        return Err(at(
            order_by.span(),
            "ORDER BY is not supported: rows come in the order in which groups were first seen",
        ));
    }
    if query.limit_clause.is_some() || query.fetch.is_some() {
        return Err(at(span, "LIMIT is not supported: a stream has no end"));
    }
    let simple = query.locks.is_empty()
        && query.for_clause.is_none()
        && query.settings.is_none()
        && query.format_clause.is_none()
        && query.pipe_operators.is_empty();
    if !simple {
        return Err(at(
            span,
            "after the SELECT nothing may follow: no FOR, SETTINGS, FORMAT or |>",
        ));
    }
    match query.body.as_ref() {
        SetExpr::Select(select) => Ok(select),
        SetExpr::SetOperation { right, .. } => Err(at(
            right.span(),
            "UNION, EXCEPT and INTERSECT are not supported: add one statement per SELECT, all \
             with the same INSERT INTO",
        )),
        _ => Err(at(span, "a statement is one SELECT")),
    }
}

fn of_select(sink: Option<Sink>, select: &Select, binder: Binder) -> Checked<Plan> {
    refuse_clauses(select)?;
    if join::is_join(select) {
        return join::of_select(sink, select, binder);
    }
    let (source, window, alias) = source::source(select)?;
    let mut names = Names::new(alias, binder);
    let window = source::window(window, select, &mut names)?;
    names.has_window = window.is_some();
    let filter = match &select.selection {
        None => None,
        Some(condition) => {
            names.hidden = aggregates::new_names(select);
            Some(expressions::lower(condition, &mut names)?)
        }
    };
    names.hidden.clear();
    if window.is_none() {
        aggregates::refuse_without_window(select)?;
    }
    let (columns, stage) = match window {
        Some(window) if aggregates::is_aggregated(select) => {
            aggregates::windowed(select, window, &mut names)?
        }
        window => {
            let columns = columns(select, &mut |expr| expressions::lower(expr, &mut names))?;
            (columns, Stage::PerEvent { window })
        }
    };
    // `*` is the whole payload.
    let columns = star_to_payload(columns, &mut names, select)?;
    Ok(Plan {
        source,
        sink,
        fields: names.into_fields(),
        filter,
        stage,
        columns,
        calls: None,
    })
}

/// What one item of the select list asks for.
enum Item {
    All,
    Named(String, Expression),
}

fn columns(
    select: &Select,
    lower: &mut dyn FnMut(&sqlparser::ast::Expr) -> Checked<Expression>,
) -> Checked<Vec<Item>> {
    if select.projection.len() > COLUMNS_MAX {
        return Err(at(
            select.span(),
            format!("more than {COLUMNS_MAX} columns: select fewer"),
        ));
    }
    let mut columns = Vec::with_capacity(select.projection.len());
    for (index, item) in select.projection.iter().enumerate() {
        columns.push(match item {
            SelectItem::UnnamedExpr(expr) => {
                Item::Named(expressions::column_name(expr, index), lower(expr)?)
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                Item::Named(alias.value.clone(), lower(expr)?)
            }
            SelectItem::Wildcard(options) => {
                if options.opt_exclude.is_some()
                    || options.opt_except.is_some()
                    || options.opt_replace.is_some()
                    || options.opt_rename.is_some()
                    || options.opt_ilike.is_some()
                {
                    return Err(at(
                        item.span(),
                        "after * nothing may follow: name the columns",
                    ));
                }
                Item::All
            }
            _ => return Err(at(item.span(), "write the column as `expression AS name`")),
        });
    }
    let mut seen: Vec<&str> = Vec::new();
    for (item, column) in select.projection.iter().zip(&columns) {
        if let Item::Named(name, _) = column {
            if seen.contains(&name.as_str()) {
                let message = format!("two columns are called '{name}': name one with AS");
                return Err(at(item.span(), message));
            }
            seen.push(name);
        }
    }
    Ok(columns)
}

fn star_to_payload(items: Vec<Item>, names: &mut Names, select: &Select) -> Checked<Vec<Column>> {
    let mut columns = Vec::with_capacity(items.len());
    for item in items {
        columns.push(match item {
            Item::Named(name, expression) => Column::Named { name, expression },
            Item::All => Column::All {
                payload: names.field(Vec::new(), select.span())?,
            },
        });
    }
    Ok(columns)
}

fn refuse_clauses(select: &Select) -> Checked<()> {
    let span = select.select_token.0.span;
    if select.distinct.is_some() {
        return Err(at(
            span,
            "SELECT DISTINCT is not supported: GROUP BY the columns over a TUMBLE window",
        ));
    }
    if !select.named_window.is_empty() || select.qualify.is_some() {
        return Err(at(
            span,
            "WINDOW and QUALIFY are not supported: use TUMBLE in FROM",
        ));
    }
    let plain = select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.value_table_mode.is_none()
        && select.optimizer_hints.is_empty();
    if !plain {
        return Err(at(
            span,
            "a SELECT takes columns, FROM, WHERE, GROUP BY and HAVING; leave out the other clauses",
        ));
    }
    if let GroupByExpr::All(_) = &select.group_by {
        return Err(at(span, "GROUP BY ALL is not supported: name the keys"));
    }
    if let GroupByExpr::Expressions(_, modifiers) = &select.group_by
        && !modifiers.is_empty()
    {
        return Err(at(
            span,
            "GROUP BY takes keys only: no ROLLUP, CUBE or TOTALS",
        ));
    }
    Ok(())
}

const SINK_USAGE: &str = "write the target as mqtt.\"topic\" or kafka.\"topic\"";

const TOKEN_HINT: &str =
    "; texts stand in single quotes, names with signs in them in double quotes";
