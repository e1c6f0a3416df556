//! What goes over the wire: frames, and the bodies of requests, replies and callbacks.
//!
//! A frame has a fixed little-endian header with its own length, so that a newer peer may append fields; bodies are
//! borsh (explicit little-endian, bounded allocation) and trailing bytes of a body are ignored for the same reason.
//! Discriminants are never reused. File data travel beside the body and are never copied by the codec.

#![forbid(unsafe_code)]

mod access;
pub mod claim;
pub mod clock;
mod data_stamp;
pub mod frame;
pub mod hint;
pub mod lock;
pub mod manifest;
pub mod mdt;
pub mod mgs;
mod name;
pub mod ost;
pub mod peer;
pub mod session;
mod software;
mod starts;
mod tail;
mod unknown;

pub use claim::Claim;
pub use frame::{Frame, FrameKind, WireError, flags};
pub use hint::{ComponentHint, LayoutHint};
pub use lock::{LockGrant, LockMode, LockPolicy, LockRequest, Resource};
pub use manifest::Manifest;
pub use mdt::{MdtReply, MdtRequest};
pub use mgs::{Life, MgsReply, MgsRequest, Ownership, PoolChange, TargetOwner};
pub use ost::{OstReply, OstRequest};
pub use peer::{PeerReply, PeerRequest};
pub use session::{ConnectReply, ConnectRequest, Starts};
pub use unknown::Opcode;

use borsh::{BorshDeserialize, BorshSerialize};

/// Protocol version of this build; N and N+1 interoperate.
pub const VERSION: u32 = 1;
/// Oldest version that this build talks to.
pub const VERSION_OLDEST: u32 = 1;
/// What this build is, for operators.
pub const SOFTWARE: &str = env!("CARGO_PKG_VERSION");
/// Default port of every server.
pub const PORT: u16 = 7988;

/// Body of a request frame.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Request {
    Connect(ConnectRequest) = 1,
    /// `accesses`: as in `MdtRequest::Open`, to an MDT.
    Disconnect {
        #[borsh(serialize_with = "access::serialize", deserialize_with = "access::deserialize")]
        accesses: Vec<mdt::Access>,
    } = 2,
    /// Renews the lease; the reply carries `last_committed`. `accesses`: as above.
    Ping {
        #[borsh(serialize_with = "access::serialize", deserialize_with = "access::deserialize")]
        accesses: Vec<mdt::Access>,
    } = 3,
    /// All replays, open files and locks have been sent again; the reply comes when recovery has ended.
    ReplayDone = 4,
    /// Before the replays, to a target that orders them by what they touch (`session::features::has_manifests`). -> Done
    Manifest(Manifest) = 5,
    /// Which process serves this target? Asked without a session, on a connection of its own, and answered for the machine of the target by
    /// its process, which may know that it lives while its device stands still. -> ServedBy; who does not have this target may say nothing
    WhoServes {
        target_uuid: u128,
    } = 6,
    Lock(LockRequest) = 10,
    Mdt(MdtRequest) = 20,
    Ost(OstRequest) = 30,
    Mgs(MgsRequest) = 40,
    Peer(PeerRequest) = 50,
}

impl Request {
    /// One that tells nothing besides.
    pub const PING: Request = Request::Ping { accesses: Vec::new() };
    pub const DISCONNECT: Request = Request::Disconnect { accesses: Vec::new() };
}

/// Body of a reply frame whose status is `Ok`, or `Outdated` (others have an empty body).
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Reply {
    /// Nothing but the header.
    Done = 0,
    Connected(ConnectReply) = 1,
    /// As what that process calls the management server.
    ServedBy {
        process: base::ClientId,
    } = 2,
    /// Beside `Status::Outdated`: who asked, as it called itself, and the start of it that the answerer knows.
    Outdated {
        caller: base::Start,
        known: base::Start,
    } = 3,
    Locked(LockGrant) = 10,
    Mdt(MdtReply) = 20,
    Ost(OstReply) = 30,
    Mgs(MgsReply) = 40,
    Peer(PeerReply) = 50,
}

/// Body of a callback frame, from a target to a client. It needs no reply of its own: what it asks for answers it,
/// and the target repeats it until then.
#[derive(Clone, Debug, PartialEq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Callback {
    /// Somebody waits for this lock: give it back (`LockRequest::Cancel`).
    Blocking { lock: base::LockId, resource: Resource } = 1,
    /// The configuration has changed: fetch it from the MGS.
    ConfigChanged { version: u64 } = 2,
    /// The session has ended on the server's side; whatever the client held is gone.
    Evicted { session: u64 } = 3,
    /// From the MGS: this target has started, so whoever knows an earlier incarnation connects now (imperative recovery).
    TargetStarted { fsname: String, target: base::TargetId, epoch: base::Epoch } = 4,
}

macro_rules! body {
    ($name:ident, $why:path) => {
        impl $name {
            /// The bytes of this body.
            pub fn to_bytes(&self) -> bytes::Bytes {
                let mut bytes = Vec::with_capacity(128);
                // Writing to memory cannot fail.
                let result = self.serialize(&mut bytes);
                assert!(result.is_ok(), "a body is written to memory");
                bytes.into()
            }

            /// Reads a body; bytes behind it belong to a newer version and are ignored.
            ///
            /// # Errors
            /// `Body`; for a request that only a newer version has, `UnknownOpcode`.
            pub fn from_bytes(bytes: &[u8]) -> Result<$name, WireError> {
                let read = $name::deserialize_reader(&mut &*bytes);
                read.map_err(|error| $why(bytes, error))
            }
        }
    };
}

body!(Request, unknown::why_unreadable);
body!(Reply, damaged);
body!(Callback, damaged);

fn damaged(_: &[u8], error: borsh::io::Error) -> WireError {
    WireError::Body(error.to_string())
}
