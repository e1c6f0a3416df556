//! The offline checker, over the disks of a simulated cluster.

use crate::servers::{FSNAME, Server};
use base::TargetKind;
use fsck::{Options, Report, Target};
use store::{MetaStore, ObjectStore};

/// What is wrong with the rows and objects of these targets, which are all that there are; `None` when nothing is.
pub(crate) fn find_damage<'a>(servers: impl Iterator<Item = &'a Server>) -> Option<String> {
    let (report, mut lines) = check(servers);
    lines.extend(undone(&report));
    joined(lines)
}

/// The same once all mounts have gone. As long as one may come back, little is certain of files and their objects.
pub(crate) fn find_damage_of_nobody<'a>(servers: impl Iterator<Item = &'a Server>) -> Option<String> {
    let (report, mut lines) = check(servers);
    lines.extend(undone(&report));
    if !report.awaiting.is_empty() {
        lines.push(format!("{:?} wait for mounts that have gone", report.awaiting));
    }
    joined(lines)
}

/// The same in the middle of something, with some of the targets down.
pub(crate) fn find_damage_under_way<'a>(servers: impl Iterator<Item = &'a Server>) -> Option<String> {
    joined(check(servers).1)
}

fn undone(report: &Report) -> Option<String> {
    (report.pending_count > 0)
        .then(|| format!("{} operations are not executed everywhere", report.pending_count))
}

fn joined(lines: Vec<String>) -> Option<String> {
    (!lines.is_empty()).then(|| lines.join("; "))
}

fn check<'a>(servers: impl Iterator<Item = &'a Server>) -> (Report, Vec<String>) {
    let target = |server: &'a Server| Target {
        id: server.id,
        uuid: Some(Server::uuid(server.id)),
        meta: Some(&*server.meta as &dyn MetaStore),
        objects: (server.id.kind == TargetKind::Ost).then_some(&*server.objects as &dyn ObjectStore),
    };
    let targets: Vec<Target> = servers.map(target).collect();
    let options = Options { fsname: FSNAME.into(), reads_data: true, ..Options::default() };
    let report = fsck::check(&targets, &options, &mut |_| {});
    let lines = report.findings.iter().map(ToString::to_string).collect();
    (report, lines)
}
