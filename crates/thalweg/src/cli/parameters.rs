//! Parameters of agents, classes and flows: what the commands of all three have in common.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Map, Value, json};

use super::{Client, Failure};

/// What to change of parameters; nothing lists them.
#[derive(clap::Args)]
pub struct Change {
    /// Sets one.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Sets one that nobody is shown; its value is the first line of a file, `-` is standard input.
    #[arg(long, value_name = "NAME=FILE")]
    secret: Vec<String>,
    /// Removes one.
    #[arg(long, value_name = "NAME")]
    remove: Vec<String>,
}

/// Changes parameters, if there is anything to change, and prints them.
pub async fn run(client: &Client, path: &str, change: &Change) -> Result<(), Failure> {
    let mut wanted = Map::new();
    for text in &change.set {
        let (name, value) = pair(text)?;
        wanted.insert(name.to_owned(), json!({"value": value}));
    }
    for text in &change.secret {
        let (name, file) = pair(text)?;
        let bytes = super::read_file(&PathBuf::from(file))?;
        let text = String::from_utf8_lossy(&bytes);
        let value = text.lines().next().unwrap_or_default();
        wanted.insert(name.to_owned(), json!({"value": value, "sensitive": true}));
    }
    for name in &change.remove {
        wanted.insert(name.clone(), Value::Null);
    }
    let answer = if wanted.is_empty() {
        client.get(path).await?
    } else {
        let request = client.request(Method::PATCH, path).json(&wanted);
        client.send(request).await?
    };
    client.print_list(&answer, "parameters", &PARAMETER_COLUMNS);
    Ok(())
}

/// The two sides of `NAME=VALUE`.
pub fn pair(text: &str) -> Result<(&str, &str), Failure> {
    text.split_once('=')
        .ok_or_else(|| Failure(format!("write '{text}' as NAME=VALUE")))
}

const PARAMETER_COLUMNS: [(&str, &str); 4] = [
    ("PARAMETER", "name"),
    ("VALUE", "value"),
    ("SENSITIVE", "sensitive"),
    ("CHANGED", "changed_ms"),
];
