//! The options of a mount: what `-o` may say, what it means, and how it is shown.

use crate::cli::Transport;
use crate::params::absent::NO_QUOTA;
use crate::spelling;
use anyhow::{Result, bail};
use client::{AccessRule, AccessTimes, SyncRule};

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

/// What is mounted over the network at a boot may be so before its servers are. Each attempt waits for 15 s at most, whomever it waits for; with the waits
/// between them (6 s) all end before systemd's own limit for a mount (90 s).
const NETDEV_RETRY_COUNT: u32 = 4;

const ATIME: libc::c_ulong = libc::MS_NOATIME | libc::MS_STRICTATIME;

/// Every word, as mount(8) and Lustre spell it, and what it does, for `--help` and the manual page; nothing of what is for others.
const TABLE: &[(&str, Effect, &str)] = &[
    ("ro", Effect::Set(libc::MS_RDONLY), "nothing can be changed"),
    ("rw", Effect::Clear(libc::MS_RDONLY), "the default"),
    ("nosuid", Effect::Set(libc::MS_NOSUID), "set-user-id bits count for nothing"),
    ("suid", Effect::Clear(libc::MS_NOSUID), "the default"),
    ("nodev", Effect::Set(libc::MS_NODEV), "device files are not devices"),
    ("dev", Effect::Clear(libc::MS_NODEV), "the default"),
    ("noexec", Effect::Set(libc::MS_NOEXEC), "no program is run"),
    ("exec", Effect::Clear(libc::MS_NOEXEC), "the default"),
    ("noatime", Effect::Replace(ATIME, libc::MS_NOATIME), "reading changes no access times"),
    ("atime", Effect::Clear(libc::MS_NOATIME), "the default: relatime"),
    ("nodiratime", Effect::Set(libc::MS_NODIRATIME), "listing changes no access times of directories"),
    ("diratime", Effect::Clear(libc::MS_NODIRATIME), "the default"),
    ("strictatime", Effect::Replace(ATIME, libc::MS_STRICTATIME), "each access counts"),
    ("relatime", Effect::Clear(ATIME), "the first access after a change counts, and one a day: the default"),
    (
        "dirsync",
        Effect::Set(libc::MS_DIRSYNC),
        "changes of names are durable when they return; not for a remount",
    ),
    (
        "sync",
        Effect::Set(libc::MS_SYNCHRONOUS),
        "all changes are durable when they return, but those through mappings",
    ),
    ("async", Effect::Clear(libc::MS_SYNCHRONOUS), "the default"),
    (
        "flock",
        Effect::Own(|choices| choices.lock_scope = LockScope::Cluster),
        "advisory locks hold in the whole cluster: the default",
    ),
    (
        "localflock",
        Effect::Own(|choices| choices.lock_scope = LockScope::Local),
        "advisory locks hold on this mount only",
    ),
    (
        "noflock",
        Effect::Own(|choices| choices.lock_scope = LockScope::Nobody),
        "advisory locks fail with ENOSYS",
    ),
    (
        "lazystatfs",
        Effect::Own(|choices| choices.is_statfs_lazy = true),
        "statfs(2) takes what a silent target said last: the default",
    ),
    (
        "nolazystatfs",
        Effect::Own(|choices| choices.is_statfs_lazy = false),
        "statfs(2) waits for a silent target, three minutes at most",
    ),
    (
        "user_xattr",
        Effect::Own(|choices| choices.has_user_xattrs = true),
        "there are xattrs user.*: the default",
    ),
    (
        "nouser_xattr",
        Effect::Own(|choices| choices.has_user_xattrs = false),
        "xattrs user.* fail with EOPNOTSUPP",
    ),
    (
        "mmap=relaxed",
        Effect::Own(|choices| choices.is_mmap_relaxed = true),
        "shared writable mappings of files that others write are allowed, and not coherent",
    ),
    (
        "names=cached",
        Effect::Own(|choices| choices.are_names_uncached = false),
        "the kernel keeps names: the default",
    ),
    (
        "names=uncached",
        Effect::Own(|choices| choices.are_names_uncached = true),
        "it asks for each part of a path each time: for a mount below an overlay",
    ),
    (
        "transport=auto",
        Effect::Own(|choices| choices.transport = Transport::Auto),
        "how the kernel talks to the client is chosen: the default",
    ),
    ("transport=dev", Effect::Own(|choices| choices.transport = Transport::Dev), "through /dev/fuse"),
    ("transport=uring", Effect::Own(|choices| choices.transport = Transport::Uring), "through io_uring"),
    ("remount", Effect::Remount, "flags of a mount are changed; none of the other options can be"),
    ("defaults", Effect::Nothing, ""),
    ("_netdev", Effect::Nothing, ""),
    ("auto", Effect::Nothing, ""),
    ("noauto", Effect::Nothing, ""),
    ("nofail", Effect::Nothing, ""),
    ("nouser", Effect::Nothing, ""),
    // Who may mount is decided by mount(8), which says noexec, nosuid and nodev besides where these mean that.
    ("user", Effect::Nothing, ""),
    ("users", Effect::Nothing, ""),
    ("owner", Effect::Nothing, ""),
    ("group", Effect::Nothing, ""),
    ("acl", Effect::Nothing, ""),
    ("allow_other", Effect::Nothing, ""),
    ("default_permissions", Effect::Nothing, ""),
];

/// Words of which one excludes the others. (Of `ro` and `rw` and the like the last one counts, as in mount(8).)
const EXCLUSIVE: &[&[&str]] = &[
    &["noatime", "relatime", "strictatime"],
    &["noatime", "atime"],
    &["strictatime", "atime"],
    &["nodiratime", "diratime"],
    &["flock", "localflock", "noflock"],
    &["lazystatfs", "nolazystatfs"],
    &["user_xattr", "nouser_xattr"],
    &["names=cached", "names=uncached"],
    &["transport=auto", "transport=dev", "transport=uring"],
];

/// Words that begin like this say nothing to us: notes for others (one is our own to umount(8)), and what the kernel lists of every FUSE mount, which mount(8)
/// hands back at a remount.
const IGNORED: &[&str] = &[
    "x-",
    "comment=",
    "user=",
    "uhelper=",
    "fd=",
    "rootmode=",
    "user_id=",
    "group_id=",
    "max_read=",
    "blksize=",
];

const NO_SECURITY: &str = "there is no transport security yet";
const FID2PATH_IS_ROOTS: &str = "`lfs fid2path` is for root";
const NO_ENCRYPTION: &str = "files are not encrypted here; fscrypt is not supported";
const LOGS: &str = "`lctl set_param debug=LEVEL` says how much is in the log";
const CHECKSUMS: &str = "use `lctl set_param osc.*.checksums`";
const NO_SYNC_ON_CLOSE: &str = "a close waits for no disk; with `sync` each change does";
const LRU_SIZE: &str = "use `lctl set_param ldlm.namespaces.*.lru_size`";

/// Options of Lustre's client that are not here, and what there is instead, as docs/operating/dictionary.md has it. Behind one that ends
/// with `=` there is a value.
const ABSENT: &[(&str, &str)] = &[
    ("32bitapi", "inode numbers have 64 bits"),
    ("always_ping", "sessions are always pinged"),
    ("checksum", CHECKSUMS),
    ("nochecksum", CHECKSUMS),
    ("encrypt", NO_ENCRYPTION),
    ("noencrypt", NO_ENCRYPTION),
    ("test_dummy_encryption", NO_ENCRYPTION),
    ("test_dummy_encryption=", NO_ENCRYPTION),
    ("exclude=", "mount it, and use `lctl set_param osc.*OSTnnnn*.active=0`"),
    ("foreign_symlink=", "there are no foreign layouts"),
    ("lruresize", LRU_SIZE),
    ("nolruresize", LRU_SIZE),
    ("mgsname=", "the source says where the management server is: NID:/FSNAME"),
    ("mgssec=", NO_SECURITY),
    ("network=", "there is one network, tcp"),
    ("nolock", "without locks mounts would not be coherent; `localflock` is about advisory ones"),
    ("param=", "use `lctl set_param` when it is mounted, or `lctl set_param -P`, which lasts"),
    ("skpath=", NO_SECURITY),
    ("statfs_project", NO_QUOTA),
    ("nostatfs_project", NO_QUOTA),
    ("sync_on_close", NO_SYNC_ON_CLOSE),
    ("nosync_on_close", NO_SYNC_ON_CLOSE),
    ("user_fid2path", FID2PATH_IS_ROOTS),
    ("nouser_fid2path", FID2PATH_IS_ROOTS),
    ("user_principal=", NO_SECURITY),
    ("verbose", LOGS),
    ("noverbose", LOGS),
];

/// Why an option of Lustre is not here.
fn absent(word: &str) -> Option<&'static str> {
    let is_it = |known: &str| known == word || known.ends_with('=') && word.starts_with(known);
    ABSENT.iter().find(|(known, _)| is_it(known)).map(|(_, reason)| *reason)
}

impl Choices {
    /// Reads `-o` options.
    ///
    /// # Errors
    /// One that is not known, with those that may have been meant, or two that exclude each other.
    pub fn parse(options: &[String], transport: Option<Transport>) -> Result<Choices> {
        let mut choices = Choices {
            transport: transport.unwrap_or_default(),
            // The root of a machine is seen through an overlay.
            are_names_uncached: is_from_initrd(options),
            retry_count: if words(options).any(|word| word == "_netdev") { NETDEV_RETRY_COUNT } else { 0 },
            ..Choices::default()
        };
        for word in words(options) {
            choices.take(word)?;
        }
        let of_word = choices.transport;
        if let Some(transport) = transport.filter(|transport| *transport != of_word) {
            bail!(
                "--transport {} and the mount option 'transport={}' exclude each other; leave one out",
                transport.word(),
                of_word.word()
            );
        }
        if !choices.is_remount {
            // mount(8) puts what is in force in front of what a remount is to change.
            check_exclusive(options)?;
        }
        Ok(choices)
    }

    fn take(&mut self, word: &str) -> Result<()> {
        if let Some(count) = word.strip_prefix(RETRY) {
            let Ok(count) = count.parse() else {
                bail!("'{word}': say how often a mount that failed is tried again, for example retry=4");
            };
            self.retry_count = count;
            return Ok(());
        }
        if let Some(reason) = absent(word) {
            bail!("the mount option '{word}' of Lustre is not here: {reason}");
        }
        match TABLE.iter().find(|(known, ..)| *known == word).map(|(_, effect, _)| effect) {
            Some(Effect::Set(flags)) => self.flags |= flags,
            Some(Effect::Clear(flags)) => self.flags &= !flags,
            Some(Effect::Replace(cleared, set)) => self.flags = self.flags & !cleared | set,
            Some(Effect::Own(change)) => change(self),
            Some(Effect::Remount) => self.is_remount = true,
            Some(Effect::Nothing) => {}
            None if IGNORED.iter().any(|start| word.starts_with(start)) => {}
            None => match meant(word).as_slice() {
                [] => bail!("the mount option '{word}' is not known; see `sheen mount --help`"),
                near => bail!("the mount option '{word}' is not known; did you mean {}?", or(near)),
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

    /// Which changes are durable when they are answered. The kernel sees to that for writes only.
    pub fn sync_rule(&self) -> SyncRule {
        match () {
            () if self.flags & libc::MS_SYNCHRONOUS != 0 => SyncRule::All,
            () if self.flags & libc::MS_DIRSYNC != 0 => SyncRule::Names,
            () => SyncRule::None,
        }
    }

    /// Whether `dirsync` is wanted of what is mounted without it, by the flags that the kernel shows. With `sync` it is in force no less.
    pub fn adds_dirsync(&self, flags: &[String]) -> bool {
        self.flags & libc::MS_DIRSYNC != 0 && !flags.iter().any(|flag| flag == "dirsync")
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
        words.push(if self.are_names_uncached { "names=uncached" } else { "names=cached" });
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

/// Which changes are durable when they are answered, by the flags that the kernel shows of a mount.
pub fn sync_rule_of(flags: &[String]) -> SyncRule {
    let has = |word: &str| flags.iter().any(|flag| flag == word);
    match () {
        () if has("sync") => SyncRule::All,
        () if has("dirsync") => SyncRule::Names,
        () => SyncRule::None,
    }
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

const RETRY: &str = "retry=";

fn known() -> impl Iterator<Item = &'static str> + Clone {
    TABLE.iter().map(|(known, ..)| *known).chain([RETRY])
}

/// What somebody may have meant who wrote this, the likeliest first: in other letters, with another value, or misspelt.
fn meant(word: &str) -> Vec<&'static str> {
    let word = word.to_lowercase();
    let head = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    if known().any(|known| known == word) {
        return known().filter(|known| *known == word).collect();
    }
    let of_head: Vec<&str> = known().filter(|known| head(known) == head(&word)).collect();
    if !of_head.is_empty() {
        return of_head;
    }
    let of_word = spelling::near(&word, known());
    if of_word.is_empty() && word.contains('=') {
        let heads: Vec<(String, &str)> = known().map(|known| (head(known), known)).collect();
        let near = spelling::near(&head(&word), heads.iter().map(|(head, _)| head.as_str()));
        return heads
            .iter()
            .filter(|(head, _)| near.contains(&head.as_str()))
            .map(|(_, known)| *known)
            .collect();
    }
    of_word
}

/// `'a', 'b' or 'c'`
fn or(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => quoted.concat(),
    }
}

/// All options, a line each, for `--help` and the manual page.
pub fn help() -> String {
    let mut text = "Options, with commas between them:\n".to_owned();
    let retry = format!(
        "a mount that failed is tried N times more, after 1, 1, 2, 2, 4 … 32 s: 0, and {NETDEV_RETRY_COUNT} with _netdev"
    );
    let explained = TABLE.iter().filter(|(_, _, doc)| !doc.is_empty()).map(|(word, _, doc)| (*word, *doc));
    for (word, doc) in explained.chain([("retry=N", retry.as_str())]) {
        text.push_str(&format!("\n{word}: {doc}\n"));
    }
    let others =
        TABLE.iter().filter(|(_, effect, _)| matches!(effect, Effect::Nothing)).map(|(word, ..)| *word);
    let others = others.chain(["x-…", "comment=…"]).collect::<Vec<_>>();
    text.push_str(&format!("\n{}: accepted; they are for others, or the default\n", others.join(", ")));
    text
}

/// Without the words that nobody knows, for who wants them let be (`mount -s`).
pub fn known_of(options: &[String]) -> Vec<String> {
    let is_known = |word: &&str| {
        TABLE.iter().any(|(known, ..)| known == word)
            || IGNORED.iter().chain([&RETRY]).any(|start| word.starts_with(start))
    };
    words(options).filter(is_known).map(str::to_owned).collect()
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
    let is_own = |word: &&str| {
        TABLE.iter().any(|(known, effect, _)| known == word && matches!(effect, Effect::Own(_)))
    };
    words(options).filter(is_own).collect()
}

#[cfg(test)]
mod tests;
