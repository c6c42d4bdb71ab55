//! Connections by address: how many each has of those that it may have.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The connections of each address that has some; clones count together.
#[derive(Clone, Debug, Default)]
pub struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// A connection's place among those of its address; given back when dropped.
#[derive(Debug)]
pub struct AddressPlace {
    all: Addresses,
    ip: IpAddr,
}

impl Addresses {
    /// A place for one more connection of `ip`, unless it has `most` already; 0 is no bound.
    pub fn place(&self, ip: IpAddr, most: usize) -> Option<AddressPlace> {
        // One host, whichever way its address is written.
        let ip = ip.to_canonical();
        let mut connections = self.0.lock();
        let count = connections.entry(ip).or_insert(0);
        if most > 0 && *count >= most {
            return None;
        }
        *count += 1;
        drop(connections);
        let all = self.clone();
        Some(AddressPlace { all, ip })
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        let mut connections = self.all.0.lock();
        if let Some(count) = connections.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_as_many_as_it_may() {
        let all = Addresses::default();
        let place = |ip: &str, most| all.place(ip.parse().unwrap(), most);
        let two = [place("10.0.0.1", 2), place("::ffff:10.0.0.1", 2)];
        assert!(two.iter().all(Option::is_some));
        assert!(place("10.0.0.1", 2).is_none());
        assert!(place("10.0.0.2", 2).is_some());
        assert!(place("10.0.0.1", 0).is_some());
        drop(two);
        assert!(place("10.0.0.1", 1).is_some());
        assert!(all.0.lock().is_empty());
    }
}
