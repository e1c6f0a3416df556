use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use anyhow::Result;

use crate::case::{Context, expect, expect_bytes, expect_eq, expect_errno, skip, write};
use crate::sys;

const NOBODY: u32 = 65534;

/// user.*: set, get, list, replace, remove, through both mounts.
pub fn user(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    sys::set_xattr(&a, "user.one", b"1", 0)?;
    sys::set_xattr(&b, "user.two", b"", 0)?;
    expect_eq(sys::list_xattrs(&a)?, vec!["user.one", "user.two"], "names")?;
    expect_bytes(&sys::get_xattr(&b, "user.one")?, b"1", "value")?;
    expect_bytes(&sys::get_xattr(&a, "user.two")?, b"", "an empty value")?;
    sys::set_xattr(&a, "user.one", b"another value", 0)?;
    expect_bytes(&sys::get_xattr(&b, "user.one")?, b"another value", "a replaced value")?;
    expect_eq(sys::get_xattr_into(&b, "user.one", &mut [])?, 13, "length asked with an empty buffer")?;
    expect_errno(sys::get_xattr_into(&b, "user.one", &mut [0u8; 5]), libc::ERANGE, "a buffer too small")?;
    sys::remove_xattr(&b, "user.one")?;
    expect_errno(sys::get_xattr(&a, "user.one"), libc::ENODATA, "a removed attribute")?;
    expect_eq(sys::list_xattrs(&a)?, vec!["user.two"], "names after removing")?;
    fs::create_dir(context.a.join("dir"))?;
    sys::set_xattr(&context.a.join("dir"), "user.d", b"on a directory", 0)?;
    expect_bytes(&sys::get_xattr(&context.b.join("dir"), "user.d")?, b"on a directory", "of a directory")
}

/// trusted.* is the superuser's; security.* is readable by all.
pub fn privileged(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    fs::set_permissions(&a, PermissionsExt::from_mode(0o666))?;
    sys::set_xattr(&a, "trusted.t", b"root's", 0)?;
    expect_bytes(&sys::get_xattr(&b, "trusted.t")?, b"root's", "trusted value")?;
    let refused = sys::as_user(NOBODY, NOBODY, &[], || sys::get_xattr(&b, "trusted.t"))?;
    expect(refused.is_err(), "trusted.* of a user must not be readable")?;
    let listed = sys::as_user(NOBODY, NOBODY, &[], || sys::list_xattrs(&b))??;
    expect(!listed.iter().any(|name| name == "trusted.t"), "trusted.* must not be listed for a user")?;
    let refused = sys::as_user(NOBODY, NOBODY, &[], || sys::set_xattr(&b, "trusted.x", b"", 0))?;
    expect_errno(refused, libc::EPERM, "setting trusted.* as a user")?;
    sys::set_xattr(&a, "security.sheen_test", b"label", 0)?;
    expect_bytes(&sys::get_xattr(&b, "security.sheen_test")?, b"label", "security value")
}

/// Values of 64 KiB, and one byte more.
pub fn large(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    for byte_count in [255, 4000, 16384, 65536] {
        let value = context.random().bytes(byte_count);
        match sys::set_xattr(&a, "user.large", &value, 0) {
            Err(error) if context.options.is_local() => return skip(&format!("{byte_count} bytes: {error}")),
            other => other?,
        }
        expect_bytes(&sys::get_xattr(&b, "user.large")?, &value, "a large value")?;
    }
    let refused = sys::set_xattr(&a, "user.large", &vec![0u8; 65537], 0);
    expect_errno(refused, libc::E2BIG, "a value of 64 KiB and a byte")?;
    expect_eq(sys::get_xattr(&b, "user.large")?.len(), 65536, "the old value stays")
}

/// What must be refused.
pub fn refusals(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"")?;
    let set = |name: &str, flags: i32| sys::set_xattr(&b, name, b"v", flags);
    expect_errno(set("user.x", libc::XATTR_REPLACE), libc::ENODATA, "XATTR_REPLACE of nothing")?;
    set("user.x", libc::XATTR_CREATE)?;
    expect_errno(set("user.x", libc::XATTR_CREATE), libc::EEXIST, "XATTR_CREATE of an existing one")?;
    set("user.x", libc::XATTR_REPLACE)?;
    for (odd, errno) in [
        ("nonsense.x", libc::EOPNOTSUPP),
        ("user.", libc::EINVAL),
        ("trusted.", libc::EINVAL),
        ("security.", libc::EINVAL),
    ] {
        expect_errno(set(odd, 0), errno, &format!("setting {odd}"))?;
        expect_errno(sys::get_xattr(&a, odd), errno, &format!("getting {odd}"))?;
        expect_errno(sys::remove_xattr(&a, odd), errno, &format!("removing {odd}"))?;
    }
    expect_errno(set(&format!("user.{}", "n".repeat(251)), 0), libc::ERANGE, "a name of 256 bytes")?;
    set(&format!("user.{}", "n".repeat(250)), 0)?;
    expect_errno(sys::remove_xattr(&a, "user.none"), libc::ENODATA, "removing what is not there")?;
    symlink("file", context.a.join("link"))?;
    sys::mknod(&context.a.join("fifo"), libc::S_IFIFO | 0o600, 0)?;
    expect_errno(sys::set_xattr(&context.b.join("fifo"), "user.x", b"", 0), libc::EPERM, "user.* of a FIFO")
}

/// A POSIX ACL entry: tag, permissions, id (the kernel's `posix_acl_xattr_entry`, little-endian, after a version of 2).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NO_ID: u32 = u32::MAX;

fn set_acl(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    match sys::set_xattr(path, name, value, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => skip("no POSIX ACLs here"),
        other => Ok(other?),
    }
}

/// An access ACL lets a named user in, up to its mask, and shows in the mode.
pub fn acl_access(context: &Context) -> Result<()> {
    let (a, b) = context.both("file");
    write(&a, b"secret")?;
    fs::set_permissions(&a, PermissionsExt::from_mode(0o600))?;
    expect_errno(sys::as_user(1000, 1000, &[], || fs::read(&b))?, libc::EACCES, "before the ACL")?;
    let value = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJ, 0, NO_ID),
        (MASK, 4, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    set_acl(&a, "system.posix_acl_access", &value)?;
    expect_eq(
        sys::as_user(1000, 1000, &[], || fs::read(&b))??.as_slice(),
        b"secret",
        "read by the named user",
    )?;
    let refused = sys::as_user(1000, 1000, &[], || fs::OpenOptions::new().write(true).open(&b).map(drop))?;
    expect_errno(refused, libc::EACCES, "write beyond the mask")?;
    expect_errno(sys::as_user(1001, 1001, &[], || fs::read(&b))?, libc::EACCES, "another user")?;
    expect_eq(fs::metadata(&b)?.mode() & 0o777, 0o640, "the mask shows as the group's bits")?;
    fs::set_permissions(&b, PermissionsExt::from_mode(0o600))?;
    expect_errno(sys::as_user(1000, 1000, &[], || fs::read(&a))?, libc::EACCES, "after chmod shut the mask")?;
    let read_back = sys::get_xattr(&b, "system.posix_acl_access")?;
    let shut = acl(&[
        (USER_OBJ, 6, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJ, 0, NO_ID),
        (MASK, 0, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    expect_bytes(&read_back, &shut, "the ACL after chmod")?;
    let broken = sys::set_xattr(&a, "system.posix_acl_access", b"\x02\0\0\0\x01", 0);
    expect_errno(broken, libc::EINVAL, "a broken ACL")
}

/// A default ACL is inherited by files and directories, and the umask does not apply.
pub fn acl_default(context: &Context) -> Result<()> {
    let (a, b) = context.both("dir");
    fs::create_dir(&a)?;
    let value = acl(&[
        (USER_OBJ, 7, NO_ID),
        (USER, 7, 1000),
        (GROUP_OBJ, 5, NO_ID),
        (MASK, 7, NO_ID),
        (OTHER, 0, NO_ID),
    ]);
    set_acl(&a, "system.posix_acl_default", &value)?;
    write(&b.join("file"), b"inherited")?;
    fs::create_dir(b.join("sub"))?;
    expect_eq(fs::metadata(a.join("file"))?.mode() & 0o777, 0o660, "mode of a file under a default ACL")?;
    expect_bytes(
        &sys::get_xattr(&a.join("sub"), "system.posix_acl_default")?,
        &value,
        "default ACL of a subdirectory",
    )?;
    expect_eq(
        sys::as_user(1000, 1000, &[], || fs::read(a.join("file")))?.map(|text| text.len()).unwrap_or(0),
        9,
        "the named user reads the inherited file",
    )?;
    expect_errno(
        sys::set_xattr(&a.join("file"), "system.posix_acl_default", &value, 0),
        libc::EACCES,
        "default ACL of a file",
    )
}
