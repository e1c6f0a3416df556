//! What `status` looks at: all processes, or those of one cluster, and what they count.

use super::alerts::{self, Alert};
use super::{DOWN, REFUSED, SILENT, flatten, name_of};
use crate::cluster::Cluster;
use crate::control::{self, Ask, MountStatus, Process, TargetStatus};
use crate::metrics::{Figures, figures_of};
use crate::mount::unasked::{self, Unasked};
use crate::mount_table::Mounted;
use crate::nid;
use crate::say;
use crate::served::{self, Gone};
use crate::sys;
use crate::up;
use anyhow::{Result, bail};
use serde::Serialize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
pub struct Report {
    pub fsname: Option<String>,
    pub mgs_nid: Option<String>,
    #[serde(with = "crate::path_words::option")]
    pub dir: Option<PathBuf>,
    pub targets: Vec<Target>,
    pub mounts: Vec<MountStatus>,
    pub alerts: Vec<Alert>,
    /// Mounts whose processes are not to be asked here.
    #[serde(skip)]
    pub elsewhere: Vec<PathBuf>,
}

#[derive(Serialize)]
pub struct Target {
    #[serde(flatten)]
    pub status: TargetStatus,
    /// With a session, other targets included; `None` when it does not say.
    pub client_count: Option<u64>,
    pub space: Option<Space>,
}

/// Of the local file system; what is available is without the reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Space {
    pub bytes_total: u64,
    pub bytes_available: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
}

/// What was heard.
pub struct Heard {
    pub processes: Vec<Process>,
    /// They live, and do not answer.
    pub silent: Vec<u32>,
    /// What those serve that have written it down.
    pub silent_targets: Vec<TargetStatus>,
    /// Servers that have died, with what nobody serves since.
    pub gone: Vec<Gone>,
    /// Mounts that no process has told of.
    pub unasked: Vec<(Mounted, Unasked)>,
    pub figures: Figures,
}

impl Heard {
    fn now() -> Heard {
        // Both questions at the same time: who is silent is silent to both.
        let ((processes, silent), figures) = std::thread::scope(|scope| {
            let counting = scope.spawn(|| control::ask_all(&control::run_dir(), &Ask::Metrics));
            // Of what cannot be counted nothing is shown.
            (control::processes_and_silent(), figures_of(counting.join().unwrap_or_default()))
        });
        let silent_targets = served::of_silent(&silent);
        let is_served = |dir: &Path| {
            let told = processes.iter().flat_map(|process| &process.targets);
            told.chain(&silent_targets).any(|target| target.dir == dir)
        };
        let gone = served::gone(|dir| {
            is_served(dir) || silent.iter().any(|pid| control::was_started_with(*pid, dir))
        });
        let unasked = unasked::all(&processes);
        Heard { processes, silent, silent_targets, gone, unasked, figures }
    }

    /// Only what belongs to the cluster in a directory, or mounts it.
    fn keep_cluster(&mut self, dir: &Path, source: Option<&str>) {
        self.processes.retain(|process| up::belongs(process, dir));
        // The cluster knows its targets, also those that nobody has served yet.
        self.gone.clear();
        let mounts = |pid: u32| {
            source.is_some_and(|source| control::has_word(pid, |word| word.starts_with(source.as_bytes())))
        };
        self.unasked.retain(|(mounted, _)| source.is_some_and(|source| mounted.source.starts_with(source)));
        self.silent_targets.retain(|target| target.dir.starts_with(dir));
        let serves = |pid: u32| self.silent_targets.iter().any(|target| target.pid == pid);
        let has_mounted = |pid: u32| self.unasked.iter().any(|(_, why)| why.pid() == Some(pid));
        let mounts = |pid: u32| mounts(pid) || has_mounted(pid);
        self.silent.retain(|pid| control::was_started_with(*pid, dir) || serves(*pid) || mounts(*pid));
    }
}

impl Report {
    /// Everything on this machine, or the cluster whose data are in a directory.
    ///
    /// # Errors
    /// There is no cluster, or those that run are of other users.
    pub fn look(dir: Option<&Path>) -> Result<Report> {
        let mut heard = Heard::now();
        let is_own = |dir: &Path| {
            sys::uid() == 0 || std::fs::metadata(dir).is_ok_and(|metadata| metadata.uid() == sys::uid())
        };
        // Whose processes answer nobody else is not down.
        if heard.processes.is_empty() && heard.silent.is_empty() && !dir.is_some_and(is_own) {
            control::check_others()?;
        }
        let mut report = match dir {
            Some(dir) => of_cluster(dir, &mut heard)?,
            None => {
                let (mut targets, mounts) = flatten(&heard.processes);
                targets.extend(heard.silent_targets.iter().cloned());
                targets.extend(heard.gone.iter().flat_map(|gone| gone.targets.clone()));
                Report::new(targets, mounts)
            }
        };
        report.add_figures(&heard.figures);
        report.alerts = alerts::of(&report, &heard);
        let elsewhere = heard.unasked.iter().filter(|(_, why)| *why == Unasked::Elsewhere);
        report.elsewhere = elsewhere.map(|(mounted, _)| mounted.path.clone()).collect();
        Ok(report)
    }

    pub fn add_figures(&mut self, figures: &Figures) {
        self.targets.iter_mut().for_each(|target| target.add_figures(figures));
    }

    pub fn new(targets: Vec<TargetStatus>, mounts: Vec<MountStatus>) -> Report {
        let target = |status| Target { status, client_count: None, space: None };
        let targets = targets.into_iter().map(target).collect();
        Report {
            fsname: None,
            mgs_nid: None,
            dir: None,
            targets,
            mounts,
            alerts: Vec::new(),
            elsewhere: Vec::new(),
        }
    }
}

impl Target {
    pub fn name(&self) -> String {
        name_of(&self.status)
    }

    /// What its process counts; of a target that nobody serves here nothing is known. The clients that one has which is refused are another's.
    fn add_figures(&mut self, figures: &Figures) {
        let name = self.name();
        let figure = |family: &str, labels: &[&str]| {
            figures
                .get(self.status.pid, family, &[&[name.as_str()], labels].concat())
                .map(|value| value as u64)
        };
        let client_count = figure("sheen_target_exports", &[]);
        self.client_count = client_count.filter(|_| self.status.state != REFUSED);
        let bytes =
            figure("sheen_target_space", &["total"]).zip(figure("sheen_target_space", &["available"]));
        let inodes = figure("sheen_target_inodes", &["total"]).zip(figure("sheen_target_inodes", &["free"]));
        self.space =
            bytes.zip(inodes).map(|((bytes_total, bytes_available), (inodes_total, inodes_free))| Space {
                bytes_total,
                bytes_available,
                inodes_total,
                inodes_free,
            });
    }
}

pub fn of_cluster(dir: &Path, heard: &mut Heard) -> Result<Report> {
    let (mut running, mut mounts) = flatten(&heard.processes);
    let serving: Vec<TargetStatus> =
        up::targets_of(&heard.processes, &heard.silent_targets).cloned().collect();
    running.retain(|target| target.dir.starts_with(dir));
    let loaded = Cluster::load(dir);
    let source = loaded.as_ref().ok().and_then(|cluster| {
        let cluster = cluster.as_ref()?;
        let nid = nid::format_nid(cluster.mgs_address());
        (!up::is_taken(&nid, dir, serving.iter())).then(|| format!("{nid}:/{}", cluster.fsname))
    });
    heard.keep_cluster(dir, source.as_deref());
    let cluster = match loaded {
        Ok(Some(cluster)) => cluster,
        Ok(None) => bail!("there is no cluster in {}; say where with --dir", dir.display()),
        // The disk is dead and servers work on: what they say is all that there is to know.
        Err(error) if !running.is_empty() => {
            say::note(format_args!("{error:#}; this is what its processes say"));
            let mounts = heard.processes.iter().flat_map(|process| process.mounts.clone()).collect();
            let fsname = running.iter().map(|target| target.fsname.clone()).find(|name| !name.is_empty());
            return Ok(Report { fsname, dir: Some(dir.to_owned()), ..Report::new(running, mounts) });
        }
        Err(error) => return Err(error),
    };
    let mgs_nid = nid::format_nid(cluster.mgs_address());
    mounts.retain(|mount| up::is_of(mount, &cluster, dir, serving.iter()));
    let mut targets = Vec::new();
    for server in &cluster.servers {
        for name in &server.targets {
            let path = dir.join(name);
            let found = running.iter().find(|target| target.dir == path).cloned();
            let known =
                heard.silent_targets.iter().find(|target| target.dir == path).map(|target| target.pid);
            let started = || heard.silent.iter().copied().find(|pid| control::was_started_with(*pid, &path));
            let silent = known.or_else(started);
            let state = if silent.is_some() { SILENT } else { DOWN };
            targets.push(found.unwrap_or_else(|| TargetStatus {
                name: name.to_uppercase(),
                fsname: cluster.fsname.clone(),
                dir: path,
                nid: nid::format_nid(&server.address),
                state: state.to_owned(),
                pid: silent.unwrap_or_default(),
                recovery: None,
                owner: None,
                alert: None,
                unserved: None,
                unheard: Vec::new(),
            }));
        }
    }
    Ok(Report {
        fsname: Some(cluster.fsname),
        mgs_nid: Some(mgs_nid),
        dir: Some(dir.to_owned()),
        ..Report::new(targets, mounts)
    })
}
