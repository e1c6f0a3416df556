//! What requests are called in statistics.

use crate::{LockRequest, MdtRequest, OstRequest, Request};

impl Request {
    /// Its name in statistics, of clients and of servers: Lustre's where it has one.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Connect(_) => "connect",
            Request::Disconnect { .. } => "disconnect",
            Request::Ping { .. } => "ping",
            Request::ReplayDone => "replay_done",
            Request::Manifest(_) => "replay_manifest",
            Request::WhoServes { .. } => "who_serves",
            Request::Lock(LockRequest::Enqueue { .. }) => "ldlm_enqueue",
            Request::Lock(LockRequest::Cancel { .. }) => "ldlm_cancel",
            Request::Lock(LockRequest::Replay { .. }) => "ldlm_replay",
            Request::Mgs(_) => "mgs",
            Request::Peer(_) => "peer",
            Request::Ost(request) => match request {
                OstRequest::Read { .. } | OstRequest::LockAndRead { .. } => "ost_read",
                OstRequest::Write { .. } => "ost_write",
                OstRequest::Change { .. } => "ost_punch",
                OstRequest::Getattr { .. } => "ost_getattr",
                OstRequest::Seek { .. } => "ost_seek",
                OstRequest::Sync { .. } => "ost_sync",
                OstRequest::Adopt { .. } => "ost_adopt",
                OstRequest::Destroy { .. } => "ost_destroy",
                OstRequest::Statfs => "ost_statfs",
                OstRequest::ListObjects { .. } => "ost_list",
                OstRequest::Advise { .. } => "ost_ladvise",
                OstRequest::Fence(_) => "ost_fence",
            },
            Request::Mdt(request) => match request {
                MdtRequest::Lookup { .. } => "mds_lookup",
                MdtRequest::Getattr { .. } => "mds_getattr",
                MdtRequest::Setattr { .. } => "mds_setattr",
                MdtRequest::Create(_) | MdtRequest::MakeStriped { .. } => "mds_create",
                MdtRequest::Unlink { .. } | MdtRequest::RemoveAgain { is_directory: false, .. } => {
                    "mds_unlink"
                }
                MdtRequest::Rmdir { .. } | MdtRequest::RemoveAgain { .. } => "mds_rmdir",
                MdtRequest::Rename { .. } | MdtRequest::RenameAgain { .. } => "mds_rename",
                MdtRequest::Link { .. } => "mds_link",
                MdtRequest::Migrate { .. } => "mds_migrate",
                MdtRequest::Open { .. } => "mds_open",
                MdtRequest::Close { .. } | MdtRequest::Closes { .. } => "mds_close",
                MdtRequest::ReportSize { .. } | MdtRequest::ReportSizes { .. } => "mds_report_size",
                MdtRequest::Readdir { .. } => "mds_readpage",
                MdtRequest::Readlink { .. } => "mds_readlink",
                MdtRequest::Listxattr { .. } => "mds_listxattr",
                MdtRequest::Getxattr { .. } => "mds_getxattr",
                MdtRequest::Setxattr { .. } => "mds_setxattr",
                MdtRequest::Removexattr { .. } => "mds_removexattr",
                MdtRequest::Statfs => "mds_statfs",
                MdtRequest::Sync => "mds_sync",
                MdtRequest::FidToPath { .. } => "mds_fid2path",
                MdtRequest::Flock { .. } => "mds_flock",
                MdtRequest::FlockCancel { .. } => "mds_flock_cancel",
                MdtRequest::Getlk { .. } => "mds_getlk",
                MdtRequest::SetLayout { .. } => "mds_setlayout",
                MdtRequest::GetDefaultLayout { .. } => "mds_getlayout",
                MdtRequest::SetDefaultStriping { .. } => "mds_setdirstripe",
                MdtRequest::GetDefaultStriping { .. } => "mds_getdirstripe",
                MdtRequest::Reopen { .. } => "mds_reopen",
                MdtRequest::ReplayFlocks { .. } => "mds_replay_flocks",
            },
        }
    }
}
