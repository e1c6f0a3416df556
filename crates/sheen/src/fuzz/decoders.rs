//! The table of decoders.

use crate::cli::{Cli, as_sheen};
use crate::cluster::{Cluster, Identity, Shape};
use crate::control;
use crate::daemon::Ready;
use crate::ioctl;
use crate::lfs;
use crate::logging;
use crate::mount::options::Choices;
use crate::mount_table;
use crate::nid;
use crate::params;
use crate::target_dir;
use base::layout::Component;
use base::{Attr, ClusterConfig, Extent, Fid, FileType, Layout, ObjectId, TargetConfig, TargetId};
use borsh::{BorshDeserialize, BorshSerialize};
use bytes::Bytes;
use clap::Parser;
use mds::acl::Acl;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use store::Batch;
use wire::mdt::DirStriping;
use wire::{Callback, ComponentHint, Frame, FrameKind, LayoutHint, Reply, Request};

pub struct Decoder {
    pub name: &'static str,
    /// Bytes that it accepts.
    pub examples: fn() -> Vec<Vec<u8>>,
    /// Whether it accepts them.
    pub read: fn(&[u8]) -> bool,
    /// Makes checksums right again.
    pub seal: Option<fn(&mut Vec<u8>)>,
}

const fn plain(name: &'static str, examples: fn() -> Vec<Vec<u8>>, read: fn(&[u8]) -> bool) -> Decoder {
    Decoder { name, examples, read, seal: None }
}

/// The text of an input; damage to UTF-8 is for `OsString`s.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn texts(examples: &[&str]) -> Vec<Vec<u8>> {
    examples.iter().map(|example| example.as_bytes().to_vec()).collect()
}

/// Encodings of every variant of a type that begins with tags, found by trying them: zeros behind the tags are empty
/// lists, absent options and numbers. So a new variant is tested as soon as it exists.
fn by_tags<T: BorshDeserialize + BorshSerialize>(prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut examples = Vec::new();
    for (first, second) in (0..=64).flat_map(|first| (0..=64).map(move |second| (first, second))) {
        for fill in [0, 1] {
            let mut bytes = vec![first, second];
            bytes.resize(400, 0);
            // Ones where options and enumerations may be.
            bytes.iter_mut().skip(18).step_by(17).for_each(|byte| *byte = fill);
            if let Ok(value) = T::deserialize_reader(&mut bytes.as_slice()) {
                let mut example = prefix.to_vec();
                if value.serialize(&mut example).is_ok() && !examples.contains(&example) {
                    examples.push(example);
                }
            }
        }
    }
    examples
}

fn borsh_bytes<T: BorshSerialize>(value: &T) -> Vec<u8> {
    borsh::to_vec(value).unwrap_or_default()
}

fn frames() -> Vec<Vec<u8>> {
    let client = base::ClientId(7).endpoint();
    let target = base::Endpoint::Target(TargetId::ost(3));
    let frame = |kind, body: Bytes, data: &'static [u8]| {
        let mut frame = Frame::new(kind, client, target);
        (frame.body, frame.data) = (body, Bytes::from_static(data));
        frame.to_bytes()
    };
    vec![
        frame(FrameKind::Request, Request::PING.to_bytes(), b""),
        frame(FrameKind::Reply, Reply::Done.to_bytes(), b"file data"),
        frame(FrameKind::Callback, Callback::Evicted { session: 3 }.to_bytes(), b""),
    ]
}

fn read_frame(bytes: &[u8]) -> bool {
    // As the connection does it: lengths first, then the whole frame, then its body.
    let Ok(Some(byte_count)) = Frame::byte_count(bytes) else { return false };
    let Some(whole) = bytes.get(..byte_count) else { return false };
    Frame::from_bytes(Bytes::copy_from_slice(whole)).is_ok_and(|frame| match frame.kind {
        FrameKind::Request => Request::from_bytes(&frame.body).is_ok(),
        FrameKind::Reply => Reply::from_bytes(&frame.body).is_ok(),
        FrameKind::Callback => Callback::from_bytes(&frame.body).is_ok(),
    })
}

fn seal_frame(bytes: &mut [u8]) {
    let field = |at: usize| bytes.get(at..)?.first_chunk().map(|field| u32::from_le_bytes(*field) as usize);
    let (Some(body_bytes), Some(data_bytes)) = (field(8), field(12)) else { return };
    let Some(body) = bytes.get(128..).and_then(|rest| rest.get(..body_bytes)).map(<[u8]>::to_vec) else {
        return;
    };
    let Some(data) = bytes.get(128 + body_bytes..).and_then(|rest| rest.get(..data_bytes)) else { return };
    let data_crc = crc32c::crc32c(data);
    bytes[120..124].copy_from_slice(&data_crc.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..124]), &body);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
}

fn config() -> ClusterConfig {
    let target = TargetConfig {
        id: TargetId::mdt(0),
        uuid: 7,
        nids: vec!["127.0.0.1:7988".to_owned()],
        is_active: true,
    };
    let params = vec![("debug".to_owned(), "info".to_owned())];
    ClusterConfig {
        fsname: "scratch".to_owned(),
        version: 3,
        targets: vec![target],
        params,
        pools: Vec::new(),
    }
}

fn layout() -> Layout {
    Layout::plain(Fid::ROOT, 1, 1 << 20, vec![0, 1, 2])
}

fn composite_layout() -> Layout {
    let component =
        |id, end_bytes, osts| Component { id, end_bytes, stripe_size_bytes: 64 << 10, osts, pool: None };
    let components = vec![
        component(1, 128 << 10, vec![0]),
        component(2, 1 << 20, vec![1, 2]),
        component(3, Extent::EOF, vec![0, 1]),
    ];
    Layout { fid: Fid::ROOT, components }
}

fn hints() -> Vec<Vec<u8>> {
    let first = ComponentHint { end_bytes: Some(1 << 20), stripe_count: Some(1), ..ComponentHint::default() };
    let rest =
        ComponentHint { stripe_size_bytes: Some(1 << 20), first_ost: Some(2), ..ComponentHint::default() };
    let composite = LayoutHint { components: vec![first, rest.clone()] };
    vec![borsh_bytes(&LayoutHint::plain(rest)), borsh_bytes(&composite)]
}

/// Also the layout that an MDT makes of it.
fn read_hint(bytes: &[u8]) -> bool {
    let Ok(hint) = LayoutHint::try_from_slice(bytes) else { return false };
    let mut placement = mds::placement::Placement::default();
    placement.configure(vec![0, 1, 2]);
    if let Ok(Some(layout)) = placement.layout(Fid::ROOT, 1, &hint) {
        assert!(layout.is_valid(), "{hint:?} made {layout:?}");
    }
    true
}

/// Also what is computed with a layout that was found valid.
fn read_layout(bytes: &[u8]) -> bool {
    let Ok(layout) = Layout::try_from_slice(bytes) else { return false };
    if !layout.is_valid() {
        return true;
    }
    let ends = layout.components.iter().map(|component| component.end_bytes);
    for offset_bytes in [0, 1, 64 << 10, 1 << 40, u64::MAX - (2 << 20)].into_iter().chain(ends) {
        let _ = layout.pieces(Extent::at(offset_bytes, 1 << 20));
        let _ = layout.object_bytes_max(offset_bytes);
        for stripe in [0, 1, u32::MAX] {
            let _ = layout.file_size(stripe, offset_bytes);
        }
        for stripe in layout.stripes().filter_map(|stripe| layout.stripe(stripe)) {
            let at = stripe.object_offset_at(offset_bytes);
            let _ = stripe.file_range(Extent::at(at, 4096));
            assert_eq!(
                layout.stripe_of(stripe.object).and_then(|stripe| layout.stripe(stripe)),
                Some(stripe)
            );
        }
    }
    true
}

fn acls() -> Vec<Vec<u8>> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list = |entries: &[Vec<u8>]| [2_u32.to_le_bytes().to_vec(), entries.concat()].concat();
    let nobody = u32::MAX;
    vec![
        list(&[entry(1, 7, nobody), entry(4, 5, nobody), entry(32, 0, nobody)]),
        list(&[
            entry(1, 7, nobody),
            entry(2, 6, 1000),
            entry(4, 5, nobody),
            entry(8, 4, 2000),
            entry(16, 7, nobody),
            entry(32, 0, nobody),
        ]),
    ]
}

fn read_acl(bytes: &[u8]) -> bool {
    let Ok(mut acl) = Acl::from_xattr(bytes) else { return false };
    let _ = (acl.mode(), acl.is_mode_only(), acl.inherit(0o777));
    acl.set_mode(0o751);
    Acl::from_xattr(&acl.to_xattr()).is_ok()
}

fn batches() -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    batch.put(1, b"a key", b"a value");
    batch.delete(2, b"another");
    vec![Vec::new(), batch.encoded().to_vec()]
}

fn read_mdt_key(key: &[u8]) -> bool {
    let found = [
        mds::rows::split_dentry_key(key).is_some(),
        mds::rows::split_link_key(key).is_some(),
        mds::rows::split_destroy_key(key).is_some(),
        mds::rows::split_operation_key(key).is_some(),
        mds::rows::split_streamed_key(key).is_some(),
        Fid::from_key(key).is_some(),
        ObjectId::from_key(key).is_some(),
    ];
    found.contains(&true)
}

fn read_mdt_row(bytes: &[u8]) -> bool {
    use mds::rows::{Adopt, Decision, Dentry, Destroy, Inode, KnownTargets, Prepare, Streamed, decode};
    decode::<Inode>(bytes).is_ok()
        || decode::<Dentry>(bytes).is_ok()
        || decode::<Destroy>(bytes).is_ok()
        || decode::<Adopt>(bytes).is_ok()
        || decode::<KnownTargets>(bytes).is_ok()
        || decode::<Prepare>(bytes).is_ok()
        || decode::<Decision>(bytes).is_ok()
        || decode::<Streamed>(bytes).is_ok()
}

/// A file, a directory with a default layout, a symbolic link.
fn inodes() -> Vec<mds::rows::Inode> {
    let time = base::WallTime(1_700_000_000_000_000_000);
    let attr = Attr {
        fid: Fid::ROOT,
        file_type: FileType::Regular,
        permissions: 0o644,
        uid: 1000,
        gid: 1000,
        link_count: 2,
        rdev: 0,
        size_bytes: 12_345,
        block_count: 32,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        mtime_stamp: time,
        version: base::Version::default(),
        is_size_known: true,
        write_epoch: 3,
        has_xattrs: true,
    };
    let file = mds::rows::Inode {
        attr,
        layout: Some(layout()),
        symlink_target: None,
        default_layout: None,
        xattr_name_bytes: 5,
        xattr_count: 1,
        stripes: Vec::new(),
        default_striping: None,
    };
    let mut directory = mds::rows::Inode { layout: None, ..file.clone() };
    directory.attr.file_type = FileType::Directory;
    directory.default_layout =
        Some(LayoutHint::plain(ComponentHint { stripe_count: Some(2), ..Default::default() }));
    directory.stripes = vec![directory.attr.fid, base::Fid::ROOT];
    directory.default_striping = Some(DirStriping { stripe_count: 2, mdts: vec![1] });
    let mut link = mds::rows::Inode { layout: None, symlink_target: Some(b"there".to_vec()), ..file.clone() };
    link.attr.file_type = FileType::Symlink;
    vec![file, directory, link]
}

fn mdt_rows() -> Vec<Vec<u8>> {
    use mds::rows::{Adopt, Decision, Dentry, Destroy, KnownTargets, Streamed, encode};
    let previous = wire::peer::OperationId::before_all(1);
    let mut rows: Vec<Vec<u8>> = inodes().iter().map(encode).collect();
    rows.extend([
        encode(&Dentry { fid: Fid::ROOT, file_type: FileType::Directory }),
        encode(&Destroy { stripes: vec![1, 2] }),
        encode(&Adopt { from: Fid::ROOT, stripes: vec![1, 2] }),
        encode(&KnownTargets { osts: vec![0, 1], mdt_count: 2 }),
        encode(&Decision { participants: vec![1] }),
        encode(&Streamed { previous, parts: Vec::new() }),
    ]);
    let version = rows.first().and_then(|row| row.first()).copied().unwrap_or_default();
    rows.extend(by_tags::<mds::rows::Prepare>(&[version]).into_iter().take(20));
    rows
}

fn ost_rows() -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for version in 0..4 {
        let stamp = borsh_bytes(&base::WallTime(7));
        rows.push([vec![version], stamp].concat());
    }
    rows.retain(|row| read_ost_row(row));
    let mut sealed = Batch::new();
    oss::rows::put(&mut sealed, 2, b"k", &oss::rows::TombstoneRow { destroyed_at: base::WallTime(7) });
    oss::rows::put_born(&mut sealed, &ObjectId { fid: Fid::ROOT, component: 0, stripe: 0 }, base::Transno(7));
    rows.extend(sealed.changes().filter_map(|change| change.value.map(<[u8]>::to_vec)));
    rows
}

fn read_ost_row(bytes: &[u8]) -> bool {
    oss::rows::decode::<oss::rows::ObjectRow>(bytes).is_ok()
        || oss::rows::decode_born(bytes).is_ok()
        || oss::rows::decode_tombstone(bytes).is_ok()
}

fn clusters() -> Vec<Vec<u8>> {
    let mut cluster = Cluster::new(Shape {
        fsname: "scratch".to_owned(),
        mount: "/mnt".into(),
        is_split: true,
        transport: "auto".to_owned(),
        mdt_count: 2,
        ost_count: 4,
    });
    cluster.next_identity();
    vec![serde_json::to_vec_pretty(&cluster).unwrap_or_default()]
}

fn read_cluster(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| Cluster::parse(Path::new("/cluster.json"), text).is_ok())
}

fn control_messages() -> Vec<Vec<u8>> {
    use control::{Ask, Leave, Process, Tell};
    let asks = [
        Ask::Status,
        Ask::Stop { leave: Leave::Cut },
        Ask::Unmount {
            mount: "/mnt".into(),
            leave: Leave::Unmount,
            is_with_cluster: false,
            detaches_itself: true,
        },
        Ask::GetParam { pattern: "*.*".to_owned() },
        Ask::SetParam {
            pattern: "debug".to_owned(),
            value: "info".to_owned(),
            is_permanent: true,
            is_deleted: false,
        },
        Ask::ListParam { pattern: "*".to_owned(), is_recursive: true },
        Ask::ListPools,
        Ask::ChangePool { name: "flash".to_owned(), action: control::PoolAction::Add(vec![0, 3]) },
    ];
    let mut messages: Vec<Vec<u8>> =
        asks.iter().map(|ask| serde_json::to_vec(ask).unwrap_or_default()).collect();
    let tell = Tell { process: Some(Process::default()), ..Tell::default() };
    messages.push(serde_json::to_vec(&tell).unwrap_or_default());
    messages.push(serde_json::to_vec(&Ready::default()).unwrap_or_default());
    messages
}

fn read_control(bytes: &[u8]) -> bool {
    serde_json::from_slice::<control::Ask>(bytes).is_ok()
        || serde_json::from_slice::<control::Tell>(bytes).is_ok()
        || serde_json::from_slice::<Ready>(bytes).is_ok()
}

fn ioctls() -> Vec<Vec<u8>> {
    let asks = by_tags::<ioctl::Ask>(&[]).into_iter();
    let length = |body: &Vec<u8>| [&(body.len() as u32).to_le_bytes()[..], body].concat();
    let mut messages: Vec<Vec<u8>> = asks.map(|body| length(&body)).collect();
    messages.push(ioctl::pack(&ioctl::Tell::Stripe { fid: Fid::ROOT, layout: Some(layout()) }));
    messages.retain(|message| read_ioctl(message));
    messages
}

fn read_ioctl(bytes: &[u8]) -> bool {
    let request = fuse::Ioctl {
        fh: 1,
        cmd: ioctl::COMMAND,
        arg: 0,
        is_dir: false,
        compat: false,
        data: bytes.to_vec(),
        out_size: 4096,
    };
    ioctl::decode(1, &request).is_ok() || ioctl::unpack::<ioctl::Tell>(bytes).is_some()
}

fn read_nid(bytes: &[u8]) -> bool {
    let text = text(bytes);
    nid::parse_nid(&text).is_ok() || nid::parse_nids(&text).is_ok() || nid::Source::parse(&text).is_ok()
}

fn read_id(bytes: &[u8]) -> bool {
    let text = text(bytes);
    text.parse::<Fid>().is_ok() || text.parse::<TargetId>().is_ok() || text.parse::<Identity>().is_ok()
}

fn read_size(bytes: &[u8]) -> bool {
    let text = text(bytes);
    lfs::parse_size(&text).is_ok()
        | lfs::stripes::parse_end(&text).is_ok()
        | lfs::stripes::parse_count(&text).is_ok()
}

fn command_lines() -> Vec<Vec<u8>> {
    texts(&[
        "sheen up --mdts 2 --osts 4 --split --transport dev",
        "sheen mkfs --ost --index 3 --fsname scratch --mgsnode 127.0.0.1@tcp /dir",
        "sheen serve --listen 127.0.0.1:7988 /dir /other",
        "sheen mount 127.0.0.1@tcp:/scratch /mnt -o ro,nosuid",
        "lfs setstripe -c 2 -S 1M -i 0 /file",
        "lfs setstripe -E 4M -c 1 -S 1M -E eof -c -1 /file",
        "lctl set_param -P osc.*.active=0",
        "mount.sheen 127.0.0.1@tcp:/scratch /mnt -o ro -t sheen",
        "umount.sheen /mnt -l",
    ])
}

fn read_command_line(bytes: &[u8]) -> bool {
    let words = bytes.split(|byte| *byte == b' ').map(|word| OsString::from_vec(word.to_vec()));
    as_sheen(words).is_ok_and(|words| Cli::try_parse_from(words).is_ok())
}

fn read_options(bytes: &[u8]) -> bool {
    Choices::parse(&[text(bytes)], None).is_ok()
}

fn read_mount_line(bytes: &[u8]) -> bool {
    mount_table::parse_line(bytes).is_some()
}

fn read_setting(bytes: &[u8]) -> bool {
    let text = text(bytes);
    let (pattern, value) = text.split_once('=').unwrap_or((&text, ""));
    params::check(pattern, value, false).is_ok() | params::check_level(pattern).is_ok()
}

/// One request of every kind.
pub fn requests() -> Vec<Vec<u8>> {
    by_tags::<Request>(&[])
}

/// One reply of every kind.
pub fn replies() -> Vec<Vec<u8>> {
    by_tags::<Reply>(&[])
}

pub fn all() -> Vec<Decoder> {
    vec![
        Decoder { name: "frame", examples: frames, read: read_frame, seal: Some(|bytes| seal_frame(bytes)) },
        plain("request body", requests, |bytes| Request::from_bytes(bytes).is_ok()),
        plain("reply body", replies, |bytes| Reply::from_bytes(bytes).is_ok()),
        plain("callback body", || by_tags::<Callback>(&[]), |bytes| Callback::from_bytes(bytes).is_ok()),
        plain("configuration row", || vec![mgs::encode(&config())], |bytes| mgs::decode(bytes).is_some()),
        plain("rows of every target", target::core::decoders::row_examples, target::core::decoders::read_row),
        plain("rows of an MDT", mdt_rows, read_mdt_row),
        plain(
            "keys of an MDT",
            || vec![mds::rows::dentry_key(Fid::ROOT, b"name"), Fid::ROOT.key().to_vec()],
            read_mdt_key,
        ),
        plain("rows of an OST", ost_rows, read_ost_row),
        plain("batch of the redo log", batches, |bytes| Batch::decode(bytes).is_ok()),
        Decoder {
            name: "redo log",
            examples: || vec![store_disk::decoders::log_example()],
            read: |bytes| store_disk::decoders::read_log(bytes) > 0,
            seal: Some(|bytes| store_disk::decoders::seal_log(bytes)),
        },
        plain(
            "how far a log reached",
            || vec![store_disk::decoders::reached_example()],
            store_disk::decoders::read_reached,
        ),
        plain(
            "checkpoint mark",
            || vec![store_disk::decoders::checkpoint_example()],
            store_disk::decoders::read_checkpoint,
        ),
        plain(
            "row with its checksum",
            || vec![store_disk::decoders::row_example()],
            store_disk::decoders::read_row,
        ),
        plain(
            "superblock",
            || vec![store_disk::decoders::superblock_example()],
            store_disk::decoders::read_superblock,
        ),
        Decoder {
            name: "object header",
            examples: store_disk::decoders::object_header_examples,
            read: store_disk::decoders::read_object_header,
            seal: Some(|bytes| store_disk::decoders::seal_object_header(bytes)),
        },
        plain("layout", || vec![borsh_bytes(&layout()), borsh_bytes(&composite_layout())], read_layout),
        plain("layout hint", hints, read_hint),
        plain("ACL", acls, read_acl),
        plain(
            "FUSE request",
            || {
                let mut examples = fuse::decoders::examples();
                examples.retain(|example| fuse::decoders::read(example));
                examples
            },
            fuse::decoders::read,
        ),
        plain("control message", control_messages, read_control),
        plain("ioctl buffer", ioctls, read_ioctl),
        plain(
            "NID and source",
            || {
                texts(&[
                    "127.0.0.1@tcp",
                    "a:1@tcp,b:2@tcp:c@tcp",
                    "[::1]:7988@tcp",
                    "127.0.0.1@tcp:/scratch/sub",
                ])
            },
            read_nid,
        ),
        plain(
            "FID, target and identity",
            || texts(&["[0x200000401:0x1:0x0]", "OST0003", "00000000000000000000000000000007:3"]),
            read_id,
        ),
        plain("stripe size", || texts(&["64K", "1M", "4194304"]), read_size),
        plain("command line", command_lines, read_command_line),
        plain(
            "mount options",
            || texts(&["ro,nosuid", "transport=dev,mmap=relaxed", "defaults"]),
            read_options,
        ),
        plain(
            "line of mountinfo",
            || texts(&["36 35 98:0 / /mnt/a\\040b rw,noatime shared:1 - fuse.sheen sheen rw,user_id=0"]),
            read_mount_line,
        ),
        plain(
            "parameter",
            || texts(&["osc.*.active=0", "{osc,mdc}.*.st[a-z]ts=0", "debug=info,mds=debug"]),
            read_setting,
        ),
        plain(
            "log filter",
            || texts(&["info", "info,mds=debug"]),
            |bytes| logging::check_filter(&text(bytes)).is_ok(),
        ),
        plain("cluster.json", clusters, read_cluster),
        plain(
            "mgsnode",
            || texts(&["127.0.0.1:7988\nhost:1\n"]),
            |bytes| target_dir::parse_mgs(&text(bytes)).is_some(),
        ),
    ]
}
