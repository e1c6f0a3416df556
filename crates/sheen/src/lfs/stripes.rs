//! The options of `lfs setstripe`. Those of a component stand between its -E and the next one: their order counts, which a
//! derived parser does not keep.

use crate::pools::NO_POOL;
use anyhow::{Result, anyhow, bail};
use base::{Extent, Layout, PoolName};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::collections::BTreeSet;
use wire::{ComponentHint, LayoutHint};

/// What was said, in the order of the command line.
#[derive(Clone, Debug, Default)]
pub struct Striping {
    words: Vec<(Key, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    End,
    Count,
    Size,
    Index,
    Osts,
    Pool,
    Pattern,
}

impl Key {
    const ALL: [Key; 7] = [Key::End, Key::Count, Key::Size, Key::Index, Key::Osts, Key::Pool, Key::Pattern];

    fn id(self) -> &'static str {
        match self {
            Key::End => "component-end",
            Key::Count => "stripe-count",
            Key::Size => "stripe-size",
            Key::Index => "stripe-index",
            Key::Osts => "ost",
            Key::Pool => "pool",
            Key::Pattern => "layout",
        }
    }

    fn value_name(self) -> &'static str {
        match self {
            Key::End | Key::Size => "BYTES",
            Key::Count => "COUNT",
            Key::Index => "INDEX",
            Key::Osts => "INDEX,…",
            Key::Pool => "POOL",
            Key::Pattern => "PATTERN",
        }
    }

    fn letter(self) -> char {
        match self {
            Key::End => 'E',
            Key::Count => 'c',
            Key::Size => 'S',
            Key::Index => 'i',
            Key::Osts => 'o',
            Key::Pool => 'p',
            Key::Pattern => 'L',
        }
    }

    fn help(self) -> &'static str {
        match self {
            Key::End => {
                "Where a component ends, -1 or eof for the end of the file; the options behind it are this component's, and \
                 what they leave open it has from the one before"
            }
            Key::Count => "Stripes; -1 for all OSTs",
            Key::Size => "Bytes of a stripe unit: a multiple of 64K",
            Key::Index => "First OST; -1 for any",
            Key::Osts => "The OST of each stripe: 4,0-2",
            Key::Pool => "Only OSTs of this pool; none for all",
            Key::Pattern => "raid0, or mdt: the MDT of the file has the data (first component, up to 512K)",
        }
    }

    fn argument(self) -> Arg {
        Arg::new(self.id())
            .short(self.letter())
            .long(self.id())
            .value_name(self.value_name())
            .allow_hyphen_values(true)
            .action(ArgAction::Append)
            .help(self.help())
    }
}

impl clap::Args for Striping {
    fn augment_args(command: Command) -> Command {
        command.args(Key::ALL.map(Key::argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Striping {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut found = Vec::new();
        for key in Key::ALL {
            let values = matches.get_many::<String>(key.id()).into_iter().flatten().cloned();
            found.extend(
                matches.indices_of(key.id()).into_iter().flatten().zip(values.map(|value| (key, value))),
            );
        }
        found.sort_by_key(|(at, _)| *at);
        Ok(Striping { words: found.into_iter().map(|(_, word)| word).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Striping {
    #[cfg(test)]
    pub fn of(words: &[(Key, &str)]) -> Striping {
        Striping { words: words.iter().map(|(key, value)| (*key, (*value).to_owned())).collect() }
    }

    /// Nothing was said.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// A pool may be named with its file system's name before it.
    pub fn may_name_fsname(&self) -> bool {
        self.words.iter().any(|(key, value)| *key == Key::Pool && value.contains('.'))
    }

    /// `fsname`: of the file system that it is for.
    ///
    /// # Errors
    /// One line, for what makes no layout.
    pub fn hint(&self, fsname: &str) -> Result<LayoutHint> {
        let first_end = self.words.iter().position(|(key, _)| *key == Key::End);
        let Some(first_end) = first_end else {
            let mut plain = ComponentHint::default();
            set_all(&mut plain, &self.words, fsname)?;
            check(std::slice::from_ref(&plain))?;
            return Ok(LayoutHint::plain(plain));
        };
        if let Some((key, _)) = self.words.get(..first_end).unwrap_or_default().first() {
            bail!(
                "-{} before the first -E is of no component; write it behind the -E that it is for",
                key.letter()
            );
        }
        let mut components: Vec<ComponentHint> = Vec::new();
        for words in self.words.chunk_by(|_, (next, _)| *next != Key::End) {
            let (end, options) = words.split_first().ok_or_else(|| anyhow!("a component has no -E"))?;
            let before = components.last().cloned().unwrap_or_default();
            let mut component =
                ComponentHint { end_bytes: parse_end(&end.1)?, first_ost: None, osts: Vec::new(), ..before };
            set_all(&mut component, options, fsname)?;
            components.push(component);
        }
        check(&components)?;
        Ok(LayoutHint { components })
    }
}

fn set_all(component: &mut ComponentHint, words: &[(Key, String)], fsname: &str) -> Result<()> {
    for (at, (key, value)) in words.iter().enumerate() {
        if words.iter().take(at).any(|(earlier, _)| earlier == key) {
            bail!("-{} is given twice for one component", key.letter());
        }
        match key {
            Key::End => bail!("a component has one -E"),
            Key::Count => component.stripe_count = parse_count(value)?,
            Key::Size => {
                component.stripe_size_bytes = Some(super::parse_size(value)?).filter(|size| *size != 0)
            }
            Key::Index => component.first_ost = parse_index(value)?,
            Key::Osts => component.osts = parse_osts(value)?,
            Key::Pool => component.pool = parse_pool(value, fsname)?,
            Key::Pattern => {}
        }
    }
    set_pattern(component, words)
}

/// # Errors
/// One line.
fn set_pattern(component: &mut ComponentHint, words: &[(Key, String)]) -> Result<()> {
    let pattern = words.iter().find(|(key, _)| *key == Key::Pattern).map(|(_, value)| value.as_str());
    match pattern {
        None | Some("raid0") => return Ok(()),
        Some("mdt") => {}
        Some(other) => bail!("'{other}' is no pattern of a layout; use raid0 or mdt"),
    }
    if let Some((key, _)) = words.iter().find(|(key, _)| matches!(key, Key::Index | Key::Osts | Key::Pool)) {
        bail!("-{} names OSTs, and -L mdt needs none; leave it out", key.letter());
    }
    if component.stripe_count.is_some_and(|count| count > 1) {
        if words.iter().any(|(key, _)| *key == Key::Count) {
            bail!("data on the MDT have one stripe; leave -c out");
        }
        component.stripe_count = None;
    }
    // Inherited, it is of no use here.
    component.pool = None;
    component.osts = vec![Layout::ON_MDT];
    Ok(())
}

/// What the MDT would refuse, in words.
fn check(components: &[ComponentHint]) -> Result<()> {
    if components.len() > Layout::COMPONENT_COUNT_MAX {
        bail!("{} components are too many; use at most {}", components.len(), Layout::COMPONENT_COUNT_MAX);
    }
    let end_of = |component: &ComponentHint| component.end_bytes.unwrap_or(Extent::EOF);
    for pair in components.windows(2) {
        if let [a, b] = pair
            && end_of(a) >= end_of(b)
        {
            bail!("component ends must rise: {} is not behind {}", name_of(end_of(b)), name_of(end_of(a)));
        }
    }
    for (at, component) in components.iter().enumerate() {
        if component.osts.contains(&Layout::ON_MDT) {
            check_on_mdt(at, component)?;
        } else {
            check_osts(component)?;
        }
        if let (Some(end), Some(size)) = (component.end_bytes, component.stripe_size_bytes)
            && !end.is_multiple_of(u64::from(size))
        {
            bail!("component end {end} is no multiple of its stripe size {size}; choose another one with -S");
        }
    }
    Ok(())
}

fn check_on_mdt(at: usize, component: &ComponentHint) -> Result<()> {
    if at > 0 {
        bail!("-L mdt is for the first component only: what lies behind it is on OSTs");
    }
    match component.end_bytes {
        Some(end) if end <= Layout::ON_MDT_BYTES_MAX => Ok(()),
        _ => bail!(
            "data on the MDT end at {} at most; write -E with such an end in front of -L mdt",
            Layout::ON_MDT_BYTES_MAX
        ),
    }
}

fn check_osts(component: &ComponentHint) -> Result<()> {
    let Some(first) = component.osts.first() else { return Ok(()) };
    let count = component.osts.len();
    if component.stripe_count.is_some_and(|asked| asked != 0 && usize::from(asked) != count) {
        bail!("-o names {count} OSTs, and -c asks for another number of stripes; leave -c out");
    }
    if component.first_ost.is_some_and(|asked| asked != *first) {
        bail!("-o begins with OST {first}, and -i with another one; leave -i out");
    }
    Ok(())
}

/// An end as `lfs getstripe` prints it.
pub fn name_of(end_bytes: u64) -> String {
    if end_bytes == Extent::EOF { "EOF".to_owned() } else { end_bytes.to_string() }
}

/// `64K`, `1G`; `None` for the end of the file.
///
/// # Errors
/// One line.
pub fn parse_end(text: &str) -> Result<Option<u64>> {
    if text == "-1" || text.eq_ignore_ascii_case("eof") {
        return Ok(None);
    }
    let is_fit = |end: &u64| {
        *end > 0 && *end <= i64::MAX as u64 && end.is_multiple_of(u64::from(Layout::STRIPE_SIZE_MIN))
    };
    match super::parse_bytes(text).filter(is_fit) {
        Some(end) => Ok(Some(end)),
        None => bail!(
            "component end '{text}' is not possible; use a multiple of 64K, or -1 for the end of the file"
        ),
    }
}

/// # Errors
/// One line.
pub fn parse_count(text: &str) -> Result<Option<u16>> {
    match text.parse::<i64>() {
        Ok(0) => Ok(None),
        Ok(-1) => Ok(Some(u16::MAX)),
        number => number_to(number.ok(), STRIPE_COUNT_MAX, text, "stripe count").map(Some),
    }
}

fn parse_index(text: &str) -> Result<Option<u16>> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        number => number_to(number.ok(), OST_INDEX_MAX, text, "stripe index").map(Some),
    }
}

/// # Errors
/// One line.
fn parse_osts(text: &str) -> Result<Vec<u16>> {
    let is_fit = |osts: &Vec<u16>| {
        let distinct: BTreeSet<&u16> = osts.iter().collect();
        let is_possible = distinct.len() == osts.len() && !distinct.contains(&Layout::ON_MDT);
        is_possible && osts.len() <= Layout::STRIPE_COUNT_MAX
    };
    let osts = crate::pools::parse_ranges(text).filter(is_fit);
    osts.ok_or_else(|| anyhow!("'{text}' names no OSTs; write each once, as 4,0-2"))
}

/// # Errors
/// One line.
fn parse_pool(text: &str, fsname: &str) -> Result<Option<PoolName>> {
    match bare_pool(text, fsname) {
        "" | NO_POOL => Ok(None),
        name => name.parse().map(Some).map_err(|error| anyhow!("'{text}' names no pool: {error}")),
    }
}

/// Lustre takes the name of a pool with the file system's too. Either may have dots.
pub fn bare_pool<'a>(text: &'a str, fsname: &str) -> &'a str {
    text.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('.')).unwrap_or(text)
}

/// 0xffff is no index.
const OST_INDEX_MAX: u16 = u16::MAX - 1;
const STRIPE_COUNT_MAX: u16 = Layout::STRIPE_COUNT_MAX as u16;

fn number_to(number: Option<i64>, max: u16, text: &str, what: &str) -> Result<u16> {
    let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number <= max);
    number.ok_or_else(|| anyhow!("{what} {text} is not possible; use 0 to {max}, or -1"))
}
