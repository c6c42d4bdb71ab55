//! `thalweg users`: who may log in, at the Kafka listener and over HTTP.
//!
//! A password is never an argument, where every process of the machine could see it: it is typed,
//! piped in, or read from a file.

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use access::{Access, PasswordForm, UserChange};
use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::{Client, Failure};
use crate::folder::DataFolder;

#[derive(Subcommand)]
pub enum Command {
    /// List the users with their mechanisms.
    List,
    /// Add a user, or set the password of one; the password is asked for, or read from standard
    /// input.
    #[command(after_help = ADD_HELP)]
    Add {
        /// The user's name.
        name: String,
        /// File that holds the password in its first line.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// SCRAM-SHA-256, SCRAM-SHA-512 or ARGON2ID, may be repeated; all if not given. ARGON2ID is for
        /// HTTP and SASL's PLAIN, and alone makes a user without keys for SCRAM.
        #[arg(long = "mechanism", value_name = "MECHANISM")]
        mechanisms: Vec<String>,
        /// Writes into this data folder instead, while no `up` runs on it: for the first user.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Remove a user.
    Remove {
        /// The user's name.
        name: String,
        /// Writes into this data folder instead, while no `up` runs on it.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let mut answer = client.get("/api/v1/users").await?;
            if !client.wants_json() {
                shorten(&mut answer);
            }
            client.print_list(&answer, "users", &COLUMNS);
        }
        Command::Add {
            name,
            password_file,
            mechanisms,
            data,
        } => {
            let password = password(&name, password_file.as_deref(), "--password-file")?;
            if let Some(data) = data {
                return alter(&data, set(&name, &password, &mechanisms)?);
            }
            let body = json!({"password": password, "mechanisms": mechanisms});
            let path = format!("/api/v1/users/{}", segment(&name));
            client
                .send(client.request(Method::PUT, &path).json(&body))
                .await?;
        }
        Command::Remove { name, data } => {
            if let Some(data) = data {
                return alter(&data, vec![UserChange::Remove(name, None)]);
            }
            let path = format!("/api/v1/users/{}", segment(&name));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

/// Changes users where no process does.
fn alter(data: &Path, changes: Vec<UserChange>) -> Result<(), Failure> {
    let folder =
        DataFolder::lock(data).map_err(|error| Failure::because("cannot start", &error))?;
    let because = |error| Failure::because("cannot change the users", &error);
    let access = Access::open(&folder.path().join("access")).map_err(because)?;
    access.alter_users(&changes).map_err(because)
}

fn set(name: &str, password: &str, mechanisms: &[String]) -> Result<Vec<UserChange>, Failure> {
    let refused = |error| Failure::because("cannot set the password", &error);
    let forms = mechanisms.iter().map(|mechanism| mechanism.parse());
    let forms: Vec<PasswordForm> = forms.collect::<Result<_, _>>().map_err(refused)?;
    let rounds = access::limits::ITERATIONS_MIN;
    PasswordForm::changes(&forms, name, password, rounds).map_err(refused)
}

/// Reads the password's line from where the caller has it; `option` is the one that names its file.
pub(super) fn password(name: &str, file: Option<&Path>, option: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| match file {
        Some(path) => {
            let what = format!("cannot read the password in {}", path.display());
            Failure::because(&what, &error)
        }
        None => Failure::because("cannot read the password", &error),
    };
    let mut line = String::new();
    let stdin = std::io::stdin();
    match file {
        Some(path) if path.as_os_str() != "-" => {
            let file = std::fs::File::open(path).map_err(failed)?;
            std::io::BufReader::new(file)
                .read_line(&mut line)
                .map_err(failed)?;
        }
        _ if stdin.is_terminal() => {
            eprint!("password of {name}: ");
            std::io::stderr().flush().map_err(failed)?;
            let silenced = show_typing(false);
            let read = stdin.lock().read_line(&mut line);
            if silenced {
                // The terminal shows what is typed again, whatever was read.
                show_typing(true);
            }
            eprintln!();
            read.map_err(failed)?;
        }
        _ => {
            stdin.lock().read_line(&mut line).map_err(failed)?;
        }
    }
    let password = line.trim_end_matches(['\n', '\r']);
    if password.is_empty() {
        let place = match file {
            Some(path) => path.display().to_string(),
            None => format!("the standard input; name its file with {option}"),
        };
        let text = format!("there is no password in the first line of {place}");
        return Err(Failure(text));
    }
    Ok(password.to_owned())
}

/// Has the terminal show what is typed, or not; false when it would not.
fn show_typing(show: bool) -> bool {
    let mut stty = std::process::Command::new("stty");
    stty.arg(if show { "echo" } else { "-echo" });
    stty.status().is_ok_and(|status| status.success())
}

/// Makes a table's cell of each user's credentials.
fn shorten(answer: &mut Value) {
    for user in answer["users"].as_array_mut().into_iter().flatten() {
        let credentials = user["credentials"].as_array();
        let names: Vec<&str> = credentials
            .into_iter()
            .flatten()
            .filter_map(|credential| credential["mechanism"].as_str())
            .collect();
        user["credentials"] = Value::from(names.join(", "));
    }
}

const COLUMNS: [(&str, &str); 2] = [("USER", "name"), ("MECHANISMS", "credentials")];

const ADD_HELP: &str = "\
Examples:
  thalweg users add ann
  thalweg users add ann --password-file ann.password
  thalweg users add root --data /var/lib/thalweg
The last one is for the first user, before `up` runs.";
