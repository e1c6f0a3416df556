//! Where the bytes of new files go.

mod group;
mod rooms;

use crate::spaces::Spaces;
use base::layout::Component;
use base::{Duration, Extent, Fid, Layout, Pool, PoolName, Status, Time};
use group::Group;
use rooms::Rooms;
use std::collections::{BTreeMap, BTreeSet};
use wire::mdt::Statfs;
use wire::{ComponentHint, LayoutHint};

/// "All OSTs" in a `LayoutHint`.
const ALL_OSTS: u16 = u16::MAX;

/// Chooses among the OSTs that the configuration names as active, and those of each pool.
#[derive(Debug)]
pub struct Placement {
    everywhere: Group,
    pools: BTreeMap<PoolName, Group>,
    rooms: Rooms,
    is_drained: bool,
    /// For files whose directory says nothing.
    stripe_count: u16,
    stripe_size_bytes: u32,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement {
            everywhere: Group::default(),
            pools: BTreeMap::new(),
            rooms: Rooms::default(),
            is_drained: false,
            stripe_count: 1,
            stripe_size_bytes: Layout::STRIPE_SIZE_DEFAULT,
        }
    }
}

impl Placement {
    /// An operation runs again when it has waited: what it was dealt before counts only when it is carried out. Otherwise two clients
    /// that create in turn, each waiting for the other's lock, would put all of their files on every second OST. Whether anything was dealt.
    pub fn settle(&mut self, is_kept: bool) -> bool {
        let dealt_count: usize = self.groups().map(|group| usize::from(group.settle(is_kept))).sum();
        dealt_count > 0
    }

    fn groups(&mut self) -> impl Iterator<Item = &mut Group> {
        std::iter::once(&mut self.everywhere).chain(self.pools.values_mut())
    }

    /// Active OSTs, in order.
    pub fn configure(&mut self, osts: Vec<u16>) {
        self.everywhere = std::mem::take(&mut self.everywhere).over(osts);
        self.everywhere.regard(&self.rooms);
    }

    /// What an OST has said of its room.
    pub fn note_space(&mut self, ost: u16, space: Statfs) {
        self.rooms.note(ost, space);
        self.regard_rooms();
    }

    /// An OST has answered.
    pub fn note_heard(&mut self, ost: u16) {
        if self.rooms.note_heard(ost) {
            self.regard_rooms();
        }
    }

    /// Whether OSTs are to be asked for their room now. They count as asked then, and who was asked before and has not answered as away.
    pub fn must_ask(&mut self, now: Time) -> bool {
        let must_ask = self.rooms.spaces_mut().must_ask(now);
        if must_ask {
            self.rooms.note_asked(&self.everywhere.osts);
            self.regard_rooms();
        }
        must_ask
    }

    /// What is known of the room of OSTs.
    pub fn spaces(&self) -> &Spaces {
        self.rooms.spaces()
    }

    /// By how much, in percent, the rooms of OSTs may differ and count as the same; 100 for turns.
    pub fn set_threshold_percent(&mut self, percent: u8) {
        self.rooms.spaces_mut().set_threshold_percent(percent);
        self.regard_rooms();
    }

    pub fn set_age_max(&mut self, age: Duration) {
        self.rooms.spaces_mut().set_age_max(age);
    }

    fn regard_rooms(&mut self) {
        let rooms = std::mem::take(&mut self.rooms);
        self.groups().for_each(|group| group.regard(&rooms));
        self.rooms = rooms;
    }

    /// There are OSTs, and an operator drains all of them.
    pub fn set_drained(&mut self, is_drained: bool) {
        self.is_drained = is_drained;
    }

    /// # Errors
    /// `NoSpace` when all OSTs are drained: a file gets no objects, and waiting does not help.
    pub fn check_not_drained(&self) -> Result<(), Status> {
        if self.is_drained { Err(Status::NoSpace) } else { Ok(()) }
    }

    /// Pools, with those of their members that are active, in order.
    pub fn configure_pools(&mut self, pools: impl IntoIterator<Item = Pool>) {
        let mut former = std::mem::take(&mut self.pools);
        for Pool { name, osts } in pools {
            let mut group = former.remove(&name).unwrap_or_default().over(osts);
            group.regard(&self.rooms);
            self.pools.insert(name, group);
        }
    }

    /// Those that are configured.
    pub fn osts(&self) -> &[u16] {
        &self.everywhere.osts
    }

    pub fn ost_count(&self) -> usize {
        self.everywhere.osts.len()
    }

    /// # Errors
    /// `Invalid` for a pool that does not exist or has no active OST: whoever asks for it by name wants no other.
    pub fn check_pools(&self, hint: &LayoutHint) -> Result<(), Status> {
        let has_osts = |name: &PoolName| self.pools.get(name).is_some_and(|pool| !pool.osts.is_empty());
        let mut asked = hint.components.iter().filter_map(|component| component.pool.as_ref());
        if asked.all(has_osts) { Ok(()) } else { Err(Status::Invalid) }
    }

    /// Those that a component may have: of its pool, unless that is gone or empty.
    fn osts_for(&self, hint: &ComponentHint) -> &[u16] {
        let pool = hint.pool.as_ref().and_then(|name| self.pools.get(name));
        pool.filter(|pool| !pool.osts.is_empty()).map_or(&self.everywhere.osts, |pool| &pool.osts)
    }

    /// Whether an OST that a component names is there for it.
    fn is_open(&self, hint: &ComponentHint, ost: u16) -> bool {
        ost == Layout::ON_MDT || self.osts_for(hint).contains(&ost)
    }

    /// # Errors
    /// `Invalid` for OSTs that get no new files, or are not of the pool that is named with them.
    pub fn check_osts(&self, hint: &LayoutHint) -> Result<(), Status> {
        let are_open = |component: &ComponentHint| {
            let first_ost = component.first_ost.filter(|first| *first != ALL_OSTS);
            component.osts.iter().copied().chain(first_ost).all(|ost| self.is_open(component, ost))
        };
        if hint.components.iter().all(are_open) { Ok(()) } else { Err(Status::Invalid) }
    }

    /// A directory may name OSTs that get no new files by now, or have left its pool: its files go to the others that
    /// it names, and where there are none, to any, over as many.
    pub fn drop_missing_osts(&self, hint: &mut LayoutHint) {
        for component in &mut hint.components {
            let named = std::mem::take(&mut component.osts);
            let is_open = |ost: &u16| self.is_open(component, *ost);
            let osts: Vec<u16> = named.iter().copied().filter(is_open).collect();
            let first_ost = component.first_ost.filter(is_open);
            if osts.len() < named.len() {
                component.stripe_count = u16::try_from(named.len()).ok().filter(|_| osts.is_empty());
            }
            (component.osts, component.first_ost) = (osts, first_ost);
        }
    }

    /// A default of a directory, with what new files get of what it leaves open.
    pub fn spelled_out(&self, hint: LayoutHint) -> LayoutHint {
        let with_defaults = |component: ComponentHint| {
            let end_bytes = component.end_bytes.unwrap_or(Extent::EOF);
            let stripe_size_bytes = self.stripe_size_of(component.stripe_size_bytes, end_bytes);
            let stripe_count = self.stripe_count_of(component.stripe_count);
            ComponentHint {
                stripe_size_bytes: Some(stripe_size_bytes),
                // Where OSTs are named they are as many as they are.
                stripe_count: if component.osts.is_empty() {
                    Some(stripe_count)
                } else {
                    component.stripe_count
                },
                ..component
            }
        };
        let whole = vec![ComponentHint::default()];
        let components = if hint.components.is_empty() { whole } else { hint.components };
        LayoutHint { components: components.into_iter().map(with_defaults).collect() }
    }

    fn stripe_size_of(&self, asked: Option<u32>, end_bytes: u64) -> u32 {
        let asked = asked.filter(|size| *size > 0);
        asked.unwrap_or_else(|| default_stripe_size(self.stripe_size_bytes, end_bytes))
    }

    fn stripe_count_of(&self, asked: Option<u16>) -> u16 {
        asked.filter(|count| *count > 0).unwrap_or(self.stripe_count)
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
    /// take no room, and no write has to ask for more of the layout first.
    ///
    /// # Errors
    /// `Invalid` for a hint that `check_hint` refuses, or an OST that gets no new files or is not of the pool.
    pub fn layout(&mut self, fid: Fid, first_id: u32, hint: &LayoutHint) -> Result<Option<Layout>, Status> {
        let are_open =
            |component: &ComponentHint| component.osts.iter().all(|ost| self.is_open(component, *ost));
        if !hint.components.iter().all(are_open) {
            return Err(Status::Invalid);
        }
        self.layout_again(fid, first_id, hint)
    }

    /// The same for a replay: the OSTs that it names are those that the file had, also when they are not active now.
    ///
    /// # Errors
    /// As `layout`.
    pub fn layout_again(
        &mut self,
        fid: Fid,
        first_id: u32,
        hint: &LayoutHint,
    ) -> Result<Option<Layout>, Status> {
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
        if components.iter().any(|component| component.osts.is_empty()) {
            return Ok(None);
        }
        let layout = Layout { fid, components };
        if layout.is_valid() { Ok(Some(layout)) } else { Err(Status::Invalid) }
    }

    fn component(&mut self, id: u32, hint: &ComponentHint, count_max: usize) -> Result<Component, Status> {
        let end_bytes = hint.end_bytes.unwrap_or(Extent::EOF);
        let stripe_size_bytes = self.stripe_size_of(hint.stripe_size_bytes, end_bytes);
        let asked_count = self.stripe_count_of(hint.stripe_count);
        if !hint.osts.is_empty() {
            let (osts, pool) = (hint.osts.clone(), hint.pool.clone());
            let is_fit = osts.len() <= count_max;
            return is_fit
                .then_some(Component { id, end_bytes, stripe_size_bytes, osts, pool })
                .ok_or(Status::Invalid);
        }
        let pool = hint.pool.as_ref().and_then(|name| Some((name, self.pools.get_mut(name)?)));
        // A directory may name a pool that is gone or empty by now: its files go anywhere.
        let (pool, group) = match pool.filter(|(_, group)| !group.osts.is_empty()) {
            Some((name, group)) => (Some(name.clone()), group),
            None => (None, &mut self.everywhere),
        };
        let stripe_count = match asked_count {
            ALL_OSTS => group.osts.len(),
            count => usize::from(count).min(group.osts.len()),
        };
        // The first one was of the pool.
        let first_ost = hint.first_ost.filter(|_| pool.is_some() || hint.pool.is_none());
        let osts = group.deal(first_ost, stripe_count.min(count_max))?;
        Ok(Component { id, end_bytes, stripe_size_bytes, osts, pool })
    }
}

/// A component ends with a whole stripe unit.
fn default_stripe_size(chosen: u32, end_bytes: u64) -> u32 {
    let is_fit = end_bytes == Extent::EOF || end_bytes.is_multiple_of(u64::from(chosen));
    if is_fit { chosen } else { Layout::STRIPE_SIZE_MIN }
}

/// # Errors
/// `Invalid` for a stripe size that is no multiple of 64 KiB, too many components, ends that do not rise, that are no
/// multiple of the stripe size, or that are missing before the last component, for OSTs that are named twice, are
/// not as many as the stripes or more than a layout can have, and for data on the MDT behind the first component or behind `Layout::ON_MDT_BYTES_MAX`.
pub fn check_hint(hint: &LayoutHint) -> Result<(), Status> {
    let ends: Vec<u64> =
        hint.components.iter().map(|component| component.end_bytes.unwrap_or(Extent::EOF)).collect();
    let named_count: usize = hint.components.iter().map(|component| component.osts.len()).sum();
    let is_good = hint.components.len() <= Layout::COMPONENT_COUNT_MAX
        && named_count <= Layout::STRIPE_COUNT_MAX
        && ends.is_sorted_by(|a, b| a < b)
        && hint.components.iter().all(is_possible)
        && hint.components.iter().skip(1).all(|component| !component.osts.contains(&Layout::ON_MDT));
    if is_good { Ok(()) } else { Err(Status::Invalid) }
}

/// Whether OSTs are named, or the first one.
pub fn names_osts(hint: &LayoutHint) -> bool {
    hint.components.iter().any(|component| !component.osts.is_empty() || component.first_ost.is_some())
}

fn is_possible(component: &ComponentHint) -> bool {
    let unit = component.stripe_size_bytes.filter(|size| *size > 0).unwrap_or(Layout::STRIPE_SIZE_MIN);
    unit.is_multiple_of(Layout::STRIPE_SIZE_MIN)
        && component.end_bytes.is_none_or(|end| end > 0 && end.is_multiple_of(u64::from(unit)))
        && are_osts_possible(component)
        && is_mdt_possible(component)
}

fn is_mdt_possible(component: &ComponentHint) -> bool {
    !component.osts.contains(&Layout::ON_MDT)
        || component.osts.len() == 1
            && component.pool.is_none()
            && component.end_bytes.is_some_and(|end| end <= Layout::ON_MDT_BYTES_MAX)
}

fn are_osts_possible(component: &ComponentHint) -> bool {
    let osts: BTreeSet<u16> = component.osts.iter().copied().collect();
    let count = component.osts.len();
    let says_as_many = component.stripe_count.is_none_or(|asked| asked == 0 || usize::from(asked) == count);
    let begins_so = component.first_ost.is_none_or(|first| component.osts.first() == Some(&first));
    count == 0 || (osts.len() == count && says_as_many && begins_so)
}

/// What a request leaves open is taken from the directory; but whoever names components, or has a directory that does,
/// gets all of one or of the other.
pub fn merge_hints(asked: Option<&LayoutHint>, default: Option<&LayoutHint>) -> LayoutHint {
    let (asked, default) = (asked.cloned().unwrap_or_default(), default.cloned().unwrap_or_default());
    match (asked.as_plain(), default.as_plain()) {
        (Some(asked), _) if asked == ComponentHint::default() => default,
        (Some(asked), Some(default)) => LayoutHint::plain(merge_plain(asked, default)),
        _ => asked,
    }
}

fn merge_plain(asked: ComponentHint, default: ComponentHint) -> ComponentHint {
    let stripe_size_bytes = asked.stripe_size_bytes.or(default.stripe_size_bytes);
    // OSTs of the directory are of no use to whoever wants other ones.
    let is_elsewhere = !asked.osts.is_empty() || asked.pool.is_some();
    let names_stripes = asked.stripe_count.is_some() || asked.first_ost.is_some();
    let default = match (is_elsewhere, names_stripes) {
        (true, _) => ComponentHint { stripe_count: default.stripe_count, ..ComponentHint::default() },
        (false, true) => ComponentHint { osts: Vec::new(), ..default },
        (false, false) => default,
    };
    ComponentHint {
        end_bytes: None,
        stripe_size_bytes,
        stripe_count: asked.stripe_count.or(default.stripe_count.filter(|_| asked.osts.is_empty())),
        first_ost: asked.first_ost.or(default.first_ost),
        osts: if asked.osts.is_empty() { default.osts } else { asked.osts },
        pool: asked.pool.or(default.pool),
    }
}

#[cfg(test)]
mod tests;
