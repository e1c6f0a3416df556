//! A program of Python whose modules nobody has looked at since the mount was made.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{clear_requests, counts};
use crate::case::{Context, expect, expect_eq, note, skip};
use crate::suites::split_cluster;

const MODULES_PER_PACKAGE: u64 = 8;
/// What a mount asks for by itself in some seconds: pings, space, and the locks of the directories that lead to the modules.
const FEW: u64 = 12;

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
    let point = cluster.mount_again("importer")?;
    let modules = point.join("modules");
    fs::metadata(&modules)?;
    clear_requests(&cluster)?;
    let mut python = Command::new("/usr/bin/python3");
    // Nothing of the machine's own, and nothing is written.
    python.args(["-I", "-S", "-B", "-c", &program(&modules, package_count)]);
    let said = cluster.say(&mut python)?;
    expect(said.is_success(), &said.all())?;
    let file_count = package_count * (1 + MODULES_PER_PACKAGE);
    expect_eq(said.output.trim(), file_count.to_string().as_str(), "modules")?;
    let asked = counts(&cluster)?;
    let directory_count = 1 + package_count;
    note(&format!("{file_count} modules in {directory_count} directories: {asked:?}"));
    let of = |kinds: &[&str]| kinds.iter().filter_map(|kind| asked.get(*kind)).sum::<u64>();
    let opens = of(&["mds_open"]);
    expect(opens <= file_count, &format!("{opens} opens for {file_count} files"))?;
    let total = asked.values().sum::<u64>();
    let needed = file_count + directory_count;
    expect(
        total <= needed + FEW,
        &format!("{total} requests for {file_count} files in {directory_count} directories: {asked:?}"),
    )?;
    cluster.down().map(drop)
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
