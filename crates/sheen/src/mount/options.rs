//! The options of a mount: what `-o` may say, what it means, and how it is shown.

use crate::cli::Transport;
use crate::spelling;
use anyhow::{Result, bail};
use client::{AccessRule, AccessTimes};

/// Who sees an advisory lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockScope {
    /// Everybody in the cluster.
    #[default]
    Cluster,
    /// Processes of this machine; the kernel keeps them and we hear nothing.
    Local,
    /// Nobody: flock(2) and fcntl(2) locks fail with ENOSYS.
    Nobody,
}

/// What `-o` and the command line chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    pub transport: Transport,
    /// Flags of mount(2).
    pub flags: libc::c_ulong,
    pub is_mmap_relaxed: bool,
    /// The kernel asks for each name each time, and is never told to drop all names at once: an overlay above keeps the names that it has looked up for
    /// ever, and says ESTALE for each that the kernel has dropped so (`fuse_dentry_revalidate` compares epochs before it asks, Linux from 6.16).
    pub are_names_uncached: bool,
    pub lock_scope: LockScope,
    /// statfs(2) answers from what is known of a target that does not answer.
    pub is_statfs_lazy: bool,
    pub has_user_xattrs: bool,
    /// How often a mount that failed is tried again.
    pub retry_count: u32,
    pub is_remount: bool,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            transport: Transport::default(),
            flags: 0,
            is_mmap_relaxed: false,
            are_names_uncached: false,
            lock_scope: LockScope::default(),
            is_statfs_lazy: true,
            has_user_xattrs: true,
            retry_count: 0,
            is_remount: false,
        }
    }
}

/// What a word does.
enum Effect {
    /// Sets flags of mount(2).
    Set(libc::c_ulong),
    Clear(libc::c_ulong),
    /// Clears the first, then sets the second.
    Replace(libc::c_ulong, libc::c_ulong),
    /// Something of ours, fixed for the life of the mount.
    Own(fn(&mut Choices)),
    Remount,
    /// What fstab and mount(8) add; it means nothing here, or says the default.
    Nothing,
}

const ATIME: libc::c_ulong = libc::MS_NOATIME | libc::MS_STRICTATIME;

/// Every word, as mount(8) and Lustre spell it.
const TABLE: &[(&str, Effect)] = &[
    ("ro", Effect::Set(libc::MS_RDONLY)),
    ("rw", Effect::Clear(libc::MS_RDONLY)),
    ("nosuid", Effect::Set(libc::MS_NOSUID)),
    ("suid", Effect::Clear(libc::MS_NOSUID)),
    ("nodev", Effect::Set(libc::MS_NODEV)),
    ("dev", Effect::Clear(libc::MS_NODEV)),
    ("noexec", Effect::Set(libc::MS_NOEXEC)),
    ("exec", Effect::Clear(libc::MS_NOEXEC)),
    ("noatime", Effect::Replace(ATIME, libc::MS_NOATIME)),
    ("atime", Effect::Clear(libc::MS_NOATIME)),
    ("nodiratime", Effect::Set(libc::MS_NODIRATIME)),
    ("diratime", Effect::Clear(libc::MS_NODIRATIME)),
    ("strictatime", Effect::Replace(ATIME, libc::MS_STRICTATIME)),
    ("relatime", Effect::Clear(ATIME)),
    ("dirsync", Effect::Set(libc::MS_DIRSYNC)),
    ("sync", Effect::Set(libc::MS_SYNCHRONOUS)),
    ("async", Effect::Clear(libc::MS_SYNCHRONOUS)),
    ("flock", Effect::Own(|choices| choices.lock_scope = LockScope::Cluster)),
    ("localflock", Effect::Own(|choices| choices.lock_scope = LockScope::Local)),
    ("noflock", Effect::Own(|choices| choices.lock_scope = LockScope::Nobody)),
    ("lazystatfs", Effect::Own(|choices| choices.is_statfs_lazy = true)),
    ("nolazystatfs", Effect::Own(|choices| choices.is_statfs_lazy = false)),
    ("user_xattr", Effect::Own(|choices| choices.has_user_xattrs = true)),
    ("nouser_xattr", Effect::Own(|choices| choices.has_user_xattrs = false)),
    ("mmap=relaxed", Effect::Own(|choices| choices.is_mmap_relaxed = true)),
    ("names=cached", Effect::Own(|choices| choices.are_names_uncached = false)),
    ("names=uncached", Effect::Own(|choices| choices.are_names_uncached = true)),
    ("transport=auto", Effect::Own(|choices| choices.transport = Transport::Auto)),
    ("transport=dev", Effect::Own(|choices| choices.transport = Transport::Dev)),
    ("transport=uring", Effect::Own(|choices| choices.transport = Transport::Uring)),
    ("remount", Effect::Remount),
    ("defaults", Effect::Nothing),
    ("_netdev", Effect::Nothing),
    ("auto", Effect::Nothing),
    ("noauto", Effect::Nothing),
    ("nofail", Effect::Nothing),
    ("nouser", Effect::Nothing),
    ("acl", Effect::Nothing),
    ("allow_other", Effect::Nothing),
    ("default_permissions", Effect::Nothing),
];

/// Words of which one excludes the others. (Of `ro` and `rw` and the like the last one counts, as in mount(8).)
const EXCLUSIVE: &[&[&str]] = &[
    &["noatime", "relatime", "strictatime"],
    &["noatime", "atime"],
    &["nodiratime", "diratime"],
    &["flock", "localflock", "noflock"],
    &["lazystatfs", "nolazystatfs"],
    &["user_xattr", "nouser_xattr"],
    &["names=cached", "names=uncached"],
    &["transport=auto", "transport=dev", "transport=uring"],
];

/// Words that begin like this say nothing to us: notes for others (one is our own to umount(8)), and what the kernel lists of every FUSE mount, which mount(8)
/// hands back at a remount.
const IGNORED: &[&str] =
    &["x-", "comment=", "uhelper=", "fd=", "rootmode=", "user_id=", "group_id=", "max_read=", "blksize="];

impl Choices {
    /// Reads `-o` options.
    ///
    /// # Errors
    /// One that is not known, with the one that may have been meant.
    pub fn parse(options: &[String], transport: Option<Transport>) -> Result<Choices> {
        let mut choices = Choices {
            transport: transport.unwrap_or_default(),
            // The root of a machine is seen through an overlay.
            are_names_uncached: is_from_initrd(options),
            ..Choices::default()
        };
        for word in words(options) {
            choices.take(word)?;
        }
        if !choices.is_remount {
            // mount(8) puts what is in force in front of what a remount is to change.
            check_exclusive(options)?;
        }
        Ok(choices)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        if let Some(count) = word.strip_prefix("retry=") {
            let Ok(count) = count.parse() else {
                bail!("'{word}': say how often a mount that failed is tried again, for example retry=5");
            };
            self.retry_count = count;
            return Ok(());
        }
        match TABLE.iter().find(|(known, _)| *known == word).map(|(_, effect)| effect) {
            Some(Effect::Set(flags)) => self.flags |= flags,
            Some(Effect::Clear(flags)) => self.flags &= !flags,
            Some(Effect::Replace(cleared, set)) => self.flags = self.flags & !cleared | set,
            Some(Effect::Own(change)) => change(self),
            Some(Effect::Remount) => self.is_remount = true,
            Some(Effect::Nothing) => {}
            None if IGNORED.iter().any(|start| word.starts_with(start)) => {}
            None => match spelling::nearest(word, known()) {
                Some(near) => bail!("the mount option '{word}' is not known; did you mean '{near}'?"),
                None => bail!("the mount option '{word}' is not known; see `sheen mount --help`"),
            },
        }
        Ok(())
    }

    /// When reading changes access times. The kernel leaves that to us, and keeps the flags.
    pub fn access_times(&self) -> AccessTimes {
        let has = |flag| self.flags & flag != 0;
        let files = match () {
            () if has(libc::MS_RDONLY) || has(libc::MS_NOATIME) => AccessRule::Never,
            () if has(libc::MS_STRICTATIME) => AccessRule::Always,
            () => AccessRule::Relative,
        };
        let directories = if has(libc::MS_NODIRATIME) { AccessRule::Never } else { files };
        AccessTimes { files, directories }
    }

    /// Our own options in force, as `sheen mounts` shows them; those of mount(2) are in the kernel's table.
    pub fn shown(&self, transport: &str) -> Vec<String> {
        let lock_scope = match self.lock_scope {
            LockScope::Cluster => "flock",
            LockScope::Local => "localflock",
            LockScope::Nobody => "noflock",
        };
        let mut words = vec![
            lock_scope,
            if self.is_statfs_lazy { "lazystatfs" } else { "nolazystatfs" },
            if self.has_user_xattrs { "user_xattr" } else { "nouser_xattr" },
        ];
        words.extend(self.is_mmap_relaxed.then_some("mmap=relaxed"));
        words.extend(self.are_names_uncached.then_some("names=uncached"));
        let transport = format!("transport={transport}");
        words.into_iter().map(str::to_owned).chain([transport]).collect()
    }
}

/// When reading changes access times, by the flags that the kernel shows of a mount: without a word of it each access counts.
pub fn access_times_of(flags: &[String]) -> AccessTimes {
    let has = |word: &str| flags.iter().any(|flag| flag == word);
    let files = match () {
        () if has("ro") || has("noatime") => AccessRule::Never,
        () if has("relatime") => AccessRule::Relative,
        () => AccessRule::Always,
    };
    AccessTimes { files, directories: if has("nodiratime") { AccessRule::Never } else { files } }
}

/// As a parameter shows it, by files and directories.
pub fn access_words(times: AccessTimes) -> String {
    let word = |rule| match rule {
        AccessRule::Never => "noatime",
        AccessRule::Relative => "relatime",
        AccessRule::Always => "strictatime",
    };
    match times.files == times.directories {
        true => word(times.files).to_owned(),
        false => format!("{},nodiratime", word(times.files)),
    }
}

fn known() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(known, _)| *known).chain(["retry="])
}

/// The words of all `-o` lists.
fn words(options: &[String]) -> impl Iterator<Item = &str> {
    options.iter().flat_map(|list| list.split(',')).filter(|word| !word.is_empty())
}

/// The mount serves the root of this machine, made before its first process: systemd's word for that.
pub fn is_from_initrd(options: &[String]) -> bool {
    words(options).any(|word| word == "x-initrd.mount")
}

fn check_exclusive(options: &[String]) -> Result<()> {
    for group in EXCLUSIVE {
        let mut said = words(options).filter(|word| group.contains(word));
        let Some(first) = said.next() else { continue };
        if let Some(other) = said.find(|word| *word != first) {
            bail!("the mount options '{first}' and '{other}' exclude each other; leave one out");
        }
    }
    Ok(())
}

/// Those words of `-o` lists that cannot change while the file system is mounted.
pub fn own_words(options: &[String]) -> Vec<&str> {
    let is_own =
        |word: &&str| TABLE.iter().any(|(known, effect)| known == word && matches!(effect, Effect::Own(_)));
    words(options).filter(is_own).collect()
}

#[cfg(test)]
mod tests;
