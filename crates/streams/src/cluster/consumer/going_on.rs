//! Readers without a group: their client is made when it is needed, or had from one that was let go
//! ([`super::super::readers`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use rdkafka::config::FromClientConfigAndContext;

use super::super::error::About;
use super::super::readers::Standing;
use super::{Client, ClusterConsumer, Mode, Place, Position, properties};
use crate::error::StreamsError;
use crate::event_store::SeekTo;

impl ClusterConsumer {
    /// The client, made unless it is there, or one is spare.
    pub(super) async fn ready(&mut self) -> Result<Arc<Client>, StreamsError> {
        if let Some(client) = &self.client {
            return Ok(Arc::clone(client));
        }
        let is_alone = self.config.group.is_none();
        let spare = is_alone.then(|| self.readers.take_spare(&self.config));
        if let Some((client, member)) = spare.flatten() {
            self.client = Some(Arc::clone(&client));
            self.member = member;
            return Ok(client);
        }
        let properties = properties(&self.calls, &self.config);
        let context = self.member.clone();
        let made = self.calls.blocking(About::Cluster, move |_, _| {
            Client::from_config_and_context(&properties, context)
        });
        let client = Arc::new(made.await?);
        self.client = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Goes on with the client of a reader that was let go just where this one is to begin; false
    /// when there is none.
    pub(super) fn goes_on(&mut self) -> bool {
        if self.client.is_some() || self.config.group.is_some() {
            return false;
        }
        let offset = |position: &Position| match position.moved {
            Some(SeekTo::Offset(offset)) => Some(offset),
            _ => None,
        };
        let wanted = self
            .positions
            .iter()
            .map(|(place, position)| Some((place.clone(), offset(position)?)));
        let wanted: Option<BTreeMap<Place, i64>> = wanted.collect();
        let found = wanted.and_then(|wanted| self.readers.take(&self.config, &wanted));
        let Some(found) = found else { return false };
        self.client = Some(found.client);
        self.member = found.member;
        self.kept = found.kept;
        for (place, position) in &mut self.positions {
            *position = Position {
                next: position.at(),
                is_at_end: found.at_end.contains(place),
                ..Position::default()
            };
        }
        self.mode = Mode::Assigned { is_placed: true };
        true
    }

    /// Gives the client to who goes on from here, or else ends it where waiting is allowed.
    pub(super) fn let_go(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let is_placed = self.mode == Mode::Assigned { is_placed: true };
        let stands = is_placed && self.config.group.is_none() && !self.has_failed;
        let next = |(place, position): (&Place, &Position)| match position.moved {
            None => Some((place.clone(), position.next?)),
            Some(_) => None,
        };
        let positions: Option<BTreeMap<Place, i64>> = match stands {
            true => self.positions.iter().map(next).collect(),
            false => None,
        };
        match positions {
            Some(positions) => {
                let at_end = self.positions.iter().filter(|(_, of)| of.is_at_end);
                let standing = Standing {
                    config: self.config.clone(),
                    client,
                    member: self.member.clone(),
                    positions,
                    at_end: at_end.map(|(place, _)| place.clone()).collect(),
                    kept: std::mem::take(&mut self.kept),
                };
                self.readers.keep(&runtime, standing);
            }
            // Leaving a group waits for the cluster.
            None => drop(runtime.spawn_blocking(move || drop(client))),
        }
    }
}
