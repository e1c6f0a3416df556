//! Faults planted on purpose, to show that the simulation's checkers find them. Without the feature `planted-faults`
//! every question is answered `false` at compile time.

/// Each is one mistake that somebody could make in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// A lock is granted although another client holds one that conflicts.
    LockGrantedWrongly = 1,
    /// A target forgets the reply of a slot: a resent request is executed again.
    ReplySlotForgotten = 2,
    /// A target says that everything is committed when it is only executed.
    CommitReportedEarly = 3,
    /// A client gives a lock back before the kernel has dropped what it covered.
    CancelBeforeFlush = 4,
    /// A client leaves out a replay.
    ReplaySkipped = 5,
    /// The MDT takes a size that was reported for an older write epoch.
    StaleSizeTaken = 6,
    /// Objects are destroyed before the unlink is durable.
    DestroyBeforeDurable = 7,
    /// A participant forgets at restart what it had prepared.
    PrepareForgotten = 8,
    /// A target executes a copy of a request that it is executing or has answered.
    DuplicateExecuted = 9,
    /// An OST takes a write for an object that was destroyed.
    TombstoneIgnored = 10,
    /// A client gives the write-back lock of a file back before it has written what it kept.
    KeptBackTooLong = 11,
    /// A client believes what it has read ahead after its lock has gone, or after a write of its own.
    WindowBelievedTooLong = 12,
    /// A participant executes its part before the coordinator's record is durable.
    PartBeforeDurable = 13,
    /// A recovering target executes a replay before those that it depends on.
    ReplayOrderIgnored = 14,
    /// A restarted MDT forgets what absent clients hold, and serves others all the same.
    HoldingsIgnored = 15,
    /// An MDT shows a file that has come to it before its objects have been adopted.
    AdoptionNotAwaited = 16,
    /// A restarted OST forgets which objects absent clients have locked, and serves others all the same.
    ObjectHoldingsIgnored = 17,
    /// A restarted OST takes what a process that has died had written for durable.
    LeftUnsynced = 18,
    /// A participant executes what it held for a former incarnation of a coordinator, and this one has not sent again.
    VoidPartExecuted = 19,
    /// One of several names of a file goes, and the file goes on knowing it.
    LinkKept = 20,
    /// A session ends, and its answers stay.
    AnswersKept = 21,
    /// An MDT that has given a client up forgets what it had open for writing before it has come back or every OST has ended its session.
    UnfencedForgotten = 22,
    /// The management server says of nobody that his lease has ended.
    GoneTakenForLiving = 23,
    /// A client says nothing of what a target that has evicted it has lost.
    LossUntold = 24,
    /// A client takes for lost what a target that has evicted it has kept.
    KeptTakenForLost = 25,
}

impl Fault {
    pub const ALL: [Fault; 23] = [
        Fault::LockGrantedWrongly,
        Fault::ReplySlotForgotten,
        Fault::CommitReportedEarly,
        Fault::CancelBeforeFlush,
        Fault::ReplaySkipped,
        Fault::StaleSizeTaken,
        Fault::DestroyBeforeDurable,
        Fault::PrepareForgotten,
        Fault::DuplicateExecuted,
        Fault::TombstoneIgnored,
        Fault::KeptBackTooLong,
        Fault::WindowBelievedTooLong,
        Fault::PartBeforeDurable,
        Fault::ReplayOrderIgnored,
        Fault::HoldingsIgnored,
        Fault::ObjectHoldingsIgnored,
        Fault::LeftUnsynced,
        Fault::VoidPartExecuted,
        Fault::LinkKept,
        Fault::AnswersKept,
        Fault::UnfencedForgotten,
        Fault::LossUntold,
        Fault::KeptTakenForLost,
    ];

    /// Those that many clients that vanish with an MDT must show. (Of the last one, a few clients may go on as if nothing were wrong.)
    pub const OF_CHURN: [Fault; 4] = [
        Fault::CommitReportedEarly,
        Fault::ReplaySkipped,
        Fault::DuplicateExecuted,
        Fault::GoneTakenForLiving,
    ];
}

#[cfg(feature = "planted-faults")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants one fault in the whole process, or none.
#[cfg(feature = "planted-faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.store(fault.map_or(0, |fault| fault as u8), std::sync::atomic::Ordering::Relaxed);
}

/// Whether this mistake is to be made.
#[cfg(feature = "planted-faults")]
pub fn planted(fault: Fault) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == fault as u8
}

/// Whether this mistake is to be made: never, without the feature.
#[cfg(not(feature = "planted-faults"))]
pub const fn planted(_fault: Fault) -> bool {
    false
}
