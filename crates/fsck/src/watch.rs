//! How far a check is, for somebody who watches it.

/// Is told again and again how far a check is.
pub type Watch<'a> = &'a mut dyn FnMut(Doing);

/// How often it is told, in items.
const INTERVAL: u64 = 4096;

/// How far one step of a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doing {
    pub step: &'static str,
    /// What its items are.
    pub unit: &'static str,
    pub items: u64,
    /// Of the whole step, where that is known.
    pub item_count: Option<u64>,
    pub bytes: u64,
    pub byte_count: Option<u64>,
}

/// Counts the items of one step.
pub(crate) struct Ticker<'a> {
    watch: Watch<'a>,
    doing: Doing,
}

impl<'a> Ticker<'a> {
    pub fn begin(watch: Watch<'a>, doing: Doing) -> Ticker<'a> {
        watch(doing);
        Ticker { watch, doing }
    }

    /// The next step.
    pub fn step(&mut self, doing: Doing) {
        self.doing = doing;
        (self.watch)(doing);
    }

    pub fn item(&mut self) {
        self.doing.items += 1;
        if self.doing.items.is_multiple_of(INTERVAL) {
            (self.watch)(self.doing);
        }
    }

    /// An item that took its time.
    pub fn item_of(&mut self, bytes: u64) {
        self.doing.items += 1;
        self.doing.bytes += bytes;
        (self.watch)(self.doing);
    }

    pub fn bytes(&self) -> u64 {
        self.doing.bytes
    }
}

impl Doing {
    pub(crate) fn of(step: &'static str, unit: &'static str, item_count: Option<usize>) -> Doing {
        Doing { step, unit, item_count: item_count.map(|count| count as u64), ..Doing::default() }
    }
}
