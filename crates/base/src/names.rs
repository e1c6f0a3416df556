//! File names: what is allowed, and where a name stands in its directory.

use crate::Status;
use crate::limits::NAME_BYTES_MAX;

/// Positions below this stand for the start of a directory, `.` and `..`.
pub const POSITION_FIRST: u64 = 3;

/// Place of a name in its directory: what READDIR sorts by, and the hash of `Resource::Name`. XXH3 of the bytes
/// without its top bit (positions are signed for some callers), 0 to 2 left free. Part of the disk format.
pub fn name_hash(name: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(POSITION_FIRST)
}

/// Which of the stripes of a directory holds a name; `None` when there are none. Part of the disk format.
pub fn stripe_of<T: Copy>(stripes: &[T], name: &[u8]) -> Option<T> {
    let index = name_hash(name).checked_rem(stripes.len() as u64)?;
    stripes.get(index as usize).copied()
}

/// # Errors
/// `NameTooLong` above 255 bytes; `Invalid` for what no system call lets through: empty, `.`, `..`, `/` or NUL.
pub fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&byte| byte == b'/' || byte == 0)
    {
        return Err(Status::Invalid);
    }
    Ok(())
}

/// Whether this is a name of an xattr that may be there, as ext4 has it. Which of them the caller may see or change is another matter.
///
/// # Errors
/// `NotSupported` for another name space; `Invalid` for one of those that take any name, without a name.
pub fn check_xattr_name(name: &[u8]) -> Result<(), Status> {
    const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    let mut spaces = [&b"user."[..], b"trusted.", b"security."].into_iter();
    match spaces.find_map(|space| name.strip_prefix(space)) {
        Some([]) => Err(Status::Invalid),
        None if !ACLS.contains(&name) => Err(Status::NotSupported),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
