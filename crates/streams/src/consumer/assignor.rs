//! How a group's leader shares partitions, in the encoding that all Kafka clients read.
//!
//! ```text
//! subscription   version i16, topics [text], user data bytes,
//!                from 1 on: owned [topic text, partitions [i32]],
//!                from 2 on: generation i32, from 3 on: rack text
//! assignment     version i16, [topic text, partitions [i32]], user data bytes
//! text: i16 length, -1 for none; list: i32 count; bytes: i32 length, -1 for none; all big-endian
//! ```
//!
//! Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment messages. They come
//! from other members, so every count is checked against the bytes that are there.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};

/// Partitions by topic, as wire names.
pub(crate) type Share = BTreeMap<String, Vec<i32>>;

/// The assignors that a member offers, best first: those that every client knows.
pub(crate) const ASSIGNORS: [&str; 2] = [RANGE, ROUND_ROBIN];

/// A subscription to `topics`.
pub(crate) fn subscription<'t>(topics: impl ExactSizeIterator<Item = &'t str>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    put_count(&mut out, topics.len());
    topics.for_each(|topic| put_text(&mut out, topic));
    out.put_i32(-1);
    out.freeze()
}

/// The topics of a member's subscription; nothing when it cannot be read.
pub(crate) fn subscribed(subscription: &[u8]) -> BTreeSet<String> {
    let mut from = Reader(subscription);
    let mut topics = BTreeSet::new();
    let Some((_version, count)) = from.i16().zip(from.i32()) else {
        return topics;
    };
    for _ in 0..count.max(0) {
        let Some(topic) = from.text() else {
            return BTreeSet::new();
        };
        topics.insert(topic);
    }
    topics
}

/// What a member's subscription tells beside its topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The topics that it reads.
    pub(crate) topics: BTreeSet<String>,
    /// What it held when it wrote this; nothing of members that give all back before they join.
    pub(crate) owned: Share,
    /// Where it sits.
    pub(crate) rack_id: Option<String>,
}

/// A member's subscription as a whole; none when it cannot be read.
pub(crate) fn read_subscription(subscription: &[u8]) -> Option<Told> {
    let mut from = Reader(subscription);
    let version = from.i16().filter(|version| *version >= 0)?;
    let mut told = Told::default();
    for _ in 0..from.count()? {
        told.topics.insert(from.text()?);
    }
    if version >= 1 {
        from.user_data()?;
        // kafka-go says version 1 and leaves out what is new in it.
        if version >= 2 || !from.0.is_empty() {
            told.owned = from.share()?;
        }
    }
    if version >= 3 {
        from.i32()?;
        told.rack_id = from.optional_text()?;
    }
    Some(told)
}

/// A share in the encoding that members read.
pub(crate) fn assignment(share: &Share) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    put_count(&mut out, share.len());
    for (topic, partitions) in share {
        put_text(&mut out, topic);
        put_count(&mut out, partitions.len());
        partitions
            .iter()
            .for_each(|partition| out.put_i32(*partition));
    }
    out.put_i32(-1);
    out.freeze()
}

/// The share of an assignment; nothing when it is empty or cannot be read.
pub(crate) fn assigned(assignment: &[u8]) -> Share {
    let mut from = Reader(assignment);
    let share = from.i16().and_then(|_| from.share());
    share.unwrap_or_default()
}

/// The share of an assignment, and whether the leader wrote data of its own to it; none when it
/// cannot be read.
pub(crate) fn read_assignment(assignment: &[u8]) -> Option<(Share, bool)> {
    let mut from = Reader(assignment);
    from.i16().filter(|version| *version >= 0)?;
    Some((from.share()?, from.user_data()?))
}

/// Shares the partitions of `partitions_of` among members (id, topics) by `assignor`.
pub(crate) fn shares(
    assignor: &str,
    members: &[(String, BTreeSet<String>)],
    partitions_of: impl Fn(&str) -> i32,
) -> Vec<(String, Share)> {
    let mut members: Vec<&(String, BTreeSet<String>)> = members.iter().collect();
    members.sort();
    let mut shares: Vec<(String, Share)> = members
        .iter()
        .map(|(id, _)| (id.clone(), Share::new()))
        .collect();
    let topics: BTreeSet<&String> = members.iter().flat_map(|(_, topics)| topics).collect();
    let mut turn = 0;
    for topic in topics {
        let takers: Vec<usize> = (0..members.len())
            .filter(|at| members[*at].1.contains(topic))
            .collect();
        let partitions = partitions_of(topic).max(0);
        if assignor == ROUND_ROBIN {
            for partition in 0..partitions {
                let taker = next_taker(&takers, &mut turn, members.len());
                shares[taker]
                    .1
                    .entry(topic.clone())
                    .or_default()
                    .push(partition);
            }
        } else {
            for (taker, range) in takers.iter().zip(ranges(partitions, takers.len())) {
                if !range.is_empty() {
                    shares[*taker]
                        .1
                        .entry(topic.clone())
                        .or_default()
                        .extend(range);
                }
            }
        }
    }
    shares
}

/// The member whose turn it is, among those that want the topic.
fn next_taker(takers: &[usize], turn: &mut usize, members: usize) -> usize {
    loop {
        let at = *turn % members;
        *turn += 1;
        if takers.contains(&at) {
            return at;
        }
    }
}

/// `partitions` in `count` consecutive ranges, the first ones longer by one where it must be.
fn ranges(partitions: i32, count: usize) -> Vec<std::ops::Range<i32>> {
    let count = i32::try_from(count).unwrap_or(i32::MAX).max(1);
    let (each, longer) = (partitions / count, partitions % count);
    let start = |nth: i32| nth * each + nth.min(longer);
    (0..count).map(|nth| start(nth)..start(nth + 1)).collect()
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn share(&mut self) -> Option<Share> {
        let mut share = Share::new();
        for _ in 0..self.i32()?.max(0) {
            let topic = self.text()?;
            let partitions: &mut Vec<i32> = share.entry(topic).or_default();
            for _ in 0..self.i32()?.max(0) {
                partitions.push(self.i32()?);
            }
        }
        Some(share)
    }

    /// Passes over a user's own data; says whether there was any.
    fn user_data(&mut self) -> Option<bool> {
        let length = usize::try_from(self.i32()?.max(0)).ok()?;
        let (_, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(length > 0)
    }

    fn optional_text(&mut self) -> Option<Option<String>> {
        match self.0 {
            [0xff, 0xff, rest @ ..] => {
                self.0 = rest;
                Some(None)
            }
            _ => self.text().map(Some),
        }
    }

    fn count(&mut self) -> Option<i32> {
        self.i32().filter(|count| *count >= 0)
    }

    fn i16(&mut self) -> Option<i16> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i16::from_be_bytes(*bytes))
    }

    fn i32(&mut self) -> Option<i32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(i32::from_be_bytes(*bytes))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.i16()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

fn put_count(out: &mut BytesMut, count: usize) {
    out.put_i32(i32::try_from(count).expect("limits keep subscriptions and shares below 2^31"));
}

fn put_text(out: &mut BytesMut, text: &str) {
    out.put_i16(i16::try_from(text.len()).expect("a wire name has at most 249 bytes"));
    out.put_slice(text.as_bytes());
}

const RANGE: &str = "range";
const ROUND_ROBIN: &str = "roundrobin";

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> (String, BTreeSet<String>) {
        (
            id.to_owned(),
            topics.iter().map(|topic| (*topic).to_owned()).collect(),
        )
    }

    fn check(assignor: &str, members: &[(String, BTreeSet<String>)], want: &[&[(&str, &[i32])]]) {
        let shares = shares(assignor, members, |topic| if topic == "t" { 5 } else { 2 });
        let want = want.iter().map(|share| -> Share {
            share
                .iter()
                .map(|(topic, p)| ((*topic).to_owned(), p.to_vec()))
                .collect()
        });
        assert_eq!(
            shares.into_iter().map(|(_, s)| s).collect::<Vec<_>>(),
            want.collect::<Vec<_>>()
        );
    }

    #[test]
    fn range_gives_neighbors_to_each_and_round_robin_one_by_one() {
        let members = [member("b", &["t", "u"]), member("a", &["t"])];
        check(
            "range",
            &members,
            &[&[("t", &[0, 1, 2])], &[("t", &[3, 4]), ("u", &[0, 1])]],
        );
        let robin: [&[(&str, &[i32])]; 2] =
            [&[("t", &[0, 2, 4])], &[("t", &[1, 3]), ("u", &[0, 1])]];
        check("roundrobin", &members, &robin);
    }

    /// As a cooperative member of Java's client writes it, and what of it may be missing.
    #[test]
    fn subscriptions_of_later_versions_tell_what_is_held() {
        let mut bytes = BytesMut::new();
        bytes.put_i16(3);
        put_count(&mut bytes, 1);
        put_text(&mut bytes, "t");
        bytes.put_slice(&[0, 0, 0, 2, 7, 7]);
        put_count(&mut bytes, 1);
        put_text(&mut bytes, "t");
        put_count(&mut bytes, 2);
        bytes.put_i32(0);
        bytes.put_i32(4);
        bytes.put_i32(9);
        let mut with_rack = bytes.clone();
        put_text(&mut with_rack, "r1");
        let told = |rack_id: Option<&str>| Told {
            topics: ["t".to_owned()].into(),
            owned: [("t".to_owned(), vec![0, 4])].into(),
            rack_id: rack_id.map(str::to_owned),
        };
        assert_eq!(read_subscription(&with_rack), Some(told(Some("r1"))));
        for end in 0..with_rack.len() {
            assert_eq!(read_subscription(&with_rack[..end]), None, "{end} bytes");
        }
        bytes.put_i16(-1);
        assert_eq!(read_subscription(&bytes), Some(told(None)));
        let plain = subscription(["t"].into_iter());
        let plain = read_subscription(&plain).unwrap();
        assert_eq!(
            (plain.topics, plain.owned),
            (told(None).topics, Share::new())
        );
        assert_eq!(read_subscription(&[0xff, 0xff, 0, 0, 0, 0]), None);
        let of_kafka_go = b"\0\x01\0\0\0\x01\0\x01t\xff\xff\xff\xff";
        let told = read_subscription(of_kafka_go).unwrap();
        assert_eq!(
            (told.topics, told.owned.len()),
            (["t".to_owned()].into(), 0)
        );
    }

    #[test]
    fn assignments_say_whether_they_hold_more_than_a_share() {
        let share: Share = [("t".to_owned(), vec![1])].into();
        let plain = assignment(&share);
        assert_eq!(read_assignment(&plain), Some((share.clone(), false)));
        let mut with_data = plain[..plain.len() - 4].to_vec();
        with_data.extend([0, 0, 0, 1, 5]);
        assert_eq!(read_assignment(&with_data), Some((share, true)));
        assert_eq!(read_assignment(&plain[..plain.len() - 1]), None);
        assert_eq!(read_assignment(&[]), None);
    }

    #[test]
    fn shares_and_subscriptions_read_back() {
        let share: Share = [("t".to_owned(), vec![0, 3]), ("u".to_owned(), vec![])].into();
        assert_eq!(assigned(&assignment(&share)), share);
        assert_eq!(assigned(&[]), Share::new());
        let topics = ["a", ".s..t"];
        let read = subscribed(&subscription(topics.into_iter()));
        assert_eq!(
            read.iter().map(String::as_str).collect::<Vec<_>>(),
            [".s..t", "a"]
        );
        // A count that the bytes do not hold reads as nothing.
        assert_eq!(
            subscribed(&[0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 9]),
            BTreeSet::new()
        );
    }
}
