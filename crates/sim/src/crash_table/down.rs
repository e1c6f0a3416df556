//! What decides which state is lost: who is gone, how, and when disks sync. Each as it stands on the command line.

use base::{TargetId, TargetKind};
use std::fmt;
use std::str::FromStr;

/// Machines that are gone at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Down(u16);

/// Of the cluster of the table.
pub const OST_COUNT: u16 = 1;
const MDT_COUNT_MAX: u16 = 3;

impl Down {
    const CLIENT: u16 = 1;
    const FIRST_MDT: u16 = 1;
    const FIRST_OST: u16 = Down::FIRST_MDT + MDT_COUNT_MAX;

    /// Every set of the client, so many MDTs and so many OSTs. The empty one, the first, is the control.
    pub fn all(mdt_count: u16, ost_count: u16) -> impl Iterator<Item = Down> {
        let osts = (0..1 << ost_count).map(|osts: u16| osts << Down::FIRST_OST);
        osts.flat_map(move |osts| (0..1 << (mdt_count + 1)).map(move |others: u16| Down(osts | others)))
    }

    pub fn has_client(self) -> bool {
        self.0 & Down::CLIENT != 0
    }

    pub fn has_target(self, id: TargetId) -> bool {
        self.targets().any(|target| target == id)
    }

    pub fn targets(self) -> impl Iterator<Item = TargetId> {
        let has = move |bit: u16| self.0 >> bit & 1 == 1;
        let mdts = (0..MDT_COUNT_MAX).filter(move |index| has(Down::FIRST_MDT + index)).map(TargetId::mdt);
        mdts.chain((0..OST_COUNT).filter(move |index| has(Down::FIRST_OST + index)).map(TargetId::ost))
    }

    pub fn has_ost(self) -> bool {
        self.targets().any(|id| id.kind == TargetKind::Ost)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a cluster with so many MDTs has them all.
    pub fn is_within(self, mdt_count: u16) -> bool {
        self.targets().all(|id| id.kind == TargetKind::Ost || id.index < mdt_count)
    }
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let client = self.has_client().then(|| "client".to_string());
        let names: Vec<String> = client.into_iter().chain(self.targets().map(short_name)).collect();
        f.write_str(if names.is_empty() { "nobody" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

impl FromStr for Down {
    type Err = String;

    fn from_str(text: &str) -> Result<Down, String> {
        let mut set = 0;
        for name in text.split(',').filter(|name| *name != "nobody") {
            set |= match name {
                "client" => Down::CLIENT,
                target => 1 << bit_of(target).ok_or_else(|| wrong(text))?,
            };
        }
        Ok(Down(set))
    }
}

fn wrong(text: &str) -> String {
    format!(
        "{text:?} names no machines; write client, mdt0, mdt1, mdt2 or ost0, with commas between them, or nobody"
    )
}

fn short_name(id: TargetId) -> String {
    let kind = if id.kind == TargetKind::Ost { "ost" } else { "mdt" };
    format!("{kind}{}", id.index)
}

fn bit_of(name: &str) -> Option<u16> {
    let ost = || name.strip_prefix("ost")?.parse().ok().filter(|index: &u16| *index < OST_COUNT);
    mdt_index(name).map(|index| Down::FIRST_MDT + index).or_else(|| Some(Down::FIRST_OST + ost()?))
}

fn mdt_index(name: &str) -> Option<u16> {
    name.strip_prefix("mdt")?.parse().ok().filter(|index| *index < MDT_COUNT_MAX)
}

/// When disks of MDTs sync. That of the MGS syncs at once, and so do those of OSTs, unless it is `Never` and the operation has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// When nothing else can go on.
    Never,
    /// After each write.
    Each,
    /// After each write on this MDT, and on the others when nothing else can go on.
    Only(u16),
}

impl Syncs {
    pub fn all(mdt_count: u16) -> impl Iterator<Item = Syncs> {
        [Syncs::Never, Syncs::Each].into_iter().chain((0..mdt_count).map(Syncs::Only))
    }

    pub fn is_prompt(self, index: u16) -> bool {
        match self {
            Syncs::Never => false,
            Syncs::Each => true,
            Syncs::Only(only) => only == index,
        }
    }
}

impl fmt::Display for Syncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syncs::Never => f.write_str("never"),
            Syncs::Each => f.write_str("each"),
            Syncs::Only(index) => write!(f, "mdt{index}"),
        }
    }
}

impl FromStr for Syncs {
    type Err = String;

    fn from_str(text: &str) -> Result<Syncs, String> {
        match text {
            "never" => Ok(Syncs::Never),
            "each" => Ok(Syncs::Each),
            mdt => mdt_index(mdt)
                .map(Syncs::Only)
                .ok_or_else(|| format!("{text:?} is no time to sync; write never, each, mdt0, mdt1 or mdt2")),
        }
    }
}

/// How machines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Disks have what was synced, and what was sent and has not arrived is lost.
    Power,
    /// The same, but of the log that was not synced the first half is there, too.
    Torn,
    /// Disks have all that was handed over, and what was sent arrives.
    Process,
}

impl Death {
    pub const ALL: [Death; 3] = [Death::Power, Death::Torn, Death::Process];
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Death::Power => "power",
            Death::Torn => "torn",
            Death::Process => "process",
        })
    }
}

impl FromStr for Death {
    type Err = String;

    fn from_str(text: &str) -> Result<Death, String> {
        Death::ALL
            .into_iter()
            .find(|death| death.to_string() == text)
            .ok_or_else(|| format!("{text:?} is no death; write power, torn or process"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed() {
        for down in Down::all(3, 1) {
            assert_eq!(down.to_string().parse(), Ok(down));
        }
        for syncs in Syncs::all(3) {
            assert_eq!(syncs.to_string().parse(), Ok(syncs));
        }
        for death in Death::ALL {
            assert_eq!(death.to_string().parse(), Ok(death));
        }
        for wrong in ["ost1", "mdt3", "client;mdt0", "mdt", "", "mdt0,,mdt1", "MDT0"] {
            assert!(wrong.parse::<Down>().is_err(), "{wrong}");
            assert!(wrong.parse::<Syncs>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_set_of_machines_is_there_once() {
        let all: std::collections::BTreeSet<String> = Down::all(3, 1).map(|down| down.to_string()).collect();
        assert_eq!(all.len(), 32);
        assert_eq!((Down::all(2, 0).count(), Down::all(2, 1).count()), (8, 16));
        assert!(Down::all(2, 1).next().is_some_and(Down::is_empty));
        let two: Down = "client,mdt1".parse().expect("is a set");
        assert!(two.has_client() && two.has_target(TargetId::mdt(1)) && !two.has_target(TargetId::mdt(0)));
        let ost: Down = "ost0".parse().expect("is a set");
        assert!(ost.has_target(TargetId::ost(0)) && ost.has_ost() && !two.has_ost());
        assert!(!ost.has_client() && ost.is_within(2));
        assert!(two.is_within(2) && !two.is_within(1));
    }
}
