//! "Did you mean": the known word that a misspelt one resembles.

/// "; did you mean …?" for the nearest of `known`, or nothing when none is near.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let word: Vec<char> = word.to_lowercase().chars().take(WORD_CHARS_MAX).collect();
    // A third of the letters may be wrong.
    let allowed = (word.len() / 3).max(1);
    known
        .into_iter()
        .map(|known| (distance(&word, known), known))
        .filter(|(distance, known)| *distance > 0 && *distance <= allowed && known.len() > 1)
        .min_by_key(|(distance, _)| *distance)
        .map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"))
}

/// How many letters have to be added, taken away, changed or swapped with their neighbour.
fn distance(word: &[char], known: &str) -> usize {
    let known: Vec<char> = known.to_lowercase().chars().take(WORD_CHARS_MAX).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, a) in word.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in known.iter().enumerate() {
            let mut least = (row[j + 1] + 1)
                .min(next[j] + 1)
                .min(row[j] + usize::from(a != b));
            if i > 0 && j > 0 && *a == known[j - 1] && word[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[known.len()]
}

/// Longer words are compared by their beginnings only.
const WORD_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::did_you_mean;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["select", "from", "where", "length_batch"];
        assert_eq!(did_you_mean("selct", known), "; did you mean select?");
        assert_eq!(did_you_mean("FORM", known), "; did you mean from?");
        assert_eq!(
            did_you_mean("lenght_batch", known),
            "; did you mean length_batch?"
        );
        assert_eq!(did_you_mean("banana", known), "");
        assert_eq!(did_you_mean("from", known), "");
    }
}
