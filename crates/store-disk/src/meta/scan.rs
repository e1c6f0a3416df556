//! Rows of the overlay and of the base as one.

use crate::index::FullRow;
use crate::overlay::Row;
use std::ops::Range;
use std::sync::Arc;
use store::{KEY_BYTES_MAX, StoreError, Table};

/// Rows that a scan takes together; no lock is kept between the parts.
const SCAN_PART_ROWS: usize = 256;

/// Rows of one part, and where the next part begins; `None` if this was the last.
pub(super) struct ScanPart {
    rows: Vec<(Vec<u8>, Arc<[u8]>)>,
    next: Option<Vec<u8>>,
}

/// Up to `limit` rows of each, of the same range; those of the overlay win.
pub(super) fn merge(overlay: Vec<(Box<[u8]>, Row)>, stored: Vec<FullRow>, limit: usize) -> ScanPart {
    let overlay_end = (overlay.len() == limit).then(|| overlay.last().map(|(key, _)| key.to_vec())).flatten();
    let stored_end = (stored.len() == limit).then(|| stored.last().map(|(key, _)| key.clone())).flatten();
    // Beyond the earlier end of the two, one side is not known yet.
    let end = match (overlay_end, stored_end) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let is_known = |key: &[u8]| end.as_deref().is_none_or(|end| key <= end);
    let mut overlay = overlay.into_iter().take_while(|(key, _)| is_known(key)).peekable();
    let mut stored = stored.into_iter().take_while(|(key, _)| is_known(key)).peekable();
    let mut rows = Vec::new();
    loop {
        let is_overlay = match (overlay.peek(), stored.peek()) {
            (Some((a, _)), Some((b, _))) => {
                if **a == **b {
                    stored.next();
                    true
                } else {
                    **a < **b
                }
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => break,
        };
        if is_overlay {
            if let Some((key, Some(value))) = overlay.next() {
                rows.push((key.into_vec(), value));
            }
        } else if let Some((key, value)) = stored.next() {
            rows.push((key, Arc::from(value)));
        }
    }
    let next = end.map(|mut key| {
        key.push(0);
        key
    });
    ScanPart { rows, next }
}

/// Rows of a range, at most so many.
type PartOf<'a> = &'a dyn Fn(&[u8], &[u8], usize) -> Result<ScanPart, StoreError>;

/// What `MetaStore::scan` does, over whoever gives the parts.
pub(super) fn in_parts(
    part: PartOf<'_>,
    table: Table,
    bounds: Range<&[u8]>,
    limit: usize,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), StoreError> {
    // A bound may be longer than any key: cut, it still lies where it did between the keys there are.
    let full = |bound: &[u8]| {
        let mut key = vec![table];
        key.extend_from_slice(bound.get(..KEY_BYTES_MAX + 1).unwrap_or(bound));
        key
    };
    let (mut from, to) = (full(bounds.start), full(bounds.end));
    let mut left = limit;
    while left > 0 && from < to {
        let part = part(&from, &to, left.min(SCAN_PART_ROWS))?;
        for (key, value) in part.rows.iter().take(left) {
            if !visit(key.get(1..).unwrap_or_default(), value) {
                return Ok(());
            }
        }
        left = left.saturating_sub(part.rows.len());
        let Some(next) = part.next else { break };
        from = next;
    }
    Ok(())
}
