//! Whether statements give the rows that Esper gives: scripts from a seed, run on both.

mod compare;
mod generate;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base::Rng;

use crate::esper::{ESPER, Esper};
use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::limits::SCRIPTS_MAX;
use crate::process::Measured;
use crate::tools::cache_folder;

use compare::{Verdict, verdict};
use generate::{FAMILIES, Family};

/// `thalweg lab run epl-differential`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "epl-differential",
    about: "EPL statements on generated scripts: the same rows, order and instants as Esper",
    method: "Scripts of one to four statements and 12 to 20 events of three types, with keys and \
        values that are missing now and then, are generated from a seed by families of constructs \
        and run twice: by `thalweg statements try`, and on Esper 9.0.0 with an external clock in a \
        process of its own. Per statement the sequence of rows must be the same: instant, whether a \
        row is new or old, and every column; doubles may differ by 1e-9 of their size. Rows of one \
        instant in another order (groups, matches that one event completes) are counted apart. What differs \
        is written to `epl-differences.txt` in the lab's cache folder with both outcomes.",
    peer: Some(ESPER),
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new(SCRIPTS, "scripts"),
        Measure::new(REORDERED, "scripts").detail(),
        Measure::new(DIFFERENT, "scripts").at_most(0.0),
        Measure::new(REFUSED, "scripts").at_most(0.0),
    ];
    for family in FAMILIES {
        measures.push(Measure::new(different(family), "scripts").detail());
    }
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let wanted: Vec<&Family> = FAMILIES
        .iter()
        .filter(|family| setting.wants(family.name))
        .collect();
    if wanted.is_empty() {
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.name).collect();
        let message = format!("no family is called so: there are {}", names.join(", "));
        return Err(LabError::Usage(message));
    }
    let count = if setting.quick { QUICK } else { FULL };
    let scripts: Vec<(&Family, String)> = (0..count)
        .map(|index| {
            let family = wanted[index % wanted.len()];
            let lines = (family.script)(&mut Rng::from_seed(SEED + index as u64));
            (family, lines.join("\n"))
        })
        .collect();
    let file = setting.path("scripts.txt");
    let mut text = String::new();
    for (_, script) in &scripts {
        text.push_str(script);
        text.push_str("\nend\n");
    }
    std::fs::write(&file, text).map_err(LabError::system("cannot write the scripts"))?;
    let theirs = Esper::fetch(setting.folder())?.run(&file, setting.folder())?;
    let ours = ours(setting, &file)?;
    report(&scripts, &theirs, &ours)
}

fn ours(setting: &Setting, scripts: &Path) -> Result<String, LabError> {
    let mut command = Command::new(&setting.thalweg);
    command.args(["statements", "try"]).arg(scripts);
    Measured::start("thalweg", &mut command, setting.folder())?.finish(SCRIPTS_MAX)
}

fn report(scripts: &[(&Family, String)], theirs: &str, ours: &str) -> Result<Outcome, LabError> {
    let (theirs, ours) = (outcomes(theirs), outcomes(ours));
    if theirs.len() != scripts.len() || ours.len() != scripts.len() {
        return Err(LabError::Failed(format!(
            "{} scripts, but {} outcomes of {ESPER} and {} of ours",
            scripts.len(),
            theirs.len(),
            ours.len()
        )));
    }
    let mut outcome = Outcome::default();
    let mut by_family = vec![0.0; FAMILIES.len()];
    let (mut different_scripts, mut reordered) = (0.0, 0.0);
    let (mut refused, mut compared) = (0.0, 0.0);
    let mut text = String::new();
    for (index, (family, script)) in scripts.iter().enumerate() {
        match verdict(&theirs[index], &ours[index]) {
            // What Esper does not take, or fails on, is no script.
            Verdict::NoScript => continue,
            Verdict::Same => {}
            Verdict::Reordered => reordered += 1.0,
            other => {
                match other {
                    Verdict::Refused => refused += 1.0,
                    _ => different_scripts += 1.0,
                }
                let place = FAMILIES.iter().position(|known| known.name == family.name);
                by_family[place.unwrap_or(0)] += 1.0;
                let _ = writeln!(
                    text,
                    "=== {} {}\n{script}\n--- {ESPER}\n{}\n--- ours\n{}\n",
                    family.name,
                    SEED + index as u64,
                    theirs[index].join("\n"),
                    ours[index].join("\n"),
                );
            }
        }
        compared += 1.0;
    }
    let differences: PathBuf = cache_folder()?.join("epl-differences.txt");
    std::fs::write(&differences, text).map_err(LabError::system("cannot write the differences"))?;
    let none = scripts.len() as f64 - compared;
    if none > 0.0 {
        outcome.note(format!(
            "{none} scripts have a statement or an event that {ESPER} refuses"
        ));
    }
    outcome.add(SCRIPTS, compared);
    outcome.add(REORDERED, reordered);
    outcome.add(DIFFERENT, different_scripts);
    outcome.add(REFUSED, refused);
    for (family, count) in FAMILIES.iter().zip(by_family) {
        outcome.add(different(family), count);
    }
    if different_scripts + refused > 0.0 {
        outcome.note(format!("what differs stands in {}", differences.display()));
    }
    Ok(outcome)
}

/// The lines of each script's outcome.
fn outcomes(text: &str) -> Vec<Vec<&str>> {
    let mut outcomes = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            "end" => outcomes.push(std::mem::take(&mut lines)),
            line => lines.push(line),
        }
    }
    outcomes
}

fn different(family: &Family) -> String {
    format!("different: {}", family.name)
}

const SCRIPTS: &str = "scripts compared";
const REORDERED: &str = "scripts with rows of one instant in another order";
const DIFFERENT: &str = "scripts with other rows";
const REFUSED: &str = "scripts that ours refuses";
const SEED: u64 = 1_000_000;
const FULL: usize = 13_000;
const QUICK: usize = 650;
