//! Publishers and a subscriber of MQTT 3.1.1 on plain sockets, a thread each: as little of the
//! machine as a load can take.
//!
//! Every message is a JSON object of about 100 bytes with its publisher, the microsecond of its
//! sending and a number without gaps, so that what is lost, doubled or out of order is counted.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::experiment::LabError;
use crate::limits::STALL_MAX;

/// How fast publishers send.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As fast as they are taken.
    Flood,
    /// So many messages a second, all publishers together.
    Rate(u64),
}

/// Publishers at work.
pub struct Publishers {
    threads: Vec<JoinHandle<io::Result<()>>>,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
}

/// What is promised of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// Nothing: QoS 0.
    None,
    /// An acknowledgement: QoS 1.
    Acknowledged,
}

impl Publishers {
    /// Has `count` publishers send to `TOPIC/00`, `TOPIC/01`, … with QoS 0 until they are stopped.
    pub fn start(address: &str, topic: &str, count: usize, pace: Pace) -> Result<Self, LabError> {
        Self::promised(address, topic, count, pace, Promise::None)
    }

    /// The same with QoS 1.
    pub fn start_acknowledged(
        address: &str,
        topic: &str,
        count: usize,
        pace: Pace,
    ) -> Result<Self, LabError> {
        Self::promised(address, topic, count, pace, Promise::Acknowledged)
    }

    fn promised(
        address: &str,
        topic: &str,
        count: usize,
        pace: Pace,
        promise: Promise,
    ) -> Result<Self, LabError> {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let acknowledged = Arc::default();
        let mut threads = Vec::new();
        let links = (0..count).map(|n| connect(address, &format!("lab-{topic}-{n}")));
        // All are there before one begins.
        let links: io::Result<Vec<TcpStream>> = links.collect();
        let links = links.map_err(LabError::system("cannot connect a publisher"))?;
        for (number, link) in links.into_iter().enumerate() {
            let packet = Packet::new(&format!("{topic}/{number:02}"), number, promise);
            let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
            let acknowledged = Arc::clone(&acknowledged);
            let pace = match pace {
                Pace::Flood => Pace::Flood,
                Pace::Rate(rate) => Pace::Rate(rate / count as u64),
            };
            threads.push(std::thread::spawn(move || match promise {
                Promise::None => publish(link, &packet, pace, &stop, &sent),
                Promise::Acknowledged => {
                    publish_acknowledged(link, &packet, pace, &stop, &sent, &acknowledged)
                }
            }));
        }
        Ok(Publishers {
            threads,
            stop,
            sent,
            acknowledged,
        })
    }

    /// Counts the messages that were acknowledged, also after the publishers' end.
    pub fn acknowledged(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.acknowledged)
    }

    /// Ends them; answers how many messages were sent in all.
    pub fn stop(self) -> Result<u64, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            let ended = thread.join();
            let ended = ended.map_err(|_| LabError::Failed("a publisher failed".to_owned()))?;
            ended.map_err(LabError::system("a publisher was cut off"))?;
        }
        Ok(self.sent.load(Ordering::Relaxed))
    }
}

/// A subscriber that counts what comes.
pub struct Subscriber {
    thread: JoinHandle<io::Result<Heard>>,
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
}

/// What a subscriber heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// Messages.
    pub received: u64,
    /// Numbers that are missing between those that came, or came out of order.
    pub gaps: u64,
    /// Age of every 64th message when it was read, milliseconds.
    pub ages_ms: Vec<f64>,
}

impl Subscriber {
    /// Subscribes to a filter with QoS 0.
    pub fn start(address: &str, filter: &str) -> Result<Self, LabError> {
        let cannot = || LabError::system("cannot subscribe");
        let mut link =
            connect(address, &format!("lab-sub-{}", std::process::id())).map_err(cannot())?;
        let mut body = vec![0, 1];
        put_text(&mut body, filter);
        body.push(0);
        link.write_all(&framed(0x82, &body)).map_err(cannot())?;
        let mut answer = [0; 5];
        link.read_exact(&mut answer).map_err(cannot())?;
        link.set_read_timeout(Some(LOOK)).map_err(cannot())?;
        let (stop, received) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let thread = {
            let (stop, received) = (Arc::clone(&stop), Arc::clone(&received));
            std::thread::spawn(move || listen(link, &stop, &received))
        };
        Ok(Subscriber {
            thread,
            stop,
            received,
        })
    }

    /// Messages so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Ends it.
    pub fn stop(self) -> Result<Heard, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        let ended = ended.map_err(|_| LabError::Failed("the subscriber failed".to_owned()))?;
        ended.map_err(LabError::system("the subscriber was cut off"))
    }
}

/// A PUBLISH whose number and time are written over.
struct Packet {
    bytes: Vec<u8>,
    time_at: usize,
    number_at: usize,
    /// Where the packet's identifier stands, with QoS 1.
    id_at: Option<usize>,
}

impl Packet {
    fn new(topic: &str, publisher: usize, promise: Promise) -> Packet {
        let mut body = Vec::new();
        put_text(&mut body, topic);
        let behind_topic = body.len();
        if promise == Promise::Acknowledged {
            body.extend_from_slice(&[0, 0]);
        }
        let payload = format!(
            "{{\"id\":\"d-{publisher:02}\",\"ts\":{FIRST_TIME},\"seq\":{FIRST_NUMBER},\"a\":21.5,\"b\":40,\
             \"ok\":true,\"unit\":\"degC\",\"site\":\"n\"}}"
        );
        body.extend_from_slice(payload.as_bytes());
        let first = match promise {
            Promise::None => 0x30,
            Promise::Acknowledged => 0x32,
        };
        let bytes = framed(first, &body);
        let head = bytes.len() - body.len();
        let find = |digits: u64| {
            let digits = digits.to_string();
            let mut windows = bytes.windows(digits.len());
            windows.position(|window| window == digits.as_bytes())
        };
        let (time_at, number_at) = (find(FIRST_TIME), find(FIRST_NUMBER));
        Packet {
            time_at: time_at.unwrap_or(0),
            number_at: number_at.unwrap_or(0),
            id_at: (promise == Promise::Acknowledged).then_some(head + behind_topic),
            bytes,
        }
    }

    fn put(&self, out: &mut Vec<u8>, number: u64, time: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        write_digits(
            &mut out[start + self.number_at..],
            FIRST_NUMBER + number,
            10,
        );
        write_digits(&mut out[start + self.time_at..], time, 16);
        if let Some(at) = self.id_at {
            // 1 to 65,535 in turn; far fewer are under way.
            let id = (number % 65_535) as u16 + 1;
            out[start + at..start + at + 2].copy_from_slice(&id.to_be_bytes());
        }
    }
}

fn publish(
    mut link: TcpStream,
    packet: &Packet,
    pace: Pace,
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> io::Result<()> {
    send(&mut link, packet, pace, stop, sent, &|_| true)?;
    link.write_all(&[0xe0, 0])
}

/// The same with QoS 1: no more than [`UNDER_WAY_MAX`] wait for their acknowledgement, and none at the
/// end.
fn publish_acknowledged(
    mut link: TcpStream,
    packet: &Packet,
    pace: Pace,
    stop: &AtomicBool,
    sent: &AtomicU64,
    acknowledged: &AtomicU64,
) -> io::Result<()> {
    let (mut answers, own) = (link.try_clone()?, AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut piece = vec![0; 4 * BATCH];
            let mut odd = 0;
            while let Ok(read) = answers.read(&mut piece)
                && read > 0
            {
                // A PUBACK of 3.1.1 has four bytes.
                let (whole, rest) = ((odd + read) / 4, (odd + read) % 4);
                own.fetch_add(whole as u64, Ordering::Relaxed);
                acknowledged.fetch_add(whole as u64, Ordering::Relaxed);
                odd = rest;
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // Whoever writes to a link that is over is told so.
        let may_send = |number: u64| {
            number < own.load(Ordering::Relaxed) + UNDER_WAY_MAX || is_over.load(Ordering::Relaxed)
        };
        let sending = send(&mut link, packet, pace, stop, sent, &may_send);
        let waiting = sending.and_then(|number| {
            let until = Instant::now() + STALL_MAX;
            while own.load(Ordering::Relaxed) < number {
                if is_over.load(Ordering::Relaxed) || Instant::now() > until {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(TICK);
            }
            link.write_all(&[0xe0, 0])
        });
        // Whoever reads answers ends with the link.
        let _ = link.shutdown(std::net::Shutdown::Both);
        waiting
    })
}

/// Sends until it is stopped; how many messages it sent.
fn send(
    link: &mut TcpStream,
    packet: &Packet,
    pace: Pace,
    stop: &AtomicBool,
    sent: &AtomicU64,
    may_send: &dyn Fn(u64) -> bool,
) -> io::Result<u64> {
    let (mut number, began) = (0_u64, Instant::now());
    let mut out = Vec::with_capacity(BATCH * packet.bytes.len());
    while !stop.load(Ordering::Relaxed) {
        let batch = match pace {
            Pace::Flood => BATCH as u64,
            Pace::Rate(rate) => {
                // What is due by now, so that a publisher that was held back sends it all.
                let due = began.elapsed().as_micros() as u64 * rate / 1_000_000;
                due.saturating_sub(number).min(BATCH as u64)
            }
        };
        if batch == 0 || !may_send(number + batch) {
            std::thread::sleep(TICK);
            continue;
        }
        out.clear();
        let time = micros();
        for _ in 0..batch {
            packet.put(&mut out, number, time);
            number += 1;
        }
        link.write_all(&out)?;
        sent.fetch_add(batch, Ordering::Relaxed);
    }
    Ok(number)
}

fn listen(mut link: TcpStream, stop: &AtomicBool, received: &AtomicU64) -> io::Result<Heard> {
    let mut heard = Heard::default();
    let mut next: Vec<u64> = Vec::new();
    let (mut buffer, mut filled) = (vec![0_u8; READ_BYTES], 0);
    loop {
        match link.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if is_timeout(&error) => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(heard);
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        let (mut at, now) = (0, micros());
        while let Some((first, body)) = frame(&buffer[at..filled]) {
            let whole = body.end;
            if first >> 4 == 3 {
                heard.hear(&buffer[at..][body], &mut next, now);
            }
            at += whole;
        }
        received.store(heard.received, Ordering::Relaxed);
        buffer.copy_within(at..filled, 0);
        filled -= at;
        if filled == buffer.len() {
            return Err(io::Error::other(
                "a packet is larger than the subscriber takes",
            ));
        }
    }
}

impl Heard {
    fn hear(&mut self, body: &[u8], next: &mut Vec<u64>, now: u64) {
        self.received += 1;
        let publisher = number_after(body, b"\"id\":\"d-").unwrap_or(0) as usize;
        let number = number_after(body, b"\"seq\":").unwrap_or(0);
        if next.len() <= publisher {
            next.resize(publisher + 1, FIRST_NUMBER);
        }
        if number != next[publisher] {
            self.gaps += number.abs_diff(next[publisher]);
        }
        next[publisher] = number + 1;
        if self.received.is_multiple_of(64)
            && let Some(time) = number_after(body, b"\"ts\":")
        {
            self.ages_ms.push(now.saturating_sub(time) as f64 / 1_000.0);
        }
    }
}

fn connect(address: &str, id: &str) -> io::Result<TcpStream> {
    let mut link = TcpStream::connect(address)?;
    link.set_nodelay(true)?;
    let mut body = b"\0\x04MQTT\x04\x02\0\0".to_vec();
    put_text(&mut body, id);
    link.write_all(&framed(0x10, &body))?;
    let mut answer = [0; 4];
    link.read_exact(&mut answer)?;
    match answer {
        [0x20, 2, _, 0] => Ok(link),
        _ => Err(io::Error::other(format!("CONNACK was {answer:?}"))),
    }
}

/// First byte of the packet at the front and where its body is; none when it is not whole.
fn frame(bytes: &[u8]) -> Option<(u8, std::ops::Range<usize>)> {
    let first = *bytes.first()?;
    let (mut length, mut at) = (0_usize, 1);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 || at > 4 {
            break;
        }
    }
    (bytes.len() >= at + length).then_some((first, at..at + length))
}

fn framed(first: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    let mut left = body.len();
    loop {
        let byte = (left % 128) as u8;
        left /= 128;
        out.push(if left > 0 { byte | 0x80 } else { byte });
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn write_digits(out: &mut [u8], mut number: u64, digits: usize) {
    for at in (0..digits).rev() {
        out[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn number_after(bytes: &[u8], name: &[u8]) -> Option<u64> {
    let at = bytes
        .windows(name.len())
        .position(|window| window == name)?;
    let digits = bytes[at + name.len()..].iter();
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Numbers of ten digits, since JSON has no leading zeros.
pub const FIRST_NUMBER: u64 = 1_000_000_000;
/// A microsecond of sixteen digits.
const FIRST_TIME: u64 = 1_700_000_000_000_000;
/// Messages of QoS 1 that wait for their acknowledgement, count, of one publisher.
const UNDER_WAY_MAX: u64 = 16_384;
/// Messages of one write, count.
const BATCH: usize = 512;
/// A subscriber's buffer, bytes.
const READ_BYTES: usize = 256 << 10;
/// How often a paced publisher looks whether something is due.
const TICK: Duration = Duration::from_millis(1);
/// How often a subscriber without messages looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_heard_and_gaps_are_counted() {
        let (packet, mut out) = (Packet::new("bench/07", 7, Promise::None), Vec::new());
        for number in [0, 1, 4] {
            packet.put(&mut out, number, FIRST_TIME + 5);
        }
        let (mut heard, mut next, mut at) = (Heard::default(), Vec::new(), 0);
        while let Some((first, body)) = frame(&out[at..]) {
            assert_eq!(first, 0x30);
            let end = body.end;
            heard.hear(&out[at..][body], &mut next, FIRST_TIME + 2_005);
            at += end;
        }
        assert_eq!(at, out.len());
        assert_eq!((heard.received, heard.gaps), (3, 2));
        assert_eq!(next[7], FIRST_NUMBER + 5);
        let payload = &out[12..packet.bytes.len()];
        let read: serde_json::Value = serde_json::from_slice(payload).unwrap();
        assert_eq!(read["seq"], FIRST_NUMBER);
        assert!((95..=110).contains(&payload.len()), "{}", payload.len());
    }

    #[test]
    fn a_message_that_is_promised_has_an_identifier_behind_its_topic() {
        let (packet, mut out) = (Packet::new("keys/00", 0, Promise::Acknowledged), Vec::new());
        packet.put(&mut out, 65_535 + 6, FIRST_TIME);
        let (first, body) = frame(&out).expect("it is whole");
        assert_eq!((first, body.end), (0x32, out.len()));
        let body = &out[body];
        assert_eq!(&body[..9], b"\0\x07keys/00");
        assert_eq!(&body[9..11], [0, 7]);
        assert_eq!(number_after(body, b"\"seq\":"), Some(FIRST_NUMBER + 65_541));
    }

    #[test]
    fn a_packet_that_is_not_whole_is_left() {
        let bytes = framed(0x30, &[0; 300]);
        assert_eq!(bytes.len(), 303);
        assert!(frame(&bytes[..302]).is_none());
        assert_eq!(frame(&bytes), Some((0x30, 3..303)));
    }
}
