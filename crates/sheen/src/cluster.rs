//! What `up` remembers of a cluster: `DIR/cluster.json`.

use anyhow::{Context, Result, bail};
use base::ClientId;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use wire::Life;

pub const FILE: &str = "cluster.json";
/// Where it is written before it takes its place.
pub const FILE_ASIDE: &str = "cluster.json.new";
const FORMAT: u32 = 1;

/// One server process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Name of its log: `node`, `mgs`, `mdt0000`, `ost0003`.
    pub name: String,
    /// Target directories, relative to the cluster's.
    pub targets: Vec<String>,
    /// Address `HOST:PORT` on which it listened last; empty before its first start.
    pub address: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub format: u32,
    pub fsname: String,
    #[serde(with = "crate::path_words")]
    pub mount: PathBuf,
    pub is_split: bool,
    pub transport: String,
    pub mdt_count: u16,
    pub ost_count: u16,
    /// The first one has the management server.
    pub servers: Vec<Server>,
    /// The mount of `up` is the same client each time, so that servers need not wait for the one before it.
    #[serde(default)]
    pub mount_identity: Option<Identity>,
    /// Where the first server serves the metrics of the machine.
    #[serde(default)]
    pub metrics: Option<String>,
}

/// Who a mount is to its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity {
    pub client: u128,
    /// Rises with every start.
    pub incarnation: u64,
}

impl Identity {
    pub fn random() -> Identity {
        Identity { client: net::clock::random_u128(), incarnation: 1 }
    }

    pub fn life(self) -> Life {
        Life { client: ClientId(self.client), incarnation: self.incarnation }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}:{}", self.client, self.incarnation)
    }
}

impl FromStr for Identity {
    type Err = String;

    fn from_str(text: &str) -> Result<Identity, String> {
        let parse = || {
            let (client, incarnation) = text.split_once(':')?;
            let client = u128::from_str_radix(client, 16).ok()?;
            Some(Identity { client, incarnation: incarnation.parse().ok()? })
        };
        parse().ok_or_else(|| format!("'{text}' is no ID:INCARNATION"))
    }
}

impl TryFrom<String> for Identity {
    type Error = String;

    fn try_from(text: String) -> Result<Identity, String> {
        text.parse()
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> String {
        identity.to_string()
    }
}

/// The choices of `up`.
pub struct Shape {
    pub fsname: String,
    pub mount: PathBuf,
    pub is_split: bool,
    pub transport: String,
    pub mdt_count: u16,
    pub ost_count: u16,
}

impl Cluster {
    pub fn new(shape: Shape) -> Cluster {
        let mut targets = vec!["mgs".to_owned()];
        targets.extend((0..shape.mdt_count).map(|index| format!("mdt{index:04x}")));
        targets.extend((0..shape.ost_count).map(|index| format!("ost{index:04x}")));
        let server = |name: &str, targets| Server { name: name.to_owned(), targets, address: String::new() };
        let servers = if shape.is_split {
            targets.iter().map(|target| server(target, vec![target.clone()])).collect()
        } else {
            vec![server("node", targets)]
        };
        Cluster {
            format: FORMAT,
            fsname: shape.fsname,
            mount: shape.mount,
            is_split: shape.is_split,
            transport: shape.transport,
            mdt_count: shape.mdt_count,
            ost_count: shape.ost_count,
            servers,
            mount_identity: None,
            metrics: None,
        }
    }

    /// The identity for the next start of the mount; to be saved before it is used.
    pub fn next_identity(&mut self) -> Identity {
        let next = match self.mount_identity {
            Some(last) => Identity { incarnation: last.incarnation.saturating_add(1), ..last },
            None => Identity::random(),
        };
        self.mount_identity = Some(next);
        next
    }

    /// Reads the cluster of a directory; `None` when it has none.
    ///
    /// # Errors
    /// A file that is damaged or of another version.
    pub fn load(dir: &Path) -> Result<Option<Cluster>> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Cluster::parse(&path, &text).map(Some)
    }

    /// The cluster in the text of a file.
    pub fn parse(path: &Path, text: &str) -> Result<Cluster> {
        let Ok(cluster) = serde_json::from_str::<Cluster>(text) else {
            bail!("{} is damaged; restore it from a copy, or use another --dir", path.display());
        };
        if cluster.format != FORMAT {
            bail!(
                "{} has format {}, this build reads {FORMAT}; use the build that wrote it",
                path.display(),
                cluster.format
            );
        }
        if cluster.servers.is_empty() || cluster.servers.iter().any(|server| server.targets.is_empty()) {
            bail!("{} is damaged; restore it from a copy, or use another --dir", path.display());
        }
        Ok(cluster)
    }

    /// Writes aside and renames, so that a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let aside = dir.join(FILE_ASIDE);
        let write = || -> Result<()> {
            let mut file = fs::File::create(&aside)?;
            file.write_all(serde_json::to_string_pretty(self)?.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&aside, dir.join(FILE))?;
            fs::File::open(dir)?.sync_all()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", dir.join(FILE).display()))
    }

    /// Address of the management server; empty before its first start.
    pub fn mgs_address(&self) -> &str {
        self.servers.first().map_or("", |server| server.address.as_str())
    }
}

/// The directories of targets: those that are given, and those of clusters that are.
///
/// # Errors
/// A cluster that cannot be read.
pub fn target_dirs(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for dir in given {
        if !dir.join(FILE).exists() {
            directories.push(dir.clone());
            continue;
        }
        let cluster =
            Cluster::load(dir)?.with_context(|| format!("there is no cluster in {}", dir.display()))?;
        let names = cluster.servers.iter().flat_map(|server| &server.targets);
        directories.extend(names.map(|name| dir.join(name)));
    }
    Ok(directories)
}

#[cfg(test)]
mod tests;
