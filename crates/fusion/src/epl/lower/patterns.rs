//! Patterns of events and of rows.

use std::time::Duration;

use super::expressions::Lower;
use super::names::Names;
use super::select::{Parts, all_of};
use super::{Checked, Environment, inputs, output};
use crate::epl::ast::{self, Ident, Select, Stream};
use crate::epl::token::Place;
use crate::limits::PATTERN_NODES_MAX;
use crate::plan::{
    Input, Pattern, PatternNode, Recognize, RecognizeInterval, RowPattern, Shape, Source,
};

/// Lowers the pattern that is a select's source.
///
/// # Errors
/// A part is not supported.
pub fn source(
    select: &Select,
    pattern: &ast::Pattern,
    place: Place,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Parts> {
    if select.sources.len() > 1 {
        return Err(place.error(
            "a pattern is the only source of its statement: name its matches with insert into, \
             and join those",
        ));
    }
    if let Some(view) = select
        .sources
        .first()
        .and_then(|source| source.views.first())
    {
        return Err(view.place.error(
            "a pattern has no windows: name its matches with insert into, and put the window there",
        ));
    }
    let mut reader = Reader {
        names,
        environment,
        inputs: Vec::new(),
        tags: 0,
        nodes: 0,
        place,
    };
    let root = reader.node(pattern)?;
    let Reader {
        mut inputs, tags, ..
    } = reader;
    if inputs.is_empty() {
        // A pattern of time alone: a stream that no statement can name.
        inputs.push(plain_input(Source::Stream(TIME.to_owned())));
    }
    let shape = Shape::Pattern(Pattern {
        root,
        tags,
        discard_overlapping: false,
    });
    Ok(Parts {
        inputs,
        shape,
        context: None,
    })
}

struct Reader<'r, 'e> {
    names: &'r mut Names,
    environment: &'r Environment<'e>,
    inputs: Vec<Input>,
    tags: u16,
    nodes: usize,
    place: Place,
}

impl Reader<'_, '_> {
    fn node(&mut self, pattern: &ast::Pattern) -> Checked<PatternNode> {
        self.nodes += 1;
        if self.nodes > PATTERN_NODES_MAX {
            return Err(self.place.error(format!(
                "the pattern has more than {PATTERN_NODES_MAX} parts: split it with insert into"
            )));
        }
        Ok(match pattern {
            ast::Pattern::Filter(tag, stream) => self.event(tag.as_ref(), stream)?,
            ast::Pattern::Every(inner) => PatternNode::Every(self.boxed(inner)?),
            ast::Pattern::EveryDistinct(keys, inner) => {
                let node = self.boxed(inner)?;
                let mut keys = keys.as_slice();
                let mut expires = None;
                if let [before @ .., last] = keys
                    && matches!(last.kind, ast::ExprKind::Period(_))
                {
                    expires = Some(self.length(last)?);
                    keys = before;
                }
                let keys = self.lower().all(keys)?;
                PatternNode::EveryDistinct {
                    node,
                    keys,
                    expires,
                }
            }
            ast::Pattern::Not(inner) => PatternNode::Not(self.boxed(inner)?),
            ast::Pattern::FollowedBy(parts) => PatternNode::FollowedBy(self.all(parts)?),
            ast::Pattern::And(parts) => PatternNode::And(self.all(parts)?),
            ast::Pattern::Or(parts) => PatternNode::Or(self.all(parts)?),
            ast::Pattern::Repeat {
                least,
                most,
                inner,
                until,
            } => {
                let node = self.boxed(inner)?;
                let end = match until {
                    None => None,
                    Some(until) => Some(self.boxed(until)?),
                };
                if end.is_none() && (least.is_none() || least != most) {
                    return Err(self.place.error(
                        "a range without until has no end: write [3] A, or [1:3] A until B",
                    ));
                }
                PatternNode::Until {
                    node,
                    low: self.count(*least)?,
                    high: self.count(*most)?,
                    end,
                }
            }
            ast::Pattern::Within(inner, time, most) => PatternNode::Within {
                node: self.boxed(inner)?,
                length: self.length(time)?,
                count: self.count(*most)?,
            },
            ast::Pattern::While(inner, condition) => PatternNode::While {
                node: self.boxed(inner)?,
                condition: self.lower().expr(condition)?,
            },
            ast::Pattern::Interval(time) => PatternNode::Interval(self.length(time)?),
            ast::Pattern::At(parts) => PatternNode::At(output::schedule(parts, self.place)?),
        })
    }

    fn event(&mut self, tag: Option<&Ident>, stream: &Stream) -> Checked<PatternNode> {
        let number = match tag.and_then(|tag| self.names.number(&tag.text)) {
            Some(number) => number,
            None => {
                self.tags += 1;
                if let Some(tag) = tag {
                    self.names.add(tag, self.tags - 1)?;
                }
                self.tags - 1
            }
        };
        let columns = self.environment.columns(&stream.name.text);
        self.names.set_columns(number, columns);
        let before = self.names.set_own(Some(number));
        let filter = self.lower().all(&stream.filters);
        self.names.set_own(before);
        let filter = all_of(filter?);
        let source = self.environment.source(&stream.name, stream.is_quoted)?;
        let input = match self.inputs.iter().position(|input| input.source == source) {
            Some(input) => input,
            None => {
                self.inputs.push(plain_input(source));
                self.inputs.len() - 1
            }
        };
        Ok(PatternNode::Event {
            input: input as u16,
            tag: tag.map(|_| number),
            filter,
            filter_tag: Some(number),
        })
    }

    fn boxed(&mut self, pattern: &ast::Pattern) -> Checked<Box<PatternNode>> {
        self.node(pattern).map(Box::new)
    }

    fn all(&mut self, parts: &[ast::Pattern]) -> Checked<Vec<PatternNode>> {
        parts.iter().map(|part| self.node(part)).collect()
    }

    fn lower(&mut self) -> Lower<'_> {
        Lower {
            names: self.names,
            aggregates: None,
            is_row_pattern: false,
            depth: 0,
        }
    }

    fn length(&mut self, time: &ast::Expr) -> Checked<Duration> {
        self.lower().millis(time).map(Duration::from_millis)
    }

    fn count(&self, count: Option<u64>) -> Checked<Option<u32>> {
        match count.map(u32::try_from) {
            None => Ok(None),
            Some(Ok(count)) => Ok(Some(count)),
            Some(Err(_)) => Err(self
                .place
                .error(format!("no pattern repeats {count:?} times"))),
        }
    }
}

/// The source of a pattern that has no events.
const TIME: &str = "@time";

/// An input without filter and windows.
pub fn plain_input(source: Source) -> Input {
    Input {
        asks: false,
        source,
        filter: None,
        views: Vec::new(),
        is_union: false,
        is_unidirectional: false,
    }
}

/// Lowers `match_recognize (…)`.
///
/// # Errors
/// A part is not supported.
pub fn rows(
    select: &Select,
    rows: &ast::RowPattern,
    names: &mut Names,
    environment: &Environment<'_>,
) -> Checked<Parts> {
    let [from] = select.sources.as_slice() else {
        return Err(select.place.error("match_recognize works on one source"));
    };
    let mut variables: Vec<Ident> = Vec::new();
    let pattern = row_pattern(&rows.pattern, &mut variables);
    if variables.len() > PATTERN_NODES_MAX {
        return Err(select.place.error(format!(
            "the pattern has more than {PATTERN_NODES_MAX} variables: use fewer"
        )));
    }
    let input = inputs::input(from, 0, names, environment)?;
    for (number, variable) in variables.iter().enumerate() {
        names.add(variable, number as u16)?;
    }
    names.set_row_pattern();
    let mut define = vec![None; variables.len()];
    for (variable, condition) in &rows.defines {
        let Some(number) = variables
            .iter()
            .position(|known| known.text == variable.text)
        else {
            let message = format!("{} is no variable of the pattern", variable.text);
            return Err(variable.place.error(message));
        };
        names.set_own(Some(number as u16));
        define[number] = Some(row_lower(names).expr(condition)?);
    }
    names.set_own(Some(0));
    let partition_by = row_lower(names).all(&rows.partition_by)?;
    names.set_own(None);
    let mut measures = Vec::with_capacity(rows.measures.len());
    for (measure, name) in &rows.measures {
        measures.push((name.text.clone(), row_lower(names).expr(measure)?));
    }
    let interval = match &rows.interval {
        None => None,
        Some((time, or_terminated)) => Some(RecognizeInterval {
            length: Duration::from_millis(row_lower(names).millis(time)?),
            or_terminated: *or_terminated,
        }),
    };
    names.set_known(measures);
    let shape = Shape::Recognize(Recognize {
        partition_by,
        all_matches: rows.all_matches,
        skip: rows.skip,
        variables: variables.len() as u16,
        define,
        pattern,
        interval,
    });
    Ok(Parts {
        inputs: vec![input],
        shape,
        context: None,
    })
}

fn row_lower(names: &mut Names) -> Lower<'_> {
    Lower {
        names,
        aggregates: None,
        is_row_pattern: true,
        depth: 0,
    }
}

fn row_pattern(regex: &ast::RowRegex, variables: &mut Vec<Ident>) -> RowPattern {
    let mut all = |parts: &[ast::RowRegex]| -> Vec<RowPattern> {
        parts
            .iter()
            .map(|part| row_pattern(part, variables))
            .collect()
    };
    match regex {
        ast::RowRegex::Sequence(parts) => RowPattern::Sequence(all(parts)),
        ast::RowRegex::Choice(parts) => RowPattern::Alternatives(all(parts)),
        ast::RowRegex::Repeat {
            inner,
            least,
            most,
            greedy,
        } => RowPattern::Repeat {
            node: Box::new(row_pattern(inner, variables)),
            low: *least,
            high: *most,
            is_greedy: *greedy,
        },
        ast::RowRegex::Variable(name) => {
            let known = variables.iter().position(|known| known.text == name.text);
            let number = known.unwrap_or_else(|| {
                variables.push(name.clone());
                variables.len() - 1
            });
            RowPattern::Variable(number as u16)
        }
    }
}
