//! Asynchronous writes (io_submit(2)), which glibc does not offer.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `IOCB_CMD_PWRITE`
const WRITE: u16 = 1;

/// `struct iocb`, where the machine is little-endian.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    byte_count: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    second_result: i64,
}

const _: () = assert!(size_of::<Request>() == 64);
const _: () = assert!(size_of::<Event>() == 32);

/// An asynchronous write, and waits for its end. With O_APPEND the kernel takes its own offset. -> Bytes that were written.
pub fn write_at(file: &File, bytes: &[u8], offset: i64) -> io::Result<usize> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes one number, which lives until the call returns.
    if unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let result = write_in(context, file, bytes, offset);
    // SAFETY: the context is this call's own; whatever is under way in it is waited for, so that the buffer is nobody's afterwards.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    result
}

fn write_in(context: libc::c_ulong, file: &File, bytes: &[u8], offset: i64) -> io::Result<usize> {
    let mut request = Request {
        opcode: WRITE,
        descriptor: file.as_raw_fd() as u32,
        buffer: bytes.as_ptr() as u64,
        byte_count: bytes.len() as u64,
        offset,
        ..Request::default()
    };
    let mut requests = [&raw mut request];
    // SAFETY: the request is copied before the call returns; its buffer outlives the context (`write_at`), and is only read.
    let submitted = unsafe { libc::syscall(libc::SYS_io_submit, context, 1, requests.as_mut_ptr()) };
    if submitted != 1 {
        return Err(io::Error::last_os_error());
    }
    let mut event = Event::default();
    loop {
        let no_limit = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel writes one event, which lives until the call returns.
        match unsafe { libc::syscall(libc::SYS_io_getevents, context, 1, 1, &raw mut event, no_limit) } {
            1 => break,
            0 => {}
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
    usize::try_from(event.result).map_err(|_| io::Error::from_raw_os_error(-event.result as i32))
}
