//! `cargo xtask kernel`: the suites on Debian 12's own kernel (Linux 6.1, FUSE 7.38), in a virtual machine.
//!
//! The guest boots the kernel of Debian's package from an initramfs made here. Its root is this machine's, read-only through 9p, with
//! a disk image over it: what the suites write goes there, and what they need is there as it is here. Everything lives in
//! `target/kernel`; nothing is installed.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use mount_suites::{bounded, runner};

use crate::ci;

mod initramfs;
mod package;

/// Suites that fit into minutes on an emulated processor.
const SUITES: &[&str] = &["smoke", "posix", "coherence", "pjdfstest"];
/// The line by which the guest says how its suites ended.
const END_MARK: &str = "guest-suites-ended";
pub const EMULATOR: &str = "qemu-system-x86_64";
/// Room for what the suites write; the file is sparse.
const DISK_BYTES: u64 = 24 << 30;
const PREPARE_LIMIT: Duration = Duration::from_secs(120);

/// Options of `cargo xtask kernel`.
#[derive(Args)]
pub struct Options {
    /// These suites instead of smoke, posix, coherence and pjdfstest.
    suites: Vec<String>,
    /// Only cases whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Rounds per case instead of the usual number, of which an emulated processor needs half a second each.
    #[arg(long)]
    count: Option<u64>,
    /// Minutes after which the virtual machine is stopped.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Time limits of the cases times this: an emulated processor is slow.
    #[arg(long, default_value_t = 6)]
    patience: u64,
    /// Binary and runner are built.
    #[arg(long, hide = true)]
    built: bool,
    /// Run this instead of the suites.
    #[arg(long)]
    command: Option<String>,
}

/// Why this machine cannot run the virtual machine, if it cannot.
pub fn missing() -> Option<String> {
    for program in [EMULATOR, "apt-get", "dpkg-deb", "mkfs.ext4"] {
        if !has_program(program) {
            return Some(format!("no {program}"));
        }
    }
    None
}

/// True if a program of that name is installed.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/sbin".into(), "/usr/sbin".into()])
        .any(|dir| dir.join(name).exists())
}

/// Boots the guest and runs the suites in it; true if all passed. Ends this process with a status of its own when the machine cannot
/// do it, after having said why.
pub fn run(options: &Options) -> Result<bool> {
    if let Some(reason) = missing() {
        runner::end_skipped(&reason);
    }
    let plan = ci::Plan::new()?;
    let home = plan.target().join("kernel");
    fs::create_dir_all(&home)?;
    let kernel = match package::fetch(&home) {
        Ok(kernel) => kernel,
        Err(error) => runner::end_skipped(&format!("{error:#}")),
    };
    if !options.built {
        for mut command in plan.build_commands(false) {
            if !command.status()?.success() {
                bail!("the build failed");
            }
        }
    }
    let out = home.join("out");
    // Of the last run; a missing directory is the normal case.
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out)?;
    let guest = Guest { kernel, home, out };
    guest.boot(&plan, options)
}

struct Guest {
    kernel: package::Kernel,
    home: PathBuf,
    /// The guest's only way to write to this machine.
    out: PathBuf,
}

impl Guest {
    fn boot(&self, plan: &ci::Plan, options: &Options) -> Result<bool> {
        println!("Linux {}", self.kernel.release);
        let disk = self.make_disk()?;
        let image = self.home.join("initramfs");
        let script = self.script(plan, options)?;
        fs::write(&image, initramfs::build(&self.kernel, &script)?)?;
        let log = self.home.join("console.log");
        // Of the last run.
        let _ = fs::remove_file(&log);
        let limit = Duration::from_secs(options.minutes * 60);
        let mut shown = 0;
        let tag = format!("SHEEN_GUEST={}", std::process::id());
        let mut machine = self.machine(&image, &disk);
        let end = bounded::run(&mut machine, &tag, limit, &log, &mut |_| show(&log, &mut shown));
        show(&log, &mut shown);
        // Tens of gigabytes at worst, and of no use to anybody.
        let _ = fs::remove_file(&disk);
        let end = end.with_context(|| format!("{EMULATOR} does not start"))?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        match text.lines().rev().find_map(|line| line.trim_end().strip_prefix(END_MARK)) {
            Some(status) => Ok(status.trim() == "0"),
            None => bail!("the guest ended without a result: {}; see {}", end.describe(), log.display()),
        }
    }

    /// A sparse file with an empty ext4: overlay and suites write there.
    fn make_disk(&self) -> Result<PathBuf> {
        let disk = self.home.join("disk");
        fs::File::create(&disk)?.set_len(DISK_BYTES)?;
        let mut command = Command::new("mkfs.ext4");
        command.env("PATH", search_path()).args(["-q", "-F", "-E", "lazy_itable_init=1"]).arg(&disk);
        let said = bounded::say(&mut command, "SHEEN_GUEST=disk", PREPARE_LIMIT)?;
        if !said.is_success() {
            bail!("mkfs.ext4 {}: {}", disk.display(), said.all().trim_end());
        }
        Ok(disk)
    }

    fn machine(&self, image: &Path, disk: &Path) -> Command {
        let mut command = Command::new(EMULATOR);
        // In software everywhere: a virtual machine within one hangs as often as it works.
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3072"]);
        command.args(["-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio"]);
        command.arg("-kernel").arg(&self.kernel.image).arg("-initrd").arg(image);
        command.args(["-append", "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on"]);
        let drive = format!("file={},if=virtio,format=raw,cache=unsafe,discard=unmap", disk.display());
        command.args(["-drive", &drive]);
        command.args(["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]);
        command.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        command.args(["-fsdev", &format!("local,id=out,path={},security_model=none", self.out.display())]);
        command.args(["-device", "virtio-9p-pci,fsdev=out,mount_tag=out"]);
        command
    }

    /// What the guest runs as its first process once its root is in place.
    fn script(&self, plan: &ci::Plan, options: &Options) -> Result<String> {
        let command = match &options.command {
            Some(command) => command.clone(),
            None => self.suites(plan, options),
        };
        let root = plan.root().display();
        Ok(format!(
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8\n\
             cd {root} || exit 1\n{command}\necho {END_MARK} $?\n"
        ))
    }

    fn suites(&self, plan: &ci::Plan, options: &Options) -> String {
        let mut runner = plan.runner_in("/scratch/work".as_ref(), "/out".as_ref());
        match options.suites.as_slice() {
            [] => runner.args(SUITES),
            chosen => runner.args(chosen),
        };
        runner.args(["--transport", "dev", "--patience", &options.patience.to_string()]);
        // Cases stop beginning before the machine would be stopped.
        runner.args(["--budget-seconds", &(options.minutes * 60).saturating_sub(90).to_string()]);
        if let Some(count) = options.count {
            runner.args(["--count", &count.to_string()]);
        }
        if let Some(only) = &options.only {
            runner.args(["--only", only]);
        }
        let words = std::iter::once(runner.get_program()).chain(runner.get_args());
        words.map(|word| format!("'{}'", word.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }
}

fn search_path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}

/// Copies to standard output what the log has gained.
fn show(log: &Path, shown: &mut u64) {
    let copy = || -> io::Result<u64> {
        let mut file = fs::File::open(log)?;
        file.seek(io::SeekFrom::Start(*shown))?;
        let mut bytes = Vec::new();
        let count = file.read_to_end(&mut bytes)?;
        io::stdout().write_all(&bytes)?;
        io::stdout().flush()?;
        Ok(count as u64)
    };
    // The log stays complete when standard output is closed.
    *shown += copy().unwrap_or(0);
}
