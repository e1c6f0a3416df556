//! What looks at the frames between clients and targets on their way: a recorder, one end of a recording, or a newer version.

use super::newer;
use super::newer_servers::NewerServers;
use super::played::Servers;
use super::tape::{Moment, What};
use crate::strangers::Strangers;
use base::{Endpoint, TargetId, Time};
use std::collections::VecDeque;
use wire::{Frame, FrameKind};

pub enum Tap {
    /// Everything goes on as it is.
    Open,
    /// The same, and is written down.
    Recording(Vec<Moment>),
    /// The servers of a recording answer instead of those that are here.
    Servers(Box<Servers>),
    /// The clients are those of a recording: what is for them is kept.
    Clients(Vec<Frame>),
    /// What servers say to each other is written down too, and what became durable when.
    RecordingServers(Vec<Moment>),
    /// Of all targets only this one is there: what it says is kept.
    Alone(TargetId, Vec<Frame>),
    /// Each end finds that the other one is of the next version.
    Newer,
    /// The same of servers among each other, who also ask for what they do not know.
    NewerServers(Box<NewerServers>),
    /// Somebody repeats what he hears with damage.
    Strangers(Box<Strangers>),
    /// Clients find that targets know nothing of these features.
    Without(u64),
}

impl Tap {
    /// A frame on its way, as it goes on; what else goes on its way because of it.
    pub fn pass(&mut self, now: Time, frame: Frame, under_way: &mut VecDeque<Frame>) -> Option<Frame> {
        match self {
            Tap::RecordingServers(moments) => {
                moments.push(Moment { time: now, what: What::Frame(frame.clone()) });
                return Some(frame);
            }
            Tap::Alone(target, said) => {
                if frame.src != Endpoint::Target(*target) {
                    return Some(frame);
                }
                said.push(frame);
                return None;
            }
            Tap::NewerServers(newer) => return newer.pass(frame, under_way),
            Tap::Strangers(strangers) => {
                strangers.pass(&frame, under_way);
                return Some(frame);
            }
            _ => {}
        }
        let is_for_client = matches!(frame.dst, Endpoint::Client(_));
        if !is_for_client && matches!(frame.src, Endpoint::Target(_)) {
            return Some(frame);
        }
        match self {
            Tap::Recording(moments) => {
                moments.push(Moment { time: now, what: What::Frame(frame.clone()) });
                Some(frame)
            }
            Tap::Servers(servers) if !is_for_client => {
                under_way.extend(servers.answer(now, &frame));
                None
            }
            Tap::Clients(answers) if is_for_client => {
                answers.push(frame);
                None
            }
            Tap::Newer => {
                if frame.kind == FrameKind::Reply {
                    under_way.push_back(newer::unknown_callback(&frame));
                }
                Some(newer::seen_from_today(&frame))
            }
            Tap::Without(features) => Some(newer::without(*features, frame)),
            _ => Some(frame),
        }
    }

    /// It is later now.
    pub fn tick(&mut self, now: Time, under_way: &mut VecDeque<Frame>) {
        match self {
            Tap::Servers(servers) => under_way.extend(servers.say(now)),
            Tap::Strangers(strangers) => strangers.tick(),
            _ => {}
        }
    }

    /// Something happens to a target.
    pub fn note(&mut self, time: Time, what: What) {
        match self {
            Tap::Recording(moments) if matches!(what, What::Restart(_)) => {
                moments.push(Moment { time, what });
            }
            Tap::RecordingServers(moments) => moments.push(Moment { time, what }),
            _ => {}
        }
    }
}
