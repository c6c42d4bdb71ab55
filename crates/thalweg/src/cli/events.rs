//! `thalweg events`: what happened in the fleet.

use super::client::segment;
use super::{Client, Failure};

#[derive(clap::Args)]
pub struct Args {
    /// Only this level (`debug`, `info`, `warn`, `error`) and graver ones.
    #[arg(long)]
    level: Option<String>,
    /// Only of this class.
    #[arg(long)]
    class: Option<String>,
    /// Only of this agent.
    #[arg(long)]
    agent: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

pub async fn run(client: Client, args: Args) -> Result<(), Failure> {
    let mut path = format!("/api/v1/events?limit={}", args.limit);
    for (key, value) in [
        ("level", args.level),
        ("class", args.class),
        ("agent", args.agent),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{key}={}", segment(&value)));
        }
    }
    client.print_list(&client.get(&path).await?, "events", &EVENT_COLUMNS);
    Ok(())
}

const EVENT_COLUMNS: [(&str, &str); 5] = [
    ("AT", "at_ms"),
    ("LEVEL", "level"),
    ("KIND", "kind"),
    ("AGENT", "agent_id"),
    ("MESSAGE", "message"),
];
