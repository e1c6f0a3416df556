//! Where the bytes of new files go.

use base::{Fid, Layout, Status};
use wire::mdt::LayoutHint;

/// "All OSTs" in a `LayoutHint`.
const ALL_OSTS: u16 = u16::MAX;

/// Round robin over the OSTs that the configuration names as active.
#[derive(Debug)]
pub struct Placement {
    osts: Vec<u16>,
    next: usize,
    /// For files whose directory says nothing.
    stripe_count: u16,
    stripe_size_bytes: u32,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement {
            osts: Vec::new(),
            next: 0,
            stripe_count: 1,
            stripe_size_bytes: Layout::STRIPE_SIZE_DEFAULT,
        }
    }
}

impl Placement {
    /// Active OSTs, in order.
    pub fn configure(&mut self, osts: Vec<u16>) {
        self.osts = osts;
    }

    pub fn ost_count(&self) -> usize {
        self.osts.len()
    }

    /// `u16::MAX` for all OSTs.
    pub fn stripe_count(&self) -> u16 {
        self.stripe_count
    }

    /// An operator chooses for directories that say nothing; `u16::MAX` for all OSTs.
    pub fn set_stripe_count(&mut self, count: u16) {
        self.stripe_count = count.max(1);
    }

    pub fn stripe_size_bytes(&self) -> u32 {
        self.stripe_size_bytes
    }

    /// The same for the size of a stripe, a multiple of 64 KiB; others are not taken.
    pub fn set_stripe_size(&mut self, bytes: u32) {
        if bytes > 0 && bytes.is_multiple_of(Layout::STRIPE_SIZE_MIN) {
            self.stripe_size_bytes = bytes;
        }
    }

    /// A layout for a new regular file; `None` while there is no OST.
    ///
    /// # Errors
    /// `Invalid` for a stripe size that is no multiple of 64 KiB or an OST that does not exist.
    pub fn layout(&mut self, fid: Fid, component: u32, hint: &LayoutHint) -> Result<Option<Layout>, Status> {
        check_hint(hint)?;
        let stripe_size_bytes = match hint.stripe_size_bytes {
            None | Some(0) => self.stripe_size_bytes,
            Some(size) => size,
        };
        let stripe_count = match hint.stripe_count.filter(|count| *count > 0).unwrap_or(self.stripe_count) {
            ALL_OSTS => self.osts.len(),
            count => usize::from(count).min(self.osts.len()),
        };
        let first = match hint.first_ost {
            None | Some(ALL_OSTS) => self.next,
            Some(index) => self.osts.iter().position(|ost| *ost == index).ok_or(Status::Invalid)?,
        };
        if self.osts.is_empty() {
            return Ok(None);
        }
        self.next = (first + stripe_count) % self.osts.len();
        let osts = self.osts.iter().cycle().skip(first).take(stripe_count).copied().collect();
        Ok(Some(Layout { fid, component, stripe_size_bytes, osts }))
    }
}

/// # Errors
/// `Invalid` for a stripe size that is no multiple of 64 KiB.
pub fn check_hint(hint: &LayoutHint) -> Result<(), Status> {
    match hint.stripe_size_bytes {
        Some(size) if !size.is_multiple_of(Layout::STRIPE_SIZE_MIN) => Err(Status::Invalid),
        _ => Ok(()),
    }
}

/// What a request leaves open is taken from the directory.
pub fn merge_hints(asked: Option<&LayoutHint>, default: Option<&LayoutHint>) -> LayoutHint {
    let (asked, default) = (asked.cloned().unwrap_or_default(), default.cloned().unwrap_or_default());
    LayoutHint {
        stripe_size_bytes: asked.stripe_size_bytes.or(default.stripe_size_bytes),
        stripe_count: asked.stripe_count.or(default.stripe_count),
        first_ost: asked.first_ost.or(default.first_ost),
    }
}
