//! `docs/processors.md` says what the table says; `UPDATE_EXPECT=1` rewrites it.

use std::fmt::Write;

use super::{Dynamic, Expressions, Input, PROCESSORS, ProcessorKind, PropertyKind, Shape};

#[test]
fn the_page_of_processors_says_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/processors.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        let told = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            told == page,
            "docs/processors.md is not what the table says; run with UPDATE_EXPECT=1"
        );
    }
}

#[test]
fn every_sentence_for_people_ends_with_a_full_stop() {
    for kind in PROCESSORS {
        let properties = kind.properties.iter().map(|p| (p.name, p.description));
        let relationships = kind.relationships.iter().map(|r| (r.name, r.description));
        let writes = kind.writes.iter().map(|a| (a.name, a.description));
        let own = [("description", kind.description)];
        for (name, text) in own
            .into_iter()
            .chain(properties)
            .chain(relationships)
            .chain(writes)
        {
            assert!(text.ends_with('.'), "{} / {name}: {text}", kind.name);
        }
    }
}

fn page() -> String {
    let mut kinds: Vec<&ProcessorKind> = PROCESSORS.to_vec();
    kinds.sort_by_key(|kind| kind.name);
    let mut out = String::from(HEAD);
    for kind in &kinds {
        let anchor = kind.name.to_ascii_lowercase();
        let _ = writeln!(out, "- [{}](#{anchor})", kind.name);
    }
    for kind in kinds {
        describe(&mut out, kind);
    }
    out
}

fn describe(out: &mut String, kind: &ProcessorKind) {
    let input = match kind.input {
        Input::Required => "It takes FlowFiles in.",
        Input::Allowed => "It may take FlowFiles in.",
        Input::Forbidden => "It is a source: it takes no FlowFiles in.",
    };
    let _ = write!(out, "\n## {}\n\n{} {input}\n", kind.name, kind.description);
    if !kind.properties.is_empty() {
        out.push_str("\n| property | default | values | meaning |\n| --- | --- | --- | --- |\n");
    }
    for property in kind.properties {
        let name = match (property.required, property.also) {
            (true, _) => format!("**{}**", property.name),
            (false, Some(also)) => format!("{} (or {also})", property.name),
            (false, None) => property.name.to_owned(),
        };
        let default = property.default.map_or(String::new(), code);
        let meaning = cell(property.description);
        let _ = writeln!(
            out,
            "| {name} | {default} | {} | {meaning} |",
            values(property)
        );
    }
    match kind.dynamic {
        Dynamic::None => {}
        Dynamic::Attributes => out.push_str("\nFurther properties are attributes.\n"),
        Dynamic::Relationships => out.push_str("\nFurther properties are relationships.\n"),
        Dynamic::Named { prefix, meaning } => {
            let _ = match prefix {
                "" => writeln!(out, "\nA further property is {meaning}."),
                prefix => writeln!(out, "\n`{prefix}…` is {meaning}."),
            };
        }
        Dynamic::RelationshipsIf {
            property, single, ..
        } => {
            let _ = writeln!(
                out,
                "\nFurther properties are relationships, or conditions for `{single}`, as \
                 {property} says."
            );
        }
    }
    out.push_str("\n| relationship | what goes there |\n| --- | --- |\n");
    for relationship in kind.relationships {
        let _ = writeln!(
            out,
            "| {} | {} |",
            relationship.name,
            cell(relationship.description)
        );
    }
    if !kind.writes.is_empty() {
        out.push_str("\n| attribute written | what it says |\n| --- | --- |\n");
    }
    for attribute in kind.writes {
        let (name, says) = (code(attribute.name), cell(attribute.description));
        let _ = writeln!(out, "| {name} | {says} |");
    }
}

/// What a property's values look like, and whether expressions are evaluated in them.
fn values(property: &PropertyKind) -> String {
    let shape = match property.shape {
        Shape::Text if !property.allowed.is_empty() => {
            let allowed: Vec<String> = property.allowed.iter().map(|v| code(v)).collect();
            allowed.join(", ")
        }
        Shape::Text => "text".to_owned(),
        Shape::Integer(least) => format!("number from {least}"),
        Shape::Flag => "`true`, `false`".to_owned(),
        Shape::Duration => "duration".to_owned(),
        Shape::Size => "size".to_owned(),
        Shape::Speed => "speed".to_owned(),
        Shape::Service(role) => format!("a controller service: {role}"),
    };
    let expressions = match property.expressions {
        Expressions::None => "",
        Expressions::Once => "; expressions, once",
        Expressions::FlowFile => "; expressions, for each FlowFile",
    };
    format!("{shape}{expressions}")
}

fn code(text: &str) -> String {
    format!("`{}`", cell(text))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

const HEAD: &str = "# Processors of the agent

What `thalweg-agent` can run, by name. Names and defaults are MiNiFi C++'s; where Thalweg differs,
the text says so. Required properties are bold. A duration is a whole number and a unit (`5 sec`,
`10 min`), a size likewise (`64 KB`, of 1,024 bytes each; `64 K` of 1,000), a speed is a size a second (`64 KB/s`). The
same is told by `thalweg-agent processors`, and to a control plane by the agent's manifest.
What differs from MiNiFi C++ on purpose is [listed](agent.md#what-differs-from-minifi-c).

";
