//! A bridge's connection: made anew whenever it breaks, ever more slowly while nobody answers.
//!
//! Every connection begins with what the one before had not delivered, but for a message over which
//! they end one after the other ([`crate::bridge::suspect`]). The client library frames and pings in
//! a task of its own; this one decides.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Filter, Packet, PubAckReason, Publish, RetainForwardRule, SubscribeReasonCode,
};
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use rumqttc::{Outgoing, TlsConfiguration, Transport};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::bridge::fit::Takes;
use crate::bridge::queue::Parcel;
use crate::bridge::suspect::{Blame, Suspects, UnderWay, Verdict};
use crate::bridge::{Bridge, properties, tls};
use crate::codec::Properties;
use crate::error::MqttError;
use crate::limits::{
    BRIDGE_BATCH, BRIDGE_EVENTS_MAX, BRIDGE_IN_FLIGHT_MAX, BRIDGE_PAUSE_MAX, BRIDGE_PAUSE_MIN,
    BRIDGE_QUIET,
};
use crate::message::{Message, Qos};
use crate::server::Server;
use crate::topic::TopicName;

/// Keeps a connection until `stop`.
pub(super) async fn run(bridge: Arc<Bridge>, server: Server, stop: CancellationToken) {
    let mut pause = BRIDGE_PAUSE_MIN;
    let mut suspects = Suspects::default();
    loop {
        let connects = bridge.connects.load(Ordering::Relaxed);
        let ended = tokio::select! {
            ended = connected(&bridge, &server, &suspects) => ended,
            () = stop.cancelled() => return,
        };
        bridge.is_connected.store(false, Ordering::Relaxed);
        let verdict = suspects.ended(bridge.clock.now(), ended.under_way, ended.broken.blame);
        if verdict == Verdict::SetAside {
            set_aside(&bridge, &ended);
        }
        bridge.queue.rewind();
        // Who refuses one message is asked more slowly too.
        if bridge.connects.load(Ordering::Relaxed) > connects && verdict != Verdict::Counted {
            pause = BRIDGE_PAUSE_MIN;
        }
        let (name, address) = (&bridge.config.name, &bridge.config.address);
        {
            // Told once for each new problem, not at each try.
            let mut problem = bridge.problem.lock();
            if *problem != ended.broken.problem {
                tracing::warn!(
                    bridge = name,
                    address,
                    problem = ended.broken.problem,
                    "a bridge is not connected"
                );
                *problem = ended.broken.problem;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = (2 * pause).min(BRIDGE_PAUSE_MAX);
    }
}

/// Gives up the message that was alone under way.
fn set_aside(bridge: &Bridge, ended: &Ended) {
    let Some(under_way) = ended.under_way else {
        return;
    };
    tracing::error!(
        bridge = bridge.config.name,
        topic = ended.last_topic,
        bytes = under_way.alone_bytes,
        problem = ended.broken.problem,
        "a message is set aside: the other server ended every connection over it"
    );
    bridge.set_aside.fetch_add(1, Ordering::Relaxed);
    bridge.queue.done(under_way.first);
}

/// Why a connection ended.
struct Broken {
    problem: String,
    blame: Blame,
}

impl From<String> for Broken {
    fn from(problem: String) -> Self {
        Broken {
            problem,
            blame: Blame::Nobody,
        }
    }
}

/// What a connection left behind.
struct Ended {
    broken: Broken,
    under_way: Option<UnderWay>,
    /// The topic of the message that was sent last.
    last_topic: String,
}

/// One connection, to its end.
async fn connected(bridge: &Bridge, server: &Server, suspects: &Suspects) -> Ended {
    let options = match options(bridge).await {
        Ok(options) => options,
        Err(problem) => {
            return Ended {
                broken: problem.into(),
                under_way: None,
                last_topic: String::new(),
            };
        }
    };
    let (client, events) = AsyncClient::new(options, REQUESTS_MAX);
    let (tell, told) = mpsc::channel(BRIDGE_EVENTS_MAX);
    let task = AbortOnDrop(tokio::spawn(poll(events, tell)));
    let mut link = Link {
        bridge,
        server,
        client,
        told,
        early: VecDeque::new(),
        unnamed: VecDeque::new(),
        in_flight: HashMap::new(),
        is_in: false,
        quiet: None,
        takes: Takes::default(),
        suspects,
        last: (String::new(), 0),
    };
    let broken = link.drive().await;
    drop(task);
    Ended {
        broken,
        under_way: link.under_way(),
        last_topic: link.last.0,
    }
}

async fn options(bridge: &Bridge) -> Result<MqttOptions, String> {
    let config = &bridge.config;
    let address = config.address().map_err(str::to_owned)?;
    let mut options = MqttOptions::new(&bridge.client_id, address.host, address.port);
    options.set_clean_start(false);
    options.set_keep_alive(config.keep_alive.0);
    options.set_manual_acks(true);
    options.set_outgoing_inflight_upper_limit(BRIDGE_IN_FLIGHT_MAX);
    options.set_receive_maximum(Some(BRIDGE_IN_FLIGHT_MAX));
    options.set_connection_timeout(CONNECT_WAIT.as_secs());
    let expiry = u32::try_from(config.session_expiry.0.as_secs()).unwrap_or(u32::MAX);
    options.set_session_expiry_interval(Some(expiry));
    let bytes_max = bridge.packet_bytes_max.saturating_add(1_024);
    options.set_max_packet_size(Some(u32::try_from(bytes_max).unwrap_or(u32::MAX)));
    if let Some(user) = &config.username {
        let mut password = String::new();
        if let Some(path) = &config.password_file {
            let read = tokio::fs::read_to_string(path).await;
            let text =
                read.map_err(|error| format!("password_file = {}: {error}", path.display()))?;
            text.lines()
                .next()
                .unwrap_or_default()
                .clone_into(&mut password);
        }
        options.set_credentials(user, password);
    }
    options.set_transport(match address.is_tls {
        true => {
            let tls = tls::client_config(config)?;
            Transport::tls_with_config(TlsConfiguration::Rustls(tls))
        }
        false => Transport::tcp(),
    });
    Ok(options)
}

/// Drives the client until it breaks.
async fn poll(mut events: EventLoop, tell: mpsc::Sender<Result<Event, Broken>>) {
    loop {
        let event = events.poll().await.map_err(|error| Broken {
            problem: base::report(&error),
            blame: Blame::of(&error),
        });
        if event.is_err() {
            // What was sent and what came before it broke is known to the client still. Messages are
            // not: nothing can be acknowledged any more, and they come again.
            for known in events.state.events.drain(..) {
                let is_told = matches!(
                    known,
                    Event::Outgoing(Outgoing::Publish(_))
                        | Event::Incoming(Packet::PubAck(_) | Packet::Disconnect(_))
                );
                if is_told && tell.send(Ok(known)).await.is_err() {
                    return;
                }
            }
        }
        let is_over = event.is_err();
        // A full queue holds the other server back: nothing is read before there is room.
        if tell.send(event).await.is_err() || is_over {
            return;
        }
    }
}

struct Link<'b> {
    bridge: &'b Bridge,
    server: &'b Server,
    client: AsyncClient,
    told: mpsc::Receiver<Result<Event, Broken>>,
    /// Events that had to be taken before their turn.
    early: VecDeque<Result<Event, Broken>>,
    /// Numbers of messages that were given to the client, which has not said under which packet
    /// identifier they go.
    unnamed: VecDeque<u64>,
    /// Numbers by packet identifier.
    in_flight: HashMap<u16, u64>,
    /// The other server has taken us in.
    is_in: bool,
    /// Until when it has not stood for a while yet.
    quiet: Option<Instant>,
    takes: Takes,
    suspects: &'b Suspects,
    /// Topic and packet bytes of the message that was given to the client last.
    last: (String, usize),
}

impl Link<'_> {
    async fn drive(&mut self) -> Broken {
        loop {
            if self.is_in
                && let Err(problem) = self.send()
            {
                return self.cause(problem);
            }
            let (bridge, quiet) = (self.bridge, self.quiet);
            let event = match self.early.pop_front() {
                Some(event) => Some(event),
                None => tokio::select! {
                    event = self.told.recv() => event,
                    () = bridge.queue.wake.notified(), if self.is_in => continue,
                    () = sleep_until(quiet.unwrap_or_else(Instant::now)), if quiet.is_some() => {
                        self.quiet = None;
                        continue;
                    }
                },
            };
            let handled = match event {
                Some(Ok(Event::Incoming(Packet::Publish(publish)))) => self.take(publish).await,
                Some(Ok(event)) => match self.handle(event) {
                    Ok(handled) => handled,
                    Err(broken) => return broken,
                },
                Some(Err(broken)) => return broken,
                None => Err("the client ended".to_owned()),
            };
            if let Err(problem) = handled {
                return self.cause(problem);
            }
        }
    }

    /// Why the connection ended, where something that is impossible since was noticed first.
    fn cause(&mut self, noticed: String) -> Broken {
        while let Some(event) = self.next_told() {
            let handled = match event {
                // It comes again.
                Ok(Event::Incoming(Packet::Publish(_))) => continue,
                Ok(event) => self.handle(event).map(drop),
                Err(broken) => Err(broken),
            };
            if let Err(broken) = handled {
                return broken;
            }
        }
        noticed.into()
    }

    fn next_told(&mut self) -> Option<Result<Event, Broken>> {
        let early = self.early.pop_front();
        early.or_else(|| self.told.try_recv().ok())
    }

    /// Numbers of what the other server has not acknowledged.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        self.in_flight.values().chain(&self.unnamed).copied()
    }

    fn under_way(&self) -> Option<UnderWay> {
        let is_alone_and_sent = self.in_flight.len() == 1 && self.unnamed.is_empty();
        Some(UnderWay {
            first: self.numbers().min()?,
            last: self.numbers().max()?,
            alone_bytes: is_alone_and_sent.then_some(self.last.1),
        })
    }

    /// Gives the client what waits, as much as may be under way.
    fn send(&mut self) -> Result<(), String> {
        let bridge = self.bridge;
        loop {
            let count = self.unnamed.len() + self.in_flight.len();
            let goes_alone = |number| self.suspects.goes_alone(number);
            // One that goes alone is the only one until it is acknowledged.
            let is_held = count == 1 && self.numbers().any(goes_alone);
            if is_held || count >= usize::from(BRIDGE_IN_FLIGHT_MAX) {
                return Ok(());
            }
            let is_quiet = self.quiet.is_some();
            let may = |number| match goes_alone(number) {
                true => count == 0 && !(is_quiet && self.suspects.needs_quiet(number)),
                false => true,
            };
            let next = bridge.queue.next(may);
            let Some((number, parcel)) = next.map_err(|error| base::report(&error))? else {
                return Ok(());
            };
            self.post(number, parcel)?;
        }
    }

    fn post(&mut self, number: u64, parcel: Parcel) -> Result<(), String> {
        let (bridge, now) = (self.bridge, self.bridge.clock.now());
        let stored = Properties::stored(&parcel.properties);
        if parcel.expires.is_some_and(|at| at <= now) {
            bridge.refused.fetch_add(1, Ordering::Relaxed);
            bridge.queue.done(number);
            return Ok(());
        }
        let properties = properties::outgoing(&stored, &bridge.id, parcel.expires, now);
        let topic = parcel.topic.clone();
        let publish = match self.takes.fit(parcel, properties) {
            Ok(publish) => publish,
            Err(problem) => {
                let bridge_name = &bridge.config.name;
                tracing::warn!(
                    bridge = bridge_name,
                    topic,
                    problem,
                    "a message is given up"
                );
                *bridge.problem.lock() = problem;
                bridge.refused.fetch_add(1, Ordering::Relaxed);
                bridge.queue.done(number);
                return Ok(());
            }
        };
        self.last = (topic.clone(), publish.size());
        let posted = self.client.try_publish_with_properties(
            topic,
            publish.qos,
            publish.retain,
            publish.payload,
            publish.properties.unwrap_or_default(),
        );
        posted.map_err(|error| format!("the client takes no message: {error}"))?;
        self.unnamed.push_back(number);
        Ok(())
    }

    /// Takes an event that is no message. The inner error is one of ours, the outer one tells why the
    /// connection ends.
    fn handle(&mut self, event: Event) -> Result<Result<(), String>, Broken> {
        let bridge = self.bridge;
        match event {
            Event::Incoming(Packet::ConnAck(ack)) => {
                let bytes_max = self.suspects.packet_bytes_max(bridge.clock.now());
                self.takes = Takes::told_by(&ack).at_most(bytes_max);
                return Ok(self.enter());
            }
            Event::Incoming(Packet::SubAck(ack)) => {
                let is_granted =
                    |code: &SubscribeReasonCode| matches!(code, SubscribeReasonCode::Success(_));
                if let Some(code) = ack.return_codes.iter().find(|code| !is_granted(code)) {
                    let problem = format!("the other server refuses a subscription: {code:?}");
                    tracing::warn!(
                        bridge = bridge.config.name,
                        problem,
                        "a bridge lacks a way in"
                    );
                    *bridge.problem.lock() = problem;
                }
            }
            Event::Incoming(Packet::PubAck(ack)) => {
                let Some(number) = self.in_flight.remove(&ack.pkid) else {
                    return Ok(Ok(()));
                };
                let is_taken = matches!(
                    ack.reason,
                    PubAckReason::Success | PubAckReason::NoMatchingSubscribers
                );
                let counter = if is_taken {
                    &bridge.sent
                } else {
                    &bridge.refused
                };
                counter.fetch_add(1, Ordering::Relaxed);
                if !is_taken {
                    let (bridge, reason) = (&bridge.config.name, ack.reason);
                    tracing::warn!(bridge, ?reason, "the other server refuses a message");
                }
                bridge.queue.done(number);
            }
            Event::Incoming(Packet::Disconnect(goodbye)) => {
                let reason = goodbye.reason_code;
                return Err(Broken {
                    problem: format!("the other server ends the connection: {reason:?}"),
                    blame: Blame::of_reason(reason),
                });
            }
            Event::Outgoing(Outgoing::Publish(id)) => {
                let Some(number) = self.unnamed.pop_front() else {
                    return Ok(Ok(()));
                };
                if id == 0 {
                    bridge.sent.fetch_add(1, Ordering::Relaxed);
                    bridge.queue.done(number);
                } else {
                    self.in_flight.insert(id, number);
                }
            }
            _ => {}
        }
        Ok(Ok(()))
    }

    /// The other server has taken us in: asks for what comes from there.
    fn enter(&mut self) -> Result<(), String> {
        let bridge = self.bridge;
        self.is_in = true;
        self.quiet = Some(Instant::now() + BRIDGE_QUIET);
        bridge.is_connected.store(true, Ordering::Relaxed);
        bridge.connects.fetch_add(1, Ordering::Relaxed);
        let mut topics = bridge.config.topics.iter();
        let lacks = match topics.any(|topic| topic.goes_out()) {
            true => self.takes.lacks(),
            false => "",
        };
        lacks.clone_into(&mut bridge.problem.lock());
        tracing::info!(bridge = bridge.config.name, lacks, "a bridge is connected");
        let wanted: Vec<Filter> = bridge
            .config
            .topics
            .iter()
            .filter(|topic| topic.comes_in())
            .map(|topic| {
                let filter = topic.remote_filter();
                let path = match &topic.share {
                    Some(group) => format!("$share/{group}/{filter}"),
                    None => filter,
                };
                Filter {
                    path,
                    qos: match topic.qos {
                        0 => QoS::AtMostOnce,
                        _ => QoS::AtLeastOnce,
                    },
                    // Not allowed of shared ones (MQTT-3.8.3-4).
                    nolocal: topic.share.is_none(),
                    preserve_retain: true,
                    retain_forward_rule: RetainForwardRule::OnNewSubscribe,
                }
            })
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let asked = self.client.try_subscribe_many(wanted);
        asked.map_err(|error| format!("the client takes no subscription: {error}"))
    }

    /// Publishes here what came, and what came with it, and acknowledges it when it is stored.
    async fn take(&mut self, first: Publish) -> Result<(), String> {
        let mut batch = vec![first];
        let mut others = Vec::new();
        while batch.len() < BRIDGE_BATCH {
            match self.next_told() {
                Some(Ok(Event::Incoming(Packet::Publish(publish)))) => batch.push(publish),
                Some(other) => others.push(other),
                None => break,
            }
        }
        let taken = self.store(&batch, &mut others).await;
        for other in others.into_iter().rev() {
            self.early.push_front(other);
        }
        taken
    }

    /// Publishes a batch here and acknowledges it; what is told meanwhile comes into `others`.
    async fn store(
        &mut self,
        batch: &[Publish],
        others: &mut Vec<Result<Event, Broken>>,
    ) -> Result<(), String> {
        let mut is_acknowledged = false;
        for publish in batch {
            is_acknowledged |= publish.qos != QoS::AtMostOnce;
            self.publish(publish).await?;
        }
        if is_acknowledged {
            let stored = self.server.all_stored().await;
            stored.map_err(|error| base::report(&error))?;
        }
        let client = self.client.clone();
        for publish in batch {
            let acknowledged = client.ack(publish);
            tokio::pin!(acknowledged);
            // While events wait to be taken the client sends nothing: they are taken meanwhile.
            loop {
                tokio::select! {
                    sent = &mut acknowledged => {
                        sent.map_err(|error| format!("the client ended: {error}"))?;
                        break;
                    }
                    Some(other) = self.told.recv(), if others.len() < BRIDGE_EVENTS_MAX => {
                        others.push(other);
                    }
                }
            }
        }
        Ok(())
    }

    async fn publish(&self, publish: &Publish) -> Result<(), String> {
        let bridge = self.bridge;
        let there = String::from_utf8_lossy(&publish.topic);
        let topics = bridge.config.topics.iter().filter(|topic| topic.comes_in());
        let here = topics.clone().find_map(|topic| topic.to_local(&there));
        let Some(here) = here.and_then(|topic| topic.parse::<TopicName>().ok()) else {
            // Of a subscription of an older configuration, or too long with its prefix.
            bridge.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let came = publish.properties.clone().unwrap_or_default();
        let block = properties::incoming(&came, &bridge.id, &bridge.config.name);
        let Some(block) = block else {
            bridge.looped.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        let now = bridge.clock.now();
        let expires = came
            .message_expiry_interval
            .map(|seconds| now + Duration::from_secs(u64::from(seconds)));
        let message = Message {
            topic: here.as_str(),
            payload: &publish.payload,
            qos: match publish.qos {
                QoS::AtMostOnce => Qos::AtMostOnce,
                _ => Qos::AtLeastOnce,
            },
            received: now,
            expires,
            properties: Properties::stored(&block),
            ..Message::default()
        };
        loop {
            match self.server.publish_message(&message, publish.retain) {
                Ok(()) => {
                    bridge.received.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(MqttError::Busy) => self.server.room(&here).await,
                Err(error @ (MqttError::TooLarge { .. } | MqttError::RetainedFull { .. })) => {
                    let (bridge, error) = (&bridge.config.name, base::report(&error));
                    tracing::warn!(bridge, error, "a message of a bridge is refused");
                    self.bridge.refused.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => return Err(base::report(&error)),
            }
        }
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Requests that the client holds before it sends them: all that may be under way, with the
/// acknowledgements of a batch and a subscription.
const REQUESTS_MAX: usize = BRIDGE_IN_FLIGHT_MAX as usize + BRIDGE_BATCH + 1;
/// How long a connection may take to stand.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
