//! Quotas held against clients: what a request costs, how long its client is held back, and where
//! its answer says so.
//!
//! As with Kafka since KIP-219 the answer goes out first, with the time in it; then the connection
//! is not read until that time is over. What decides is in [`access::Meters`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use access::{Addresses, Bound, Sharing};
use base::UnixMillis;
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use parking_lot::Mutex;

use super::Context;
use super::limits::QUOTA_WINDOW;
use super::reply::{Answer, Call};
use super::unsent::Piece;

/// What all listeners of a store count against quotas.
pub struct Usage {
    meters: Mutex<Meters>,
    pub(super) addresses: Addresses,
}

/// A meter for each bound and everybody who shares it.
type Meters = access::Meters<(Bound, Who)>;

/// Whom a meter is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    /// Clients of a user, of a client id, or of both.
    Client(Option<Box<str>>, Option<Box<str>>),
    /// An address.
    Address(Box<str>),
    /// All for whom there is no room: they share.
    Others,
}

impl Default for Usage {
    fn default() -> Self {
        let others = |(bound, _)| (bound, Who::Others);
        Usage {
            meters: Mutex::new(Meters::new(QUOTA_WINDOW, others)),
            addresses: Addresses::default(),
        }
    }
}

impl Who {
    /// Whom a bound is for that is shared like this.
    fn sharing(sharing: Sharing, user: &str, client: &str) -> Self {
        let user = sharing.by_user.then(|| user.into());
        Who::Client(user, sharing.by_client.then(|| client.into()))
    }
}

/// Where an API's answer says for how long its client is held back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told {
    /// At its beginning, since this version.
    First(i16),
    /// After the error code at its beginning.
    AfterCode,
    /// At its end, since this version.
    Last(i16),
    /// Nowhere: the API is not counted.
    Never,
}

/// What a request has cost its client so far.
pub(super) struct Toll {
    told: Told,
    version: i16,
    is_flexible: bool,
    /// What the answer's bytes are counted for.
    answer: Option<Bound>,
    client_id: StrBytes,
    wait: Duration,
}

impl Toll {
    /// Begins to count a request of `bytes`; none when nobody has a quota.
    pub(super) fn of(call: &Call, api: &super::api::Api, bytes: usize) -> Option<Self> {
        if matches!(api.told, Told::Never) || !call.context.counts() {
            return None;
        }
        let mut toll = Toll {
            told: api.told,
            version: call.version,
            is_flexible: call.version >= api.flexible_from,
            answer: matches!(api.name, "Fetch" | "ShareFetch").then_some(Bound::ConsumerByteRate),
            client_id: call.client_id.clone(),
            wait: Duration::ZERO,
        };
        if api.name == "Produce" {
            toll.add(&call.context, Bound::ProducerByteRate, bytes as f64);
        }
        Some(toll)
    }

    /// Counts the time for which a thread was busy with the request.
    pub(super) fn add_time(&mut self, context: &Context, busy: Duration) {
        let percent_seconds = busy.as_secs_f64() * 100.0;
        self.add(context, Bound::RequestPercentage, percent_seconds);
    }

    /// Counts the answer and writes into it how long the client is held back.
    pub(super) fn settle(mut self, context: &Context, answer: Answer) -> (Answer, Duration) {
        if let Some(bound) = self.answer {
            self.add(context, bound, answer.len() as f64);
            self.wait = self.wait.max(context.charge_read(answer.len()));
        }
        let wait = self.wait(context);
        if wait.is_zero() {
            return (answer, wait);
        }
        context.shared.telemetry().throttled.increment(1);
        (self.written(answer, wait), wait)
    }

    /// How long the client of a request without an answer is held back.
    pub(super) fn wait(&self, context: &Context) -> Duration {
        let mutations = context.wait_ms.swap(0, Ordering::Relaxed);
        self.wait.max(Duration::from_millis(mutations))
    }

    fn add(&mut self, context: &Context, bound: Bound, amount: f64) {
        self.wait = self
            .wait
            .max(context.charge(bound, &self.client_id, amount));
    }

    fn written(&self, answer: Answer, wait: Duration) -> Answer {
        let ms = i32::try_from(wait.as_millis())
            .unwrap_or(i32::MAX)
            .to_be_bytes();
        match answer {
            Answer::Whole(bytes) => Answer::Whole(self.patched(bytes, ms)),
            Answer::Pieces(mut pieces) => {
                // Answers in pieces have their head in the first.
                if let Some(Piece::Bytes(first)) = pieces.first_mut() {
                    *first = self.patched(std::mem::take(first), ms);
                }
                Answer::Pieces(pieces)
            }
        }
    }

    fn patched(&self, bytes: Bytes, ms: [u8; 4]) -> Bytes {
        let head = LENGTH_BYTES + CORRELATION_BYTES + usize::from(self.is_flexible);
        let at = match self.told {
            Told::First(since) if self.version >= since => Some(head),
            Told::AfterCode => Some(head + 2),
            // A flexible body ends with its tagged fields, of which there are none.
            Told::Last(since) if self.version >= since => bytes
                .len()
                .checked_sub(ms.len() + usize::from(self.is_flexible)),
            _ => None,
        };
        let mut bytes = BytesMut::from(bytes);
        if let Some(place) = at.and_then(|at| bytes.get_mut(at..at + ms.len())) {
            place.copy_from_slice(&ms);
        }
        bytes.freeze()
    }
}

impl Context {
    /// Whether anything is counted at all.
    fn counts(&self) -> bool {
        let access = self.shared.security.access.as_ref();
        access.is_some_and(|access| access.has_tenants() || access.snapshot().has_quotas())
    }

    fn has_quotas(&self) -> bool {
        let access = self.shared.security.access.as_ref();
        access.is_some_and(|access| access.snapshot().has_quotas())
    }

    /// Counts `amount` for the client; answers how long it is to be held back.
    fn charge(&self, bound: Bound, client_id: &str, amount: f64) -> Duration {
        self.metered(bound, client_id, |meters, now, who, rate| {
            meters.charge(now, (bound, who), rate, amount)
        })
        .unwrap_or_default()
    }

    fn metered<T>(
        &self,
        bound: Bound,
        client_id: &str,
        count: impl FnOnce(&mut Meters, UnixMillis, Who, f64) -> T,
    ) -> Option<T> {
        let access = self.shared.security.access.as_ref()?;
        let user = self.session.principal().name();
        let (sharing, rate) = access.snapshot().bound_of_client(bound, user, client_id)?;
        let who = Who::sharing(sharing, user, client_id);
        let now = self.streams().clock().now();
        let mut meters = self.shared.security.usage.meters.lock();
        Some(count(&mut meters, now, who, rate))
    }
}

impl super::Shared {
    /// Counts a connection from an address; answers how long the next one should have waited.
    pub(super) fn charge_connection(&self, ip: &str) -> Duration {
        let bound = Bound::ConnectionCreationRate;
        let Some(access) = &self.security.access else {
            return Duration::ZERO;
        };
        let Some(rate) = access.snapshot().bound_of_ip(bound, ip) else {
            return Duration::ZERO;
        };
        let now = self.streams.clock().now();
        let mut meters = self.security.usage.meters.lock();
        meters.charge(now, (bound, Who::Address(ip.into())), rate, 1.0)
    }
}

impl Call {
    /// Counts partitions that are about to be created or deleted. False when the client has used
    /// up what it may, and knows the error for that: then it is to do nothing.
    pub(super) fn may_mutate(&self, partitions: usize, knows_error: bool) -> bool {
        let bound = Bound::ControllerMutationRate;
        let count = |meters: &mut Meters, now: UnixMillis, who: Who, rate: f64| {
            let wait = meters.wait(now, (bound, who.clone()), rate);
            if knows_error && !wait.is_zero() {
                return (false, wait);
            }
            (
                true,
                meters.charge(now, (bound, who), rate, partitions as f64),
            )
        };
        let counted = self.context.metered(bound, &self.client_id, count);
        let Some((may, wait)) = counted else {
            return true;
        };
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.context.wait_ms.fetch_max(ms, Ordering::Relaxed);
        may
    }

    /// The most bytes that one fetch may bring: what the client's rate gives in one window.
    pub(super) fn fetch_bytes_max(&self) -> usize {
        let bound = Bound::ConsumerByteRate;
        let of_tenant = self.context.tenant_fetch_bytes_max();
        if !self.context.has_quotas() {
            return of_tenant;
        }
        let window = QUOTA_WINDOW.as_secs_f64();
        let of_rate = |_: &mut Meters, _, _, rate: f64| (rate * window) as usize;
        let bounded = self.context.metered(bound, &self.client_id, of_rate);
        bounded.unwrap_or(usize::MAX).min(of_tenant)
    }
}

const LENGTH_BYTES: usize = 4;
const CORRELATION_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::*;
    use kafka_protocol::protocol::{Encodable, HeaderVersion};

    use super::super::table::APIS;
    use super::*;

    fn encoded<T: Encodable + HeaderVersion>(body: &T, version: i16) -> Bytes {
        let mut bytes = BytesMut::zeroed(LENGTH_BYTES + CORRELATION_BYTES);
        if T::header_version(version) > 0 {
            bytes.extend_from_slice(&[0]);
        }
        body.encode(&mut bytes, version).unwrap();
        bytes.freeze()
    }

    /// Each answer with a time that was written into its bytes, and with one that the codec wrote.
    fn written(key: i16, version: i16, toll: &Toll) -> (Bytes, Bytes) {
        macro_rules! of {
            ($($key:literal => $response:ty,)*) => {
                match key {
                    $($key => {
                        let without = encoded(&<$response>::default(), version);
                        let with = <$response>::default().with_throttle_time_ms(7);
                        (toll.patched(without, 7_i32.to_be_bytes()), encoded(&with, version))
                    })*
                    other => panic!("no test knows where API {other} tells of a delay"),
                }
            };
        }
        of! {
            0 => ProduceResponse,
            1 => FetchResponse,
            2 => ListOffsetsResponse,
            3 => MetadataResponse,
            8 => OffsetCommitResponse,
            9 => OffsetFetchResponse,
            10 => FindCoordinatorResponse,
            11 => JoinGroupResponse,
            12 => HeartbeatResponse,
            13 => LeaveGroupResponse,
            14 => SyncGroupResponse,
            15 => DescribeGroupsResponse,
            16 => ListGroupsResponse,
            19 => CreateTopicsResponse,
            20 => DeleteTopicsResponse,
            21 => DeleteRecordsResponse,
            22 => InitProducerIdResponse,
            23 => OffsetForLeaderEpochResponse,
            24 => AddPartitionsToTxnResponse,
            25 => AddOffsetsToTxnResponse,
            26 => EndTxnResponse,
            28 => TxnOffsetCommitResponse,
            29 => DescribeAclsResponse,
            30 => CreateAclsResponse,
            31 => DeleteAclsResponse,
            32 => DescribeConfigsResponse,
            33 => AlterConfigsResponse,
            35 => DescribeLogDirsResponse,
            37 => CreatePartitionsResponse,
            42 => DeleteGroupsResponse,
            43 => ElectLeadersResponse,
            44 => IncrementalAlterConfigsResponse,
            45 => AlterPartitionReassignmentsResponse,
            46 => ListPartitionReassignmentsResponse,
            47 => OffsetDeleteResponse,
            48 => DescribeClientQuotasResponse,
            49 => AlterClientQuotasResponse,
            50 => DescribeUserScramCredentialsResponse,
            51 => AlterUserScramCredentialsResponse,
            60 => DescribeClusterResponse,
            61 => DescribeProducersResponse,
            65 => DescribeTransactionsResponse,
            66 => ListTransactionsResponse,
            68 => ConsumerGroupHeartbeatResponse,
            69 => ConsumerGroupDescribeResponse,
            74 => ListConfigResourcesResponse,
            75 => DescribeTopicPartitionsResponse,
            76 => ShareGroupHeartbeatResponse,
            77 => ShareGroupDescribeResponse,
            78 => ShareFetchResponse,
            79 => ShareAcknowledgeResponse,
            90 => DescribeShareGroupOffsetsResponse,
            91 => AlterShareGroupOffsetsResponse,
            92 => DeleteShareGroupOffsetsResponse,
        }
    }

    #[test]
    fn every_answer_says_where_kafka_says_it_for_how_long_its_client_is_held_back() {
        for api in APIS {
            let (key, from, to, flexible_from, _) = api.facts();
            // The codec does not know those of Kafka Streams, which begin as all of their age.
            if matches!(api.told, Told::Never) || matches!(key, 88 | 89) {
                continue;
            }
            // The codec does not write every newest version; the layouts are those before.
            let newest = match key {
                2 | 8 | 9 | 78 | 79 | 90 => to - 1,
                _ => to,
            };
            for version in from..=newest {
                let toll = Toll {
                    told: api.told,
                    version,
                    is_flexible: version >= flexible_from,
                    answer: None,
                    client_id: StrBytes::default(),
                    wait: Duration::ZERO,
                };
                let (patched, expected) = written(key, version, &toll);
                assert_eq!(patched, expected, "{} version {version}", api.name);
            }
        }
    }
}
