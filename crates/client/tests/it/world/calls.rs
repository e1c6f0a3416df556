//! What tests ask mounts, in short, and what they look at in targets.

use super::*;
use store::Reserve;

impl Mount {
    fn note_open(&mut self, fh: u64, mode: client::OpenMode) {
        if mode.is_direct {
            self.direct.insert(fh);
        }
    }
}

/// Shorthands of a test.
impl World {
    pub fn lookup(&mut self, mount: usize, parent: u64, name: &str) -> Result<EntryAnswer, i32> {
        let call = Call::Lookup { parent, name: name.into() };
        match self.call(mount, call)? {
            Answer::Entry(entry) if entry.node == 0 => Err(2),
            Answer::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    pub fn mkdir(&mut self, mount: usize, parent: u64, name: &str) -> u64 {
        let call = Call::Mkdir { parent, name: name.into(), mode: 0o755, umask: 0 };
        match self.call(mount, call) {
            Ok(Answer::Entry(entry)) => entry.node,
            other => panic!("{other:?}"),
        }
    }

    /// Node and handle.
    pub fn create(&mut self, mount: usize, parent: u64, name: &str) -> (u64, u64) {
        self.create_with(mount, parent, name, O_RDWR | O_EXCL)
    }

    pub fn create_with(&mut self, mount: usize, parent: u64, name: &str, flags: u32) -> (u64, u64) {
        let call = Call::Create { parent, name: name.into(), mode: 0o644, umask: 0, flags };
        match self.call(mount, call) {
            Ok(Answer::Created { entry, fh, mode }) => {
                self.mounts[mount].note_open(fh, mode);
                (entry.node, fh)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn open(&mut self, mount: usize, node: u64, flags: u32) -> (u64, client::OpenMode) {
        match self.call(mount, Call::Open { node, flags }) {
            Ok(Answer::Opened { fh, mode }) => {
                self.mounts[mount].note_open(fh, mode);
                (fh, mode)
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn write(
        &mut self,
        mount: usize,
        file: (u64, u64),
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<u64, i32> {
        match self.call(mount, write_call(file, offset_bytes, data))? {
            Answer::Written(count) => Ok(count),
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&mut self, mount: usize, file: (u64, u64), offset_bytes: u64, byte_count: u32) -> Vec<u8> {
        self.read_as(mount, ROOT, file, (offset_bytes, byte_count)).expect("it is read")
    }

    pub fn read_as(
        &mut self,
        mount: usize,
        caller: Caller,
        (node, fh): (u64, u64),
        (offset_bytes, byte_count): (u64, u32),
    ) -> Result<Vec<u8>, i32> {
        let is_direct = self.mounts[mount].direct.contains(&fh);
        match self.call_as(mount, caller, Call::Read { node, fh, offset_bytes, byte_count, is_direct })? {
            Answer::Bytes(bytes) => Ok(bytes.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub fn attr(&mut self, mount: usize, node: u64) -> Attr {
        match self.call(mount, Call::Getattr { node, fh: None }) {
            Ok(Answer::Attr(answer)) => answer.attr,
            other => panic!("{other:?}"),
        }
    }

    pub fn release(&mut self, mount: usize, file: (u64, u64)) {
        let (node, fh) = file;
        assert_eq!(self.call(mount, Call::Release { node, fh, flock_owner: None }), Ok(Answer::Done));
    }

    /// Requests that a mount has sent to targets of one kind, by their kind.
    pub fn requests(&self, mount: usize, kind: base::TargetKind) -> Vec<(&'static str, u64)> {
        let machine = &self.mounts[mount].machine;
        let targets = machine.targets().into_iter().filter(|target| target.kind == kind);
        let counted = targets.filter_map(|target| machine.target_status(target)).flat_map(|status| {
            status.stats.requests.into_iter().map(|(kind, counter)| (kind, counter.count))
        });
        counted.collect()
    }

    pub fn names(&mut self, mount: usize, node: u64) -> Vec<String> {
        let Ok(Answer::Opened { fh, .. }) = self.call(mount, Call::Opendir { node, flags: 0 }) else {
            panic!("a directory opens")
        };
        let mut names = vec![];
        let mut offset = 0;
        loop {
            let call = Call::Readdir { node, fh, offset, byte_count: 4096, is_plus: false };
            let entries = match self.call(mount, call) {
                Ok(Answer::Entries(entries)) => entries,
                other => panic!("{other:?}"),
            };
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                offset = entry.offset;
                names.push(String::from_utf8(entry.name).expect("names of the test are text"));
            }
        }
        assert_eq!(self.call(mount, Call::Releasedir { node, fh }), Ok(Answer::Done));
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}

pub fn write_call((node, fh): (u64, u64), offset_bytes: u64, data: &[u8]) -> Call {
    Call::Write {
        node,
        fh,
        offset_bytes,
        data: Bytes::copy_from_slice(data),
        flags: 0,
        is_writeback: false,
        kill_privileges: false,
    }
}

pub fn append_call(file: (u64, u64), data: &[u8]) -> Call {
    let mut call = write_call(file, 0, data);
    if let Call::Write { flags, .. } = &mut call {
        *flags = O_WRONLY | O_APPEND;
    }
    call
}

impl World {
    /// What a mount has sent, and is under way still, is refused. -> How many requests that are.
    pub fn refuse(&mut self, mount: usize, status: Status) -> usize {
        self.mounts[mount].is_slow_to = None;
        let requests = std::mem::take(&mut self.mounts[mount].under_way);
        let answer = |request: &Frame| {
            let mut answer = Frame::new(FrameKind::Reply, request.dst, request.src);
            (answer.status, answer.session, answer.xid) = (status, request.session, request.xid);
            answer
        };
        let answers: Vec<Frame> = requests.iter().map(answer).collect();
        let count = answers.len();
        self.come(mount, answers);
        count
    }

    pub fn object_count(&self, ost: usize) -> usize {
        self.osts[ost].objects.list(None, 1000).expect("the store is sound").len()
    }

    /// A bit of each object of an OST is not as it was written.
    pub fn rot(&mut self, ost: usize) {
        let objects = &self.osts[ost].objects;
        for object in objects.list(None, 1000).expect("the store is sound") {
            objects.rot(&object, 0);
        }
    }

    pub fn ost_lock_count(&self, ost: usize, mount: usize) -> usize {
        let machine = self.osts[ost].machine.as_ref().expect("it runs");
        machine.locks().locks_of(self.mounts[mount].id).len()
    }

    /// An OST makes everything durable, whatever the others do.
    pub fn sync_ost(&mut self, index: usize) {
        self.osts[index].objects.sync();
        self.osts[index].meta.sync();
        self.ost_input(index, oss::Input::Durable);
        self.run();
    }

    /// The device of an OST is full but for its reserve.
    pub fn set_low(&mut self, ost: usize, is_low: bool) {
        self.osts[ost].objects.set_low(is_low);
    }

    /// The device of an OST has room for nothing new, whoever was promised it: no inodes, say.
    pub fn set_full(&mut self, ost: usize, is_full: bool) {
        self.osts[ost].objects.set_full(is_full);
    }

    /// Nothing of it is left but what removing needs: not even what is there can be written over.
    pub fn set_exhausted(&mut self, ost: usize) {
        self.osts[ost].meta.set_reserve(Reserve::Exhausted);
    }

    /// Locks that an MDT has granted, and those that wait there.
    pub fn mdt_lock_count(&self, index: usize) -> usize {
        self.mdts[index].machine.as_ref().map_or(0, Mds::lock_count)
    }

    /// Handles that an MDT counts as open.
    pub fn open_count(&self, index: usize) -> usize {
        self.mdts[index].machine.as_ref().map_or(0, Mds::open_count)
    }

    /// Writes to an OST that a crash would take back.
    pub fn unsynced_count(&self, ost: usize) -> usize {
        self.osts[ost].objects.unsynced_count() + self.osts[ost].meta.unsynced_count()
    }
}
