//! MARC files through the whole system, against independent readers: pymarc and YAZ.
//!
//! The file is the Library of Congress's "Books All" part 1 of 2016, 250,000 records, which pymarc's
//! source package carries; a part of it is imported.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Up, eventually, folder, succeed, test_env};

/// Records of the part that is imported.
const PART: usize = 5_000;

#[test]
fn three_formats_of_one_library_bring_what_pymarc_and_yaz_read() {
    let dir = folder();
    let part = part(dir.path(), 0, PART);
    let up = Up::start(&dir.path().join("data"));
    let twin = |format: &str, ending: &str| {
        let path = dir.path().join(format!("part.{ending}"));
        let mut yaz = Command::new("yaz-marcdump");
        yaz.args(["-i", "marc", "-o", format, "-f", "utf-8", "-t", "utf-8"]);
        std::fs::write(&path, succeed(yaz.arg(&part))).unwrap();
        path
    };
    let files = [
        ("marc", part.clone()),
        ("marcxml", twin("marcxml", "xml")),
        ("marcjson", twin("json", "json")),
    ];
    for (format, file) in &files {
        let job = import(&up, file, format, format);
        assert_eq!(job["records_done"], PART, "{job}");
        assert_eq!(job["records_rejected"], 0, "{format}: {job}");
        assert_eq!(
            against_pymarc(&up, format, &part),
            (PART, Vec::new()),
            "{format}"
        );
    }
    let iso = stored(&up, "marc");
    for twin in ["marcxml", "marcjson"] {
        for (id, body) in stored(&up, twin) {
            assert_eq!(body["fields"], iso[&id]["fields"], "{id} of {twin}");
        }
    }
}

#[test]
fn the_record_that_stops_other_readers_is_imported_with_its_neighbors() {
    let dir = folder();
    // Its leader is shifted: number 85,960 of the file.
    let part = part(dir.path(), 85_900, 86_000);
    let up = Up::start(&dir.path().join("data"));
    let job = import(&up, &part, "marc", "odd");
    assert_eq!(
        (&job["records_done"], &job["records_rejected"]),
        (&100.into(), &0.into()),
        "{job}"
    );
    assert_eq!(against_pymarc(&up, "odd", &part), (100, Vec::new()));
}

#[test]
fn marc_8_becomes_the_unicode_that_pymarc_makes_of_it() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    let file = marc_folder().join("marc8.dat");
    let job = import(&up, &file, "marc", "m8");
    let (count, differ) = against_pymarc(&up, "m8", &file);
    assert_eq!(job["records_done"].as_u64(), Some(count as u64), "{job}");
    assert_eq!(differ, Vec::<String>::new());
}

#[test]
fn files_of_bad_records_end_with_every_good_one_imported() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    for entry in std::fs::read_dir(marc_folder()).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let format = match name.rsplit('.').next() {
            Some("dat" | "mrc") => "marc",
            Some("xml") => "marcxml",
            Some("json") => "marcjson",
            _ => continue,
        };
        let tenant = format!("t-{}", name.replace(['.', '_'], "-").to_lowercase());
        let job = import(&up, &entry.path(), format, &tenant);
        let (done, rejected) = (&job["records_done"], &job["records_rejected"]);
        assert!(
            done.as_u64().unwrap() + rejected.as_u64().unwrap() > 0,
            "{name}: {job}"
        );
        let journal = up.get(&format!(
            "/api/v1/imports/{}/journal",
            job["id"].as_str().unwrap()
        ));
        let named = journal["entries"].as_array().unwrap().iter();
        let named = named.filter(|entry| entry["kind"] == "rejected").count();
        assert_eq!(
            named as u64,
            rejected.as_u64().unwrap(),
            "{name}: {journal}"
        );
    }
}

fn import(up: &Up, file: &Path, format: &str, tenant: &str) -> Value {
    let file = file.to_str().unwrap();
    up.cli_json(&["import", file, "--format", format, "--tenant", tenant])
}

/// How a tenant's records in the table differ from a file's as pymarc reads them: the number of
/// records that pymarc reads, and what differs. Texts are compared in one normal form, since pymarc
/// composes what it converts.
fn against_pymarc(up: &Up, tenant: &str, file: &Path) -> (usize, Vec<String>) {
    let mut compare = Command::new(test_env().join("venv/bin/python"));
    compare.args(["-c", AGAINST_PYMARC]).arg(file);
    compare
        .arg(up.data().join("imports/imports.db"))
        .arg(tenant);
    serde_json::from_str(&succeed(&mut compare)).unwrap()
}

const AGAINST_PYMARC: &str = "import json, pymarc, sqlite3, sys, unicodedata
normal = lambda texts: [(tag, unicodedata.normalize('NFC', text)) for tag, text in texts]
expected = {}
for record in pymarc.MARCReader(open(sys.argv[1], 'rb'), to_unicode=True):
    if record is None:
        continue
    texts = []
    for field in record:
        if field.is_control_field():
            texts.append((field.tag, field.data))
        else:
            texts += [(field.tag + s.code, s.value) for s in field.subfields]
    expected[record['001'].data.strip()] = normal(texts)
rows = sqlite3.connect(sys.argv[2]).execute(
    'select id, body from import_records where tenant = ?', (sys.argv[3],))
differ = []
for id, body in rows:
    texts = []
    for field in json.loads(body)['fields']:
        for tag, content in field.items():
            if isinstance(content, str):
                texts.append((tag, content))
            else:
                texts += [(tag + c, t) for s in content['subfields'] for c, t in s.items()]
    wanted = expected.pop(id, None)
    if wanted != normal(texts):
        differ.append(f'{id}: {texts} instead of {wanted}'[:2000])
differ += [f'{id} is missing' for id in expected]
count = sum(1 for r in pymarc.MARCReader(open(sys.argv[1], 'rb')) if r is not None)
print(json.dumps([count, differ]))";

/// The stored records of a tenant, by id.
fn stored(up: &Up, tenant: &str) -> BTreeMap<String, Value> {
    let mut rows = Command::new(test_env().join("venv/bin/python"));
    rows.args(["-c", ROWS])
        .arg(up.data().join("imports/imports.db"))
        .arg(tenant);
    serde_json::from_str(&succeed(&mut rows)).unwrap()
}

const ROWS: &str = "import sqlite3, sys, json
rows = sqlite3.connect(sys.argv[1]).execute(
    'select id, body from import_records where tenant = ?', (sys.argv[2],))
print(json.dumps({id: json.loads(body) for id, body in rows}))";

/// Some records of the library's file, by their numbers from zero, as a file.
pub fn part(folder: &Path, from: usize, to: usize) -> PathBuf {
    let file = std::fs::File::open(test_env().join("marc/books.mrc")).unwrap();
    let mut file = BufReader::new(file);
    let (mut part, mut record) = (Vec::new(), Vec::new());
    for number in 0..to {
        record.clear();
        file.read_until(0x1d, &mut record).unwrap();
        if number >= from {
            part.extend_from_slice(&record);
        }
    }
    let path = folder.join("part.mrc");
    std::fs::write(&path, part).unwrap();
    path
}

/// The damaged and odd files of pymarc's own tests.
fn marc_folder() -> PathBuf {
    test_env().join("marc/test")
}

/// Killed at random while three tenants import, the system ends with what the file has.
#[test]
fn killed_again_and_again_the_table_ends_as_the_file_and_progress_never_lies() {
    let dir = folder();
    let part = part(dir.path(), 0, 20_000);
    let mut up = Up::start(&dir.path().join("data"));
    let tenants = ["one", "two", "three"];
    let path = part.to_str().unwrap();
    let ids: Vec<String> = tenants
        .iter()
        .map(|tenant| {
            let job = up.cli_json(&["import", path, "--tenant", tenant, "--no-wait"]);
            job["id"].as_str().unwrap().to_owned()
        })
        .collect();
    let mut seen = vec![0; ids.len()];
    for kill in 0..8_u64 {
        let wanted = seen.iter().sum::<u64>() + 1_000 + kill * 700;
        eventually("the jobs get on", || {
            let mut total = 0;
            for (id, seen) in ids.iter().zip(&mut seen) {
                let job = up.get(&format!("/api/v1/imports/{id}"));
                let done = job["records_done"].as_u64()?;
                assert!(done >= *seen, "progress fell from {seen} to {done}");
                *seen = done;
                total += done;
            }
            (total >= wanted.min(60_000)).then_some(())
        });
        up.kill();
        up = up.start_again(&[]);
    }
    for id in &ids {
        let job = eventually("the job ends", || {
            let job = up.get(&format!("/api/v1/imports/{id}"));
            (job["state"] == "completed").then_some(job)
        });
        assert_eq!(job["records_done"], 20_000, "{job}");
    }
    for tenant in tenants {
        assert_eq!(
            against_pymarc(&up, tenant, &part),
            (20_000, Vec::new()),
            "{tenant}"
        );
        assert_eq!(
            up.records_in(&format!("imports-{tenant}")),
            20_000,
            "{tenant}"
        );
    }
}
