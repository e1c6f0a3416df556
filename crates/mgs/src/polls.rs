//! Who waits for a newer configuration: each process of each file system, all the time. Each wait ends in a moment of its own, and what
//! one of them does costs no look at the others.

use base::{ClientId, Time};
use std::collections::{BTreeMap, BTreeSet};
use target::Token;

#[derive(Debug)]
pub(crate) struct Poll {
    pub token: Token,
    pub fsname: String,
    pub known_version: u64,
    /// It is answered by then, changed or not.
    pub until: Time,
}

/// By when each ends, and in the order in which they came.
type Place = (Time, u64);

#[derive(Debug, Default)]
pub(crate) struct Polls {
    by_end: BTreeMap<Place, Poll>,
    by_client: BTreeSet<(ClientId, Place)>,
    last_number: u64,
    #[cfg(test)]
    pub looked_at_count: std::cell::Cell<usize>,
}

impl Polls {
    pub fn push(&mut self, poll: Poll) {
        self.last_number += 1;
        let place = (poll.until, self.last_number);
        self.by_client.insert((poll.token.client, place));
        self.by_end.insert(place, poll);
    }

    /// Nobody hears the answers of this client any more.
    pub fn forget(&mut self, client: ClientId) {
        let (first, last) = ((Time::ZERO, 0), (Time(u64::MAX), u64::MAX));
        let its = self.by_client.extract_if((client, first)..=(client, last), |_| true);
        for (_, place) in its {
            self.by_end.remove(&place);
        }
    }

    /// Those that have waited for long enough.
    pub fn take_due(&mut self, now: Time) -> Vec<Poll> {
        self.take(..=(now, u64::MAX), |_| true)
    }

    /// All that are meant, of whomever.
    pub fn take_those(&mut self, is_meant: impl Fn(&Poll) -> bool) -> Vec<Poll> {
        self.take(.., is_meant)
    }

    fn take(
        &mut self,
        places: impl std::ops::RangeBounds<Place>,
        is_meant: impl Fn(&Poll) -> bool,
    ) -> Vec<Poll> {
        #[cfg(test)]
        let looked_at_count = &self.looked_at_count;
        let taken = self.by_end.extract_if(places, |_, poll| {
            #[cfg(test)]
            looked_at_count.set(looked_at_count.get() + 1);
            is_meant(poll)
        });
        let taken: Vec<(Place, Poll)> = taken.collect();
        for (place, poll) in &taken {
            self.by_client.remove(&(poll.token.client, *place));
        }
        taken.into_iter().map(|(_, poll)| poll).collect()
    }

    pub fn next_deadline(&self) -> Option<Time> {
        self.by_end.first_key_value().map(|((until, _), _)| *until)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Poll> {
        self.by_end.values()
    }

    pub fn check(&self) {
        let by_client = self.by_end.iter().map(|(place, poll)| (poll.token.client, *place));
        assert_eq!(by_client.collect::<BTreeSet<_>>(), self.by_client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Xid;

    const COUNT: u64 = 3000;

    fn poll(index: u64) -> Poll {
        let token = Token {
            client: ClientId(u128::from(index)),
            session: 1,
            xid: Xid(1),
            slot: wire::Frame::NO_SLOT,
            trace: 0,
            replay: None,
            is_unawaited: false,
        };
        Poll { token, fsname: "a".into(), known_version: 1, until: Time(index) }
    }

    #[test]
    fn each_of_thousands_is_looked_at_when_it_ends_and_not_before() {
        let mut polls = Polls::default();
        (0..COUNT).for_each(|index| polls.push(poll(index)));
        for index in 0..COUNT / 2 {
            assert_eq!(polls.next_deadline(), Some(Time(index)));
            let due = polls.take_due(Time(index));
            assert_eq!(due.iter().map(|poll| poll.token.client.0).collect::<Vec<_>>(), [u128::from(index)]);
        }
        polls.check();
        (COUNT / 2..COUNT).for_each(|index| polls.forget(ClientId(u128::from(index))));
        assert_eq!(polls.iter().count(), 0);
        assert!(polls.looked_at_count.get() <= COUNT as usize);
        polls.check();
    }

    #[test]
    fn those_that_are_meant_are_answered_in_the_order_in_which_they_came() {
        let mut polls = Polls::default();
        (0..6).for_each(|index| polls.push(Poll { until: Time(9), ..poll(index) }));
        let odd = polls.take_those(|poll| poll.token.client.0 % 2 == 1);
        assert_eq!(odd.iter().map(|poll| poll.token.client.0).collect::<Vec<_>>(), [1, 3, 5]);
        assert_eq!(polls.take_due(Time(8)).len(), 0);
        assert_eq!(polls.take_due(Time(9)).len(), 3);
        polls.check();
    }
}
