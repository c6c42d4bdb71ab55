//! Tells systemd how the process is doing (`Type=notify`), where systemd wants to know.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to systemd.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    socket: UnixDatagram,
    /// How often systemd wants to hear that the process lives.
    pub watchdog: Option<Duration>,
}

impl Service {
    /// From the environment; `None` when systemd did not start the process or does not ask.
    pub fn of_environment() -> Option<Service> {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_meant =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let micros = number("WATCHDOG_USEC").filter(|_| is_meant);
        match Service::new(&address, micros) {
            Ok(service) => Some(service),
            Err(error) => {
                tracing::warn!(%error, "systemd cannot be told how this process is doing");
                None
            }
        }
    }

    fn new(address: &OsString, watchdog_micros: Option<u64>) -> io::Result<Service> {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(address)?,
        };
        Ok(Service {
            address,
            socket: UnixDatagram::unbound()?,
            // Twice as often as asked for, as the manual says.
            watchdog: watchdog_micros
                .filter(|micros| *micros > 0)
                .map(|micros| Duration::from_micros(micros / 2)),
        })
    }

    /// Tells one state, such as `READY=1`.
    pub fn tell(&self, state: &str) {
        if let Err(error) = self.socket.send_to_addr(state.as_bytes(), &self.address) {
            tracing::debug!(%error, state, "systemd did not hear");
        }
    }

    /// Says again and again that the process lives; as long as its tasks run, that is.
    pub async fn keep_alive(&self) {
        let Some(every) = self.watchdog else {
            return std::future::pending().await;
        };
        loop {
            self.tell("WATCHDOG=1");
            tokio::time::sleep(every).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_hears_of_the_start_and_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let service = Service::new(&path.into_os_string(), Some(2_000)).unwrap();
        service.tell("READY=1");
        let mut buffer = [0; 64];
        let mut heard = || {
            let len = listener.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..len]).into_owned()
        };
        assert_eq!(heard(), "READY=1");
        let runtime = crate::testing::runtime();
        let alive = runtime.spawn(async move { service.keep_alive().await });
        assert_eq!(
            (heard(), heard()),
            ("WATCHDOG=1".to_owned(), "WATCHDOG=1".to_owned())
        );
        alive.abort();
        assert!(
            Service::new(&OsString::from("relative/but/fine"), None)
                .unwrap()
                .watchdog
                .is_none()
        );
    }
}
