//! "Did you mean": the known word that a misspelt one resembles.

use base::letters_apart;

/// "; did you mean …?" for the nearest of `known`, or nothing when none is near.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    // A third of the letters may be wrong.
    let allowed = (word.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (letters_apart(word, known), known))
        .filter(|(distance, known)| *distance > 0 && *distance <= allowed && known.len() > 1)
        .min_by_key(|(distance, _)| *distance)
        .map_or_else(String::new, |(_, known)| format!("; did you mean {known}?"))
}

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
