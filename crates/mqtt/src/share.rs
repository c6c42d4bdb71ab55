//! Shared subscriptions (5.0 section 4.8.2): one of a group's members gets each message.
//!
//! Members take turns. Who is connected and has room comes first; then who is connected and would
//! hold the publisher back; then who is away with a session that queues. So a group loses nothing
//! that one of its members could take, and holds back only when all of them are behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::UnixMillis;
use parking_lot::Mutex;

use crate::config::MqttConfig;
use crate::records::Subscription;
use crate::route::Grant;
use crate::session::{Session, Standing};
use crate::topic::TopicFilter;

/// One group on one filter.
pub(crate) struct Share {
    pub(crate) id: u64,
    /// The filter without its `$share/group/`.
    pub(crate) filter: TopicFilter,
    members: Mutex<Vec<Member>>,
    turn: AtomicUsize,
}

#[derive(Clone)]
struct Member {
    session: Arc<Session>,
    grant: Arc<Grant>,
}

impl Share {
    pub(crate) fn new(id: u64, filter: TopicFilter) -> Self {
        Share {
            id,
            filter,
            members: Mutex::default(),
            turn: AtomicUsize::new(0),
        }
    }

    /// Adds a member, or changes its terms.
    pub(crate) fn join(self: &Arc<Self>, session: &Arc<Session>, subscription: &Subscription) {
        let mut grant = Grant::of(subscription);
        grant.share = Some(Arc::downgrade(self));
        let member = Member {
            session: session.clone(),
            grant: Arc::new(grant),
        };
        let mut members = self.members.lock();
        match members.iter_mut().find(|m| m.session.key == session.key) {
            Some(old) => *old = member,
            None => members.push(member),
        }
    }

    /// Removes a member; tells whether nobody is left.
    pub(crate) fn leave(&self, session: u64) -> bool {
        let mut members = self.members.lock();
        members.retain(|m| m.session.key != session);
        members.is_empty()
    }

    /// Whose turn it is for a message of `topic`; `None` when nobody may or can take it.
    /// `but`: a session that is not asked.
    pub(crate) fn choose(
        &self,
        config: &MqttConfig,
        now: UnixMillis,
        topic: &str,
        but: Option<u64>,
    ) -> Option<(Arc<Session>, Arc<Grant>)> {
        let members = self.members.lock();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut best: Option<(Standing, &Member)> = None;
        for step in 0..members.len() {
            let member = &members[turn.wrapping_add(step) % members.len()];
            let session = &member.session;
            if Some(session.key) == but || !session.may_receive(topic) {
                continue;
            }
            let standing = session.standing(config, now);
            if best.as_ref().is_none_or(|(known, _)| standing < *known) {
                best = Some((standing, member));
            }
            if standing == Standing::Ready {
                break;
            }
        }
        let (standing, member) = best?;
        (standing != Standing::Gone).then(|| (member.session.clone(), member.grant.clone()))
    }

    /// Whether a member other than `session` is connected.
    pub(crate) fn has_other(&self, session: u64) -> bool {
        let members = self.members.lock();
        members
            .iter()
            .any(|m| m.session.key != session && m.session.is_connected())
    }
}
