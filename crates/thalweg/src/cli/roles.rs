//! `thalweg roles`: what callers of the management API may do, and in which classes of agents;
//! `thalweg audit`: what they did.

use std::path::{Path, PathBuf};

use access::{Access, Grant, Principal};
use clap::Subcommand;
use reqwest::Method;
use serde_json::json;

use super::client::segment;
use super::{Client, Failure};
use crate::folder::DataFolder;

#[derive(Subcommand)]
pub enum Command {
    /// List the roles that were granted; those of the configuration are not among them.
    List,
    /// Grant somebody a role.
    #[command(after_help = GRANT_HELP)]
    Grant(Given),
    /// Take a role back.
    Revoke(Given),
    /// Tell who you are and which roles you have.
    Me,
}

/// A role of somebody.
#[derive(clap::Args)]
pub struct Given {
    /// Who, such as User:ann, or User:acme/* for everybody of a tenant.
    principal: Principal,
    /// viewer, designer or operator, for one class with :CLASS behind it; administrator; or importer,
    /// for one tenant with :TENANT behind it.
    role: Grant,
    /// Writes into this data folder instead, while no `up` runs on it: for the first administrator.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Show who changed what by the management API, newest first.
#[derive(clap::Args)]
pub struct AuditArgs {
    /// Only what this caller did, such as User:ann.
    #[arg(long)]
    principal: Option<String>,
    /// Only what was done to this class.
    #[arg(long)]
    class: Option<String>,
    /// At most so many entries.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// Those before a page before, by what its JSON has as `next`.
    #[arg(long, value_name = "NEXT")]
    before: Option<String>,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let answer = client.get("/api/v1/roles").await?;
            client.print_list(&answer, "roles", &COLUMNS);
        }
        Command::Grant(given) => {
            let Given {
                principal,
                role,
                data,
            } = given;
            if let Some(data) = data {
                let grant = |access: &Access| access.grant(principal, role);
                return alter(&data, grant);
            }
            let mut body = json!({"principal": principal, "role": role.role()});
            if let Some(class) = role.class() {
                body["class"] = json!(class);
            }
            if let Some(tenant) = role.tenant() {
                body["tenant"] = json!(tenant);
            }
            let request = client.request(Method::POST, "/api/v1/roles").json(&body);
            client.send(request).await?;
        }
        Command::Revoke(given) => {
            let Given {
                principal,
                role,
                data,
            } = given;
            if let Some(data) = data {
                return alter(&data, |access| access.revoke(&principal, &role));
            }
            let principal = segment(principal.as_str());
            let mut path = format!("/api/v1/roles?principal={principal}&role={}", role.role());
            if let Some(class) = role.class() {
                path.push_str(&format!("&class={}", segment(class)));
            }
            if let Some(tenant) = role.tenant() {
                path.push_str(&format!("&tenant={tenant}"));
            }
            client.send(client.request(Method::DELETE, &path)).await?;
        }
        Command::Me => client.print_object(&client.get("/api/v1/me").await?),
    }
    Ok(())
}

pub async fn audit(client: Client, args: AuditArgs) -> Result<(), Failure> {
    let mut path = format!("/api/v1/audit?limit={}", args.limit);
    let given = [
        ("principal", args.principal),
        ("class", args.class),
        ("before", args.before),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", segment(&value)));
        }
    }
    let answer = client.get(&path).await?;
    client.print_list(&answer, "entries", &ENTRIES);
    client.tell_next(&answer, "--before");
    Ok(())
}

/// Changes roles where no process does.
fn alter(
    data: &Path,
    change: impl FnOnce(&Access) -> Result<(), access::AccessError>,
) -> Result<(), Failure> {
    let folder =
        DataFolder::lock(data).map_err(|error| Failure::because("cannot start", &error))?;
    let because = |error| Failure::because("cannot change the roles", &error);
    let access = Access::open(&folder.path().join("access")).map_err(because)?;
    change(&access).map_err(because)
}

const COLUMNS: [(&str, &str); 4] = [
    ("WHO", "principal"),
    ("ROLE", "role"),
    ("CLASS", "class"),
    ("TENANT", "tenant"),
];

const ENTRIES: [(&str, &str); 7] = [
    ("AT", "at_ms"),
    ("WHO", "principal"),
    ("METHOD", "method"),
    ("PATH", "path"),
    ("CLASS", "class"),
    ("STATUS", "status"),
    ("DETAILS", "details"),
];

const GRANT_HELP: &str = "\
Examples:
  thalweg roles grant User:ann viewer
  thalweg roles grant User:bob operator:edge
  thalweg roles grant User:eve importer:acme
  thalweg roles grant User:root administrator --data /var/lib/thalweg
The last one is for the first administrator, before `up` runs.";
