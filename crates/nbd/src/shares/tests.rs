use std::net::{IpAddr, Ipv4Addr};

use testkit::Rng;

use super::*;

fn address(number: u64) -> Peer {
    Peer::at(IpAddr::V4(Ipv4Addr::from_bits(0xc000_0200 + number as u32)))
}

/// A rule of sharing: may this peer have so much more?
type Rule = fn(&Held, Peer, usize) -> bool;

/// Lets strangers take whatever the rule grants them, and give it back at random; they are greedy
/// at times. Returns the promise that was broken.
fn break_promises(rule: Rule, random: &mut Rng) -> Result<(), &'static str> {
    let total = [16, 32, 256, 1000][random.below(4) as usize];
    let mut held = Held::new(total);
    let (users, addresses) = (1 + random.below(4), 1 + random.below(300));
    for _ in 0..2000 {
        let peer = match random.one_in(2) {
            true => Peer::User(1000 + random.below(users) as u32),
            false => address(random.below(addresses)),
        };
        if random.one_in(4) {
            let amount = random.below(held.of(peer) as u64 + 1) as usize;
            held.remove(peer, amount);
            continue;
        }
        let amount = 1 + random.below(total as u64 / 4) as usize;
        while rule(&held, peer, amount) {
            held.add(peer, amount);
        }
        let remote = held.sum(|peer| peer.rank() == 2);
        let strangers = held.sum(|peer| peer.rank() > 0);
        if held.of(peer) > total / 2 {
            return Err("a stranger has more than half");
        }
        if strangers + total / 32 > total || !rule(&held, Peer::Own, total - strangers) {
            return Err("there is nothing for the server's own user");
        }
        if remote + total / 16 > total {
            return Err("there is nothing for the users of this machine");
        }
    }
    // One after another takes all it can; the next ones find something.
    let mut held = Held::new(256);
    for number in 0..6 {
        if !rule(&held, address(number), 1) {
            return Err("a newcomer finds nothing");
        }
        while rule(&held, address(number), 1) {
            held.add(address(number), 1);
        }
    }
    if !rule(&held, Peer::User(1000), 1) {
        return Err("a user finds nothing beside the network");
    }
    Ok(())
}

/// Returns the promise that the rule breaks with any of some seeds.
fn found_in(rule: Rule) -> Result<(), &'static str> {
    let mut random = Rng::new(testkit::seed("shares"));
    (0..50).try_for_each(|_| break_promises(rule, &mut random))
}

#[test]
fn nobody_takes_the_shares_of_others() {
    found_in(Held::grants).unwrap();
}

#[test]
fn rules_without_a_share_are_found_out() {
    let first_come: Rule = |held, _, amount| held.sum(|_| true) + amount <= held.total;
    let by_peer: Rule = |held, peer, amount| {
        held.sum(|_| true) + amount <= held.total
            && (peer == Peer::Own || held.of(peer) + amount <= held.total / 2)
    };
    let no_halves: Rule = |held, peer, amount| {
        (0..=peer.rank()).all(|rank| held.sum(|it| it.rank() >= rank) + amount <= held.limit(rank))
    };
    for rule in [first_come, by_peer, no_halves] {
        assert!(found_in(rule).is_err());
    }
}

#[test]
fn what_is_dropped_is_there_again() {
    let all = Allowance::new(100);
    let user = all.of(Peer::User(1000));
    let mut share = user.try_take(20).unwrap();
    share.add(user.try_take(10).unwrap());
    assert_eq!(share.amount(), 30);
    assert!(user.try_take(30).is_none());
    assert!(all.try_take(71).is_none());
    let rest = all.try_take(70).unwrap();
    assert!(all.try_take(1).is_none() && user.try_take(1).is_none());
    drop((share, rest));
    assert_eq!(all.pool.held().by, []);
    assert!(all.try_take(usize::MAX).is_none() && user.try_take(usize::MAX).is_none());
    assert!(all.try_take(100).is_some());
    // Nothing to share: all of it is refused, and nothing panics.
    assert!(Allowance::new(0).of(address(1)).try_take(1).is_none());
}
