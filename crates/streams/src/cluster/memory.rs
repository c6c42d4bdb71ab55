//! How much freed memory the C library keeps for the next round.
//!
//! librdkafka takes memory for each record of a round and gives all of it back at the round's end. By
//! itself glibc hands that to the system at once, and the next round pays a page fault for every page
//! of it again: a fifth of what the process spent on records of 100 B (decision 23).

/// Has the process keep what a few rounds take. Holds for the whole process; where the C library is
/// another one, its own way stays.
pub(super) fn keep_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    keep_freed_by_glibc();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn keep_freed_by_glibc() {
    // Setting one of the two ends glibc's own adjusting of both.
    let settings = [
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN),
    ];
    for (name, value) in settings {
        // SAFETY: the call takes two numbers and may be made at any time, from any thread.
        if unsafe { libc::mallopt(name, value) } != 1 {
            tracing::debug!(
                name,
                value,
                "the C library does not take a setting of its memory"
            );
        }
    }
}

/// Freed bytes that each of the library's heaps keeps: a round of a busy lane, whose records take
/// three times as much as they have bytes.
const KEPT_BYTES: libc::c_int = 8 << 20;

/// Bytes from which on memory is mapped for itself and unmapped when it is freed: what is smaller is
/// the body of a request, and comes again.
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Page faults of this thread so far, which took a page that had to be made.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        fields.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// Takes and gives back what a round of small records does.
    fn round() {
        let records: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 200]).collect();
        drop(std::hint::black_box(records));
    }

    #[test]
    fn a_round_finds_the_memory_of_the_last_one() {
        keep_freed();
        // A thread of its own has a heap of its own.
        let faults = std::thread::spawn(|| {
            round();
            let before = faults();
            for _ in 0..10 {
                round();
            }
            faults() - before
        });
        let pages = faults.join().unwrap();
        assert!(
            pages < 1_000,
            "{pages} pages were taken anew, of some 11,000"
        );
    }
}
