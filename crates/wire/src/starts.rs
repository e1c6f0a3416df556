//! How starts of targets stand behind what is said at connect.

use crate::session::Starts;
use crate::tail;
use base::WallTime;
use borsh::io::{Read, Result, Write};

const OF_BOTH: tail::Mark = *b"STA1";
const TIME: tail::Mark = *b"BEG1";

pub(crate) fn serialize<W: Write>(starts: &Starts, writer: &mut W) -> Result<()> {
    if *starts == Starts::default() { Ok(()) } else { tail::write(OF_BOTH, starts, writer) }
}

pub(crate) fn deserialize<R: Read>(reader: &mut R) -> Result<Starts> {
    Ok(tail::read(OF_BOTH, reader)?.unwrap_or_default())
}

pub(crate) fn serialize_time<W: Write>(at: &WallTime, writer: &mut W) -> Result<()> {
    if *at == WallTime::default() { Ok(()) } else { tail::write(TIME, at, writer) }
}

pub(crate) fn deserialize_time<R: Read>(reader: &mut R) -> Result<WallTime> {
    Ok(tail::read(TIME, reader)?.unwrap_or_default())
}
