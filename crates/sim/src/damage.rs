//! The offline checker, over the disks of a simulated cluster.

use crate::servers::{FSNAME, Server};
use base::TargetKind;
use fsck::{Options, Target};
use store::{MetaStore, ObjectStore};

/// What is wrong with the rows and objects of these targets, which are all that there are; `None` when nothing is.
pub(crate) fn find_damage<'a>(servers: impl Iterator<Item = &'a Server>) -> Option<String> {
    let target = |server: &'a Server| Target {
        id: server.id,
        uuid: Some(Server::uuid(server.id)),
        meta: Some(&*server.meta as &dyn MetaStore),
        objects: (server.id.kind == TargetKind::Ost).then_some(&*server.objects as &dyn ObjectStore),
    };
    let targets: Vec<Target> = servers.map(target).collect();
    let options = Options { fsname: FSNAME.into(), reads_data: true };
    let report = fsck::check(&targets, &options, &mut |_| {});
    let mut lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    if report.pending_count > 0 {
        lines.push(format!("{} operations are not executed everywhere", report.pending_count));
    }
    (!lines.is_empty()).then(|| lines.join("; "))
}
