//! What `lfs setstripe` asks for, and what directories keep for their new files.

use base::PoolName;
use borsh::{BorshDeserialize, BorshSerialize};

/// Components in the order of the file. Nothing at all takes the default of the directory, or else of the MDT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutHint {
    pub components: Vec<ComponentHint>,
}

/// What is `None` or empty is left to the MDT.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ComponentHint {
    /// Where it ends; `None` for the end of all files. It begins where the one before it ends.
    pub end_bytes: Option<u64>,
    pub stripe_size_bytes: Option<u32>,
    /// 0xffff (-1) means all OSTs.
    pub stripe_count: Option<u16>,
    pub first_ost: Option<u16>,
    /// The OST of each stripe; says more than the two before it. A replay names them all.
    pub osts: Vec<u16>,
    /// Only OSTs of this pool.
    pub pool: Option<PoolName>,
}

/// A component as it was written before it could name OSTs and a pool.
type Unnamed = (Option<u64>, Option<u32>, Option<u16>, Option<u16>);

impl ComponentHint {
    /// That of a plain layout, and written as all hints were before there were components.
    fn is_plain(&self) -> bool {
        self.end_bytes.is_none()
    }

    fn names_targets(&self) -> bool {
        !self.osts.is_empty() || self.pool.is_some()
    }

    fn of_unnamed((end_bytes, stripe_size_bytes, stripe_count, first_ost): Unnamed) -> ComponentHint {
        ComponentHint { end_bytes, stripe_size_bytes, stripe_count, first_ost, ..ComponentHint::default() }
    }

    fn unnamed(&self) -> Unnamed {
        (self.end_bytes, self.stripe_size_bytes, self.stripe_count, self.first_ost)
    }
}

impl LayoutHint {
    /// These stand where the stripe size of a plain hint says whether there is one.
    const COMPOSITE: u8 = 2;
    /// Some component names OSTs or a pool.
    const NAMING: u8 = 3;

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
        if self.components.iter().any(ComponentHint::names_targets) {
            return (Self::NAMING, &self.components).serialize(writer);
        }
        match self.as_plain() {
            Some(plain) => (plain.stripe_size_bytes, plain.stripe_count, plain.first_ost).serialize(writer),
            None => {
                let components: Vec<Unnamed> = self.components.iter().map(ComponentHint::unnamed).collect();
                (Self::COMPOSITE, components).serialize(writer)
            }
        }
    }
}

impl BorshDeserialize for LayoutHint {
    fn deserialize_reader<R: borsh::io::Read>(reader: &mut R) -> borsh::io::Result<Self> {
        let stripe_size_bytes = match u8::deserialize_reader(reader)? {
            0 => None,
            1 => Some(u32::deserialize_reader(reader)?),
            Self::COMPOSITE => {
                let components = Vec::<Unnamed>::deserialize_reader(reader)?;
                let components = components.into_iter().map(ComponentHint::of_unnamed).collect();
                return Ok(LayoutHint { components });
            }
            Self::NAMING => return Ok(LayoutHint { components: Vec::deserialize_reader(reader)? }),
            _ => return Err(borsh::io::Error::from(borsh::io::ErrorKind::InvalidData)),
        };
        let (stripe_count, first_ost) = <(Option<u16>, Option<u16>)>::deserialize_reader(reader)?;
        let plain = ComponentHint::of_unnamed((None, stripe_size_bytes, stripe_count, first_ost));
        Ok(LayoutHint::plain(plain))
    }
}

#[cfg(test)]
mod tests;
