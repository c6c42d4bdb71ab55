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
    /// What each measure means, its goal and its published reference.
    pub measures: &'static [Measure],
    /// Runs it once.
    pub run: fn(&Setting) -> Result<Outcome, LabError>,
}

/// What is measured: the fixed part of a row.
#[derive(Debug)]
pub struct Measure {
    /// Name of the row, stable over versions.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// What must hold, if anything.
    pub goal: Option<Goal>,
    /// A published figure to set beside ours, with its source.
    pub reference: Option<(&'static str, f64)>,
}

/// A bound that the median must keep.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// Not below.
    AtLeast(f64),
    /// Not above.
    AtMost(f64),
}

impl Goal {
    /// True if `value` keeps the goal.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtLeast(bound) => write!(f, "≥ {bound}"),
            Goal::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// What a run is given.
pub struct Setting {
    /// The binary under test.
    pub thalweg: PathBuf,
    /// True for the short form.
    pub quick: bool,
    /// An empty folder of this run's own.
    pub folder: PathBuf,
}

impl Setting {
    /// A path inside this run's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
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
    /// Figures over time, for plots.
    pub series: Vec<Series>,
}

/// Points over time: what a plot draws as one line.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The plot that the line belongs to.
    pub plot: String,
    /// Unit of the values.
    pub unit: String,
    /// The line's name.
    pub name: String,
    /// Seconds since the start, and the value.
    pub points: Vec<(f64, f64)>,
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
