//! Recorded sessions: the frames between clients and targets, as bytes, in the order in which they arrived.
//!
//! A file is text up to an empty line, and then moments. The text says `sheen frames 1`, and in a line each, `version` (of
//! the program that recorded it), `session` (the script that was played) and `mounts` (how many clients there are). A moment
//! is its time (u64, nanoseconds of the machines' clock), how many bytes follow (u32), its kind (u8), and these:
//!
//! | kind | bytes |
//! |---|---|
//! | 1 | a frame as it goes over TCP; its header names the session, who sent it and to whom |
//! | 2 | name of a target: it was killed and started again at this moment |
//! | 3 | name of a target: the power failed, and it was started again with what was durable |
//! | 4 | name of a target: what it had written became durable, and it heard so |
//!
//! Kinds 3 and 4 are in recordings of servers among each other only, which have all frames of all servers, those to clients too.
//!
//! All numbers are little-endian.

use base::{TargetId, Time};
use bytes::{Buf, Bytes};
use wire::Frame;

const MAGIC: &str = "sheen frames 1";
const FRAME: u8 = 1;
const RESTART: u8 = 2;
const POWER_LOSS: u8 = 3;
const SYNC: u8 = 4;

#[derive(Clone, Debug, PartialEq)]
pub enum What {
    Frame(Frame),
    Restart(TargetId),
    PowerLoss(TargetId),
    Sync(TargetId),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    pub time: Time,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tape {
    /// Of the program that recorded it.
    pub version: String,
    pub session: String,
    pub mount_count: usize,
    pub moments: Vec<Moment>,
}

impl Tape {
    pub fn to_bytes(&self) -> Vec<u8> {
        let Tape { version, session, mount_count, moments } = self;
        let mut bytes =
            format!("{MAGIC}\nversion {version}\nsession {session}\nmounts {mount_count}\n\n").into_bytes();
        for Moment { time, what } in moments {
            let (kind, body) = match what {
                What::Frame(frame) => (FRAME, frame.to_bytes()),
                What::Restart(target) => (RESTART, target.to_string().into_bytes()),
                What::PowerLoss(target) => (POWER_LOSS, target.to_string().into_bytes()),
                What::Sync(target) => (SYNC, target.to_string().into_bytes()),
            };
            bytes.extend_from_slice(&time.0.to_le_bytes());
            bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
            bytes.push(kind);
            bytes.extend_from_slice(&body);
        }
        bytes
    }

    /// # Errors
    /// What is wrong, in a line.
    pub fn from_bytes(bytes: &[u8]) -> Result<Tape, String> {
        let end =
            bytes.windows(2).position(|two| two == b"\n\n").ok_or("no recording: its text has no end")?;
        let (text, rest) = bytes.split_at(end + 2);
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        if text.lines().next() != Some(MAGIC) {
            return Err(format!("no recording: it does not begin with `{MAGIC}`"));
        }
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or_else(|| format!("the recording does not say `{name}`"))
        };
        let mount_count = value("mounts")?.parse().map_err(|_| "`mounts` is no number")?;
        let (version, session) = (value("version")?.to_owned(), value("session")?.to_owned());
        Ok(Tape { version, session, mount_count, moments: moments(rest)? })
    }

    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.moments.iter().filter_map(|moment| match &moment.what {
            What::Frame(frame) => Some(frame),
            What::Restart(_) | What::PowerLoss(_) | What::Sync(_) => None,
        })
    }
}

fn moments(mut rest: &[u8]) -> Result<Vec<Moment>, String> {
    let mut moments = Vec::new();
    while !rest.is_empty() {
        let number = moments.len();
        let cut = || format!("the recording ends within moment {number}");
        if rest.len() < 13 {
            return Err(cut());
        }
        let time = Time(rest.get_u64_le());
        let byte_count = rest.get_u32_le() as usize;
        let kind = rest.get_u8();
        let (body, behind) = rest.split_at_checked(byte_count).ok_or_else(cut)?;
        rest = behind;
        let what = match kind {
            FRAME => Frame::from_bytes(Bytes::copy_from_slice(body))
                .map(What::Frame)
                .map_err(|error| format!("moment {number}: {error}"))?,
            RESTART | POWER_LOSS | SYNC => {
                let name = std::str::from_utf8(body).ok().and_then(|name| name.parse().ok());
                let target = name.ok_or_else(|| format!("moment {number} names no target"))?;
                match kind {
                    RESTART => What::Restart(target),
                    POWER_LOSS => What::PowerLoss(target),
                    _ => What::Sync(target),
                }
            }
            other => return Err(format!("moment {number} is of the unknown kind {other}")),
        };
        moments.push(Moment { time, what });
    }
    Ok(moments)
}
