//! Runs the recipes of `docs/cookbook.md` as they stand. `UPDATE_EXPECT=1` writes what came out
//! into the page.

use std::path::PathBuf;

use super::cases::rows;
use super::house::options;
use crate::sql;

#[test]
fn every_recipe_gives_the_rows_that_the_page_shows() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut written = String::new();
    let (mut statement, mut events) = (String::new(), String::new());
    let mut recipes = 0;
    for (index, part) in page.split("```").enumerate() {
        if index > 0 {
            written.push_str("```");
        }
        let (kind, body) = part.split_once('\n').unwrap_or((part, ""));
        match (index % 2 == 1, kind) {
            (true, "sql") => statement = body.to_owned(),
            (true, "events") => events = body.to_owned(),
            (true, "rows") => {
                let plan = sql::compile(statement.trim_end()).unwrap();
                written.push_str(&format!("rows\n{}", rows(plan, options(), &events)));
                recipes += 1;
                continue;
            }
            _ => {}
        }
        written.push_str(part);
    }
    assert!(recipes >= 8, "the page lost recipes: {recipes}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert_eq!(written, std::fs::read_to_string(&path).unwrap());
}
