//! Calls that are answered from what is known here: they wait for nothing, so they need no task.

use crate::call::{Answer, Call, Caller};
use crate::ctx::Outcome;
use crate::nodes::KernelAcl;
use crate::ops::xattr::names_for;
use crate::state::State;
use base::names::check_xattr_name;
use base::{Fid, Status};

impl State {
    /// The answer to a call, if what locks cover says it.
    pub(crate) fn quick_answer(&mut self, call: &Call, caller: Caller) -> Option<Outcome<Answer>> {
        match call {
            Call::Lookup { parent, name } if name != b"." && name != b".." => {
                base::names::check_name(name).ok()?;
                let parent = self.nodes.home_of(self.nodes.get(*parent)?.fid(), name);
                if let Some(Some(fid)) = self.cached_name(parent, name) {
                    self.check_counted(fid, caller)?;
                }
                self.known_entry(parent, name).map(Ok)
            }
            Call::Getattr { node, .. } | Call::Statx { node, .. } => {
                let known = self.nodes.get_mut(*node)?;
                // Before it asks it drops them.
                known.kernel_acl = KernelAcl::Unknown;
                let fid = known.fid();
                self.check_counted(fid, caller)?;
                let attr = self.cached_attr(fid).or_else(|| self.attr_of_written(fid))?;
                Some(Ok(Answer::Attr(self.attr_answer(attr))))
            }
            Call::Getxattr { node, name } => {
                // Whoever asks for a name that cannot be is told so by whoever executes the call.
                check_xattr_name(name).ok()?;
                let fid = self.nodes.get(*node)?.fid();
                self.note_acl_told(fid, name);
                match self.value_in(fid, self.cached_xattrs(fid)?, name) {
                    None => Some(Err(Status::NoData)),
                    Some(value) => Some(Ok(Answer::Bytes(value?))),
                }
            }
            Call::Listxattr { node } => {
                let xattrs = self.cached_xattrs(self.nodes.get(*node)?.fid())?;
                Some(Ok(Answer::Bytes(names_for(xattrs.names(), caller).into())))
            }
            _ => None,
        }
    }

    /// `None`: the kernel has to be told something before it is answered (`unlinks`).
    fn check_counted(&self, fid: Fid, caller: Caller) -> Option<()> {
        (!self.unlinks.is_uncounted(fid.inode_number(), caller, self.now.time)).then_some(())
    }

    /// What a name leads to, with attributes, or that it leads nowhere.
    pub(crate) fn known_entry(&mut self, parent: Fid, name: &[u8]) -> Option<Answer> {
        let is_known = self.is_entry_known(parent, name);
        let found = self.cached_name(parent, name)?;
        if let Some(lock) = self.children_lock_on(parent) {
            self.touch_children_lock(parent, lock);
        }
        if !is_known {
            return None;
        }
        match found {
            None => Some(Answer::Entry(self.absent_answer(parent, name))),
            Some(fid) => {
                let attr = self.cached_attr(fid)?;
                Some(Answer::Entry(self.entry_answer(Some((parent, name)), attr, true, false)))
            }
        }
    }
}
