//! Selects inside expressions.

use super::expressions::Lower;
use super::select::all_of;
use super::{Checked, inputs, source_of, views};
use crate::epl::ast::{self, Expr, Item, Rows, Select};
use crate::epl::token::Place;
use crate::expression::Expression;
use crate::limits::SUBQUERIES_MAX;
use crate::plan::{Input, Slot, Source, Subquery, SubqueryKind};

/// What a subquery stands in.
pub enum Asked<'e> {
    /// `(select …)`: a value.
    Value,
    /// `exists (select …)`.
    Exists,
    /// `x in (select …)`.
    In(&'e Expr),
}

impl Lower<'_> {
    /// A select inside an expression.
    ///
    /// # Errors
    /// It has no place here, or a clause that is not supported.
    pub(super) fn subquery(
        &mut self,
        select: &Select,
        asked: &Asked<'_>,
        place: Place,
    ) -> Checked<Expression> {
        let source = self.subquery_source(select, place)?;
        let ast::Source::Stream(stream) = &source.source else {
            return Err(place.error("a subquery reads one window or table, no pattern"));
        };
        let Some(catalog) = self.names.catalog().cloned() else {
            return Err(place.error(
                "a subquery has no place here: write it in the select list, in where, in having, or \
                 in the brackets of an only source",
            ));
        };
        let reads = source_of(&catalog, &stream.name, stream.is_quoted)?;
        let kept = match &reads {
            Source::Stream(name) => catalog.kept(name),
            _ => None,
        };
        if kept.is_none() && source.views.is_empty() {
            return Err(stream.name.place.error(format!(
                "{} keeps nothing that a subquery could look through: give it a window, such as \
                 #lastevent or #keepall, or create a named window of that name first",
                stream.name.text
            )));
        }
        let alias = self.names.next_alias();
        let outside = self.names.enter(inputs::name_of(source)?, alias);
        self.names
            .set_columns(alias, kept.and_then(|kept| kept.columns.clone()));
        let lowered = self.inside(select, asked, source, stream);
        let slots = self.names.leave(outside);
        let Inside {
            input_filter,
            views,
            filter,
            aggregates,
            kind,
        } = lowered?;
        let subquery = Subquery {
            input: 0,
            alias,
            slots,
            filter,
            aggregates,
            kind,
        };
        let input = Input {
            asks: false,
            source: reads,
            filter: input_filter,
            views,
            is_union: source.is_union,
            is_unidirectional: false,
        };
        let number = self.names.add_subquery(subquery, input);
        self.names.slot(Slot::Subquery(number as u16), place)
    }

    fn subquery_source<'s>(&self, select: &'s Select, place: Place) -> Checked<&'s ast::From> {
        if self.names.is_inside() {
            return Err(place.error(
                "a subquery within a subquery is not supported: insert what the inner one gives \
                 into a named window",
            ));
        }
        if self.names.subqueries() >= SUBQUERIES_MAX {
            return Err(place.error(format!(
                "more than {SUBQUERIES_MAX} subqueries in one statement: use fewer"
            )));
        }
        let [source] = select.sources.as_slice() else {
            return Err(place.error("a subquery reads one window or table: write from Name"));
        };
        let has_more = !select.group_by.is_empty()
            || select.having.is_some()
            || select.output.is_some()
            || !select.order_by.is_empty()
            || select.limit.is_some()
            || select.row_pattern.is_some()
            || select.insert_into.is_some()
            || select.rows != Rows::New;
        if has_more {
            return Err(place.error(
                "a subquery has columns, a source and where alone: leave out group by, having, \
                 order by, output and limit",
            ));
        }
        Ok(source)
    }

    /// What stands within the brackets; names stand for its source.
    fn inside(
        &mut self,
        select: &Select,
        asked: &Asked<'_>,
        source: &ast::From,
        stream: &ast::Stream,
    ) -> Checked<Inside> {
        let outer_aggregates = self.aggregates.take();
        let lowered = (|| -> Checked<Inside> {
            let input_filter = all_of(self.all(&stream.filters)?);
            let views = views::views(&source.views, self)?;
            let filter = match &select.filter {
                None => None,
                Some(filter) => Some(self.expr(filter)?),
            };
            let mut aggregates = Vec::new();
            let kind = match asked {
                Asked::Exists => SubqueryKind::Exists,
                Asked::Value => {
                    let mut own = Lower {
                        names: &mut *self.names,
                        aggregates: Some(&mut aggregates),
                        is_row_pattern: false,
                        depth: self.depth,
                    };
                    SubqueryKind::Value(own.only_column(select)?)
                }
                Asked::In(value) => {
                    let choice = self.only_column(select)?;
                    let value = self.of_outside(value)?;
                    SubqueryKind::In { value, choice }
                }
            };
            Ok(Inside {
                input_filter,
                views,
                filter,
                aggregates,
                kind,
            })
        })();
        self.aggregates = outer_aggregates;
        lowered
    }

    fn only_column(&mut self, select: &Select) -> Checked<Expression> {
        match select.items.as_slice() {
            [Item::Value(value, _)] => self.expr(value),
            [Item::All(place)] => {
                let own = self.names.own().unwrap_or_default();
                self.names.whole(own, *place)
            }
            _ => Err(select
                .place
                .error("a subquery gives one value: select one column")),
        }
    }

    /// An expression that belongs to the statement around.
    fn of_outside(&mut self, value: &Expr) -> Checked<Expression> {
        let outer = self.names.outer();
        let own = self.names.set_own(outer);
        let lowered = self.expr(value);
        self.names.set_own(own);
        lowered
    }
}

struct Inside {
    input_filter: Option<Expression>,
    views: Vec<crate::plan::View>,
    filter: Option<Expression>,
    aggregates: Vec<crate::plan::Aggregate>,
    kind: SubqueryKind,
}
