//! Reads all objects: each block against its checksum.

use crate::Target;
use crate::finding::{Finding, Findings, Kind, Repair};
use crate::image::{Image, Owner};
use crate::index::Index;
use crate::watch::{Doing, Ticker, Watch};
use base::{Extent, ObjectId, TargetKind};
use store::{ObjectStore, StoreError};

const PIECE_BYTES: u64 = 1 << 20;
/// Stores tell damage by blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// Returns the bytes that were read.
pub(crate) fn check(
    targets: &[Target<'_>],
    image: &Image,
    index: &Index,
    out: &mut Findings,
    watch: Watch<'_>,
) -> u64 {
    let objects = || image.osts.values().flat_map(|ost| ost.objects.values());
    let mut ticker = Ticker::begin(
        watch,
        Doing {
            // What is behind a cut, and what belongs to nobody, is not read, but seldom so much that it counts.
            byte_count: Some(objects().map(|stat| stat.size_bytes).fold(0, u64::saturating_add)),
            ..Doing::of("reading data", "objects", Some(objects().count()))
        },
    );
    for target in targets.iter().filter(|target| target.id.kind == TargetKind::Ost) {
        let (Some(ost), Some(objects)) = (image.osts.get(&target.id.index), target.objects) else { continue };
        for (object, stat) in &ost.objects {
            let owner = image.owner(target.id.index, object);
            // What has no header has no checksums, and is told otherwise where that is damage.
            if matches!(owner, Owner::Nobody | Owner::Replaced(_)) || !stat.has_begun {
                continue;
            }
            // What is behind a cut is said already.
            let end = ost.cut.get(object).map_or(u64::MAX, |cut| cut / BLOCK_BYTES * BLOCK_BYTES);
            let size_bytes = stat.size_bytes.min(end);
            let damaged = read_through(objects, object, size_bytes);
            ticker.item_of(size_bytes);
            match damaged {
                Ok(damaged) => {
                    for extent in damaged {
                        let what = shown(&owner, object, extent);
                        let repair = Repair::Not("restore the file, or write these bytes anew");
                        let subject = index.called_object(object);
                        out.add(Finding::new(Kind::DataDamaged, target.id, subject, what, repair));
                    }
                }
                Err(error) => {
                    let repair = Repair::Not("bring the storage back");
                    let (kind, subject) = (Kind::ObjectUnreadable, index.called_object(object));
                    out.add(Finding::new(kind, target.id, subject, error.to_string(), repair));
                }
            }
        }
    }
    ticker.bytes()
}

fn shown(owner: &Owner<'_>, object: &ObjectId, extent: Extent) -> String {
    let of_file = match owner {
        Owner::File(layout) => layout.stripe_of(*object).and_then(|stripe| layout.stripe(stripe)),
        _ => None,
    };
    match of_file.map(|stripe| stripe.file_range(extent)) {
        Some(range) => format!("bytes {range} of the file fail their checksums ({extent} of the object)"),
        None => format!("bytes {extent} of the object fail their checksums"),
    }
}

/// Extents that fail their checksums, as few as there are.
fn read_through(
    objects: &dyn ObjectStore,
    object: &ObjectId,
    size_bytes: u64,
) -> Result<Vec<Extent>, StoreError> {
    let mut damaged: Vec<Extent> = Vec::new();
    let mut at = 0;
    while at < size_bytes {
        // Behind a damaged block the next one is likely to be damaged too.
        let is_behind_damage = damaged.last().is_some_and(|extent| extent.end == at);
        let byte_count = if is_behind_damage { BLOCK_BYTES } else { PIECE_BYTES };
        match objects.read(object, at, byte_count.min(size_bytes - at) as usize) {
            Ok(_) => at += byte_count,
            Err(StoreError::CorruptObject { offset_bytes, .. }) => {
                let start = (offset_bytes / BLOCK_BYTES * BLOCK_BYTES).max(at);
                let end = (start + BLOCK_BYTES).min(size_bytes);
                match damaged.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => damaged.push(Extent::new(start, end)),
                }
                at = end;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}
