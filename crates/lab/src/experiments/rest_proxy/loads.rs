//! The loads of the experiment, in one table: what is sent, how, and what must hold.

use crate::experiment::Measure;

/// One load of produce calls.
#[derive(Debug)]
pub struct Load {
    /// Its name, stable over versions.
    pub name: &'static str,
    /// What stands behind the proxy.
    pub behind: Behind,
    /// Sessions that send at the same time.
    pub sessions: usize,
    /// Records in a call.
    pub records: usize,
    /// Characters of a record's value, which is JSON text.
    pub bytes: usize,
    /// The topic's `thalweg.durability`.
    pub durability: &'static str,
    /// False for a new connection per call.
    pub keep: bool,
    /// True for calls with time between them, where latency counts and the rate says nothing.
    pub is_lone: bool,
    /// What must hold, by figure.
    pub goals: &'static [(Figure, Bound)],
    /// A published figure or one measured of a peer: its source and its value.
    pub references: &'static [(Figure, &'static str, f64)],
    /// True if the short form has it.
    pub is_quick: bool,
}

/// What stands behind the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The store in the same process.
    Embedded,
    /// One proxy, or two, before a store in a process of its own.
    Store {
        /// How many proxies.
        proxies: usize,
    },
    /// Apache Kafka.
    Kafka,
}

/// A figure of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Records a second.
    Rate,
    /// Values' bytes a second, in MB.
    Bytes,
    /// CPU of the proxy, and of the store where it is ours, per record.
    Cpu,
    /// CPU of the same processes per GB of values.
    CpuPerGb,
    /// Median latency of a call.
    P50,
    /// Its 99th percentile.
    P99,
    /// The median without twice the time of a sync of the disk.
    OverSyncs,
    /// Share of the disk's own rate of writing.
    OfDisk,
    /// Share of what a native client reached with records of the same size.
    OfNative,
}

/// A bound.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
}

impl Figure {
    fn name(self) -> &'static str {
        match self {
            Figure::Rate => "rate",
            Figure::Bytes => "bytes",
            Figure::Cpu => "CPU per record",
            Figure::CpuPerGb => "CPU per GB",
            Figure::P50 => "p50",
            Figure::P99 => "p99",
            Figure::OverSyncs => "p50 above two syncs of the disk",
            Figure::OfDisk => "of the disk's rate",
            Figure::OfNative => "of a native client's rate",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Figure::Rate => "records/s",
            Figure::Bytes => "MB/s",
            Figure::Cpu => "µs",
            Figure::CpuPerGb => "s",
            Figure::P50 | Figure::P99 | Figure::OverSyncs => "ms",
            Figure::OfDisk | Figure::OfNative => "%",
        }
    }
}

impl Load {
    const fn new(name: &'static str, sessions: usize, records: usize, bytes: usize) -> Load {
        Load {
            name,
            behind: Behind::Embedded,
            sessions,
            records,
            bytes,
            durability: "os",
            keep: true,
            is_lone: false,
            goals: &[],
            references: &[],
            is_quick: false,
        }
    }

    const fn behind(self, behind: Behind) -> Load {
        Load { behind, ..self }
    }

    const fn disk(self) -> Load {
        Load {
            durability: "disk",
            ..self
        }
    }

    const fn new_connections(self) -> Load {
        Load {
            keep: false,
            ..self
        }
    }

    const fn lone(self) -> Load {
        Load {
            is_lone: true,
            ..self
        }
    }

    const fn goals(self, goals: &'static [(Figure, Bound)]) -> Load {
        Load { goals, ..self }
    }

    const fn references(self, references: &'static [(Figure, &'static str, f64)]) -> Load {
        Load { references, ..self }
    }

    const fn quick(self) -> Load {
        Load {
            is_quick: true,
            ..self
        }
    }

    /// The name of one of its rows.
    pub fn row(&self, figure: Figure) -> String {
        format!("{}: {}", self.name, figure.name())
    }

    /// Whether its bytes, not its calls, are what costs.
    pub fn is_large(&self) -> bool {
        self.bytes >= LARGE_BYTES
    }

    /// The figures taken of it; those in front stand in the terminal's table.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = match (self.is_lone, self.is_large()) {
            (true, _) => vec![Figure::P50, Figure::P99],
            (false, true) => vec![Figure::Bytes, Figure::CpuPerGb, Figure::P99],
            (false, false) => vec![Figure::Rate, Figure::Cpu, Figure::P99],
        };
        let more = self.goals.iter().map(|(figure, _)| *figure);
        for figure in more {
            if !figures.contains(&figure) {
                figures.push(figure);
            }
        }
        figures
    }

    /// What is measured of it.
    pub fn measures(&self) -> Vec<Measure> {
        let measure = |figure: Figure| {
            let mut measure = Measure::new(self.row(figure), figure.unit());
            for (of, bound) in self.goals {
                measure = match bound {
                    Bound::AtLeast(bound) if *of == figure => measure.at_least(*bound),
                    Bound::AtMost(bound) if *of == figure => measure.at_most(*bound),
                    _ => measure,
                };
            }
            for (of, source, value) in self.references {
                if *of == figure {
                    measure = measure.reference(source, *value);
                }
            }
            let is_brief = figure == self.figures()[0] || figure == Figure::Cpu;
            match measure.goal.is_some() || measure.reference.is_some() || is_brief {
                true => measure,
                false => measure.detail(),
            }
        };
        self.figures().into_iter().map(measure).collect()
    }
}

/// Every load, in the order in which each back end gets them.
pub const LOADS: &[Load] = &[
    Load::new("lone POST, disk", 1, 1, 100)
        .disk()
        .lone()
        .goals(&[(OverSyncs, AtMost(0.3))])
        .references(&[(P50, "Karapace 6.2, kept session", 105.0)])
        .quick(),
    Load::new("lone POST, os, new connection", 1, 1, 100)
        .new_connections()
        .lone()
        .goals(&[(P50, AtMost(3.0)), (P99, AtMost(20.0))])
        .references(&[
            (P50, "MapR's article, after tuning; 3,000 before", 125.0),
            (P99, "Strimzi 0.33", 2_700.0),
        ])
        .quick(),
    Load::new("1 session, single records, disk", 1, 1, 100)
        .disk()
        .goals(&[(OverSyncs, AtMost(0.3))]),
    Load::new("1 session, single records", 1, 1, 100),
    Load::new("8 sessions, single records", 8, 1, 100).references(&[(
        Rate,
        "MapR's article, one process",
        1_580.0,
    )]),
    Load::new("8 sessions, a new connection per record", 8, 1, 100)
        .new_connections()
        .references(&[(Rate, "Strimzi 0.33", 229.0)]),
    Load::new("64 sessions, single records", 64, 1, 100)
        .goals(&[(Rate, AtLeast(60_000.0))])
        .quick(),
    Load::new("64 sessions, single records, disk", 64, 1, 100).disk(),
    Load::new("arrays of 10", 8, 10, 100),
    Load::new("arrays of 100", 8, 100, 100).references(&[(Rate, "Strimzi 0.33", 4_600.0)]),
    Load::new("arrays of 1,000", 8, 1_000, 100)
        .goals(&[(Rate, AtLeast(1e6))])
        .quick(),
    Load::new("arrays of 1,000, disk", 8, 1_000, 100).disk(),
    Load::new("arrays of 10,000", 8, 10_000, 100),
    Load::new("values of 10 B", 8, 1, 10),
    Load::new("values of 1 KB", 8, 1, 1_000),
    Load::new("values of 10 KB", 8, 1, 10_000),
    Load::new("values of 100 KB", 8, 1, 100_000)
        .goals(&[(Bytes, AtLeast(1_000.0))])
        .references(&[(Bytes, "MapR's article, 100 to 200 KB", 280.0)])
        .quick(),
    Load::new("values of 200 KB", 8, 1, 200_000)
        .goals(&[(Bytes, AtLeast(1_000.0))])
        .references(&[(Bytes, "MapR's article, 100 to 200 KB", 280.0)]),
    Load::new("values of 200 KB, disk", 8, 1, 200_000)
        .disk()
        .goals(&[(OfDisk, AtLeast(90.0))]),
    Load::new("values of 1 MB", 4, 1, 1_000_000),
    Load::new("values of 2 MB", 4, 1, 2_000_000),
    Load::new("one proxy before a store", 64, 1, 100)
        .behind(Behind::Store { proxies: 1 })
        .references(&[(Rate, "MapR's article, one process", 1_580.0)]),
    Load::new("two proxies before a store", 64, 1, 100)
        .behind(Behind::Store { proxies: 2 })
        .references(&[(Rate, "MapR's article, two processes", 2_660.0)]),
    Load::new("before Kafka: lone POST", 1, 1, 100)
        .behind(Behind::Kafka)
        .lone()
        .references(&[(P50, "Karapace 6.2, linger 0", 4.1)])
        .quick(),
    Load::new("before Kafka: 64 sessions, single records", 64, 1, 100)
        .behind(Behind::Kafka)
        .references(&[(Rate, "Karapace 6.2, linger 0, 8 sessions", 488.0)]),
    // A native client sends as much at once as its buffers hold.
    Load::new("before Kafka: arrays of 1,000", 64, 1_000, 100)
        .behind(Behind::Kafka)
        .goals(&[(OfNative, AtLeast(90.0))]),
    Load::new("before Kafka: values of 100 KB", 64, 1, 100_000)
        .behind(Behind::Kafka)
        .goals(&[(OfNative, AtLeast(90.0))])
        .references(&[(Bytes, "Karapace 6.2, 4 sessions, 5 records each", 56.0)])
        .quick(),
];

use Bound::{AtLeast, AtMost};
use Figure::{Bytes, OfDisk, OfNative, OverSyncs, P50, P99, Rate};

const LARGE_BYTES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_goal_and_reference_has_a_row_that_the_table_shows() {
        for load in LOADS {
            let measures = load.measures();
            let shown = |figure: Figure| {
                measures
                    .iter()
                    .any(|it| it.name == load.row(figure) && !it.is_detail)
            };
            assert!(
                load.goals.iter().all(|(figure, _)| shown(*figure)),
                "{}",
                load.name
            );
            let referred = load.references.iter().all(|(figure, _, _)| shown(*figure));
            assert!(referred, "{}", load.name);
        }
    }
}
