//! What a path selects of a document, and changing it there.

use std::cmp::Ordering;

use super::Json;
use super::path::{Comparison, Condition, Operand, Path, Selector, Step};

/// A place in a document: the way from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    Field(String),
    Item(usize),
}

impl Path {
    /// The values that it names, in the order of the document; a length is none of them, see
    /// [`Path::values`].
    pub(crate) fn select<'d>(&self, root: &'d Json) -> Vec<&'d Json> {
        self.select_from(root, root)
    }

    /// The values, and lengths where it ends in `.length()`.
    pub(crate) fn values(&self, root: &Json) -> Vec<Json> {
        self.values_from(root, root)
    }

    /// Changes every place that it names.
    pub(crate) fn update(&self, root: &mut Json, mut change: impl FnMut(&mut Json)) {
        for way in self.ways(root) {
            if let Some(place) = place(root, &way) {
                change(place);
            }
        }
    }

    /// Takes every place that it names out of its list or object.
    pub(crate) fn remove(&self, root: &mut Json) {
        // From the back, so that the places before stay where they are.
        for way in self.ways(root).iter().rev() {
            let Some((last, before)) = way.split_last() else {
                *root = Json::Null;
                continue;
            };
            match (place(root, before), last) {
                (Some(Json::Object(fields)), Turn::Field(gone)) => {
                    fields.retain(|name| name != gone);
                }
                (Some(Json::List(items)), Turn::Item(at)) if *at < items.len() => {
                    items.remove(*at);
                }
                _ => {}
            }
        }
    }

    fn select_from<'d>(&self, from: &'d Json, root: &'d Json) -> Vec<&'d Json> {
        let mut found = vec![from];
        for step in &self.steps {
            let mut next = Vec::new();
            for value in found {
                match step {
                    Step::Children(selectors) => children(selectors, value, root, &mut next),
                    Step::Descendants(selectors) => {
                        descendants(value, &mut |below| {
                            children(selectors, below, root, &mut next);
                        });
                    }
                    Step::Length => {}
                }
            }
            found = next;
        }
        found
    }

    fn values_from(&self, from: &Json, root: &Json) -> Vec<Json> {
        let Some((Step::Length, before)) = self.steps.split_last() else {
            return self.select_from(from, root).into_iter().cloned().collect();
        };
        let before = Path {
            steps: before.to_vec(),
        };
        let measured = before.select_from(from, root).into_iter().map(|value| {
            let len = match value {
                Json::List(items) => items.len(),
                Json::Object(fields) => fields.len(),
                Json::Text(text) => text.chars().count(),
                _ => return Json::Null,
            };
            Json::Whole(i64::try_from(len).unwrap_or(i64::MAX))
        });
        measured.collect()
    }

    fn ways(&self, root: &Json) -> Vec<Vec<Turn>> {
        // Places are found by address: each value of a document stands in one place only.
        let selected = self.select(root);
        let mut ways = Vec::new();
        walk(root, &mut Vec::new(), &mut |value, way| {
            if selected.iter().any(|found| std::ptr::eq(*found, value)) {
                ways.push(way.to_vec());
            }
        });
        ways
    }
}

fn walk(value: &Json, way: &mut Vec<Turn>, visit: &mut impl FnMut(&Json, &[Turn])) {
    visit(value, way);
    match value {
        Json::List(items) => {
            for (at, item) in items.iter().enumerate() {
                way.push(Turn::Item(at));
                walk(item, way, visit);
                way.pop();
            }
        }
        Json::Object(fields) => {
            for (name, field) in fields.iter() {
                way.push(Turn::Field(name.to_owned()));
                walk(field, way, visit);
                way.pop();
            }
        }
        _ => {}
    }
}

fn place<'d>(root: &'d mut Json, way: &[Turn]) -> Option<&'d mut Json> {
    let mut value = root;
    for turn in way {
        value = match (value, turn) {
            (Json::List(items), Turn::Item(at)) => items.get_mut(*at)?,
            (Json::Object(fields), Turn::Field(name)) => fields.get_mut(name)?,
            _ => return None,
        };
    }
    Some(value)
}

/// Visits `value` and all below it.
fn descendants<'d>(value: &'d Json, visit: &mut impl FnMut(&'d Json)) {
    visit(value);
    match value {
        Json::List(items) => items.iter().for_each(|item| descendants(item, visit)),
        Json::Object(fields) => fields
            .iter()
            .for_each(|(_, field)| descendants(field, visit)),
        _ => {}
    }
}

fn children<'d>(selectors: &[Selector], value: &'d Json, root: &'d Json, out: &mut Vec<&'d Json>) {
    for selector in selectors {
        match (selector, value) {
            (Selector::Name(name), Json::Object(fields)) => out.extend(fields.get(name)),
            (Selector::Index(index), Json::List(items)) => {
                out.extend(bound(*index, items.len()).and_then(|at| items.get(at)));
            }
            (Selector::All, _) => out.extend(below(value)),
            (Selector::Slice(start, end, step), Json::List(items)) => {
                slice(items, *start, *end, *step, out);
            }
            (Selector::Filter(condition), _) => {
                out.extend(below(value).filter(|child| condition.holds(child, root)));
            }
            _ => {}
        }
    }
}

fn below<'d>(value: &'d Json) -> Box<dyn Iterator<Item = &'d Json> + 'd> {
    match value {
        Json::List(items) => Box::new(items.iter()),
        Json::Object(fields) => Box::new(fields.iter().map(|(_, field)| field)),
        _ => Box::new(std::iter::empty()),
    }
}

/// The place of an index that may count from the end.
fn bound(index: i64, len: usize) -> Option<usize> {
    let index = if index < 0 {
        index.checked_add(i64::try_from(len).ok()?)?
    } else {
        index
    };
    usize::try_from(index).ok()
}

fn slice<'d>(
    items: &'d [Json],
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
    out: &mut Vec<&'d Json>,
) {
    let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let at = |index: i64| {
        if index < 0 {
            index.saturating_add(len)
        } else {
            index
        }
    };
    let (mut index, end) = if step > 0 {
        (
            at(start.unwrap_or(0)).clamp(0, len),
            at(end.unwrap_or(len)).clamp(0, len),
        )
    } else {
        (
            at(start.unwrap_or(len - 1)).clamp(-1, len - 1),
            end.map_or(-1, at).clamp(-1, len - 1),
        )
    };
    while (step > 0 && index < end) || (step < 0 && index > end) {
        out.extend(usize::try_from(index).ok().and_then(|at| items.get(at)));
        index = index.saturating_add(step);
    }
}

impl Condition {
    fn holds(&self, here: &Json, root: &Json) -> bool {
        match self {
            Condition::Any(conditions) => conditions.iter().any(|one| one.holds(here, root)),
            Condition::All(conditions) => conditions.iter().all(|one| one.holds(here, root)),
            Condition::Not(condition) => !condition.holds(here, root),
            Condition::Exists(Operand::Literal(value)) => *value == Json::Flag(true),
            Condition::Exists(operand) => !operand.values(here, root).is_empty(),
            Condition::Compare(left, comparison, right) => {
                let left = left.values(here, root);
                let right = right.values(here, root);
                comparison.holds(left.first(), right.first())
            }
            Condition::Matches(operand, pattern) => operand
                .values(here, root)
                .iter()
                .any(|value| pattern.is_match(&value.to_plain())),
            Condition::In(operand, list) => {
                let list = list.values(here, root);
                let Some(Json::List(items)) = list.first() else {
                    return false;
                };
                let values = operand.values(here, root);
                values.iter().any(|value| {
                    items
                        .iter()
                        .any(|item| order(value, item) == Some(Ordering::Equal))
                })
            }
        }
    }
}

impl Operand {
    fn values(&self, here: &Json, root: &Json) -> Vec<Json> {
        match self {
            Operand::Literal(value) => vec![value.clone()],
            Operand::Here(path) => path.values_from(here, root),
            Operand::Root(path) => path.values_from(root, root),
        }
    }
}

impl Comparison {
    /// Compares; what is missing equals only what is missing too.
    fn holds(self, left: Option<&Json>, right: Option<&Json>) -> bool {
        let (Some(left), Some(right)) = (left, right) else {
            let is_equal = left.is_none() && right.is_none();
            return match self {
                Comparison::Equal => is_equal,
                Comparison::Unequal => !is_equal,
                _ => false,
            };
        };
        let order = order(left, right);
        match self {
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::Unequal => order != Some(Ordering::Equal),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => {
                matches!(order, Some(Ordering::Greater | Ordering::Equal))
            }
        }
    }
}

/// How two values of one kind stand; none when they are of different kinds or not ordered.
pub(crate) fn order(left: &Json, right: &Json) -> Option<Ordering> {
    match (left, right) {
        (Json::Whole(a), Json::Whole(b)) => Some(a.cmp(b)),
        (Json::Large(a), Json::Large(b)) => Some(a.cmp(b)),
        (Json::Text(a), Json::Text(b)) => Some(a.cmp(b)),
        (Json::Flag(a), Json::Flag(b)) => Some(a.cmp(b)),
        _ => match (left.fraction(), right.fraction()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => (left == right).then_some(Ordering::Equal),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = r#"{"store":{"book":[
        {"category":"reference","author":"Rees","title":"Sayings","price":8.95},
        {"category":"fiction","author":"Waugh","title":"Sword","price":12.99},
        {"category":"fiction","author":"Melville","title":"Moby","isbn":"0-553","price":8.99},
        {"category":"fiction","author":"Tolkien","title":"Rings","isbn":"0-395","price":22.99}],
        "bicycle":{"color":"red","price":19.95}},"max":10,"a-b":{"c d":1}}"#;

    fn selected(path: &str) -> String {
        let store = Json::parse(STORE).unwrap();
        let path = Path::parse(path).unwrap_or_else(|error| panic!("{error}"));
        Json::List(path.values(&store)).to_text()
    }

    #[test]
    fn paths_select_in_the_order_of_the_document() {
        for (path, expected) in [
            ("$.max", "[10]"),
            ("$['max']", "[10]"),
            ("$.a-b['c d']", "[1]"),
            ("$.nothing", "[]"),
            (
                "$.store.book[*].author",
                r#"["Rees","Waugh","Melville","Tolkien"]"#,
            ),
            ("$..author", r#"["Rees","Waugh","Melville","Tolkien"]"#),
            ("$.store..price", "[8.95,12.99,8.99,22.99,19.95]"),
            ("$..book[2].title", r#"["Moby"]"#),
            ("$..book[-1].title", r#"["Rings"]"#),
            ("$..book[0,1].title", r#"["Sayings","Sword"]"#),
            ("$..book[:2].title", r#"["Sayings","Sword"]"#),
            ("$..book[-2:].title", r#"["Moby","Rings"]"#),
            ("$..book[::-2].title", r#"["Rings","Sword"]"#),
            ("$..book[?(@.isbn)].title", r#"["Moby","Rings"]"#),
            ("$..book[?(!@.isbn)].title", r#"["Sayings","Sword"]"#),
            (
                "$.store.book[?(@.price < $.max)].title",
                r#"["Sayings","Moby"]"#,
            ),
            (
                "$.store.book[?@.price<10 && @.category=='fiction'].title",
                r#"["Moby"]"#,
            ),
            ("$..book[?(@.author =~ /t.*/i)].title", r#"["Rings"]"#),
            (
                "$..book[?(@.author in ['Rees', \"Waugh\"])].price",
                "[8.95,12.99]",
            ),
            (
                "$..book[?(@.price > 20 || @.author == 'Rees')].price",
                "[8.95,22.99]",
            ),
            ("$.store.book.length()", "[4]"),
            ("$.store.bicycle['color','price']", r#"["red",19.95]"#),
            ("$.store.book[9]", "[]"),
            (
                "$.store.book[?(@.title.length() == 4)].title",
                r#"["Moby"]"#,
            ),
        ] {
            assert_eq!(selected(path), expected, "{path}");
        }
        assert_eq!(
            Path::parse("$").unwrap().select(&Json::Whole(1)),
            [&Json::Whole(1)]
        );
    }

    #[test]
    fn bad_paths_say_where() {
        for (path, part) in [
            ("store", "must begin"),
            ("$.", "a name is missing"),
            ("$.bad-json-path..", "a name is missing"),
            ("$[", "a name or a number"),
            ("$[1", "']' is missing"),
            ("$['a", "closing quote"),
            ("$[?(@.a ==)]", "a value is missing"),
            ("$[?(@.a =~ b)]", "between slashes"),
            ("$[?(@.a", "')' is missing"),
            ("$.a b", "not expected"),
            ("$[99999999999999999999]", "too large"),
        ] {
            let error = Path::parse(path).unwrap_err();
            assert!(error.contains(part), "{path}: {error}");
        }
        let deep = format!("$[?{}", "(".repeat(100_000));
        assert!(Path::parse(&deep).unwrap_err().contains("too deeply"));
        let deep = format!("$[?{}", "!".repeat(100_000));
        assert!(Path::parse(&deep).unwrap_err().contains("too deeply"));
    }

    #[test]
    fn places_are_changed_and_removed() {
        let mut document = Json::parse(r#"{"a":[{"b":1},{"b":2}],"c":3}"#).unwrap();
        let path = Path::parse("$.a[*].b").unwrap();
        path.update(&mut document, |place| *place = Json::Text("x".to_owned()));
        assert_eq!(document.to_text(), r#"{"a":[{"b":"x"},{"b":"x"}],"c":3}"#);
        Path::parse("$.a[*]").unwrap().remove(&mut document);
        assert_eq!(document.to_text(), r#"{"a":[],"c":3}"#);
        Path::parse("$.c").unwrap().remove(&mut document);
        assert_eq!(document.to_text(), r#"{"a":[]}"#);
    }

    #[test]
    fn parsing_any_text_never_panics() {
        let mut random = base::Rng::from_seed(11);
        let pieces = [
            "$", ".", "..", "[", "]", "?", "(", ")", "@", "a", "'", "\\", "é", "==", "=~", "/",
            "&&", "!", "1", "-", ":", ",", "*", " ", "in", "length()", "<",
        ];
        for _ in 0..50_000 {
            let text: String = (0..random.below(14))
                .map(|_| pieces[random.below(pieces.len() as u64) as usize])
                .collect();
            let _ = Path::parse(&format!("${text}"));
        }
    }
}
