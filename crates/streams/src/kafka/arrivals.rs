//! Connections by address: how many each has, and how fast new ones come.

use std::net::IpAddr;
use std::time::Duration;

use access::AddressPlace;

use super::Shared;

/// Why a connection is not served.
pub(super) enum Refused {
    /// The address has as many as it may.
    TooMany,
    /// New ones come too fast from the address: this one is closed after a while, so that trying
    /// again at once does not pay.
    TooFast(Duration),
}

impl Shared {
    /// Takes in a connection from `ip`.
    pub(super) fn arrive(&self, ip: IpAddr) -> Result<AddressPlace, Refused> {
        let most = self.streams.config().max_connections_per_ip;
        let addresses = &self.security.usage.addresses;
        let place = addresses.place(ip, most).ok_or(Refused::TooMany)?;
        let wait = self.charge_connection(&ip.to_canonical().to_string());
        match wait.is_zero() {
            true => Ok(place),
            false => Err(Refused::TooFast(wait)),
        }
    }
}
