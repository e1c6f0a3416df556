//! Pools of OSTs: `lctl pool_new F.POOL` and its like.

use crate::control::{self, Ask, PoolAction, PoolStatus, Process};
use crate::lctl::wait_for_config;
use crate::node::Node;
use anyhow::{Context, Result, anyhow, bail};
use base::{ClusterConfig, Pool, PoolName, TargetId, TargetKind};
use clap::Args;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::str::FromStr;
use wire::{MgsRequest, PoolChange};

/// What `lfs setstripe -p` takes for no pool.
pub const NO_POOL: &str = "none";

/// `F.POOL`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    fsname: String,
    pool: PoolName,
}

impl FromStr for Place {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Place> {
        let (fsname, pool) =
            text.split_once('.').with_context(|| format!("'{text}' is no pool; write FSNAME.POOL"))?;
        let pool = pool.parse().map_err(|error| anyhow!("'{text}' names no pool: {error}"))?;
        Ok(Place { fsname: fsname.to_owned(), pool })
    }
}

#[derive(Debug, Args)]
pub struct Members {
    /// FSNAME.POOL
    #[arg(value_name = "FSNAME.POOL")]
    place: Place,
    /// OSTs: `scratch-OST0003`, `OST0003`, `OST[0-3,7]`, `3`
    #[arg(required = true, value_name = "OST")]
    osts: Vec<String>,
}

/// # Errors
/// One line; nothing has changed then.
pub fn create(place: &Place) -> Result<()> {
    if place.pool.as_str() == NO_POOL {
        bail!("no pool can be named '{NO_POOL}': `lfs setstripe -p {NO_POOL}` asks for none");
    }
    act(place, PoolAction::New)?;
    println!("Pool {}.{} created", place.fsname, place.pool);
    Ok(())
}

/// # Errors
/// As `create`.
pub fn destroy(place: &Place) -> Result<()> {
    act(place, PoolAction::Destroy)?;
    println!("Pool {}.{} destroyed", place.fsname, place.pool);
    Ok(())
}

/// # Errors
/// As `create`.
pub fn add(members: &Members) -> Result<()> {
    let osts = parse_osts(&members.place.fsname, &members.osts)?;
    act(&members.place, PoolAction::Add(osts.clone()))?;
    say_each(&members.place, &osts, "added to")
}

/// # Errors
/// As `create`.
pub fn remove(members: &Members) -> Result<()> {
    let osts = parse_osts(&members.place.fsname, &members.osts)?;
    act(&members.place, PoolAction::Remove(osts.clone()))?;
    say_each(&members.place, &osts, "removed from")
}

fn say_each(place: &Place, osts: &[u16], what: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    for ost in osts {
        writeln!(
            out,
            "{}-{}_UUID {what} pool {}.{}",
            place.fsname,
            TargetId::ost(*ost),
            place.fsname,
            place.pool
        )?;
    }
    Ok(())
}

/// `F` or `F.POOL`.
///
/// # Errors
/// Nothing of the file system runs here, or there is no such pool.
pub fn list(text: &str) -> Result<()> {
    let (fsname, name) = text.split_once('.').map_or((text, None), |(fsname, name)| (fsname, Some(name)));
    let pid = process_of(&control::processes(), fsname, control::check_others)?;
    let pools = control::ask(&control::socket_of(pid), &Ask::ListPools)?.pools;
    print(fsname, name, pools)
}

/// # Errors
/// There is no such pool.
pub fn print(fsname: &str, name: Option<&str>, pools: Vec<PoolStatus>) -> Result<()> {
    let mut out = io::stdout().lock();
    let Some(name) = name else {
        writeln!(out, "Pools from {fsname}:")?;
        pools.iter().try_for_each(|pool| writeln!(out, "{fsname}.{}", pool.name))?;
        return Ok(());
    };
    let pool = pools.iter().find(|pool| pool.name == name).ok_or_else(|| unknown(fsname, name))?;
    writeln!(out, "Pool: {fsname}.{name}")?;
    pool.osts.iter().try_for_each(|ost| writeln!(out, "{fsname}-{}_UUID", TargetId::ost(*ost)))?;
    Ok(())
}

fn unknown(fsname: &str, name: &str) -> anyhow::Error {
    anyhow!("there is no pool {fsname}.{name}; see `lctl pool_list {fsname}`")
}

/// `check_others`: that there are none of other users, where nobody is heard.
fn process_of(here: &[Process], fsname: &str, check_others: impl Fn() -> Result<()>) -> Result<u32> {
    if here.is_empty() {
        check_others()?;
    }
    let found = here.iter().find(|process| process.fsname() == Some(fsname));
    found.map(|process| process.pid).with_context(|| {
        format!("no process of file system '{fsname}' runs on this machine; see `sheen status`")
    })
}

/// Returns when all processes of this machine have heard of it, or have had the time to.
fn act(place: &Place, action: PoolAction) -> Result<()> {
    let here = control::processes();
    let pid = process_of(&here, &place.fsname, control::check_others)?;
    control::ask(&control::socket_of(pid), &Ask::ChangePool { name: place.pool.to_string(), action })?;
    wait_for_config(&here, &place.fsname, pid);
    Ok(())
}

/// # Errors
/// One line, for what names no OST, or one twice.
fn parse_osts(fsname: &str, words: &[String]) -> Result<Vec<u16>> {
    let mut found = Vec::new();
    for word in words {
        found.extend(parse_ost(fsname, word)?);
    }
    let distinct: BTreeSet<u16> = found.iter().copied().collect();
    if distinct.len() < found.len() {
        bail!("an OST is named twice in '{}'", words.join(" "));
    }
    Ok(found)
}

/// Numbers behind `OST` are hexadecimal, as in the names of targets; bare ones and those in brackets are decimal.
fn parse_ost(fsname: &str, word: &str) -> Result<Vec<u16>> {
    let wrong = || anyhow!("'{word}' names no OST; write {fsname}-OST0003, OST0003, OST[0-3,7] or 3");
    let name = word.strip_suffix("_UUID").unwrap_or(word);
    let name = match name.rsplit_once("-OST") {
        Some((of, _)) if of != fsname => bail!("'{word}' is of another file system than {fsname}"),
        Some((_, number)) => format!("OST{number}"),
        None => name.to_owned(),
    };
    let Some(number) = name.strip_prefix("OST") else {
        return parse_ranges(&name).ok_or_else(wrong);
    };
    match number.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(ranges) => ranges.and_then(parse_ranges).ok_or_else(wrong),
        None => Ok(vec![u16::from_str_radix(number, 16).map_err(|_| wrong())?]),
    }
}

/// `0-3,7`; `None` for anything else.
pub fn parse_ranges(text: &str) -> Option<Vec<u16>> {
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        // 0xffff is no index.
        if first > last || last == u16::MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

impl From<PoolAction> for PoolChange {
    fn from(action: PoolAction) -> PoolChange {
        match action {
            PoolAction::New => PoolChange::New,
            PoolAction::Destroy => PoolChange::Destroy,
            PoolAction::Add(osts) => PoolChange::Add(osts),
            PoolAction::Remove(osts) => PoolChange::Remove(osts),
        }
    }
}

impl From<&Pool> for PoolStatus {
    fn from(pool: &Pool) -> PoolStatus {
        PoolStatus { name: pool.name.to_string(), osts: pool.osts.clone() }
    }
}

/// Those that a process knows.
pub fn of(node: &Node) -> Vec<PoolStatus> {
    node.config(|config| config.pools.iter().map(PoolStatus::from).collect()).unwrap_or_default()
}

/// # Errors
/// One line that says why the pools stay as they are.
pub fn change(node: &Node, name: &str, action: PoolAction) -> Result<()> {
    let pool: PoolName = name.parse()?;
    node.config(|config| check(config, &pool, &action)).unwrap_or(Ok(()))?;
    let make = |fsname| MgsRequest::ChangePool { fsname, name: pool, change: action.into() };
    node.change_config(make)?
        .map_err(|status| anyhow!("the management server refuses to change pool {name}: {status}"))
}

/// Those in the way, if there are some, and what to do.
fn named(osts: &[u16], is_wrong: impl Fn(&u16) -> bool) -> Option<String> {
    let names: Vec<String> =
        osts.iter().filter(|ost| is_wrong(ost)).map(|ost| TargetId::ost(*ost).to_string()).collect();
    let others = if names.len() < osts.len() { ", name the others only" } else { "" };
    (!names.is_empty()).then(|| format!("{}; nothing was changed{others}", names.join(", ")))
}

/// What the management server would refuse, in words.
fn check(config: &ClusterConfig, name: &PoolName, action: &PoolAction) -> Result<()> {
    let fsname = &config.fsname;
    let pool = match (config.pool(name), action) {
        (Some(_), PoolAction::New) => bail!("pool {fsname}.{name} exists already"),
        (None, PoolAction::New) => return Ok(()),
        (None, _) => return Err(unknown(fsname, name.as_str())),
        (Some(pool), _) => pool,
    };
    match action {
        PoolAction::New => {}
        PoolAction::Destroy if pool.osts.is_empty() => {}
        PoolAction::Destroy => bail!(
            "pool {fsname}.{name} has {} OSTs; take them out first: lctl pool_remove {fsname}.{name} OST…",
            pool.osts.len()
        ),
        PoolAction::Add(osts) => {
            let known: Vec<u16> = config.of_kind(TargetKind::Ost).map(|ost| ost.id.index).collect();
            if let Some(ost) = osts.iter().find(|ost| !known.contains(ost)) {
                bail!("there is no {}; see `lfs df`", TargetId::ost(*ost));
            }
            if let Some(named) = named(osts, |ost| pool.osts.contains(ost)) {
                bail!("in pool {fsname}.{name} already: {named}");
            }
        }
        PoolAction::Remove(osts) => {
            if let Some(named) = named(osts, |ost| !pool.osts.contains(ost)) {
                bail!("not in pool {fsname}.{name}: {named}");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
