//! Requests for the fuzz targets and the decoders' tests: a writer of random ones, and the way from
//! a raw body through the guard and the codec.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable};

use super::api::Api;
use super::guard::{self, Field, Kind};
use super::share_wire;
use super::streams_wire;
use super::table::APIS;
use super::versions;

/// Reads `input` as a request: an API, a version, a way, and a body. Even ways take the body as it
/// is; odd ones write a request of the API's shape out of it and then spoil some of its bytes.
pub fn request(input: &[u8]) {
    let Some((&[index, version, way], body)) = input.split_first_chunk::<3>() else {
        return;
    };
    let api = &APIS[usize::from(index) % APIS.len()];
    let (key, from, to, flexible_from, shape) = api.facts();
    let versions = i16::from(version) % (to - from + 1);
    let version = from + versions;
    let flexible = version >= flexible_from;
    let body = match way % 2 {
        0 => Bytes::copy_from_slice(body),
        _ => written(body, way / 2, version, flexible, shape),
    };
    // A header may stand here as well as a body.
    if let Ok((_, bytes)) = guard::read_header(&body) {
        let _ = guard::header_tags(&body[bytes..]);
    }
    if guard::check(shape, version, flexible, &body).is_err() {
        return;
    }
    let Ok((_, again)) = round_trip(key, version, flexible, shape, &body) else {
        return;
    };
    // What was understood is understood again.
    let walked = guard::check(shape, version.min(codec_version(key)), flexible, &again);
    assert_eq!(walked, Ok(again.len()), "{} version {version}", api.name);
}

/// Decodes a body as its handler does and encodes it again; answers what was left over and the
/// second encoding.
pub(super) fn round_trip(
    key: i16,
    version: i16,
    flexible: bool,
    shape: &[Field],
    body: &Bytes,
) -> Result<(usize, Bytes), String> {
    fn as_request<T: Decodable + Encodable>(
        version: i16,
        body: &Bytes,
    ) -> Result<(usize, Bytes), String> {
        let mut rest = body.clone();
        let request = T::decode(&mut rest, version).map_err(|error| error.to_string())?;
        let mut again = BytesMut::new();
        request
            .encode(&mut again, version)
            .map_err(|error| error.to_string())?;
        Ok((rest.len(), again.freeze()))
    }
    if key == 18 && version == 5 {
        assert!(!versions::is_cut(body), "the guard passed a cut request");
        // What the codec takes for version 4 ends elsewhere.
        return Err("it is read without the codec".to_owned());
    }
    // The codec does not know these: what was read stands for what is written.
    let left = match key {
        88 => Some(streams_wire::heartbeat_in(body).map(|(_, left)| left)),
        89 => Some(streams_wire::describe_in(body).map(|(_, _, left)| left)),
        _ => None,
    };
    if let Some(left) = left {
        let left = left.map_err(|ending| ending.to_string())?;
        return Ok((left, body.slice(..body.len() - left)));
    }
    let version_read = version.min(codec_version(key));
    let body = match (key, version) {
        (8 | 9, 10) if flexible => {
            let by_name = guard::ids_as_names(shape, version, body);
            Bytes::from(by_name.map_err(|refused| refused.to_string())?)
        }
        (78, 2..) => {
            let first = share_wire::fetch_as_first(version, body);
            first.map_err(|ending| ending.to_string())?.1
        }
        (79, 2..) => {
            let first = share_wire::acknowledge_as_first(version, body);
            first.map_err(|ending| ending.to_string())?.1
        }
        _ => body.clone(),
    };
    let run = match key {
        0 => as_request::<ProduceRequest>,
        1 => as_request::<FetchRequest>,
        2 => as_request::<ListOffsetsRequest>,
        3 => as_request::<MetadataRequest>,
        8 => as_request::<OffsetCommitRequest>,
        9 => as_request::<OffsetFetchRequest>,
        10 => as_request::<FindCoordinatorRequest>,
        11 => as_request::<JoinGroupRequest>,
        12 => as_request::<HeartbeatRequest>,
        13 => as_request::<LeaveGroupRequest>,
        14 => as_request::<SyncGroupRequest>,
        15 => as_request::<DescribeGroupsRequest>,
        16 => as_request::<ListGroupsRequest>,
        17 => as_request::<SaslHandshakeRequest>,
        18 => as_request::<ApiVersionsRequest>,
        19 => as_request::<CreateTopicsRequest>,
        20 => as_request::<DeleteTopicsRequest>,
        21 => as_request::<DeleteRecordsRequest>,
        22 => as_request::<InitProducerIdRequest>,
        23 => as_request::<OffsetForLeaderEpochRequest>,
        24 => as_request::<AddPartitionsToTxnRequest>,
        25 => as_request::<AddOffsetsToTxnRequest>,
        26 => as_request::<EndTxnRequest>,
        27 => as_request::<WriteTxnMarkersRequest>,
        28 => as_request::<TxnOffsetCommitRequest>,
        29 => as_request::<DescribeAclsRequest>,
        30 => as_request::<CreateAclsRequest>,
        31 => as_request::<DeleteAclsRequest>,
        32 => as_request::<DescribeConfigsRequest>,
        33 => as_request::<AlterConfigsRequest>,
        35 => as_request::<DescribeLogDirsRequest>,
        36 => as_request::<SaslAuthenticateRequest>,
        37 => as_request::<CreatePartitionsRequest>,
        42 => as_request::<DeleteGroupsRequest>,
        43 => as_request::<ElectLeadersRequest>,
        44 => as_request::<IncrementalAlterConfigsRequest>,
        45 => as_request::<AlterPartitionReassignmentsRequest>,
        46 => as_request::<ListPartitionReassignmentsRequest>,
        47 => as_request::<OffsetDeleteRequest>,
        48 => as_request::<DescribeClientQuotasRequest>,
        49 => as_request::<AlterClientQuotasRequest>,
        50 => as_request::<DescribeUserScramCredentialsRequest>,
        51 => as_request::<AlterUserScramCredentialsRequest>,
        55 => as_request::<DescribeQuorumRequest>,
        60 => as_request::<DescribeClusterRequest>,
        61 => as_request::<DescribeProducersRequest>,
        65 => as_request::<DescribeTransactionsRequest>,
        66 => as_request::<ListTransactionsRequest>,
        68 => as_request::<ConsumerGroupHeartbeatRequest>,
        69 => as_request::<ConsumerGroupDescribeRequest>,
        74 => as_request::<ListConfigResourcesRequest>,
        75 => as_request::<DescribeTopicPartitionsRequest>,
        76 => as_request::<ShareGroupHeartbeatRequest>,
        77 => as_request::<ShareGroupDescribeRequest>,
        78 => as_request::<ShareFetchRequest>,
        79 => as_request::<ShareAcknowledgeRequest>,
        90 => as_request::<DescribeShareGroupOffsetsRequest>,
        91 => as_request::<AlterShareGroupOffsetsRequest>,
        92 => as_request::<DeleteShareGroupOffsetsRequest>,
        other => panic!("API {other} has no decoder here; add it to this list"),
    };
    run(version_read, &body)
}

/// The last version of an API that the codec knows; we read later ones ourselves.
pub(super) fn codec_version(key: i16) -> i16 {
    match key {
        // Version 11 is written as 10.
        2 => 10,
        8 | 9 => 9,
        18 => 4,
        78 | 79 => 1,
        90 => 0,
        _ => i16::MAX,
    }
}

impl Api {
    /// Key, lowest and highest served version, first flexible version and shape.
    pub(super) fn facts(&self) -> (i16, i16, i16, i16, &'static [Field]) {
        (self.key, self.from, self.to, self.flexible_from, self.shape)
    }
}

/// Writes a request out of `seed`'s bytes, and overwrites up to three of its bytes.
fn written(
    seed: &[u8],
    spoilt: u8,
    version: i16,
    flexible: bool,
    shape: &'static [Field],
) -> Bytes {
    let mut rest = seed;
    let mut draw = |bound: u64| {
        // Bounds are small; the last bytes of a seed are followed by zeros.
        let (head, tail) = rest.split_first().map_or((0, rest), |(b, tail)| (*b, tail));
        rest = tail;
        u64::from(head) % bound
    };
    let mut scribe = Scribe::new(&mut draw, version, flexible);
    scribe.fields(shape);
    let mut body = scribe.out;
    let spoilers = rest.first_chunk::<6>().copied().unwrap_or_default();
    for spoiler in spoilers
        .as_chunks::<2>()
        .0
        .iter()
        .take(usize::from(spoilt) % 4)
    {
        if !body.is_empty() {
            let at = usize::from(spoiler[0]) % body.len();
            body[at] = spoiler[1];
        }
    }
    Bytes::from(body)
}

/// Writes a random body of a shape, as Kafka's protocol lays it out.
pub(super) struct Scribe<'a> {
    /// Draws a number below a bound.
    draw: &'a mut dyn FnMut(u64) -> u64,
    pub(super) out: Vec<u8>,
    flexible: bool,
    version: i16,
}

impl<'a> Scribe<'a> {
    pub(super) fn new(
        draw: &'a mut dyn FnMut(u64) -> u64,
        version: i16,
        flexible: bool,
    ) -> Scribe<'a> {
        Scribe {
            draw,
            out: Vec::new(),
            flexible,
            version,
        }
    }

    pub(super) fn fields(&mut self, shape: &[Field]) {
        for field in shape {
            if (field.since..=field.until).contains(&self.version) {
                self.kind(&field.kind);
            }
        }
        if self.flexible {
            self.tags();
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            // Single bytes are mostly booleans, which the codec writes as 0 and 1.
            Kind::Fixed(1) => {
                let flag = self.byte(2);
                self.out.push(flag);
            }
            Kind::Fixed(bytes) => {
                for _ in 0..*bytes {
                    let byte = self.byte(256);
                    self.out.push(byte);
                }
            }
            Kind::Text => {
                let length = self.below(12);
                self.length(length, 2);
                for _ in 0..length {
                    let letter = b'a' + self.byte(26);
                    self.out.push(letter);
                }
            }
            Kind::Blob => {
                let length = self.below(200);
                self.length(length, 4);
                for _ in 0..length {
                    let byte = self.byte(256);
                    self.out.push(byte);
                }
            }
            Kind::Structs(shape) => {
                let count = self.below(4);
                self.length(count, 4);
                for _ in 0..count {
                    self.fields(shape);
                }
            }
            Kind::NoTagsBelow(_) => {}
            Kind::Nullable(shape) => {
                let is_there = self.below(2) == 1;
                self.out.push(if is_there { 1 } else { 0xff });
                if is_there {
                    self.fields(shape);
                }
            }
            Kind::Array(kind) => {
                let count = self.below(5);
                self.length(count, 4);
                for _ in 0..count {
                    self.kind(kind);
                }
            }
        }
    }

    fn tags(&mut self) {
        let count = self.below(3);
        self.varint(count);
        for tag in 0..count {
            self.varint(1_000 + tag);
            let length = self.below(140);
            self.varint(length);
            self.out.extend(std::iter::repeat_n(7, length));
        }
    }

    fn length(&mut self, length: usize, bytes: usize) {
        match (self.flexible, bytes) {
            (true, _) => self.varint(length + 1),
            (false, 2) => {
                let length = i16::try_from(length).expect("texts here are short");
                self.out.extend(length.to_be_bytes());
            }
            (false, _) => {
                let length = i32::try_from(length).expect("arrays here are short");
                self.out.extend(length.to_be_bytes());
            }
        }
    }

    fn varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.out.push(value as u8);
    }

    fn byte(&mut self, bound: u64) -> u8 {
        (self.draw)(bound) as u8
    }

    fn below(&mut self, bound: u64) -> usize {
        (self.draw)(bound) as usize
    }
}
