//! `on trigger select | delete | update | merge | insert`.

use super::{Parsed, Parser};
use crate::epl::ast::{
    Action, Assignment, Branch, InsertInto, Join, MergeAction, On, Select, Target,
};
use crate::epl::token::Token;

impl Parser {
    /// What follows ON.
    pub(super) fn on(&mut self) -> Parsed<On> {
        let trigger = self.source(Join::Inner)?;
        let action = if self.word("delete") {
            self.expect_word("from")?;
            let target = self.target()?;
            Action::Delete(target, self.filter()?)
        } else if self.word("update") {
            let target = self.target()?;
            self.expect_word("set")?;
            let assignments = self.assignments()?;
            Action::Update(target, assignments, self.filter()?)
        } else if self.word("merge") {
            self.word("into");
            self.merge()?
        } else if self.is_word("select") {
            self.on_select(None)?
        } else if self.is_word("insert") {
            let into = self.insert_into()?;
            self.on_select(Some(into))?
        } else {
            let hint = self.did_you_mean(&["select", "delete", "update", "merge", "insert"]);
            return Err(self.unexpected(&format!(
                "after on and its source, select, delete, update, merge or insert follows{hint}"
            )));
        };
        Ok(On { trigger, action })
    }

    fn on_select(&mut self, into: Option<InsertInto>) -> Parsed<Action> {
        let and_delete = self.is_word_at(1, "and") && self.is_word_at(2, "delete");
        if and_delete {
            // The select list follows right after: SELECT AND DELETE a, b.
            self.tokens.drain(self.at + 1..self.at + 3);
        }
        let mut select = self.select()?;
        select.insert_into = into;
        if !select.sources.is_empty() || select.insert_into.is_none() {
            if select.sources.len() != 1 {
                return Err(select
                    .place
                    .error("on … select reads one named window or table: write from Name"));
            }
            return Ok(Action::Select {
                select: Box::new(select),
                and_delete,
            });
        }
        let mut all: Vec<Select> = vec![select];
        while self.is_word("insert") {
            let into = self.insert_into()?;
            let mut select = self.select()?;
            select.insert_into = Some(into);
            all.push(select);
        }
        if self.word("output") {
            return Err(self.unexpected("output first and output all are not supported here"));
        }
        Ok(Action::Insert(all))
    }

    /// A named window or table and its name in the statement.
    pub(super) fn target(&mut self) -> Parsed<Target> {
        let name = self.name("the name of a window or table")?;
        Ok(Target {
            name,
            alias: self.alias()?,
        })
    }

    /// `a = 1, b = 2`.
    pub(super) fn assignments(&mut self) -> Parsed<Vec<Assignment>> {
        self.items(|parser| {
            let mut column = parser.name("a column's name")?;
            if parser.sign(".") {
                column = parser.name("a column's name")?;
            }
            parser.expect_sign("=")?;
            Ok(Assignment {
                column,
                value: parser.expr()?,
            })
        })
    }

    fn merge(&mut self) -> Parsed<Action> {
        let target = self.target()?;
        let filter = self.filter()?;
        let mut branches = Vec::new();
        if self.is_word("insert") {
            let action = self.merge_insert()?;
            let actions = vec![action];
            branches.push(Branch {
                matched: false,
                condition: None,
                actions,
            });
            return Ok(Action::Merge(target, filter, branches));
        }
        while self.word("when") {
            let matched = !self.word("not");
            self.expect_word("matched")?;
            let condition = match self.word("and") {
                true => Some(self.expr()?),
                false => None,
            };
            let mut actions = Vec::new();
            while self.word("then") {
                actions.push(self.merge_action(matched)?);
            }
            if actions.is_empty() {
                return Err(self.unexpected("then has to come before it"));
            }
            branches.push(Branch {
                matched,
                condition,
                actions,
            });
        }
        if branches.is_empty() {
            return Err(
                self.unexpected("merge wants when matched then … or when not matched then …")
            );
        }
        Ok(Action::Merge(target, filter, branches))
    }

    fn merge_action(&mut self, matched: bool) -> Parsed<MergeAction> {
        if self.is_word("insert") {
            return self.merge_insert();
        }
        if !matched {
            return Err(self.unexpected("when nothing matched there is only insert"));
        }
        if self.word("delete") {
            return Ok(MergeAction::Delete(self.filter()?));
        }
        self.expect_word("update")?;
        self.expect_word("set")?;
        let assignments = self.assignments()?;
        Ok(MergeAction::Update(assignments, self.filter()?))
    }

    fn merge_insert(&mut self) -> Parsed<MergeAction> {
        self.expect_word("insert")?;
        let into = match self.word("into") {
            true => Some(self.name("the stream's name")?),
            false => None,
        };
        let columns = match self.is_sign("(") && !matches!(self.peek_at(1), Token::Sign("(")) {
            true => {
                self.skip();
                self.list(")", |parser| parser.name("a column's name"))?
            }
            false => Vec::new(),
        };
        self.expect_word("select")?;
        let items = self.items(Parser::item)?;
        Ok(MergeAction::Insert {
            into,
            columns,
            items,
            filter: self.filter()?,
        })
    }
}
