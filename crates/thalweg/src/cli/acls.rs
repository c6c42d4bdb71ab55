//! `thalweg acls`: who may do what to topics, groups, transactional ids and the cluster.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value};

use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// List the ACLs.
    List,
    /// Allow, or deny, something.
    #[command(after_help = ADD_HELP)]
    Add(Box<Fields>),
    /// Remove the ACLs that have everything that is given.
    Remove(Box<Fields>),
}

/// What an ACL says.
#[derive(clap::Args)]
pub struct Fields {
    /// Who: a user's name, or User:NAME; * is everybody, TENANT/* everybody of a tenant.
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// What: read, write, create, delete, alter, describe, describe-configs, alter-configs,
    /// idempotent-write, all.
    #[arg(long, value_name = "OPERATION")]
    operation: Option<String>,
    /// To this topic; * is every one.
    #[arg(long, value_name = "TOPIC", group = "resource")]
    topic: Option<String>,
    /// To this consumer group; * is every one.
    #[arg(long, value_name = "GROUP", group = "resource")]
    group: Option<String>,
    /// To this transactional id; * is every one.
    #[arg(long, value_name = "ID", group = "resource")]
    transactional_id: Option<String>,
    /// To the MQTT topics of this filter, in which %c and %u as whole levels are the client's id and
    /// the user's name; read is to receive, write to publish, describe to subscribe.
    #[arg(
        long,
        value_name = "FILTER",
        group = "resource",
        conflicts_with = "prefixed"
    )]
    mqtt_topic: Option<String>,
    /// To the cluster.
    #[arg(long, group = "resource")]
    cluster: bool,
    /// The name is the beginning of names.
    #[arg(long)]
    prefixed: bool,
    /// From this address only.
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Denies instead of allowing.
    #[arg(long)]
    deny: bool,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let answer = client.get("/api/v1/acls").await?;
            client.print_list(&answer, "acls", &COLUMNS);
        }
        Command::Add(fields) => {
            let body = fields.written();
            let says = |key: &str| body.contains_key(key);
            if !["principal", "operation", "resource_type"]
                .into_iter()
                .all(says)
            {
                return Err(Failure(INCOMPLETE.to_owned()));
            }
            let request = client.request(Method::POST, "/api/v1/acls").json(&body);
            client.print_object(&client.send(request).await?);
        }
        Command::Remove(fields) => {
            let query = fields.written();
            let request = client.request(Method::DELETE, "/api/v1/acls").query(&query);
            let removed = client.send(request).await?;
            client.print_list(&removed, "acls", &COLUMNS);
        }
    }
    Ok(())
}

impl Fields {
    fn written(&self) -> Map<String, Value> {
        let mut written = Map::new();
        let mut put = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                written.insert(key.to_owned(), Value::from(value));
            }
        };
        let resources = [
            ("TOPIC", self.topic.clone()),
            ("GROUP", self.group.clone()),
            ("TRANSACTIONAL_ID", self.transactional_id.clone()),
            ("MQTT_TOPIC", self.mqtt_topic.clone()),
            ("CLUSTER", self.cluster.then(|| access::CLUSTER.to_owned())),
        ];
        if let Some((kind, name)) = resources.into_iter().find(|(_, name)| name.is_some()) {
            put("resource_type", Some(kind.to_owned()));
            put("resource_name", name);
        }
        let pattern = self.prefixed.then(|| "PREFIXED".to_owned());
        put("pattern_type", pattern);
        let principal = self.user.as_ref().map(|user| match user.contains(':') {
            true => user.clone(),
            false => format!("User:{user}"),
        });
        put("principal", principal);
        put("host", self.host.clone());
        put("operation", self.operation.clone());
        put("permission", self.deny.then(|| "DENY".to_owned()));
        written
    }
}

const COLUMNS: [(&str, &str); 7] = [
    ("PRINCIPAL", "principal"),
    ("HOST", "host"),
    ("PERMISSION", "permission"),
    ("OPERATION", "operation"),
    ("RESOURCE", "resource_type"),
    ("NAME", "resource_name"),
    ("PATTERN", "pattern_type"),
];

const ADD_HELP: &str = "\
Examples:
  thalweg acls add --user ann --operation read --topic orders
  thalweg acls add --user ann --operation read --group billing
  thalweg acls add --user bob --operation write --topic plant- --prefixed
  thalweg acls add --user '*' --operation read --mqtt-topic 'public/#'";

const INCOMPLETE: &str = "say who (--user), what (--operation) and to what (--topic, --group, \
    --transactional-id, --mqtt-topic or --cluster)";
