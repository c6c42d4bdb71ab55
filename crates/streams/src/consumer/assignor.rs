//! How a group's leader shares partitions, in the encoding that all Kafka clients read.
//!
//! ```text
//! subscription   version i16, topics [text], user data bytes (later versions go on; left unread)
//! assignment     version i16, [topic text, partitions [i32]], user data bytes
//! text: i16 length; list: i32 count; bytes: i32 length, -1 for none; all big-endian
//! ```
//!
//! Source: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment messages, version
//! 0. They come from other members, so every count is checked against the bytes that are there.

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
    read_assignment(assignment).unwrap_or_default()
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

fn read_assignment(assignment: &[u8]) -> Option<Share> {
    let mut from = Reader(assignment);
    let mut share = Share::new();
    from.i16()?;
    for _ in 0..from.i32()?.max(0) {
        let topic = from.text()?;
        let partitions: &mut Vec<i32> = share.entry(topic).or_default();
        for _ in 0..from.i32()?.max(0) {
            partitions.push(from.i32()?);
        }
    }
    Some(share)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
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
