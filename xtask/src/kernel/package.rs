//! The kernel and the shell of the guest, from Debian's packages, unpacked below `target/kernel`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use mount_suites::bounded;

/// The package that names the current kernel of the release.
const KERNEL: &str = "linux-image-amd64";
const SHELL: &str = "busybox-static";
/// What the guest must be; on a later Debian there is nothing older to test than what runs here.
const VERSION: &str = "6.1.";
const LIMIT: Duration = Duration::from_secs(300);

/// An unpacked kernel.
pub struct Kernel {
    /// As uname(1) says it.
    pub release: String,
    pub image: PathBuf,
    /// Directory of its modules.
    pub modules: PathBuf,
    /// A static busybox.
    pub shell: PathBuf,
}

/// Downloads and unpacks what is not there yet.
///
/// # Errors
/// Why this machine cannot have it.
pub fn fetch(home: &Path) -> Result<Kernel> {
    let root = home.join("root");
    if let Ok(kernel) = find(&root) {
        return Ok(kernel);
    }
    let depends = say(Command::new("apt-cache").args(["depends", KERNEL]))?;
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let image = names.into_iter().find(|name| name.starts_with("linux-image-"));
    let image = image.with_context(|| format!("the package archive knows no {KERNEL}"))?;
    if !image.starts_with(&format!("linux-image-{VERSION}")) {
        bail!("the kernel of this release is {image}, not {VERSION}x");
    }
    let downloads = home.join("packages");
    fs::create_dir_all(&downloads)?;
    say(Command::new("apt-get").current_dir(&downloads).args(["-q", "download", image, SHELL]))?;
    for package in fs::read_dir(&downloads)?.flatten() {
        say(Command::new("dpkg-deb").arg("-x").arg(package.path()).arg(&root))?;
    }
    // Seventy megabytes that are unpacked now.
    let _ = fs::remove_dir_all(&downloads);
    find(&root)
}

fn find(root: &Path) -> Result<Kernel> {
    let versions = root.join("lib/modules");
    let entry = fs::read_dir(&versions)?.flatten().next().context("no modules in the kernel's package")?;
    let release = entry.file_name().to_string_lossy().into_owned();
    let kernel = Kernel {
        image: root.join(format!("boot/vmlinuz-{release}")),
        modules: entry.path().join("kernel"),
        shell: root.join("bin/busybox"),
        release,
    };
    for path in [&kernel.image, &kernel.modules, &kernel.shell] {
        if !path.exists() {
            bail!("{} is missing", path.display());
        }
    }
    Ok(kernel)
}

fn say(command: &mut Command) -> Result<String> {
    let said = bounded::say(command, "SHEEN_PACKAGE=1", LIMIT)?;
    if !said.is_success() {
        let program = command.get_program().to_string_lossy().into_owned();
        bail!("{program}: {}", said.all().lines().last().unwrap_or_default());
    }
    Ok(said.output)
}
