//! What `lfs setstripe` asks for, and what directories keep for their new files.

use borsh::{BorshDeserialize, BorshSerialize};

/// Components in the order of the file. Nothing at all takes the default of the directory, or else of the MDT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutHint {
    pub components: Vec<ComponentHint>,
}

/// What is `None` is left to the MDT.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ComponentHint {
    /// Where it ends; `None` for the end of all files. It begins where the one before it ends.
    pub end_bytes: Option<u64>,
    pub stripe_size_bytes: Option<u32>,
    /// 0xffff (-1) means all OSTs.
    pub stripe_count: Option<u16>,
    pub first_ost: Option<u16>,
}

impl ComponentHint {
    /// That of a plain layout, and written as all hints were before there were components.
    fn is_plain(&self) -> bool {
        self.end_bytes.is_none()
    }
}

impl LayoutHint {
    /// Stands where the stripe size of a plain hint says whether there is one.
    const COMPOSITE: u8 = 2;

    /// One component, if it asks for anything.
    pub fn plain(component: ComponentHint) -> LayoutHint {
        let is_empty = component == ComponentHint::default();
        LayoutHint { components: if is_empty { Vec::new() } else { vec![component] } }
    }

    /// The only component, for the whole file; empty when nothing is asked for.
    pub fn as_plain(&self) -> Option<ComponentHint> {
        match &self.components[..] {
            [] => Some(ComponentHint::default()),
            [only] if only.is_plain() => Some(only.clone()),
            _ => None,
        }
    }
}

impl BorshSerialize for LayoutHint {
    fn serialize<W: borsh::io::Write>(&self, writer: &mut W) -> borsh::io::Result<()> {
        match self.as_plain() {
            Some(plain) => (plain.stripe_size_bytes, plain.stripe_count, plain.first_ost).serialize(writer),
            None => (Self::COMPOSITE, &self.components).serialize(writer),
        }
    }
}

impl BorshDeserialize for LayoutHint {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let stripe_size_bytes = match u8::deserialize_reader(reader)? {
            0 => None,
            1 => Some(u32::deserialize_reader(reader)?),
            Self::COMPOSITE => return Ok(LayoutHint { components: Vec::deserialize_reader(reader)? }),
            _ => return Err(borsh::io::Error::from(borsh::io::ErrorKind::InvalidData)),
        };
        let (stripe_count, first_ost) = <(Option<u16>, Option<u16>)>::deserialize_reader(reader)?;
        Ok(LayoutHint::plain(ComponentHint { stripe_size_bytes, stripe_count, first_ost, end_bytes: None }))
    }
}

#[cfg(test)]
mod tests;
