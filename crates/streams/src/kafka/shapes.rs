//! The shapes of requests, as data for [`super::guard`].
//!
//! They follow Kafka's message definitions; a property test compares them with the codec.

use super::guard::{Field, Kind, UUID_BYTES};

pub(crate) const API_VERSIONS: &[Field] = &[
    since(3, TEXT),
    since(3, TEXT),
    since(5, TEXT),
    since(5, I32),
];

pub(crate) const SASL_HANDSHAKE: &[Field] = &[always(TEXT)];

pub(crate) const SASL_AUTHENTICATE: &[Field] = &[always(BLOB)];

pub(crate) const DESCRIBE_ACLS: &[Field] = ACL_FILTER;

pub(crate) const CREATE_ACLS: &[Field] = &[always(Kind::Structs(&[
    always(I8),
    always(TEXT),
    always(I8),
    always(TEXT),
    always(TEXT),
    always(I8),
    always(I8),
]))];

pub(crate) const DELETE_ACLS: &[Field] = &[always(Kind::Structs(ACL_FILTER))];

const ACL_FILTER: &[Field] = &[
    always(I8),
    always(TEXT),
    always(I8),
    always(TEXT),
    always(TEXT),
    always(I8),
    always(I8),
];

pub(crate) const DESCRIBE_CLIENT_QUOTAS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT), always(I8), always(TEXT)])),
    always(I8),
];

pub(crate) const ALTER_CLIENT_QUOTAS: &[Field] = &[
    always(Kind::Structs(&[
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
        always(Kind::Structs(&[always(TEXT), always(I64), always(I8)])),
    ])),
    always(I8),
];

pub(crate) const DESCRIBE_USER_SCRAM_CREDENTIALS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT)]))];

pub(crate) const ALTER_USER_SCRAM_CREDENTIALS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT), always(I8)])),
    always(Kind::Structs(&[
        always(TEXT),
        always(I8),
        always(I32),
        always(BLOB),
        always(BLOB),
    ])),
];

pub(crate) const METADATA: &[Field] = &[
    always(Kind::Structs(&[since(10, UUID), always(TEXT)])),
    since(4, I8),
    Field {
        since: 8,
        until: 10,
        kind: I8,
    },
    since(8, I8),
];

pub(crate) const PRODUCE: &[Field] = &[
    always(TEXT),
    always(I16),
    always(I32),
    always(Kind::Structs(&[
        until(12, TEXT),
        since(13, UUID),
        always(Kind::Structs(&[always(I32), always(BLOB)])),
    ])),
];

pub(crate) const FETCH: &[Field] = &[
    always(Kind::NoTagsBelow(2)),
    until(14, I32),
    always(I32),
    always(I32),
    always(I32),
    always(I8),
    since(7, I32),
    since(7, I32),
    always(Kind::Structs(&[
        until(12, TEXT),
        since(13, UUID),
        always(Kind::Structs(&[
            always(I32),
            since(9, I32),
            always(I64),
            since(12, I32),
            since(5, I64),
            always(I32),
        ])),
    ])),
    since(
        7,
        Kind::Structs(&[until(12, TEXT), since(13, UUID), always(INTS)]),
    ),
    since(11, TEXT),
];

pub(crate) const LIST_OFFSETS: &[Field] = &[
    always(I32),
    since(2, I8),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), since(4, I32), always(I64)])),
    ])),
    since(10, I32),
];

pub(crate) const FIND_COORDINATOR: &[Field] = &[until(3, TEXT), since(1, I8), since(4, TEXTS)];

pub(crate) const JOIN_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),
    since(1, I32),
    always(TEXT),
    since(5, TEXT),
    always(TEXT),
    always(Kind::Structs(&[always(TEXT), always(BLOB)])),
    since(8, TEXT),
];

pub(crate) const SYNC_GROUP: &[Field] = &[
    always(TEXT),
    always(I32),
    always(TEXT),
    since(3, TEXT),
    since(5, TEXT),
    since(5, TEXT),
    always(Kind::Structs(&[always(TEXT), always(BLOB)])),
];

pub(crate) const HEARTBEAT: &[Field] = &[always(TEXT), always(I32), always(TEXT), since(3, TEXT)];

pub(crate) const LEAVE_GROUP: &[Field] = &[
    always(TEXT),
    until(2, TEXT),
    since(
        3,
        Kind::Structs(&[always(TEXT), always(TEXT), since(5, TEXT)]),
    ),
];

pub(crate) const OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(I32),
    always(TEXT),
    since(7, TEXT),
    until(4, I64),
    always(Kind::Structs(&[
        until(9, TEXT),
        since(10, UUID),
        always(Kind::Structs(&[
            always(I32),
            always(I64),
            since(6, I32),
            always(TEXT),
        ])),
    ])),
];

pub(crate) const OFFSET_FETCH: &[Field] = &[
    until(7, TEXT),
    until(7, Kind::Structs(&[always(TEXT), always(INTS)])),
    since(
        8,
        Kind::Structs(&[
            always(TEXT),
            since(9, TEXT),
            since(9, I32),
            always(Kind::Structs(&[
                until(9, TEXT),
                since(10, UUID),
                always(INTS),
            ])),
        ]),
    ),
    since(7, I8),
];

pub(crate) const CREATE_TOPICS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(I32),
        always(I16),
        always(Kind::Structs(&[always(I32), always(INTS)])),
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
    ])),
    always(I32),
    always(I8),
];

pub(crate) const DELETE_TOPICS: &[Field] = &[
    until(5, TEXTS),
    since(6, Kind::Structs(&[always(TEXT), always(UUID)])),
    always(I32),
];

pub(crate) const INIT_PRODUCER_ID: &[Field] =
    &[always(TEXT), always(I32), since(3, I64), since(3, I16)];

pub(crate) const ADD_PARTITIONS_TO_TXN: &[Field] = &[
    since(
        4,
        Kind::Structs(&[
            always(TEXT),
            always(I64),
            always(I16),
            always(I8),
            always(Kind::Structs(&[always(TEXT), always(INTS)])),
        ]),
    ),
    until(3, TEXT),
    until(3, I64),
    until(3, I16),
    until(3, Kind::Structs(&[always(TEXT), always(INTS)])),
];

pub(crate) const ADD_OFFSETS_TO_TXN: &[Field] =
    &[always(TEXT), always(I64), always(I16), always(TEXT)];

pub(crate) const END_TXN: &[Field] = &[always(TEXT), always(I64), always(I16), always(I8)];

pub(crate) const WRITE_TXN_MARKERS: &[Field] = &[always(Kind::Structs(&[
    always(I64),
    always(I16),
    always(I8),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
    always(I32),
]))];

pub(crate) const TXN_OFFSET_COMMIT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I64),
    always(I16),
    since(3, I32),
    since(3, TEXT),
    since(3, TEXT),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[
            always(I32),
            always(I64),
            since(2, I32),
            always(TEXT),
        ])),
    ])),
];

pub(crate) const DESCRIBE_PRODUCERS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT), always(INTS)]))];

pub(crate) const DESCRIBE_TRANSACTIONS: &[Field] = &[always(TEXTS)];

pub(crate) const LIST_TRANSACTIONS: &[Field] = &[
    always(TEXTS),
    always(Kind::Array(&I64)),
    since(1, I64),
    since(2, TEXT),
];

pub(crate) const SHARE_GROUP_HEARTBEAT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    always(TEXT),
    always(TEXTS),
];

pub(crate) const SHARE_GROUP_DESCRIBE: &[Field] = &[always(TEXTS), always(I8)];

pub(crate) const STREAMS_GROUP_HEARTBEAT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    always(I32),
    always(TEXT),
    always(TEXT),
    always(I32),
    always(Kind::Nullable(&[always(I32), always(SUBTOPOLOGIES)])),
    always(TASKS),
    always(TASKS),
    always(TASKS),
    always(TEXT),
    always(Kind::Nullable(&[always(TEXT), always(I16)])),
    always(PAIRS),
    always(TASK_OFFSETS),
    always(TASK_OFFSETS),
    always(I8),
];

const SUBTOPOLOGIES: Kind = Kind::Structs(&[
    always(TEXT),
    always(TEXTS),
    always(TEXTS),
    always(INTERNAL_TOPICS),
    always(TEXTS),
    always(INTERNAL_TOPICS),
    always(Kind::Structs(&[
        always(SHORTS),
        always(SHORTS),
        always(SHORTS),
    ])),
]);

const INTERNAL_TOPICS: Kind =
    Kind::Structs(&[always(TEXT), always(I32), always(I16), always(PAIRS)]);

const PAIRS: Kind = Kind::Structs(&[always(TEXT), always(TEXT)]);

const TASKS: Kind = Kind::Structs(&[always(TEXT), always(INTS)]);

const TASK_OFFSETS: Kind = Kind::Structs(&[always(TEXT), always(I32), always(I64)]);

pub(crate) const STREAMS_GROUP_DESCRIBE: &[Field] = &[always(TEXTS), always(I8)];

pub(crate) const SHARE_FETCH: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    always(I32),
    always(I32),
    always(I32),
    always(I32),
    always(I32),
    since(2, I8),
    since(2, I8),
    always(SHARED_TOPICS),
    always(Kind::Structs(&[always(UUID), always(INTS)])),
];

pub(crate) const SHARE_ACKNOWLEDGE: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    since(2, I8),
    always(SHARED_TOPICS),
];

const SHARED_TOPICS: Kind = Kind::Structs(&[
    always(UUID),
    always(Kind::Structs(&[
        always(I32),
        always(Kind::Structs(&[
            always(I64),
            always(I64),
            always(Kind::Array(&I8)),
        ])),
    ])),
]);

pub(crate) const DESCRIBE_SHARE_GROUP_OFFSETS: &[Field] = &[always(Kind::Structs(&[
    always(TEXT),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
]))];

pub(crate) const ALTER_SHARE_GROUP_OFFSETS: &[Field] = &[
    always(TEXT),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I64)])),
    ])),
];

pub(crate) const DELETE_SHARE_GROUP_OFFSETS: &[Field] =
    &[always(TEXT), always(Kind::Structs(&[always(TEXT)]))];

pub(crate) const DESCRIBE_GROUPS: &[Field] = &[always(TEXTS), since(3, I8)];

pub(crate) const LIST_GROUPS: &[Field] = &[since(4, TEXTS), since(5, TEXTS)];

pub(crate) const DESCRIBE_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[always(I8), always(TEXT), always(TEXTS)])),
    always(I8),
    since(3, I8),
];

pub(crate) const LIST_CONFIG_RESOURCES: &[Field] = &[since(1, Kind::Array(&I8))];

pub(crate) const OFFSET_DELETE: &[Field] = &[
    always(TEXT),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32)])),
    ])),
];

pub(crate) const CONSUMER_GROUP_HEARTBEAT: &[Field] = &[
    always(TEXT),
    always(TEXT),
    always(I32),
    always(TEXT),
    always(TEXT),
    always(I32),
    always(TEXTS),
    since(1, TEXT),
    always(TEXT),
    always(Kind::Structs(&[always(UUID), always(INTS)])),
];

pub(crate) const CONSUMER_GROUP_DESCRIBE: &[Field] = &[always(TEXTS), always(I8)];

pub(crate) const ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[
        always(I8),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(TEXT)])),
    ])),
    always(I8),
];

pub(crate) const INCREMENTAL_ALTER_CONFIGS: &[Field] = &[
    always(Kind::Structs(&[
        always(I8),
        always(TEXT),
        always(Kind::Structs(&[always(TEXT), always(I8), always(TEXT)])),
    ])),
    always(I8),
];

pub(crate) const CREATE_PARTITIONS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(I32),
        always(Kind::Structs(&[always(INTS)])),
    ])),
    always(I32),
    always(I8),
];

pub(crate) const OFFSET_FOR_LEADER_EPOCH: &[Field] = &[
    since(3, I32),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I32), always(I32)])),
    ])),
];

pub(crate) const DESCRIBE_LOG_DIRS: &[Field] =
    &[always(Kind::Structs(&[always(TEXT), always(INTS)]))];

pub(crate) const ELECT_LEADERS: &[Field] = &[
    since(1, I8),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
    always(I32),
];

pub(crate) const ALTER_PARTITION_REASSIGNMENTS: &[Field] = &[
    always(I32),
    since(1, I8),
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(INTS)])),
    ])),
];

pub(crate) const LIST_PARTITION_REASSIGNMENTS: &[Field] = &[
    always(I32),
    always(Kind::Structs(&[always(TEXT), always(INTS)])),
];

pub(crate) const DESCRIBE_QUORUM: &[Field] = &[always(Kind::Structs(&[
    always(TEXT),
    always(Kind::Structs(&[always(I32)])),
]))];

pub(crate) const DESCRIBE_CLUSTER: &[Field] = &[always(I8), since(1, I8), since(2, I8)];

pub(crate) const DESCRIBE_TOPIC_PARTITIONS: &[Field] = &[
    always(Kind::Structs(&[always(TEXT)])),
    always(I32),
    always(Kind::Nullable(&[always(TEXT), always(I32)])),
];

pub(crate) const DELETE_RECORDS: &[Field] = &[
    always(Kind::Structs(&[
        always(TEXT),
        always(Kind::Structs(&[always(I32), always(I64)])),
    ])),
    always(I32),
];

pub(crate) const DELETE_GROUPS: &[Field] = &[always(TEXTS)];

const fn always(kind: Kind) -> Field {
    Field {
        since: 0,
        until: i16::MAX,
        kind,
    }
}

const fn since(since: i16, kind: Kind) -> Field {
    Field {
        since,
        until: i16::MAX,
        kind,
    }
}

const fn until(until: i16, kind: Kind) -> Field {
    Field {
        since: 0,
        until,
        kind,
    }
}

const I8: Kind = Kind::Fixed(1);
const I16: Kind = Kind::Fixed(2);
const I32: Kind = Kind::Fixed(4);
const I64: Kind = Kind::Fixed(8);
const UUID: Kind = Kind::Fixed(UUID_BYTES);
const TEXT: Kind = Kind::Text;
const BLOB: Kind = Kind::Blob;
const TEXTS: Kind = Kind::Array(&Kind::Text);
const INTS: Kind = Kind::Array(&Kind::Fixed(4));
const SHORTS: Kind = Kind::Array(&Kind::Fixed(2));
