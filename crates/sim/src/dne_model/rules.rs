//! The rules, each of which can be left out.

/// What keeps operations over several MDTs whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A part in a stream is released when its coordinator's record is durable.
    PartsLeaveDurable,
    /// So is a decision sent.
    DecisionsLeaveDurable,
    /// A prepare is answered when its row is durable.
    PreparesAnswerDurable,
    /// A participant says that it has executed a decision when that is durable; until then the coordinator keeps the row.
    DecisionsAnswerDurable,
    /// The same for what was released of a stream.
    ReleasesAnswerDurable,
    /// An item is executed only behind the one that it names as the one before.
    NoGaps,
    /// What a stream was executed up to is written in the transaction that executes it.
    PositionWithParts,
    /// A release executes only what the incarnation that releases has sent.
    VoidIsNotExecuted,
    /// What is held for an MDT that was restarted stays held until that has recovered.
    HeldUntilRecovered,
    /// What it has not sent again by then is forgotten.
    VoidIsForgotten,
    /// It is told that after everything that was sent again, however many messages that takes.
    ForgetLast,
    /// Participants give back what they hold for a client that is gone.
    Witness,
    /// Clients are given up after that.
    WitnessBeforeEnd,
    /// Who finds no directory asks its coordinator, and waits while it is on its way.
    AbsenceIsAsked,
    /// Who finds what was prepared waits.
    FrozenIsAwaited,
    /// What was prepared is frozen again after a restart.
    PreparesAreLoaded,
    /// What a replay prepares again takes the place of what was prepared before in one transaction.
    ReplacedAtOnce,
    /// While it recovers, what it had not decided is not void.
    UndecidedInRecovery,
    /// Nor is what is just being prepared.
    UnderWayIsNotVoid,
    /// What was decided is not prepared again by a copy.
    DecidedIsRemembered,
    /// What is shown to others was heard by its caller, or is durable.
    HeardFirst,
    /// Replays that touch the same keep their order.
    ReplaysInOrder,
    /// A replay takes away what it had taken away, or nothing.
    MetIsNamed,
    /// The answer is a row of the transaction that executes the request.
    SlotWithRequest,
    /// A client keeps a request until it is durable.
    KeptUntilDurable,
    /// The log is given back when the checkpoint is durable.
    LogKeptUntilCheckpoint,
    /// Rows of what is under way elsewhere are in checkpoints too.
    CheckpointsHaveAllRows,
}

impl Rule {
    pub const ALL: [Rule; 27] = [
        Rule::PartsLeaveDurable,
        Rule::DecisionsLeaveDurable,
        Rule::PreparesAnswerDurable,
        Rule::DecisionsAnswerDurable,
        Rule::ReleasesAnswerDurable,
        Rule::NoGaps,
        Rule::PositionWithParts,
        Rule::VoidIsNotExecuted,
        Rule::HeldUntilRecovered,
        Rule::VoidIsForgotten,
        Rule::ForgetLast,
        Rule::Witness,
        Rule::WitnessBeforeEnd,
        Rule::AbsenceIsAsked,
        Rule::FrozenIsAwaited,
        Rule::PreparesAreLoaded,
        Rule::ReplacedAtOnce,
        Rule::UndecidedInRecovery,
        Rule::UnderWayIsNotVoid,
        Rule::DecidedIsRemembered,
        Rule::HeardFirst,
        Rule::ReplaysInOrder,
        Rule::MetIsNamed,
        Rule::SlotWithRequest,
        Rule::KeptUntilDurable,
        Rule::LogKeptUntilCheckpoint,
        Rule::CheckpointsHaveAllRows,
    ];

    pub fn named(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| format!("{rule:?}").eq_ignore_ascii_case(name))
    }
}

/// The rules that are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    left_out: Option<Rule>,
    /// Without a witness nothing is promised of what participants hold.
    pub has_witness: bool,
}

impl Rules {
    pub fn all() -> Rules {
        Rules { left_out: None, has_witness: true }
    }

    pub fn without(rule: Rule) -> Rules {
        Rules { left_out: Some(rule), ..Rules::all() }
    }

    pub fn without_witness() -> Rules {
        Rules { has_witness: false, ..Rules::all() }
    }

    pub fn has(&self, rule: Rule) -> bool {
        self.left_out != Some(rule)
    }
}
