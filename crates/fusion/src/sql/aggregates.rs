//! GROUP BY, aggregates and HAVING.

use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select,
    SelectItem, Spanned, Value as SqlValue, ValueWithSpan,
};
use sqlparser::tokenizer::Span;

use super::names::Names;
use super::source::key_window;
use super::{Checked, Item, at, columns, expressions};
use crate::expression::Expression;
use crate::limits::COLUMNS_MAX;
use crate::plan::{AGGREGATE_FUNCTIONS, Aggregate, AggregateFunction, Stage, Tumbling};

/// The keys and aggregates of a grouped statement, collected while its columns are lowered.
pub struct Grouping<'q> {
    keys: Vec<Expression>,
    aggregates: Vec<Aggregate>,
    aliases: Vec<(&'q str, &'q Expr)>,
}

/// The aggregate function of that name, in lower case.
pub fn aggregate_function(name: &str) -> Option<AggregateFunction> {
    AGGREGATE_FUNCTIONS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, function)| *function)
}

/// True when rows stand for groups.
pub fn is_aggregated(select: &Select) -> bool {
    !keys_of(select).is_empty() || select.having.is_some() || first_aggregate(select).is_some()
}

/// The place of what asks for groups first.
pub fn grouped_at(select: &Select) -> Option<Span> {
    match (
        first_aggregate(select),
        keys_of(select).first(),
        &select.having,
    ) {
        (Some(function), _, _) => Some(function.name.span()),
        (None, Some(key), _) => Some(key.span()),
        (None, None, Some(having)) => Some(having.span()),
        (None, None, None) => None,
    }
}

/// Refuses what only a window gives a meaning to.
pub fn refuse_without_window(select: &Select) -> Checked<()> {
    let Some(span) = grouped_at(select) else {
        return Ok(());
    };
    Err(at(
        span,
        "aggregates and GROUP BY need a window, since a stream has no end: write FROM \
         TUMBLE(source, INTERVAL '10 seconds')",
    ))
}

/// The first aggregate in an expression.
pub fn find_aggregate(expr: &Expr) -> Option<&Function> {
    if let Expr::Function(function) = expr
        && aggregate_function(&function.name.to_string().to_ascii_lowercase()).is_some()
    {
        return Some(function);
    }
    expressions::children(expr)
        .into_iter()
        .find_map(find_aggregate)
}

/// The names that the select list gives to something else than a field of that name.
pub fn new_names(select: &Select) -> Vec<String> {
    let aliases = aliases_of(select).into_iter();
    aliases
        .filter(|(name, expr)| !mentions(expr, name))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Lowers a grouped SELECT.
pub fn windowed(
    select: &Select,
    window: Tumbling,
    names: &mut Names,
) -> Checked<(Vec<Item>, Stage)> {
    let aliases = aliases_of(select);
    let mut grouping = Grouping {
        keys: Vec::new(),
        aggregates: Vec::new(),
        aliases: Vec::new(),
    };
    for key in keys_of(select) {
        if key_window(key)?.is_some() {
            continue;
        }
        let key = match key {
            Expr::Identifier(ident) => aliases
                .iter()
                .find(|(name, aliased)| *name == ident.value && find_aggregate(aliased).is_none())
                .map_or(key, |(_, aliased)| *aliased),
            _ => key,
        };
        if let Expr::Value(ValueWithSpan {
            value: SqlValue::Number(..),
            ..
        }) = key
        {
            return Err(at(
                key.span(),
                "GROUP BY takes names and expressions: no column numbers",
            ));
        }
        let lowered = expressions::lower(key, names)?;
        // Groups never span windows: the window's bounds add nothing to the key.
        let is_bound = matches!(lowered, Expression::WindowStart | Expression::WindowEnd);
        if !is_bound && !grouping.keys.contains(&lowered) {
            grouping.keys.push(lowered);
        }
    }
    if let Some(item) = select
        .projection
        .iter()
        .find(|item| matches!(item, SelectItem::Wildcard(_)))
    {
        return Err(at(
            item.span(),
            "* has no place beside aggregates: name the columns",
        ));
    }
    let columns = columns(select, &mut |expr| {
        expressions::lower_grouped(expr, names, &mut grouping)
    })?;
    let having = match &select.having {
        None => None,
        Some(condition) => {
            grouping.aliases = aliases;
            Some(expressions::lower_grouped(condition, names, &mut grouping)?)
        }
    };
    let Grouping {
        keys, aggregates, ..
    } = grouping;
    Ok((
        columns,
        Stage::Windowed {
            window,
            group_by: keys,
            aggregates,
            having,
        },
    ))
}

impl<'q> Grouping<'q> {
    /// The place of a key.
    pub fn key(&self, expression: &Expression) -> Option<u16> {
        self.keys
            .iter()
            .position(|key| key == expression)
            .map(|place| place as u16)
    }

    /// What the select list calls `name`, where HAVING may use it.
    pub fn alias(&self, name: &str) -> Option<&'q Expr> {
        self.aliases
            .iter()
            .find(|(alias, _)| *alias == name)
            .map(|(_, expr)| *expr)
    }

    /// The place of an aggregate call, which is added when it is new.
    pub fn aggregate(
        &mut self,
        kind: AggregateFunction,
        function: &Function,
        names: &mut Names,
    ) -> Checked<Expression> {
        let span = function.name.span();
        let name = function.name.to_string().to_ascii_lowercase();
        if function.over.is_some()
            || function.null_treatment.is_some()
            || !function.within_group.is_empty()
        {
            return Err(at(
                span,
                format!("{name} takes no OVER, WITHIN GROUP or IGNORE NULLS"),
            ));
        }
        let argument = match (kind, &function.args) {
            (AggregateFunction::Count, FunctionArguments::List(list))
                if list.duplicate_treatment.is_none()
                    && list.clauses.is_empty()
                    && matches!(
                        list.args.as_slice(),
                        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]
                    ) =>
            {
                None
            }
            _ => match expressions::arguments(function)?.as_slice() {
                [argument] => Some(expressions::lower(argument, names)?),
                _ => {
                    return Err(at(
                        span,
                        format!("{name} takes one value, as in {name}(field)"),
                    ));
                }
            },
        };
        let filter = match &function.filter {
            None => None,
            Some(condition) => Some(expressions::lower(condition, names)?),
        };
        let aggregate = Aggregate {
            function: kind,
            argument,
            parameter: None,
            is_distinct: false,
            filter,
        };
        if let Some(place) = self.aggregates.iter().position(|known| *known == aggregate) {
            return Ok(Expression::Aggregate(place as u16));
        }
        if self.aggregates.len() >= COLUMNS_MAX {
            return Err(at(
                span,
                format!("more than {COLUMNS_MAX} aggregates: use fewer"),
            ));
        }
        self.aggregates.push(aggregate);
        Ok(Expression::Aggregate((self.aggregates.len() - 1) as u16))
    }
}

fn mentions(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::Identifier(ident) => ident.value == name,
        Expr::CompoundIdentifier(idents) => idents.iter().any(|ident| ident.value == name),
        _ => expressions::children(expr)
            .into_iter()
            .any(|child| mentions(child, name)),
    }
}

fn keys_of(select: &Select) -> &[Expr] {
    match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys,
        GroupByExpr::All(_) => &[],
    }
}

fn first_aggregate(select: &Select) -> Option<&Function> {
    let in_columns = select.projection.iter().find_map(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            find_aggregate(expr)
        }
        _ => None,
    });
    in_columns.or_else(|| select.having.as_ref().and_then(find_aggregate))
}

fn aliases_of(select: &Select) -> Vec<(&str, &Expr)> {
    let items = select.projection.iter();
    items
        .filter_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } => Some((alias.value.as_str(), expr)),
            _ => None,
        })
        .collect()
}
