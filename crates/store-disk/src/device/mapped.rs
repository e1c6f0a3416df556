//! Files that are mapped, and what becomes of a store into one that somebody has cut.
//!
//! The kernel has no page for it then, and sends SIGBUS to the thread, which ends the process, and with it every target that it
//! serves. So there is a handler. It puts memory of the process in the place of the mapping and notes that it has; the store is done
//! again, goes there, and whoever uses the mapping is told (`is_gone`). Any other SIGBUS goes where it went before.

use super::allocate;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// One for each target of a process that has a note, and one more while a note grows: far more than targets.
const MAPPING_COUNT_MAX: usize = 1024;

/// A mapping that the handler knows. It may read this at any instruction of any thread.
struct Place {
    is_taken: AtomicBool,
    /// 0: there is none here. Written last and cleared first.
    start: AtomicUsize,
    byte_count: AtomicUsize,
    is_gone: AtomicBool,
}

static PLACES: [Place; MAPPING_COUNT_MAX] = [const {
    Place {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        byte_count: AtomicUsize::new(0),
        is_gone: AtomicBool::new(false),
    }
}; MAPPING_COUNT_MAX];

/// What a SIGBUS of others does; `None` if ours could not be made known.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();

impl Place {
    fn take() -> Option<&'static Place> {
        PLACES.iter().find(|place| !place.is_taken.swap(true, Ordering::AcqRel))
    }

    fn show(&self, start: usize, byte_count: usize) {
        self.is_gone.store(false, Ordering::Relaxed);
        self.byte_count.store(byte_count, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }

    fn free(&self) {
        self.start.store(0, Ordering::Release);
        self.is_taken.store(false, Ordering::Release);
    }

    /// Start and length, if the address is in it.
    fn around(&self, address: usize) -> Option<(usize, usize)> {
        let start = self.start.load(Ordering::Acquire);
        let byte_count = self.byte_count.load(Ordering::Acquire);
        // Freed and taken anew in between, it has another length.
        let is_same = self.start.load(Ordering::Acquire) == start;
        (is_same && start != 0 && address.wrapping_sub(start) < byte_count).then_some((start, byte_count))
    }
}

/// A file that is mapped: what is stored here stays when the process dies.
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    byte_count: usize,
    place: &'static Place,
}

// SAFETY: it is memory of the process, which any thread may use, and all uses of it are atomic.
unsafe impl Send for SharedWords {}

impl SharedWords {
    /// Maps the beginning of a file, which is given all the blocks that this takes: a later store cannot meet a full device.
    pub(crate) fn map(file: &File, byte_count: usize) -> io::Result<SharedWords> {
        if !handle_cuts() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        allocate(file, 0, 0, byte_count as u64)?;
        let place = Place::take().ok_or(io::ErrorKind::QuotaExceeded)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that is as long as that.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), byte_count, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let mapped = if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) };
        let Some(mapped) = mapped else {
            let error = io::Error::last_os_error();
            place.free();
            return Err(error);
        };
        place.show(start as usize, byte_count);
        Ok(SharedWords { start: mapped, byte_count, place })
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.byte_count
    }

    /// The file has lost pages, and some of what was stored is nowhere.
    pub(crate) fn is_gone(&self) -> bool {
        self.place.is_gone.load(Ordering::Relaxed)
    }

    pub(crate) fn get(&self, index: usize) -> Option<&AtomicU64> {
        let is_inside = index < self.byte_count / size_of::<AtomicU64>();
        // SAFETY: inside of the mapping, which is aligned to pages and lives as long as the borrow. Nobody uses it but through this.
        is_inside.then(|| unsafe { self.start.add(index).as_ref() })
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // First: the kernel may give the addresses to anybody afterwards.
        self.place.free();
        // SAFETY: this mapping, of which no borrow is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.byte_count) };
    }
}

/// True if a store into a file that was cut is survived from here on.
fn handle_cuts() -> bool {
    let before = BEFORE.get_or_init(|| {
        // SAFETY: an action of zeros is valid; what matters is set below.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        ours.sa_sigaction = handler as usize;
        // On the stack that a thread has for signals, as the handler that was there before may need it.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: both are ours and outlive the call; the handler does only what a handler may.
        (unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, &raw mut before) } == 0).then_some(before)
    });
    before.is_some()
}

/// Takes no lock and allocates nothing; mmap(2) and sigaction(2) are plain system calls on Linux.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a siginfo of this signal, which has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let found = PLACES.iter().find_map(|place| Some((place, place.around(address)?)));
    if let Some((place, (start, byte_count))) = found
        && replace(start, byte_count)
    {
        place.is_gone.store(true, Ordering::Relaxed);
        return;
    }
    pass_on(signal, info, context);
}

/// Puts memory of the process where a mapping is.
fn replace(start: usize, byte_count: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: errno is the thread's own; its place is valid for as long as the thread is.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above. What this thread was about may look at it afterwards.
    let kept = unsafe { *errno };
    // SAFETY: exactly a mapping of ours, which is used by atomic accesses only: they find zeros there from now on.
    let mapped = unsafe { libc::mmap(start as *mut libc::c_void, byte_count, access, flags, -1, 0) };
    // SAFETY: as above.
    unsafe { *errno = kept };
    mapped as usize == start
}

/// To whoever was told of this signal before, or to the end that it has by default.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let before = BEFORE.get().and_then(Option::as_ref);
    let told = before.filter(|before| {
        let is_function = ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction);
        is_function && before.sa_flags & libc::SA_SIGINFO != 0
    });
    if let Some(before) = told {
        // SAFETY: the kernel had this as a handler of this kind.
        let handler = unsafe { std::mem::transmute::<*const (), Handler>(before.sa_sigaction as *const ()) };
        return handler(signal, info, context);
    }
    // SAFETY: an action of zeros is the default one. The access is done again, and ends the process.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &raw const default, ptr::null_mut());
    }
}
