//! Who reads which partition: what members and their leader tell each other, without IO.
//!
//! Subscription: `version i16, count i32, (length i16, topic)…, user data i32 + bytes`.
//! Assignment: `version i16, count i32, (length i16, topic, count i32, partition i32…)…, user
//! data`. Later versions only append, so version 0 is written and every version is read.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Partitions by topic.
pub(crate) type Assignment = BTreeMap<String, Vec<i32>>;

/// A member of a group and the topics that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) topics: Vec<String>,
}

/// A way of sharing partitions out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Each topic in runs, as Java's clients and librdkafka do first.
    Range,
    /// One partition after the other.
    RoundRobin,
}

impl Strategy {
    /// What the agent offers, the best first.
    pub(crate) const ALL: [Strategy; 2] = [Strategy::Range, Strategy::RoundRobin];

    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Strategy::Range => "range",
            Strategy::RoundRobin => "roundrobin",
        }
    }

    /// Shares `partitions`, counted by topic, out among `members`.
    pub(crate) fn share(
        self,
        mut members: Vec<Member>,
        partitions: &BTreeMap<String, i32>,
    ) -> BTreeMap<String, Assignment> {
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let mut shares: BTreeMap<String, Assignment> = members
            .iter()
            .map(|member| (member.id.clone(), Assignment::new()))
            .collect();
        let mut give = |member: &Member, topic: &str, partition: i32| {
            let share = shares.entry(member.id.clone()).or_default();
            share.entry(topic.to_owned()).or_default().push(partition);
        };
        let mut turn = 0;
        for (topic, &count) in partitions {
            let wanting: Vec<&Member> = members
                .iter()
                .filter(|member| member.topics.contains(topic))
                .collect();
            let Ok(members_count) = i32::try_from(wanting.len()) else {
                continue;
            };
            for partition in 0..if wanting.is_empty() { 0 } else { count } {
                let index = match self {
                    Strategy::Range => {
                        let (each, more) = (count / members_count, count % members_count);
                        // The first `more` members have one partition more than the others.
                        let of_larger = (each + 1) * more;
                        if partition < of_larger {
                            partition / (each + 1)
                        } else {
                            more + (partition - of_larger) / each.max(1)
                        }
                    }
                    Strategy::RoundRobin => {
                        turn += 1;
                        (turn - 1) % members_count
                    }
                };
                give(wanting[index as usize], topic, partition);
            }
        }
        shares
    }
}

/// What a member tells of itself.
pub(crate) fn subscription(topics: &[String]) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(topics.len() as i32);
    for topic in topics {
        put_text(&mut out, topic);
    }
    out.put_i32(-1);
    out.freeze()
}

/// The topics of a subscription; none where it is no subscription.
pub(crate) fn read_subscription(mut bytes: Bytes) -> Option<Vec<String>> {
    let mut topics = Vec::new();
    for _ in 0..head(&mut bytes)? {
        topics.push(text(&mut bytes)?);
    }
    Some(topics)
}

/// What a leader tells a member.
pub(crate) fn assignment(share: &Assignment) -> Bytes {
    let mut out = BytesMut::new();
    out.put_i16(0);
    out.put_i32(share.len() as i32);
    for (topic, partitions) in share {
        put_text(&mut out, topic);
        out.put_i32(partitions.len() as i32);
        for partition in partitions {
            out.put_i32(*partition);
        }
    }
    out.put_i32(-1);
    out.freeze()
}

/// A share; none where it is no assignment. No bytes at all are an empty share.
pub(crate) fn read_assignment(mut bytes: Bytes) -> Option<Assignment> {
    let mut share = Assignment::new();
    if bytes.is_empty() {
        return Some(share);
    }
    for _ in 0..head(&mut bytes)? {
        let topic = text(&mut bytes)?;
        let count = bytes.try_get_i32().ok()?;
        let mut partitions = Vec::new();
        for _ in 0..count.max(0) {
            partitions.push(
                bytes
                    .try_get_i32()
                    .ok()
                    .filter(|partition| *partition >= 0)?,
            );
        }
        share.insert(topic, partitions);
    }
    Some(share)
}

/// Reads past the version to the count.
fn head(bytes: &mut Bytes) -> Option<i32> {
    bytes.try_get_i16().ok().filter(|version| *version >= 0)?;
    bytes.try_get_i32().ok()
}

fn text(bytes: &mut Bytes) -> Option<String> {
    let len = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let text = (bytes.len() >= len).then(|| bytes.split_to(len))?;
    String::from_utf8(text.to_vec()).ok()
}

fn put_text(out: &mut BytesMut, text: &str) {
    // Topics have at most 249 characters.
    out.put_i16(text.len() as i16);
    out.put_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> Member {
        Member {
            id: id.to_owned(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        }
    }

    fn shares(strategy: Strategy, members: &[Member]) -> Vec<(String, String)> {
        let partitions = BTreeMap::from([("a".to_owned(), 5), ("b".to_owned(), 2)]);
        let shares = strategy.share(members.to_vec(), &partitions);
        shares
            .into_iter()
            .map(|(id, share)| (id, format!("{share:?}")))
            .collect()
    }

    #[test]
    fn partitions_are_shared_out_as_other_clients_do() {
        let members = [
            member("y", &["a", "b"]),
            member("x", &["a", "b"]),
            member("z", &["a"]),
        ];
        let expect = |texts: [&str; 3]| {
            let ids = ["x", "y", "z"].map(str::to_owned);
            ids.into_iter()
                .zip(texts.map(str::to_owned))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shares(Strategy::Range, &members),
            expect([
                r#"{"a": [0, 1], "b": [0]}"#,
                r#"{"a": [2, 3], "b": [1]}"#,
                r#"{"a": [4]}"#
            ])
        );
        assert_eq!(
            shares(Strategy::RoundRobin, &members),
            expect([
                r#"{"a": [0, 3], "b": [1]}"#,
                r#"{"a": [1, 4], "b": [0]}"#,
                r#"{"a": [2]}"#
            ])
        );
        let many: Vec<Member> = (0..9).map(|n| member(&n.to_string(), &["a"])).collect();
        let shared = shares(Strategy::Range, &many);
        assert_eq!(shared.len(), 9);
        assert_eq!(shared.iter().filter(|(_, share)| share == "{}").count(), 4);
    }

    #[test]
    fn what_is_told_is_read_back_and_nonsense_is_none() {
        let topics = ["a".to_owned(), "long-topic".to_owned()];
        let told = subscription(&topics);
        assert_eq!(read_subscription(told.clone()), Some(topics.to_vec()));
        let share = Assignment::from([("a".to_owned(), vec![0, 2]), ("b".to_owned(), vec![])]);
        let told_share = assignment(&share);
        assert_eq!(read_assignment(told_share.clone()), Some(share));
        assert_eq!(read_assignment(Bytes::new()), Some(Assignment::new()));
        for cut in 0..told.len() - 4 {
            assert_eq!(read_subscription(told.slice(..cut)), None);
        }
        for cut in 1..told_share.len() - 4 {
            assert_eq!(read_assignment(told_share.slice(..cut)), None);
        }
        let huge = Bytes::from_static(&[0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1]);
        assert_eq!(read_assignment(huge), None);
    }
}
