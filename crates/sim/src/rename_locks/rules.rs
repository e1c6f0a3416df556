//! The rules, each of which can be left out.

/// What keeps renames from waiting for each other, and from making rings of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Who gives a directory another parent has the rename lock while he walks up from it.
    RenameLock,
    /// He asks for it while he holds nothing else.
    LockBeforeClaims,
    /// He keeps it until the move is applied.
    HeldUntilApplied,
    /// A prepare that does not get its claims gives way.
    PreparesGiveWay,
    /// Who gave way gives his claims back before he starts anew.
    BackOffReleases,
    /// And the rename lock.
    BackOffUnlocks,
    /// Who walks over what is prepared waits for the decision.
    WalkAwaitsFrozen,
    /// Nothing else is prepared or changed where something is prepared, also when a restart has taken the claims.
    PreparedIsFrozen,
    /// A prepare looks whether what it changes is there.
    PreparesCheck,
    /// A late copy of the request for a rename lock that was given back does not take it again.
    UnlockedIsRemembered,
    /// A rename lock that nobody waits for when it is granted goes back.
    UnwantedGoesBack,
    /// Who gives up waiting for the rename lock has his request answered.
    UnlockAnswersWaiter,
    /// Who had the rename lock of a former incarnation or session starts anew.
    LostLockStartsAnew,
    /// A restarted MDT0000 gives nobody the rename lock before it has heard from all MDTs.
    HeardBeforeGranting,
    /// The rename lock of an MDT that was restarted is free.
    RestartFreesLock,
    /// Who may have been given up by MDT0000 for his silence commits nothing that relies on its lock.
    SilentHolderStops,
    /// A rename of a client that is gone gives everything back.
    GoneGivesBack,
    /// A participant asks what has become of what it has prepared.
    UndecidedIsAsked,
    /// What is just being prepared is not void.
    UnderWayIsNotVoid,
    /// A decision is kept until all participants have executed it.
    DecisionsAreKept,
    /// What was prepared survives a restart.
    PreparesAreKept,
    /// Claims wait for locks of other clients.
    LocksAreCalledBack,
    /// Nobody is granted a lock on what is claimed or waited for.
    NoGrantBesideClaims,
    /// A client gives back a lock while a call of its own waits.
    CancelsWhileWaiting,
    /// The locks of a client that is gone end.
    GoneHolderIsEvicted,
}

impl Rule {
    pub const ALL: [Rule; 25] = [
        Rule::RenameLock,
        Rule::LockBeforeClaims,
        Rule::HeldUntilApplied,
        Rule::PreparesGiveWay,
        Rule::BackOffReleases,
        Rule::BackOffUnlocks,
        Rule::WalkAwaitsFrozen,
        Rule::PreparedIsFrozen,
        Rule::PreparesCheck,
        Rule::UnlockedIsRemembered,
        Rule::UnwantedGoesBack,
        Rule::UnlockAnswersWaiter,
        Rule::LostLockStartsAnew,
        Rule::HeardBeforeGranting,
        Rule::RestartFreesLock,
        Rule::SilentHolderStops,
        Rule::GoneGivesBack,
        Rule::UndecidedIsAsked,
        Rule::UnderWayIsNotVoid,
        Rule::DecisionsAreKept,
        Rule::PreparesAreKept,
        Rule::LocksAreCalledBack,
        Rule::NoGrantBesideClaims,
        Rule::CancelsWhileWaiting,
        Rule::GoneHolderIsEvicted,
    ];

    pub fn named(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| format!("{rule:?}").eq_ignore_ascii_case(name))
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    left_out: Option<Rule>,
}

impl Rules {
    pub fn all() -> Rules {
        Rules { left_out: None }
    }

    pub fn without(rule: Rule) -> Rules {
        Rules { left_out: Some(rule) }
    }

    pub fn has(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}
