//! Has an overlay over an image follow the updates of the image.
//!
//! An overlay keeps what it has looked up. When the file below such a name is replaced, the kernel answers ESTALE for the name until it
//! forgets it, and asks nobody again (`ovl_revalidate_real`, at least from Linux 4.20 to 6.18). It forgets the names that nothing uses when
//! the overlay is reconfigured, whatever is changed by that; here it is nothing. A name that a process has open or works in stays: therefore
//! it is done again after an update, each time after twice the pause, and a name in use is known again at most as long after it is let go of
//! as it had been in use.

use super::place::{self, Mark};
use crate::{mount_table, say, sys};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often the mark is looked at. The kernel has it in its cache: no server is asked until it changes.
const POLL: Duration = Duration::from_millis(200);
/// While an update runs, the overlays forget again and again, at last this seldom: it may have been broken off for good.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Never returns, unless overlays cannot be reconfigured here.
pub fn follow(root: &Path) {
    let mut seen = place::read_mark(root).ok();
    let (mut pause, mut forgotten_at) = (POLL, Instant::now());
    loop {
        thread::sleep(POLL);
        // An image that is gone, or whose servers are, changes nothing.
        let Ok(now) = place::read_mark(root) else { continue };
        let is_new = seen.as_ref() != Some(&now);
        if !is_new && forgotten_at.elapsed() < pause {
            continue;
        }
        pause = if is_new { POLL } else { next_pause(pause, now.is_changing) };
        if !forget(root, &now) {
            return;
        }
        forgotten_at = Instant::now();
        seen = Some(now);
    }
}

fn next_pause(pause: Duration, is_changing: bool) -> Duration {
    let doubled = pause.saturating_mul(2);
    if is_changing { doubled.min(PAUSE_MAX) } else { doubled }
}

/// True if it can be done again.
fn forget(root: &Path, mark: &Mark) -> bool {
    mount_table::overlays_over(root).iter().all(|overlay| {
        let done = sys::reconfigure(overlay);
        if let Err(error) = &done {
            say::note(format_args!(
                "{} does not follow updates, version {} being the first: {error}; names that it knows may say ESTALE",
                overlay.display(),
                mark.version
            ));
        }
        done.is_ok()
    })
}
