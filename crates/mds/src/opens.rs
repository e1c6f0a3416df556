//! Open files, in memory: clients name them again after a restart (`Reopen`).

use base::limits::{CLOSED_FILE_GRACE, SESSION_LEASE};
use base::{ClientId, Fid, OpenHandle, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use wire::Life;
use wire::mdt::OpenArgs;

/// Moments end together: files may be closed by the thousand, and each end would be a deadline of its own.
const LINGER_STEP_NANOS: u64 = 100_000_000;

/// Who has what open, and how.
#[derive(Debug, Default)]
pub struct Opens {
    by_file: BTreeMap<Fid, OpenFile>,
    by_handle: BTreeMap<(ClientId, OpenHandle), Fid>,
    /// During recovery: what clients say that they still have open.
    confirmed: BTreeSet<(ClientId, OpenHandle)>,
    /// Handles that were opened before the last restart.
    restored: BTreeSet<(ClientId, OpenHandle)>,
    /// Files whose writer has closed them, until when each is kept, in that order, and how often each is in it.
    lingering: VecDeque<(Time, Fid)>,
    lingering_counts: BTreeMap<Fid, u32>,
    /// Files that evicted clients had open for writing, until when each may go on without knowing, and in that order. The next
    /// incarnation of a client knows nothing of what the one before has sent.
    abandoned: BTreeMap<(Fid, Life), Time>,
    abandoned_order: VecDeque<(Time, Fid, Life)>,
    /// The same of clients that have not come back by then: what they had sent may still come to an OST.
    unfenced: BTreeSet<(Fid, Life)>,
    /// The files of each of them.
    unfenced_of: BTreeMap<Life, BTreeSet<Fid>>,
    /// Handles that were opened or closed since `take_changed`.
    changed: BTreeSet<(ClientId, OpenHandle)>,
}

type Key = (ClientId, OpenHandle);

/// Who has one file open. Thousands may, and each of their requests asks whether others write it.
#[derive(Debug, Default)]
struct OpenFile {
    handles: BTreeMap<Key, OpenArgs>,
    /// Those of them that write, and those that execute.
    writers: BTreeSet<Key>,
    executors: BTreeSet<Key>,
}

impl OpenFile {
    fn insert(&mut self, key: Key, open: OpenArgs) {
        self.handles.insert(key, open);
        if open.write {
            self.writers.insert(key);
        }
        if open.execute {
            self.executors.insert(key);
        }
    }

    fn remove(&mut self, key: &Key) -> Option<OpenArgs> {
        self.writers.remove(key);
        self.executors.remove(key);
        self.handles.remove(key)
    }
}

/// Whether another client is among those of some, by the ends of their order.
fn has_others<'a>(mut keys: impl DoubleEndedIterator<Item = &'a Key>, client: ClientId) -> bool {
    let is_other = |key: Option<&Key>| key.is_some_and(|(holder, _)| *holder != client);
    is_other(keys.next()) || is_other(keys.next_back())
}

/// What a client had open.
#[derive(Debug)]
pub struct Dropped {
    pub files: Vec<Fid>,
    /// Some of it for writing.
    pub has_written: bool,
}

fn of_file(fid: Fid) -> RangeInclusive<(Fid, Life)> {
    let first = Life { client: ClientId::default(), incarnation: 0 };
    let last = Life { client: ClientId(u128::MAX), incarnation: u64::MAX };
    (fid, first)..=(fid, last)
}

impl Opens {
    /// Notes an open. Again is no error: the latest counts.
    pub fn open(&mut self, client: ClientId, fid: Fid, open: OpenArgs) {
        self.close(client, open.handle);
        self.by_file.entry(fid).or_default().insert((client, open.handle), open);
        self.by_handle.insert((client, open.handle), fid);
        self.changed.insert((client, open.handle));
    }

    /// Who opens a file anew for writing knows of its eviction, and sends again what it had sent before.
    pub fn note_known(&mut self, fid: Fid, life: Option<Life>) {
        let Some(life) = life else { return };
        self.abandoned.remove(&(fid, life));
        if self.unfenced.remove(&(fid, life))
            && let Some(files) = self.unfenced_of.get_mut(&life)
        {
            files.remove(&fid);
        }
    }

    /// Handles that were opened or closed since this was asked the last time; `get` says which.
    pub fn take_changed(&mut self) -> BTreeSet<(ClientId, OpenHandle)> {
        std::mem::take(&mut self.changed)
    }

    /// One that was about to be opened was not.
    pub fn note_unopened(&mut self, client: ClientId, handle: OpenHandle) {
        self.changed.insert((client, handle));
    }

    /// The same for an open of an earlier incarnation.
    pub fn restore(&mut self, client: ClientId, fid: Fid, open: OpenArgs) {
        self.open(client, fid, open);
        self.restored.insert((client, open.handle));
    }

    /// A client says, during recovery, that it still has this open.
    pub fn confirm(&mut self, client: ClientId, fid: Fid, open: OpenArgs) {
        self.restore(client, fid, open);
        self.confirmed.insert((client, open.handle));
    }

    /// Recovery is over: what only a replayed open has opened was closed before the restart, by a close that changed
    /// nothing and was not replayed for that.
    pub fn drop_unconfirmed(&mut self) {
        let confirmed = std::mem::take(&mut self.confirmed);
        let unconfirmed: Vec<_> =
            self.restored.iter().filter(|handle| !confirmed.contains(handle)).copied().collect();
        for (client, handle) in unconfirmed {
            self.close(client, handle);
        }
    }

    /// The same for one client, which has said what it has open.
    pub fn drop_unconfirmed_of(&mut self, client: ClientId) {
        let range = (client, OpenHandle::ZERO)..=(client, OpenHandle(u64::MAX));
        let unconfirmed: Vec<_> =
            self.restored.range(range).filter(|handle| !self.confirmed.contains(handle)).copied().collect();
        for (client, handle) in unconfirmed {
            self.close(client, handle);
        }
    }

    /// Which file it was, and how it was open; `None` for a handle that is not known.
    pub fn close(&mut self, client: ClientId, handle: OpenHandle) -> Option<(Fid, OpenArgs)> {
        let fid = self.by_handle.remove(&(client, handle))?;
        self.changed.insert((client, handle));
        self.restored.remove(&(client, handle));
        let file = self.by_file.get_mut(&fid)?;
        let open = file.remove(&(client, handle))?;
        if file.handles.is_empty() {
            self.by_file.remove(&fid);
        }
        Some((fid, open))
    }

    /// A writer has closed a file that has a name. When the name goes now (a rename over it, say), who has just looked it up
    /// may still open it: the file counts as open for a moment.
    pub fn linger(&mut self, now: Time, fid: Fid) {
        let until = Time(
            now.after(CLOSED_FILE_GRACE).0.div_ceil(LINGER_STEP_NANOS).saturating_mul(LINGER_STEP_NANOS),
        );
        self.lingering.push_back((until, fid));
        *self.lingering_counts.entry(fid).or_default() += 1;
    }

    /// Files whose moment is over.
    pub fn take_lingered(&mut self, now: Time) -> Vec<Fid> {
        let mut lingered = Vec::new();
        while let Some((_, fid)) = self.lingering.pop_front_if(|(until, _)| *until <= now) {
            if let Some(count) = self.lingering_counts.get_mut(&fid) {
                *count -= 1;
                if *count == 0 {
                    self.lingering_counts.remove(&fid);
                    lingered.push(fid);
                }
            }
        }
        lingered
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let lingering = self.lingering.front();
        let abandoned = self.abandoned_order.front();
        lingering.map(|(until, _)| *until).into_iter().chain(abandoned.map(|(until, ..)| *until)).min()
    }

    /// Everything of a client; returns the files. What it had open for writing counts as written for as long as it may
    /// go on without having heard of its eviction.
    pub fn drop_client(&mut self, now: Time, life: Life) -> Dropped {
        let client = life.client;
        let range = (client, OpenHandle::ZERO)..=(client, OpenHandle(u64::MAX));
        let handles: Vec<_> = self.by_handle.range(range).map(|((_, handle), _)| *handle).collect();
        let mut dropped = Dropped { files: Vec::with_capacity(handles.len()), has_written: false };
        for handle in handles {
            let Some((fid, open)) = self.close(client, handle) else { continue };
            dropped.files.push(fid);
            if open.write {
                dropped.has_written = true;
                let until = now.after(SESSION_LEASE);
                self.abandoned.insert((fid, life), until);
                self.abandoned_order.push_back((until, fid, life));
            }
        }
        dropped
    }

    /// Who was evicted long enough ago sends no more. What had been sent is another matter, of those of whom `is_unfenced` says so.
    pub fn drop_abandoned(&mut self, now: Time, is_unfenced: impl Fn(Life) -> bool) {
        while let Some((_, fid, life)) = self.abandoned_order.pop_front_if(|(until, ..)| *until <= now) {
            if self.abandoned.get(&(fid, life)).is_some_and(|until| *until <= now) {
                self.abandoned.remove(&(fid, life));
                if is_unfenced(life) && self.unfenced.insert((fid, life)) {
                    self.unfenced_of.entry(life).or_default().insert(fid);
                }
            }
        }
    }

    /// Nothing that this client had sent before it was evicted comes to any OST any more.
    pub fn note_fenced(&mut self, life: Life) {
        for fid in self.unfenced_of.remove(&life).unwrap_or_default() {
            self.unfenced.remove(&(fid, life));
        }
    }

    /// Who has something open.
    pub fn clients(&self) -> BTreeSet<ClientId> {
        self.by_handle.keys().map(|(client, _)| *client).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClientId, Fid, OpenArgs)> {
        let of_file = |(fid, file): (&Fid, &OpenFile)| {
            let fid = *fid;
            file.handles.iter().map(move |((client, _), open)| (*client, fid, *open)).collect::<Vec<_>>()
        };
        self.by_file.iter().flat_map(of_file)
    }

    pub fn get(&self, client: ClientId, handle: OpenHandle) -> Option<(Fid, OpenArgs)> {
        let fid = *self.by_handle.get(&(client, handle))?;
        Some((fid, *self.by_file.get(&fid)?.handles.get(&(client, handle))?))
    }

    pub fn is_restored(&self, client: ClientId, handle: OpenHandle) -> bool {
        self.restored.contains(&(client, handle))
    }

    /// Also for a moment after a writer has closed it.
    pub fn is_open(&self, fid: Fid) -> bool {
        self.by_file.contains_key(&fid) || self.lingering_counts.contains_key(&fid)
    }

    /// Whether it has to stay here: somebody has it open, or was given up so lately that he may come back and open it again. Whoever stays away
    /// for longer keeps it no more, though he may live: he is told that what he wrote is lost, and what he had sent meets the tombstones
    /// of objects that have gone on with the file.
    pub fn is_in_use(&self, fid: Fid) -> bool {
        self.by_file.contains_key(&fid) || self.abandoned.range(of_file(fid)).next().is_some()
    }

    /// Handles other than one about to be closed.
    pub fn is_open_besides(&self, fid: Fid, client: ClientId, handle: OpenHandle) -> bool {
        let key = (client, handle);
        self.by_file.get(&fid).is_some_and(|file| file.handles.keys().any(|other| *other != key))
    }

    fn is_abandoned(&self, fid: Fid) -> bool {
        self.abandoned.range(of_file(fid)).next().is_some()
            || self.unfenced.range(of_file(fid)).next().is_some()
    }

    pub fn is_written(&self, fid: Fid) -> bool {
        self.is_abandoned(fid) || self.by_file.get(&fid).is_some_and(|file| !file.writers.is_empty())
    }

    pub fn is_written_besides(&self, fid: Fid, client: ClientId, handle: OpenHandle) -> bool {
        let key = (client, handle);
        let is_written = |file: &OpenFile| file.writers.iter().any(|other| *other != key);
        self.is_abandoned(fid) || self.by_file.get(&fid).is_some_and(is_written)
    }

    /// Within one client its kernel sees to it, and knows better: a close reaches the MDT long after its caller.
    pub fn is_executed_by_others(&self, fid: Fid, client: ClientId) -> bool {
        self.by_file.get(&fid).is_some_and(|file| has_others(file.executors.iter(), client))
    }

    pub fn is_open_by_others(&self, fid: Fid, client: ClientId) -> bool {
        self.by_file.get(&fid).is_some_and(|file| has_others(file.handles.keys(), client))
    }

    pub fn is_written_by(&self, fid: Fid, client: ClientId) -> bool {
        let range = (client, OpenHandle::ZERO)..=(client, OpenHandle(u64::MAX));
        self.by_file.get(&fid).is_some_and(|file| file.writers.range(range).next().is_some())
    }

    pub fn is_written_by_others(&self, fid: Fid, client: ClientId) -> bool {
        self.by_file.get(&fid).is_some_and(|file| has_others(file.writers.iter(), client))
    }

    pub fn count(&self) -> usize {
        self.by_handle.len()
    }

    /// Asserts that both indexes agree.
    pub fn check(&self) {
        let count: usize = self.by_file.values().map(|file| file.handles.len()).sum();
        assert_eq!(count, self.by_handle.len());
        assert!(self.restored.iter().all(|handle| self.by_handle.contains_key(handle)));
        for file in self.by_file.values() {
            assert!(!file.handles.is_empty());
            let those = |is_so: fn(&OpenArgs) -> bool| -> BTreeSet<Key> {
                file.handles.iter().filter(|(_, open)| is_so(open)).map(|(key, _)| *key).collect()
            };
            assert_eq!(file.writers, those(|open| open.write));
            assert_eq!(file.executors, those(|open| open.execute));
        }
        assert_eq!(self.lingering_counts.values().sum::<u32>() as usize, self.lingering.len());
        assert!(self.abandoned.len() <= self.abandoned_order.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(index: u64) -> ClientId {
        ClientId(u128::from(index))
    }

    /// By the ends of an order: so each combination of a few clients is compared with what is so.
    #[test]
    fn whether_others_have_a_file_open_and_how() {
        let fid = Fid::ROOT;
        for case in 0..5_u64.pow(4) {
            let mut opens = Opens::default();
            let mut all = Vec::new();
            for (index, how) in
                (0..4).map(|index| (index, case / 5_u64.pow(index) % 5)).filter(|(_, how)| *how > 0)
            {
                // Two handles of each of two clients.
                let (holder, handle) = (client(1 + u64::from(index) / 2), OpenHandle(1 + u64::from(index)));
                let open = OpenArgs { handle, read: true, write: how == 2 || how == 4, execute: how >= 3 };
                opens.open(holder, fid, open);
                all.push((holder, open));
            }
            opens.check();
            for asker in (0..4).map(client) {
                let others = || all.iter().filter(|(holder, _)| *holder != asker);
                assert_eq!(opens.is_open_by_others(fid, asker), others().next().is_some());
                assert_eq!(opens.is_written_by_others(fid, asker), others().any(|(_, open)| open.write));
                assert_eq!(opens.is_executed_by_others(fid, asker), others().any(|(_, open)| open.execute));
                let is_own_write = |(holder, open): &(ClientId, OpenArgs)| *holder == asker && open.write;
                assert_eq!(opens.is_written_by(fid, asker), all.iter().any(is_own_write));
            }
            for (holder, open) in &all {
                let besides =
                    || all.iter().filter(|(other, args)| (*other, args.handle) != (*holder, open.handle));
                assert_eq!(opens.is_open_besides(fid, *holder, open.handle), besides().next().is_some());
                let is_written = besides().any(|(_, open)| open.write);
                assert_eq!(opens.is_written_besides(fid, *holder, open.handle), is_written);
            }
            assert_eq!(opens.is_written(fid), all.iter().any(|(_, open)| open.write));
            for (holder, open) in &all {
                opens.close(*holder, open.handle);
            }
            assert!(!opens.is_open(fid) && !opens.is_written(fid));
            opens.check();
        }
    }
}
