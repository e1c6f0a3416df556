//! The first exchange of a connection: which protocol, which capabilities.

use std::fs::File;
use std::io::{self, Read};

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, init, opcode};
use crate::mount::{MountError, MountOptions, TransportChoice};
use crate::sys;

#[cfg(test)]
mod tests;

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Threads that read `/dev/fuse`.
    Device,
    /// A ring per CPU.
    Uring,
}

/// What kernel and daemon agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor protocol version in use, at most [`abi::KERNEL_MINOR_VERSION`].
    pub minor: u32,
    /// Capabilities in use: bits of [`abi::init`].
    pub flags: u64,
    /// The greatest WRITE in bytes.
    pub max_write_bytes: u32,
    /// How requests travel.
    pub transport: Transport,
}

impl Negotiated {
    /// Whether all the capability bits are in use.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }

    /// Whether every cached name can be revoked at once without a lock. If not, names must get no lifetime.
    pub fn has_inc_epoch(&self) -> bool {
        self.minor >= 44
    }

    /// Whether attributes that were revoked while a SETATTR was answered stay revoked (Linux 6.16). If not, what that
    /// answers must get no lifetime. Nothing tells of the older kernels to which the mend was carried back.
    pub fn has_versioned_setattr(&self) -> bool {
        self.minor >= 44
    }
}

/// The capabilities that we take when they are offered.
///
/// Left out on purpose: ATOMIC_O_TRUNC (a truncating open of a running program must fail with ETXTBSY before the file is
/// cut, so the kernel has to send the truncation by itself), WRITEBACK_CACHE (the kernel would own size and mtime),
/// AUTO_INVAL_DATA (EXPLICIT_INVAL_DATA leaves invalidation to the locks), ALLOW_IDMAP (needs id mapping in the handler),
/// NO_OPEN and NO_OPENDIR (they remove handles).
fn wanted(options: &MountOptions, transport_may_be_uring: bool) -> u64 {
    let mut flags = init::ASYNC_READ
        | init::BIG_WRITES
        | init::HAS_IOCTL_DIR
        | init::DO_READDIRPLUS
        | init::READDIRPLUS_AUTO
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::ABORT_ERROR
        | init::MAX_PAGES
        | init::CACHE_SYMLINKS
        | init::EXPLICIT_INVAL_DATA
        | init::EXPORT_SUPPORT
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::HAS_EXPIRE_ONLY
        | init::CREATE_SUPP_GROUP;
    if options.remote_locks {
        flags |= init::POSIX_LOCKS | init::FLOCK_LOCKS;
    }
    if options.posix_acl {
        // With ACLs the umask may not be applied before the default ACL is known, so the handler applies it.
        flags |= init::POSIX_ACL | init::DONT_MASK;
    }
    if options.handle_killpriv_v2 {
        // Spares a GETXATTR of security.capability per write and makes the loss of set-id bits atomic with the write.
        flags |= init::HANDLE_KILLPRIV_V2;
    }
    if options.direct_io_allow_mmap {
        flags |= init::DIRECT_IO_ALLOW_MMAP;
    }
    if transport_may_be_uring {
        flags |= init::OVER_IO_URING;
    }
    flags
}

/// Computes the answer to INIT. Pure, so that old kernels can be tested without one.
pub(crate) fn answer(
    asked: &abi::InitIn,
    options: &MountOptions,
    uring_works: bool,
) -> Result<(abi::InitOut, Negotiated), MountError> {
    if asked.major != abi::KERNEL_VERSION || asked.minor < abi::KERNEL_MINOR_VERSION_MIN {
        return Err(MountError::Protocol { major: asked.major, minor: asked.minor });
    }
    let mut offered = u64::from(asked.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(asked.flags2) << 32;
    }
    let uring = options.transport != TransportChoice::Device && uring_works;
    let flags = offered & wanted(options, uring);
    let transport = if flags & init::OVER_IO_URING != 0 { Transport::Uring } else { Transport::Device };
    if transport == Transport::Device && options.transport == TransportChoice::Uring {
        return Err(MountError::UringUnavailable);
    }
    let page = sys::page_size();
    let pages = if flags & init::MAX_PAGES != 0 {
        options.max_write_bytes.div_ceil(page).clamp(1, 65535)
    } else {
        32
    };
    let minor = asked.minor.min(abi::KERNEL_MINOR_VERSION);
    let max_write_bytes = pages * page;
    let out = abi::InitOut {
        major: abi::KERNEL_VERSION,
        minor,
        max_readahead: asked.max_readahead.max(options.max_readahead_bytes),
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: options.max_background,
        congestion_threshold: options.max_background / 4 * 3,
        max_write: max_write_bytes,
        time_gran: 1,
        max_pages: pages as u16,
        ..Default::default()
    };
    Ok((out, Negotiated { minor, flags, max_write_bytes, transport }))
}

/// Reads INIT from a new connection and answers it.
pub(crate) fn negotiate(
    device: &File,
    options: &MountOptions,
    uring_works: bool,
) -> Result<Negotiated, MountError> {
    let mut buffer = vec![0u8; 16 << 10];
    let len = loop {
        match (&*device).read(&mut buffer) {
            Ok(len) => break len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(MountError::Init(error)),
        }
    };
    let message = buffer.get(..len).unwrap_or_default();
    let garbled = || MountError::Init(io::Error::from_raw_os_error(libc::EPROTO));
    let (header, body) = abi::InHeader::read_from_prefix(message).map_err(|_| garbled())?;
    if header.opcode != opcode::INIT {
        return Err(garbled());
    }
    // Kernels before 7.36 send a prefix of the structure.
    let mut asked = [0u8; size_of::<abi::InitIn>()];
    let present = body.len().min(asked.len());
    asked[..present].copy_from_slice(&body[..present]);
    let asked = abi::InitIn::read_from_bytes(&asked).map_err(|_| garbled())?;
    match answer(&asked, options, uring_works) {
        Ok((out, negotiated)) => {
            sys::write_message(device, header.unique, 0, &[out.as_bytes()]).map_err(MountError::Init)?;
            Ok(negotiated)
        }
        Err(error) => {
            let _ = sys::write_message(device, header.unique, -libc::EPROTO, &[]);
            Err(error)
        }
    }
}
