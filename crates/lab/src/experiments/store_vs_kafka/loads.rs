//! The loads of the comparison, in one table: what each does, what is measured of it, what must hold.

use crate::experiment::{Goal, Measure, Setting};
use crate::load::Sending;

/// One load; both servers get the same.
#[derive(Debug)]
pub struct Load {
    /// Its name, stable over versions.
    pub name: &'static str,
    /// What the tool does.
    pub work: Work,
    /// Bytes of a record's value.
    pub bytes: usize,
    /// Kafka's `acks`.
    pub acks: &'static str,
    /// What an acknowledgement is worth.
    pub safety: Safety,
    /// Producers with connections of their own.
    pub producers: usize,
    /// True if the short form has it.
    pub is_quick: bool,
}

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// librdkafka sends.
    Send(Sending),
    /// librdkafka reads what the named load sent, for the second time.
    Read(&'static str),
    /// The same, from the disk.
    ReadCold(&'static str),
    /// Kafka's own producer sends.
    ToolSends,
    /// Kafka's own consumer reads what the named load sent.
    ToolReads(&'static str),
    /// Kafka's own share consumer reads and acknowledges what the named load sent.
    ToolShares(&'static str),
}

/// What an acknowledgement promises of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Safety {
    /// What each server promises as it is shipped: Thalweg's `acks=all` waits for the sync, Kafka's
    /// never does.
    AsShipped,
    /// Both wait for the sync: Kafka's topic has `flush.messages=1`.
    BothSynced,
    /// Neither waits: Thalweg's topic has the durability `os`.
    NeitherSynced,
}

impl Load {
    const fn send(name: &'static str, sending: Sending, bytes: usize, acks: &'static str) -> Load {
        Load {
            name,
            work: Work::Send(sending),
            bytes,
            acks,
            safety: Safety::AsShipped,
            producers: 1,
            is_quick: false,
        }
    }

    const fn batches(name: &'static str, bytes: usize, acks: &'static str) -> Load {
        Load::send(name, Sending::Batches, bytes, acks)
    }

    const fn other(name: &'static str, work: Work, bytes: usize, acks: &'static str) -> Load {
        Load {
            work,
            ..Load::batches(name, bytes, acks)
        }
    }

    const fn safety(self, safety: Safety) -> Load {
        Load { safety, ..self }
    }

    const fn synced(self) -> Load {
        self.safety(Safety::BothSynced)
    }

    const fn producers(self, producers: usize) -> Load {
        Load { producers, ..self }
    }

    const fn quick(self) -> Load {
        Load {
            is_quick: true,
            ..self
        }
    }

    /// The load that sent what it reads.
    fn reads(&self) -> Option<&'static str> {
        match self.work {
            Work::Read(of) | Work::ReadCold(of) | Work::ToolReads(of) | Work::ToolShares(of) => {
                Some(of)
            }
            Work::Send(_) | Work::ToolSends => None,
        }
    }

    /// True if its records are large enough that bytes, not records, are what costs.
    pub fn is_large(&self) -> bool {
        self.bytes >= LARGE_BYTES
    }

    /// The name of one of its rows.
    pub fn row(&self, figure: &str) -> String {
        format!("{}: {figure}", self.name)
    }

    /// True if the latency of each record is taken.
    pub fn is_timed(&self) -> bool {
        matches!(self.work, Work::Send(Sending::Single | Sending::Paced(_)))
    }

    /// True if its pace is given, so that its rate says nothing.
    fn is_paced(&self) -> bool {
        matches!(self.work, Work::Send(Sending::Paced(_)))
    }

    /// True if what it reaches is set beside the disk's own rate.
    pub fn is_beside_disk(&self) -> bool {
        matches!(self.work, Work::Send(_)) && self.is_large() && self.safety == Safety::BothSynced
    }

    /// What is measured of it.
    pub fn measures(&self) -> Vec<Measure> {
        let brief = |measure: Measure, is_brief: bool| {
            if is_brief { measure } else { measure.detail() }
        };
        let mut rate = Measure::new(self.row(RATE), "records/s");
        if let Some(goal) = self.rate_goal() {
            rate = rate.goal(goal);
        }
        // The same seconds over two units: the goal stands once, where the eye looks for it.
        let half = Goal::TimesPeerAtMost(0.5);
        let mut per_million = Measure::new(self.row(CPU_PER_MILLION), "s");
        let mut per_gb = Measure::new(self.row(CPU_PER_GB), "s");
        if self.is_large() {
            per_gb = per_gb.goal(half);
        } else {
            per_million = per_million.goal(half);
        }
        let is_rate_told = !self.is_paced();
        let mut measures = vec![
            brief(rate, is_rate_told && !self.is_large()),
            brief(
                Measure::new(self.row(BYTES), "MB/s"),
                is_rate_told && self.is_large(),
            ),
            brief(per_million, !self.is_large()),
            brief(per_gb, self.is_large()),
            Measure::new(self.row(CLIENT_CPU), "s").detail(),
            Measure::new(self.row(MEMORY), "MiB").detail(),
        ];
        if self.is_timed() {
            measures.push(Measure::new(self.row(P50), "ms").detail());
            measures.push(Measure::new(self.row(P99), "ms"));
            measures.push(Measure::new(self.row(P999), "ms").detail());
        }
        if self.is_paced() && self.safety == Safety::BothSynced {
            measures.push(Measure::new(self.row(ABOVE_SYNC), "ms").at_most(5.0));
        }
        if matches!(self.work, Work::ReadCold(_)) {
            measures.push(Measure::new(self.row(FROM_DISK), "%").detail());
        }
        if self.is_beside_disk() {
            measures.push(Measure::new(self.row(DISK), "MB/s"));
            measures.push(Measure::new(self.row(OF_DISK), "%").at_least(90.0));
        }
        measures
    }

    fn rate_goal(&self) -> Option<Goal> {
        match (self.work, self.safety) {
            (Work::Send(Sending::Batches), Safety::BothSynced) if !self.is_large() => {
                Some(Goal::TimesPeerAtLeast(1.5))
            }
            (Work::Send(Sending::Alone), Safety::BothSynced) => Some(Goal::TimesPeerAtLeast(10.0)),
            _ => None,
        }
    }
}

/// Figures of a load, as the rows name them.
pub const RATE: &str = "rate";
pub const BYTES: &str = "bytes";
pub const CPU_PER_MILLION: &str = "server CPU per million records";
pub const CPU_PER_GB: &str = "server CPU per GB";
pub const CLIENT_CPU: &str = "client CPU per million records";
pub const MEMORY: &str = "resident memory";
pub const P50: &str = "p50";
pub const P99: &str = "p99";
pub const P999: &str = "p99.9";
pub const ABOVE_SYNC: &str = "p99 above the disk's sync";
pub const FROM_DISK: &str = "share read from the disk";
pub const DISK: &str = "the disk around it";
pub const OF_DISK: &str = "share of the disk's write rate";

const SMALL: usize = 100;
const LARGE: usize = 100_000;
/// From here on a record's bytes cost more than its handling.
const LARGE_BYTES: usize = 10_000;
/// Records a second of the loads at a fixed rate.
pub const PACE_PER_S: u32 = 1_000;
const PACE: Sending = Sending::Paced(PACE_PER_S);

/// Every load, in the order in which a server gets them. What a load reads was sent before it.
pub const LOADS: &[Load] = &[
    Load::batches("100 B, acks=1", SMALL, "1").quick(),
    Load::batches("100 B, acks=1, 16 producers", SMALL, "1").producers(16),
    Load::batches("100 B, acks=all", SMALL, "all"),
    Load::batches("100 B, acks=all, 16 producers", SMALL, "all").producers(16),
    Load::batches("100 B, acks=all, neither synced", SMALL, "all").safety(Safety::NeitherSynced),
    Load::batches("100 B, acks=all, both synced", SMALL, "all")
        .synced()
        .quick(),
    Load::batches("100 B, acks=all, both synced, 16 producers", SMALL, "all")
        .synced()
        .producers(16)
        .quick(),
    Load::batches("100 KB, acks=1", LARGE, "1").quick(),
    Load::batches("100 KB, acks=1, 16 producers", LARGE, "1").producers(16),
    Load::batches("100 KB, acks=all", LARGE, "all"),
    Load::batches("100 KB, acks=all, 16 producers", LARGE, "all").producers(16),
    Load::batches("100 KB, acks=all, both synced", LARGE, "all")
        .synced()
        .quick(),
    Load::batches("100 KB, acks=all, both synced, 16 producers", LARGE, "all")
        .synced()
        .producers(16),
    Load::send(
        "100 B, a record a request, both synced, 16 producers",
        Sending::Alone,
        SMALL,
        "all",
    )
    .synced()
    .producers(16)
    .quick(),
    Load::send(
        "100 B, one in flight, both synced",
        Sending::Single,
        SMALL,
        "all",
    )
    .synced(),
    Load::send(
        "100 B, one in flight, both synced, 16 producers",
        Sending::Single,
        SMALL,
        "all",
    )
    .synced()
    .producers(16)
    .quick(),
    Load::send("1,000 records/s, acks=1", PACE, SMALL, "1"),
    Load::send("1,000 records/s, acks=all", PACE, SMALL, "all"),
    Load::send("1,000 records/s, acks=all, both synced", PACE, SMALL, "all")
        .synced()
        .quick(),
    Load::other("100 B, read hot", Work::Read("100 B, acks=1"), SMALL, "").quick(),
    Load::other(
        "100 B, read cold",
        Work::ReadCold("100 B, acks=1"),
        SMALL,
        "",
    )
    .quick(),
    Load::other("100 KB, read hot", Work::Read("100 KB, acks=1"), LARGE, ""),
    Load::other(
        "100 KB, read cold",
        Work::ReadCold("100 KB, acks=1"),
        LARGE,
        "",
    )
    .quick(),
    Load::other(
        "Kafka's producer, 100 B, acks=1",
        Work::ToolSends,
        SMALL,
        "1",
    )
    .quick(),
    Load::other(
        "Kafka's producer, 100 B, acks=all",
        Work::ToolSends,
        SMALL,
        "all",
    ),
    Load::other(
        "Kafka's producer, 100 B, acks=all, both synced",
        Work::ToolSends,
        SMALL,
        "all",
    )
    .synced(),
    Load::other(
        "Kafka's producer, 100 KB, acks=1",
        Work::ToolSends,
        LARGE,
        "1",
    ),
    Load::other(
        "Kafka's producer, 100 KB, acks=all, both synced",
        Work::ToolSends,
        LARGE,
        "all",
    )
    .synced(),
    Load::other(
        "Kafka's consumer, 100 B",
        Work::ToolReads("Kafka's producer, 100 B, acks=1"),
        SMALL,
        "",
    )
    .quick(),
    Load::other(
        "Kafka's consumer, 100 KB",
        Work::ToolReads("Kafka's producer, 100 KB, acks=1"),
        LARGE,
        "",
    ),
    Load::other(
        "Kafka's share consumer, 100 B",
        Work::ToolShares("Kafka's producer, 100 B, acks=1"),
        SMALL,
        "",
    )
    .quick(),
];

/// The loads of a run: those that are wanted, and those that send what they read.
pub fn chosen(setting: &Setting) -> Vec<&'static Load> {
    let is_in_form = |load: &&Load| load.is_quick || !setting.quick;
    let loads: Vec<&Load> = LOADS.iter().filter(is_in_form).collect();
    let wanted = loads.iter().filter(|load| setting.wants(load.name));
    let read: Vec<&str> = wanted.filter_map(|load| load.reads()).collect();
    let is_needed = |load: &&Load| setting.wants(load.name) || read.contains(&load.name);
    loads.into_iter().filter(is_needed).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn what_a_load_reads_was_sent_before_it_in_both_forms() {
        let mut sent: Vec<&Load> = Vec::new();
        for load in LOADS {
            if let Some(of) = load.reads() {
                let source = sent.iter().find(|sent| sent.name == of);
                let source = source.unwrap_or_else(|| panic!("{} reads {of}", load.name));
                assert_eq!(source.bytes, load.bytes, "{}", load.name);
                assert!(source.is_quick || !load.is_quick, "{}", load.name);
            } else {
                sent.push(load);
            }
        }
        let names: BTreeSet<&str> = LOADS.iter().map(|load| load.name).collect();
        assert_eq!(names.len(), LOADS.len(), "two loads of one name");
    }

    #[test]
    fn a_wanted_load_comes_with_what_sends_what_it_reads() {
        let setting = Setting {
            thalweg: PathBuf::new(),
            quick: false,
            only: vec!["100 KB, read cold".to_owned()],
            seed: None,
            count: None,
            repeat: 0,
            folder: PathBuf::new(),
        };
        let names: Vec<&str> = chosen(&setting).iter().map(|load| load.name).collect();
        assert_eq!(names, ["100 KB, acks=1", "100 KB, read cold"]);
    }
}
