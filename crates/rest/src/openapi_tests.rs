//! The documents about the API against the API: the OpenAPI document and the conformance table name
//! every route, and what the table names as proof is there and proves it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::Value;
use tower::ServiceExt;

use crate::RestConfig;
use crate::openapi::DOCUMENT;
use crate::routes::paths;
use crate::tests::Proxy;

/// The methods of every path, by the path.
type Routes = BTreeMap<String, BTreeSet<String>>;

/// The routes, by what a path answers to a method that none has.
async fn routes() -> Routes {
    let proxy = Proxy::open(RestConfig::default());
    let mut routes = Routes::new();
    for path in paths().all {
        let uri = path.replace(['{', '}'], "");
        let request = Request::builder().method("BREW").uri(uri);
        let request = request.body(Body::empty()).unwrap();
        let response = proxy.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 405, "{path}");
        let allowed = response.headers().get(header::ALLOW).unwrap();
        let methods = allowed.to_str().unwrap().split(',').map(str::trim);
        let methods = methods.filter(|method| *method != "HEAD");
        routes.insert(path, methods.map(str::to_owned).collect());
    }
    routes
}

#[tokio::test]
async fn the_openapi_document_names_every_route() {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let documented = document["paths"].as_object().unwrap().iter();
    let documented = documented.map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys();
        (path.clone(), methods.map(|m| m.to_uppercase()).collect())
    });
    let documented: Routes = documented.collect();
    assert_eq!(documented, routes().await);
}

#[tokio::test]
async fn the_openapi_document_is_served() {
    let proxy = Proxy::open(RestConfig::default());
    for path in ["/openapi.json", "/openapi", "/openapi/v3"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let (status, media, body) = proxy.send(request).await;
        assert_eq!(
            (status, media.as_str()),
            (200, "application/json"),
            "{path}"
        );
        assert_eq!(body, DOCUMENT);
    }
}

#[tokio::test]
async fn the_conformance_table_names_every_route() {
    let mut missing = routes().await;
    for row in rows("Endpoints") {
        let [call, _, proof, ..] = &row[..] else {
            panic!("{row:?} has too few cells");
        };
        let (method, path) = call.trim_matches('`').split_once(' ').unwrap();
        let methods = missing.get_mut(path);
        let methods = methods.unwrap_or_else(|| panic!("{path} is no route"));
        methods.remove(method);
        for name in proofs(proof) {
            if name.ends_with(".txt") {
                assert!(calls(&exchange(&name), method, path), "{name}: no {call}");
            }
        }
    }
    missing.retain(|_, methods| !methods.is_empty());
    assert!(missing.is_empty(), "no rows for {missing:?}");
}

#[test]
fn the_conformance_table_proves_its_formats_and_error_codes() {
    for row in rows("Formats") {
        proofs(row.last().unwrap());
    }
    let mut codes = BTreeSet::new();
    for row in rows("Error codes") {
        let [code, _, proof] = &row[..] else {
            panic!("{row:?} has not three cells");
        };
        let code: u32 = code.parse().unwrap();
        assert!(codes.insert(code), "{code} has two rows");
        if proof.starts_with("cannot occur:") {
            continue;
        }
        for name in proofs(proof) {
            if name.ends_with(".txt") {
                let told = format!("\"error_code\":{code},");
                assert!(exchange(&name).contains(&told), "{name} has no {code}");
            }
        }
    }
    let source = include_str!("error.rs");
    let code = |word: &str| word.parse::<u32>().ok().filter(|code| *code >= 40_000);
    let words = source.split(|letter: char| !letter.is_ascii_alphanumeric());
    for code in words.filter_map(code) {
        assert!(codes.contains(&code), "no row for {code}");
    }
}

/// What a row names as proof: exchange files and tests, each of which must be there.
fn proofs(cell: &str) -> Vec<String> {
    let names: Vec<String> = cell
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    assert!(!names.is_empty(), "'{cell}' names no proof");
    for name in &names {
        let found = match name.ends_with(".txt") {
            true => !exchange(name).is_empty(),
            false => sources().iter().any(|s| s.contains(&format!("fn {name}("))),
        };
        assert!(found, "there is no {name}");
    }
    names
}

/// Whether a file has a request of this method whose path fits the template.
fn calls(exchange: &str, method: &str, template: &str) -> bool {
    let requests = exchange.lines().filter_map(|line| line.strip_prefix("> "));
    let mut paths = requests.filter_map(|line| line.strip_prefix(method)?.strip_prefix(' '));
    paths.any(|path| {
        let path = path.split('?').next().unwrap_or_default();
        let (path, template) = (path.trim_matches('/'), template.trim_matches('/'));
        let (mut parts, mut wanted) = (path.split('/'), template.split('/'));
        parts.clone().count() == wanted.clone().count()
            && wanted.all(|wanted| {
                let part = parts.next().unwrap_or_default();
                // A parameter may have text behind it.
                match wanted.strip_prefix('{') {
                    Some(_) => part != "-" && !part.contains(':'),
                    None => part == wanted,
                }
            })
    })
}

/// The rows of the table under a heading of the conformance page, as cells.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(repository().join("docs/rest-conformance.md")).unwrap();
    let heading = format!("## {heading}");
    let section = page.lines().skip_while(|line| *line != heading).skip(1);
    let section = section.take_while(|line| !line.starts_with("## "));
    let lines = section.filter(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> = lines
        .skip(2)
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect();
    assert!(!rows.is_empty(), "{heading} has no rows");
    rows
}

fn exchange(name: &str) -> String {
    let path = folder().join("exchanges").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The sources in which tests are.
fn sources() -> Vec<String> {
    let mut folders = vec![
        folder().join("src"),
        repository().join("crates/thalweg/tests/whole"),
    ];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    sources
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
