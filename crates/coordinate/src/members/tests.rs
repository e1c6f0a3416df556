#![allow(clippy::unwrap_used)]
use super::{Members, MembersError, Unanswered};
use crate::KeeperError;

fn parse(text: &str) -> Result<Members, MembersError> {
    text.parse()
}

#[test]
fn members_are_hosts_with_ports() {
    let members = parse("etcd://10.0.0.1:2379,store-2.example:23790,[::1]:2379").unwrap();
    assert_eq!(members.iter().collect::<Vec<_>>(), ["10.0.0.1:2379", "store-2.example:23790", "[::1]:2379"]);
}

#[test]
fn what_names_no_member_is_said() {
    for text in ["10.0.0.1:2379", "http://10.0.0.1:2379", "", "etcd:/a:1"] {
        assert_eq!(parse(text), Err(MembersError::Scheme(text.to_owned())));
    }
    for member in
        ["", "host", "host:", ":2379", "host:0", "host:65536", "host:+1", "a/b:1", "::1:2379", "a b:1"]
    {
        assert_eq!(parse(&format!("etcd://good:1,{member}")), Err(MembersError::Member(member.to_owned())));
    }
    assert_eq!(parse("etcd://a:1,b:1,a:1"), Err(MembersError::Twice("a:1".to_owned())));
    let many = (1..18).map(|port| format!("a:{port}")).collect::<Vec<_>>().join(",");
    assert_eq!(parse(&format!("etcd://{many}")), Err(MembersError::TooMany(17)));
}

#[test]
fn one_member_that_refuses_does_not_speak_for_those_that_are_silent() {
    let members: Members = "etcd://a:1,b:1,c:1".parse().unwrap();
    let said = |said: &[(&'static str, bool, &str)]| {
        let mut unanswered = Unanswered::default();
        for (member, refuses, why) in said {
            match refuses {
                true => unanswered.note_refusal(member, (*why).to_owned()),
                false => unanswered.note_silence(member, (*why).to_owned()),
            }
        }
        unanswered.into_error(&members)
    };
    let all = said(&[("a:1", true, "no space"), ("b:1", true, "no space"), ("c:1", true, "no space")]);
    assert!(matches!(&all, KeeperError::EtcdRefuses { others, .. } if others.is_empty()), "{all}");
    let one = said(&[("a:1", true, "no space"), ("b:1", false, "refused"), ("c:1", false, "no answer")]);
    let text = one.to_string();
    assert!(matches!(one, KeeperError::EtcdRefuses { .. }), "{text}");
    assert!(text.contains("a:1: no space, and others do not answer (c:1: no answer)"), "{text}");
    // It was full, and is dead now.
    let none = said(&[("a:1", true, "no space"), ("b:1", false, "no answer"), ("a:1", false, "reset")]);
    assert!(matches!(&none, KeeperError::EtcdSilent { last, .. } if last == "a:1: reset"), "{none}");
}
