//! A flow that is driven by hand: its sessions without its threads.

use std::sync::Arc;
use std::time::Duration;

use base::{ManualClock, UnixMillis};

use crate::definition::Flow;
use crate::engine::Places;
use crate::repository::Repository;
use crate::session::ProcessSession;

/// The wired-up nodes of a flow on a repository.
pub(crate) struct HandFlow {
    repository: Arc<Repository>,
    clock: ManualClock,
    places: Places,
}

impl HandFlow {
    /// Wires up the flow of `text` with what its connections held before.
    pub(crate) fn new(repository: Arc<Repository>, text: &str) -> HandFlow {
        let flow = Flow::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
        let places = Places::of(&flow);
        repository.activate(&places.connections);
        HandFlow {
            repository,
            clock: ManualClock::at(UnixMillis(1_000_000)),
            places,
        }
    }

    /// A session of the processor of this name; each a second after the last.
    pub(crate) fn session(&self, name: &str) -> ProcessSession<'_> {
        self.clock.advance(Duration::from_secs(1));
        let node = self.places.nodes.iter().find(|node| node.name == name);
        let node = node.unwrap_or_else(|| panic!("no processor {name}"));
        ProcessSession::new(node, &self.repository, &self.clock)
    }

    /// The repository below.
    pub(crate) fn repository(&self) -> &Arc<Repository> {
        &self.repository
    }
}
