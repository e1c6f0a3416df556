//! The transport over `/dev/fuse`: threads that read requests and hand them over.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::abi::opcode;
use crate::decode::{self, Frame};
use crate::interrupts::InFlight;
use crate::reply::Destination;
use crate::session::{Shared, clone_device};
use crate::sys;

/// A descriptor that requests are read from. Their answers go to the same one: the kernel keeps its list of requests in
/// work per descriptor.
#[derive(Debug)]
pub(crate) struct Channel {
    file: Arc<File>,
    in_flight: Arc<InFlight>,
}

impl Channel {
    /// Writes an answer. Never blocks.
    pub fn answer(&self, unique: u64, error: i32, parts: &[&[u8]]) {
        // Before the write: afterwards the number may belong to a new request.
        self.in_flight.remove(unique);
        match sys::write_message(&self.file, unique, error, parts) {
            Ok(()) => {}
            // The request was aborted, or the mount is gone.
            Err(gone) if matches!(gone.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EPERM)) => {}
            Err(refused) => {
                tracing::error!(%refused, unique, error, "the kernel refused an answer; its caller gets EIO");
                let _ = sys::write_message(&self.file, unique, -libc::EIO, &[]);
            }
        }
    }
}

/// How many threads: as asked, or one per CPU, at least two so that one long callback does not stop everything.
pub(crate) fn thread_count(asked: usize, cpu_count: usize) -> usize {
    match asked {
        0 => cpu_count.clamp(2, 64),
        asked => asked.min(1024),
    }
}

pub(crate) fn start(
    shared: &Arc<Shared>,
    thread_count: usize,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<()> {
    let in_flight = Arc::new(InFlight::default());
    for index in 0..thread_count {
        // Each thread its own clone, so that they do not share one queue lock; where that is not possible, the same file.
        let file = match index {
            0 => shared.device.clone(),
            _ => clone_device(&shared.device).map_or_else(|_| shared.device.clone(), Arc::new),
        };
        let reader = Reader {
            channel: Arc::new(Channel { file, in_flight: in_flight.clone() }),
            in_flight: in_flight.clone(),
            index,
        };
        threads.push(shared.spawn(format!("fuse-dev-{index}"), move |shared| reader.run(&shared))?);
    }
    Ok(())
}

struct Reader {
    channel: Arc<Channel>,
    in_flight: Arc<InFlight>,
    index: usize,
}

/// Whether the connection goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Taken,
    Empty,
    Ended,
}

impl Reader {
    fn run(&self, shared: &Shared) {
        let mut buffer = vec![0u8; shared.message_bytes_max];
        match shared.handler.wake_fd(self.index) {
            None => {
                while self.take(shared, &mut buffer) != Next::Ended {
                    shared.handler.batch_end(self.index);
                }
            }
            Some(wake) => self.run_with_wake(shared, &mut buffer, wake),
        }
    }

    /// With a second descriptor to watch the reads must not block: poll, then read until nothing is left. The files of
    /// several readers may be one, so all of them are non-blocking then.
    fn run_with_wake(&self, shared: &Shared, buffer: &mut [u8], wake: i32) {
        if let Err(error) = sys::set_nonblocking(&self.channel.file) {
            tracing::error!(%error, "cannot set /dev/fuse non-blocking; this thread takes no requests");
            return;
        }
        /// Requests taken before the handler's loop runs: enough to share one send, few enough to keep answers flowing.
        const BATCH_MAX: usize = 32;
        loop {
            let device = self.channel.file.as_raw_fd();
            let [device_events, wake_events] = match sys::poll([device, wake], -1) {
                Ok(events) => events,
                Err(error) => {
                    tracing::error!(%error, "waiting for /dev/fuse failed; this thread ends");
                    return;
                }
            };
            if wake_events != 0 {
                shared.handler.woken(self.index);
            }
            if device_events != 0 {
                for _ in 0..BATCH_MAX {
                    match self.take(shared, buffer) {
                        Next::Taken => {}
                        Next::Empty => break,
                        Next::Ended => return,
                    }
                }
            }
            shared.handler.batch_end(self.index);
        }
    }

    /// Reads and hands over one message.
    fn take(&self, shared: &Shared, buffer: &mut [u8]) -> Next {
        match (&*self.channel.file).read(buffer) {
            Ok(len) => {
                if let Some(frame) = buffer.get(..len).and_then(|m| Frame::split(m, shared.dialect)) {
                    self.hand_over(shared, &frame);
                } else {
                    tracing::error!(len, "the kernel sent a message shorter than its header");
                }
                Next::Taken
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => Next::Empty,
                // ENOENT: the request was withdrawn while we read it.
                Some(libc::EINTR | libc::ENOENT) => Next::Taken,
                // ENODEV: unmounted. ECONNABORTED: aborted, with ABORT_ERROR.
                Some(libc::ENODEV | libc::ECONNABORTED) => Next::Ended,
                _ => {
                    tracing::error!(%error, "reading /dev/fuse failed; this thread ends");
                    Next::Ended
                }
            },
        }
    }

    fn hand_over(&self, shared: &Shared, frame: &Frame<'_>) {
        match frame.header.opcode {
            opcode::FORGET | opcode::BATCH_FORGET => hand_over_forget(shared, frame),
            opcode::INTERRUPT => {
                hand_over_interrupt(shared, frame, |unique| self.in_flight.is_handed_over(unique));
            }
            _ => {
                let unique = frame.header.unique;
                self.in_flight.insert(unique);
                let decoded = decode::decode(frame, shared.dialect, self.index);
                let destination = Destination::Device(self.channel.clone());
                if shared.dispatch(frame.header, decoded, destination) {
                    self.in_flight.mark_handed_over(unique);
                    if shared.early.take(unique) {
                        shared.handler.interrupt(unique);
                    }
                }
            }
        }
    }
}

pub(crate) fn hand_over_forget(shared: &Shared, frame: &Frame<'_>) {
    match decode::decode_forgets(frame) {
        Ok(forgets) => shared.handler.forget(&forgets),
        Err(error) => tracing::warn!(%error, "ignored a FORGET of the kernel"),
    }
}

/// An INTERRUPT is not answered: the answer to the request that it names is enough.
pub(crate) fn hand_over_interrupt(shared: &Shared, frame: &Frame<'_>, is_handed_over: impl Fn(u64) -> bool) {
    match decode::decode_interrupt(frame) {
        Ok(unique) => {
            shared.early.put(unique);
            if is_handed_over(unique) && shared.early.take(unique) {
                shared.handler.interrupt(unique);
            }
        }
        Err(error) => tracing::warn!(%error, "ignored an INTERRUPT of the kernel"),
    }
}
