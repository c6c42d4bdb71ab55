//! On which brokers the partitions of new topics lie.

/// On which brokers a new topic's partitions lie.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// As many as the store makes unless told.
    #[default]
    Usual,
    /// So many of each partition, on brokers of the store's choice.
    Factor(i32),
    /// On these, by partition from 0 on.
    Assigned(Vec<Vec<i32>>),
}

impl Replication {
    /// Whether a store with one broker can do it.
    pub fn fits_one(&self, broker: i32) -> bool {
        match self {
            Replication::Usual => true,
            Replication::Factor(factor) => *factor == 1,
            Replication::Assigned(assigned) => assigned.iter().all(|on| on[..] == [broker]),
        }
    }
}
