//! `thalweg statements functions`: WebAssembly modules whose functions statements call.

use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use crate::cli::client::segment;
use crate::cli::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// Add a module, or one in the place of one that cannot be used any more; statements call its
    /// functions as NAME.FUNCTION(…).
    #[command(after_help = ADD_HELP)]
    Add {
        /// What statements write before the dot: lower-case letters, digits and _.
        name: String,
        /// The module, as a file.
        file: PathBuf,
        /// A function that can be called, such as 'f(string, double?) -> long'; may be said again.
        /// Without any, all that take and give numbers.
        #[arg(long = "signature", value_name = "SIGNATURE")]
        signatures: Vec<String>,
    },
    /// List modules, their functions, and the statements that call them.
    List,
    /// Show one module.
    Show {
        /// The module's name.
        name: String,
    },
    /// Remove a module that no statement calls, or that cannot be used any more.
    Remove {
        /// The module's name.
        name: String,
    },
}

pub async fn run(client: &Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::Add {
            name,
            file,
            signatures,
        } => {
            let bytes = std::fs::read(&file)
                .map_err(|error| Failure::because(&file.display().to_string(), &error))?;
            let body = json!({
                "name": name,
                "module": STANDARD.encode(bytes),
                "signatures": signatures,
            });
            let request = client.request(Method::POST, ROOT).json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::List => {
            let answer = client.get(ROOT).await?;
            client.print_list(&answer, "modules", &COLUMNS);
        }
        Command::Show { name } => {
            client.print_object(&client.get(&format!("{ROOT}/{}", segment(&name))).await?);
        }
        Command::Remove { name } => {
            let path = format!("{ROOT}/{}", segment(&name));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

const ROOT: &str = "/api/v1/statement-functions";

const COLUMNS: [(&str, &str); 5] = [
    ("MODULE", "name"),
    ("BYTES", "module_bytes"),
    ("FUNCTIONS", "functions"),
    ("STATEMENTS", "statements"),
    ("ERROR", "error"),
];

const ADD_HELP: &str = "\
For example, a module of one function in Rust, built without imports:

  #[unsafe(no_mangle)]
  pub extern \"C\" fn dew_point(celsius: f64, humidity: f64) -> f64 { … }

  cargo build --release --target wasm32-unknown-unknown
  thalweg statements functions add air target/wasm32-unknown-unknown/release/air.wasm
  thalweg statements add 'SELECT air.dew_point(t, h) AS dew FROM mqtt.\"rooms/+\"'";
