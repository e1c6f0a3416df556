//! Sessions, epochs, and the configuration at the MGS.

use crate::Target;
use crate::finding::{Finding, Findings, Kind, Repair};
use crate::image::{Image, Sessions, epoch_of};
use crate::repair::Step;
use base::{Epoch, Fid, TargetId, TargetKind};
use target::core::inspect;

pub(crate) fn check(image: &Image, targets: &[Target<'_>], out: &mut Findings) {
    for (at, mdt) in &image.mdts {
        // Numbers of FIDs follow from the epoch too.
        let own = mdt.inodes.keys().filter(|fid| fid.mdt_index() == Some(*at) && **fid != Fid::ROOT);
        let used = own.filter_map(|fid| epoch_of(*fid)).max();
        check_target(TargetId::mdt(*at), &mdt.sessions, used, out);
    }
    for (at, ost) in &image.osts {
        check_target(TargetId::ost(*at), &ost.sessions, None, out);
    }
    check_config(image, targets, out);
}

fn check_target(target: TargetId, sessions: &Sessions, used: Option<Epoch>, out: &mut Findings) {
    if !sessions.is_whole {
        return;
    }
    let used = used.max(Some(sessions.applied.epoch())).unwrap_or_default();
    let epoch = sessions.epoch.unwrap_or_default();
    if epoch < used {
        let what =
            format!("it is {epoch}, and numbers of epoch {used} are in use: they would be given out again");
        let repair = match sessions.epoch {
            Some(_) => Repair::fix("raise it", vec![Step::Epoch { target, epoch: used }]),
            None => Repair::Not("the row is gone; restore the target from a mirror or backup"),
        };
        out.add(Finding::new(Kind::EpochBehind, target, "epoch", what, repair));
    }
    for (client, keys) in sessions.slots.iter().filter(|(client, _)| !sessions.clients.contains_key(client)) {
        let table = inspect::SLOT_TABLE;
        let delete = |key: &Vec<u8>| Step::Delete { target, table, key: key.clone() };
        let repair = Repair::fix("remove them", keys.iter().map(delete).collect());
        let what = format!("{} answers are kept for a client that has no session", keys.len());
        out.add(Finding::new(Kind::SlotWithoutClient, target, format!("client {client}"), what, repair));
    }
}

fn check_config(image: &Image, targets: &[Target<'_>], out: &mut Findings) {
    let Some(config) = &image.config else { return };
    for target in targets.iter().filter(|target| target.id.kind != TargetKind::Mgt) {
        let known = config.target(target.id).map(|known| known.uuid);
        if let (Some(known), Some(uuid)) = (known, target.uuid)
            && known != uuid
        {
            let what = format!("the MGS knows {} as {known:032x}, and this one is {uuid:032x}", target.id);
            let repair = Repair::Not("one of the directories is not of this file system");
            out.add(Finding::new(Kind::ConfigUuidWrong, target.id, "uuid", what, repair));
        }
    }
    for pool in &config.pools {
        for ost in pool.osts.iter().filter(|ost| config.target(TargetId::ost(**ost)).is_none()) {
            let what = format!("{} is in it and never registered", TargetId::ost(*ost));
            let subject = format!("pool {}", pool.name);
            let repair = Repair::Not("take it out with `sheen lctl pool_remove`");
            out.add(Finding::new(Kind::PoolOstUnknown, TargetId::MGT, subject, what, repair));
        }
    }
}
