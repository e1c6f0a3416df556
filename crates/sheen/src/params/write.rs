//! What may be written to a parameter.

use anyhow::{Context, Result, bail};
use std::ops::RangeInclusive;

/// How a parameter of `T` is written; checked before anything is changed.
pub enum Write<T> {
    /// Any value does the one thing that there is to do: counters start anew.
    Clear(fn(&T)),
    /// 0 or 1.
    Switch(fn(&T, bool)),
    Number(RangeInclusive<u64>, fn(&T, u64)),
    /// The same, which has to fit what another parameter has now.
    Beside {
        range: RangeInclusive<u64>,
        /// Why it does not.
        check: fn(&T, u64) -> Result<()>,
        apply: fn(&T, u64),
    },
    /// 0 or 1, which the management server keeps and tells to all, `-P` or not: who acts on it is another process.
    Kept,
    Word {
        /// What it takes, in words.
        values: &'static str,
        check: fn(&str) -> Result<()>,
        apply: fn(&T, &str) -> Result<()>,
        /// False for a command: it is done once and leaves no value behind.
        is_lasting: bool,
    },
}

impl<T> Write<T> {
    pub fn values(&self) -> String {
        match self {
            Write::Clear(_) => "any value; it clears them".to_owned(),
            Write::Switch(_) => "0 or 1".to_owned(),
            Write::Kept => "0 or 1; it stays, also without `-P`".to_owned(),
            Write::Number(range, _) | Write::Beside { range, .. } => {
                format!("a number from {} to {}", range.start(), range.end())
            }
            Write::Word { values, .. } => (*values).to_owned(),
        }
    }

    pub fn is_lasting(&self) -> bool {
        match self {
            Write::Clear(_) => false,
            Write::Switch(_) | Write::Number(..) | Write::Beside { .. } | Write::Kept => true,
            Write::Word { is_lasting, .. } => *is_lasting,
        }
    }

    /// # Errors
    /// The value is not possible.
    pub fn check(&self, path: &str, value: &str) -> Result<()> {
        let is_possible = match self {
            Write::Clear(_) => true,
            Write::Switch(_) | Write::Kept => parse_switch(value).is_some(),
            Write::Number(range, _) | Write::Beside { range, .. } => {
                value.parse().is_ok_and(|number| range.contains(&number))
            }
            Write::Word { check, .. } => match check(value) {
                Ok(()) => true,
                Err(error) => bail!("'{path}': {error:#}"),
            },
        };
        if !is_possible {
            bail!("'{path}' does not take '{value}'; it takes {}", self.values());
        }
        Ok(())
    }

    /// After `check`, for what somebody sets now. (Permanent ones come one after the other, in an order that nobody has chosen.)
    ///
    /// # Errors
    /// The value does not fit what another parameter has.
    pub fn check_now(&self, of: &T, path: &str, value: &str) -> Result<()> {
        match self {
            Write::Beside { check, .. } => {
                check(of, value.parse()?).with_context(|| format!("'{path}' does not take '{value}' now"))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// The value is not possible, or the system does not let us.
    pub fn apply(&self, of: &T, value: &str) -> Result<()> {
        match self {
            Write::Clear(clear) => clear(of),
            // It is done where the configuration arrives.
            Write::Kept => {}
            Write::Switch(switch) => {
                if let Some(is_on) = parse_switch(value) {
                    switch(of, is_on);
                }
            }
            Write::Number(_, set) | Write::Beside { apply: set, .. } => set(of, value.parse()?),
            Write::Word { apply, .. } => apply(of, value)?,
        }
        Ok(())
    }
}

fn parse_switch(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}
