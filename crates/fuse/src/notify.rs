//! Messages to the kernel that nobody asked for: forget this, keep that.

use std::fs::File;
use std::io;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi;
use crate::init::Negotiated;
use crate::sys;

/// What became of a notification that the kernel understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// The kernel knew the object and has dropped what was named.
    Done,
    /// The kernel knows no such object *yet*: an answer that was just written may still introduce it, so for an inode
    /// this is no proof that nothing is cached (revoke the name first, then the inode).
    Unknown,
}

/// Sends notifications. Cheap to clone.
///
/// Never call [`Notifier::inval_inode`], [`Notifier::inval_entry`], [`Notifier::expire_entry`], [`Notifier::delete_entry`], [`Notifier::store`] or
/// [`Notifier::prune`] from a transport thread: they wait for locks that a caller holds whose request waits for that
/// thread. On a transport thread they return `EDEADLK`. [`Notifier::inc_epoch`] takes no lock and may be called anywhere.
#[derive(Debug, Clone)]
pub struct Notifier {
    device: Arc<File>,
    negotiated: Negotiated,
}

impl Notifier {
    pub(crate) fn new(device: Arc<File>, negotiated: Negotiated) -> Self {
        Self { device, negotiated }
    }

    /// True if [`Notifier::inc_epoch`] works: the protocol is 7.44 or newer. Without it names must get no lifetime.
    pub fn has_inc_epoch(&self) -> bool {
        self.negotiated.has_inc_epoch()
    }

    /// True if [`Notifier::prune`] works: the protocol is 7.45 or newer.
    pub fn has_prune(&self) -> bool {
        self.negotiated.minor >= 45
    }

    /// Drops the attributes of an inode and the pages from `offset` on; `len` 0 or less means to the end, a negative
    /// `offset` means attributes only. Waits for pages that a READ or a writeback holds.
    pub fn inval_inode(&self, nodeid: u64, offset: i64, len: i64) -> io::Result<Notified> {
        refuse_on_transport_thread()?;
        let body = abi::NotifyInvalInodeOut { ino: nodeid, off: offset, len };
        self.send(abi::notify::INVAL_INODE, &[body.as_bytes()])
    }

    /// Drops a name, positive or negative, with what is mounted there, and the path of whose working directory it leads to. Waits for the
    /// directory's lock, which creators hold across their request.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> io::Result<Notified> {
        self.end_entry(parent, name, 0)
    }

    /// Has a name looked up before it is believed again; Linux before 6.3 drops it. A lookup whose answer was on its way before this, with a
    /// lifetime, gives it that: unlike a lookup of what the kernel does not have, one of what it has takes no lock.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<Notified> {
        let can_expire = self.negotiated.has(abi::init::HAS_EXPIRE_ONLY);
        self.end_entry(parent, name, if can_expire { abi::EXPIRE_ONLY } else { 0 })
    }

    fn end_entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<Notified> {
        refuse_on_transport_thread()?;
        let body = abi::NotifyInvalEntryOut { parent, namelen: name_len(name)?, flags };
        self.send(abi::notify::INVAL_ENTRY, &[body.as_bytes(), name, b"\0"])
    }

    /// Like [`Notifier::inval_entry`] for a name that was removed elsewhere: watchers are told. The name goes only if
    /// it leads to `child`; a directory that is not empty or is a mount point answers an error.
    pub fn delete_entry(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<Notified> {
        refuse_on_transport_thread()?;
        let body = abi::NotifyDeleteOut { parent, child, namelen: name_len(name)?, padding: 0 };
        self.send(abi::notify::DELETE, &[body.as_bytes(), name, b"\0"])
    }

    /// Makes every cached name of the mount invalid at once, without any lock. Not ordered against READDIRPLUS.
    pub fn inc_epoch(&self) -> io::Result<Notified> {
        if !self.has_inc_epoch() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.send(abi::notify::INC_EPOCH, &[])
    }

    /// Puts bytes into the page cache of an inode that the kernel knows. Overwrites what an application may have
    /// written to those pages and can extend the size that the kernel believes in; waits for pages that a READ holds.
    pub fn store(&self, nodeid: u64, offset: u64, data: &[u8]) -> io::Result<Notified> {
        refuse_on_transport_thread()?;
        let size = u32::try_from(data.len()).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        let body = abi::NotifyStoreOut { nodeid, offset, size, padding: 0 };
        self.send(abi::notify::STORE, &[body.as_bytes(), data])
    }

    /// Asks the kernel to drop these inodes if nobody uses them.
    pub fn prune(&self, nodeids: &[u64]) -> io::Result<Notified> {
        refuse_on_transport_thread()?;
        if !self.has_prune() {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let body = abi::NotifyPruneOut { count: nodeids.len() as u32, padding: 0, spare: 0 };
        self.send(abi::notify::PRUNE, &[body.as_bytes(), nodeids.as_bytes()])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<Notified> {
        match sys::write_message(&self.device, 0, code, parts) {
            Ok(()) => Ok(Notified::Done),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Notified::Unknown),
            Err(error) => Err(error),
        }
    }
}

fn name_len(name: &[u8]) -> io::Result<u32> {
    // The kernel's limit for a name in FUSE.
    if name.len() > 1024 {
        Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
    } else {
        Ok(name.len() as u32)
    }
}

fn refuse_on_transport_thread() -> io::Result<()> {
    if crate::session::is_transport_thread() {
        return Err(io::Error::from_raw_os_error(libc::EDEADLK));
    }
    Ok(())
}
