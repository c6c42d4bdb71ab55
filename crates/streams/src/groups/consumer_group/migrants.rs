//! Members that come from a classic group, and go back into one.
//!
//! Nobody stops reading over it: a member stays at its generation, which is its epoch, and goes on
//! holding what its leader gave it until it has joined again.

use std::collections::{BTreeSet, HashMap};

use base::UnixMillis;

use super::super::migration::Migrant;
use super::super::{Catalog, GroupError};
use super::classic::{Classic, first_metadata, named, partitions_of};
use super::subscription::Subscription;
use super::{ConsumerGroup, Owner, Partitions};
use crate::consumer::{self, Share};

impl ConsumerGroup {
    /// A group whose members came from a classic one of this generation, as did the ids in
    /// `pending`; `NotFound` when one told or was given what cannot be read, or what another
    /// protocol's leader would lose.
    pub(in crate::groups) fn of_migrants(
        mut self,
        migrants: Vec<Migrant>,
        pending: HashMap<String, UnixMillis>,
        catalog: &dyn Catalog,
    ) -> Result<Self, GroupError> {
        self.pending = pending;
        let mut held = Vec::with_capacity(migrants.len());
        for migrant in migrants {
            let told = migrant.subscription().ok_or(GroupError::NotFound)?;
            let share = migrant.share().ok_or(GroupError::NotFound)?;
            held.push((migrant.id.clone(), told.owned));
            self.take_in(migrant, told.topics, told.rack_id, &share, catalog);
        }
        // What a member has given back already, its leader may have given to somebody else: what
        // was given stands before what was held.
        for (id, owned) in held {
            let owned = partitions_of(&owned, catalog);
            self.give(&id, &owned);
        }
        Ok(self)
    }

    /// Ids that were given out and not yet used, with the time until which they hold.
    pub(in crate::groups) fn pending(&self) -> HashMap<String, UnixMillis> {
        self.pending.clone()
    }

    /// The members, all of them classic, with what they may hold.
    pub(in crate::groups) fn migrants(&self) -> Vec<Migrant> {
        let names = self.names();
        let members = self.members.iter();
        let members = members.filter_map(|(id, m)| {
            let classic = m.classic.as_ref()?;
            let held = m.assigned.iter().chain(m.revoking.iter());
            Some(Migrant {
                id: id.clone(),
                instance_id: m.instance_id.clone(),
                client_id: m.client_id.clone(),
                client_host: m.client_host.clone(),
                session_timeout: classic.session_timeout,
                rebalance_timeout: m.rebalance_timeout,
                session_until: m.session_until,
                metadata: first_metadata(&classic.protocols),
                protocols: classic.protocols.clone(),
                epoch: m.epoch,
                assignment: consumer::assignment(&named(&names, held)),
                assignor: String::new(),
                sight: m.subscription.sight().clone(),
                is_remote: classic.is_remote,
            })
        });
        members.collect()
    }

    /// Takes a member of a classic group in, at its generation and with what its leader gave it.
    fn take_in(
        &mut self,
        migrant: Migrant,
        topics: BTreeSet<String>,
        rack_id: Option<String>,
        share: &Share,
        catalog: &dyn Catalog,
    ) {
        let id = migrant.id;
        self.insert(&id, migrant.instance_id.as_ref());
        if let Some(member) = self.members.get_mut(&id) {
            member.rack_id = rack_id;
            member.client_id = migrant.client_id;
            member.client_host = migrant.client_host;
            member.subscription = Subscription::of_classic(topics, migrant.sight);
            member.rebalance_timeout = migrant.rebalance_timeout;
            member.epoch = migrant.epoch;
            member.previous_epoch = migrant.epoch;
            member.session_until = migrant.session_until;
            member.classic = Some(Classic {
                session_timeout: migrant.session_timeout,
                protocols: migrant.protocols,
                join_until: None,
                sync_until: None,
                is_remote: migrant.is_remote,
            });
        }
        let share = partitions_of(share, catalog);
        self.give(&id, &share);
        self.target.insert(id, share);
    }

    /// The member holds these, as far as nobody else does.
    pub(super) fn give(&mut self, id: &str, partitions: &Partitions) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        for (topic, partition) in partitions.iter() {
            let owner = self
                .owners
                .entry((topic, partition))
                .or_insert_with(|| Owner {
                    id: id.to_owned(),
                    since: member.epoch,
                });
            if owner.id == id {
                member.assigned.insert(topic, partition);
            }
        }
    }
}
