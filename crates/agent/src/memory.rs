//! Memory that was freed and that the C library keeps for what comes next.
//!
//! What is done once, such as telling the manifest, takes some megabytes for a moment. glibc gives
//! freed memory back by itself only where it ends a heap; an agent at rest would keep it for ever.

/// Gives freed memory back to the system; where the C library is another one, its own way stays. Looks
/// through all heaps, so it is for what is done seldom.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    give_back_by_glibc();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn give_back_by_glibc() {
    // SAFETY: the call takes a number and may be made at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Pages of this process that lie in memory and in no file.
    fn pages() -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let fields: Vec<u64> = statm
            .split_whitespace()
            .map(|field| field.parse().unwrap())
            .collect();
        fields[1] - fields[2]
    }

    #[test]
    fn what_was_freed_between_what_is_kept_goes_back() {
        // Small ones, none of which is mapped by itself, with one in a thousand kept.
        let mut all: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 600]).collect();
        let mut number = 0;
        all.retain(|_| {
            number += 1;
            number % 1_000 == 0
        });
        let before = pages();
        give_back();
        let after = pages();
        // 60 MB were freed; other tests of this process take some meanwhile.
        assert!(after + 5_000 < before, "{before} pages, then {after}");
        drop(all);
    }
}
