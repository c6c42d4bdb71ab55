//! `thalweg tenants`: for whom work is done, what each may use and what it uses.

use base::{ByteSize, Clock, HumanDuration, SystemClock};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::client::segment;
use super::{Client, Failure, out};

#[derive(Subcommand)]
pub enum Command {
    /// List the tenants by name.
    List,
    /// Show a tenant: weight, class, quotas, members.
    Show {
        /// The tenant's name.
        tenant: String,
    },
    /// Show what a tenant uses: rates, topics, and how far groups are behind.
    Usage {
        /// The tenant's name.
        tenant: String,
    },
    /// List requests that spoke for another tenant than their caller's, newest first.
    Refusals {
        /// The tenant's name.
        tenant: String,
    },
    /// Change a tenant, or keep a new one; what is not named stays as it is.
    #[command(after_help = SET_HELP)]
    Set(Box<Changes>),
    /// Take a tenant's records out of all topics, for good; others' stay.
    #[command(after_help = PURGE_HELP)]
    Purge {
        /// The tenant's name.
        tenant: String,
        /// Only those older than this, such as 30d.
        #[arg(long, value_name = "AGE", required_unless_present = "everything")]
        older_than: Option<HumanDuration>,
        /// All of them, with all that it has imported.
        #[arg(long, conflicts_with = "older_than")]
        everything: bool,
    },
    /// Forget a tenant; its records stay, see `purge`.
    Remove {
        /// The tenant's name.
        tenant: String,
    },
}

/// Quotas are numbers, or `none`.
#[derive(Args)]
pub struct Changes {
    /// The tenant's name: a-z, 0-9, '_' and '-'.
    tenant: String,
    /// Its share beside others, 1 to 1000.
    #[arg(long)]
    weight: Option<u32>,
    /// Whose turn its work is: foreground, interactive or bulk.
    #[arg(long)]
    class: Option<String>,
    /// Bytes a second that it may send, such as 10MiB.
    #[arg(long, value_name = "SIZE")]
    bytes_in: Option<String>,
    /// Bytes a second that it may read.
    #[arg(long, value_name = "SIZE")]
    bytes_out: Option<String>,
    /// Records a second that it may send.
    #[arg(long, value_name = "COUNT")]
    records: Option<String>,
    /// Requests with its records that may be under way.
    #[arg(long, value_name = "COUNT")]
    in_flight: Option<String>,
    /// Bytes of its records that may be kept.
    #[arg(long, value_name = "SIZE")]
    stored: Option<String>,
    /// Where its records are to go: a collection such as ALL, or own.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// How long its records are kept, such as 30d, or none for as long as its topics say.
    #[arg(long, value_name = "AGE")]
    retention: Option<String>,
    /// A caller who belongs to it, such as User:ann; all of them are to be named.
    #[arg(long = "member", value_name = "PRINCIPAL")]
    members: Vec<String>,
    /// Takes all members away.
    #[arg(long, conflicts_with = "members")]
    no_members: bool,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let all = client.get_all("/api/v1/tenants", "tenants", "after");
            let mut all = all.await?;
            if !client.wants_json()
                && let Some(tenants) = all["tenants"].as_array_mut()
            {
                tenants.iter_mut().for_each(flatten);
            }
            client.print_list(&all, "tenants", &COLUMNS);
        }
        Command::Show { tenant } => {
            let mut shown = client.get(&path_of(&tenant, "")).await?;
            if !client.wants_json() {
                flatten(&mut shown);
            }
            client.print_object(&shown);
        }
        Command::Usage { tenant } => {
            let used = client.get(&path_of(&tenant, "/usage")).await?;
            if !client.wants_json() {
                out::line(client.object_text(&figures(&used)));
            }
            client.print_list(&used, "topics", &TOPIC_COLUMNS);
            if !client.wants_json() {
                out::line("");
                client.print_list(&used, "backlog", &BACKLOG_COLUMNS);
            }
        }
        Command::Refusals { tenant } => {
            let refusals = client.get(&path_of(&tenant, "/refusals")).await?;
            client.print_list(&refusals, "refusals", &REFUSAL_COLUMNS);
        }
        Command::Set(changes) => {
            let body = changes.body()?;
            let request = client.request(Method::PUT, &path_of(&changes.tenant, ""));
            let mut told = client.send(request.json(&body)).await?;
            if !client.wants_json() {
                flatten(&mut told);
            }
            client.print_object(&told);
        }
        Command::Purge {
            tenant, older_than, ..
        } => {
            let before_ms = older_than.map(|age| SystemClock.now().0 - millis(age));
            let request = client.request(Method::POST, &path_of(&tenant, "/purge"));
            let purged = client
                .send(request.json(&json!({"before_ms": before_ms})))
                .await?;
            client.print_object(&purged);
        }
        Command::Remove { tenant } => {
            let request = client.request(Method::DELETE, &path_of(&tenant, ""));
            client.send(request).await?;
        }
    }
    Ok(())
}

impl Changes {
    fn body(&self) -> Result<Value, Failure> {
        let mut quotas = Map::new();
        let sizes = [
            ("bytes_in_per_second", "--bytes-in", &self.bytes_in),
            ("bytes_out_per_second", "--bytes-out", &self.bytes_out),
            ("stored_bytes", "--stored", &self.stored),
        ];
        for (key, option, text) in sizes {
            if let Some(text) = text {
                let size = |text: &str| text.parse::<ByteSize>().ok().map(|size| size.0);
                quotas.insert(key.to_owned(), quota(option, text, size)?);
            }
        }
        let counts = [
            ("records_per_second", "--records", &self.records),
            ("in_flight", "--in-flight", &self.in_flight),
        ];
        for (key, option, text) in counts {
            if let Some(text) = text {
                quotas.insert(
                    key.to_owned(),
                    quota(option, text, |text| text.parse().ok())?,
                );
            }
        }
        let mut body = json!({"quotas": quotas});
        if let Some(weight) = self.weight {
            body["weight"] = weight.into();
        }
        if let Some(class) = &self.class {
            body["class"] = class.as_str().into();
        }
        if let Some(retention) = &self.retention {
            let told = || Failure("--retention is a duration such as 30d, or none".to_owned());
            body["retention_ms"] = match retention.as_str() {
                "none" => Value::Null,
                age => millis(age.parse().map_err(|_| told())?).into(),
            };
        }
        if let Some(collection) = &self.collection {
            body["collection"] = match collection.as_str() {
                "own" => Value::Null,
                name => name.into(),
            };
        }
        if self.no_members || !self.members.is_empty() {
            body["members"] = json!(self.members);
        }
        Ok(body)
    }
}

fn millis(age: HumanDuration) -> i64 {
    i64::try_from(age.0.as_millis()).unwrap_or(i64::MAX)
}

fn quota(option: &str, text: &str, read: impl Fn(&str) -> Option<u64>) -> Result<Value, Failure> {
    if text == "none" {
        return Ok(Value::Null);
    }
    let read = read(text).map(Value::from);
    read.ok_or_else(|| {
        Failure(format!(
            "{option} is a number such as 5000, a size such as 10MiB, or none"
        ))
    })
}

fn path_of(tenant: &str, under: &str) -> String {
    format!("/api/v1/tenants/{}{under}", segment(tenant))
}

/// What a tenant uses but for topics and groups, for people.
fn figures(used: &Value) -> Value {
    let mut figures = Map::new();
    for (key, value) in used.as_object().into_iter().flatten() {
        match value {
            Value::Array(_) => {}
            _ if key == "now_ms" => {}
            Value::Object(parts) => {
                let parts = parts.iter();
                let name = |part: &str| match key.as_str() {
                    "totals" => format!("{part}_total"),
                    _ => part.to_owned(),
                };
                figures.extend(parts.map(|(part, value)| (name(part), value.clone())));
            }
            _ => drop(figures.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(figures)
}

/// Puts quotas beside the other fields, and members into one, for people.
fn flatten(tenant: &mut Value) {
    let quotas = tenant["quotas"].take();
    let members = tenant["members"].as_array().into_iter().flatten();
    let members: Vec<&str> = members.filter_map(Value::as_str).collect();
    let members = members.join(" ");
    let Some(fields) = tenant.as_object_mut() else {
        return;
    };
    fields.remove("quotas");
    fields.insert("members".to_owned(), members.into());
    for (key, value) in quotas.as_object().into_iter().flatten() {
        fields.insert(key.clone(), value.clone());
    }
}

const COLUMNS: [(&str, &str); 9] = [
    ("TENANT", "tenant"),
    ("WEIGHT", "weight"),
    ("CLASS", "class"),
    ("COLLECTION", "collection"),
    ("BYTES IN/s", "bytes_in_per_second"),
    ("BYTES OUT/s", "bytes_out_per_second"),
    ("RECORDS/s", "records_per_second"),
    ("STORED MAX", "stored_bytes"),
    ("MEMBERS", "members"),
];

const TOPIC_COLUMNS: [(&str, &str); 4] = [
    ("TOPIC", "topic"),
    ("RECORDS", "records"),
    ("BYTES", "bytes"),
    ("OLDEST", "oldest_ms"),
];

const BACKLOG_COLUMNS: [(&str, &str); 4] = [
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("BEHIND", "records"),
    ("OLDEST", "oldest_ms"),
];

const REFUSAL_COLUMNS: [(&str, &str); 6] = [
    ("AT", "at_ms"),
    ("PRINCIPAL", "principal"),
    ("HOST", "host"),
    ("PROTOCOL", "protocol"),
    ("CLAIMED", "claimed"),
    ("WHAT", "what"),
];

const PURGE_HELP: &str = "\
Examples:
  thalweg tenants purge diku --older-than 30d
  thalweg tenants purge diku --everything";

const SET_HELP: &str = "\
Examples:
  thalweg tenants set diku --weight 20 --member User:ann --member User:bob
  thalweg tenants set diku --bytes-in 10MiB --stored 50GiB --retention 30d
  thalweg tenants set diku --bytes-in none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_uses_is_told_flat() {
        let used = json!({
            "tenant": "diku", "now_ms": 1_764_000_000_000_u64, "wait_ms": 120,
            "rates": {"records_per_second": 10.5}, "totals": {"records": 7},
            "topics": [{"topic": "t"}], "backlog": [],
        });
        let expected = json!({
            "tenant": "diku", "wait_ms": 120, "records_per_second": 10.5, "records_total": 7,
        });
        assert_eq!(figures(&used), expected);
    }
}
