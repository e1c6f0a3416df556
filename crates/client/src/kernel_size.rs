//! What the kernel takes for the size of a file.
//!
//! It learns that from answers that carry attributes, and believes one only if the attributes are of the version that they had when it
//! asked: each notification about the inode makes a new version, and so does each answer that it believes. (An inode that it did not
//! have gets its size from the first answer in any case.) It also makes a size itself: of what it writes and cuts, and where a READ
//! brings less than it asked for.
//!
//! So its size is sure when it asked a second after anything of that, was told one size since, and has had a second to
//! take that in. A size that was told again and again stays sure; another one has to become so anew.
//!
//! What it may take for the size, sure or not, is one of a few: that told last, or one of those before, if it has not believed the later ones.

use base::{Duration, Time};

/// What a call takes from the kernel's noting the version to us, or from us to where the kernel takes the answer in: long against what a thread
/// may have to wait for a processor.
const SETTLES: Duration = Duration::from_secs(1);
/// Sizes told last of which it may have believed none but the first.
const POSSIBLE_COUNT_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sure {
    No,
    /// Since it was told, if nothing comes between that and its taking it in.
    Since(Time),
    /// With the inode.
    FromTheFirst,
}

#[derive(Debug)]
pub(crate) struct KernelSize(Form);

/// Of most files it is told one size with the inode, and that is all.
#[derive(Debug)]
enum Form {
    /// Nothing that it could take for a size.
    Untold,
    /// That one, first and last. `at`: what was asked before, or a second after that, may not be believed; it was told by then.
    Told {
        size_bytes: u64,
        at: Time,
    },
    Retold(Box<Retold>),
}

#[derive(Debug)]
struct Retold {
    /// It has been given the inode.
    has_inode: bool,
    /// Told last; `None`: it may have made another one since.
    told_bytes: Option<u64>,
    told_at: Time,
    /// What was asked before may not be believed.
    disturbed_at: Time,
    sure: Sure,
    /// What it may take for the size, the latest last.
    possible: Vec<u64>,
}

impl KernelSize {
    /// Of an inode that the kernel does not have.
    pub(crate) fn new() -> KernelSize {
        KernelSize(Form::Untold)
    }

    #[cfg(test)]
    pub(crate) fn is_in_place(&self) -> bool {
        !matches!(self.0, Form::Retold(_))
    }

    fn retold_mut(&mut self) -> &mut Retold {
        let begun = match &self.0 {
            Form::Untold => Some(Retold::untold()),
            Form::Told { size_bytes, at } => Some(Retold::told(*size_bytes, *at)),
            Form::Retold(_) => None,
        };
        if let Some(begun) = begun {
            self.0 = Form::Retold(Box::new(begun));
        }
        let Form::Retold(retold) = &mut self.0 else { unreachable!("it has just become that") };
        retold
    }

    /// It has written up to there: its file is no shorter.
    pub(crate) fn on_written(&mut self, end: u64) {
        match &self.0 {
            Form::Untold => {}
            Form::Told { size_bytes, .. } if end <= *size_bytes => {}
            Form::Told { .. } | Form::Retold(_) => self.retold_mut().on_written(end),
        }
    }

    /// The sizes of which it takes one for the file's; none when nothing is known.
    pub(crate) fn possible(&self) -> &[u64] {
        match &self.0 {
            Form::Untold => &[],
            Form::Told { size_bytes, .. } => std::slice::from_ref(size_bytes),
            Form::Retold(retold) => &retold.possible,
        }
    }

    /// It is told a size, in the answer to what came at `came`. `is_disturbed`: a notification about the inode is on its way.
    pub(crate) fn on_told(&mut self, size_bytes: u64, (came, now): (Time, Time), is_disturbed: bool) {
        match &mut self.0 {
            Form::Untold => self.0 = Form::Told { size_bytes, at: now },
            Form::Told { size_bytes: known, at } if *known == size_bytes => *at = now,
            Form::Told { .. } | Form::Retold(_) => {
                self.retold_mut().on_told(size_bytes, (came, now), is_disturbed);
            }
        }
    }

    /// The attributes that it has become another version: answers on their way are not believed.
    pub(crate) fn on_version(&mut self, now: Time) {
        match &mut self.0 {
            Form::Untold => {}
            Form::Told { at, .. } => *at = now,
            Form::Retold(retold) => retold.on_version(now),
        }
    }

    /// It makes a size itself from now on, or has until now.
    pub(crate) fn on_own(&mut self, now: Time) {
        match &mut self.0 {
            Form::Untold => {}
            Form::Told { .. } | Form::Retold(_) => self.retold_mut().on_own(now),
        }
    }

    /// A READ of it ended there.
    pub(crate) fn on_short_read(&mut self, end: u64, now: Time) {
        match &mut self.0 {
            Form::Told { size_bytes, at } if *size_bytes == end => *at = now,
            Form::Untold | Form::Told { .. } | Form::Retold(_) => self.retold_mut().on_short_read(end, now),
        }
    }

    /// Whether its file certainly reaches to there.
    pub(crate) fn reaches(&self, end: u64, now: Time) -> bool {
        match &self.0 {
            Form::Untold => false,
            Form::Told { size_bytes, .. } => end <= *size_bytes,
            Form::Retold(retold) => retold.reaches(end, now),
        }
    }
}

impl Retold {
    fn untold() -> Retold {
        Retold {
            has_inode: false,
            told_bytes: None,
            told_at: Time::ZERO,
            disturbed_at: Time::ZERO,
            sure: Sure::No,
            possible: Vec::new(),
        }
    }

    fn told(size_bytes: u64, at: Time) -> Retold {
        Retold {
            has_inode: true,
            told_bytes: Some(size_bytes),
            told_at: at,
            disturbed_at: at,
            sure: Sure::FromTheFirst,
            possible: vec![size_bytes],
        }
    }

    fn note_possible(&mut self, size_bytes: u64) {
        self.possible.retain(|known| *known != size_bytes);
        if self.possible.len() >= POSSIBLE_COUNT_MAX {
            self.possible.remove(0);
        }
        self.possible.push(size_bytes);
    }

    fn on_written(&mut self, end: u64) {
        for known in std::mem::take(&mut self.possible) {
            self.note_possible(end.max(known));
        }
    }

    fn on_told(&mut self, size_bytes: u64, (came, now): (Time, Time), is_disturbed: bool) {
        if !std::mem::replace(&mut self.has_inode, true) {
            self.sure = Sure::FromTheFirst;
        } else if self.told_bytes != Some(size_bytes) {
            if self.told_bytes.is_some() {
                self.disturbed_at = self.disturbed_at.max(self.told_at);
            }
            self.sure = Sure::No;
        }
        if self.sure == Sure::No && !is_disturbed && came >= self.disturbed_at.after(SETTLES) {
            self.sure = Sure::Since(now);
        }
        (self.told_bytes, self.told_at) = (Some(size_bytes), now);
        self.note_possible(size_bytes);
    }

    fn on_version(&mut self, now: Time) {
        self.disturbed_at = now;
        if let Sure::Since(told) = self.sure
            && told.after(SETTLES) > now
        {
            self.sure = Sure::No;
        }
    }

    fn on_own(&mut self, now: Time) {
        self.disturbed_at = now;
        self.told_bytes = None;
        self.sure = Sure::No;
    }

    fn on_short_read(&mut self, end: u64, now: Time) {
        self.note_possible(end);
        match self.told_bytes {
            Some(told) if told <= end => self.on_version(now),
            _ => self.on_own(now),
        }
    }

    fn reaches(&self, end: u64, now: Time) -> bool {
        let is_sure = match self.sure {
            Sure::No => false,
            Sure::Since(told) => told.after(SETTLES) <= now,
            Sure::FromTheFirst => true,
        };
        is_sure && self.told_bytes.is_some_and(|told| end <= told)
    }
}

#[cfg(test)]
mod tests;
