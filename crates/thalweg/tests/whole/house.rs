//! The house: which crate may use which. The table here is the one that holds; a new edge is a
//! decision, written down in `docs/decisions/` first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, MetadataCommand};

use crate::harness::files_below;

/// A crate, and the crates of ours that it may use.
const EDGES: [(&str, &[&str]); 15] = [
    ("base", &[]),
    ("journal", &["base"]),
    ("access", &["base"]),
    ("sql", &["base"]),
    ("c2", &["base"]),
    ("streams", &["base", "journal", "access"]),
    ("mqtt", &["base", "journal", "access"]),
    ("rest", &["base", "access", "streams"]),
    ("fusion", &["base", "journal", "streams", "mqtt"]),
    ("fleet", &["base", "access", "sql", "c2", "streams"]),
    ("imports", &["base", "sql", "streams"]),
    ("agent", &["base", "journal", "access", "c2"]),
    (
        "thalweg",
        &[
            "base", "journal", "access", "sql", "c2", "streams", "mqtt", "rest", "fusion", "fleet",
            "imports", "agent",
        ],
    ),
    ("lab", &["base"]),
    ("fuzz", &[]),
];

#[test]
fn crates_use_only_the_floors_below_them() {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.into_iter().collect();
    let metadata = MetadataCommand::new()
        .manifest_path(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .no_deps()
        .exec()
        .unwrap();
    let ours: Vec<String> = metadata
        .packages
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    assert!(ours.len() >= 13, "the workspace lost crates: {ours:?}");
    for package in &metadata.packages {
        let name = package.name.to_string();
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate {name} has no row in the table of edges"));
        for dependency in &package.dependencies {
            // Tests and examples may look further; what ships may not.
            if dependency.kind != DependencyKind::Normal || !ours.contains(&dependency.name) {
                continue;
            }
            assert!(
                allowed.contains(&dependency.name.as_str()),
                "{name} uses {}, which the house does not allow",
                dependency.name
            );
        }
    }
}

#[test]
fn every_folder_is_named_as_its_crate() {
    for entry in std::fs::read_dir(crate::harness::repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let folder = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(
            manifest.contains(&format!("name = \"{folder}\"")),
            "{folder}"
        );
    }
}

#[test]
fn every_source_file_opens_with_what_it_is_for() {
    let mut seen = 0;
    for path in files_below(&crate::harness::repository().join("crates")) {
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("//!"),
            "{} opens without a //! head",
            path.display()
        );
        for mark in ["todo!(", "dbg!(", "unimplemented!("] {
            let quoted = format!("\"{mark}\"");
            assert!(
                !text.contains(mark) || text.contains(&quoted),
                "{} holds {mark}",
                path.display()
            );
        }
        seen += 1;
    }
    assert!(seen > 50, "only {seen} files were looked at");
}

/// All targets are built together, so that what tests alone have of a library is there for the product
/// too. It must not use that: it is built without it elsewhere.
#[test]
fn what_libraries_have_for_tests_alone_the_product_does_not_use() {
    let crates = crate::harness::repository().join("crates");
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        let (_, dev) = manifest
            .split_once("[dev-dependencies]")
            .unwrap_or_default();
        let features = dev
            .lines()
            .filter_map(|line| line.split_once("features = ["));
        for (_, features) in features {
            let known = ["\"test-util\"] }", "\"test-servers\"] }", "\"util\"] }"];
            let named = path.display();
            assert!(known.contains(&features), "{named}: is {features} here?");
        }
        sources.extend(files_below(&path.join("src")));
    }
    for path in &sources {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_test = path.to_string_lossy().contains("test");
        for mark in [
            "time::pause(",
            "time::advance(",
            "time::resume(",
            "sql::test_",
            "sql::upgrade_",
        ] {
            let is_used = product.contains(mark) && !is_test;
            assert!(!is_used, "{} uses {mark}", path.display());
        }
    }
    let seen = sources.len();
    assert!(seen > 50, "only {seen} files were looked at");
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let root = crate::harness::repository();
    let mut pages = BTreeMap::new();
    for folder in ["", "docs", "docs/decisions", "fuzz"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "md") {
                pages.insert(
                    path.canonicalize().unwrap(),
                    std::fs::read_to_string(&path).unwrap(),
                );
            }
        }
    }
    let mut followed = 0;
    for (page, text) in &pages {
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains([':', ' ', '"'])) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => page.clone(),
                file => page.with_file_name(file),
            };
            let place = format!("{}: {target}", page.display());
            let path = path
                .canonicalize()
                .unwrap_or_else(|_| panic!("{place} is not there"));
            if !heading.is_empty() {
                let mut headings = pages[&path].lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|line| anchor(line) == heading),
                    "{place} has no such heading"
                );
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "only {followed} links were followed");
}

#[test]
fn every_file_that_the_map_names_is_there() {
    let root = crate::harness::repository();
    let map = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let mut named = 0;
    for row in map.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let sources = root
            .join("crates")
            .join(cells[2].trim_matches('`'))
            .join("src");
        if !sources.is_dir() {
            continue;
        }
        let words = cells[4].split('`').skip(1).step_by(2);
        for word in words.filter(|word| word.ends_with(".rs") || word.ends_with('/')) {
            assert!(
                is_below(&sources, word),
                "ARCHITECTURE.md names {word}, which is nowhere in {}",
                sources.display()
            );
            named += 1;
        }
    }
    assert!(named > 150, "only {named} files are named");
}

/// Whether a file or a folder of that name is in `folder`, or in one inside of it.
fn is_below(folder: &Path, name: &str) -> bool {
    let mut inside = std::fs::read_dir(folder).unwrap().flatten();
    folder.join(name).exists()
        || inside.any(|entry| entry.path().is_dir() && is_below(&entry.path(), name))
}

#[test]
fn every_dependency_has_its_reason() {
    let root = crate::harness::repository();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let reasons = std::fs::read_to_string(root.join("docs/dependencies.md")).unwrap();
    let is_of_name = |c: char| c.is_alphanumeric() || "-_".contains(c);
    let given: BTreeSet<&str> = reasons.split(|c: char| !is_of_name(c)).collect();
    let (_, of_others) = manifest.split_once("# Others").unwrap();
    let (of_others, _) = of_others.split_once("\n[").unwrap();
    let names = of_others.lines().filter_map(|line| line.split_once(" = "));
    let missing: Vec<&str> = names
        .map(|(name, _)| name)
        .filter(|name| !given.contains(name))
        .collect();
    assert!(missing.is_empty(), "docs/dependencies.md lacks {missing:?}");
}

/// What a link calls a heading.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}
