//! Where a file's bytes are: components one after the other, each RAID-0 over objects.
//!
//! The objects of all components are counted through, by *stripe*: what is asked of a file is asked of its stripes. The
//! offsets in an object are those that it would have if its component were the whole file; so an object of a later
//! component has a hole where the components before it are, and sizes are computed in one way for all.

use crate::{Extent, Fid, ObjectId, PoolName, TargetId};
use borsh::{BorshDeserialize, BorshSerialize};
use std::ops::Range;

/// A plain layout has one component, a composite one several. Without any, a file has no data objects yet, or is no
/// regular file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Owner of the objects (differs from the file only after a layout swap).
    pub fid: Fid,
    /// In the order of the file.
    pub components: Vec<Component>,
}

/// One range of a file. It begins where the one before it ends. Its bytes go round robin in `stripe_size_bytes` pieces over
/// `osts`, in their order.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Component {
    /// Part of the names of its objects; never used again in this file.
    pub id: u32,
    /// `Extent::EOF`, or a multiple of the stripe size.
    pub end_bytes: u64,
    /// Multiple of 64 KiB.
    pub stripe_size_bytes: u32,
    /// OST index of each stripe; `Layout::ON_MDT` alone for data on the MDT of the file.
    pub osts: Vec<u16>,
    /// That they were taken from.
    pub pool: Option<PoolName>,
}

/// A component as it was written before there were pools.
type Unpooled = (u32, u64, u32, Vec<u16>);

/// A piece of a file extent that lies in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub stripe: u32,
    /// Where it lies in the object.
    pub object_extent: Extent,
    /// Offset of its first byte in the file.
    pub file_offset_bytes: u64,
}

/// What is known of one stripe: which bytes of the file its object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    pub object: ObjectId,
    /// `Layout::ON_MDT` for the MDT of the file.
    pub ost: u16,
    /// That of its component.
    pub file_extent: Extent,
    pub unit_bytes: u64,
    /// Stripes of its component.
    pub stripe_count: u64,
}

impl Layout {
    pub const STRIPE_SIZE_DEFAULT: u32 = 1 << 20;
    pub const STRIPE_SIZE_MIN: u32 = 64 << 10;
    /// Of all components together.
    pub const STRIPE_COUNT_MAX: usize = 2000;
    pub const COMPONENT_COUNT_MAX: usize = 16;
    /// In the place of an OST: the MDT that has the file has this data too. So it may be with the first component, which has one
    /// stripe then.
    pub const ON_MDT: u16 = u16::MAX;
    /// Such a component ends here at the latest: a change of all of it has to be one transaction.
    pub const ON_MDT_BYTES_MAX: u64 = 512 << 10;
    /// Where a plain layout has the id of its component, which is never one of these.
    const COMPOSITE: u32 = u32::MAX;
    /// Some component has its OSTs from a pool.
    const POOLED: u32 = u32::MAX - 1;

    /// One component for the whole file.
    pub fn plain(fid: Fid, id: u32, stripe_size_bytes: u32, osts: Vec<u16>) -> Layout {
        let component = Component { id, end_bytes: Extent::EOF, stripe_size_bytes, osts, pool: None };
        Layout { fid, components: vec![component] }
    }

    /// True when no arithmetic below can fail, and no two stripes share an object; bytes from a peer or a disk are checked
    /// with this before use.
    pub fn is_valid(&self) -> bool {
        let stripe_count: usize = self.components.iter().map(|component| component.osts.len()).sum();
        self.components.len() <= Self::COMPONENT_COUNT_MAX
            && stripe_count <= Self::STRIPE_COUNT_MAX
            && self.components.iter().all(Component::is_valid)
            && self.components.is_sorted_by(|a, b| a.id < b.id && a.end_bytes < b.end_bytes)
            && self.components.iter().skip(1).all(|component| !component.osts.contains(&Self::ON_MDT))
    }

    pub fn has_objects(&self) -> bool {
        !self.components.is_empty()
    }

    /// Of all components.
    pub fn stripe_count(&self) -> u32 {
        self.components.iter().map(|component| component.osts.len() as u32).sum()
    }

    pub fn stripes(&self) -> Range<u32> {
        0..self.stripe_count()
    }

    /// The OST of each stripe that is on one.
    pub fn osts(&self) -> impl Iterator<Item = u16> + '_ {
        let all = self.components.iter().flat_map(|component| component.osts.iter().copied());
        all.filter(|ost| *ost != Self::ON_MDT)
    }

    /// The target of each stripe.
    pub fn targets(&self) -> impl Iterator<Item = TargetId> + '_ {
        self.stripes().filter_map(|stripe| self.stripe(stripe)?.target())
    }

    /// Whether the MDT of the file has the first of its bytes.
    pub fn is_on_mdt(&self) -> bool {
        self.components.first().is_some_and(Component::is_on_mdt)
    }

    /// Behind this the file can have no bytes; `Extent::EOF` for most.
    pub fn end_bytes(&self) -> u64 {
        self.components.last().map_or(0, |component| component.end_bytes)
    }

    /// The id that the next component of this file gets.
    pub fn next_component_id(&self) -> u32 {
        self.components.iter().map(|component| component.id).max().unwrap_or(0).saturating_add(1)
    }

    /// Each component, its first stripe, and its extent in the file.
    fn spans(&self) -> impl Iterator<Item = (&Component, u32, Extent)> {
        let (mut first, mut start) = (0, 0);
        self.components.iter().map(move |component| {
            let span = (component, first, Extent::new(start, component.end_bytes));
            first += component.osts.len() as u32;
            start = component.end_bytes;
            span
        })
    }

    pub fn stripe(&self, stripe: u32) -> Option<Stripe> {
        self.spans().find_map(|(component, first, file_extent)| {
            let index = stripe.checked_sub(first)?;
            let ost = *component.osts.get(index as usize)?;
            Some(Stripe {
                object: ObjectId { fid: self.fid, component: component.id, stripe: index },
                ost,
                file_extent,
                unit_bytes: u64::from(component.stripe_size_bytes),
                stripe_count: component.osts.len() as u64,
            })
        })
    }

    /// The object of a stripe that there is; of any other an object that nobody has (no component is 0).
    pub fn object(&self, stripe: u32) -> ObjectId {
        let nobody = ObjectId { fid: self.fid, component: 0, stripe };
        self.stripe(stripe).map_or(nobody, |stripe| stripe.object)
    }

    /// The stripe that an object is; `None` for objects that are not this layout's, or not any more.
    pub fn stripe_of(&self, object: ObjectId) -> Option<u32> {
        let (component, first, _) = self.spans().find(|(component, ..)| component.id == object.component)?;
        let is_there = object.fid == self.fid && (object.stripe as usize) < component.osts.len();
        is_there.then(|| first + object.stripe)
    }

    /// Cuts a file extent into pieces of at most one stripe unit each, in file order. The extent must be finite; what is
    /// behind the last component is in no piece.
    pub fn pieces(&self, extent: Extent) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (component, first, span) in self.spans() {
            component.cut(first, extent.intersection(span), &mut pieces);
        }
        pieces
    }

    /// What a file extent covers of each stripe's object: one extent each, where it covers any of it.
    pub fn parts(&self, extent: Extent) -> Vec<(u32, Extent)> {
        let part = |index| {
            let stripe = self.stripe(index)?;
            let covered = extent.intersection(stripe.file_extent);
            let (start, end) = (stripe.object_offset_at(covered.start), stripe.object_offset_at(covered.end));
            (!covered.is_empty() && start < end).then(|| (index, Extent::new(start, end)))
        };
        self.stripes().filter_map(part).collect()
    }

    /// Size of the object of a stripe when the file has `file_size_bytes` bytes and no holes at its end.
    pub fn object_size(&self, stripe: u32, file_size_bytes: u64) -> u64 {
        self.stripe(stripe).map_or(0, |stripe| stripe.object_size(file_size_bytes))
    }

    /// The size of the largest object when the file has `file_size_bytes` bytes.
    pub fn object_bytes_max(&self, file_size_bytes: u64) -> u64 {
        self.stripes().map(|stripe| self.object_size(stripe, file_size_bytes)).max().unwrap_or(0)
    }

    /// The smallest file size that explains an object of `object_size_bytes` bytes.
    pub fn file_size(&self, stripe: u32, object_size_bytes: u64) -> u64 {
        self.stripe(stripe).map_or(0, |stripe| stripe.file_size(object_size_bytes))
    }
}

impl Component {
    /// Whether the MDT of the file has its bytes.
    pub fn is_on_mdt(&self) -> bool {
        self.osts.first() == Some(&Layout::ON_MDT)
    }

    fn is_valid(&self) -> bool {
        let unit = u64::from(self.stripe_size_bytes);
        let is_unit_good = unit > 0 && unit.is_multiple_of(u64::from(Layout::STRIPE_SIZE_MIN));
        let is_id_good = (1..Layout::POOLED).contains(&self.id);
        let is_end_good =
            self.end_bytes == Extent::EOF || (is_unit_good && self.end_bytes.is_multiple_of(unit));
        let are_osts_good = !self.osts.contains(&Layout::ON_MDT)
            || self.osts.len() == 1 && self.end_bytes <= Layout::ON_MDT_BYTES_MAX;
        let is_something = self.end_bytes > 0 && !self.osts.is_empty();
        is_unit_good && is_id_good && is_end_good && are_osts_good && is_something
    }

    fn cut(&self, first_stripe: u32, extent: Extent, pieces: &mut Vec<Piece>) {
        let (unit, count) = (u64::from(self.stripe_size_bytes), self.osts.len() as u64);
        let mut offset = extent.start;
        while offset < extent.end {
            let unit_index = offset / unit;
            let in_unit = offset % unit;
            let byte_count = (unit - in_unit).min(extent.end - offset);
            let object_offset = (unit_index / count) * unit + in_unit;
            let stripe = first_stripe + (unit_index % count) as u32;
            match pieces.last_mut() {
                // One stripe: adjacent units are one piece.
                Some(Piece { stripe: last, object_extent, .. })
                    if *last == stripe && object_extent.end == object_offset =>
                {
                    object_extent.end += byte_count;
                }
                _ => pieces.push(Piece {
                    stripe,
                    object_extent: Extent::at(object_offset, byte_count),
                    file_offset_bytes: offset,
                }),
            }
            offset += byte_count;
        }
    }
}

impl Stripe {
    /// Who has the object; `None` for a FID that no MDT can have given.
    pub fn target(&self) -> Option<TargetId> {
        match self.ost {
            Layout::ON_MDT => self.object.fid.mdt_index().map(TargetId::mdt),
            ost => Some(TargetId::ost(ost)),
        }
    }

    fn index(&self) -> u64 {
        u64::from(self.object.stripe)
    }

    /// Whether a unit of the file, counted from its start, is in this object, if it is in the component.
    pub fn has_unit(&self, unit_index: u64) -> bool {
        unit_index % self.stripe_count == self.index()
    }

    /// Where a byte of the object is in the file, if it is in the component.
    pub fn file_offset(&self, object_offset_bytes: u64) -> u64 {
        let unit_index = (object_offset_bytes / self.unit_bytes)
            .saturating_mul(self.stripe_count)
            .saturating_add(self.index());
        unit_index.saturating_mul(self.unit_bytes).saturating_add(object_offset_bytes % self.unit_bytes)
    }

    /// The first offset in the object whose place in the file is at `file_offset_bytes` or behind it.
    pub fn object_offset_at(&self, file_offset_bytes: u64) -> u64 {
        let at = file_offset_bytes.max(self.file_extent.start);
        let (unit_index, in_unit) = (at / self.unit_bytes, at % self.unit_bytes);
        let (round, place) = (unit_index / self.stripe_count, unit_index % self.stripe_count);
        match place.cmp(&self.index()) {
            std::cmp::Ordering::Less => round * self.unit_bytes,
            std::cmp::Ordering::Equal => round * self.unit_bytes + in_unit,
            std::cmp::Ordering::Greater => (round + 1).saturating_mul(self.unit_bytes),
        }
    }

    /// The smallest file range that contains an extent of the object.
    pub fn file_range(&self, object_extent: Extent) -> Extent {
        let end = match object_extent.end {
            Extent::EOF => Extent::EOF,
            end => self.file_size(end),
        };
        let range = Extent::new(self.file_offset(object_extent.start), end).intersection(self.file_extent);
        if range.is_empty() { Extent::at(range.start, 0) } else { range }
    }

    /// Size of the object when the file has `file_size_bytes` bytes and no holes at its end. An object that would have
    /// nothing but the hole in front of its component has none.
    pub fn object_size(&self, file_size_bytes: u64) -> u64 {
        let size = file_size_bytes.min(self.file_extent.end);
        let round_bytes = self.unit_bytes * self.stripe_count;
        let in_last =
            (size % round_bytes).saturating_sub(self.index() * self.unit_bytes).min(self.unit_bytes);
        let object_size = (size / round_bytes) * self.unit_bytes + in_last;
        if self.file_size(object_size) > self.file_extent.start { object_size } else { 0 }
    }

    /// The smallest file size that explains an object of `object_size_bytes` bytes.
    pub fn file_size(&self, object_size_bytes: u64) -> u64 {
        match object_size_bytes.checked_sub(1) {
            Some(last) => self.file_offset(last).saturating_add(1),
            None => 0,
        }
    }
}

/// A plain layout is written as all were before there were components: its owner, the id of the component, stripe size,
/// OSTs. Others say in the place of the id what they are, and list their components.
impl BorshSerialize for Layout {
    fn serialize<W: borsh::io::Write>(&self, writer: &mut W) -> borsh::io::Result<()> {
        self.fid.serialize(writer)?;
        if self.components.iter().any(|component| component.pool.is_some()) {
            return (Self::POOLED, &self.components).serialize(writer);
        }
        match &self.components[..] {
            [] => (0_u32, 0_u32, Vec::<u16>::new()).serialize(writer),
            [Component { id, end_bytes: Extent::EOF, stripe_size_bytes, osts, .. }] => {
                (id, stripe_size_bytes, osts).serialize(writer)
            }
            components => {
                (Self::COMPOSITE, components.len() as u32).serialize(writer)?;
                components.iter().try_for_each(|component| {
                    let Component { id, end_bytes, stripe_size_bytes, osts, .. } = component;
                    (id, end_bytes, stripe_size_bytes, osts).serialize(writer)
                })
            }
        }
    }
}

impl BorshDeserialize for Layout {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let fid = Fid::deserialize_reader(reader)?;
        let id = match u32::deserialize_reader(reader)? {
            Self::COMPOSITE => {
                let components = Vec::<Unpooled>::deserialize_reader(reader)?;
                let of_unpooled = |(id, end_bytes, stripe_size_bytes, osts): Unpooled| Component {
                    id,
                    end_bytes,
                    stripe_size_bytes,
                    osts,
                    pool: None,
                };
                return Ok(Layout { fid, components: components.into_iter().map(of_unpooled).collect() });
            }
            Self::POOLED => return Ok(Layout { fid, components: Vec::deserialize_reader(reader)? }),
            id => id,
        };
        let (stripe_size_bytes, osts) = <(u32, Vec<u16>)>::deserialize_reader(reader)?;
        let plain = Layout::plain(fid, id, stripe_size_bytes, osts);
        Ok(if plain.stripe_count() == 0 { Layout { fid, ..Layout::default() } } else { plain })
    }
}

#[cfg(test)]
mod tests;
