//! What who knows Lustre is told of commands and options that are not here.

use super::Cli;
use crate::params::absent::{NO_NODEMAP, NO_QUOTA};
use crate::spelling;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;

const NO_CHANGELOG: &str = "there are no changelogs";
const NO_DEVICES: &str = "see `sheen status`";
const ONE_NETWORK: &str = "there is one network, tcp; see `lctl list_nids`";
const NO_DEBUG_BUFFER: &str = "each process has a log; `lctl set_param debug=LEVEL` says how much is in it";
const NO_CONFIG_LOGS: &str = "there are no configuration logs; see `lctl get_param mgs.MGS.live.*`";
const BY_ITSELF: &str =
    "sessions come back by themselves; `lctl set_param osc.*.active=0` switches a target off";
const NO_SNAPSHOTS: &str = "snapshots are a matter of the local file system";
const NO_SETUP: &str = "a target is served by a process: `sheen serve DIR`";
const NO_READONLY: &str = "targets are not made read-only; mount with `ro`";
const STAT: &str = "use stat(1): a size that it says is never an estimate";
const REMOVE: &str = "use rm(1); a name without an inode is removed by `sheen fsck --repair DIR`";
const NO_DATA_MOVE: &str = "data do not move between OSTs yet: copy the file, and rename the copy over it (`lfs migrate -m INDEX` \
                            moves to another MDT)";

/// Commands of Lustre's tools that are not here under their names, as docs/operating/dictionary.md has them. One that ends with `*` is of
/// all that begin so.
#[rustfmt::skip]
pub(super) const INSTEAD: &[(&str, &str)] = &[

    ("abort_recovery_mdt", "use `lctl abort_recovery TARGET`"),
    ("activate", BY_ITSELF),
    ("apply_yaml", "use `lctl set_param` with several settings"),
    ("attach", NO_SETUP),
    ("barrier_*", NO_SNAPSHOTS),
    ("changelog*", NO_CHANGELOG),
    ("check", "see `sheen health MOUNT`"),
    ("cleanup", NO_SETUP),
    ("clear", NO_DEBUG_BUFFER),
    ("clear_conf", NO_CONFIG_LOGS),
    ("conf_param", "use `lctl set_param -P`"),
    ("conn_list", ONE_NETWORK),
    ("data_version", "files have no version of their data"),
    ("deactivate", BY_ITSELF),
    ("debug_*", NO_DEBUG_BUFFER),
    ("del_ost", "a target cannot be taken out of the configuration yet; `lctl set_param obdfilter.*OSTnnnn*.no_create=1` drains it"),
    ("detach", NO_SETUP),
    ("device", NO_DEVICES),
    ("device_list", NO_DEVICES),
    ("devices", NO_DEVICES),
    ("dk", NO_DEBUG_BUFFER),
    ("dl", NO_DEVICES),
    ("erase_lcfg", NO_CONFIG_LOGS),
    ("evict_client", "use `lctl set_param mdt.*.evict_client=UUID` or `obdfilter.*.evict_client=UUID`, on the server"),
    ("filter", NO_DEBUG_BUFFER),
    ("find", "use find(1), which is served by listings with attributes"),
    ("find_param", "use `lctl list_param -R '*'`"),
    ("flushctx", "there is no transport security yet"),
    ("getname", "see `sheen mounts`"),
    ("getsom", STAT),
    ("heat_*", "accesses of files are not counted"),
    ("help", "write --help, behind a command too"),
    ("help_param", "see docs/parameters.md; `lctl list_param -R '*'` lists what is here"),
    ("hsm*", "there is no HSM"),
    ("lcfg_*", NO_CONFIG_LOGS),
    ("lfsck_*", "use `sheen fsck DIR`, while nobody serves it; nothing needs it after a crash"),
    ("list_commands", "write --help, behind a command too"),
    ("llog_*", NO_CONFIG_LOGS),
    ("lqa*", NO_QUOTA),
    ("mark", NO_DEBUG_BUFFER),
    ("mirror*", "there are no mirrors"),
    ("mv", "use `lfs migrate -m INDEX`"),
    ("net", ONE_NETWORK),
    ("net_*", "`sheen sim` loses and delays messages"),
    ("network", ONE_NETWORK),
    ("nodemap_*", NO_NODEMAP),
    ("notransno", NO_READONLY),
    ("pcc*", "there are no caches of a client on disk"),
    ("peer_list", ONE_NETWORK),
    ("ping", "see `sheen status`, or `sheen health MOUNT`, which asks each target"),
    ("poollist", "use `lfs pool_list`"),
    ("project", NO_QUOTA),
    ("quota*", NO_QUOTA),
    ("readonly", NO_READONLY),
    ("recover", BY_ITSELF),
    ("replace_nids", "a server registers the addresses that it listens on: `sheen serve --listen ADDRESS --insecure-network`"),
    ("rm_entry", REMOVE),
    ("rmdir", "use rmdir(1)"),
    ("rmentry", REMOVE),
    ("rmfid", "use rm(1) with the names that `lfs fid2path` prints"),
    ("route_list", ONE_NETWORK),
    ("setquota", NO_QUOTA),
    ("setup", NO_SETUP),
    ("show", NO_DEBUG_BUFFER),
    ("snapshot_*", NO_SNAPSHOTS),
    ("somsync", STAT),
    ("swap_layouts", "copy the file, and rename the copy over it"),
    ("test_*", "use `sheen bench`"),
    ("unlink_foreign", "there are no foreign layouts"),
    ("which_nid", ONE_NETWORK),
];

/// What there is instead of a command that somebody looks for who knows Lustre. `arguments`: as `sheen` was called.
pub fn instead_of(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() == ErrorKind::UnknownArgument && of_data_move(arguments) {
        return Some(format!("no such option here: {NO_DATA_MOVE}"));
    }
    let ContextValue::String(word) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    // Only where somebody calls Lustre's tools.
    command_of(arguments).filter(|(names, _)| is_of_lustre(names))?;
    let is_meant = |name: &str| match name.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => name == word,
    };
    let (_, instead) = INSTEAD.iter().find(|(name, _)| is_meant(name))?;
    Some(format!("'{word}' of Lustre is not here: {instead}"))
}

/// A command of Lustre's tools that is nowhere, for who wrote it, with what differs in a letter or two. What the parser proposes may be far from
/// that, and remove something: `pool_destroy` for `del_ost`.
pub fn command_near(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let ContextValue::String(word) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    let (names, command) = command_of(arguments).filter(|(names, _)| is_of_lustre(names))?;
    let tool = names.join(" ");
    let known = command.get_subcommands().flat_map(Command::get_name_and_visible_aliases);
    Some(match spelling::nearest(word, known) {
        Some(near) => format!("no '{word}' in {tool}; did you mean '{near}'? see `{tool} --help`"),
        None => format!("no '{word}' in {tool}; see `{tool} --help`"),
    })
}

/// `lfs migrate` without an MDT: of Lustre's, with options of layouts.
fn of_data_move(arguments: &[OsString]) -> bool {
    // `-m`, also behind other letters.
    let is_to_mdt = |word: &OsString| {
        let letters = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.contains('m');
        word.to_str().is_some_and(|word| letters(word) || word.starts_with("--mdt"))
    };
    command_of(arguments).is_some_and(|(names, _)| names == ["lfs", "migrate"])
        && !arguments.iter().any(is_to_mdt)
}

/// Why `lfs migrate` moves nothing that says no MDT.
pub fn no_data_move() -> anyhow::Error {
    anyhow::anyhow!(NO_DATA_MOVE)
}

/// The options that a command has, for who wrote another one; `None` where the error is another. Of Lustre's tools only: what the parser
/// proposes is mostly not what is meant there.
pub fn options_of(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else { return None };
    let (names, command) = command_of(arguments).filter(|(names, _)| is_of_lustre(names))?;
    if !word.starts_with('-') {
        return None;
    }
    let is_long = word.starts_with("--");
    let own = command.get_arguments().filter(|argument| !argument.is_positional() && !argument.is_hide_set());
    let asked_for_help = |argument: &&Arg| ["help", "version"].contains(&argument.get_id().as_str());
    let spelled = |argument: &Arg| {
        let short = argument.get_short().map(|letter| format!("-{letter}"));
        let long = argument.get_long().map(|long| format!("--{long}"));
        if is_long { long.or(short) } else { short.or(long) }
    };
    let there: Vec<String> = own.filter(|argument| !asked_for_help(argument)).filter_map(spelled).collect();
    let name = names.join(" ");
    Some(match there.is_empty() {
        true => format!("no {word} here; {name} has no options"),
        false => format!("no {word} here; {name} has {}", there.join(" ")),
    })
}

fn is_of_lustre(names: &[String]) -> bool {
    names.first().is_some_and(|name| ["lfs", "lctl", "mkfs"].contains(&name.as_str()))
}

/// The command that was called, with its names from `sheen` on.
fn command_of(arguments: &[OsString]) -> Option<(Vec<String>, Command)> {
    let mut command = Cli::command();
    command.build();
    let mut names = Vec::new();
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()) {
        if word == "--" {
            break;
        }
        if let Some(below) = command.find_subcommand(word).cloned() {
            names.push(below.get_name().to_owned());
            command = below;
        }
    }
    (!names.is_empty()).then_some((names, command))
}
