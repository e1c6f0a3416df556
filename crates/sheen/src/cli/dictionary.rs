//! docs/operating/dictionary.md against the program.

use super::{Cli, instead_of};
use crate::mount::options::Choices;
use crate::params;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;

const ABSENT: &str = "—";

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Heading, and the cells of each row below it, without heads of tables.
fn rows(document: &str) -> Vec<(&str, Vec<&str>)> {
    let mut heading = "";
    let mut found = Vec::new();
    for line in document.lines() {
        heading = line.strip_prefix("## ").unwrap_or(heading);
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        if line.starts_with('|') && !line.starts_with("|---") && !["Lustre", "word"].contains(&cells[0]) {
            found.push((heading, cells));
        }
    }
    found
}

/// The command that the words begin with, as deep as they are subcommands, and the words behind it. `lfs` and `lctl` are ours.
fn resolve(words: &str) -> Option<(Command, Vec<&str>)> {
    let mut words = words.split_whitespace().peekable();
    let mut command = Cli::command();
    command.build();
    if words.peek() == Some(&"sheen") {
        words.next();
    }
    while let Some(below) = words.peek().and_then(|word| command.find_subcommand(word)).cloned() {
        command = below;
        words.next();
    }
    // `lctl --device TARGET abort_recovery`: options of the command above.
    let rest: Vec<&str> = words.collect();
    if command.has_subcommands() {
        let is_below = rest.iter().any(|word| command.find_subcommand(word).is_some());
        return is_below.then_some((command, rest));
    }
    Some((command, rest))
}

fn has_option(command: &Command, word: &str) -> bool {
    command.get_arguments().any(|argument| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        // Options of one letter, which may be put together; a number is a value.
        None => word.chars().skip(1).all(|letter| argument.get_short() == Some(letter)),
    })
}

fn check_command(words: &str) -> Result<(), String> {
    let (command, rest) = resolve(words).ok_or_else(|| format!("there is no '{words}'"))?;
    // `lfs df` reads its options itself.
    if command.get_name() == "df" {
        return Ok(());
    }
    let is_option = |word: &&&str| word.starts_with('-') && word.parse::<i64>().is_err();
    match rest.iter().filter(is_option).find(|word| !has_option(&command, word)) {
        Some(word) => Err(format!("'{words}' has no {word}")),
        None => Ok(()),
    }
}

fn is_ours(words: &str) -> bool {
    ["sheen ", "lfs ", "lctl "].iter().any(|start| words.starts_with(start))
}

/// What the row says is here.
fn check_here(heading: &str, words: &str) -> Result<(), String> {
    match heading {
        "Parameters" => params::check_name(words).map_err(|error| error.to_string()),
        "Mount options" => {
            Choices::parse(&[words.to_owned()], None).map(drop).map_err(|error| error.to_string())
        }
        _ if is_ours(words) => check_command(words),
        _ => Err(format!("'{words}' is no command of ours")),
    }
}

/// Whether what the row says is absent is here all the same.
fn is_here(heading: &str, words: &str) -> bool {
    match heading {
        "Parameters" => params::check_name(words).is_ok(),
        "Mount options" => Choices::parse(&[words.to_owned()], None).is_ok(),
        _ => is_ours(words) && check_command(words).is_ok(),
    }
}

#[test]
fn the_dictionary_is_that_of_this_program() {
    let document = include_str!("../../../../docs/operating/dictionary.md");
    let rows = rows(document);
    let mut checked_count = 0;
    let mut wrong = Vec::new();
    for (heading, cells) in rows.iter().filter(|(heading, _)| !heading.starts_with("Words")) {
        let [lustre, here, ..] = cells[..] else {
            wrong.push(format!("{heading}: {cells:?} has too few cells"));
            continue;
        };
        if here == ABSENT {
            let found = quoted(lustre).into_iter().filter(|words| is_here(heading, words));
            wrong.extend(found.map(|words| format!("{heading}: '{words}' is here")));
            checked_count += quoted(lustre).len();
        } else {
            wrong.extend(quoted(here).into_iter().filter_map(|words| check_here(heading, words).err()));
            checked_count += quoted(here).len();
        }
    }
    assert!(wrong.is_empty(), "docs/operating/dictionary.md says what is not so:\n{}", wrong.join("\n"));
    assert!(checked_count > 120, "{checked_count} words were found");
}

/// Whoever types a command of the dictionary that is not here is told what there is.
#[test]
fn what_is_not_here_answers() {
    let document = include_str!("../../../../docs/operating/dictionary.md");
    let (mut checked_count, mut silent) = (0, Vec::new());
    for (_, cells) in rows(document) {
        for words in quoted(cells[0])
            .into_iter()
            .filter(|words| words.starts_with("lfs ") || words.starts_with("lctl "))
        {
            let arguments: Vec<OsString> =
                ["sheen"].into_iter().chain(words.split_whitespace()).map(OsString::from).collect();
            let Some(error) = Cli::try_parse_from(&arguments).err() else { continue };
            if error.kind() == ErrorKind::InvalidSubcommand {
                checked_count += 1;
                silent.extend(instead_of(&error, &arguments).is_none().then_some(words));
            }
        }
    }
    assert!(silent.is_empty(), "these say nothing of what there is instead: {}", silent.join(", "));
    assert!(checked_count > 30, "{checked_count} commands were found");
}

/// So is who brings a line of /etc/fstab along.
#[test]
fn mount_options_that_are_not_here_answer() {
    let document = include_str!("../../../../docs/operating/dictionary.md");
    let said = |word: &str| Choices::parse(&[word.to_owned()], None).err().map(|error| error.to_string());
    let mut checked_count = 0;
    for (_, cells) in rows(document).into_iter().filter(|(heading, _)| *heading == "Mount options") {
        for word in quoted(cells[0]).into_iter().filter(|_| cells[1] == ABSENT) {
            checked_count += 1;
            let said = said(word).unwrap_or_default();
            let wanted = format!("the mount option '{word}' of Lustre is not here: ");
            assert!(said.starts_with(&wanted), "{word}: {said}");
        }
    }
    assert!(checked_count > 20, "{checked_count} options were found");
    assert!(said("nolock").is_some_and(|line| !line.contains("noflock")), "that is something else");
    assert!(said("exclude=OST0000").is_some_and(|line| line.contains("osc.*OSTnnnn*.active=0")));
}

/// The canary: the test sees what is wrong.
#[test]
fn words_that_are_not_here_are_seen() {
    for words in ["lfs find", "sheen explode", "lctl", "lfs setstripe -y", "sheen mkfs --reformat DIR"] {
        assert!(check_command(words).is_err(), "{words}");
    }
    for words in [
        "lfs setstripe -E -1 -c 4 PATH",
        "lctl --device T abort_recovery",
        "sheen up",
        "lctl get_param -n -N X",
    ] {
        assert_eq!(check_command(words), Ok(()), "{words}");
    }
    assert!(is_here("Parameters", "osc.*.active") && !is_here("Parameters", "timeout"));
}
