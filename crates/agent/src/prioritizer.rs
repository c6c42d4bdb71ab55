//! In which order a connection hands out what it holds, where its flow says so.
//!
//! The queue is put in order when it is next taken from after something came: what was in order
//! already is merged with what is new, so that a take costs time by the length of the queue, not
//! more. FlowFiles that no prioritizer tells apart keep the order in which they came. What is
//! swapped out is not looked at until it is back.

use std::cmp::Ordering;

use crate::definition::Prioritizer;
use crate::flowfile::FlowFile;

/// Which of two FlowFiles goes first.
pub(crate) fn compare(prioritizers: &[Prioritizer], a: &FlowFile, b: &FlowFile) -> Ordering {
    for prioritizer in prioritizers {
        let order = match prioritizer {
            // As they came, which is what a stable sort leaves.
            Prioritizer::FirstInFirstOut => return Ordering::Equal,
            Prioritizer::NewestFlowFileFirst => (b.entry, b.id).cmp(&(a.entry, a.id)),
            Prioritizer::OldestFlowFileFirst => (a.entry, a.id).cmp(&(b.entry, b.id)),
            Prioritizer::PriorityAttribute => Priority::of(a).cmp(&Priority::of(b)),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// The attribute `priority`: numbers by size, then other texts by their letters, then none.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Priority<'f> {
    Number(i64),
    Text(&'f str),
    None,
}

impl Priority<'_> {
    fn of(flow_file: &FlowFile) -> Priority<'_> {
        match flow_file.attributes.get("priority") {
            None => Priority::None,
            Some(text) => match text.trim().parse() {
                Ok(number) => Priority::Number(number),
                Err(_) => Priority::Text(text),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Rng, UnixMillis};

    use super::*;
    use crate::content::Content;
    use crate::flowfile::{Attributes, FlowFileId};

    fn flow_file(id: u64, entry: i64, priority: Option<&str>) -> FlowFile {
        let attributes = priority.map(|priority| ("priority", priority));
        FlowFile {
            id: FlowFileId(id),
            entry: UnixMillis(entry),
            attributes: Arc::new(Attributes::new(attributes)),
            content: Content::default(),
        }
    }

    fn order(prioritizers: &[Prioritizer]) -> Vec<u64> {
        let mut all = [
            flow_file(1, 30, Some("10")),
            flow_file(2, 10, None),
            flow_file(3, 20, Some("9")),
            flow_file(4, 10, Some("b")),
            flow_file(5, 40, Some("a")),
            flow_file(6, 5, Some("9")),
        ];
        all.sort_by(|a, b| compare(prioritizers, a, b));
        all.iter().map(|flow_file| flow_file.id.0).collect()
    }

    #[test]
    fn each_prioritizer_has_its_order_and_the_next_breaks_ties() {
        use Prioritizer::*;
        assert_eq!(order(&[]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(
            order(&[FirstInFirstOut, NewestFlowFileFirst]),
            [1, 2, 3, 4, 5, 6]
        );
        assert_eq!(order(&[NewestFlowFileFirst]), [5, 1, 3, 4, 2, 6]);
        assert_eq!(order(&[OldestFlowFileFirst]), [6, 2, 4, 3, 1, 5]);
        assert_eq!(order(&[PriorityAttribute]), [3, 6, 1, 5, 4, 2]);
        assert_eq!(
            order(&[PriorityAttribute, OldestFlowFileFirst]),
            [6, 3, 1, 5, 4, 2]
        );
    }

    #[test]
    fn every_order_is_a_total_one() {
        let mut random = Rng::from_entropy();
        let all = [
            Prioritizer::NewestFlowFileFirst,
            Prioritizer::OldestFlowFileFirst,
            Prioritizer::PriorityAttribute,
        ];
        for _ in 0..2_000 {
            let mut make = |id| {
                let priority = random.one_in(4).then(|| format!("{}", random.below(5)));
                let text = random.one_in(4).then(|| "x".to_owned());
                let entry = i64::try_from(random.below(4)).unwrap();
                flow_file(id, entry, priority.or(text).as_deref())
            };
            let [a, b, c] = [make(1), make(2), make(3)];
            for prioritizer in all {
                let cmp = |a, b| compare(&[prioritizer], a, b);
                assert_eq!(cmp(&a, &b), cmp(&b, &a).reverse());
                if cmp(&a, &b).is_le() && cmp(&b, &c).is_le() {
                    assert!(cmp(&a, &c).is_le());
                }
            }
        }
    }
}
