//! `thalweg mqtt`: publishes and subscribes by the protocol itself, and looks after the server.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Subcommand;
use reqwest::Method;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Filter, Packet, PubAckReason, Publish, PublishProperties, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use serde_json::{Value, json};

use super::client::segment;
use super::{Client, Failure, out};

#[derive(Subcommand)]
pub enum Command {
    /// Publish a message, or one for each line of standard input.
    #[command(after_help = PUBLISH_HELP)]
    Publish(Box<PublishArgs>),
    /// Print messages as they come.
    #[command(after_help = SUBSCRIBE_HELP)]
    Subscribe(Box<SubscribeArgs>),
    /// List the clients and their sessions, or send one away.
    Clients {
        #[command(subcommand)]
        command: Option<ClientsCommand>,
    },
    /// List the retained messages.
    Retained {
        /// Only those of this filter.
        #[arg(default_value = "#")]
        filter: String,
        /// Clear them.
        #[arg(long)]
        clear: bool,
    },
    /// List what was refused last, the newest first.
    Refusals,
    /// List, add and remove connections to other brokers.
    #[command(subcommand)]
    Bridges(BridgesCommand),
    /// List, add and remove rules that map MQTT topics to topics of the event store, or back.
    #[command(subcommand)]
    Rules(RulesCommand),
}

#[derive(Subcommand)]
pub enum RulesCommand {
    /// List the rules and how they are.
    List,
    /// Add a rule; it is kept over restarts.
    #[command(after_help = RULE_HELP)]
    Add {
        /// Its name.
        name: String,
        /// Where messages come from: mqtt:FILTER or kafka:TOPIC.
        #[arg(long)]
        from: String,
        /// Where they go: kafka:TOPIC, with {1}, {2}, … for levels of the MQTT topic, or mqtt:TOPIC,
        /// with {key} for the record's key.
        #[arg(long)]
        to: String,
        /// The records' key, such as {2}; the MQTT topic if not given, "" for none.
        #[arg(long)]
        key: Option<String>,
        /// The quality of service out of the store.
        #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
        qos: Option<u8>,
        /// Have messages out of the store retained.
        #[arg(long)]
        retain: bool,
        /// The first records out of the store: "latest" or "earliest".
        #[arg(long)]
        start: Option<String>,
        /// The consumer group that keeps the position.
        #[arg(long)]
        group: Option<String>,
    },
    /// Remove a rule that was added.
    Remove {
        /// Its name.
        name: String,
    },
}

#[derive(Subcommand)]
pub enum ClientsCommand {
    /// List the clients and their sessions.
    List,
    /// End a client's connection; it may come again.
    Disconnect {
        /// Its client id.
        id: String,
        /// End its session too, with its subscriptions and what waits for it.
        #[arg(long)]
        forget: bool,
    },
}

#[derive(Subcommand)]
pub enum BridgesCommand {
    /// List the bridges and how they are.
    List,
    /// Add a bridge; it is kept over restarts.
    #[command(after_help = BRIDGE_HELP)]
    Add {
        /// File with its settings as JSON; - is standard input.
        file: PathBuf,
    },
    /// Remove a bridge that was added, and what waits for it.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Where the broker is and who we are there.
#[derive(clap::Args)]
pub struct Broker {
    /// The broker, as mqtt://host:port or mqtts://host:port; by default the MQTT port of the running
    /// server.
    #[arg(long, value_name = "URL")]
    broker: Option<String>,
    /// The client id.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The quality of service.
    #[arg(long, value_name = "0|1|2", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
}

#[derive(clap::Args)]
pub struct PublishArgs {
    /// The topic.
    topic: String,
    /// The payload; lines of standard input when neither this nor --file is given.
    #[arg(long, short, value_name = "TEXT", conflicts_with = "file")]
    message: Option<String>,
    /// File that is the payload; - is standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Have the server keep it for those who subscribe later; an empty one clears what it keeps.
    #[arg(long)]
    retain: bool,
    /// A user property; may be given again.
    #[arg(long = "property", value_name = "NAME=VALUE")]
    properties: Vec<String>,
    #[command(flatten)]
    broker: Broker,
}

#[derive(clap::Args)]
pub struct SubscribeArgs {
    /// The filters.
    #[arg(required = true)]
    filters: Vec<String>,
    /// Print the topic before each message.
    #[arg(long, short)]
    verbose: bool,
    /// End after this many messages.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Leave out what was retained before.
    #[arg(long)]
    no_retained: bool,
    #[command(flatten)]
    broker: Broker,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::Publish(args) => publish(&client, *args).await,
        Command::Subscribe(args) => {
            tokio::select! {
                followed = subscribe(&client, *args) => followed,
                _ = tokio::signal::ctrl_c() => Ok(()),
            }
        }
        Command::Clients {
            command: Some(ClientsCommand::Disconnect { id, forget }),
        } => {
            let session = if forget { "?session=end" } else { "" };
            let path = format!("/api/v1/mqtt/clients/{}{session}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
            Ok(())
        }
        Command::Clients { .. } => {
            let path = "/api/v1/mqtt/clients?limit=10000";
            let answer = client.get_all(path, "clients", "after").await?;
            client.print_list(&answer, "clients", &CLIENT_COLUMNS);
            Ok(())
        }
        Command::Retained { filter, clear } => retained(&client, &filter, clear).await,
        Command::Refusals => {
            let answer = client.get("/api/v1/mqtt/refusals").await?;
            client.print_list(&answer, "refusals", &REFUSAL_COLUMNS);
            Ok(())
        }
        Command::Bridges(command) => bridges(&client, command).await,
        Command::Rules(command) => rules(&client, command).await,
    }
}

async fn retained(client: &Client, filter: &str, clear: bool) -> Result<(), Failure> {
    let path = "/api/v1/mqtt/retained";
    let request = client
        .request(Method::GET, path)
        .query(&[("filter", filter), ("limit", "10000")]);
    let answer = client.send(request).await?;
    let has_more = answer["more"] == true;
    if !clear {
        client.print_list(&answer, "retained", &RETAINED_COLUMNS);
        if has_more && !client.wants_json() {
            eprintln!("there are more: name a filter that fewer topics have");
        }
        return Ok(());
    }
    let found = answer["retained"].as_array().map_or(&[][..], Vec::as_slice);
    for message in found {
        let body = json!({"topic": message["topic"], "text": "", "retain": true});
        let request = client.request(Method::POST, "/api/v1/mqtt/publish");
        client.send(request.json(&body)).await?;
    }
    if has_more {
        let text = format!("{} were cleared and more are left: call again", found.len());
        return Err(Failure(text));
    }
    Ok(())
}

async fn bridges(client: &Client, command: BridgesCommand) -> Result<(), Failure> {
    let path = "/api/v1/mqtt/bridges";
    match command {
        BridgesCommand::List => {
            let mut answer = client.get(path).await?;
            if let (false, Some(bridges)) = (client.wants_json(), answer["bridges"].as_array_mut())
            {
                for bridge in bridges {
                    bridge["name"] = bridge["config"]["name"].take();
                    bridge["address"] = bridge["config"]["address"].take();
                }
            }
            client.print_list(&answer, "bridges", &BRIDGE_COLUMNS);
        }
        BridgesCommand::Add { file } => {
            let text = super::read_file(&file)?;
            let config: Value = serde_json::from_slice(&text)
                .map_err(|error| Failure::because("the file is not JSON", &error))?;
            let request = client.request(Method::POST, path).json(&config);
            client.print_object(&client.send(request).await?);
        }
        BridgesCommand::Remove { name } => {
            let path = format!("{path}/{}", segment(&name));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

async fn rules(client: &Client, command: RulesCommand) -> Result<(), Failure> {
    let path = "/api/v1/mqtt/rules";
    match command {
        RulesCommand::List => {
            let answer = client.get(path).await?;
            client.print_list(&answer, "rules", &RULE_COLUMNS);
        }
        RulesCommand::Add {
            name,
            from,
            to,
            key,
            qos,
            retain,
            start,
            group,
        } => {
            let mut rule = json!({"name": name, "from": from, "to": to, "retain": retain});
            let given = [
                ("key", key.map(Value::from)),
                ("qos", qos.map(Value::from)),
                ("start", start.map(Value::from)),
                ("group", group.map(Value::from)),
            ];
            for (name, value) in given {
                if let Some(value) = value {
                    rule[name] = value;
                }
            }
            let request = client.request(Method::POST, path).json(&rule);
            client.print_object(&client.send(request).await?);
        }
        RulesCommand::Remove { name } => {
            let path = format!("{path}/{}", segment(&name));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

async fn publish(client: &Client, args: PublishArgs) -> Result<(), Failure> {
    let mut user_properties = Vec::new();
    for property in &args.properties {
        let Some((name, value)) = property.split_once('=') else {
            return Err(Failure(format!("write '{property}' as NAME=VALUE")));
        };
        user_properties.push((name.to_owned(), value.to_owned()));
    }
    let payloads: Box<dyn Iterator<Item = Result<Vec<u8>, Failure>>> =
        match (args.message, args.file) {
            (Some(text), _) => Box::new(std::iter::once(Ok(text.into_bytes()))),
            (None, Some(file)) => Box::new(std::iter::once(super::read_file(&file))),
            (None, None) => {
                if std::io::stdin().is_terminal() {
                    eprintln!("one message a line, Ctrl-D ends");
                }
                let lines = std::io::stdin().lines();
                let read = |line: std::io::Result<String>| {
                    line.map(String::into_bytes)
                        .map_err(|error| Failure::because("cannot read the lines", &error))
                };
                Box::new(lines.map(read))
            }
        };
    let qos = quality(args.broker.qos);
    let (mqtt, mut events) = connect(client, &args.broker).await?;
    let (mut sent, mut done) = (0_u64, 0_u64);
    for payload in payloads {
        let properties = PublishProperties {
            user_properties: user_properties.clone(),
            ..PublishProperties::default()
        };
        // The client refuses a topic that cannot be, without saying so.
        mqtt.try_publish_with_properties(&args.topic, qos, args.retain, payload?, properties)
            .map_err(|_| {
                let topic = &args.topic;
                Failure(format!(
                    "'{topic}' is no topic to publish to: + and # are for filters"
                ))
            })?;
        sent += 1;
        // One at a time: what is told is what the server has.
        while done < sent {
            done += u64::from(is_done(poll(&mut events).await?, qos)?);
        }
    }
    mqtt.try_disconnect()
        .map_err(|error| Failure::because("cannot say goodbye", &error))?;
    // Until the goodbye has left.
    let leaving = async {
        while let Ok(event) = events.poll().await {
            if matches!(event, Event::Outgoing(Outgoing::Disconnect)) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(CONNECT_WAIT, leaving).await;
    Ok(())
}

/// Whether the event ends a publish, as far as its quality promises.
fn is_done(event: Event, qos: QoS) -> Result<bool, Failure> {
    match event {
        Event::Outgoing(Outgoing::Publish(_)) => Ok(qos == QoS::AtMostOnce),
        Event::Incoming(Packet::PubAck(ack)) => match ack.reason {
            PubAckReason::Success | PubAckReason::NoMatchingSubscribers => Ok(true),
            reason => Err(Failure(format!(
                "the server refuses the message: {reason:?}"
            ))),
        },
        Event::Incoming(Packet::PubRec(received)) => {
            use rumqttc::v5::mqttbytes::v5::PubRecReason;
            match received.reason {
                PubRecReason::Success | PubRecReason::NoMatchingSubscribers => Ok(false),
                reason => Err(Failure(format!(
                    "the server refuses the message: {reason:?}"
                ))),
            }
        }
        Event::Incoming(Packet::PubComp(_)) => Ok(true),
        _ => Ok(false),
    }
}

async fn subscribe(client: &Client, args: SubscribeArgs) -> Result<(), Failure> {
    let (mqtt, mut events) = connect(client, &args.broker).await?;
    let filters: Vec<Filter> = args
        .filters
        .iter()
        .map(|filter| Filter::new(filter, quality(args.broker.qos)))
        .collect();
    // The client refuses a filter that cannot be, without saying so.
    mqtt.try_subscribe_many(filters).map_err(|_| {
        let filters = args.filters.join("' or '");
        Failure(format!(
            "'{filters}' is no filter: + stands for a whole level, # at the end for all further ones"
        ))
    })?;
    let mut left = args.max.unwrap_or(u64::MAX);
    while left > 0 {
        match poll(&mut events).await? {
            Event::Incoming(Packet::SubAck(ack)) => {
                let codes = ack.return_codes.iter().zip(&args.filters);
                for (code, filter) in codes {
                    if !matches!(code, SubscribeReasonCode::Success(_)) {
                        let text = format!("the server refuses the filter '{filter}': {code:?}");
                        return Err(Failure(text));
                    }
                }
            }
            Event::Incoming(Packet::Publish(message)) => {
                if message.retain && args.no_retained {
                    continue;
                }
                if !out::is_read(print(client.wants_json(), args.verbose, &message))? {
                    break;
                }
                left -= 1;
            }
            _ => {}
        }
    }
    // What was printed is acknowledged before we go.
    let _ = mqtt.try_disconnect();
    let leaving = async { while events.poll().await.is_ok() {} };
    let _ = tokio::time::timeout(GOODBYE_WAIT, leaving).await;
    Ok(())
}

fn print(as_json: bool, verbose: bool, message: &Publish) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let topic = String::from_utf8_lossy(&message.topic);
    if as_json {
        let mut shown = json!({
            "topic": topic,
            "qos": message.qos as u8,
            "retain": message.retain,
        });
        match std::str::from_utf8(&message.payload) {
            Ok(text) => shown["text"] = text.into(),
            Err(_) => shown["payload_base64"] = STANDARD.encode(&message.payload).into(),
        }
        if let Some(properties) = &message.properties
            && !properties.user_properties.is_empty()
        {
            shown["user_properties"] = json!(properties.user_properties);
        }
        writeln!(out, "{shown}")?;
    } else {
        if verbose {
            write!(out, "{topic} ")?;
        }
        out.write_all(&message.payload)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

async fn poll(events: &mut EventLoop) -> Result<Event, Failure> {
    match events.poll().await {
        Ok(Event::Incoming(Packet::Disconnect(goodbye))) => Err(Failure(format!(
            "the server ends the connection: {:?}",
            goodbye.reason_code
        ))),
        Ok(event) => Ok(event),
        Err(error) => Err(Failure::because("the connection failed", &error)),
    }
}

/// Connects, so that what comes next is known to be heard.
async fn connect(client: &Client, broker: &Broker) -> Result<(AsyncClient, EventLoop), Failure> {
    let url = match &broker.broker {
        Some(url) => url.clone(),
        None => own_broker(client).await?,
    };
    let form = || {
        Failure(format!(
            "write the broker '{url}' as mqtt://host:port or mqtts://host:port"
        ))
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
    let (is_tls, port) = match scheme {
        "mqtt" => (false, 1883),
        "mqtts" => (true, 8883),
        _ => return Err(form()),
    };
    let (host, port) = match rest.trim_end_matches('/').rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| form())?),
        None => (rest.trim_end_matches('/'), port),
    };
    let client_id = broker
        .client_id
        .clone()
        .unwrap_or_else(|| format!("thalweg-cli-{}", std::process::id()));
    let mut options = MqttOptions::new(client_id, host, port);
    options.set_clean_start(true);
    options.set_keep_alive(KEEP_ALIVE);
    options.set_connection_timeout(CONNECT_WAIT.as_secs());
    options.set_max_packet_size(Some(PACKET_BYTES_MAX));
    if let Some((user, password)) = client.credentials() {
        options.set_credentials(user, password);
    }
    options.set_transport(match is_tls {
        true => {
            let tls = Arc::new(client.tls_config()?);
            Transport::tls_with_config(TlsConfiguration::Rustls(tls))
        }
        false => Transport::tcp(),
    });
    let (mqtt, mut events) = AsyncClient::new(options, REQUESTS_MAX);
    loop {
        let event = poll(&mut events).await;
        let event = event.map_err(|failure| Failure(format!("{url}: {failure}")))?;
        if let Event::Incoming(Packet::ConnAck(_)) = event {
            return Ok((mqtt, events));
        }
    }
}

/// The MQTT port of the server that the management API is of, as it is reached from here.
async fn own_broker(client: &Client) -> Result<String, Failure> {
    let status = client.get("/api/v1/status").await?;
    let endpoints = &status["endpoints"];
    if let Some(address) = endpoints["mqtt"].as_str() {
        return Ok(format!("mqtt://{}", client.reachable(address)));
    }
    let missing =
        "the server runs no role mqtt; start `up` with it, or name a broker with --broker";
    Err(Failure(missing.to_owned()))
}

fn quality(qos: u8) -> QoS {
    match qos {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}

const CLIENT_COLUMNS: [(&str, &str); 8] = [
    ("CLIENT", "client_id"),
    ("USER", "user"),
    ("CONNECTED", "connected"),
    ("SUBSCRIPTIONS", "subscriptions"),
    ("QUEUED", "queued"),
    ("IN FLIGHT", "inflight"),
    ("SENT", "sent_total"),
    ("DROPPED", "dropped_total"),
];
const RETAINED_COLUMNS: [(&str, &str); 5] = [
    ("TOPIC", "topic"),
    ("QOS", "qos"),
    ("RECEIVED", "received_ms"),
    ("BYTES", "bytes"),
    ("TEXT", "text"),
];
const REFUSAL_COLUMNS: [(&str, &str); 7] = [
    ("WHEN", "at_ms"),
    ("CLIENT", "client_id"),
    ("USER", "user"),
    ("HOST", "host"),
    ("WHAT", "what"),
    ("TOPIC", "topic"),
    ("REASON", "reason"),
];
const BRIDGE_COLUMNS: [(&str, &str); 10] = [
    ("BRIDGE", "name"),
    ("ADDRESS", "address"),
    ("CONNECTED", "connected"),
    ("QUEUED", "queued"),
    ("SENT", "sent_total"),
    ("RECEIVED", "received_total"),
    ("DROPPED", "dropped_total"),
    ("SET ASIDE", "set_aside_total"),
    ("LOOPED", "looped_total"),
    ("PROBLEM", "problem"),
];
const RULE_COLUMNS: [(&str, &str); 9] = [
    ("RULE", "name"),
    ("FROM", "from"),
    ("TO", "to"),
    ("TAKEN", "taken_total"),
    ("PASSED", "passed_total"),
    ("WAITING", "waiting"),
    ("REFUSED", "refused_total"),
    ("LOOPED", "looped_total"),
    ("PROBLEM", "problem"),
];
/// How long a connection may take to stand, or a goodbye to leave.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long the last acknowledgements may take to leave.
const GOODBYE_WAIT: Duration = Duration::from_millis(300);
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Requests that the client holds before it sends them.
const REQUESTS_MAX: usize = 64;
/// Bytes: the largest packet taken.
const PACKET_BYTES_MAX: u32 = 64 << 20;

const PUBLISH_HELP: &str = "\
Examples:
  thalweg mqtt publish plant/1/t -m 21.5 --qos 1
  thalweg mqtt publish plant/1/state -m on --retain
  thalweg mqtt publish plant/1/image --file image.jpg --broker mqtt://broker.example.org:1883";

const SUBSCRIBE_HELP: &str = "\
Examples:
  thalweg mqtt subscribe 'plant/#' --verbose
  thalweg mqtt subscribe 'hosts/+/metrics' --max 2 --output json";

const RULE_HELP: &str = "\
Examples:
  thalweg mqtt rules add temperatures --from 'mqtt:plant/+/t' --to kafka:temperatures --key '{2}'
  thalweg mqtt rules add commands --from kafka:commands --to 'mqtt:commands/{key}' --qos 1";

const BRIDGE_HELP: &str = "\
Examples:
  thalweg mqtt bridges add cloud.json
with a file such as
  {\"name\": \"cloud\", \"address\": \"mqtts://broker.example.org:8883\",
   \"topics\": [{\"filter\": \"t/#\", \"direction\": \"out\"}]}";

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use axum::{Json, Router};

    use super::*;
    use crate::cli::{Output, Trust};

    #[tokio::test]
    async fn the_servers_own_broker_is_where_the_server_is() {
        let status = || async { Json(json!({"endpoints": {"mqtt": "0.0.0.0:1883"}})) };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/api/v1/status", get(status));
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let client = Client::new(Some(server), Output::Table, None, Trust::default()).unwrap();
        assert_eq!(own_broker(&client).await.unwrap(), "mqtt://127.0.0.1:1883");
    }
}
