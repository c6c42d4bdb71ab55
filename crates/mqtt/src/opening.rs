//! The opening of a link: CONNECT, the login that may follow, and CONNACK.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::UnixMillis;
use bytes::Bytes;
use journal::JournalError;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::codec::{self, Connack, Connect, DecodeError, Packet, Version};
use crate::core::{Claim, Core, NotAttached};
use crate::gate::{Hello, Owner, Pass, Password};
use crate::limits::{CLIENT_ID_BYTES_MAX, TAKE_UP_WAIT, TOPIC_ALIASES_MAX};
use crate::link::{LinkEnd, Reader};
use crate::login::{Answer, Login};
use crate::mount::{Carried, Carrier};
use crate::reason::ReasonCode;
use crate::session::{LinkRef, Session};
use crate::topic::check_name;
use crate::will::Will;
use crate::wire::WriteHalf;

/// What a CONNECT leaves behind for the time of the link.
pub(crate) struct Opening {
    pub(crate) session: Arc<Session>,
    pub(crate) link: u64,
    pub(crate) version: Version,
    pub(crate) pass: Arc<dyn Pass>,
    pub(crate) login: Option<Login>,
    pub(crate) cancel: CancellationToken,
    pub(crate) cut: Arc<OnceLock<ReasonCode>>,
    pub(crate) keep_alive: Option<Duration>,
    /// The session's life as the CONNECT had it.
    pub(crate) expiry_s: u32,
}

/// Why a CONNECT is refused: what the client is told, and what the log says.
type Refusal = (ReasonCode, LinkEnd);

/// Reads the CONNECT and answers it. `allowed`: whether the peer may connect at all.
pub(crate) async fn open(
    reader: &mut Reader,
    write: &mut WriteHalf,
    allowed: Result<(), ReasonCode>,
) -> Result<Opening, LinkEnd> {
    let packet = match first_packet(reader).await {
        Ok(packet) => packet,
        Err(end) => return Err(end),
    };
    let frame = match codec::frame(&packet, usize::MAX) {
        Ok(Ok(frame)) => frame,
        _ => return Err(LinkEnd::Protocol("the first packet is no CONNECT")),
    };
    // Which form a refusal has, for a CONNECT that cannot be read.
    let speaks = match frame.body.get(6) {
        Some(level) if *level >= 5 => Version::V5,
        _ => Version::V311,
    };
    let (version, opened) = match codec::decode(speaks, frame) {
        Ok(Packet::Connect(connect)) => {
            let opened = admit(reader, write, &connect, allowed).await;
            (connect.version, opened)
        }
        Ok(_) => return Err(LinkEnd::Protocol("the first packet is no CONNECT")),
        Err(error @ DecodeError::UnsupportedVersion(_)) => {
            (speaks, Err((error.reason(), error.into())))
        }
        // Before 5.0 there is no word for it but the end of the link.
        Err(error) if speaks != Version::V5 => return Err(error.into()),
        Err(error) => (speaks, Err((error.reason(), error.into()))),
    };
    match opened {
        Ok(opening) => Ok(opening),
        Err((code, end)) => {
            let mut out = Vec::new();
            codec::connack(&mut out, version, code, &Connack::default());
            // The peer may be gone already; the link ends either way.
            let _ = write.write_all(&out).await;
            let _ = write.shutdown().await;
            Err(end)
        }
    }
}

async fn first_packet(reader: &mut Reader) -> Result<Bytes, LinkEnd> {
    loop {
        let is_connect = |first: &u8| *first == codec::CONNECT << 4;
        if reader
            .buffer()
            .first()
            .is_some_and(|first| !is_connect(first))
        {
            return Err(LinkEnd::Protocol("the first packet is no CONNECT"));
        }
        if let Some(packet) = reader.next_packet().await? {
            return Ok(packet);
        }
    }
}

async fn admit(
    reader: &mut Reader,
    write: &mut WriteHalf,
    connect: &Connect<'_>,
    allowed: Result<(), ReasonCode>,
) -> Result<Opening, Refusal> {
    let core = reader.core().clone();
    if let Err(code) = allowed {
        let reason = "as many clients as mqtt.clients_max allows are connected";
        return Err((code, LinkEnd::Protocol(reason)));
    }
    let (client_id, is_assigned) = client_id(connect, || {
        format!("auto-{:016x}{:016x}", core.opened.0, core.next_link())
    })?;
    let origin = reader.origin().clone();
    let hello = Hello {
        client_id: &client_id,
        username: connect.username,
        password: connect.password.map(Password),
        origin: &origin,
    };
    let not_let_in = |code| (code, LinkEnd::Protocol("the client is not let in"));
    let mut login = None;
    let mut auth_data = Vec::new();
    let pass = match connect.auth_method {
        None => core.gate.admit(&hello).await.map_err(not_let_in)?,
        Some(method) => {
            let mut begun = Login::begin(&*core.gate, method, &hello).map_err(not_let_in)?;
            let (data, pass) = log_in(reader, write, &mut begun, &hello, connect.auth_data).await?;
            (auth_data, login) = (data, Some(begun));
            pass
        }
    };
    let session_id = match pass.mount() {
        Some(mount) => mount.client_inside(&client_id),
        None => client_id.clone(),
    };
    let owner = Owner {
        user: pass.user().map(Box::from),
        host: origin.host().into(),
    };
    let will = connect.will.as_ref();
    let will = will.map(|will| admit_will(will, &*pass, core.clock.now(), &session_id, &owner));
    let will = will
        .transpose()
        .map_err(|code| (code, LinkEnd::Protocol("the will may not be published")))?;
    let expiry_s = expiry_s(connect, core.config.session_expiry_s());
    let keep_alive_max_s = core.config.keep_alive_max.0.as_secs() as u16;
    let is_v5 = connect.version == Version::V5;
    let too_long = connect.keep_alive_s == 0 || connect.keep_alive_s > keep_alive_max_s;
    let server_keep_alive_s =
        (is_v5 && keep_alive_max_s > 0 && too_long).then_some(keep_alive_max_s);
    let link_ref = LinkRef {
        number: core.next_link(),
        version: connect.version,
        pass: pass.clone(),
        receive_maximum: connect.receive_maximum,
        packet_bytes_max: connect.packet_bytes_max,
        topic_alias_maximum: connect.topic_alias_maximum.min(TOPIC_ALIASES_MAX),
        cancel: reader.links().child_token(),
        cut: Arc::default(),
    };
    let (link, cancel, cut) = (
        link_ref.number,
        link_ref.cancel.clone(),
        link_ref.cut.clone(),
    );
    let information = response_information(connect, &core.config.response_topic_prefix, &client_id);
    let connack = |session_present| {
        let says = Connack {
            session_present,
            session_expiry_s: (connect.session_expiry_s.unwrap_or(0) != expiry_s)
                .then_some(expiry_s),
            receive_maximum: core.config.receive_maximum,
            packet_bytes_max: u32::try_from(core.config.packet_bytes_max.0).unwrap_or(u32::MAX),
            topic_alias_maximum: core.config.topic_aliases_max,
            assigned_client_id: is_assigned.then_some(&client_id),
            server_keep_alive_s,
            response_information: information.as_deref(),
            auth: connect
                .auth_method
                .map(|method| (method, auth_data.as_slice())),
        };
        let mut out = Vec::new();
        codec::connack(&mut out, connect.version, ReasonCode::Success, &says);
        out
    };
    let claim = Claim {
        client_id: &session_id,
        is_clean: connect.clean_start,
        expiry_s,
        will,
        owner,
        link: link_ref,
    };
    let session = take_up(&core, &claim, connack)
        .await
        .map_err(|why| refusal(why, connect.version))?;
    // What changed before the session had its link, nobody was told of.
    session.cut_off_if_void();
    let seconds = server_keep_alive_s.unwrap_or(connect.keep_alive_s);
    Ok(Opening {
        session,
        link,
        version: connect.version,
        pass,
        login,
        cancel,
        cut,
        keep_alive: match seconds {
            0 => None,
            seconds => Some(Duration::from_millis(u64::from(seconds) * 1_500)),
        },
        expiry_s,
    })
}

/// Gives the link its session, as soon as the journal takes it.
async fn take_up(
    core: &Arc<Core>,
    claim: &Claim<'_>,
    connack: impl Fn(bool) -> Vec<u8>,
) -> Result<Arc<Session>, NotAttached> {
    let patience = Instant::now() + TAKE_UP_WAIT.min(core.config.connect_timeout.0 / 2);
    loop {
        match core.attach(claim.clone(), &connack) {
            Err(NotAttached::Journal(JournalError::Busy)) if Instant::now() < patience => {
                // Whether there is room or time is over, the next try tells.
                let _ = timeout_at(patience, core.store.room(claim.client_id.len())).await;
            }
            outcome => return outcome,
        }
    }
}

/// What a client is told that does not get its session.
fn refusal(why: NotAttached, version: Version) -> Refusal {
    match why {
        NotAttached::Foreign => {
            let end = LinkEnd::Protocol("the client id is in use by another user");
            (ReasonCode::ClientIdentifierNotValid, end)
        }
        NotAttached::NoRoom => {
            let end = LinkEnd::Protocol("as many sessions as mqtt.sessions_max allows are kept");
            let code = match version {
                Version::V5 => ReasonCode::QuotaExceeded,
                _ => ReasonCode::ServerUnavailable,
            };
            (code, end)
        }
        NotAttached::Journal(error) => (ReasonCode::ServerUnavailable, LinkEnd::Journal(error)),
    }
}

/// The will as it will be published, if it may be.
fn admit_will(
    will: &codec::Will<'_>,
    pass: &dyn Pass,
    now: UnixMillis,
    client_id: &str,
    owner: &Owner,
) -> Result<Will, ReasonCode> {
    if will.topic.starts_with("$SYS") {
        return Err(ReasonCode::NotAuthorized);
    }
    let carried = Carried::default();
    let (topic, properties) = match pass.mount() {
        Some(mount) => Carrier::new(mount, &carried).carry(will.topic, will.properties)?,
        None => (will.topic, will.properties),
    };
    let inside = codec::Will {
        topic,
        properties,
        ..will.clone()
    };
    let will = Will::of(&inside, now, client_id, owner);
    will.judge(pass)?;
    Ok(will)
}

/// The client's id, or one that is assigned; tells which.
fn client_id(
    connect: &Connect<'_>,
    assign: impl FnOnce() -> String,
) -> Result<(String, bool), Refusal> {
    let may_be_empty = match connect.version {
        Version::V31 => false,
        Version::V311 => connect.clean_start,
        Version::V5 => true,
    };
    let own = connect.client_id;
    if own.is_empty() && may_be_empty {
        return Ok((assign(), true));
    }
    if own.is_empty() || own.len() > CLIENT_ID_BYTES_MAX {
        let end = LinkEnd::Protocol("a client id is needed, of at most 1024 bytes");
        return Err((ReasonCode::ClientIdentifierNotValid, end));
    }
    Ok((own.to_owned(), false))
}

/// Seconds that the session is to outlive its link, at most as long as the server keeps any.
fn expiry_s(connect: &Connect<'_>, most_s: u32) -> u32 {
    match connect.version {
        Version::V5 => connect.session_expiry_s.unwrap_or(0).min(most_s),
        _ if connect.clean_start => 0,
        _ => most_s,
    }
}

fn response_information(connect: &Connect<'_>, prefix: &str, client_id: &str) -> Option<String> {
    let topic = format!("{prefix}{client_id}");
    let wanted = connect.wants_response_information && !prefix.is_empty();
    (wanted && check_name(&topic).is_ok()).then_some(topic)
}

/// Talks with the client until it is logged in.
async fn log_in(
    reader: &mut Reader,
    write: &mut WriteHalf,
    login: &mut Login,
    hello: &Hello<'_>,
    first: &[u8],
) -> Result<(Vec<u8>, Arc<dyn Pass>), Refusal> {
    let refuse = |code| (code, LinkEnd::Told(code));
    let unread = |end: LinkEnd| (end.reason().unwrap_or(ReasonCode::ProtocolError), end);
    let mut answer = login.step(first).map_err(refuse)?;
    loop {
        let ask = match answer {
            Answer::In(data, pass) => return Ok((data, pass)),
            Answer::Ask(ask) => ask,
        };
        let sent = write.write_all(&ask).await;
        sent.map_err(|error| unread(LinkEnd::Closed(Some(error))))?;
        let packet = loop {
            // A CONNECT before its CONNACK may only be followed by AUTH or DISCONNECT.
            if let Some(packet) = reader.next_packet().await.map_err(unread)? {
                break packet;
            }
        };
        let Ok(Ok(frame)) = codec::frame(&packet, usize::MAX) else {
            return Err(refuse(ReasonCode::MalformedPacket));
        };
        let heard = codec::decode(Version::V5, frame).map_err(|error| unread(error.into()))?;
        let Packet::Auth {
            reason: 0x18,
            method,
            data,
        } = heard
        else {
            let end = LinkEnd::Protocol("an AUTH is needed to go on");
            return Err((ReasonCode::ProtocolError, end));
        };
        let gate = reader.core().gate.clone();
        answer = login
            .hear(&*gate, hello, (0x18, method, data))
            .map_err(unread)?;
    }
}
