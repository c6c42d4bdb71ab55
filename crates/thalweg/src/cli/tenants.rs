//! `thalweg tenants`: who uses the installation, and how much.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::import::JOB_COLUMNS;
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// List the tenants by name, each with its jobs and records.
    List,
    /// List the import jobs of one tenant, newest first.
    Show {
        /// The tenant's name.
        tenant: String,
    },
    /// Set how much of the imports' sink a tenant gets beside others.
    SetWeight {
        /// The tenant's name.
        tenant: String,
        /// From 1, which all have at first, to 1000.
        weight: u32,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let tenants = json!({"tenants": all(&client).await?});
            client.print_list(&tenants, "tenants", &COLUMNS);
        }
        Command::Show { tenant } => {
            let path = format!("/api/v1/imports?tenant={}", segment(&tenant));
            client.print_list(&client.get(&path).await?, "jobs", &JOB_COLUMNS);
        }
        Command::SetWeight { tenant, weight } => {
            let path = format!("/api/v1/tenants/{}", segment(&tenant));
            let request = client
                .request(Method::PUT, &path)
                .json(&json!({"weight": weight}));
            client.print_object(&client.send(request).await?);
        }
    }
    Ok(())
}

/// All tenants, page by page.
async fn all(client: &Client) -> Result<Vec<Value>, Failure> {
    let mut path = "/api/v1/tenants".to_owned();
    let mut tenants = Vec::new();
    loop {
        let mut page = client.get(&path).await?;
        if let Some(entries) = page["tenants"].as_array_mut() {
            tenants.append(entries);
        }
        let Some(last) = page["next"].as_str() else {
            return Ok(tenants);
        };
        path = format!("/api/v1/tenants?after={}", segment(last));
    }
}

const COLUMNS: [(&str, &str); 7] = [
    ("TENANT", "tenant"),
    ("WEIGHT", "weight"),
    ("JOBS", "jobs"),
    ("ACTIVE", "jobs_active"),
    ("DONE", "records_done"),
    ("REJECTED", "records_rejected"),
    ("BYTES", "bytes_done"),
];
