//! `thalweg groups`: who reads what, how far behind they are, and where they are to go on.

use base::{Clock, HumanDuration, SystemClock};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::segment;
use super::topics::{SETTING_COLUMNS, changes, key_value};
use super::{Client, Failure, out, table};

#[derive(Subcommand)]
pub enum Command {
    /// List the consumer groups with their states.
    List,
    /// Show a group's members, and each partition's current offset, end offset and lag.
    #[command(after_help = DESCRIBE_HELP)]
    Describe {
        /// The group's name.
        group: String,
    },
    /// Have a group without members go on from other offsets; shows what would change unless
    /// --execute is given.
    #[command(after_help = RESET_HELP)]
    ResetOffsets(Box<Reset>),
    /// Change a group's settings, whether or not there is such a group yet.
    #[command(after_help = ALTER_HELP)]
    Alter {
        /// The group's name.
        group: String,
        /// A setting to change, such as consumer.session.timeout.ms=60000; repeat for more.
        #[arg(long = "config", value_name = "KEY=VALUE", value_parser = key_value)]
        configs: Vec<(String, String)>,
        /// A setting to give its default back; repeat for more.
        #[arg(long = "unset", value_name = "KEY")]
        unset: Vec<String>,
    },
    /// Delete a group without members, and with it what it committed.
    Delete {
        /// The group's name.
        group: String,
    },
}

#[derive(Args)]
pub struct Reset {
    /// The group's name.
    group: String,
    /// A topic, or some of its partitions: orders, orders:0,1, /path/stream:topic:0; repeat for
    /// more.
    #[arg(long = "topic", value_name = "TOPIC[:PARTITIONS]", value_parser = scope)]
    topics: Vec<Scope>,
    /// Every partition that the group has committed an offset for.
    #[arg(long, conflicts_with = "topics")]
    all_topics: bool,
    #[command(flatten)]
    to: To,
    /// Only shows what would change; the default.
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Changes it.
    #[arg(long)]
    execute: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct To {
    /// To the oldest record.
    #[arg(long)]
    to_earliest: bool,
    /// After the newest record.
    #[arg(long)]
    to_latest: bool,
    /// To where the group is, moved only into what the partition still holds.
    #[arg(long)]
    to_current: bool,
    /// To this offset, or the nearest that the partition has.
    #[arg(long, value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To the first record at or after this time, such as 2026-01-31T12:00:00Z (UTC when no zone
    /// is given).
    #[arg(long, value_name = "TIME", value_parser = datetime)]
    to_datetime: Option<i64>,
    /// To the first record that is not older than this, such as 90m, 1h, 7d or PT1H30M.
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    by_duration: Option<i64>,
    /// So many records further; back when negative.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

/// A topic, and which of its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Scope {
    topic: String,
    partitions: Option<Vec<i32>>,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let mut answer = client.get("/api/v1/groups").await?;
            if !client.wants_json() {
                count_members(&mut answer);
            }
            client.print_list(&answer, "groups", &COLUMNS);
        }
        Command::Describe { group } => {
            print_described(&client, &client.get(&path(&group)).await?);
        }
        Command::Alter {
            group,
            configs,
            unset,
        } => {
            let body = json!({"config": changes(configs, unset)});
            let request = client.request(Method::PATCH, &path(&group)).json(&body);
            match client.send(request).await? {
                Value::Null => {}
                described => print_described(&client, &described),
            }
        }
        Command::ResetOffsets(reset) => reset.run(&client).await?,
        Command::Delete { group } => {
            let request = client.request(Method::DELETE, &path(&group));
            client.send(request).await?;
        }
    }
    Ok(())
}

impl Reset {
    async fn run(&self, client: &Client) -> Result<(), Failure> {
        if self.topics.is_empty() && !self.all_topics {
            return Err(Failure(
                "name what to reset: --topic TOPIC, --topic TOPIC:0,1 or --all-topics".to_owned(),
            ));
        }
        let topics = self.topics.iter();
        let topics: Vec<Value> = topics
            .map(|scope| match &scope.partitions {
                Some(partitions) => json!({"topic": scope.topic, "partitions": partitions}),
                None => json!({"topic": scope.topic}),
            })
            .collect();
        let body = json!({
            "topics": topics,
            "all_topics": self.all_topics,
            "to": self.to.written(),
            "execute": self.execute,
        });
        let path = format!("{}/reset-offsets", path(&self.group));
        let request = client.request(Method::POST, &path).json(&body);
        let answer = client.send(request).await?;
        client.print_list(&answer, "offsets", &RESET_COLUMNS);
        if !self.execute {
            eprintln!("nothing was changed; add --execute to change it");
        }
        Ok(())
    }
}

impl To {
    /// The API's word for it; clap has seen to it that there is exactly one.
    fn written(&self) -> Value {
        let since = |ms: i64| SystemClock.now().0.saturating_sub(ms);
        let at = self.to_datetime.or(self.by_duration.map(since));
        if let Some(at) = at {
            json!({"at_ms": at})
        } else if let Some(offset) = self.to_offset {
            json!({"offset": offset})
        } else if let Some(by) = self.shift_by {
            json!({"shift": by})
        } else if self.to_earliest {
            json!("earliest")
        } else if self.to_latest {
            json!("latest")
        } else {
            json!("current")
        }
    }
}

/// The group's head line, its partitions, and the members that hold none.
fn print_described(client: &Client, group: &Value) {
    if client.wants_json() {
        client.print_object(group);
        return;
    }
    let text = |key: &str| group[key].as_str().unwrap_or_default().to_owned();
    let members = group["members"].as_array().map_or(&[][..], Vec::as_slice);
    let assignor = match &*text("assignor") {
        "" => String::new(),
        assignor => format!(", assignor {assignor}"),
    };
    out::line(format_args!(
        "group {} is {}: {}, protocol {}{assignor}, lag {}\n",
        text("group"),
        text("state"),
        table::plural(members.len() as u64, "member"),
        text("kind").to_lowercase(),
        group["lag_total"],
    ));
    client.print_list(group, "offsets", &OFFSET_COLUMNS);
    let idle: Vec<&Value> = members
        .iter()
        .filter(|member| member["partitions"].as_array().is_none_or(Vec::is_empty))
        .collect();
    if !idle.is_empty() {
        out::line("\nmembers without partitions:");
        client.print_list(&json!({"members": idle}), "members", &MEMBER_COLUMNS);
    }
    if members.is_empty() {
        out::line("\nthe group has no active members");
    }
    if group["config"].is_array() {
        out::line("");
        client.print_list(group, "config", &SETTING_COLUMNS);
    }
}

fn count_members(answer: &mut Value) {
    for group in answer["groups"].as_array_mut().into_iter().flatten() {
        group["members"] = Value::from(group["members"].as_array().map_or(0, Vec::len));
    }
}

/// Reads `topic`, `topic:0,1`, and the same of a stream path, which has a colon of its own.
fn scope(text: &str) -> Result<Scope, String> {
    let whole = || Scope {
        topic: text.to_owned(),
        partitions: None,
    };
    let colons = text.matches(':').count();
    let own = usize::from(text.starts_with('/'));
    if colons <= own {
        return Ok(whole());
    }
    let Some((topic, list)) = text.rsplit_once(':') else {
        return Ok(whole());
    };
    let partitions: Result<Vec<i32>, _> = list.split(',').map(|n| n.trim().parse()).collect();
    let partitions = partitions
        .map_err(|_| format!("'{list}' is no list of partitions: write TOPIC or TOPIC:0,1"))?;
    Ok(Scope {
        topic: topic.to_owned(),
        partitions: Some(partitions),
    })
}

fn datetime(text: &str) -> Result<i64, String> {
    let parse = base::parse_rfc3339;
    let midnight = || parse(&format!("{text}T00:00:00Z"));
    parse(text)
        .or_else(|| parse(&format!("{text}Z")))
        .or_else(midnight)
        .ok_or_else(|| format!("'{text}' is no time: write 2026-01-31T12:00:00Z"))
}

/// Reads `90m` as everywhere, and `P1DT2H30M` as Kafka's tools take it.
fn duration_ms(text: &str) -> Result<i64, String> {
    let unreadable = || format!("'{text}' is no duration: write 90m, 1h, 7d or PT1H30M");
    let Some(rest) = text.strip_prefix('P') else {
        let duration: HumanDuration = text.parse().map_err(|_| unreadable())?;
        return i64::try_from(duration.0.as_millis()).map_err(|_| unreadable());
    };
    let (days, time) = rest.split_once('T').unwrap_or((rest, ""));
    let mut ms = 0_i64;
    for (part, units) in [
        (days, &[('W', 604_800_000), ('D', 86_400_000)][..]),
        (time, &[('H', 3_600_000), ('M', 60_000), ('S', 1_000)][..]),
    ] {
        let mut digits = String::new();
        for letter in part.chars() {
            if letter.is_ascii_digit() {
                digits.push(letter);
                continue;
            }
            let unit = units.iter().find(|(name, _)| *name == letter);
            let (Some((_, unit)), Ok(count)) = (unit, digits.parse::<i64>()) else {
                return Err(unreadable());
            };
            let more = count
                .checked_mul(*unit)
                .and_then(|more| ms.checked_add(more));
            ms = more.ok_or_else(unreadable)?;
            digits.clear();
        }
        if !digits.is_empty() {
            return Err(unreadable());
        }
    }
    match rest.is_empty() {
        true => Err(unreadable()),
        false => Ok(ms),
    }
}

fn path(group: &str) -> String {
    format!("/api/v1/groups/{}", segment(group))
}

const COLUMNS: [(&str, &str); 4] = [
    ("GROUP", "group"),
    ("STATE", "state"),
    ("PROTOCOL TYPE", "protocol_type"),
    ("MEMBERS", "members"),
];

const OFFSET_COLUMNS: [(&str, &str); 8] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT OFFSET", "current"),
    ("END OFFSET", "end"),
    ("LAG", "lag"),
    ("MEMBER", "member_id"),
    ("HOST", "host"),
    ("CLIENT", "client_id"),
];

const MEMBER_COLUMNS: [(&str, &str); 3] = [
    ("MEMBER", "member_id"),
    ("HOST", "host"),
    ("CLIENT", "client_id"),
];

const RESET_COLUMNS: [(&str, &str); 4] = [
    ("TOPIC", "topic"),
    ("PARTITION", "partition"),
    ("CURRENT OFFSET", "from"),
    ("NEW OFFSET", "to"),
];

const ALTER_HELP: &str = "\
Examples:
  thalweg groups alter billing --config consumer.session.timeout.ms=60000
  thalweg groups alter billing --config consumer.heartbeat.interval.ms=10000 --unset consumer.session.timeout.ms
They are of members of the newer protocol (group.protocol=consumer), who follow with their next heartbeats.";

const DESCRIBE_HELP: &str = "\
Examples:
  thalweg groups describe billing
  thalweg groups describe billing --output json | jq .lag_total";

const RESET_HELP: &str = "\
Examples:
  thalweg groups reset-offsets billing --topic orders --to-earliest
  thalweg groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
  thalweg groups reset-offsets billing --all-topics --by-duration 1h --execute
  thalweg groups reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00:00Z --execute
The group's members must have stopped: they would commit their own offsets over the new ones.";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, topic: &str, partitions: Option<&[i32]>) {
        let read = scope(text).unwrap();
        assert_eq!(read.topic, topic);
        assert_eq!(read.partitions.as_deref(), partitions, "{text}");
    }

    #[test]
    fn a_scope_names_a_topic_and_perhaps_partitions() {
        check("orders", "orders", None);
        check("orders:0,1", "orders", Some(&[0, 1]));
        check("/path/stream:topic", "/path/stream:topic", None);
        check("/path/stream:topic:3", "/path/stream:topic", Some(&[3]));
        assert!(scope("orders:a").is_err());
    }

    #[test]
    fn durations_read_in_both_ways() {
        assert_eq!(duration_ms("90m"), Ok(5_400_000));
        assert_eq!(duration_ms("PT1H30M"), Ok(5_400_000));
        assert_eq!(duration_ms("P1DT1S"), Ok(86_401_000));
        for wrong in ["", "P", "PT5", "P5X", "soon", "P9223372036854775807W"] {
            assert!(duration_ms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_utc() {
        assert_eq!(datetime("1970-01-01T00:00:01"), Ok(1_000));
        assert_eq!(datetime("1970-01-01T00:00:01.5Z"), Ok(1_500));
        assert_eq!(datetime("1970-01-02"), Ok(86_400_000));
        assert!(datetime("yesterday").is_err());
    }
}
