//! `thalweg tokens`: what programs show over HTTP instead of a user's password.

use std::path::{Path, PathBuf};

use access::{Access, Token};
use base::{Clock, HumanDuration, SystemClock};
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::segment;
use super::{Client, Failure, out};
use crate::folder::DataFolder;

#[derive(Subcommand)]
pub enum Command {
    /// List the tokens; nobody can tell them themselves again.
    List {
        /// Only those of this user.
        #[arg(long)]
        user: Option<String>,
    },
    /// Issue a token of a user and print it, this once.
    #[command(after_help = ADD_HELP)]
    Add {
        /// The user whom it stands for.
        user: String,
        /// What it is for.
        #[arg(long, default_value = "")]
        description: String,
        /// How long it is good, such as 30d; "0s" is for ever.
        #[arg(long, value_name = "TIME", default_value = "90d")]
        expires_in: HumanDuration,
        /// Writes into this data folder instead, while no `up` runs on it.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Remove a token: whoever holds it is refused from now on.
    Remove {
        /// The token's id, as it is listed.
        id: String,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { user } => {
            let of_user = user.map_or(String::new(), |user| format!("?user={}", segment(&user)));
            let answer = client.get(&format!("/api/v1/tokens{of_user}")).await?;
            client.print_list(&answer, "tokens", &COLUMNS);
        }
        Command::Add {
            user,
            description,
            expires_in,
            data: Some(data),
        } => {
            let text = issue(&data, &user, &description, expires_in)?;
            out::line(text);
        }
        Command::Add {
            user,
            description,
            expires_in,
            data: None,
        } => {
            let body = json!({
                "user": user, "description": description, "expires_in": expires_in,
            });
            let request = client.request(Method::POST, "/api/v1/tokens").json(&body);
            let answer = client.send(request).await?;
            match answer["token"].as_str() {
                Some(token) if !client.wants_json() => out::line(token),
                _ => client.print_object(&answer),
            }
        }
        Command::Remove { id } => {
            let path = format!("/api/v1/tokens/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

/// Issues a token where no process does; answers its text.
fn issue(
    data: &Path,
    user: &str,
    description: &str,
    expires_in: HumanDuration,
) -> Result<String, Failure> {
    let folder =
        DataFolder::lock(data).map_err(|error| Failure::because("cannot start", &error))?;
    let because = |error| Failure::because("cannot issue the token", &error);
    let access = Access::open(&folder.path().join("access")).map_err(because)?;
    let good_for = Some(expires_in.0).filter(|time| !time.is_zero());
    let now = SystemClock.now();
    let (token, text) = Token::issue(user, description, now, good_for).map_err(because)?;
    access.add_token(token).map_err(because)?;
    Ok(text)
}

const COLUMNS: [(&str, &str); 5] = [
    ("ID", "id"),
    ("USER", "user"),
    ("DESCRIPTION", "description"),
    ("CREATED", "created_ms"),
    ("EXPIRES", "expires_ms"),
];

const ADD_HELP: &str = "\
Examples:
  thalweg tokens add ann --description 'the nightly job' > nightly.token
  thalweg topics list --token-file nightly.token";
