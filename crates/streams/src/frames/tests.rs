//! Frames that are read back as they were written, and what is not read at all.

use base::UnixMillis;
use journal::Position;

use super::*;
use crate::groups::GroupKind;
use crate::index::{Away, Outline};
use crate::producers::Sequenced;
use crate::unsettled::Aborted;

fn changes() -> Vec<Change> {
    let committed = CommittedOffset {
        offset: 5,
        leader_epoch: -1,
        metadata: "m".into(),
        at: UnixMillis(9),
    };
    let batch = Sequenced {
        first: 1,
        last: 2,
        base_offset: 3,
        last_delta: 1,
    };
    let producer = Producer {
        epoch: 4,
        last_timestamp: 8,
        heard_at: 0,
        batches: [batch].into(),
    };
    let id = Uuid::from_u128(77);
    vec![
        Change::Store {
            cluster_id: "c".into(),
            next_partition: 3,
            producer_ids: 1_000,
        },
        Change::Topic {
            id,
            name: "/s:t".parse().unwrap(),
            durability: Durability::Os,
            ranges: vec![(0, 3), (9, 1)],
            config: TopicConfig::of([("retention.ms", "5")]).unwrap(),
        },
        Change::TopicDeleted {
            id,
            ranges: vec![(0, 3)],
        },
        Change::Partition(PartitionStanding {
            number: 2,
            start: 1,
            next: 9,
            records_in: 8,
            bytes_in: 800,
            producers: vec![(6, producer)],
        }),
        Change::ShareState {
            group: "g".to_owned(),
            number: 7,
            standing: Standing {
                start: 5,
                runs: vec![(5, 6, Some(2)), (7, 9, None)],
            },
        },
        Change::ShareStateGone {
            group: "g".to_owned(),
            numbers: vec![7, 9],
        },
        Change::GroupOffsets {
            group: "g".into(),
            offsets: vec![(2, committed)],
        },
        Change::PartitionTransactions {
            number: 2,
            standing: TransactionsStanding {
                open: vec![(6, 4)],
                aborted: vec![Aborted {
                    producer_id: 7,
                    first: 1,
                    last: 3,
                    stable: 4,
                }],
            },
        },
        Change::GroupDeleted { group: "g".into() },
        Change::Group {
            group: "g".into(),
            noted: NotedGroup {
                kind: GroupKind::Consumer,
                protocol_type: "consumer".into(),
                epoch: 7,
                emptied: None,
            },
        },
        Change::GroupMembers {
            group: "g".into(),
            roll: vec![1, 2, 3],
        },
        Change::GroupSettings {
            group: "g".into(),
            config: GroupConfig::of([("consumer.session.timeout.ms", "50000")]).unwrap(),
        },
        Change::GroupOffsetsDeleted {
            group: "g".into(),
            numbers: vec![1, 5],
        },
        Change::SnapshotEnd { began: 4_096 },
        Change::Compacted {
            number: 5,
            until: 77,
        },
        Change::IndexPiece {
            number: 5,
            nth: 1,
            is_last: true,
            chunks: vec![StandingChunk::Here(vec![4])],
        },
        Change::Index {
            number: 5,
            chunks: vec![
                StandingChunk::Here(vec![1, 2, 3]),
                StandingChunk::Away(
                    Outline {
                        first_offset: 1,
                        lowest: Position(2),
                        max_timestamp: -1,
                        bytes: 4,
                    },
                    Away {
                        position: Position(7),
                        bytes: 48,
                    },
                ),
            ],
        },
    ]
}

#[test]
fn every_change_reads_back() {
    for change in changes() {
        let (kind, payload) = change.encode();
        let version = version_of(kind);
        assert_eq!(Change::decode(kind, version, &payload).unwrap(), change);
    }
}

#[test]
fn a_topic_of_version_1_has_no_settings() {
    let mut payload = vec![7; 16];
    put_text(&mut payload, "t");
    payload.push(2);
    put_ranges(&mut payload, &[(0, 3)]);
    let change = Change::decode(kind::TOPIC, 1, &payload).unwrap();
    let wanted = Change::Topic {
        id: Uuid::from_bytes([7; 16]),
        name: "t".parse().unwrap(),
        durability: Durability::Disk,
        ranges: vec![(0, 3)],
        config: TopicConfig::default(),
    };
    assert_eq!(change, wanted);
}

#[test]
fn cuts_and_newer_versions_are_errors() {
    for change in changes() {
        let (kind, payload) = change.encode();
        for len in 0..payload.len() {
            assert!(
                Change::decode(kind, version_of(kind), &payload[..len]).is_err(),
                "{change:?}"
            );
        }
        assert!(Change::decode(kind, version_of(kind) + 1, &payload).is_err());
        assert!(Change::decode(kind, 0, &payload).is_err());
    }
    assert!(Change::decode(99, VERSION, &[]).is_err());
}
