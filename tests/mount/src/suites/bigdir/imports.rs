//! A program of Python whose modules nobody has looked at since the mount was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::{clear_requests, counts};
use crate::case::{Context, expect, expect_eq, note, skip};
use crate::cluster::Cluster;
use crate::suites::split_cluster;

const MODULES_PER_PACKAGE: u64 = 8;
/// What a mount asks for by itself in some seconds: pings, space, and the locks of the directories that lead to the modules.
const FEW: u64 = 12;
/// On a machine that stands still meanwhile more of that comes, and closes that ride on opens else. It never asks for less by chance.
const TRY_COUNT: usize = 4;

/// A directory that is looked into comes whole with the first name, names that are not there included; a file comes with its open, data on
/// the MDT, and its close goes with the next one.
pub fn ask_for_each_file_once(context: &Context) -> Result<()> {
    let cluster = split_cluster(context)?;
    if Command::new("/usr/bin/python3").arg("--version").output().is_err() {
        return skip("/usr/bin/python3 is not installed (package python3)");
    }
    let package_count = context.round_count;
    let modules = cluster.mount.join("modules");
    fs::create_dir(&modules)?;
    let layout = ["lfs", "setstripe", "-E", "64K", "-L", "mdt", "-E", "-1"];
    let place = modules.to_string_lossy().into_owned();
    cluster.sheen(&[&layout[..], &[place.as_str()]].concat())?;
    make_packages(&modules, package_count)?;
    cluster.unmount(&cluster.mount)?;
    let mut asked = Vec::new();
    for number in 0..TRY_COUNT {
        let counts = import_all(&cluster, &format!("importer{number}"), package_count)?;
        let is_least = is_least(&counts, package_count);
        asked.push(counts);
        if is_least {
            return cluster.down().map(drop);
        }
    }
    bail!("{package_count} packages with {MODULES_PER_PACKAGE} modules and __init__.py each: {asked:?}")
}

/// What the servers are asked for by a mount that knows nothing.
fn import_all(cluster: &Cluster, name: &str, package_count: u64) -> Result<BTreeMap<String, u64>> {
    let point = cluster.mount_again(name)?;
    let modules = point.join("modules");
    fs::metadata(&modules)?;
    clear_requests(cluster)?;
    let mut python = Command::new("/usr/bin/python3");
    // Nothing of the machine's own, and nothing is written.
    python.args(["-I", "-S", "-B", "-c", &program(&modules, package_count)]);
    let said = cluster.say(&mut python)?;
    let asked = counts(cluster)?;
    expect(said.is_success(), &said.all())?;
    let file_count = file_count(package_count);
    expect_eq(said.output.trim(), file_count.to_string().as_str(), "modules")?;
    note(&format!("{file_count} modules of {package_count} packages: {asked:?}"));
    cluster.unmount(&point)?;
    Ok(asked)
}

fn file_count(package_count: u64) -> u64 {
    package_count * (1 + MODULES_PER_PACKAGE)
}

/// An open for each file, and a request for each directory.
fn is_least(asked: &BTreeMap<String, u64>, package_count: u64) -> bool {
    let (file_count, directory_count) = (file_count(package_count), 1 + package_count);
    let of = |kinds: &[&str]| kinds.iter().filter_map(|kind| asked.get(*kind)).sum::<u64>();
    of(&["mds_open"]) == file_count
        && of(&["mds_lookup", "mds_readpage"]) <= directory_count
        && asked.values().sum::<u64>() <= file_count + directory_count + FEW
}

fn make_packages(top: &Path, package_count: u64) -> Result<()> {
    for package in 0..package_count {
        let directory = top.join(format!("package{package}"));
        fs::create_dir(&directory)?;
        let import = |module| format!("from . import module{module}\n");
        fs::write(directory.join("__init__.py"), (0..MODULES_PER_PACKAGE).map(import).collect::<String>())?;
        for module in 0..MODULES_PER_PACKAGE {
            let text = format!("number = {module}\n");
            fs::write(directory.join(format!("module{module}.py")), text.repeat(100))?;
        }
    }
    Ok(())
}

/// Imports all, and says how many modules came from there.
fn program(modules: &Path, package_count: u64) -> String {
    let imports: Vec<String> = (0..package_count).map(|package| format!("package{package}")).collect();
    format!(
        "import sys\nsys.path.insert(0, {top:?})\nimport {all}\n\
         print(sum(1 for module in sys.modules.values() if str(getattr(module, '__file__', '')).startswith({top:?})))",
        top = modules.to_string_lossy(),
        all = imports.join(", "),
    )
}
