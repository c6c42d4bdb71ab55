//! Row patterns (`match_recognize`): a regular expression over the rows of each partition.
//!
//! The expression becomes a program whose choices are in order of preference (greedy repeats go
//! round first). Every row moves all runs of its partition one step, in the order of their first
//! rows, then starts a run of its own. A match comes with the row that completes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::codec::{Decoder, Encoder};
use crate::limits::PATTERN_STATES_MAX;
use crate::plan::{Recognize, RowPattern, Skip};
use crate::query::layout::Around;
use crate::query::select::Step;
use crate::query::tuple::{Captured, Row, Tuple, TupleReader, TupleWriter};

/// The partitions of a row pattern.
#[derive(Clone, Debug, Default)]
pub struct Recognizer {
    partitions: BTreeMap<Box<[u8]>, Partition>,
    runs: usize,
}

#[derive(Clone, Debug, Default)]
struct Partition {
    runs: Vec<Run>,
    /// The latest rows, newest first, as far as conditions look back.
    recent: VecDeque<Arc<Tuple>>,
}

/// One partial match.
#[derive(Clone, Debug)]
struct Run {
    /// Where it waits in the program.
    at: usize,
    /// The number of its first row.
    first: u64,
    /// Variable by variable, the rows.
    rows: Vec<Vec<Arc<Tuple>>>,
}

/// The program of a row pattern.
#[derive(Clone, Debug, Default)]
pub struct Program(Vec<Instruction>);

#[derive(Clone, Copy, Debug)]
enum Instruction {
    /// Takes a row as that variable.
    Row(usize),
    /// Goes on at both, the first preferred.
    Split(usize, usize),
    Jump(usize),
    Match,
}

impl Program {
    /// The program of a pattern; none when it would be too long.
    pub fn new(pattern: &RowPattern) -> Option<Self> {
        let mut program = Program::default();
        program.add(pattern)?;
        program.0.push(Instruction::Match);
        Some(program)
    }

    fn add(&mut self, pattern: &RowPattern) -> Option<()> {
        if self.0.len() > PROGRAM_MAX {
            return None;
        }
        match pattern {
            RowPattern::Variable(variable) => {
                self.0.push(Instruction::Row(usize::from(*variable)));
            }
            RowPattern::Sequence(parts) => {
                for part in parts {
                    self.add(part)?;
                }
            }
            RowPattern::Alternatives(parts) => {
                let mut ends = Vec::new();
                for (place, part) in parts.iter().enumerate() {
                    let is_last = place + 1 == parts.len();
                    let split = self.0.len();
                    if !is_last {
                        self.0.push(Instruction::Match);
                    }
                    self.add(part)?;
                    if !is_last {
                        ends.push(self.0.len());
                        self.0.push(Instruction::Match);
                        self.0[split] = Instruction::Split(split + 1, self.0.len());
                    }
                }
                let end = self.0.len();
                ends.into_iter()
                    .for_each(|at| self.0[at] = Instruction::Jump(end));
            }
            RowPattern::Repeat {
                node,
                low,
                high,
                is_greedy,
            } => {
                for _ in 0..*low {
                    self.add(node)?;
                }
                let choice = |go_on: usize, leave: usize| match is_greedy {
                    true => Instruction::Split(go_on, leave),
                    false => Instruction::Split(leave, go_on),
                };
                match high {
                    None => {
                        let split = self.0.len();
                        self.0.push(Instruction::Match);
                        self.add(node)?;
                        self.0.push(Instruction::Jump(split));
                        self.0[split] = choice(split + 1, self.0.len());
                    }
                    Some(high) => {
                        let mut splits = Vec::new();
                        for _ in *low..*high {
                            splits.push(self.0.len());
                            self.0.push(Instruction::Match);
                            self.add(node)?;
                        }
                        let end = self.0.len();
                        for split in splits {
                            self.0[split] = choice(split + 1, end);
                        }
                    }
                }
            }
        }
        Some(())
    }

    /// Where a run may wait when it comes to `at`, in order of preference, and whether it matches.
    fn follow(&self, at: usize, waits: &mut Vec<usize>, seen: &mut Vec<usize>) -> bool {
        if seen.contains(&at) {
            return false;
        }
        seen.push(at);
        match self.0.get(at) {
            Some(Instruction::Row(_)) => {
                waits.push(at);
                false
            }
            Some(Instruction::Split(first, second)) => {
                let first = self.follow(*first, waits, seen);
                self.follow(*second, waits, seen) || first
            }
            Some(Instruction::Jump(to)) => self.follow(*to, waits, seen),
            Some(Instruction::Match) => true,
            None => false,
        }
    }
}

impl Recognizer {
    /// Takes a row of a partition and gives the matches that it completes.
    pub fn on_row(
        &mut self,
        step: Step<'_>,
        plan: &Recognize,
        key: Vec<u8>,
        tuple: &Arc<Tuple>,
        looks_back: usize,
    ) -> Vec<Row> {
        let program = &step.compiled.program;
        let partition = self.partitions.entry(key.into()).or_default();
        self.runs -= partition.runs.len();
        let mut waiting: Vec<Run> = Vec::new();
        let mut matches: Vec<Run> = Vec::new();
        let mut starts = Vec::new();
        program.follow(0, &mut starts, &mut Vec::new());
        let fresh = starts.into_iter().map(|at| Run {
            at,
            first: tuple.number,
            rows: vec![Vec::new(); usize::from(plan.variables)],
        });
        let runs = std::mem::take(&mut partition.runs);
        for mut run in runs.into_iter().chain(fresh) {
            let Some(Instruction::Row(variable)) = program.0.get(run.at) else {
                continue;
            };
            let Some(rows) = run.rows.get_mut(*variable) else {
                continue;
            };
            rows.push(tuple.clone());
            let condition = plan.define.get(*variable).and_then(Option::as_ref);
            let asked = Step {
                around: Around {
                    current: Some(tuple),
                    ..step.around
                },
                ..step
            };
            if condition.is_some() && !asked.passes(condition, &row_of(&run.rows)) {
                continue;
            }
            let mut waits = Vec::new();
            let is_match = program.follow(run.at + 1, &mut waits, &mut Vec::new());
            for at in waits {
                let twin = Run { at, ..run.clone() };
                // Two runs that hold the same rows and wait at the same place are one.
                let is_known = waiting.iter().any(|known| {
                    known.at == twin.at
                        && known.first == twin.first
                        && same(&known.rows, &twin.rows)
                });
                if !is_known && self.runs + waiting.len() < PATTERN_STATES_MAX + 1 {
                    waiting.push(twin);
                }
            }
            if is_match {
                matches.push(run);
            }
        }
        let mut found = Vec::new();
        let mut last_first = None;
        for matched in matches {
            if !plan.all_matches && last_first.is_some_and(|first| matched.first <= first) {
                continue;
            }
            if !plan.all_matches && plan.skip == Skip::PastLastRow && last_first.is_some() {
                break;
            }
            last_first = Some(matched.first);
            match plan.skip {
                Skip::PastLastRow => waiting.clear(),
                Skip::ToNextRow => waiting.retain(|run| run.first > matched.first),
                Skip::ToCurrentRow => waiting.retain(|run| run.first >= tuple.number),
            }
            found.push(row_of(&matched.rows));
        }
        self.runs += waiting.len();
        partition.runs = waiting;
        partition.recent.push_front(tuple.clone());
        partition.recent.truncate(looks_back);
        found
    }

    /// The rows of a partition before the next one, newest first.
    pub fn recent(&self, key: &[u8]) -> Option<&VecDeque<Arc<Tuple>>> {
        self.partitions.get(key).map(|partition| &partition.recent)
    }

    /// Forgets partitions that wait for nothing and remember nothing.
    pub fn forget_idle(&mut self, key: &[u8]) {
        let is_idle = |own: &Partition| own.runs.is_empty() && own.recent.is_empty();
        if self.partitions.get(key).is_some_and(is_idle) {
            self.partitions.remove(key);
        }
    }

    /// Partial matches.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Partitions.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Writes the state.
    pub fn encode(&self, tuples: &mut TupleWriter, out: &mut Encoder) {
        out.count(self.partitions.len());
        for (key, partition) in &self.partitions {
            out.bytes(key);
            tuples.tuples(partition.recent.iter(), out);
            out.count(partition.runs.len());
            for run in &partition.runs {
                out.count(run.at);
                out.u64(run.first);
                run.rows
                    .iter()
                    .for_each(|rows| tuples.tuples(rows.iter(), out));
            }
        }
    }

    /// Reads it back.
    pub fn decode(
        plan: &Recognize,
        tuples: &mut TupleReader,
        from: &mut Decoder<'_>,
    ) -> Option<Self> {
        let mut own = Recognizer::default();
        for _ in 0..from.count()? {
            let key: Box<[u8]> = from.bytes()?.into();
            let recent = tuples.tuples(from)?;
            let mut runs = Vec::new();
            for _ in 0..from.count()? {
                let at = usize::try_from(from.u32()?).ok()?;
                let first = from.u64()?;
                let mut rows = Vec::new();
                for _ in 0..plan.variables {
                    rows.push(tuples.tuples(from)?);
                }
                runs.push(Run { at, first, rows });
            }
            own.runs += runs.len();
            own.partitions.insert(key, Partition { runs, recent });
        }
        Some(own)
    }
}

fn same(a: &[Vec<Arc<Tuple>>], b: &[Vec<Arc<Tuple>>]) -> bool {
    a.iter()
        .zip(b)
        .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.number == b.number))
}

fn row_of(rows: &[Vec<Arc<Tuple>>]) -> Row {
    let parts = rows.iter().map(|rows| match rows.as_slice() {
        [] => Captured::None,
        [one] => Captured::One(one.clone()),
        many => Captured::Many(many.into()),
    });
    Row::Parts(parts.collect())
}

/// Longest program, instructions: a bounded repeat counts once per time.
pub const PROGRAM_MAX: usize = 10_000;
