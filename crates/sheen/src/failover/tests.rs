use super::{LEASE, lease_end};
use base::Time;
use coordinate::Silence;

#[test]
fn who_must_not_outlive_its_leases_writes_until_they_end() {
    let confirmed = Time(5_000_000_000);
    assert_eq!(lease_end(Silence::HoldsBack, confirmed), Some(confirmed.after(LEASE)));
    assert_eq!(lease_end(Silence::ServesOn, confirmed), None, "a dead management server ends nobody");
    assert_eq!(lease_end(Silence::HoldsBack, Time::default()), None, "nothing was owned yet");
}
