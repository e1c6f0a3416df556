//! One side of a comparison: what its mounts are like, and the mounts themselves while a round lasts.

use crate::bench::bed::{run, sheen};
use crate::bench::cost::Daemons;
use crate::bench::interrupt;
use crate::bench::settings::{Applied, Settings};
use crate::mount::options::Choices;
use crate::mount_table;
use crate::say;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Mount options and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    options: Vec<String>,
    settings: Option<Settings>,
}

impl Config {
    /// Words with blanks between them. What has a dot before an equal sign is a parameter; no mount option has a dot.
    ///
    /// # Errors
    /// A word that is neither, with what is like it.
    pub fn parse(text: &str) -> Result<Config> {
        let is_param = |word: &&str| word.split('=').next().is_some_and(|name| name.contains('.'));
        let (params, options): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(is_param);
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        if Choices::parse(&options, None)?.is_remount {
            bail!("'remount' is no configuration: each round has new mounts");
        }
        let settings = (!params.is_empty()).then(|| Settings::of_words(params.into_iter())).transpose()?;
        Ok(Config { options, settings })
    }
}

/// Mounts of one side; they go when this is dropped, also after an error.
pub struct Mounts {
    home: PathBuf,
    points: Vec<PathBuf>,
    /// In the order in which they were set; the last ones know as values before what the first ones have set.
    applied: Vec<Applied>,
}

static MADE_COUNT: AtomicU32 = AtomicU32::new(0);

impl Mounts {
    /// # Errors
    /// One cannot be mounted, or does not take a parameter.
    pub fn start(source: &str, count: u32, config: &Config) -> Result<Mounts> {
        let number = MADE_COUNT.fetch_add(1, Ordering::Relaxed);
        let home = std::env::temp_dir().join(format!("sheen-bench-{}-{number}", std::process::id()));
        fs::create_dir(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let home = home.canonicalize()?;
        let mut mounts = Mounts { home, points: Vec::new(), applied: Vec::new() };
        for index in 0..count {
            interrupt::check()?;
            let point = mounts.home.join(index.to_string());
            fs::create_dir(&point)?;
            let mut command = sheen(&[])?;
            command.arg("mount").arg(source).arg(&point);
            if !config.options.is_empty() {
                command.arg("-o").arg(config.options.join(","));
            }
            let mounted = mount(&mut command);
            // One that was not mounted is a directory like any other.
            if mounted.is_ok() || mount_table::mounted_on(&point).is_some() {
                mounts.points.push(point);
            } else {
                let _ = fs::remove_dir(&point);
            }
            mounted?;
        }
        interrupt::check()?;
        if let Some(settings) = &config.settings {
            for daemons in Daemons::of_each(&mounts.points).context("a mount is gone already")? {
                mounts.applied.push(settings.apply(&daemons)?);
            }
        }
        Ok(mounts)
    }

    pub fn points(&self) -> &[PathBuf] {
        &self.points
    }

    /// There is one at least.
    pub fn first(&self) -> &Path {
        self.points.first().unwrap_or(&self.home)
    }

    /// # Errors
    /// What was done through one of them cannot be made durable.
    pub fn end(mut self) -> Result<()> {
        self.set_back();
        self.points.iter().try_for_each(|point| run(sheen(&[])?.arg("umount").arg(point)))?;
        for point in self.points.drain(..) {
            fs::remove_dir(&point)?;
        }
        Ok(())
    }

    fn set_back(&mut self) {
        while self.applied.pop().is_some() {}
    }
}

/// # Errors
/// In the words of the command, which says more than once what it waits for, and at last why it is in vain.
fn mount(command: &mut Command) -> Result<()> {
    let said = command.stderr(Stdio::piped()).output().context("cannot start this program")?;
    let lines = String::from_utf8_lossy(&said.stderr);
    let mut lines = lines.lines().map(|line| line.strip_prefix("sheen: ").unwrap_or(line));
    if said.status.success() {
        lines.for_each(say::note);
        return Ok(());
    }
    match lines.next_back() {
        Some(why) => bail!("{why}"),
        None => bail!("a mount failed without a word ({})", said.status),
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.set_back();
        for point in &self.points {
            let done = sheen(&[]).and_then(|mut command| run(command.args(["umount", "--lazy"]).arg(point)));
            if let Err(error) = done {
                say::note(format_args!("{error:#}"));
            }
            let _ = fs::remove_dir(point);
        }
        let _ = fs::remove_dir(&self.home);
    }
}
