//! One who waits for an answer of the coordinator.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::Coordinator;
use crate::groups::GroupError;
use crate::groups::entry::Members;
use crate::groups::group::Token;

/// An answer that may have to wait for the other members. What the request changes has changed
/// when the call returns; dropping this withdraws the wish to be told, and a member that was never
/// told its id is forgotten.
#[derive(Debug)]
pub struct Pending<T> {
    answer: oneshot::Receiver<Result<T, GroupError>>,
    withdrawal: Option<Withdrawal>,
}

struct Withdrawal {
    coordinator: Weak<Coordinator>,
    group: Arc<str>,
    token: Token,
}

impl<T> Pending<T> {
    pub(super) fn new(
        answer: oneshot::Receiver<Result<T, GroupError>>,
        coordinator: &Arc<Coordinator>,
        group: Arc<str>,
        token: Token,
    ) -> Self {
        let coordinator = Arc::downgrade(coordinator);
        Pending {
            answer,
            withdrawal: Some(Withdrawal {
                coordinator,
                group,
                token,
            }),
        }
    }

    pub(super) fn refused(
        sender: oneshot::Sender<Result<T, GroupError>>,
        answer: oneshot::Receiver<Result<T, GroupError>>,
        error: GroupError,
    ) -> Self {
        drop(sender.send(Err(error)));
        Pending {
            answer,
            withdrawal: None,
        }
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T, GroupError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.answer).poll(cx));
        self.withdrawal = None;
        Poll::Ready(answer.unwrap_or(Err(GroupError::Stopped)))
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let Some(withdrawal) = self.withdrawal.take() else {
            return;
        };
        let Some(coordinator) = withdrawal.coordinator.upgrade() else {
            return;
        };
        let now = coordinator.clock.now();
        let mut groups = coordinator.groups.lock();
        if groups.waiting.remove(&withdrawal.token).is_none() {
            return;
        }
        let mut out = Vec::new();
        let entry = groups.by_name.get_mut(&withdrawal.group);
        // In a consumer group nobody waits.
        if let Some(Members::Classic(group)) = entry.map(|e| &mut e.members) {
            group.withdraw(now, withdrawal.token, &mut out);
        }
        coordinator.settle(&mut groups, &withdrawal.group, out);
    }
}

impl std::fmt::Debug for Withdrawal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Withdrawal")
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
