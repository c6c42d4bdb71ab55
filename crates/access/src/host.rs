//! By which name a port was called, where that has to be this machine's own: any site may have its own
//! name lead here (DNS rebinding), and its pages then pass for this server's.

use std::net::IpAddr;

/// Whether the host of a request is an address, or the one name that always means this machine; with
/// or without a port.
pub fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_this_machine() {
        for own in [
            "127.0.0.1:1",
            "127.0.0.1",
            "[::1]:9001",
            "[::1]",
            "LocalHost:80",
        ] {
            assert!(is_this_machine(own), "{own}");
        }
        for other in [
            "",
            ":80",
            "here:9001",
            "127.0.0.1.example",
            "localhost.example:80",
        ] {
            assert!(!is_this_machine(other), "{other}");
        }
    }
}
