//! What an experiment is, and the rows that it yields.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// One experiment: data in `experiments::ALL`.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the list.
    pub about: &'static str,
    /// How it is done, for the report: what is set up, what is measured, and how.
    pub method: &'static str,
    /// Whom each run compares with, if anyone: who does the same work in the same run.
    pub peer: Option<&'static str>,
    /// What is measured, in the order of the report.
    pub measures: fn() -> Vec<Measure>,
    /// Runs it once.
    pub run: fn(&Setting) -> Result<Outcome, LabError>,
}

/// What is measured: the fixed part of a row.
#[derive(Debug)]
pub struct Measure {
    /// Name of the row, stable over versions.
    pub name: String,
    /// Unit of the value.
    pub unit: &'static str,
    /// What must hold, if anything.
    pub goal: Option<Goal>,
    /// A published figure to set beside ours, with its source.
    pub reference: Option<(&'static str, f64)>,
    /// True for what the report shows and the terminal leaves out.
    pub is_detail: bool,
}

impl Measure {
    /// A measure without a goal.
    pub fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Measure {
            name: name.into(),
            unit,
            goal: None,
            reference: None,
            is_detail: false,
        }
    }

    /// The median must not be below `bound`.
    pub fn at_least(self, bound: f64) -> Self {
        self.goal(Goal::AtLeast(bound))
    }

    /// The median must not be above `bound`.
    pub fn at_most(self, bound: f64) -> Self {
        self.goal(Goal::AtMost(bound))
    }

    /// Sets what must hold.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    /// Adds a published figure.
    pub fn reference(mut self, source: &'static str, value: f64) -> Self {
        self.reference = Some((source, value));
        self
    }

    /// Keeps the row out of the terminal's table.
    pub fn detail(mut self) -> Self {
        self.is_detail = true;
        self
    }
}

/// A bound that the median must keep.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
    /// Not below this many times the peer's value of the same run.
    TimesPeerAtLeast(f64),
    /// Not above this many times the peer's value of the same run.
    TimesPeerAtMost(f64),
}

impl Goal {
    /// Whether `value`, which is `ratio` times the peer's, keeps the goal; none where the peer
    /// measured nothing.
    pub fn holds(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Goal::AtLeast(bound) => Some(value >= bound),
            Goal::AtMost(bound) => Some(value <= bound),
            Goal::TimesPeerAtLeast(bound) => ratio.map(|ratio| ratio >= bound),
            Goal::TimesPeerAtMost(bound) => ratio.map(|ratio| ratio <= bound),
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtLeast(bound) => write!(f, "≥ {bound}"),
            Goal::AtMost(bound) => write!(f, "≤ {bound}"),
            Goal::TimesPeerAtLeast(bound) => write!(f, "≥ {bound} ×"),
            Goal::TimesPeerAtMost(bound) => write!(f, "≤ {bound} ×"),
        }
    }
}

/// What a run is given.
pub struct Setting {
    /// The binary under test.
    pub thalweg: PathBuf,
    /// True for the short form.
    pub quick: bool,
    /// Parts of the names of the loads that are wanted; all without.
    pub only: Vec<String>,
    /// The first seed of what is generated, if it is not the experiment's own.
    pub seed: Option<u64>,
    /// How many things are generated, if it is not the experiment's own number.
    pub count: Option<usize>,
    /// How many runs went before, so that what is compared need not always go first.
    pub repeat: usize,
    /// An empty folder of this run's own.
    pub folder: PathBuf,
}

impl Setting {
    /// A path inside this run's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether the load of this name is wanted.
    pub fn wants(&self, load: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| load.contains(part))
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// What one run measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// Value per measure name.
    pub values: Vec<(String, f64)>,
    /// The peer's value per measure name, where there is one.
    pub peers: Vec<(String, f64)>,
    /// Figures for plots.
    pub series: Vec<Series>,
    /// Tables that are drawn with colors.
    pub maps: Vec<Map>,
    /// What a reader must know beside the figures: peers that were not there, bounds that the
    /// machine could not set.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Adds a note.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a value.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.values.push((name.into(), value));
    }
}

/// A table whose cells are colored by their values.
#[derive(Clone, Debug, Serialize)]
pub struct Map {
    /// What it shows, with the unit.
    pub name: String,
    /// Heads of the columns.
    pub columns: Vec<String>,
    /// Heads of the rows.
    pub rows: Vec<String>,
    /// Values by row and column; what is no number was not measured.
    pub values: Vec<Vec<f64>>,
}

/// Points that a plot draws as one line.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The plot that the line belongs to.
    pub plot: String,
    /// What the plot's width means, with its unit.
    pub along: String,
    /// Unit of the values.
    pub unit: String,
    /// The line's name.
    pub name: String,
    /// Where along the width, and the value.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line of a plot.
    pub fn new(plot: &str, along: &str, unit: &str, name: &str, points: Vec<(f64, f64)>) -> Self {
        Series {
            plot: plot.to_owned(),
            along: along.to_owned(),
            unit: unit.to_owned(),
            name: name.to_owned(),
            points,
        }
    }
}

/// Why an experiment could not be run; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The caller asked for something that is not there.
    #[error("{0}")]
    Usage(String),
    /// A file or process of this machine did not do its part.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The process under test answered an error, or not at all.
    #[error("{what}")]
    Request {
        /// What was asked.
        what: String,
        /// What came back.
        #[source]
        source: reqwest::Error,
    },
    /// The system under test did not do what the experiment needs.
    #[error("{0}")]
    Failed(String),
}

impl LabError {
    /// Adds what was tried to a system error.
    pub fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> LabError {
        let what = what.into();
        move |source| LabError::System { what, source }
    }

    /// Adds what was asked to a request's error.
    pub fn request(what: impl Into<String>) -> impl FnOnce(reqwest::Error) -> LabError {
        let what = what.into();
        move |source| LabError::Request { what, source }
    }
}

/// What an experiment's own requests run on: one thread, so that it takes little from the measured.
pub fn runtime() -> Result<tokio::runtime::Runtime, LabError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(LabError::system("cannot start the lab's own runtime"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_against_a_peer_is_kept_by_the_ratio_alone() {
        assert_eq!(Goal::TimesPeerAtMost(0.5).holds(1e9, Some(0.5)), Some(true));
        assert_eq!(
            Goal::TimesPeerAtMost(0.5).holds(0.0, Some(0.51)),
            Some(false)
        );
        assert_eq!(Goal::TimesPeerAtLeast(10.0).holds(1e9, None), None);
        assert_eq!(Goal::AtMost(2.0).holds(2.0, None), Some(true));
    }
}
