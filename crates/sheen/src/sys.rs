//! System calls that the standard library does not have. The only unsafe code of the binary.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// The signals that end a process cleanly: from a terminal too.
const END_SIGNALS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT];

/// Keeps the end signals for `wait_for_end`. Must come before any thread is started; hang-ups are ignored.
pub fn hold_end_signals() {
    // SAFETY: the set is local; SIG_IGN is a valid disposition.
    unsafe {
        let set = end_signals();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Goes on where a terminal stops who is in its foreground: everybody who looks would wait for a mount whose process stands still.
pub fn outlive_stops_of_terminal() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGTSTP, libc::SIG_IGN) };
}

/// Lets the process end when nobody reads its output any more, as other tools do; not for servers, whose peers come and
/// go.
pub fn end_without_reader() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Undoes `end_without_reader`, for a command that has much to clean up before it ends.
pub fn outlive_readers() {
    // SAFETY: SIG_IGN is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Waits for an end signal.
pub fn wait_for_end() {
    let set = end_signals();
    let mut signal = 0;
    // SAFETY: both pointers are to locals.
    while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
}

/// What asks a command to stop: whoever started it, or the end of his terminal.
const INTERRUPTS: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Keeps what asks this command to stop for `wait_for_interrupt`, also from what it starts. Must come before any thread is started.
pub fn hold_interrupts() {
    let set = set_of(&INTERRUPTS);
    // SAFETY: the set is local.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Waits for somebody who asks this command to stop.
pub fn wait_for_interrupt() {
    let set = set_of(&INTERRUPTS);
    let mut signal = 0;
    // SAFETY: both pointers are to locals.
    while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
}

/// Waits until one of these can be read or has ended, and says for each of them whether it is so.
pub fn wait_readable<const N: usize>(of: [BorrowedFd<'_>; N]) -> io::Result<[bool; N]> {
    let entry = |fd: BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut entries = of.map(entry);
    loop {
        // SAFETY: the pointer and the count are of a local, and its descriptors are open.
        let found = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
        match check(found) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(entries.map(|entry| entry.revents != 0)),
        }
    }
}

/// Whether an end signal has come for which nobody has waited yet.
pub fn is_end_pending() -> bool {
    // SAFETY: an all-zero set is valid for sigpending, which fills it; it is a local.
    let pending = unsafe {
        let mut set = std::mem::zeroed();
        if libc::sigpending(&raw mut set) != 0 {
            return false;
        }
        set
    };
    // SAFETY: the set was filled.
    END_SIGNALS.iter().any(|signal| unsafe { libc::sigismember(&raw const pending, *signal) } == 1)
}

fn end_signals() -> libc::sigset_t {
    set_of(&END_SIGNALS)
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: an all-zero set is valid for sigemptyset, which initialises it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

/// Has this process go on by itself, soon after somebody has stopped it with SIGSTOP. Must come before any other thread is started.
///
/// The kernel sends the signal of a timer also to a process that is stopped, and SIGCONT wakes it. Who is stopped again just then
/// loses the signal that is under way, and with it its timer: therefore there are two, set anew with each signal.
pub fn go_on_when_stopped() -> io::Result<()> {
    let set = set_of(&[libc::SIGCONT]);
    // SAFETY: the set is local.
    check(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) })?;
    let timers = [new_timer(libc::SIGCONT)?, new_timer(libc::SIGCONT)?];
    std::thread::Builder::new().name("go-on".to_owned()).spawn(move || {
        loop {
            for (timer, after_ms) in timers.iter().zip(GO_ON_MS) {
                timer.set(Duration::from_millis(after_ms));
            }
            let mut signal = 0;
            // SAFETY: both pointers are to locals.
            unsafe { libc::sigwait(&raw const set, &raw mut signal) };
        }
    })?;
    Ok(())
}

/// From linux/prctl.h.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// For a process that the kernel itself waits for when it is short of memory: no allocation of its own waits for pages to be written, which
/// only it may be able to do, and it is the last to be killed for want of memory. Of its threads this holds for those that are started
/// later. Needs CAP_SYS_RESOURCE.
pub fn stand_above_memory_pressure() -> io::Result<()> {
    let no: libc::c_ulong = 0;
    // SAFETY: takes numbers only.
    let flushes = check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, no, no, no) });
    // Where the one is refused the other may be granted.
    std::fs::write("/proc/self/oom_score_adj", "-1000").and(flushes)
}

/// Seldom enough to cost nothing, often enough for a machine that is about to be off.
const GO_ON_MS: [u64; 2] = [500, 750];

/// A timer of the kernel; it lives as long as the process.
struct Timer(libc::timer_t);

// SAFETY: a number of the kernel's, which every thread of the process may use.
unsafe impl Send for Timer {}

/// A timer that sends this signal.
fn new_timer(signal: i32) -> io::Result<Timer> {
    let mut timer = std::ptr::null_mut();
    // SAFETY: zeros are such a value; both pointers are to locals.
    check(unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = signal;
        libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer)
    })?;
    Ok(Timer(timer))
}

impl Timer {
    /// Once, after this time; what it was set to before is forgotten.
    fn set(&self, after: Duration) {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().into() };
        let when = libc::itimerspec { it_interval: none, it_value: value };
        // SAFETY: the timer was made and is never deleted; the time is a local.
        let done = unsafe { libc::timer_settime(self.0, 0, &raw const when, std::ptr::null_mut()) };
        assert_eq!(done, 0, "a timer of this process can be set");
    }
}

/// Connects to a socket in the file system without waiting for who listens there.
///
/// # Errors
/// `WouldBlock`: as many wait there already as can.
pub fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: all zeros are an address, of no family.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    // A zero stays behind it.
    if bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    address.sun_family = libc::AF_UNIX as _;
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as _;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    check(fd)?;
    // SAFETY: it was just made, and is nobody else's.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let byte_count = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is a local of this size.
    check(unsafe { libc::connect(fd, (&raw const address).cast(), byte_count) })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Lets one wait where somebody listens, and no more.
#[cfg(test)]
pub fn let_one_wait(listener: &std::os::unix::net::UnixListener) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0, "it listens already");
}

/// Sends a signal to a process.
pub fn kill(pid: u32, signal: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: no memory is involved.
    check(unsafe { libc::kill(pid, signal) })
}

/// Ends this process cleanly.
pub fn end_myself() {
    // A process may always signal itself.
    let _ = kill(std::process::id(), libc::SIGTERM);
}

/// Ends this process as `kill -9` does: nothing of it runs any more, and nothing is written.
pub fn die() -> ! {
    loop {
        // A process may always signal itself.
        let _ = kill(std::process::id(), libc::SIGKILL);
    }
}

/// What a user is called on this machine, if the machine's own list says so.
pub fn name_of_user(user: u32) -> Option<String> {
    let list = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // passwd(5): name, password, number.
    let entry = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    };
    list.lines().find_map(entry)
}

/// True while the process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name: the state is field 3 of proc(5), the number of threads field 20.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let state = fields.next();
    let thread_count: Option<u32> = fields.nth(16).and_then(|count| count.parse().ok());
    // The first thread may be a zombie while others still hold files and locks open.
    state.is_some_and(|state| !"ZX".contains(state)) || thread_count.is_some_and(|count| count > 1)
}

/// True for a process that has ended or is about to: it only lets go of what it has.
pub fn is_going(pid: u32) -> bool {
    // From the kernel's headers: PF_EXITING.
    const EXITING: u32 = 4;
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let is_dead = fields.next().is_none_or(|state| "ZX".contains(state));
    // Field 9 of proc(5), six after the state.
    let flags: u32 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    let is_killed = |line: &str| {
        let pending = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        pending.is_some_and(|set| set & (1 << (libc::SIGKILL - 1)) != 0)
    };
    is_dead || flags & EXITING != 0 || status.lines().any(is_killed)
}

/// Whether somebody has stopped a process, as by SIGSTOP: it does nothing before it is told to go on.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// CPU time that a process has used, in nanoseconds' resolution, with that of its threads that have ended.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    let pid = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut clock = 0;
    // SAFETY: the clock is a local.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is a local.
    check(unsafe { libc::clock_gettime(clock, &raw mut time) })?;
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// CPU time of processes that this one has started and waited for, in microseconds' resolution.
pub fn children_cpu_time() -> io::Result<Duration> {
    // SAFETY: zeros are such a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the usage is a local.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) })?;
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// A row of `/proc/PID/io`: what a process has read by its own calls (`rchar`), or what was fetched from a device for it
/// (`read_bytes`). `None` when it is not there, or somebody else's.
pub fn io_count(pid: u32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let row = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
    text.lines().find_map(row)
}

/// Bytes of private memory (RssAnon) that a process has. `None` when it is not there.
pub fn anon_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

pub fn uid() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// User and group of this process.
pub fn owner() -> (u32, u32) {
    // SAFETY: neither can fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Makes the command start with these descriptors open under the same numbers, and, besides its standard streams, with none that
/// whoever started us has left open: a lock on one would be held, and a pipe have no end, for as long as the command lives.
pub fn hand_over(command: &mut Command, open: Vec<i32>) {
    let others = open_descriptors();
    let prepare = move || {
        let set = |fd: &i32, flags: i32| {
            // SAFETY: takes no pointers, and is safe after fork.
            check(unsafe { libc::fcntl(*fd, libc::F_SETFD, flags) })
        };
        for fd in &others {
            // That it is closed already is as good.
            let _ = set(fd, libc::FD_CLOEXEC);
        }
        open.iter().try_for_each(|fd| set(fd, 0))
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// What this process has open besides its standard streams.
fn open_descriptors() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    entries.filter_map(number).filter(|fd| *fd > libc::STDERR_FILENO).collect()
}

/// Makes the command start in a session of its own.
pub fn detach(command: &mut Command) {
    let prepare = || {
        start_session();
        Ok(())
    };
    // SAFETY: `prepare` makes one system call.
    unsafe { command.pre_exec(prepare) };
}

/// Makes this process the first of a session of its own, if it is not.
pub fn start_session() {
    // SAFETY: takes no pointers. It fails for the first process of a session or group, and no other is started as such here.
    unsafe { libc::setsid() };
}

/// Makes the command start in a session of its own, ended by the signals that usually end a program: this process keeps them for itself.
pub fn detach_with_signals(command: &mut Command) {
    let prepare = || {
        // SAFETY: both calls are safe after fork; the set is local.
        unsafe {
            libc::setsid();
            let set = end_signals();
            check(libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()))
        }
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Kills a child that was started in a session of its own (`detach`), with all that it has started there.
pub fn kill_group(child: &Child) {
    let pid = libc::pid_t::try_from(child.id()).unwrap_or(libc::pid_t::MAX);
    // SAFETY: a plain system call. The child is not waited for yet, so its number is its own.
    unsafe { libc::kill(-pid, libc::SIGKILL) };
}

/// A pipe: read end, write end. Both are closed in programs that are started.
pub fn pipe() -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which are ours alone afterwards.
    unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]).into(), OwnedFd::from_raw_fd(ends[1]).into()))
    }
}

/// The same open file, which programs that are started have too.
pub fn inherited_copy(file: &File) -> io::Result<File> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::dup(file.as_raw_fd()) };
    check(fd)?;
    // SAFETY: it was just made, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// A file in memory.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: the name is a string with its end, and is only read.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    check(fd)?;
    // SAFETY: it was just made, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Where the first hole of a file begins: at its end where it has none, or its file system does not tell.
pub fn first_hole(file: &File) -> io::Result<u64> {
    // SAFETY: takes no pointers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}

/// The descriptor that whoever started us left open for our first words.
pub fn inherited_file(fd: i32) -> io::Result<File> {
    // SAFETY: only asks whether the descriptor is open.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, and named on our command line for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// mount(2) with MS_REMOUNT.
pub fn remount(path: &Path, source: &str, flags: libc::c_ulong) -> io::Result<()> {
    let (path, source) = (CString::new(path.as_os_str().as_bytes())?, CString::new(source)?);
    let flags = libc::MS_REMOUNT | flags;
    // SAFETY: the strings end with NUL and live across the call; fuse takes no data at a remount.
    check(unsafe {
        libc::mount(source.as_ptr(), path.as_ptr(), c"fuse.sheen".as_ptr(), flags, std::ptr::null())
    })
}

/// Reconfigures a mounted file system without changing anything, by which the kernel forgets its names that nothing uses.
pub fn reconfigure(path: &Path) -> io::Result<()> {
    // From linux/mount.h.
    const FSPICK_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_RECONFIGURE: libc::c_uint = 7;
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the string ends with NUL and lives across the call.
    let fd = unsafe { libc::syscall(libc::SYS_fspick, libc::AT_FDCWD, path.as_ptr(), FSPICK_CLOEXEC) };
    let fd = libc::c_int::try_from(fd).unwrap_or(-1);
    check(fd)?;
    // SAFETY: the descriptor is new and nobody else's.
    let picked = unsafe { OwnedFd::from_raw_fd(fd) };
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value.
    let done = unsafe {
        libc::syscall(libc::SYS_fsconfig, picked.as_raw_fd(), FSCONFIG_CMD_RECONFIGURE, none, none, 0)
    };
    check(libc::c_int::try_from(done).unwrap_or(-1))
}

/// Whether an open file is on a mount that is read-only, or on a file system that is. No target is asked for its space for that, as
/// statvfs(3) would do.
pub fn is_read_only(file: &File) -> io::Result<bool> {
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: the string ends with NUL and lives across the call.
    let writable = check(unsafe { libc::access(path.as_ptr(), libc::W_OK) });
    Ok(writable.is_err_and(|error| error.raw_os_error() == Some(libc::EROFS)))
}

/// ioctl(2) with a buffer that goes in and comes out.
pub fn ioctl(file: &File, command: u32, buffer: &mut [u8]) -> io::Result<()> {
    // SAFETY: the size in `command` is at most the buffer's (checked by the only caller's constant).
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::c_ulong::from(command) as _, buffer.as_mut_ptr()) })
}

/// Locks the file for as long as this description of it is open; false when another one has it.
pub fn try_lock(file: &File) -> io::Result<bool> {
    let lock = whole_file(libc::F_WRLCK);
    // SAFETY: the lock is a local of the type that the command takes.
    match check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether nobody has the lock of `try_lock`. Takes it from nobody, not even for a moment.
pub fn is_unlocked(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the lock is a local of the type that the command takes.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) })?;
    Ok(i32::from(lock.l_type) == libc::F_UNLCK)
}

/// Whether no name leads to the file any more: a lock on it keeps nobody away.
pub fn is_removed(file: &File) -> io::Result<bool> {
    Ok(file.metadata()?.nlink() == 0)
}

fn whole_file(kind: i32) -> libc::flock {
    // SAFETY: all zeros is a valid flock: from the start to the end of everything.
    let zero: libc::flock = unsafe { std::mem::zeroed() };
    libc::flock { l_type: kind as libc::c_short, l_whence: libc::SEEK_SET as libc::c_short, ..zero }
}

/// Lets this process open as many files as it may: object files and connections need more than the usual 1024. Returns how many.
pub fn raise_file_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local. Failing, the old one stays.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

/// Only the owner may use what this process creates from now on, until it is set back. Returns the old mask.
pub fn set_umask(mask: u32) -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::umask(mask) }
}

/// posix_fadvise(2): the cached pages of the file are not needed any more.
pub fn drop_pages(file: &File) -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// What the kernel knows by itself of what a path leads to.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its type, as stat(2) tells it.
    pub mode: u32,
    pub inode_number: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    /// Something is mounted here: what has this name in the directory above is another one.
    pub is_mount_root: bool,
}

impl Known {
    pub fn is_type(&self, type_bits: u32) -> bool {
        self.mode & libc::S_IFMT == type_bits
    }
}

/// Asks no file system but for names, and sets off no automounter.
pub fn known_of(path: &Path, follows_link: bool) -> io::Result<Known> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let link_flag = if follows_link { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT | link_flag;
    // SAFETY: all zeros is a valid statx; the string ends with NUL, and both live across the call.
    let found = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        check(libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, 0, &raw mut found))?;
        found
    };
    Ok(Known {
        mode: u32::from(found.stx_mode),
        inode_number: found.stx_ino,
        device: (found.stx_dev_major, found.stx_dev_minor),
        is_mount_root: found.stx_attributes & libc::STATX_ATTR_MOUNT_ROOT as u64 != 0,
    })
}

/// `MAJOR:MINOR` of what a path leads to, as mount tables write it.
pub fn device_of(path: &Path) -> io::Result<String> {
    known_of(path, true).map(|Known { device: (major, minor), .. }| format!("{major}:{minor}"))
}

/// Whether we may make files in this directory.
pub fn is_writable(dir: &Path) -> bool {
    let Ok(path) = CString::new(dir.as_os_str().as_bytes()) else { return false };
    // SAFETY: the string ends with NUL and lives across the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK | libc::X_OK, libc::AT_EACCESS) == 0 }
}

/// Writes pages out that were changed through mappings (syncfs(2)). FUSE is not told; its write requests are what matters.
pub fn write_pages(dir: &Path) -> io::Result<()> {
    let dir = File::open(dir)?;
    // SAFETY: the descriptor is open.
    check(unsafe { libc::syncfs(dir.as_raw_fd()) })
}

/// lstat(2), only the mode. What the standard library calls asks for the time of birth, too, which no kernel remembers for a FUSE
/// file system: each such call would be a request.
pub fn mode(path: &Path) -> io::Result<libc::mode_t> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the string ends with NUL, and there is room for the answer.
    check(unsafe { libc::lstat(path.as_ptr(), stat.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it is filled.
    Ok(unsafe { stat.assume_init() }.st_mode)
}

/// lgetxattr(2), only the length of the value.
pub fn xattr_bytes(path: &Path, name: &CStr) -> io::Result<usize> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with NUL and live across the call; no buffer is given for a length of 0.
    let result = unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub fn set_xattr(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both strings end with NUL and live across the call, as the value does.
    check(unsafe { libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// renameat2(2) with `RENAME_EXCHANGE` or `RENAME_NOREPLACE`.
pub fn rename(old: &Path, new: &Path, flags: libc::c_uint) -> io::Result<()> {
    let (old, new) = (CString::new(old.as_os_str().as_bytes())?, CString::new(new.as_os_str().as_bytes())?);
    // SAFETY: both strings end with NUL and live across the call.
    check(unsafe { libc::renameat2(libc::AT_FDCWD, old.as_ptr(), libc::AT_FDCWD, new.as_ptr(), flags) })
}

pub fn make_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the string ends with NUL and lives across the call.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o644) })
}

/// A file, mapped to be read.
pub struct Mapping {
    address: *const u8,
    byte_count: usize,
}

impl Mapping {
    pub fn new(file: &File) -> io::Result<Mapping> {
        let byte_count = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let address =
            unsafe { libc::mmap(std::ptr::null_mut(), byte_count, protection, flags, file.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { address: address.cast(), byte_count })
    }

    /// `None` beyond the end. What cannot be read, or was cut off since, ends the process by SIGBUS.
    pub fn byte(&self, offset_bytes: usize) -> Option<u8> {
        // SAFETY: it is in the mapping, which lives as long as this; others may write there, so the read is volatile.
        (offset_bytes < self.byte_count).then(|| unsafe { self.address.add(offset_bytes).read_volatile() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is our own mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.address.cast_mut().cast(), self.byte_count) };
    }
}

fn check(result: i32) -> io::Result<()> {
    if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
