//! Where the bytes of new files go.

use base::{Fid, Layout, Status};
use wire::mdt::LayoutHint;

/// "All OSTs" in a `LayoutHint`.
const ALL_OSTS: u16 = u16::MAX;

/// Round robin over the OSTs that the configuration names as active.
#[derive(Debug, Default)]
pub struct Placement {
    osts: Vec<u16>,
    next: usize,
}

impl Placement {
    /// Active OSTs, in order.
    pub fn configure(&mut self, osts: Vec<u16>) {
        self.osts = osts;
    }

    /// A layout for a new regular file; `None` while there is no OST.
    ///
    /// # Errors
    /// `Invalid` for a stripe size that is no multiple of 64 KiB or an OST that does not exist.
    pub fn layout(&mut self, fid: Fid, component: u32, hint: &LayoutHint) -> Result<Option<Layout>, Status> {
        check_hint(hint)?;
        let stripe_size_bytes = match hint.stripe_size_bytes {
            None | Some(0) => Layout::STRIPE_SIZE_DEFAULT,
            Some(size) => size,
        };
        let stripe_count = match hint.stripe_count {
            None | Some(0) => 1,
            Some(ALL_OSTS) => self.osts.len(),
            Some(count) => usize::from(count).min(self.osts.len()),
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
