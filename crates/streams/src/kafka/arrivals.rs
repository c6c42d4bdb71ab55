//! Connections by address: how many each has, and how fast new ones come.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Shared;
use super::throttle::Usage;

/// A connection's place among those of its address; given back when dropped.
pub(super) struct Place {
    usage: Arc<Usage>,
    ip: IpAddr,
}

/// Why a connection is not served.
pub(super) enum Refused {
    /// The address has as many as it may.
    TooMany,
    /// New ones come too fast from the address: this one is closed after a while, so that trying
    /// again at once does not pay.
    TooFast(std::time::Duration),
}

/// The connections of each address that has some.
#[derive(Default)]
pub(super) struct Connections(HashMap<IpAddr, usize>);

impl Shared {
    /// Takes in a connection from `ip`.
    pub(super) fn arrive(&self, ip: IpAddr) -> Result<Place, Refused> {
        // One host, whichever way its address is written.
        let ip = ip.to_canonical();
        let max = self.streams.config().max_connections_per_ip;
        let usage = Arc::clone(&self.security.usage);
        {
            let mut connections = usage.connections.lock();
            let count = connections.0.entry(ip).or_insert(0);
            if max > 0 && *count >= max {
                return Err(Refused::TooMany);
            }
            *count += 1;
        }
        let place = Place { usage, ip };
        let wait = self.charge_connection(&ip.to_string());
        match wait.is_zero() {
            true => Ok(place),
            false => Err(Refused::TooFast(wait)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = self.usage.connections.lock();
        if let Some(count) = connections.0.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                connections.0.remove(&self.ip);
            }
        }
    }
}
