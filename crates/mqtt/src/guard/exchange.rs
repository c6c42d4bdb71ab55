//! Enhanced logins of MQTT 5.0 at the guard: SCRAM by the users' keys, then the same bounds as for
//! every other client.

use std::sync::Arc;

use access::{Principal, ScramHash, Shown};
use parking_lot::Mutex;

use crate::gate::{Exchange, Hello, Pass, Progress};
use crate::guard::pass::ClientPass;
use crate::guard::refusals::{Refusal, Refused};
use crate::guard::{No, Shared};
use crate::reason::ReasonCode;
use crate::scram::scram;

/// A login by SCRAM, and what the guard has to say to it.
struct Guarded {
    inner: Box<dyn Exchange>,
    shared: Arc<Shared>,
    client_id: String,
    host: String,
    /// Why the client is not even heard.
    refused: Option<No>,
    /// The pass that the login made.
    made: Arc<Mutex<Option<Arc<ClientPass>>>>,
}

/// Begins a login by `method`; `None` when it is not offered.
pub(super) fn begin(
    shared: &Arc<Shared>,
    method: &str,
    hello: &Hello<'_>,
) -> Option<Box<dyn Exchange>> {
    let ip = hello.origin.peer.ip().to_canonical();
    let (client_id, host) = (hello.client_id.to_owned(), ip.to_string());
    let made = Arc::new(Mutex::new(None));
    let pass_of = {
        let (shared, client_id, host) = (Arc::clone(shared), client_id.clone(), host.clone());
        let made = Arc::clone(&made);
        // The users as they are before the login: whom a change meets meanwhile is cut off after it.
        let (users, hash) = (shared.access.snapshot(), method.parse::<ScramHash>());
        move |principal: &Principal| {
            let shared = Arc::clone(&shared);
            let pass = ClientPass::new(shared, principal.clone(), &client_id, host.clone());
            let shown = match &hash {
                Ok(hash) => Shown::scram(&users, principal.name(), *hash),
                Err(_) => Shown::lasting(),
            };
            let pass = Arc::new(pass.by(shown));
            *made.lock() = Some(Arc::clone(&pass));
            pass as Arc<dyn Pass>
        }
    };
    let inner = scram(method, &shared.access, Box::new(pass_of))?;
    Some(Box::new(Guarded {
        inner,
        refused: shared.connects(ip).err(),
        shared: Arc::clone(shared),
        client_id,
        host,
        made,
    }))
}

impl Exchange for Guarded {
    fn step(&mut self, data: &[u8]) -> Progress {
        if let Some((code, reason)) = self.refused {
            return self.refuse(code, reason);
        }
        match self.inner.step(data) {
            Progress::Done { data, pass } => {
                let made = self.made.lock().take();
                match made.map_or(Ok(()), |made| made.take_seat()) {
                    Ok(()) => Progress::Done { data, pass },
                    Err((code, reason)) => self.refuse(code, reason),
                }
            }
            Progress::Refused(code) => self.refuse(code, "the login by SCRAM failed"),
            ask @ Progress::Continue(_) => ask,
        }
    }
}

impl Guarded {
    fn refuse(&self, code: ReasonCode, reason: &'static str) -> Progress {
        self.shared.refusals.note(Refusal {
            at_ms: self.shared.clock.now().0,
            client_id: self.client_id.clone(),
            user: String::new(),
            host: self.host.clone(),
            what: Refused::Connect,
            topic: String::new(),
            code: code.byte(),
            reason,
        });
        Progress::Refused(code)
    }
}
