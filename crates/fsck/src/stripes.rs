//! Striped directories: each stripe has its master, and follows it.

use crate::finding::{Finding, Findings, Kind, RESTORE, Repair};
use crate::image::Image;
use crate::index::{Index, has_link};
use crate::repair::{Edit, Step};
use base::{Fid, TargetId};
use mds::rows::{self, Inode};

pub(crate) fn check(image: &Image, index: &Index, out: &mut Findings) {
    for (at, mdt) in &image.mdts {
        let target = TargetId::mdt(*at);
        // One that was removed has let its stripes go, and stays itself until everybody who may have it open has come back.
        for master in mdt.inodes.values().filter(|inode| !mdt.orphans.contains(&inode.attr.fid)) {
            for stripe in master.stripes.iter().skip(1) {
                check_stripe(image, index, (target, master), *stripe, out);
            }
        }
        for (fid, links) in &mdt.links {
            for (master, _) in links.iter().filter(|(_, name)| name.is_empty()) {
                check_master(image, index, (target, *fid), *master, out);
            }
        }
    }
}

fn check_stripe(
    image: &Image,
    index: &Index,
    (target, master): (TargetId, &Inode),
    fid: Fid,
    out: &mut Findings,
) {
    let of = master.attr.fid;
    if image.is_moving(of) || !image.is_certain(fid) {
        return;
    }
    let Some(mdt_index) = fid.mdt_index().filter(|_| image.has(fid)) else {
        let what = format!("its stripe {fid} is not there");
        let finding = Finding::new(Kind::StripeMissing, target, index.called(of), what, Repair::Not(RESTORE));
        return out.add(finding);
    };
    let own = TargetId::mdt(mdt_index);
    if !has_link(image, fid, (of, b"")) {
        let key = rows::link_key(fid, of, b"");
        let put = Step::Put { target: own, table: rows::LINKS, key, value: Vec::new() };
        let (what, repair) = ("it does not know whose stripe it is", Repair::fix("note it", vec![put]));
        out.add(Finding::new(Kind::LinkMissing, own, index.called(fid), what, repair));
    }
    let Some(stripe) = image.inode(fid) else { return };
    if what_follows(stripe) != what_follows(master) {
        let edit = Edit::Follow(Box::new(master.clone()));
        let repair = Repair::fix("take them over", vec![Step::Inode { target: own, fid, edit }]);
        let what = "permissions, owner or defaults are not those of the directory";
        out.add(Finding::new(Kind::StripeDiffers, own, index.called(fid), what, repair));
    }
}

fn what_follows(inode: &Inode) -> impl PartialEq + use<'_> {
    let attr = &inode.attr;
    (attr.permissions, attr.uid, attr.gid, &inode.default_layout, &inode.default_striping)
}

fn check_master(
    image: &Image,
    index: &Index,
    (target, fid): (TargetId, Fid),
    master: Fid,
    out: &mut Findings,
) {
    // A link without an inode is damage of another kind.
    if image.is_moving(fid) || !image.is_certain(master) || !image.has(fid) {
        return;
    }
    let is_listed = match image.inode(master) {
        Some(inode) => inode.stripes.contains(&fid),
        None => image.has(master),
    };
    if !is_listed {
        let what = format!("it says to be a stripe of {master}, which has none such");
        let repair = Repair::Not("its names belong to a directory that is not known");
        out.add(Finding::new(Kind::StripeWithoutMaster, target, index.called(fid), what, repair));
    }
}
