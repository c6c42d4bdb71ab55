//! Named windows and tables: `create`, and what `on` does to them.

use super::expressions::Lower;
use super::names::{Fields, Names};
use super::select::{self, Parts};
use super::{Checked, Environment, inputs, patterns, views};
use crate::epl::ast::{
    self, Action, CreateTable, CreateWindow, Expr, Ident, Item, On, Select, Target,
};
use crate::epl::text::text_of;
use crate::epl::token::Place;
use crate::expression::Pseudo;
use crate::limits::FIELDS_MAX;
use crate::plan::{
    Assignment, Create, MergeAction, MergeBranch, OnAction, Plan, Shape, Source, Stage, TableColumn,
};

/// Lowers `create window`.
///
/// # Errors
/// A window is not supported.
pub fn create_window(create: &CreateWindow, environment: &Environment<'_>) -> Checked<Plan> {
    let place = create.name.place;
    if create.insert.is_some() {
        return Err(place.error(
            "a window begins empty: insert into it what another one holds (on E insert into …)",
        ));
    }
    if create.views.is_empty() {
        return Err(place
            .error("a named window says what it keeps: write create window W#time(10 sec) as …"));
    }
    let columns = columns_of(create, environment);
    check_columns(columns.iter().flatten(), place)?;
    let mut names = Names::new(Fields::Payload, environment.binder());
    names.add(&create.name, 0)?;
    names.set_columns(0, columns.clone());
    names.set_own(Some(0));
    // What a row's values are: its columns, or the whole of it first.
    match &columns {
        Some(columns) => {
            for column in columns {
                names.resolve(&[ast::Step::Name(column.clone())], place)?;
            }
        }
        None => {
            names.whole(0, place)?;
        }
    }
    let mut lower = Lower {
        names: &mut names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    let views = views::views(&create.views, &mut lower)?;
    let name = create.name.text.clone();
    let (fields, _) = names.into_parts();
    Ok(created(
        &name.clone(),
        fields,
        Create::Window {
            name,
            columns,
            views,
            is_union: create.is_union,
        },
    ))
}

/// Refuses two columns of one name, and one that would stand for the whole row.
fn check_columns<'c>(columns: impl Iterator<Item = &'c String>, place: Place) -> Checked<()> {
    let mut known: Vec<&String> = Vec::new();
    for column in columns {
        if known.contains(&column) {
            return Err(place.error(format!("two columns are called {column}: name one with as")));
        }
        if column == "payload" || Pseudo::named(column).is_some() {
            return Err(place.error(format!(
                "a column {column} would stand for what its source knows: choose another name"
            )));
        }
        known.push(column);
    }
    match known.len() > FIELDS_MAX {
        true => Err(place.error(format!("more than {FIELDS_MAX} columns: keep fewer"))),
        false => Ok(()),
    }
}

/// The columns of a named window, where they are said.
fn columns_of(create: &CreateWindow, environment: &Environment<'_>) -> Option<Vec<String>> {
    match &create.shape {
        ast::Shape::Like(name) => environment.columns(&name.text),
        ast::Shape::Columns(columns) => {
            let names = columns.iter().map(|column| column.name.text.clone());
            Some(names.collect())
        }
        ast::Shape::Select(items, like) => {
            let mut columns = Vec::new();
            for item in items {
                match item {
                    Item::All(_) | Item::AllOf(..) => {
                        columns.extend(environment.columns(&like.text)?);
                    }
                    Item::Value(_, Some(name)) => columns.push(name.text.clone()),
                    Item::Value(value, None) => columns.push(text_of(value)),
                }
            }
            Some(columns)
        }
    }
}

/// Lowers `create table`.
///
/// # Errors
/// A column is not supported.
pub fn create_table(create: &CreateTable) -> Checked<Plan> {
    let mut columns = Vec::with_capacity(create.columns.len());
    let mut fields = Vec::with_capacity(create.columns.len());
    for column in &create.columns {
        if column.aggregate.is_some() {
            return Err(column.name.place.error(
                "a table keeps values, not aggregates: write them by on … merge, update set n = \
                 n + 1",
            ));
        }
        fields.push(crate::json::FieldPath(vec![column.name.text.clone()]));
        columns.push(TableColumn {
            name: column.name.text.clone(),
            is_key: column.is_key,
        });
    }
    if columns.is_empty() {
        return Err(create
            .name
            .place
            .error("a table has columns: write (k string primary key, …)"));
    }
    check_columns(columns.iter().map(|column| &column.name), create.name.place)?;
    let name = create.name.text.clone();
    Ok(created(
        &name.clone(),
        fields,
        Create::Table { name, columns },
    ))
}

fn created(name: &str, fields: Vec<crate::json::FieldPath>, create: Create) -> Plan {
    Plan {
        source: Source::Stream(name.to_owned()),
        sink: None,
        fields,
        filter: None,
        stage: Stage::Create(Box::new(create)),
        columns: Vec::new(),
        calls: None,
    }
}

/// Lowers `on …`, in a context perhaps.
///
/// # Errors
/// The trigger or the action is not supported.
pub fn on(on: &On, context: Option<&Ident>, environment: &Environment<'_>) -> Checked<Plan> {
    if let Some(context) = context {
        return Err(context
            .place
            .error("on has no context: the window it works on has one state"));
    }
    match &on.action {
        Action::Select { select, and_delete } => {
            let Some(from) = select.sources.first() else {
                return Err(select
                    .place
                    .error("on … select reads a window: write from Name"));
            };
            let ast::Source::Stream(stream) = &from.source else {
                return Err(select
                    .place
                    .error("on … select reads one named window or table"));
            };
            let target = Target {
                name: stream.name.clone(),
                alias: from.alias.clone(),
            };
            let action = OnAction::Select {
                delete: *and_delete,
            };
            act(on, &target, select, action, environment)
        }
        Action::Insert(selects) => insert(on, selects, environment),
        Action::Delete(target, filter) => act(
            on,
            target,
            &rest(target, filter),
            OnAction::Delete,
            environment,
        ),
        Action::Update(target, assignments, filter) => {
            let mut names = names_of(on, target, environment)?;
            let assignments = assigned(assignments, &mut names)?;
            let select = rest(target, filter);
            finish(
                on,
                target,
                &select,
                OnAction::Update(assignments),
                names,
                environment,
            )
        }
        Action::Merge(target, filter, branches) => {
            let mut names = names_of(on, target, environment)?;
            let mut lowered = Vec::with_capacity(branches.len());
            for branch in branches {
                lowered.push(merge_branch(branch, target, &mut names)?);
            }
            let select = rest(target, filter);
            finish(
                on,
                target,
                &select,
                OnAction::Merge(lowered),
                names,
                environment,
            )
        }
    }
}

/// `on E insert into X select …` without a window: a select from the trigger itself.
fn insert(on: &On, selects: &[Select], environment: &Environment<'_>) -> Checked<Plan> {
    let [select] = selects else {
        let place = selects
            .get(1)
            .map_or(Place::default(), |select| select.place);
        return Err(place.error("one insert per statement: add the others as their own"));
    };
    let mut select = select.clone();
    select.sources = vec![on.trigger.clone()];
    select::select(&select, None, environment)
}

fn act(
    on: &On,
    target: &Target,
    select: &Select,
    action: OnAction,
    environment: &Environment<'_>,
) -> Checked<Plan> {
    let names = names_of(on, target, environment)?;
    finish(on, target, select, action, names, environment)
}

fn finish(
    on: &On,
    target: &Target,
    select: &Select,
    action: OnAction,
    mut names: Names,
    environment: &Environment<'_>,
) -> Checked<Plan> {
    names.set_own(None);
    let trigger = inputs::input(&on.trigger, 0, &mut names, environment)?;
    if let Some(view) = on.trigger.views.first() {
        return Err(view.place.error("what triggers an on has no window"));
    }
    names.set_own(Some(1));
    let window = patterns::plain_input(environment.source(&target.name, false)?);
    let parts = Parts {
        inputs: vec![trigger, window],
        shape: Shape::On(action),
        context: None,
    };
    select::query(select, parts, names, environment)
}

/// The trigger is source 0, the window or table source 1; names without an alias are the window's.
fn names_of(on: &On, target: &Target, environment: &Environment<'_>) -> Checked<Names> {
    let mut names = Names::new(Fields::Slots, environment.binder());
    names.add(&inputs::name_of(&on.trigger)?, 0)?;
    names.set_columns(0, inputs::columns(&on.trigger, environment));
    names.add(target.alias.as_ref().unwrap_or(&target.name), 1)?;
    let kept = environment.catalog().kept(&target.name.text);
    names.set_columns(1, kept.and_then(|kept| kept.columns.clone()));
    names.set_own(Some(1));
    Ok(names)
}

/// Assignments of an update.
///
/// # Errors
/// A value is not supported.
pub fn assigned(assignments: &[ast::Assignment], names: &mut Names) -> Checked<Vec<Assignment>> {
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    assignments
        .iter()
        .map(|assignment| {
            let value = lower.expr(&assignment.value)?;
            Ok(Assignment {
                column: assignment.column.text.clone(),
                value,
            })
        })
        .collect()
}

fn merge_branch(branch: &ast::Branch, target: &Target, names: &mut Names) -> Checked<MergeBranch> {
    let place = target.name.place;
    let mut filters = Vec::new();
    let mut actions = Vec::with_capacity(branch.actions.len());
    for action in &branch.actions {
        let (action, filter) = merge_action(action, names, place)?;
        filters.push(filter);
        actions.push(action);
    }
    if branch.actions.len() > 1 && filters.iter().any(Option::is_some) {
        return Err(place.error(
            "of several then only when matched and … says when: write a when for each condition",
        ));
    }
    let conditions = branch.condition.iter().chain(filters.into_iter().flatten());
    // Of what matched nothing there is only the trigger.
    names.set_own(Some(u16::from(branch.matched)));
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    let conditions: Checked<Vec<_>> = conditions.map(|condition| lower.expr(condition)).collect();
    names.set_own(Some(1));
    Ok(MergeBranch {
        is_matched: branch.matched,
        condition: select::all_of(conditions?),
        actions,
    })
}

/// What a branch does, and its own condition.
fn merge_action<'a>(
    action: &'a ast::MergeAction,
    names: &mut Names,
    place: Place,
) -> Checked<(MergeAction, Option<&'a Expr>)> {
    match action {
        ast::MergeAction::Delete(filter) => Ok((MergeAction::Delete, filter.as_ref())),
        ast::MergeAction::Update(assignments, filter) => Ok((
            MergeAction::Update(assigned(assignments, names)?),
            filter.as_ref(),
        )),
        ast::MergeAction::Insert {
            into: Some(into), ..
        } => Err(into.place.error(
            "a merge inserts into its own table: write a second statement, on … insert into …",
        )),
        ast::MergeAction::Insert {
            into: None,
            columns,
            items,
            filter,
        } => {
            names.set_own(Some(0));
            let inserted = inserted(columns, items, names, place);
            names.set_own(Some(1));
            Ok((MergeAction::Insert(inserted?), filter.as_ref()))
        }
    }
}

fn inserted(
    columns: &[Ident],
    items: &[Item],
    names: &mut Names,
    place: Place,
) -> Checked<Vec<Assignment>> {
    if !columns.is_empty() && columns.len() != items.len() {
        return Err(place.error("the columns and the values of the insert differ in number"));
    }
    let mut lower = Lower {
        names,
        aggregates: None,
        is_row_pattern: false,
        depth: 0,
    };
    let mut assignments = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let Item::Value(value, alias) = item else {
            return Err(place.error("an insert names its columns: write select k, v"));
        };
        let column = columns
            .get(index)
            .or(alias.as_ref())
            .map(|name| name.text.clone());
        let value_text = text_of(value);
        let last = value_text.rsplit('.').next().unwrap_or_default();
        assignments.push(Assignment {
            column: column.unwrap_or_else(|| last.to_owned()),
            value: lower.expr(value)?,
        });
    }
    Ok(assignments)
}

/// A select with nothing but a WHERE.
fn rest(target: &Target, filter: &Option<Expr>) -> Select {
    Select {
        filter: filter.clone(),
        ..Select::empty(target.name.place)
    }
}
