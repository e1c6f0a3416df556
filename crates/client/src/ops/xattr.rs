//! Extended attributes, cached under the inode's lock: the kernel asks for some at every write and every stat.

use crate::call::{Answer, Caller};
use crate::ctx::{Ctx, Outcome, Who};
use crate::nodes::KernelAcl;
use crate::ops::inode_of;
use crate::state::State;
use crate::xattrs::{Value, XattrList, Xattrs};
use base::names::check_xattr_name;
use base::{Fid, Status, limits};
use bytes::Bytes;
use rpc::Kind;
use wire::lock::{LockWant, bits};
use wire::mdt::Credentials;
use wire::{MdtReply, MdtRequest};

const CAPABILITY: &[u8] = b"security.capability";

impl State {
    /// What a lock says to be true of an inode's xattrs: all of them, none, or nothing.
    pub(crate) fn cached_xattrs(&self, fid: Fid) -> Option<XattrList<'_>> {
        let node = self.nodes.by_fid(fid)?;
        if !self.is_caching_xattrs || !self.is_covered(fid, bits::XATTR) {
            return None;
        }
        let is_bare = !node.is_attr_stale && node.attr().is_some_and(|attr| !attr.has_xattrs);
        if is_bare { Some(XattrList::EMPTY) } else { node.xattrs.as_ref().map(Xattrs::list) }
    }

    /// A value as a list of this inode has it; `Some(None)`: there is one, which is not known.
    pub(crate) fn value_in(&self, fid: Fid, list: XattrList<'_>, name: &[u8]) -> Option<Option<Bytes>> {
        Some(match list.get(name)? {
            Value::Unknown => None,
            Value::Here(value) => Some(Bytes::copy_from_slice(value)),
            Value::Apart => self.long_xattrs.get(fid, name),
        })
    }

    /// The kernel is told an ACL, or that there is none; before that is known, and when it is answered: without a
    /// lock nobody says when it changes.
    pub(crate) fn note_acl_told(&mut self, fid: Fid, name: &[u8]) {
        if !name.starts_with(b"system.posix_acl_") {
            return;
        }
        let is_covered = self.is_covered(fid, bits::XATTR);
        if let Some(node) = self.nodes.by_fid_mut(fid) {
            match node.kernel_acl {
                KernelAcl::Unknown if is_covered => node.kernel_acl = KernelAcl::Told,
                KernelAcl::Unknown | KernelAcl::Told if !is_covered => node.kernel_acl = KernelAcl::Old,
                _ => {}
            }
        }
    }

    /// `Node::xattr_change_count`, if xattrs may be kept: what was asked for is true as long as this stays the same.
    fn covered_xattr_changes(&self, fid: Fid) -> Option<u32> {
        let node = self.nodes.by_fid(fid)?;
        (self.is_caching_xattrs && self.is_covered(fid, bits::XATTR)).then_some(node.xattr_change_count)
    }
}

async fn xattrs(ctx: &Ctx, fid: Fid) -> Outcome<Xattrs> {
    if let Some(xattrs) = ctx.with(|state| state.cached_xattrs(fid).map(XattrList::to_owned)) {
        return Ok(xattrs);
    }
    let are_some = ctx.with(|state| {
        let attr = state.nodes.by_fid(fid).filter(|node| !node.is_attr_stale).and_then(|node| node.attr());
        attr.is_some_and(|attr| attr.has_xattrs) && state.is_covered(fid, bits::XATTR)
    });
    if !are_some {
        // The lock comes with the attributes, never without them: what is cached of them is believed under it.
        let attr = super::attr::ask_inode(ctx, fid).await?.attr;
        if attr.is_some_and(|attr| !attr.has_xattrs) {
            return Ok(XattrList::EMPTY.to_owned());
        }
    }
    let (is_covered, change_count) = ctx.with(|state| {
        let is_covered = state.is_covered(fid, bits::XATTR);
        (is_covered, state.nodes.by_fid(fid).map(|node| node.xattr_change_count))
    });
    let request = MdtRequest::Listxattr { fid, want: LockWant::default() };
    let MdtReply::Xattrs { xattrs, .. } = ctx.mdt(fid, request, Kind::Plain).await? else {
        return Err(Status::ProtocolError);
    };
    let xattrs = Xattrs::new(xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_deref())));
    ctx.with(|state| {
        let is_covered = is_covered && state.is_covered(fid, bits::XATTR);
        let is_kept = state.is_caching_xattrs;
        if let Some(node) = state.nodes.by_fid_mut(fid)
            && is_covered
            && Some(node.xattr_change_count) == change_count
            && is_kept
        {
            node.xattrs = Some(xattrs.list().to_owned());
        }
    });
    Ok(xattrs)
}

pub(crate) async fn get(ctx: &Ctx, node: u64, name: Vec<u8>) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    check_xattr_name(&name)?;
    ctx.with(|state| state.note_acl_told(fid, &name));
    let result = value(ctx, fid, &name).await;
    ctx.with(|state| state.note_acl_told(fid, &name));
    result.map(Answer::Bytes)
}

async fn value(ctx: &Ctx, fid: Fid, name: &[u8]) -> Outcome<Bytes> {
    let xattrs = xattrs(ctx, fid).await?;
    match ctx.with(|state| state.value_in(fid, xattrs.list(), name)) {
        None => Err(Status::NoData),
        Some(Some(value)) => Ok(value),
        Some(None) => long_value(ctx, fid, name.to_vec()).await,
    }
}

/// Whether more than the mode says who may do what with an inode.
pub(crate) async fn has_access_acl(ctx: &Ctx, fid: Fid) -> Outcome<bool> {
    match value(ctx, fid, b"system.posix_acl_access").await {
        Ok(_) => Ok(true),
        Err(Status::NoData) => Ok(false),
        Err(status) => Err(status),
    }
}

/// A value that did not fit into the list, which is kept with it if a lock says so all the time.
async fn long_value(ctx: &Ctx, fid: Fid, name: Vec<u8>) -> Outcome<Bytes> {
    let before = ctx.with(|state| state.covered_xattr_changes(fid));
    let request = MdtRequest::Getxattr { fid, name: name.clone() };
    let MdtReply::Bytes(value) = ctx.mdt(fid, request, Kind::Plain).await? else {
        return Err(Status::ProtocolError);
    };
    let value = Bytes::from(value);
    ctx.with(|state| {
        if before.is_some() && state.covered_xattr_changes(fid) == before {
            state.long_xattrs.keep(&mut state.nodes, fid, &name, &value);
        }
    });
    Ok(value)
}

pub(crate) async fn list(ctx: &Ctx, who: &Who, node: u64) -> Outcome<Answer> {
    let fid = inode_of(ctx, node)?;
    let xattrs = xattrs(ctx, fid).await?;
    Ok(Answer::Bytes(names_for(xattrs.list().names(), who.caller).into()))
}

/// As listxattr(2) has them.
pub(crate) fn names_for<'a>(names: impl Iterator<Item = &'a [u8]>, caller: Caller) -> Vec<u8> {
    let mut shown = Vec::new();
    // The kernel hides them from others on file systems of its own.
    for name in names.filter(|name| caller.uid == 0 || !name.starts_with(b"trusted.")) {
        shown.extend_from_slice(name);
        shown.push(0);
    }
    shown
}

pub(crate) async fn set(
    ctx: &Ctx,
    who: &Who,
    node: u64,
    name: Vec<u8>,
    value: Vec<u8>,
    flags: u32,
) -> Outcome<Answer> {
    if name.len() > limits::XATTR_NAME_BYTES_MAX {
        return Err(Status::OutOfRange);
    }
    if value.len() > limits::XATTR_VALUE_BYTES_MAX {
        return Err(Status::TooLargeXattr);
    }
    let fid = inode_of(ctx, node)?;
    change(ctx, who, fid, |creds| MdtRequest::Setxattr {
        fid,
        name: name.clone(),
        value: value.clone(),
        flags,
        creds,
    })
    .await
}

pub(crate) async fn remove(ctx: &Ctx, who: &Who, node: u64, name: Vec<u8>) -> Outcome<Answer> {
    remove_inode(ctx, who, inode_of(ctx, node)?, name).await
}

async fn remove_inode(ctx: &Ctx, who: &Who, fid: Fid, name: Vec<u8>) -> Outcome<Answer> {
    // The kernel lets only who may set it remove it, and removes it itself in the name of anybody who writes.
    let is_of_kernel = name == CAPABILITY;
    let who = if is_of_kernel { &Who { caller: Caller::default(), ..*who } } else { who };
    change(ctx, who, fid, |creds| MdtRequest::Removexattr { fid, name: name.clone(), creds }).await
}

/// What a file may do ends with any write, also the superuser's. Before one through its pages the kernel sees to that itself; before one past them
/// it says only whether set-id bits end. A capability that another mount gives while this one writes may stay: nobody is asked about a file that had no xattrs when
/// it was last heard of.
pub(crate) async fn end_capability(ctx: &Ctx, who: &Who, fid: Fid) -> Outcome<()> {
    let has_xattrs = ctx.with(|state| {
        state.nodes.by_fid(fid).and_then(|node| node.attr()).is_some_and(|attr| attr.has_xattrs)
    });
    if !has_xattrs || xattrs(ctx, fid).await?.list().get(CAPABILITY).is_none() {
        return Ok(());
    }
    match remove_inode(ctx, who, fid, CAPABILITY.to_vec()).await {
        // Somebody else's write has ended it.
        Ok(_) | Err(Status::NoData) => Ok(()),
        Err(status) => Err(status),
    }
}

async fn change(ctx: &Ctx, who: &Who, fid: Fid, make: impl Fn(Credentials) -> MdtRequest) -> Outcome<Answer> {
    forget(ctx, fid);
    let result = ctx.mdt_as(who, fid, Kind::Modifying, make).await;
    forget(ctx, fid);
    let MdtReply::Entry(entry) = result? else { return Err(Status::ProtocolError) };
    ctx.with(|state| {
        if entry.attr.is_none()
            && let Some(node) = state.nodes.by_fid_mut(fid)
        {
            node.is_attr_stale = true;
        }
        state.see_entry(&entry);
    });
    super::sync::sync_inode_change(ctx, who, fid).await?;
    Ok(Answer::Done)
}

/// A list that was asked for before is not cached after.
pub(crate) fn forget(ctx: &Ctx, fid: Fid) {
    ctx.with(|state| {
        if let Some(node) = state.nodes.by_fid_mut(fid) {
            node.forget_xattrs();
        }
    });
}
