//! `thalweg events`: what happened in the fleet.

use super::client::query;
use super::{Client, Failure};

#[derive(clap::Args)]
pub struct Args {
    /// Only this level (`debug`, `info`, `warn`, `error`) and graver ones.
    #[arg(long)]
    level: Option<String>,
    /// Only of this kind, such as agent-missing or rollout-halted.
    #[arg(long)]
    kind: Option<String>,
    /// Only of this class.
    #[arg(long)]
    class: Option<String>,
    /// Only of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Those before a page before, by what its JSON has as `next`.
    #[arg(long, value_name = "NEXT")]
    before: Option<String>,
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let wanted = [
        ("limit", Some(args.limit.to_string())),
        ("level", args.level),
        ("kind", args.kind),
        ("class", args.class),
        ("agent", args.agent),
        ("before", args.before),
    ];
    let path = format!("/api/v1/events{}", query(wanted));
    let answer = client.get(&path).await?;
    client.print_list(&answer, "events", &EVENT_COLUMNS);
    client.tell_next(&answer, "--before");
    Ok(())
}

const EVENT_COLUMNS: [(&str, &str); 5] = [
    ("AT", "at_ms"),
    ("LEVEL", "level"),
    ("KIND", "kind"),
    ("AGENT", "agent_id"),
    ("MESSAGE", "message"),
];
