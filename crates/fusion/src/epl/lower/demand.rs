//! What runs once over named windows and tables, on demand.

use super::expressions::Lower;
use super::names::{Fields, Names};
use super::select::{self, Parts, all_of};
use super::{Checked, Environment, inputs, patterns, tables};
use crate::epl::Catalog;
use crate::epl::ast::{Body, Expr, Select, Source as AstSource, Statement, Target};
use crate::epl::token::Place;
use crate::functions::user::Binder;
use crate::plan::{Assignment, MergeAction, MergeBranch, OnAction, Plan, Shape, Source};

/// Lowers the one statement of a text that is run once.
///
/// # Errors
/// It does not work on demand, or names what is not there; the error points at the place.
pub fn lower_once(statements: &[Statement], catalog: &Catalog, binder: Binder) -> Checked<Plan> {
    let [statement] = statements else {
        let place = statements
            .get(1)
            .map_or(Place::default(), |more| more.place);
        return Err(place.error("one query at a time: write select … from Window"));
    };
    let environment = Environment {
        catalog,
        binder,
        contexts: Vec::new(),
        schemas: Vec::new(),
    };
    match &statement.body {
        Body::Select(select) => once(select, &environment),
        Body::Delete(target, filter) => act(target, filter.as_ref(), &environment, |_| {
            Ok(OnAction::Delete)
        }),
        Body::Update(target, assignments, filter) => {
            act(target, filter.as_ref(), &environment, |names| {
                Ok(OnAction::Update(tables::assigned(assignments, names)?))
            })
        }
        Body::InsertValues(insert, values) => {
            let target = Target {
                name: insert.name.clone(),
                alias: None,
            };
            let place = insert.name.place;
            let columns = match insert.columns.as_slice() {
                [] => catalog
                    .kept(&insert.name.text)
                    .and_then(|kept| kept.columns.clone())
                    .unwrap_or_default(),
                named => named.iter().map(|column| column.text.clone()).collect(),
            };
            if columns.len() != values.len() {
                return Err(place.error(format!(
                    "{} values for {} columns: write insert into {} (column, …) values (…)",
                    values.len(),
                    columns.len(),
                    insert.name.text
                )));
            }
            // A find never matches, so that the row is inserted.
            act_on(&target, None, &environment, |names| {
                let mut assignments = Vec::with_capacity(values.len());
                let mut lower = Lower {
                    names,
                    aggregates: None,
                    is_row_pattern: false,
                    depth: 0,
                };
                for (column, value) in columns.iter().zip(values) {
                    let value = lower.constant(value, "a value that is inserted")?;
                    assignments.push(Assignment {
                        column: column.clone(),
                        value: crate::expression::Expression::Literal(value),
                    });
                }
                let branch = MergeBranch {
                    is_matched: false,
                    condition: None,
                    actions: vec![MergeAction::Insert(assignments)],
                };
                Ok((OnAction::Merge(vec![branch]), Some(never())))
            })
        }
        _ => Err(statement.place.error(
            "this is a statement, not a query: add it (thalweg statements add), or write select, \
             delete, update or insert … values",
        )),
    }
}

/// A select of what named windows and tables hold.
fn once(select: &Select, environment: &Environment<'_>) -> Checked<Plan> {
    let place = select.place;
    if select.insert_into.is_some() || select.output.is_some() {
        return Err(place.error("a query answers at once: leave out insert into and output"));
    }
    if select.sources.is_empty() {
        return Err(place.error("a query reads a named window or table: write from Name"));
    }
    for source in &select.sources {
        let AstSource::Stream(stream) = &source.source else {
            return Err(place.error("a query reads named windows and tables, no patterns"));
        };
        if environment.catalog().kept(&stream.name.text).is_none() {
            return Err(stream.name.place.error(format!(
                "there is no named window or table {}: a query reads what create window and \
                 create table keep",
                stream.name.text
            )));
        }
        if let Some(view) = source.views.first() {
            return Err(view
                .place
                .error("a query reads what is held now: leave out the window"));
        }
    }
    let mut names = Names::new(Fields::Slots, environment.binder());
    let parts = inputs::events(select, &mut names, environment)?;
    select::query(select, parts, names, environment)
}

fn act(
    target: &Target,
    filter: Option<&Expr>,
    environment: &Environment<'_>,
    action: impl FnOnce(&mut Names) -> Checked<OnAction>,
) -> Checked<Plan> {
    act_on(target, filter, environment, |names| {
        Ok((action(names)?, None))
    })
}

/// Something that is done to a window or table that nothing triggers.
fn act_on(
    target: &Target,
    filter: Option<&Expr>,
    environment: &Environment<'_>,
    action: impl FnOnce(&mut Names) -> Checked<(OnAction, Option<crate::expression::Expression>)>,
) -> Checked<Plan> {
    let Some(kept) = environment.catalog().kept(&target.name.text) else {
        return Err(target.name.place.error(format!(
            "there is no named window or table {}",
            target.name.text
        )));
    };
    let mut names = Names::new(Fields::Slots, environment.binder());
    names.add(target.alias.as_ref().unwrap_or(&target.name), 1)?;
    names.set_columns(1, kept.columns.clone());
    names.set_own(Some(1));
    let (action, condition) = action(&mut names)?;
    let nobody = patterns::plain_input(Source::Stream(String::new()));
    let window = patterns::plain_input(environment.source(&target.name, false)?);
    let parts = Parts {
        inputs: vec![nobody, window],
        shape: Shape::On(action),
        context: None,
    };
    let rest = Select {
        filter: filter.cloned(),
        ..Select::empty(target.name.place)
    };
    let mut plan = select::query(&rest, parts, names, environment)?;
    let conditions = plan.filter.take().into_iter().chain(condition);
    plan.filter = all_of(conditions.collect());
    Ok(plan)
}

/// What is never true.
fn never() -> crate::expression::Expression {
    crate::expression::Expression::Literal(crate::value::OwnedValue::Bool(false))
}
