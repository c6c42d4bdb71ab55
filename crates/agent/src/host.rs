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

/// Bytes of memory that this process may use: the machine's, or less where its group is bounded.
pub(crate) fn memory_allowed() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let read =
        |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let group = group_bound(&groups, read);
    memory("MemTotal").into_iter().chain(group).min()
}

/// The least memory that the control groups of `/proc/self/cgroup` allow, of version 1 or 2, or those
/// above them. A container sees its own group as the root.
fn group_bound(groups: &str, read: impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            let bound = read(&format!("{root}{path}/{file}"));
            least = least.into_iter().chain(bound).min();
            let Some((above, _)) = path.rsplit_once('/') else {
                break;
            };
            path = above;
        }
    }
    least
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

/// What a thread of this process is doing.
#[derive(Clone, Debug)]
pub(crate) struct ThreadStatus {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

/// The threads of this process, as the kernel sees them.
pub(crate) fn threads() -> Vec<ThreadStatus> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let mut all: Vec<ThreadStatus> = tasks.flatten().filter_map(|t| thread(&t.path())).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn thread(task: &std::path::Path) -> Option<ThreadStatus> {
    let text = |name: &str| std::fs::read_to_string(task.join(name)).ok();
    let id = task.file_name()?.to_string_lossy().into_owned();
    let stat = text("stat")?;
    let rest = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let mut lines = vec![
        format!("state {}", fields.first()?),
        format!("cpu {} ms", ticks * 1_000 / per_second),
    ];
    let waits = text("wchan").filter(|name| !name.is_empty() && name != "0");
    lines.extend(waits.map(|name| format!("waits in {name}")));
    Some(ThreadStatus {
        name: format!("{} {id}", text("comm")?.trim_end()),
        lines,
    })
}

/// Measures the share of the processors that something used between two looks.
#[derive(Debug, Default)]
pub(crate) struct CpuMeter {
    last: Option<(f64, f64)>,
}

impl CpuMeter {
    /// The share that this process used since the last look, 0 to 1; `None` the first time.
    pub(crate) fn process(&mut self) -> Option<f64> {
        let used = cpu_time()?.as_secs_f64();
        let wall = uptime()? * cores() as f64;
        self.share(used, wall)
    }

    /// The share that everything on this machine used since the last look, 0 to 1.
    pub(crate) fn system(&mut self) -> Option<f64> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line
            .split_whitespace()
            .take(8)
            .filter_map(|field| field.parse().ok())
            .collect();
        let total: f64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        self.share(total - idle, total)
    }

    fn share(&mut self, used: f64, whole: f64) -> Option<f64> {
        let (used_before, whole_before) = self.last.replace((used, whole))?;
        let passed = whole - whole_before;
        (passed > 0.0).then(|| ((used - used_before) / passed).clamp(0.0, 1.0))
    }
}

/// Seconds since the machine started.
fn uptime() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Bytes free for this user on the file system that holds `path`.
pub(crate) fn free_bytes(path: &std::path::Path) -> std::io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes that the file system has which holds `path`.
pub(crate) fn disk_bytes(path: &std::path::Path) -> std::io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_blocks.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_bound_of_all_groups_above_counts_in_both_versions() {
        const V1: &str = "9:name=systemd:/\n4:cpu,memory:/box/agent\n0::/\n";
        const V2: &str = "0::/box/agent\n";
        type Case = (&'static str, &'static [(&'static str, u64)], Option<u64>);
        let cases: [Case; 7] = [
            (
                V1,
                &[("memory/box/agent/memory.limit_in_bytes", 64)],
                Some(64),
            ),
            (
                V1,
                &[
                    ("memory/box/agent/memory.limit_in_bytes", 64),
                    ("memory/box/memory.limit_in_bytes", 32),
                ],
                Some(32),
            ),
            // A container's own group, whose outer path is not there.
            (V1, &[("memory/memory.limit_in_bytes", 16)], Some(16)),
            (V2, &[("box/agent/memory.max", 8)], Some(8)),
            (V2, &[("memory.max", 4)], Some(4)),
            (V2, &[], None),
            ("", &[("memory.max", 4)], None),
        ];
        for (groups, bounds, least) in cases {
            let read = |path: &str| {
                let mut known = bounds.iter();
                let known = known.find(|(name, _)| path == format!("/sys/fs/cgroup/{name}"));
                known.map(|(_, bytes)| *bytes)
            };
            assert_eq!(group_bound(groups, read), least, "{groups}: {bounds:?}");
        }
    }
}
