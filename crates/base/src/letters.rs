//! How far a misspelt word is from a known one, for "did you mean".

/// How many letters of `word` have to be added, taken away, changed or swapped with their neighbour
/// to make `known` of it, whatever their case. Of long words the beginnings alone are compared.
pub fn letters_apart(word: &str, known: &str) -> usize {
    let letters = |word: &str| -> Vec<char> {
        let lower = word.chars().flat_map(char::to_lowercase);
        lower.take(LETTERS_MAX).collect()
    };
    let (word, known) = (letters(word), letters(known));
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

const LETTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::letters_apart;

    #[test]
    fn a_letter_added_taken_changed_or_swapped_is_one() {
        for (word, known, apart) in [
            ("select", "SELECT", 0),
            ("selct", "select", 1),
            ("selects", "select", 1),
            ("delect", "select", 1),
            ("form", "from", 1),
            ("", "from", 4),
            ("banana", "from", 6),
        ] {
            assert_eq!(letters_apart(word, known), apart, "{word}");
            assert_eq!(letters_apart(known, word), apart, "{word}");
        }
        // Whatever is behind that.
        let long = "x".repeat(super::LETTERS_MAX);
        assert_eq!(letters_apart(&format!("{long}ab"), &long), 0);
    }
}
