//! Where the bytes of new files go.

use base::layout::Component;
use base::{Extent, Fid, Layout, Status};
use wire::{ComponentHint, LayoutHint};

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

    /// A layout for a new regular file; `None` while there is no OST. All components get their OSTs now: an object has its
    /// name from its place in the layout and comes to life when it is first written, so those that the file never reaches
    /// cost nothing, and no write has to ask for more of the layout first.
    ///
    /// # Errors
    /// `Invalid` for a hint that `check_hint` refuses or an OST that does not exist.
    pub fn layout(&mut self, fid: Fid, first_id: u32, hint: &LayoutHint) -> Result<Option<Layout>, Status> {
        check_hint(hint)?;
        let whole = [ComponentHint::default()];
        let hints = if hint.components.is_empty() { &whole } else { &hint.components[..] };
        let mut components = Vec::with_capacity(hints.len());
        // Each component gets at least one.
        let mut spare_stripes = Layout::STRIPE_COUNT_MAX.saturating_sub(hints.len());
        for (id, hint) in (first_id..).zip(hints) {
            let component = self.component(id, hint, 1 + spare_stripes)?;
            spare_stripes = (1 + spare_stripes).saturating_sub(component.osts.len());
            components.push(component);
        }
        let layout = Some(Layout { fid, components }).filter(|_| !self.osts.is_empty());
        match layout {
            Some(layout) if !layout.is_valid() => Err(Status::Invalid),
            layout => Ok(layout),
        }
    }

    fn component(&mut self, id: u32, hint: &ComponentHint, count_max: usize) -> Result<Component, Status> {
        let end_bytes = hint.end_bytes.unwrap_or(Extent::EOF);
        let stripe_size_bytes = hint
            .stripe_size_bytes
            .filter(|size| *size > 0)
            .unwrap_or_else(|| default_stripe_size(self.stripe_size_bytes, end_bytes));
        let stripe_count = match hint.stripe_count.filter(|count| *count > 0).unwrap_or(self.stripe_count) {
            ALL_OSTS => self.osts.len(),
            count => usize::from(count).min(self.osts.len()),
        };
        let stripe_count = stripe_count.min(count_max);
        let first = match hint.first_ost {
            None | Some(ALL_OSTS) => self.next,
            Some(index) => self.osts.iter().position(|ost| *ost == index).ok_or(Status::Invalid)?,
        };
        if !self.osts.is_empty() {
            self.next = (first + stripe_count) % self.osts.len();
        }
        let osts = self.osts.iter().cycle().skip(first).take(stripe_count).copied().collect();
        Ok(Component { id, end_bytes, stripe_size_bytes, osts })
    }
}

/// A component ends with a whole stripe unit.
fn default_stripe_size(chosen: u32, end_bytes: u64) -> u32 {
    let is_fit = end_bytes == Extent::EOF || end_bytes.is_multiple_of(u64::from(chosen));
    if is_fit { chosen } else { Layout::STRIPE_SIZE_MIN }
}

/// # Errors
/// `Invalid` for a stripe size that is no multiple of 64 KiB, too many components, and ends that do not rise, that are no
/// multiple of the stripe size, or that are missing before the last component.
pub fn check_hint(hint: &LayoutHint) -> Result<(), Status> {
    let ends: Vec<u64> =
        hint.components.iter().map(|component| component.end_bytes.unwrap_or(Extent::EOF)).collect();
    let is_good = hint.components.len() <= Layout::COMPONENT_COUNT_MAX
        && ends.is_sorted_by(|a, b| a < b)
        && hint.components.iter().all(is_possible);
    if is_good { Ok(()) } else { Err(Status::Invalid) }
}

fn is_possible(component: &ComponentHint) -> bool {
    let unit = component.stripe_size_bytes.filter(|size| *size > 0).unwrap_or(Layout::STRIPE_SIZE_MIN);
    unit.is_multiple_of(Layout::STRIPE_SIZE_MIN)
        && component.end_bytes.is_none_or(|end| end > 0 && end.is_multiple_of(u64::from(unit)))
}

/// What a request leaves open is taken from the directory; but whoever names components, or has a directory that does,
/// gets all of one or of the other.
pub fn merge_hints(asked: Option<&LayoutHint>, default: Option<&LayoutHint>) -> LayoutHint {
    let (asked, default) = (asked.cloned().unwrap_or_default(), default.cloned().unwrap_or_default());
    match (asked.as_plain(), default.as_plain()) {
        (Some(asked), _) if asked == ComponentHint::default() => default,
        (Some(asked), Some(default)) => LayoutHint::plain(ComponentHint {
            end_bytes: None,
            stripe_size_bytes: asked.stripe_size_bytes.or(default.stripe_size_bytes),
            stripe_count: asked.stripe_count.or(default.stripe_count),
            first_ost: asked.first_ost.or(default.first_ost),
        }),
        _ => asked,
    }
}

#[cfg(test)]
mod tests;
