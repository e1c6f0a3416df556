//! What time it is at a target, behind the answer to a ping: who does not know that skips it.

use crate::{Reply, tail};
use base::WallTime;
use bytes::Bytes;

const NOW: tail::Mark = *b"NOW1";

/// `Reply::Done` of one that says the time.
pub fn done_at(wall: WallTime) -> Bytes {
    let mut body = Reply::Done.to_bytes().to_vec();
    // Writing to memory cannot fail.
    let result = tail::write(NOW, &wall, &mut body);
    assert!(result.is_ok(), "a body is written to memory");
    body.into()
}

/// What such an answer says; `None` from who does not say it.
pub fn told_in(body: &[u8]) -> Option<WallTime> {
    let mut rest = body.get(Reply::Done.to_bytes().len()..)?;
    tail::read(NOW, &mut rest).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_with_the_time_is_one_without_for_who_does_not_know_of_it() {
        let body = done_at(WallTime(-5));
        assert_eq!(Reply::from_bytes(&body).ok(), Some(Reply::Done));
        assert_eq!(told_in(&body), Some(WallTime(-5)));
        assert_eq!(told_in(&Reply::Done.to_bytes()), None);
        assert_eq!(told_in(&[]), None);
        assert!((0..body.len()).all(|end| told_in(&body[..end]).is_none()));
    }
}
