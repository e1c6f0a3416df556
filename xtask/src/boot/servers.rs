//! A cluster of this machine that virtual machines reach: one process each for MGT, MDT and OSTs, at ports of their own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

use mount_suites::{bounded, sweep};

use super::succeed;

const FSNAME: &str = "boot";
const TARGETS: [(&str, &[&str]); 4] = [
    ("mgs", &["--mgs"]),
    ("mdt0", &["--mdt", "--index", "0", "--fsname", FSNAME]),
    ("ost0", &["--ost", "--index", "0", "--fsname", FSNAME]),
    ("ost1", &["--ost", "--index", "1", "--fsname", FSNAME]),
];
/// The names of all servers, the MGS first.
pub const ALL: &[&str] = &["mgs", "mdt0", "ost0", "ost1"];
/// Those of data and metadata.
pub const TARGETS_OF_FILES: &[&str] = &["mdt0", "ost0", "ost1"];
const LIMIT: Duration = Duration::from_secs(600);

pub struct RequestCounts {
    pub mdt: u64,
    pub ost: u64,
}

/// Dropping it kills the servers and takes the mount and the data away.
pub struct Servers {
    sheen: PathBuf,
    data: PathBuf,
    /// Control sockets and the mount point, whose paths must be short.
    short: tempfile::TempDir,
    tag: String,
    host: IpAddr,
    ports: BTreeMap<&'static str, u16>,
    processes: RefCell<BTreeMap<String, Child>>,
}

impl Servers {
    /// Makes the targets, starts them and mounts the file system.
    pub fn start(sheen: &Path, data: &Path) -> Result<Servers> {
        if data.exists() {
            fs::remove_dir_all(data)?;
        }
        fs::create_dir_all(data)?;
        let host = own_address()?;
        let listeners =
            TARGETS.iter().map(|_| TcpListener::bind((host, 0))).collect::<Result<Vec<_>, _>>()?;
        let mut ports = BTreeMap::new();
        for ((name, _), listener) in TARGETS.iter().zip(&listeners) {
            ports.insert(*name, listener.local_addr()?.port());
        }
        drop(listeners);
        let servers = Servers {
            sheen: sheen.to_owned(),
            data: data.to_owned(),
            short: sweep::short_directory()?,
            tag: format!("SHEEN_BOOT={}", std::process::id()),
            host,
            ports,
            processes: RefCell::default(),
        };
        fs::create_dir(servers.mount())?;
        fs::create_dir(servers.short.path().join("run"))?;
        for (name, arguments) in TARGETS {
            let mut command = servers.command();
            command.arg("mkfs").args(arguments);
            if name != "mgs" {
                command.args(["--mgsnode", &servers.nid()]);
            }
            succeed(command.arg(data.join(name)), LIMIT)?;
            servers.restart(&[name])?;
        }
        let what = format!("{}:/{FSNAME}", servers.nid());
        succeed(
            servers.command().arg("mount").arg(what).arg(servers.mount()).args(["-o", "retry=6"]),
            LIMIT,
        )?;
        Ok(servers)
    }

    fn mount(&self) -> PathBuf {
        self.short.path().join("mnt")
    }

    fn nid(&self) -> String {
        self.nid_at(self.ports.get("mgs").copied().unwrap_or_default())
    }

    fn nid_at(&self, port: u16) -> String {
        format!("{}:{port}@tcp", self.host)
    }

    /// What a node boots from.
    pub fn image(&self, name: &str) -> String {
        format!("{}:/{FSNAME}/images/{name}", self.nid())
    }

    /// The same at two NIDs, at the first of which nobody listens.
    pub fn image_at_two_nids(&self, name: &str) -> Result<String> {
        let nobody = self.nid_at(TcpListener::bind((self.host, 0))?.local_addr()?.port());
        Ok(format!("{nobody}:{}", self.image(name)))
    }

    /// Copies a root into a new image.
    pub fn make_image(&self, name: &str, from: &Path) -> Result<()> {
        let images = self.mount().join("images");
        fs::create_dir_all(&images)?;
        let mut command = self.command();
        command.args(["image", "create"]).arg(images.join(name)).arg("--from").arg(from);
        succeed(&mut command, LIMIT).map(drop)
    }

    /// Brings an image up to date with a root.
    pub fn update_image(&self, name: &str, from: &Path, arguments: &[&str]) -> Result<()> {
        let mut command = self.command();
        command.args(["image", "update"]).arg(self.mount().join("images").join(name));
        succeed(command.arg("--from").arg(from).args(arguments), LIMIT).map(drop)
    }

    /// What `sheen image list` says of all images.
    pub fn list_images(&self) -> Result<String> {
        succeed(self.command().args(["image", "list"]).arg(self.mount().join("images")), LIMIT)
    }

    /// Requests that the MDT and the OSTs have executed since they were started.
    pub fn request_counts(&self) -> Result<RequestCounts> {
        let count = |name: &str, unit_of_requests: &str| -> Result<u64> {
            let text = succeed(self.command().args(["lctl", "get_param", "-n", name]), LIMIT)?;
            let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let counts = rows.filter_map(|row| match row.as_slice() {
                [_, count, "samples", unit, ..] if *unit == unit_of_requests => count.parse::<u64>().ok(),
                _ => None,
            });
            Ok(counts.sum())
        };
        Ok(RequestCounts {
            // The other rows count what requests had to do or how much, not requests.
            mdt: count("mdt.*.md_stats", "[usecs]")?,
            ost: count("obdfilter.*.stats", "[reqs]")?,
        })
    }

    /// SIGKILL; they are gone when this returns.
    pub fn kill(&self, names: &[&str]) -> Result<()> {
        let mut processes = self.processes.borrow_mut();
        for name in names {
            let mut process = processes.remove(*name).with_context(|| format!("{name} does not run"))?;
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }

    /// Starts servers that do not run.
    pub fn restart(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let port = self.ports.get(name).context("no such server")?;
            let mut command = self.command();
            command.args(["serve", "--insecure-network", "--listen", &format!("{}:{port}", self.host)]);
            command.arg("--log").arg(self.data.join(format!("{name}.log"))).arg(self.data.join(name));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let process = bounded::spawn_tagged(&mut command, &self.tag)?;
            self.processes.borrow_mut().insert((*name).to_owned(), process);
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.sheen);
        command.env("SHEEN_RUN", self.short.path().join("run"));
        if let Some((name, value)) = self.tag.split_once('=') {
            command.env(name, value);
        }
        command
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        sweep::release(self.short.path(), &self.tag);
        for process in self.processes.get_mut().values_mut() {
            // Killed above; it only has to be buried.
            let _ = process.wait();
        }
        // The logs are of use to somebody, the targets are not.
        for (name, _) in TARGETS {
            let _ = fs::remove_dir_all(self.data.join(name));
        }
    }
}

/// An address of this machine that a guest reaches, too: not one of the loopback, which would be the guest's own.
fn own_address() -> Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent: this only chooses a route.
    socket.connect("198.51.100.1:9").context("this machine has no network address but its loopback")?;
    Ok(socket.local_addr()?.ip())
}
