//! The gate of an installation with users: who comes in by password, token or certificate, and
//! what the ACLs let them do.
//!
//! A password is checked by the users of `access`, as on the Kafka listener and over HTTP: hashing
//! takes tens of milliseconds, so few are hashed at a time, who was wrong is answered late, and who
//! was right is remembered for a while. Instead of a password an API token or a JSON Web Token may
//! be shown; the connection ends with it. Changed ACLs hold at once for clients that are connected;
//! they stay connected. Whose token is revoked, whose password is changed and who is removed is cut
//! off at once.

mod exchange;
mod pass;
mod refusals;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, Bound, Jwts, Meters, Passwords, Policy, Principal, Shown, Token};
use base::{Clock, UnixMillis};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::gate::{Admission, Exchange, Gate, Hello, Owner, Pass};
use crate::guard::pass::ClientPass;
use crate::limits::{LOGIN_REFUSED_WAIT, LOGINS_AT_ONCE_MAX, LOGINS_WAITING_MAX, RATE_WINDOW};
use crate::mount::Mount;
use crate::reason::ReasonCode;
use crate::server::Server;

use refusals::Refusals;
pub use refusals::{Refusal, Refused};

/// What a guard goes by.
#[derive(Clone, Debug, Default)]
pub struct GuardSettings {
    /// Whether clients have to say who they are.
    pub logins: bool,
    /// What holds beside the ACLs; everybody may do everything when absent.
    pub policy: Option<Policy>,
    /// Connections that one user may have at once; zero is no bound.
    pub clients_per_user_max: usize,
    /// PUBLISH packets a second that one client may send; zero is no bound.
    pub client_message_rate: u64,
    /// Bytes a second that one client may send; zero is no bound.
    pub client_byte_rate: u64,
    /// Whether the topics of a tenant's clients lie below the tenant's name, unwritten.
    pub mounts_tenants: bool,
}

/// Lets clients in by the users, tokens and ACLs of a data folder.
pub struct Guard {
    shared: Arc<Shared>,
}

/// What the guard and the passes that it gave share.
struct Shared {
    access: Arc<Access>,
    passwords: Arc<Passwords>,
    jwts: Option<Arc<Jwts>>,
    settings: GuardSettings,
    clock: Arc<dyn Clock>,
    hashing: Semaphore,
    waiting: Semaphore,
    refusals: Refusals,
    clients_of: Mutex<HashMap<Principal, usize>>,
    /// Bytes that users and clients have sent, where a quota bounds them.
    bytes: Mutex<Meters<Sharer>>,
    /// Connections that came from an address, where a quota bounds them.
    connections: Mutex<Meters<IpAddr>>,
}

/// Who shares a quota; the empty one stands for all for whom there was no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Sharer {
    user: Option<Principal>,
    client_id: Option<Arc<str>>,
}

impl Guard {
    /// By the users of `access`; `jwts` checks tokens that somebody else issued.
    pub fn new(
        access: Arc<Access>,
        jwts: Option<Arc<Jwts>>,
        settings: GuardSettings,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shared = Shared {
            passwords: Arc::new(Passwords::new(Arc::clone(&access))),
            access,
            jwts,
            settings,
            clock,
            hashing: Semaphore::new(LOGINS_AT_ONCE_MAX),
            waiting: Semaphore::new(LOGINS_WAITING_MAX),
            refusals: Refusals::default(),
            clients_of: Mutex::default(),
            bytes: Mutex::new(Meters::new(RATE_WINDOW, |_| Sharer::default())),
            connections: Mutex::new(Meters::new(RATE_WINDOW, |_| IpAddr::from([0, 0, 0, 0]))),
        };
        Guard {
            shared: Arc::new(shared),
        }
    }

    /// What was refused last, the newest first, at most `count`.
    pub fn refusals(&self, count: usize) -> Vec<Refusal> {
        self.shared.refusals.newest(count)
    }

    /// Tells `server` of every change of users and ACLs until it is closed.
    pub async fn keep_told(&self, server: Server) {
        let access = &self.shared.access;
        let mut seen = access.revision();
        loop {
            tokio::select! {
                now = access.changed_since(seen) => seen = now,
                () = server.closed() => return,
            }
            server.permissions_changed();
        }
    }
}

impl Gate for Guard {
    fn admit<'a>(&'a self, hello: &'a Hello<'a>) -> Admission<'a> {
        Box::pin(async move {
            let admitted = self.shared.admit(hello).await;
            admitted
                .map(|pass| pass as Arc<dyn Pass>)
                .map_err(|(code, reason)| {
                    self.shared.note(hello, code, reason);
                    code
                })
        })
    }

    fn exchange(&self, method: &str, hello: &Hello<'_>) -> Option<Box<dyn Exchange>> {
        exchange::begin(&self.shared, method, hello)
    }

    fn away(&self, client_id: &str, owner: &Owner) -> Option<Arc<dyn Pass>> {
        let user = owner.user.as_deref();
        let principal = user.map_or_else(Principal::anonymous, Principal::user);
        let (shared, host) = (Arc::clone(&self.shared), owner.host.to_string());
        let mount = shared.mount_of(&principal);
        let own_id = mount.map_or(client_id, |mount| mount.client_outside(client_id));
        Some(Arc::new(ClientPass::new(shared, principal, own_id, host)))
    }
}

/// A reason code and its reason in words.
type No = (ReasonCode, &'static str);

/// Who somebody is, what says so, and until when that is good.
type Known = (Principal, Shown, Option<UnixMillis>);

impl Shared {
    async fn admit(self: &Arc<Self>, hello: &Hello<'_>) -> Result<Arc<ClientPass>, No> {
        let ip = hello.origin.peer.ip().to_canonical();
        self.connects(ip)?;
        let (principal, shown, until) = self.principal(hello, ip).await?;
        let host = hello.origin.host();
        let pass = ClientPass::new(Arc::clone(self), principal, hello.client_id, host);
        let pass = pass.by(shown).until(until);
        pass.take_seat()?;
        Ok(Arc::new(pass))
    }

    /// Counts a connection of an address against its quota.
    fn connects(&self, ip: IpAddr) -> Result<(), No> {
        let snapshot = self.access.snapshot();
        let Some(rate) = snapshot.bound_of_ip(Bound::ConnectionCreationRate, &ip.to_string())
        else {
            return Ok(());
        };
        let wait = self
            .connections
            .lock()
            .charge(self.clock.now(), ip, rate, 1.0);
        match wait {
            Duration::ZERO => Ok(()),
            _ => Err((
                ReasonCode::ConnectionRateExceeded,
                "the address connects more often than its quota allows",
            )),
        }
    }

    /// Who it is.
    async fn principal(&self, hello: &Hello<'_>, ip: IpAddr) -> Result<Known, No> {
        let certificate = || {
            let subject = hello.origin.certificate.as_deref();
            subject.map(|subject| (Principal::user(subject), Shown::lasting(), None))
        };
        if !self.settings.logins {
            // Nobody is asked, so nobody is believed either, but for who was verified below.
            let nobody = || (Principal::anonymous(), Shown::lasting(), None);
            return Ok(certificate().unwrap_or_else(nobody));
        }
        let name = hello.username.unwrap_or_default();
        let Some(shown) = hello.password else {
            return certificate().ok_or((
                ReasonCode::NotAuthorized,
                "the client shows neither a password nor a certificate",
            ));
        };
        let wrong = (
            ReasonCode::BadUserNameOrPassword,
            "user, password or token is wrong",
        );
        let Ok(text) = std::str::from_utf8(shown.0) else {
            return Err(self.late(wrong).await);
        };
        let now = self.clock.now();
        if let Some(found) = self.holder(now, name, text) {
            return match found {
                Some(known) => Ok(known),
                None => Err(self.late(wrong).await),
            };
        }
        let by_password = Shown::password(&self.access.snapshot(), name);
        if let Some(principal) = self.passwords.known(now, name, text) {
            return Ok((principal, by_password, None));
        }
        let busy = (ReasonCode::ServerBusy, "too many logins wait already");
        let _waiting = self.waiting.try_acquire().map_err(|_| busy)?;
        let _turn = self.hashing.acquire().await.map_err(|_| busy)?;
        // Others may have changed the users while this one waited.
        let by_password = Shown::password(&self.access.snapshot(), name);
        let (passwords, name, text) = (
            Arc::clone(&self.passwords),
            name.to_owned(),
            text.to_owned(),
        );
        let checked = tokio::task::spawn_blocking(move || passwords.check(now, &name, &text)).await;
        match checked {
            Ok(Some(principal)) => Ok((principal, by_password, None)),
            _ => {
                tracing::debug!(%ip, "an MQTT login failed");
                Err(self.late(wrong).await)
            }
        }
    }

    /// Whom a token stands for: none when the text is no token, `Some(None)` when it is a bad one.
    fn holder(&self, now: UnixMillis, name: &str, text: &str) -> Option<Option<Known>> {
        if Token::looks_like(text) {
            let snapshot = self.access.snapshot();
            let token = snapshot.token_of(text);
            // A token stands for its own user only.
            let token = token.filter(|token| name.is_empty() || token.user == name);
            return Some(token.and_then(|token| {
                Some((token.principal(now)?, Shown::token(token), token.expires))
            }));
        }
        let jwts = self.jwts.as_ref()?;
        let is_jwt = text.starts_with("eyJ") && text.matches('.').count() == 2;
        is_jwt.then(|| {
            let (bearer, until) = jwts.check(now, text).ok()?;
            Some((bearer.principal, Shown::lasting(), Some(until)))
        })
    }

    /// Refuses late, so that nobody tries many.
    async fn late(&self, no: No) -> No {
        tokio::time::sleep(LOGIN_REFUSED_WAIT).await;
        no
    }

    /// Where the topics of a client lie that belongs to a tenant and comes now.
    fn mount_of(&self, principal: &Principal) -> Option<Mount> {
        if !self.settings.mounts_tenants || !self.access.has_tenants() {
            return None;
        }
        let policy = self.settings.policy.as_ref();
        if policy.is_some_and(|policy| policy.super_users.contains(principal)) {
            return None;
        }
        let snapshot = self.access.snapshot();
        let of = snapshot.tenant_of(policy, principal)?;
        Some(Mount::of(of.name()))
    }

    /// Counts one of the connections that a user may have; [`ClientPass`] gives it back.
    fn seat(&self, principal: &Principal) -> Result<(), No> {
        let max = self.settings.clients_per_user_max;
        if max == 0 {
            return Ok(());
        }
        let mut clients_of = self.clients_of.lock();
        let count = clients_of.entry(principal.clone()).or_default();
        if *count >= max {
            return Err((
                ReasonCode::QuotaExceeded,
                "the user has as many clients as mqtt.clients_per_user_max allows",
            ));
        }
        *count += 1;
        Ok(())
    }

    fn unseat(&self, principal: &Principal) {
        if self.settings.clients_per_user_max == 0 {
            return;
        }
        let mut clients_of = self.clients_of.lock();
        if let Some(count) = clients_of.get_mut(principal) {
            *count -= 1;
            if *count == 0 {
                clients_of.remove(principal);
            }
        }
    }

    fn note(&self, hello: &Hello<'_>, code: ReasonCode, reason: &'static str) {
        self.refusals.note(Refusal {
            at_ms: self.clock.now().0,
            client_id: hello.client_id.to_owned(),
            user: hello.username.unwrap_or_default().to_owned(),
            host: hello.origin.host(),
            what: Refused::Connect,
            topic: String::new(),
            code: code.byte(),
            reason,
        });
    }
}
