//! What the agent knows of its host, read from `/proc` and the kernel.

use std::time::Duration;

/// The host's name.
pub(crate) fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The host's name with its domain, where `/etc/hosts` has it; else the plain name.
pub(crate) fn full_hostname() -> String {
    let name = hostname();
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let found = names(&hosts)
        .find(|(_, full)| full.split_once('.').is_some_and(|(short, _)| short == name))
        .map(|(_, full)| full.to_owned());
    found.unwrap_or(name)
}

/// The name that `/etc/hosts` gives an address.
pub(crate) fn name_of(address: std::net::IpAddr) -> Option<String> {
    let hosts = std::fs::read_to_string("/etc/hosts").ok()?;
    names(&hosts)
        .find(|(known, _)| known.parse() == Ok(address))
        .map(|(_, name)| name.to_owned())
}

/// The address by which this host would reach others.
pub(crate) fn address() -> String {
    // TEST-NET-1: routed like any other address, and nothing is sent.
    address_towards("192.0.2.1:9").unwrap_or_else(|| "127.0.0.1".to_owned())
}

/// Addresses and names of a hosts file.
fn names(hosts: &str) -> impl Iterator<Item = (&str, &str)> {
    hosts.lines().flat_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let address = words.next().unwrap_or_default();
        words.map(move |name| (address, name))
    })
}

/// The machine's architecture, as the kernel names it.
pub(crate) fn architecture() -> String {
    rustix::system::uname()
        .machine()
        .to_string_lossy()
        .into_owned()
}

/// Cores that the process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A value of `/proc/meminfo` in bytes.
pub(crate) fn memory(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Load average of the last minute.
pub(crate) fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Bytes of memory that this process occupies.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Processor time that this process has used.
pub(crate) fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the name in parentheses and may hold blanks.
    let rest = text.rsplit_once(')')?.1;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_millis((user + system) * 1_000 / ticks))
}

/// The address by which this host would reach `peer`; nothing is sent.
pub(crate) fn address_towards(peer: &str) -> Option<String> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}
