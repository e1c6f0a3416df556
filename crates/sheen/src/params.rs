//! Parameters and counters, under Lustre's names and in its formats.
//!
//! A parameter is declared once, in the table of its class (`llite.*`, `osc.*`, …): name, meaning, how it is read, what
//! may be written. `get_param`, `set_param`, `list_param`, permanent parameters and docs/parameters.md follow from the
//! tables. A class knows its instances in this process; inside names its parts are separated by `/`, as an instance may
//! contain dots.

pub mod absent;
pub mod format;
mod glob;
mod global;
mod management;
mod mounts;
mod names;
mod peers;
mod services;
mod sessions;
mod targets;
mod write;

use crate::node::{Node, lock};
use anyhow::{Result, bail};
use base::{ClusterConfig, TargetId, TargetKind};
pub use global::check_bounds as check_timeout_bounds;
pub use mounts::REREAD;
use std::collections::{BTreeMap, BTreeSet};
pub use targets::name as target_name;
use write::Write;

/// Names with their values.
pub type Values = Vec<(String, String)>;

/// One parameter of a class.
struct Param<T> {
    /// Empty when the instance itself is the parameter.
    name: &'static str,
    /// What it is, with its unit: a sentence.
    doc: &'static str,
    /// `None` when it cannot be known now.
    read: fn(&T) -> Option<String>,
    /// `None` for what can only be read.
    write: Option<Write<T>>,
}

const fn read_only<T>(name: &'static str, doc: &'static str, read: fn(&T) -> Option<String>) -> Param<T> {
    Param { name, doc, read, write: None }
}

/// Parameters that several instances have.
struct Class<T: 'static> {
    /// With `*` for the instance.
    path: &'static str,
    /// Those of this process: what stands in the place of `path`, and what is read and written.
    instances: fn(&Node) -> Vec<(String, T)>,
    params: &'static [Param<T>],
}

/// All classes, in the order of the documentation.
static CLASSES: &[&dyn AnyClass] = &[
    &global::CLASS,
    &global::TIMEOUTS,
    &mounts::CLASS,
    &sessions::OSC,
    &sessions::MDC,
    &sessions::LOCKS,
    &targets::MDT,
    &targets::LOD,
    &peers::OSP,
    &targets::MDT_LOCKS,
    &targets::OST,
    &targets::OST_LOCKS,
    &targets::DISK,
    &targets::OST_DISK,
    &services::MDS,
    &services::OSS,
    &targets::MDT_EXPORTS,
    &targets::OST_EXPORTS,
    &management::MGS,
    &management::LIVE,
    &management::EXPORTS,
];

/// What documentation and checks need to know of a parameter.
#[cfg_attr(not(test), expect(dead_code, reason = "most of it is for docs/parameters.md, which a test makes"))]
struct Declared {
    path: String,
    doc: &'static str,
    /// What may be written; `None` for what can only be read.
    values: Option<String>,
}

/// A class of whatever type.
trait AnyClass: Sync {
    fn declared(&self) -> Vec<Declared>;
    /// Whether the value suits every parameter that the pattern may mean.
    fn check(&self, pattern: &str, value: &str, is_permanent: bool) -> Result<()>;
    /// Whether the value fits what others have now, of every parameter that the pattern means.
    fn check_now(&self, node: &Node, pattern: &str, value: &str) -> Result<()>;
    /// Names of the parameters that exist now, and whether they can be written.
    fn names(&self, node: &Node) -> Vec<(String, bool)>;
    fn read(&self, node: &Node, pattern: &str) -> Values;
    /// Names that can be written and match.
    fn writable(&self, node: &Node, pattern: &str) -> Vec<String>;
    /// Whether the management server keeps what is written to this name.
    fn is_kept(&self, name: &str) -> bool;
    /// Whether what is written to this name is done once.
    fn is_command(&self, name: &str) -> bool;
    /// Writes those whose name this is; true when there were some.
    fn write(&self, node: &Node, name: &str, value: &str) -> Result<bool>;
}

impl<T> Class<T> {
    fn path_of(&self, param: &Param<T>) -> String {
        names::join(self.path, param.name)
    }
}

impl<T> AnyClass for Class<T> {
    fn declared(&self) -> Vec<Declared> {
        let declared = |param: &Param<T>| Declared {
            path: names::shown(&self.path_of(param)),
            doc: param.doc,
            values: param.write.as_ref().map(Write::values),
        };
        self.params.iter().map(declared).collect()
    }

    fn check(&self, pattern: &str, value: &str, is_permanent: bool) -> Result<()> {
        for param in self.params.iter().filter(|param| glob::meets(pattern, &self.path_of(param))) {
            let path = names::shown(&self.path_of(param));
            match &param.write {
                None => bail!("'{path}' can only be read"),
                Some(write) => {
                    write.check(&path, value)?;
                    if is_permanent && !write.is_lasting() {
                        bail!("'{path}' does something once; it cannot be permanent");
                    }
                }
            }
        }
        Ok(())
    }

    fn check_now(&self, node: &Node, pattern: &str, value: &str) -> Result<()> {
        for (instance, of) in (self.instances)(node) {
            for param in self.params {
                let name = names::join(&instance, param.name);
                if let Some(write) = param.write.as_ref().filter(|_| glob::matches(pattern, &name)) {
                    write.check_now(&of, &names::shown(&name), value)?;
                }
            }
        }
        Ok(())
    }

    fn names(&self, node: &Node) -> Vec<(String, bool)> {
        let instances = (self.instances)(node);
        let name =
            |instance: &str, param: &Param<T>| (names::join(instance, param.name), param.write.is_some());
        instances
            .iter()
            .flat_map(|(instance, _)| self.params.iter().map(move |param| name(instance, param)))
            .collect()
    }

    fn read(&self, node: &Node, pattern: &str) -> Values {
        let mut values = Values::new();
        for (instance, of) in (self.instances)(node) {
            for param in self.params {
                let name = names::join(&instance, param.name);
                if glob::matches(pattern, &name)
                    && let Some(value) = (param.read)(&of)
                {
                    values.push((names::shown(&name), value));
                }
            }
        }
        values
    }

    fn writable(&self, node: &Node, pattern: &str) -> Vec<String> {
        let mut names = self.names(node);
        names.retain(|(name, is_writable)| *is_writable && glob::matches(pattern, name));
        names.into_iter().map(|(name, _)| name).collect()
    }

    fn is_kept(&self, name: &str) -> bool {
        let kept = self.params.iter().filter(|param| matches!(param.write, Some(Write::Kept)));
        kept.map(|param| self.path_of(param)).any(|path| glob::matches(&path, name))
    }

    fn is_command(&self, name: &str) -> bool {
        let is_once = |param: &&Param<T>| param.write.as_ref().is_some_and(|write| !write.is_lasting());
        let once = self.params.iter().filter(is_once);
        once.map(|param| self.path_of(param)).any(|path| glob::matches(&path, name))
    }

    fn write(&self, node: &Node, name: &str, value: &str) -> Result<bool> {
        let mut is_found = false;
        for (instance, of) in (self.instances)(node) {
            for param in self.params.iter().filter(|param| names::join(&instance, param.name) == name) {
                if let Some(write) = &param.write {
                    write.apply(&of, value)?;
                    is_found = true;
                }
            }
        }
        Ok(is_found)
    }
}

/// Parameters that match the glob, with their values.
pub fn get(node: &Node, pattern: &str) -> Values {
    CLASSES.iter().flat_map(|class| class.read(node, pattern)).collect()
}

/// What matches the glob: parameters and the levels above them, with a mark as `ls -F` has it: `=` can be set, `/` has
/// parameters below. With `is_recursive` the parameters below.
pub fn list(node: &Node, pattern: &str, is_recursive: bool) -> Values {
    let mut found = BTreeMap::new();
    for (name, is_writable) in CLASSES.iter().flat_map(|class| class.names(node)) {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            let (level, is_leaf) = (&name[..end], end == name.len());
            if !glob::matches(pattern, level) {
                continue;
            }
            let (shown, is_leaf) = if is_recursive { (name.as_str(), true) } else { (level, is_leaf) };
            let mark = match (is_leaf, is_writable) {
                (false, _) => "/",
                (true, true) => "=",
                (true, false) => "",
            };
            found.insert(names::shown(shown), mark.to_owned());
        }
    }
    found.into_iter().collect()
}

/// Whether the pattern names something that exists in this program and takes the value, without looking at what runs.
///
/// # Errors
/// One line that says what is wrong, and which names are like it.
pub fn check(pattern: &str, value: &str, is_permanent: bool) -> Result<()> {
    check_name(pattern)?;
    CLASSES.iter().try_for_each(|class| class.check(pattern, value, is_permanent))
}

/// # Errors
/// No parameter and no level above parameters has such a name.
pub fn check_level(pattern: &str) -> Result<()> {
    let declared = CLASSES.iter().flat_map(|class| class.declared());
    let levels: BTreeSet<String> = declared
        .flat_map(|declared| {
            let ends: Vec<usize> = declared.path.match_indices('.').map(|(at, _)| at).collect();
            ends.into_iter().map(|end| declared.path[..end].to_owned()).collect::<Vec<_>>()
        })
        .collect();
    if levels.iter().any(|level| glob::meets(pattern, level)) {
        return Ok(());
    }
    if absent::find(pattern).is_some() {
        return check_name(pattern);
    }
    let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
    match names::alike(pattern, &levels).as_slice() {
        [] => check_name(pattern),
        alike => bail!("there is nothing named '{pattern}'; there is {}", alike.join(", ")),
    }
}

/// # Errors
/// No parameter has such a name.
pub fn check_name(pattern: &str) -> Result<()> {
    let declared: Vec<Declared> = CLASSES.iter().flat_map(|class| class.declared()).collect();
    if declared.iter().any(|declared| glob::meets(pattern, &declared.path)) {
        return Ok(());
    }
    if let Some((path, reason)) = absent::find(pattern) {
        bail!("'{path}' of Lustre is not here: {reason}");
    }
    let paths: Vec<&str> = declared.iter().map(|declared| declared.path.as_str()).collect();
    match names::alike(pattern, &paths).as_slice() {
        [] => bail!("there is no parameter '{pattern}'; see `lctl list_param -R '*'`"),
        alike => bail!("there is no parameter '{pattern}'; there is {}", alike.join(", ")),
    }
}

/// `check`, and whether the value fits what this process has now.
///
/// # Errors
/// As `check`; or which other parameter is in the way.
pub fn check_now(node: &Node, pattern: &str, value: &str, is_permanent: bool) -> Result<()> {
    check(pattern, value, is_permanent)?;
    CLASSES.iter().try_for_each(|class| class.check_now(node, pattern, value))
}

/// Sets what matches the glob; nothing when one of them does not take the value.
///
/// # Errors
/// It can only be read, or the value is not possible; or none of them can do what is to be done once.
pub fn set(node: &Node, pattern: &str, value: &str) -> Result<Values> {
    check_now(node, pattern, value, false)?;
    set_in(CLASSES, node, pattern, value)
}

fn set_in(classes: &[&dyn AnyClass], node: &Node, pattern: &str, value: &str) -> Result<Values> {
    let (mut done, mut refused) = (Values::new(), None);
    for class in classes {
        for name in class.writable(node, pattern) {
            if class.is_kept(&name) {
                node.set_permanent(&names::shown(&name), Some(value.to_owned()))?;
                done.push((names::shown(&name), value.to_owned()));
                continue;
            }
            match class.write(node, &name, value) {
                Ok(true) => done.push((names::shown(&name), value.to_owned())),
                Ok(false) => {}
                // One that has no such client keeps none behind it from dropping it.
                Err(error) if class.is_command(&name) => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
    }
    match refused {
        Some(error) if done.is_empty() => Err(error),
        _ => Ok(done),
    }
}

/// Brings what this process has in line with the permanent parameters: what they name and what has not got that value
/// from them yet. So an operator's later `set_param` stays until the permanent value changes.
pub fn apply(node: &Node, params: &[(String, String)]) {
    let mut wanted = BTreeMap::new();
    for (pattern, value) in params {
        if let Err(error) = check(pattern, value, true) {
            tracing::warn!(pattern, value, "a permanent parameter is not known here: {error:#}");
            continue;
        }
        for class in CLASSES {
            wanted.extend(class.writable(node, pattern).into_iter().map(|name| (name, value.clone())));
        }
    }
    let mut applied = lock(&node.applied_params);
    for (name, value) in wanted.iter().filter(|(name, value)| applied.get(*name) != Some(*value)) {
        for class in CLASSES {
            match class.write(node, name, value) {
                Ok(true) => tracing::info!(name = names::shown(name), value, "set, as is permanent"),
                Ok(false) => {}
                Err(error) => tracing::warn!(name, value, "a permanent parameter was not applied: {error:#}"),
            }
        }
    }
    *applied = wanted;
}

/// OSTs on which no new files are to be placed, or MDTs on which no new directories are, as the permanent parameters have it: that of one target
/// goes before those of many.
pub fn no_create(config: &ClusterConfig, kind: TargetKind) -> BTreeSet<u16> {
    let class = if kind == TargetKind::Mdt { "mdt" } else { "obdfilter" };
    let is_closed = |id: &TargetId| {
        let name = format!("{class}/{}-{id}/no_create", config.fsname);
        let meant = config.params.iter().filter(|(pattern, _)| glob::matches(pattern, &name));
        let (own, others): (Vec<_>, Vec<_>) =
            meant.partition(|(pattern, _)| pattern.replace('/', ".") == names::shown(&name));
        own.last().or(others.last()).is_some_and(|(_, value)| value == "1")
    };
    config.of_kind(kind).map(|target| target.id).filter(is_closed).map(|id| id.index).collect()
}

/// Targets of both kinds on which nothing new is to be placed.
pub fn drained(config: &ClusterConfig) -> BTreeSet<TargetId> {
    let osts = no_create(config, TargetKind::Ost).into_iter().map(TargetId::ost);
    osts.chain(no_create(config, TargetKind::Mdt).into_iter().map(TargetId::mdt)).collect()
}

/// Whether there are OSTs, and new files on none of them.
pub fn are_osts_drained(config: &ClusterConfig) -> bool {
    let closed = no_create(config, TargetKind::Ost);
    let mut osts = config.of_kind(TargetKind::Ost).filter(|target| target.is_active).peekable();
    osts.peek().is_some() && osts.all(|target| closed.contains(&target.id.index))
}

#[cfg(test)]
mod tests;
