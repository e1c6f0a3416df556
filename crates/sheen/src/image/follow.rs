//! Has an overlay over an image follow the updates of the image.
//!
//! An overlay keeps what it has looked up. When the file below such a name is replaced, the kernel answers ESTALE for the name until it
//! forgets it, and asks nobody again (`ovl_revalidate_real`, at least from Linux 4.20 to 6.18). It forgets the names that nothing uses when
//! the overlay is reconfigured, whatever is changed by that; here it is nothing. While an update runs, that is done all the time. A name that
//! a process has open or works in stays: therefore it is done again after an update, each time after twice the pause, and a name in use is
//! known again at most as long after it is let go of as it had been in use.

use super::place::{self, Mark};
use crate::{mount_table, say, sys};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How often the mark is looked at: the client has its attributes in its cache, and no server is asked until they change. While an update
/// runs, the overlays forget as often, and that is how long a name that was replaced says ESTALE.
const POLL: Duration = Duration::from_millis(100);
/// Of an update that nothing is heard of any more: it may have been broken off for good.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// What a word of an update may take to come here.
const NEWS_DELAY_MAX: Duration = Duration::from_secs(3);

/// Never returns, unless overlays cannot be reconfigured here.
pub fn follow(root: &Path) {
    let (id, mut mark) = (place::mark_id(root).ok(), place::read_mark(root).ok());
    let mut seen = id.filter(|_| mark.is_some());
    let (mut pause, mut news_at, mut forgotten_at) = (POLL, Instant::now(), Instant::now());
    loop {
        thread::sleep(POLL);
        // An image that is gone, or whose servers are, changes nothing.
        let Ok(id) = place::mark_id(root) else { continue };
        let is_new = seen.as_ref() != Some(&id);
        if is_new {
            let Ok(now) = place::read_mark(root) else { continue };
            (seen, mark, news_at) = (Some(id), Some(now), Instant::now());
        }
        let Some(mark) = &mark else { continue };
        if !is_new && forgotten_at.elapsed() < pause {
            continue;
        }
        pause = if is_new { POLL } else { next_pause(pause, mark, news_at.elapsed()) };
        if !forget(root, mark) {
            return;
        }
        forgotten_at = Instant::now();
    }
}

fn next_pause(pause: Duration, mark: &Mark, since_news: Duration) -> Duration {
    let doubled = pause.saturating_mul(2);
    match mark.is_changing {
        // The next word comes when it has run for twice as long.
        true if since_news < patience(mark) => Duration::ZERO,
        true => doubled.clamp(POLL, PAUSE_MAX),
        false => doubled.max(POLL),
    }
}

fn patience(mark: &Mark) -> Duration {
    Duration::from_secs(mark.changing_seconds).saturating_mul(2).saturating_add(NEWS_DELAY_MAX)
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

#[cfg(test)]
mod tests;
