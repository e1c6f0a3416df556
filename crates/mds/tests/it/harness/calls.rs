//! What clients ask, in short: client 0 unless a test says otherwise, the MDT from the FID.

use super::{ROOT, World, attr_of, fid_of};
use base::{Attr, Fid, LockId, OpenHandle, Status};
use wire::lock::LockWant;
use wire::mdt::{CreateRequest, NewNode, OpenArgs};
use wire::{MdtReply, MdtRequest};

impl World {
    pub fn new_id(&mut self, client: usize) -> u64 {
        let id = &mut self.clients[client].next_id;
        *id += 1;
        *id
    }

    /// Offers of a lock for the name and one for the inode.
    pub fn want(&mut self, client: usize) -> LockWant {
        LockWant {
            name: Some(LockId(self.new_id(client))),
            inode: Some(LockId(self.new_id(client))),
            write_back: None,
            data: None,
        }
    }

    pub fn create(&mut self, request: CreateRequest) -> Result<MdtReply, Status> {
        let mdt = request.parent.mdt_index().unwrap();
        self.ask(0, mdt, MdtRequest::Create(request))
    }

    pub fn mkdir(&mut self, parent: Fid, name: &str) -> Fid {
        fid_of(&self.create(new(parent, name, NewNode::Directory)).unwrap())
    }

    pub fn mkfile(&mut self, parent: Fid, name: &str) -> Fid {
        fid_of(&self.create(new(parent, name, NewNode::Regular)).unwrap())
    }

    /// Opens for writing or reading.
    pub fn open(&mut self, client: usize, fid: Fid, is_write: bool) -> OpenArgs {
        let open = self.open_args(client, is_write);
        let want = LockWant::default();
        let mdt = fid.mdt_index().unwrap();
        self.ask(
            client,
            mdt,
            MdtRequest::Open { fid, open, creds: ROOT, want, closes: Vec::new(), accesses: Vec::new() },
        )
        .unwrap();
        open
    }

    pub fn open_args(&mut self, client: usize, is_write: bool) -> OpenArgs {
        let handle = OpenHandle(self.new_id(client));
        OpenArgs { handle, read: true, write: is_write, execute: false }
    }

    pub fn close(&mut self, client: usize, fid: Fid, open: OpenArgs) -> MdtReply {
        let mdt = fid.mdt_index().unwrap();
        self.ask(
            client,
            mdt,
            MdtRequest::Close {
                fid,
                handle: open.handle,
                atime: None,
                unchanged_since: None,
                data: None,
                cancels: vec![],
                accesses: Vec::new(),
            },
        )
        .unwrap()
    }

    pub fn lookup(&mut self, client: usize, parent: Fid, name: &str) -> Option<Fid> {
        let request = MdtRequest::Lookup { parent, name: name.into(), want: LockWant::default() };
        match self.ask(client, parent.mdt_index().unwrap(), request).unwrap() {
            MdtReply::Absent { .. } => None,
            reply => Some(fid_of(&reply)),
        }
    }

    pub fn getattr(&mut self, client: usize, fid: Fid) -> Result<Attr, Status> {
        let request = MdtRequest::Getattr { fid, want: LockWant::default() };
        Ok(attr_of(&self.ask(client, fid.mdt_index().unwrap(), request)?).clone())
    }

    pub fn unlink(&mut self, parent: Fid, name: &str) -> Result<MdtReply, Status> {
        let request = MdtRequest::Unlink { parent, name: name.into(), creds: ROOT };
        self.ask(0, parent.mdt_index().unwrap(), request)
    }

    pub fn rmdir(&mut self, parent: Fid, name: &str) -> Result<MdtReply, Status> {
        let request = MdtRequest::Rmdir { parent, name: name.into(), creds: ROOT };
        self.ask(0, parent.mdt_index().unwrap(), request)
    }

    pub fn rename(&mut self, from: (Fid, &str), to: (Fid, &str), flags: u32) -> Result<MdtReply, Status> {
        self.ask(0, to.0.mdt_index().unwrap(), rename(from, to, flags))
    }

    pub fn link(&mut self, fid: Fid, parent: Fid, name: &str) -> Result<MdtReply, Status> {
        let want = LockWant::default();
        let request = MdtRequest::Link { fid, parent, name: name.into(), creds: ROOT, want };
        self.ask(0, parent.mdt_index().unwrap(), request)
    }

    /// Names in a directory, sorted.
    pub fn names(&mut self, fid: Fid) -> Vec<String> {
        let mut names = Vec::new();
        let mut after = 0;
        loop {
            let request = readdir(fid, after, 3);
            let reply = self.ask(0, fid.mdt_index().unwrap(), request).unwrap();
            let MdtReply::Entries { entries, is_end, .. } = reply else { panic!("{reply:?}") };
            for entry in entries {
                assert!(entry.position > after);
                after = entry.position;
                names.push(String::from_utf8(entry.name).unwrap());
            }
            if is_end {
                names.sort();
                return names;
            }
        }
    }
}

pub fn rename(from: (Fid, &str), to: (Fid, &str), flags: u32) -> MdtRequest {
    MdtRequest::Rename {
        parent: from.0,
        name: from.1.into(),
        new_parent: to.0,
        new_name: to.1.into(),
        flags,
        creds: ROOT,
    }
}

/// Entries behind `after` with all that may come with them, and no lock.
pub fn readdir(fid: Fid, after: u64, entry_count_max: u32) -> MdtRequest {
    MdtRequest::Readdir {
        fid,
        after,
        entry_count_max,
        with_attrs: true,
        with_xattrs: true,
        children: None,
        subdirectories: None,
        is_whole_wanted: false,
        accesses: Vec::new(),
    }
}

pub fn migrate((parent, name): (Fid, &str), fid: Fid) -> MdtRequest {
    MdtRequest::Migrate { parent, name: name.into(), fid, creds: ROOT }
}

pub fn new(parent: Fid, name: &str, node: NewNode) -> CreateRequest {
    let permissions = if node == NewNode::Directory { 0o755 } else { 0o644 };
    CreateRequest {
        parent,
        name: name.into(),
        node,
        permissions,
        umask: 0,
        creds: ROOT,
        open: None,
        is_exclusive: true,
        is_unnamed: false,
        mdt_index: None,
        layout: None,
        fid: None,
        want: LockWant::default(),
    }
}
