//! Targets that are older than what others know of them: restored from an older copy.
//!
//! Whatever such a target does not know looks like something that nobody has, and a repair would remove it. So nothing is repaired
//! while there is one. What is said of it is certain: a target serves nothing before its epoch is durable, and an MDT forgets a streamed
//! part only when the participant has made it durable.

use crate::finding::{Finding, Findings, Kind, Repair};
use crate::image::{Image, Sessions, epoch_of};
use base::{Endpoint, Epoch, Fid, TargetId, TargetKind};
use std::collections::{BTreeMap, BTreeSet};

const RESTORE_NEWEST: &str =
    "restore its newest copy, as new as the others are; what it does not know would be taken for nobody's";
/// What becomes of all other findings meanwhile.
pub(crate) const WAITS: &str = "a target is older than the others are: restore its newest copy first";

/// What the other targets know of an MDT.
#[derive(Default)]
struct Known {
    /// The latest incarnation that they have heard of, and how they know.
    latest: BTreeMap<u16, (Epoch, String)>,
}

impl Known {
    fn note(&mut self, mdt: u16, epoch: Epoch, how: impl FnOnce() -> String) {
        if self.latest.get(&mdt).is_none_or(|(latest, _)| *latest < epoch) {
            self.latest.insert(mdt, (epoch, how()));
        }
    }

    fn note_fid(&mut self, by: TargetId, fid: Fid, what: &str) {
        if let (Some(mdt), Some(epoch)) = (fid.mdt_index(), epoch_of(fid))
            && by != TargetId::mdt(mdt)
        {
            self.note(mdt, epoch, || format!("{by} has {what} with the FID {fid}"));
        }
    }

    /// An MDT connects before its epoch is durable: after a crash then, others know one that it does not, and that it begins anew.
    fn note_session(&mut self, by: TargetId, mdt: u16, incarnation: u64) {
        let at_least = Epoch(incarnation.saturating_sub(1));
        self.note(mdt, at_least, || format!("{by} has a session with its epoch {incarnation}"));
    }
}

pub(crate) fn check(image: &Image, out: &mut Findings) {
    for (mdt, (latest, how)) in known(image).latest {
        let (Some(of), target) =
            (image.mdts.get(&mdt).filter(|mdt| mdt.sessions.is_whole), TargetId::mdt(mdt))
        else {
            continue;
        };
        let own = of
            .inodes
            .keys()
            .filter(|fid| fid.mdt_index() == Some(mdt))
            .filter_map(|fid| epoch_of(*fid))
            .max();
        let own = own.max(of.sessions.epoch).max(Some(of.sessions.applied.epoch())).unwrap_or_default();
        if own < latest {
            let what = format!("it knows nothing behind its epoch {own}, and {how}");
            out.add(Finding::new(Kind::TargetOutdated, target, "epoch", what, Repair::Not(RESTORE_NEWEST)));
        }
    }
    check_streams(image, out);
    check_callers(image, out);
}

/// Targets of which another copy has called others: it took the same epoch, at another time.
fn check_callers(image: &Image, out: &mut Findings) {
    let all: BTreeMap<TargetId, &Sessions> = image.all_sessions().collect();
    for (by, sessions) in &all {
        for (client, known) in &sessions.callers {
            let Endpoint::Target(target) = client.endpoint() else { continue };
            let Some(of) = all.get(&target).filter(|of| of.is_whole) else { continue };
            if of.starts.iter().any(|own| own.contradicts(*known)) {
                let what = format!("{by} was called by it as {known}, which is none of this copy's");
                out.add(Finding::new(
                    Kind::TargetOutdated,
                    target,
                    "start",
                    what,
                    Repair::Not(RESTORE_NEWEST),
                ));
            }
        }
    }
}

fn known(image: &Image) -> Known {
    let mut known = Known::default();
    for (at, ost) in &image.osts {
        let by = TargetId::ost(*at);
        let objects = ost.objects.keys().chain(ost.born.keys()).chain(&ost.tombstones);
        objects.for_each(|object| known.note_fid(by, object.fid, "an object"));
        peers_of(&ost.sessions.clients)
            .for_each(|(mdt, incarnation)| known.note_session(by, mdt, incarnation));
    }
    for (at, mdt) in &image.mdts {
        let by = TargetId::mdt(*at);
        let leads = mdt.dentries.values().flatten().map(|dentry| dentry.fid);
        leads.for_each(|fid| known.note_fid(by, fid, "a name of an inode"));
        let parents = mdt.links.values().flatten().map(|(parent, _)| *parent);
        parents.for_each(|fid| known.note_fid(by, fid, "an inode in a directory"));
        mdt.moved.values().flatten().for_each(|fid| known.note_fid(by, *fid, "moved an inode to one"));
        peers_of(&mdt.sessions.clients)
            .for_each(|(mdt, incarnation)| known.note_session(by, mdt, incarnation));
        for (coordinator, executed) in &mdt.executed {
            known.note(*coordinator, Epoch(executed.epoch), || {
                format!("{by} has executed an operation of it of epoch {}", executed.epoch)
            });
        }
    }
    for (by, sessions) in image.all_sessions() {
        for (client, start) in &sessions.callers {
            if let Endpoint::Target(TargetId { kind: TargetKind::Mdt, index }) = client.endpoint() {
                known.note(index, start.epoch, || format!("{by} was called by it as {start}"));
            }
        }
    }
    known
}

/// Sessions of MDTs, and with which incarnation.
fn peers_of(clients: &BTreeMap<base::ClientId, u64>) -> impl Iterator<Item = (u16, u64)> + '_ {
    clients.iter().filter_map(|(client, incarnation)| match client.endpoint() {
        Endpoint::Target(TargetId { kind: TargetKind::Mdt, index }) => Some((index, *incarnation)),
        _ => None,
    })
}

/// A coordinator keeps each part until its participant has it durably: what came before the first that it keeps, the participant had.
fn check_streams(image: &Image, out: &mut Findings) {
    for (at, mdt) in &image.mdts {
        for (participant, previous) in &mdt.streamed_after {
            let Some(of) = image.mdts.get(participant).filter(|mdt| mdt.is_whole) else { continue };
            if previous.epoch == 0 || of.executed.get(at).is_some_and(|executed| executed >= previous) {
                continue;
            }
            let by = TargetId::mdt(*at);
            let what = format!(
                "it has not executed what it told {by} to have executed durably (operation {} of epoch {})",
                previous.number, previous.epoch
            );
            let (target, repair) = (TargetId::mdt(*participant), Repair::Not(RESTORE_NEWEST));
            out.add(Finding::new(Kind::TargetOutdated, target, format!("stream of {by}"), what, repair));
        }
    }
}

/// MDTs that rows speak of, and that are not among the targets.
pub(crate) fn unknown_mdts(image: &Image) -> BTreeSet<TargetId> {
    let objects = image.osts.values().flat_map(|ost| ost.objects.keys()).map(|object| object.fid);
    let leads = image.mdts.values().flat_map(|mdt| mdt.dentries.values().flatten()).map(|dentry| dentry.fid);
    let parents = image.mdts.values().flat_map(|mdt| mdt.links.values().flatten()).map(|(parent, _)| *parent);
    let of_fids = objects.chain(leads).chain(parents).filter_map(Fid::mdt_index);
    let sessions =
        image.osts.values().map(|ost| &ost.sessions).chain(image.mdts.values().map(|mdt| &mdt.sessions));
    let of_sessions = sessions.flat_map(|sessions| peers_of(&sessions.clients)).map(|(mdt, _)| mdt);
    of_fids.chain(of_sessions).filter(|mdt| !image.mdts.contains_key(mdt)).map(TargetId::mdt).collect()
}
