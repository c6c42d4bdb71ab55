//! Lines in a block, and names of rolled files. No IO.

use memchr::memmem::Finder;

/// Whole lines at the start of a block.
pub(super) struct Lines {
    pub(super) ranges: Vec<(u32, u32)>,
    pub(super) consumed: usize,
}

impl Lines {
    pub(super) fn whole(len: usize) -> Self {
        Lines {
            ranges: vec![(0, len as u32)],
            consumed: len,
        }
    }

    /// All lines as one range, with their delimiters.
    pub(super) fn together(self) -> Self {
        Lines::whole(self.consumed)
    }
}

/// Cuts whole lines, `lines_max` of them at most; without a delimiter the block is one.
pub(super) fn cut(
    block: &[u8],
    delimiter: Option<&Finder<'_>>,
    keeps_delimiter: bool,
    lines_max: usize,
) -> Lines {
    let Some(finder) = delimiter else {
        return Lines::whole(block.len());
    };
    let delimiter = finder.needle();
    let mut lines = Lines {
        ranges: Vec::new(),
        consumed: 0,
    };
    let mut add = |at: usize| {
        let (start, next) = (lines.consumed, at + delimiter.len());
        let end = if keeps_delimiter { next } else { at };
        // A block is at most a few MiB.
        lines.ranges.push((start as u32, (end - start) as u32));
        lines.consumed = next;
    };
    if let [byte] = delimiter {
        memchr::memchr_iter(*byte, block)
            .take(lines_max)
            .for_each(&mut add);
    } else {
        finder.find_iter(block).take(lines_max).for_each(&mut add);
    }
    lines
}

/// Reads `\\n`, `\\r` and `\\t` as people write them.
pub(in crate::processors) fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            (c, _) => out.push(c),
        }
    }
    out
}

/// A name with `*` and `?` in it.
pub(super) struct Pattern(pub(super) String);

impl Pattern {
    pub(super) fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), name.chars().collect());
        // Greedy with one way back: linear in practice, never exponential.
        let (mut p, mut n, mut star) = (0, 0, None);
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
                _ => match star {
                    Some((star_p, star_n)) => {
                        (p, n) = (star_p + 1, star_n + 1);
                        star = Some((star_p, star_n + 1));
                    }
                    None => return false,
                },
            }
        }
        pattern[p..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_are_cut() {
        let finder = Finder::new(b"\n");
        for (keeps, ranges) in [
            (false, vec![(0, 1), (2, 0), (3, 2)]),
            (true, vec![(0, 2), (2, 1), (3, 3)]),
        ] {
            let lines = cut(b"a\n\nbc\nd", Some(&finder), keeps, usize::MAX);
            assert_eq!((lines.ranges, lines.consumed), (ranges, 6));
        }
        let lines = cut(b"a\n\nbc\nd", Some(&finder), true, 2);
        assert_eq!((lines.ranges.len(), lines.consumed), (2, 3));
        let finder = Finder::new(b"--");
        let lines = cut(b"a--b-c--", Some(&finder), false, usize::MAX);
        assert_eq!((lines.ranges, lines.consumed), (vec![(0, 1), (3, 3)], 8));
        assert_eq!(cut(b"a\nb", None, true, usize::MAX).ranges, [(0, 3)]);
    }

    #[test]
    fn names_of_rolled_files_match_as_in_a_shell() {
        for (pattern, name, matches) in [
            ("app.*", "app.log.1", true),
            ("app.*", "apps.log", false),
            ("*.log.?", "app.log.1", true),
            ("*.log.?", "app.log.10", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("", "x", false),
        ] {
            assert_eq!(
                Pattern(pattern.to_owned()).matches(name),
                matches,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn delimiters_are_read_as_people_write_them() {
        assert_eq!(unescape(r"\r\n"), "\r\n");
        assert_eq!(unescape(r"\\"), "\\");
        assert_eq!(unescape(";"), ";");
    }
}
