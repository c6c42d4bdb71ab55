//! Aligned columns for people.

/// Writes `rows` under `head`, each column as wide as its widest cell, two spaces apart.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    line(&mut text, &widths, head.iter().copied());
    for row in rows {
        line(&mut text, &widths, row.iter().map(String::as_str));
    }
    text
}

/// So many of something, which takes an s where it is not one.
pub fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

fn line<'c>(text: &mut String, widths: &[usize], cells: impl Iterator<Item = &'c str>) {
    let mut written = String::new();
    for (width, cell) in widths.iter().zip(cells) {
        written.push_str(cell);
        let padding = width.saturating_sub(cell.chars().count()) + 2;
        written.extend(std::iter::repeat_n(' ', padding));
    }
    text.push_str(written.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_end_without_spaces() {
        let rows = vec![
            vec!["a".into(), "12".into()],
            vec!["longer".into(), "3".into()],
        ];
        assert_eq!(
            table(&["NAME", "N"], &rows),
            "NAME    N\na       12\nlonger  3\n"
        );
    }
}
