//! Values by FlowFiles' numbers, in pages of those that follow each other: numbers are given in
//! order and mostly read so, and ten million of them take little more than the values themselves.

use std::collections::BTreeMap;

/// Values by number.
pub(super) struct Slots<T> {
    /// By their first number over [`PAGE`]; each in the order of its numbers, and none is empty.
    pages: BTreeMap<u64, Vec<(u64, T)>>,
    len: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots {
            pages: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<T> Slots<T> {
    /// Puts a value in the place of what has its number.
    pub(super) fn insert(&mut self, number: u64, value: T) {
        // Where numbers lie far apart, a page has one value.
        let page = self.pages.entry(number / PAGE);
        let page = page.or_insert_with(|| Vec::with_capacity(1));
        match find(page, number) {
            Ok(at) => page[at].1 = value,
            Err(at) => {
                page.insert(at, (number, value));
                self.len += 1;
            }
        }
    }

    /// Takes the value of a number.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let page = self.pages.get_mut(&(number / PAGE))?;
        let at = find(page, number).ok()?;
        let (_, value) = page.remove(at);
        if page.is_empty() {
            self.pages.remove(&(number / PAGE));
        }
        self.len -= 1;
        Some(value)
    }

    /// Drops the values of `count` numbers from `first` on. The walk is over what is there, however
    /// large the count.
    pub(super) fn remove_range(&mut self, first: u64, count: u64) {
        let Some(last) = count.checked_sub(1).map(|more| first.saturating_add(more)) else {
            return;
        };
        let mut emptied = Vec::new();
        for (&key, page) in self.pages.range_mut(first / PAGE..=last / PAGE) {
            let from = page.partition_point(|(number, _)| *number < first);
            let to = page.partition_point(|(number, _)| *number <= last);
            self.len -= page.drain(from..to).len();
            if page.is_empty() {
                emptied.push(key);
            }
        }
        for key in emptied {
            self.pages.remove(&key);
        }
    }

    /// All of them, sorted by `key`. Where that is the order of their numbers, as it mostly is,
    /// their memory goes as they are taken.
    pub(super) fn in_order_of<K: Ord>(
        self,
        key: impl Fn(&T) -> K,
    ) -> Box<dyn Iterator<Item = (u64, T)>>
    where
        T: 'static,
    {
        let all = self.pages.values().flatten();
        let is_sorted = all.is_sorted_by_key(|(_, value)| key(value));
        let all = self.pages.into_values().flatten();
        if is_sorted {
            return Box::new(all);
        }
        let mut sorted = Vec::with_capacity(self.len);
        sorted.extend(all);
        sorted.sort_unstable_by_key(|(_, value)| key(value));
        Box::new(sorted.into_iter())
    }
}

/// Where the number is, or would be. What is looked for is mostly the page's first or behind its
/// last.
fn find<T>(page: &[(u64, T)], number: u64) -> Result<usize, usize> {
    match page {
        [.., (last, _)] if *last < number => Err(page.len()),
        [(first, _), ..] if *first == number => Ok(0),
        _ => page.binary_search_by_key(&number, |(number, _)| *number),
    }
}

/// How many numbers a page has room for.
const PAGE: u64 = 64;

#[cfg(test)]
mod tests {
    use base::Rng;

    use super::*;

    #[test]
    fn they_are_as_in_a_map_and_come_in_order() {
        for seed in 0..50 {
            let mut rng = Rng::from_seed(seed);
            let mut slots = Slots::default();
            let mut model = BTreeMap::new();
            for value in 0..2_000u32 {
                let number = match rng.below(20) {
                    0 => u64::MAX - rng.below(70),
                    _ => rng.below(1_000),
                };
                match rng.below(8) {
                    0 => {
                        let count = [0, 1, 3, 100, u64::MAX][rng.below(5) as usize];
                        let is_out = |at: u64| {
                            at < number || u128::from(at) >= u128::from(number) + u128::from(count)
                        };
                        if count < u64::MAX || rng.below(10) == 0 {
                            slots.remove_range(number, count);
                            model.retain(|at, _| is_out(*at));
                        }
                    }
                    1 | 2 => assert_eq!(slots.remove(number), model.remove(&number)),
                    _ => {
                        slots.insert(number, value);
                        model.insert(number, value);
                    }
                }
                assert_eq!(slots.len, model.len());
                assert!(slots.pages.values().all(|page| !page.is_empty()));
            }
            assert!(!model.is_empty());
            let mut all = Vec::from_iter(model);
            if seed % 2 == 0 {
                assert_eq!(slots.in_order_of(|_| ()).collect::<Vec<_>>(), all);
            } else {
                all.sort_by_key(|(_, value)| *value);
                assert_eq!(slots.in_order_of(|value| *value).collect::<Vec<_>>(), all);
            }
        }
    }
}
