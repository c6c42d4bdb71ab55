//! What a connection is protected with: which of a server's endpoints is taken, whether the server
//! is the one that was meant, and how a password is said.

use std::sync::Arc;

use base::UnixMillis;

use super::frame::POLICY_NONE;
use super::guard::Guard;
use super::identity::{Certificate, Identity, Trust};
use super::message::{self, Created, Credentials, Endpoint, Signature, Token};
use super::policy::Policy;
use super::wire::Damaged;
use super::{Fault, Login};

/// Who the agent is to a server, and who the server has to be.
#[derive(Default)]
pub(crate) struct Security {
    /// Channels are signed and encrypted with it; without it they are not.
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) trusted: Vec<Certificate>,
}

impl Security {
    /// Whether a server's certificate is one that was meant.
    pub(super) fn check(
        &self,
        peer: &Certificate,
        now: UnixMillis,
        warn: &dyn Fn(&str),
    ) -> Result<(), Fault> {
        match peer.is_trusted(&self.trusted, now) {
            Ok(Trust::Known) => Ok(()),
            Ok(Trust::Unchecked) => {
                warn(
                    "whoever answers is taken for the server: Trusted server certificate path is \
                     empty",
                );
                Ok(())
            }
            Err(why) => Err(Fault::Link(why)),
        }
    }
}

/// The endpoint to take: one that signs and encrypts, with the best policy that both sides know.
pub(super) fn best(endpoints: &[Endpoint]) -> Result<(Policy, Certificate), Fault> {
    let known = endpoints.iter().filter_map(|endpoint| {
        let is_fit = endpoint.mode == message::SIGN_AND_ENCRYPT && is_over_tcp(endpoint);
        let policy = Policy::of(&endpoint.policy).filter(|_| is_fit)?;
        Some((policy, endpoint))
    });
    let Some((policy, endpoint)) = known.max_by_key(|(policy, _)| *policy) else {
        let known = Policy::ALL.map(Policy::uri).map(short).join(", ");
        let mut offered: Vec<&str> = endpoints.iter().map(|it| short(&it.policy)).collect();
        offered.sort_unstable();
        offered.dedup();
        return Err(Fault::Link(format!(
            "the server has no endpoint that signs and encrypts by one of {known}; it offers {}",
            offered.join(", ")
        )));
    };
    let peer = Certificate::sent(&endpoint.certificate)
        .map_err(|why| Fault::Link(format!("the server's certificate: {why}")))?;
    Ok((policy, peer))
}

/// Checks that the server has its certificate's key, and makes what shows the same of the agent.
pub(super) fn proven(
    guard: &Guard,
    created: &Created,
    own_nonce: &[u8],
) -> Result<Signature, Fault> {
    if !created.certificate.starts_with(guard.peer.der()) {
        return Err(Damaged("the session has another certificate than the channel").into());
    }
    let signed = [guard.identity.certificate.der(), own_nonce].concat();
    if !guard
        .peer
        .has_signed(guard.policy, &signed, &created.signature)
    {
        return Err(Damaged("the server does not show that it has its certificate's key").into());
    }
    let signing = [guard.peer.der(), &created.nonce].concat();
    Ok(Signature {
        policy: guard.policy,
        bytes: guard.identity.sign(guard.policy, &signing),
    })
}

/// The way to log in over a channel with this policy, and what a password is encrypted with, if with
/// anything; what encrypts comes first.
pub(super) fn token(
    endpoints: &[Endpoint],
    channel: Option<Policy>,
    has_login: bool,
) -> Result<(&Token, Option<Policy>), Fault> {
    let (kind, who) = match has_login {
        true => (message::USER_NAME, "user names"),
        false => (message::ANONYMOUS, "clients without a user name"),
    };
    let (mode, uri) = match channel {
        Some(policy) => (message::SIGN_AND_ENCRYPT, policy.uri()),
        None => (message::NO_SECURITY, POLICY_NONE),
    };
    let offered: Vec<&Token> = endpoints
        .iter()
        .filter(|endpoint| endpoint.mode == mode && endpoint.policy == uri)
        .flat_map(|endpoint| &endpoint.tokens)
        .filter(|token| token.kind == kind)
        .collect();
    let sealing = |token: &Token| match token.policy.as_str() {
        "" => Ok(channel),
        POLICY_NONE => Ok(None),
        policy => Policy::of(policy).map(Some).ok_or(()),
    };
    let fit = offered.iter().filter_map(|token| match has_login {
        true => Some((*token, sealing(token).ok()?)),
        // Who says nobody has nothing to hide.
        false => Some((*token, None)),
    });
    fit.max_by_key(|(_, sealing)| *sealing).ok_or_else(|| {
        Fault::Link(match offered.first() {
            Some(token) => format!(
                "the server takes passwords encrypted by {} alone, which is not spoken",
                short(&token.policy)
            ),
            None => format!("the server does not let in {who} over such a channel"),
        })
    })
}

/// What is said of who logs in; a password is encrypted to the server that has the certificate.
pub(super) fn credentials<'l>(
    login: &'l Login,
    sealing: Option<(Policy, Certificate)>,
    server_nonce: &[u8],
) -> Result<Credentials<'l>, Fault> {
    let password = login.password.as_bytes();
    let Some((policy, peer)) = sealing else {
        return Ok(Credentials {
            user: &login.user,
            password: password.to_vec(),
            policy: None,
        });
    };
    // The nonce makes it good for this session alone.
    let len = u32::try_from(password.len() + server_nonce.len()).unwrap_or(u32::MAX);
    let content = [&len.to_le_bytes(), password, server_nonce].concat();
    let sealed = peer.seal(policy.oaep(), &content);
    let password = sealed.map_err(|error| {
        Fault::Link(format!(
            "nothing can be encrypted to the server's key: {error}"
        ))
    })?;
    Ok(Credentials {
        user: &login.user,
        password,
        policy: Some(policy),
    })
}

/// Servers that name no transport have one alone.
fn is_over_tcp(endpoint: &Endpoint) -> bool {
    endpoint.transport.is_empty() || endpoint.transport.ends_with("uatcp-uasc-uabinary")
}

/// A policy's name without what all of them begin with.
fn short(policy: &str) -> &str {
    policy.rsplit_once('#').map_or(policy, |(_, name)| name)
}
