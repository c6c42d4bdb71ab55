//! The client's side of a raw connection: greeting, handshake, requests.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::codec::{
    Code, invalid, read_response, read_text, read_u8, read_u32, write_text, write_u32,
};
use super::wire::Wire;
use super::{
    ABORT, CODEC, CODEC_VERSIONS, DIFFERENT_VERSION, MAGIC, PROTOCOL, PROTOCOL_VERSIONS, Request,
    VERSION_OK,
};

/// What the client wants of a port.
#[derive(Clone, Debug)]
pub(crate) struct PortRequest {
    /// Where the client believes to be connected, as a URL.
    pub(crate) url: String,
    pub(crate) port_id: String,
    pub(crate) is_packed: bool,
    /// After this time the server forgets a request.
    pub(crate) expiration: Duration,
    /// FlowFiles, bytes and milliseconds of one transaction that the client would like; 0 is any.
    pub(crate) batch: (u64, u64, u64),
}

/// Why a port is not there for us.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The port takes no more for now.
    Full,
    /// The line, or the peer's other words.
    Broken(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Broken(error)
    }
}

/// Greets the server and agrees on everything; then requests may follow.
pub(crate) fn greet<S: Read + Write>(
    wire: &mut Wire<S>,
    request: &PortRequest,
) -> Result<(), Refused> {
    wire.write_all(MAGIC)?;
    let version = negotiate(wire, PROTOCOL, PROTOCOL_VERSIONS)?;
    write_text(wire, &uuid::Uuid::new_v4().to_string())?;
    if version >= 3 {
        write_text(wire, &request.url)?;
    }
    let (count, bytes, millis) = request.batch;
    let mut properties = vec![
        ("GZIP", request.is_packed.to_string()),
        ("PORT_IDENTIFIER", request.port_id.clone()),
        (
            "REQUEST_EXPIRATION_MILLIS",
            request.expiration.as_millis().to_string(),
        ),
    ];
    if version >= 5 {
        let wishes = [
            ("BATCH_COUNT", count),
            ("BATCH_SIZE", bytes),
            ("BATCH_DURATION", millis),
        ];
        let wishes = wishes.into_iter().filter(|(_, wish)| *wish > 0);
        properties.extend(wishes.map(|(name, wish)| (name, wish.to_string())));
    }
    write_u32(wire, properties.len() as u32)?;
    for (name, value) in &properties {
        write_text(wire, name)?;
        write_text(wire, value)?;
    }
    let answer = read_response(wire)?;
    match answer.code {
        Code::PropertiesOk => {}
        Code::PortsFull => return Err(Refused::Full),
        Code::UnknownPort => {
            let port = &request.port_id;
            return Err(invalid(&format!("the peer has no port {port}")).into());
        }
        code => {
            return Err(invalid(&format!("the peer refuses: {code:?} {}", answer.message)).into());
        }
    }
    send_request(wire, Request::NegotiateCodec)?;
    negotiate(wire, CODEC, CODEC_VERSIONS)?;
    Ok(())
}

/// Sends a request.
pub(crate) fn send_request(out: &mut impl Write, request: Request) -> io::Result<()> {
    write_text(out, request.name())
}

/// Begins to receive; false when there is nothing.
pub(crate) fn has_data<S: Read + Write>(wire: &mut Wire<S>) -> io::Result<bool> {
    send_request(wire, Request::Receive)?;
    match read_response(wire)?.code {
        Code::MoreData => Ok(true),
        Code::NoMoreData => Ok(false),
        code => Err(invalid(&format!(
            "the peer answers {code:?} to a wish for data"
        ))),
    }
}

/// Agrees on a version of `resource`, the newest first.
fn negotiate<S: Read + Write>(
    wire: &mut Wire<S>,
    resource: &str,
    versions: &[u32],
) -> io::Result<u32> {
    let mut version = versions[0];
    loop {
        write_text(wire, resource)?;
        write_u32(wire, version)?;
        match read_u8(wire)? {
            VERSION_OK => return Ok(version),
            DIFFERENT_VERSION => {
                let theirs = read_u32(wire)?;
                let common = versions
                    .iter()
                    .find(|own| **own <= theirs && **own < version);
                let Some(common) = common else {
                    wire.write_all(&[ABORT])?;
                    write_text(wire, "no common version")?;
                    wire.flush()?;
                    return Err(invalid(&format!("the peer speaks {resource} {theirs}")));
                };
                version = *common;
            }
            ABORT => {
                let reason = read_text(wire)?;
                return Err(invalid(&format!("the peer ends the greeting: {reason}")));
            }
            _ => return Err(invalid("the peer does not speak site-to-site")),
        }
    }
}
