//! Byte strings that are kept by the million and stay as long as they are: short ones lie where they are kept.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// So many lie in place: with them, their number and what tells them from others three words are full.
const HERE_MAX: usize = 22;

#[derive(Clone)]
pub(crate) struct SmallBytes(Form);

#[derive(Clone)]
enum Form {
    Here { byte_count: u8, bytes: [u8; HERE_MAX] },
    Apart(Box<[u8]>),
}

const _: () = assert!(size_of::<SmallBytes>() <= 24);

impl From<&[u8]> for SmallBytes {
    fn from(all: &[u8]) -> SmallBytes {
        let mut bytes = [0; HERE_MAX];
        match bytes.get_mut(..all.len()) {
            Some(here) => {
                here.copy_from_slice(all);
                SmallBytes(Form::Here { byte_count: all.len() as u8, bytes })
            }
            None => SmallBytes(Form::Apart(Box::from(all))),
        }
    }
}

impl Deref for SmallBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Form::Here { byte_count, bytes } => bytes.get(..usize::from(*byte_count)).unwrap_or_default(),
            Form::Apart(bytes) => bytes,
        }
    }
}

impl DerefMut for SmallBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Form::Here { byte_count, bytes } => bytes.get_mut(..usize::from(*byte_count)).unwrap_or_default(),
            Form::Apart(bytes) => bytes,
        }
    }
}

impl Default for SmallBytes {
    fn default() -> SmallBytes {
        SmallBytes::from(&[][..])
    }
}

impl PartialEq for SmallBytes {
    fn eq(&self, other: &SmallBytes) -> bool {
        **self == **other
    }
}

impl Eq for SmallBytes {}

impl fmt::Debug for SmallBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl SmallBytes {
    /// Those that lie apart.
    #[cfg(test)]
    pub(crate) fn apart_byte_count(&self) -> usize {
        match &self.0 {
            Form::Here { .. } => 0,
            Form::Apart(bytes) => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_number_come_out_as_they_went_in() {
        assert_eq!(SmallBytes::default().len(), 0);
        for count in 0..300 {
            let all: Vec<u8> = (0..count).map(|number| number as u8 ^ 0x5a).collect();
            let mut kept = SmallBytes::from(&all[..]);
            assert_eq!(*kept, all[..]);
            kept.iter_mut().for_each(|byte| *byte ^= 1);
            assert!(kept.iter().zip(&all).all(|(kept, byte)| *kept == *byte ^ 1) && kept.len() == all.len());
            kept.iter_mut().for_each(|byte| *byte ^= 1);
            assert_eq!(kept.clone(), kept);
            assert_eq!(kept == SmallBytes::default(), count == 0);
            assert_eq!(kept.apart_byte_count(), if count <= HERE_MAX { 0 } else { count });
        }
    }
}
