//! A part of many things that few of them ever have.

use std::ops::{Deref, DerefMut};

/// What such a part is before anything is in it.
pub(crate) trait Bare: Default + 'static {
    const BARE: &'static Self;
}

/// Takes the room of a pointer until it is first changed, and reads like an empty one until then. It is not given back after that: who has
/// had one will have it again.
#[derive(Debug)]
pub(crate) struct Seldom<T>(Option<Box<T>>);

impl<T> Seldom<T> {
    pub(crate) const fn none() -> Seldom<T> {
        Seldom(None)
    }

    #[cfg(test)]
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What is there, for a change that means nothing to an empty one.
    pub(crate) fn known_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Seldom<T> {
        Seldom::none()
    }
}

impl<T: Bare> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::BARE)
    }
}

impl<T: Bare> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
