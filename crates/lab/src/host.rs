//! What the machine is and what its disk can do, measured in the same run as everything else.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags};
use serde::Serialize;

use crate::experiment::LabError;
use crate::stats;

/// Facts of the host; figures of noisy machines mean little without them.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Processor model.
    pub processor: String,
    /// Logical cores.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// How TCP controls congestion: `bbr` paces what it sends, over loopback too, which takes twice the
    /// processor time of Linux's default.
    pub tcp_congestion_control: String,
    /// Load average over one minute when the run began.
    pub load_average: f64,
    /// One 4 KiB append and its fdatasync, median, in microseconds.
    pub disk_sync_us: f64,
    /// 1 MiB appends with one fdatasync at the end, bytes a second.
    pub disk_write_bytes_per_s: f64,
}

impl Host {
    /// Reads the facts and measures the disk under `folder`.
    pub fn measure(folder: &Path) -> Result<Host, LabError> {
        Ok(Host {
            processor: field_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "?".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_bytes(),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            tcp_congestion_control: first_line("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average: first_line("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0.0),
            disk_sync_us: disk_sync_us(folder, Duration::ZERO)
                .map_err(LabError::system("cannot time the disk"))?,
            disk_write_bytes_per_s: disk_write_bytes_per_s(folder, WRITE_BYTES)
                .map_err(LabError::system("cannot measure the disk"))?,
        })
    }
}

/// One 4 KiB append and its fdatasync with so long a rest before each, median, in microseconds.
pub fn disk_sync_us(folder: &Path, rest: Duration) -> std::io::Result<f64> {
    let path = folder.join("disk-sync");
    let mut file = File::create(&path)?;
    let block = [7_u8; 4096];
    let mut times = Vec::with_capacity(SYNC_COUNT);
    for _ in 0..SYNC_COUNT {
        std::thread::sleep(rest);
        let began = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(path)?;
    Ok(stats::quantile(&stats::sorted(&times), 0.5).unwrap_or(0.0))
}

/// 4 KiB appended and synced at this rate for so long: the 99th percentile, in milliseconds from when
/// each was due.
pub fn disk_sync_paced_p99_ms(folder: &Path, rate: u32, length: Duration) -> std::io::Result<f64> {
    let path = folder.join("disk-sync-paced");
    let mut file = File::create(&path)?;
    let block = [7_u8; 4096];
    let mut times = Vec::new();
    let began = Instant::now();
    for index in 0.. {
        let due = Duration::from_secs(1) * index / rate;
        if due >= length {
            break;
        }
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(began.elapsed().saturating_sub(due).as_secs_f64() * 1e3);
    }
    std::fs::remove_file(path)?;
    Ok(stats::quantile(&stats::sorted(&times), 0.99).unwrap_or(0.0))
}

/// So many bytes written in sequence and synced at the end, through the page cache or past it,
/// whichever is faster; in bytes a second.
pub fn disk_write_bytes_per_s(folder: &Path, bytes: u64) -> std::io::Result<f64> {
    let cached = sequence_bytes_per_s(folder, bytes, OFlags::empty())?;
    // A file system may not have it.
    let direct = sequence_bytes_per_s(folder, bytes, OFlags::DIRECT).unwrap_or_else(|_| {
        let _ = std::fs::remove_file(folder.join(DISK_WRITE));
        0.0
    });
    Ok(cached.max(direct))
}

/// So many bytes written in sequence through the page cache and synced at the end; in bytes a second.
pub fn cached_write_bytes_per_s(folder: &Path, bytes: u64) -> std::io::Result<f64> {
    sequence_bytes_per_s(folder, bytes, OFlags::empty())
}

/// So many bytes written past the page cache into space that was reserved before, by four threads in
/// turns of 1 MiB and synced at the end, twice over; the better of the two, in bytes a second.
pub fn direct_write_bytes_per_s(folder: &Path, bytes: u64) -> std::io::Result<f64> {
    let path = folder.join(DISK_WRITE);
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options.custom_flags(OFlags::DIRECT.bits() as i32);
    let file = options.open(&path)?;
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
    rustix::fs::fallocate(
        &file,
        FallocateFlags::empty(),
        0,
        blocks * BLOCK_BYTES as u64,
    )?;
    let mut best: f64 = 0.0;
    for _ in 0..2 {
        let began = Instant::now();
        let write = |first: u64| -> std::io::Result<()> {
            let block = vec![7_u8; BLOCK_BYTES + PAGE_BYTES];
            let start = block.as_ptr().align_offset(PAGE_BYTES);
            for index in (first..blocks).step_by(WRITERS as usize) {
                let part = &block[start..start + BLOCK_BYTES];
                file.write_all_at(part, index * BLOCK_BYTES as u64)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|first| scope.spawn(move || write(first)))
                .collect();
            writers.into_iter().try_for_each(|writer| {
                writer
                    .join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a writer panicked")))
            })
        })?;
        file.sync_data()?;
        let rate = (blocks * BLOCK_BYTES as u64) as f64 / began.elapsed().as_secs_f64();
        best = best.max(rate);
    }
    std::fs::remove_file(path)?;
    Ok(best)
}

/// So many bytes of one file read in sequence from the disk itself; in bytes a second.
pub fn read_bytes_per_s(folder: &Path, bytes: u64) -> std::io::Result<f64> {
    let path = folder.join(DISK_WRITE);
    let mut file = File::create(&path)?;
    let mut block = vec![7_u8; BLOCK_BYTES];
    for _ in 0..bytes.div_ceil(BLOCK_BYTES as u64) {
        file.write_all(&block)?;
    }
    drop(file);
    crate::store::forget(&path)?;
    let mut file = File::open(&path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential)?;
    let began = Instant::now();
    let mut read = 0;
    loop {
        match file.read(&mut block)? {
            0 => break,
            length => read += length,
        }
    }
    let rate = read as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// Bytes of memory that one thread copies in a second, blocks that no cache holds.
pub fn copy_bytes_per_s() -> f64 {
    let from = vec![7_u8; COPY_BYTES];
    let mut to = vec![1_u8; COPY_BYTES];
    let began = Instant::now();
    for _ in 0..COPIES {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    }
    (COPIES * COPY_BYTES) as f64 / began.elapsed().as_secs_f64()
}

fn sequence_bytes_per_s(folder: &Path, bytes: u64, flags: OFlags) -> std::io::Result<f64> {
    let path = folder.join(DISK_WRITE);
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    options.custom_flags(flags.bits() as i32);
    let mut file = options.open(&path)?;
    let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
    let bytes = blocks * BLOCK_BYTES as u64;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    // Writing past the cache is by whole pages, of the memory too.
    let block = vec![7_u8; BLOCK_BYTES + PAGE_BYTES];
    let start = block.as_ptr().align_offset(PAGE_BYTES);
    let block = &block[start..start + BLOCK_BYTES];
    let began = Instant::now();
    for _ in 0..blocks {
        file.write_all(block)?;
    }
    file.sync_data()?;
    let rate = bytes as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

fn memory_bytes() -> u64 {
    let text = field_of("/proc/meminfo", "MemTotal").unwrap_or_default();
    let kib: u64 = text
        .split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    kib * 1024
}

fn field_of(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

const SYNC_COUNT: usize = 200;
const DISK_WRITE: &str = "disk-write";
const BLOCK_BYTES: usize = 1 << 20;
/// Threads that write past the cache together: one alone waits between its blocks.
const WRITERS: u64 = 4;
const COPY_BYTES: usize = 64 << 20;
const COPIES: usize = 20;
const WRITE_BYTES: u64 = 512 << 20;
const PAGE_BYTES: usize = 4 << 10;
