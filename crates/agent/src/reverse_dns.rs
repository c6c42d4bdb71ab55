//! Names of addresses: `/etc/hosts`, then one PTR question to the host's first name server.
//!
//! The message (RFC 1035) is decoded without I/O; names in it may point backwards only, so a
//! hostile answer cannot loop.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The name of `address`, if someone knows it within `wait`.
pub(crate) fn look_up(address: IpAddr, wait: Duration) -> Option<String> {
    if let Some(name) = crate::host::name_of(address) {
        return Some(name);
    }
    let server = name_server(&std::fs::read_to_string("/etc/resolv.conf").ok()?)?;
    ask(server, address, wait)
}

fn ask(server: SocketAddr, address: IpAddr, wait: Duration) -> Option<String> {
    let deadline = Instant::now() + wait;
    let unspecified: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((unspecified, 0)).ok()?;
    socket.connect(server).ok()?;
    let id = (base::Rng::from_entropy().next_u64() >> 48) as u16;
    socket.send(&question(id, address)).ok()?;
    let mut answer = [0; ANSWER_BYTES_MAX];
    loop {
        let left = deadline.checked_duration_since(Instant::now())?;
        socket
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .ok()?;
        let len = socket.recv(&mut answer).ok()?;
        // Late answers to older questions are not ours.
        if answer[..len].starts_with(&id.to_be_bytes()) {
            return name_in(&answer[..len]);
        }
    }
}

/// The first `nameserver` of a resolver's configuration.
fn name_server(configuration: &str) -> Option<SocketAddr> {
    configuration.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = match words.next()? {
            "nameserver" => words.next()?.parse().ok()?,
            _ => return None,
        };
        Some(SocketAddr::new(address, 53))
    })
}

/// A question for the name of `address`.
fn question(id: u16, address: IpAddr) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    // Recursion desired; one question and nothing else.
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    let labels: Vec<String> = match address {
        IpAddr::V4(address) => {
            let octets = address.octets();
            let reversed = octets.iter().rev().map(u8::to_string);
            reversed.chain(["in-addr".to_owned()]).collect()
        }
        IpAddr::V6(address) => {
            let octets = address.octets();
            let nibbles = octets.iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            let reversed = nibbles.map(|nibble| format!("{nibble:x}"));
            reversed.chain(["ip6".to_owned()]).collect()
        }
    };
    for label in labels.iter().map(String::as_str).chain(["arpa"]) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&PTR.to_be_bytes());
    message.extend_from_slice(&INTERNET.to_be_bytes());
    message
}

/// The first name that an answer gives.
fn name_in(message: &[u8]) -> Option<String> {
    let word = |at: usize| {
        Some(u16::from_be_bytes([
            *message.get(at)?,
            *message.get(at + 1)?,
        ]))
    };
    let (questions, answers) = (word(4)?, word(6)?);
    let mut at = 12;
    for _ in 0..questions {
        at = name_at(message, at)?.1 + 4;
    }
    for _ in 0..answers {
        at = name_at(message, at)?.1;
        let (kind, len) = (word(at)?, word(at + 8)?);
        at += 10;
        if kind == PTR {
            return name_at(message, at)
                .map(|(name, _)| name)
                .filter(|name| !name.is_empty());
        }
        at += usize::from(len);
    }
    None
}

/// A name in a message, and where it ends.
fn name_at(message: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut name, mut at, mut end) = (String::new(), start, None);
    // A pointer must lead before everything that was read of this name.
    let mut lowest = start;
    loop {
        let len = usize::from(*message.get(at)?);
        match len {
            0 => return Some((name, end.unwrap_or(at + 1))),
            0xc0.. => {
                let target = (len & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                end = end.or(Some(at + 2));
                if target >= lowest {
                    return None;
                }
                (at, lowest) = (target, target);
            }
            1..=63 => {
                let label = message.get(at + 1..at + 1 + len)?;
                if !name.is_empty() {
                    name.push('.');
                }
                let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
                if !label.iter().all(is_plain) || name.len() + len > NAME_BYTES_MAX {
                    return None;
                }
                name.push_str(std::str::from_utf8(label).ok()?);
                at += 1 + len;
            }
            _ => return None,
        }
    }
}

/// The record type of names of addresses.
const PTR: u16 = 12;

/// The only class in use.
const INTERNET: u16 = 1;

/// Bytes of an answer over UDP at most.
const ANSWER_BYTES_MAX: usize = 1_232;

/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_answer_names_the_address() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let mut bytes = [0; 512];
            let (len, peer) = server.recv_from(&mut bytes).unwrap();
            let mut answer = bytes[..len].to_vec();
            (answer[2], answer[7]) = (0x81, 1);
            // The question's name, PTR, IN, a minute, and "host.example" with a pointer in it.
            answer.extend_from_slice(&[0xc0, 12, 0, 12, 0, 1, 0, 0, 0, 60, 0, 14]);
            answer.extend_from_slice(b"\x04host\x07example\x00");
            server.send_to(&[0, 0, 1, 2, 3], peer).unwrap();
            server.send_to(&answer, peer).unwrap();
            bytes[..len].to_vec()
        });
        let name = ask(at, "192.0.2.7".parse().unwrap(), Duration::from_secs(10));
        assert_eq!(name.as_deref(), Some("host.example"));
        let asked = answering.join().unwrap();
        assert_eq!(
            &asked[12..],
            b"\x017\x012\x010\x03192\x07in-addr\x04arpa\x00\x00\x0c\x00\x01"
        );
    }

    #[test]
    fn a_silent_server_is_given_up() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        let wait = Duration::from_millis(30);
        assert_eq!(ask(at, "192.0.2.7".parse().unwrap(), wait), None);
    }

    #[test]
    fn hostile_answers_give_no_name() {
        let header = [0, 1, 0x81, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let with = |rest: &[u8]| [&header[..], rest].concat();
        for message in [
            with(&[0xc0, 12]),
            with(&[0, 0, 12, 0, 1, 0, 0, 0, 60, 0, 2, 0xc0, 23]),
            with(&[0, 0, 12, 0, 1, 0, 0, 0, 60, 0, 2, 0xff, 0xff]),
            with(&[63]),
            with(&[0, 0, 12, 0, 1, 0, 0, 0, 60, 0, 3, 1, b'<', 0]),
            Vec::new(),
        ] {
            assert_eq!(name_in(&message), None, "{message:?}");
        }
        let mut random = base::Rng::from_seed(3);
        for _ in 0..10_000 {
            let mut message = with(&[0; 40]);
            random.fill(&mut message[12..]);
            let _ = name_in(&message);
        }
        let v6 = question(1, "2001:db8::1".parse().unwrap());
        assert_eq!(v6.len(), 12 + 32 * 2 + 4 + 5 + 1 + 4);
        assert_eq!(&v6[12..16], b"\x011\x010");
        assert_eq!(
            name_server("# x\nsearch a\nnameserver ::1\n").map(|a| a.port()),
            Some(53)
        );
    }
}
