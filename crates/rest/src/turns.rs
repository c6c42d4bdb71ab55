//! Turns for work that is slow and that strangers can ask for: passwords that are hashed.
//!
//! Few are served at one time, and of one address one, so that who guesses from one address holds up
//! others by one guess. As many may wait as the bound says; those beyond are refused.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Gives turns; those of one address in the order of their asking.
pub(crate) struct Turns {
    places: Semaphore,
    waiting: Mutex<Waiting>,
    waiting_max: usize,
}

#[derive(Default)]
struct Waiting {
    count: usize,
    by_address: HashMap<IpAddr, OfAddress>,
}

/// The one place of an address, and how many have it or wait for it.
struct OfAddress {
    place: Arc<Semaphore>,
    count: usize,
}

/// A turn; the next one's begins when it goes.
pub(crate) struct Turn<'t> {
    _place: SemaphorePermit<'t>,
    _of_address: OwnedSemaphorePermit,
    _queued: Queued<'t>,
}

impl Turns {
    /// `at_once` turns at one time, `waiting_max` callers that have one or wait for one.
    pub(crate) fn new(at_once: usize, waiting_max: usize) -> Self {
        Turns {
            places: Semaphore::new(at_once),
            waiting: Mutex::default(),
            waiting_max,
        }
    }

    /// Waits for a turn; none where too many wait already.
    pub(crate) async fn wait(&self, ip: IpAddr) -> Option<Turn<'_>> {
        let queued = self.queue(one_caller(ip))?;
        let of_address = Arc::clone(&queued.place).acquire_owned().await.ok()?;
        let place = self.places.acquire().await.ok()?;
        Some(Turn {
            _place: place,
            _of_address: of_address,
            _queued: queued,
        })
    }

    fn queue(&self, ip: IpAddr) -> Option<Queued<'_>> {
        let mut waiting = self.waiting.lock();
        if waiting.count >= self.waiting_max {
            return None;
        }
        waiting.count += 1;
        let of_address = waiting.by_address.entry(ip).or_insert_with(|| OfAddress {
            place: Arc::new(Semaphore::new(1)),
            count: 0,
        });
        of_address.count += 1;
        Some(Queued {
            turns: self,
            ip,
            place: Arc::clone(&of_address.place),
        })
    }
}

/// One of those who wait or have a turn; not counted any more when it goes.
struct Queued<'t> {
    turns: &'t Turns,
    ip: IpAddr,
    place: Arc<Semaphore>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut waiting = self.turns.waiting.lock();
        waiting.count -= 1;
        if let Some(of_address) = waiting.by_address.get_mut(&self.ip) {
            of_address.count -= 1;
            if of_address.count == 0 {
                waiting.by_address.remove(&self.ip);
            }
        }
    }
}

/// Who has one network of IPv6 has as many addresses of it as they like.
fn one_caller(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & NETWORK)),
        ip => ip,
    }
}

/// The bits of an address of IPv6 that name the network.
const NETWORK: u128 = !(u64::MAX as u128);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Whether a turn comes at once.
    async fn comes<'t>(turns: &'t Turns, from: &str) -> Option<Turn<'t>> {
        let waited = tokio::time::timeout(Duration::from_millis(20), turns.wait(ip(from))).await;
        waited.ok().flatten()
    }

    #[tokio::test]
    async fn one_address_holds_one_place_and_others_pass_it() {
        let turns = Turns::new(2, 100);
        let first = comes(&turns, "10.0.0.1").await.unwrap();
        assert!(comes(&turns, "10.0.0.1").await.is_none());
        assert!(comes(&turns, "::ffff:10.0.0.1").await.is_none());
        let other = comes(&turns, "10.0.0.2").await.unwrap();
        assert!(comes(&turns, "10.0.0.3").await.is_none(), "all have a turn");
        drop(first);
        drop(comes(&turns, "2001:db8::1").await.unwrap());
        drop(other);
        let network = comes(&turns, "2001:db8::1").await.unwrap();
        assert!(comes(&turns, "2001:db8::2").await.is_none());
        assert!(comes(&turns, "2001:db8:0:1::1").await.is_some());
        drop(network);
        let waiting = turns.waiting.lock();
        assert_eq!((waiting.count, waiting.by_address.len()), (0, 0));
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_told_at_once() {
        let turns = Arc::new(Turns::new(1, 3));
        let held = turns.wait(ip("10.0.0.1")).await.unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let turns = Arc::clone(&turns);
                tokio::spawn(async move { turns.wait(ip("10.0.0.1")).await.is_some() })
            })
            .collect();
        while turns.waiting.lock().count < 3 {
            tokio::task::yield_now().await;
        }
        assert!(turns.wait(ip("10.0.0.9")).await.is_none());
        drop(held);
        for waiter in waiters {
            assert!(waiter.await.unwrap());
        }
        assert!(turns.wait(ip("10.0.0.9")).await.is_some());
    }
}
