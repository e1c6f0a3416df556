//! What an inode holds besides its attributes: where the data of a file are, or where a symlink leads.

use base::Layout;

#[derive(Debug, PartialEq)]
pub(crate) enum Body {
    File(Layout),
    /// Never changes.
    Symlink(Vec<u8>),
}

impl Body {
    pub(crate) fn layout(&self) -> Option<&Layout> {
        match self {
            Body::File(layout) => Some(layout),
            Body::Symlink(_) => None,
        }
    }

    pub(crate) fn symlink_target(&self) -> Option<&[u8]> {
        match self {
            Body::Symlink(target) => Some(target),
            Body::File(_) => None,
        }
    }
}
