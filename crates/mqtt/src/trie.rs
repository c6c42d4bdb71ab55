//! Subscriptions by filter: a trie of topic levels, walked once per new topic of a link.
//!
//! The cost of a match depends on the levels of the topic and on the wildcards that meet it, not
//! on how many filters there are. Empty branches are cut when their last entry goes.

use std::collections::HashMap;

use crate::topic::TopicFilter;

/// Entries of `T` under keys of `K`, found by the topics that their filters match.
#[derive(Debug)]
pub(crate) struct Trie<K, T> {
    root: Node<K, T>,
    entries: usize,
}

#[derive(Debug)]
struct Node<K, T> {
    children: HashMap<Box<str>, Node<K, T>>,
    /// The child under `+`.
    any: Option<Box<Node<K, T>>>,
    /// Entries whose filter ends here.
    here: Vec<(K, T)>,
    /// Entries whose filter ends here with `#`.
    below: Vec<(K, T)>,
}

impl<K: PartialEq, T> Trie<K, T> {
    pub(crate) fn new() -> Self {
        Trie {
            root: Node::new(),
            entries: 0,
        }
    }

    /// Entries in all.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Puts an entry under a filter; the entry that the same key had there is given back.
    pub(crate) fn insert(&mut self, filter: &TopicFilter, key: K, entry: T) -> Option<T> {
        let list = self.root.list_mut(filter.as_str());
        if let Some(old) = list.iter_mut().find(|(k, _)| *k == key) {
            return Some(std::mem::replace(&mut old.1, entry));
        }
        list.push((key, entry));
        self.entries += 1;
        None
    }

    /// Takes the entry of a key from under a filter.
    pub(crate) fn remove(&mut self, filter: &TopicFilter, key: &K) -> Option<T> {
        let removed = self.root.remove(filter.as_str(), key);
        self.entries -= usize::from(removed.is_some());
        removed
    }

    /// Calls `visit` for each entry whose filter matches `topic`.
    pub(crate) fn matches(&self, topic: &str, visit: &mut dyn FnMut(&K, &T)) {
        // A filter that starts with a wildcard does not meet `$`-topics (section 4.7.2).
        self.root
            .matches(Some(topic), topic.starts_with('$'), visit);
    }
}

impl<K: PartialEq, T> Node<K, T> {
    fn new() -> Self {
        Node {
            children: HashMap::new(),
            any: None,
            here: Vec::new(),
            below: Vec::new(),
        }
    }

    fn list_mut(&mut self, filter: &str) -> &mut Vec<(K, T)> {
        let mut node = self;
        for level in filter.split('/') {
            match level {
                "#" => return &mut node.below,
                "+" => node = node.any.get_or_insert_with(|| Box::new(Node::new())),
                _ => node = node.children.entry(level.into()).or_insert_with(Node::new),
            }
        }
        &mut node.here
    }

    fn remove(&mut self, filter: &str, key: &K) -> Option<T> {
        let (level, rest) = match filter.split_once('/') {
            Some((level, rest)) => (level, Some(rest)),
            None => (filter, None),
        };
        if level == "#" {
            return take(&mut self.below, key);
        }
        let child = match level {
            "+" => self.any.as_deref_mut()?,
            _ => self.children.get_mut(level)?,
        };
        let removed = match rest {
            Some(rest) => child.remove(rest, key),
            None => take(&mut child.here, key),
        };
        if child.is_empty() {
            match level {
                "+" => self.any = None,
                _ => drop(self.children.remove(level)),
            }
        }
        removed
    }

    /// `rest` is what is left of the topic, `None` past its last level.
    fn matches(&self, rest: Option<&str>, dollar: bool, visit: &mut dyn FnMut(&K, &T)) {
        if !dollar {
            self.below.iter().for_each(|(key, entry)| visit(key, entry));
        }
        let Some(rest) = rest else {
            self.here.iter().for_each(|(key, entry)| visit(key, entry));
            return;
        };
        let (level, rest) = match rest.split_once('/') {
            Some((level, rest)) => (level, Some(rest)),
            None => (rest, None),
        };
        if let Some(child) = self.children.get(level) {
            child.matches(rest, false, visit);
        }
        if let (Some(child), false) = (&self.any, dollar) {
            child.matches(rest, false, visit);
        }
    }

    fn is_empty(&self) -> bool {
        self.children.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }
}

fn take<K: PartialEq, T>(list: &mut Vec<(K, T)>, key: &K) -> Option<T> {
    let at = list.iter().position(|(k, _)| k == key)?;
    Some(list.swap_remove(at).1)
}

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    fn found(trie: &Trie<u32, ()>, topic: &str) -> Vec<u32> {
        let mut keys = Vec::new();
        trie.matches(topic, &mut |key, ()| keys.push(*key));
        keys.sort_unstable();
        keys
    }

    #[test]
    fn random_filters_match_as_one_by_one() {
        for seed in 0..300 {
            let mut rng = Rng::from_seed(seed);
            let levels = |rng: &mut Rng, words: &[&str]| {
                let count = 1 + rng.below(4);
                let pick = |rng: &mut Rng| words[usize::try_from(rng.below(5)).unwrap()];
                (0..count)
                    .map(|_| pick(rng).to_owned())
                    .collect::<Vec<_>>()
                    .join("/")
            };
            let mut trie = Trie::new();
            let mut filters: Vec<(u32, TopicFilter)> = Vec::new();
            for key in 0..40 {
                let Ok(filter) = levels(&mut rng, &["a", "+", "#", "", "$s"]).parse() else {
                    continue;
                };
                trie.insert(&filter, key, ());
                filters.push((key, filter));
            }
            while !filters.is_empty() {
                let topic = levels(&mut rng, &["a", "b", "", "$s", "$"]);
                if !topic.is_empty() {
                    let mut expected: Vec<u32> = filters
                        .iter()
                        .filter(|(_, f)| f.matches(&topic))
                        .map(|(k, _)| *k)
                        .collect();
                    expected.sort_unstable();
                    assert_eq!(found(&trie, &topic), expected, "seed {seed}, topic {topic}");
                }
                let gone = usize::try_from(rng.below(filters.len() as u64)).unwrap();
                let (key, filter) = filters.swap_remove(gone);
                assert_eq!(trie.remove(&filter, &key), Some(()), "seed {seed}");
                assert_eq!(trie.len(), filters.len());
            }
            assert!(trie.root.is_empty(), "seed {seed} left branches");
        }
    }

    #[test]
    fn the_same_key_and_filter_replace_each_other() {
        let mut trie = Trie::new();
        let filter: TopicFilter = "a/+".parse().unwrap();
        assert_eq!(trie.insert(&filter, 1, "old"), None);
        assert_eq!(trie.insert(&filter, 1, "new"), Some("old"));
        assert_eq!(trie.len(), 1);
    }
}
