//! What every command says of itself.

use std::path::{Path, PathBuf};

use clap::builder::ValueParser;
use clap::{Arg, CommandFactory, Parser};

use super::{Cli, Command, Output};

#[test]
fn every_command_and_argument_says_what_it_is() {
    for_each(|names, command| {
        assert!(
            command.get_about().is_some(),
            "thalweg {names} says nothing of itself"
        );
        for argument in command.get_arguments() {
            let name = argument.get_id();
            assert!(
                argument.get_help().is_some(),
                "thalweg {names}: {name} says nothing of itself"
            );
        }
    });
}

#[test]
fn every_command_that_makes_something_shows_how() {
    let mut shown = 0;
    for_each(|names, command| {
        let verb = names.rsplit(' ').next().unwrap_or_default();
        if MAKING.contains(&verb) {
            let help = command.get_after_help().map(ToString::to_string);
            let has_example = help.is_some_and(|help| help.contains(&format!("thalweg {names} ")));
            assert!(has_example, "thalweg {names} has no example of itself");
            shown += 1;
        }
    });
    assert!(
        shown >= MAKING.len(),
        "only {shown} commands were looked at"
    );
}

#[test]
fn every_example_is_understood() {
    let mut understood = 0;
    for_each(|names, command| {
        let help = command.get_after_help().map(ToString::to_string);
        for words in help.iter().flat_map(|help| examples(help)) {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("an example of thalweg {names} is not understood: {words:?}\n{error}");
            }
            understood += 1;
        }
    });
    assert!(understood >= 40, "only {understood} examples were found");
}

#[test]
fn every_command_in_the_docs_is_understood() {
    let mut understood = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for words in calls_in_blocks(&text) {
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{}: {words:?}\n{error}", page.display());
            }
            understood += 1;
        }
    }
    assert!(understood >= 50, "only {understood} commands were found");
}

#[test]
fn every_command_and_option_that_the_docs_name_is_there() {
    let mut named = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for call in calls_in_prose(&text) {
            if let Err(word) = names(&call) {
                panic!("{}: {word} of {call:?} is not there", page.display());
            }
            named += 1;
        }
    }
    assert!(named >= 60, "only {named} commands were found");
}

#[test]
fn an_argument_for_all_commands_is_of_one_type_everywhere() {
    let root = Cli::command();
    let globals: Vec<&Arg> = root.get_arguments().filter(|a| a.is_global_set()).collect();
    for_each(|names, command| {
        for argument in command.get_arguments() {
            let Some(global) = globals
                .iter()
                .find(|global| global.get_id() == argument.get_id())
            else {
                continue;
            };
            let of = ValueParser::type_id;
            let is_same = of(argument.get_value_parser()) == of(global.get_value_parser());
            assert!(is_same, "thalweg {names}: {}", argument.get_id());
        }
    });
}

#[test]
fn the_commands_of_the_agent_take_an_output() {
    for (arguments, output) in [
        ("--output json agent status", Output::Json),
        ("agent status --output text", Output::Table),
        ("agent flow show --output json", Output::Json),
        ("agent provenance", Output::Table),
        ("agent processors TailFile --output json", Output::Json),
    ] {
        let words = ["thalweg"].into_iter().chain(arguments.split(' '));
        let cli = Cli::try_parse_from(words).unwrap();
        assert_eq!(cli.output, output, "{arguments}");
        let Command::Agent(args) = cli.command else {
            panic!("{arguments}");
        };
        let own = match args.command {
            Some(agent::cli::Command::Status { output, .. }) => output,
            Some(agent::cli::Command::Flow { output, .. }) => output,
            Some(agent::cli::Command::Provenance { output, .. }) => output,
            Some(agent::cli::Command::Processors { output, .. }) => output,
            other => panic!("{other:?}"),
        };
        assert_eq!(own, output, "{arguments}");
    }
}

/// The pages that people read.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut pages: Vec<_> = docs.map(|entry| entry.unwrap().path()).collect();
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    pages.retain(|page| page.extension().is_some_and(|ending| ending == "md"));
    pages
}

/// Calls with each command and its names after `thalweg`.
fn for_each(mut look: impl FnMut(&str, &clap::Command)) {
    let mut waiting = vec![(String::new(), Cli::command())];
    while let Some((names, command)) = waiting.pop() {
        look(&names, &command);
        for sub in command.get_subcommands() {
            let names = format!("{names} {}", sub.get_name());
            waiting.push((names.trim().to_owned(), sub.clone()));
        }
    }
}

/// The words of each call of `thalweg` in a help text, as a shell would part them.
fn examples(help: &str) -> Vec<Vec<String>> {
    let calls = help.match_indices("thalweg ").filter(|(at, _)| {
        // A call stands indented, alone or behind another one; else it is prose.
        let before = help[..*at].rsplit('\n').next().unwrap_or_default();
        let others = before.trim();
        before.starts_with("  ") && (others.is_empty() || others.ends_with(['|', '&']))
    });
    calls.map(|(at, _)| words(&help[at..])).collect()
}

/// The words of each call of `thalweg` that begins a line of a page's blocks of code.
fn calls_in_blocks(page: &str) -> Vec<Vec<String>> {
    let (mut calls, mut is_fenced, mut at) = (Vec::new(), false, 0);
    for line in page.split_inclusive('\n') {
        is_fenced ^= line.starts_with("```");
        let call = line.trim_start();
        let call = call.strip_prefix("target/release/").unwrap_or(call);
        if (is_fenced || line.starts_with("    ")) && call.starts_with("thalweg ") {
            calls.push(words(&page[at + line.len() - call.len()..]));
        }
        at += line.len();
    }
    calls
}

/// The words of each call of `thalweg` that a page names within its sentences, whole or in part.
fn calls_in_prose(page: &str) -> Vec<Vec<String>> {
    let outside = page.split("\n```").step_by(2);
    let spans = outside.flat_map(|text| text.split('`').skip(1).step_by(2));
    let calls = spans.filter(|span| span.starts_with("thalweg "));
    calls.map(|call| words(&call.replace('\n', " "))).collect()
}

/// Whether what a call names is there: commands, up to the first word that is none of them, and options.
fn names(call: &[String]) -> Result<(), &str> {
    let root = Cli::command();
    let mut command = &root;
    for word in &call[1..] {
        if let Some(option) = word.strip_prefix("--") {
            let mut known = command.get_arguments().chain(root.get_arguments());
            let is_known = |arg: &Arg| {
                let longs = arg.get_long_and_visible_aliases();
                longs.is_some_and(|longs| longs.contains(&option))
            };
            if option != "help" && !known.any(is_known) {
                return Err(word);
            }
        } else if command.has_subcommands() {
            command = command.find_subcommand(word).ok_or(word.as_str())?;
        }
        if command.get_name() == "lab" {
            // The rest is for another program.
            break;
        }
    }
    Ok(())
}

/// The words of one call: to the line's end, a pipe, a redirection, a comment or a second blank.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            (letter, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            ('\\', None) => word.extend(letters.next().filter(|letter| *letter != '\n')),
            ('\n' | '|' | '<' | '>' | '&' | ';', None) => break,
            ('#', None) if word.is_empty() => break,
            (' ', None) if letters.peek() == Some(&' ') && !word.is_empty() => break,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, None) => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Commands that make something out of more than a name.
const MAKING: [&str; 14] = [
    "add",
    "ask",
    "begin",
    "consume",
    "create",
    "explain",
    "grant",
    "import",
    "produce",
    "publish",
    "query",
    "register",
    "subscribe",
    "upload",
];
