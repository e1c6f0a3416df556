//! What the device under a model does when it fails.

use crate::StoreError;

/// Errors of the model's device are EIO.
const EIO: i32 = 5;

/// Whether syncs of the device fail. The first that does poisons the store: nobody knows what the device has since.
#[derive(Default)]
pub(super) struct Device {
    pub is_failing: bool,
    is_poisoned: bool,
}

impl Device {
    /// A sync, which writes something or nothing.
    ///
    /// # Errors
    /// `Poisoned` if it fails, or one before it has.
    pub fn sync(&mut self, has_unsynced: bool) -> Result<(), StoreError> {
        self.is_poisoned |= self.is_failing && has_unsynced;
        self.check_sound()
    }

    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// # Errors
    /// `Poisoned` if a sync has failed.
    pub fn check_sound(&self) -> Result<(), StoreError> {
        match self.is_poisoned {
            true => Err(StoreError::Poisoned { operation: "sync", errno: EIO }),
            false => Ok(()),
        }
    }

    /// Another process opens it, after a crash.
    pub fn reopen(&mut self) {
        self.is_poisoned = false;
    }
}
