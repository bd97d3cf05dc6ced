//! Channels that go on where they stood on an earlier connection.

use weir_protocol::ids::Term;
use weir_protocol::ws::{ResumeChannel, Seen, Subscribed};

use super::*;
use crate::service::read::Subscribe;

/// A connection whose client had seen the first four messages on the channel.
fn resumed() -> Play {
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    let seen = vec![Seen { p: 0, o: 3, ..Seen::default() }];
    let channel = ResumeChannel { ch: CH.0, inc: Some(1), n: Some(41), seen, ..ResumeChannel::default() };
    play.receive(Channel::CONNECTION, hello(channel));
    assert!(matches!(play.sent()[..], [ServerFrame::Welcome(_)]));
    play
}

fn hello(channel: ResumeChannel) -> ClientFrame {
    ClientFrame::Hello(Hello { v: 1, channels: vec![channel], ..Hello::default() })
}

/// What is asked of storage when a topic is followed.
fn followed(play: &mut Play, topic: &str) -> (Use, Subscribe) {
    let limit = Limit { msgs: 9, bytes: 9_000 };
    play.receive(CH, ClientFrame::Sub(Sub { topic: Some(topic.into()), limit, ..Sub::default() }));
    match play.session.take_effects().pop() {
        Some(Effect::Subscribe { of, subscribe }) => (of, subscribe),
        other => panic!("{other:?}"),
    }
}

/// Where it goes on.
fn nexts(subscribe: &Subscribe) -> Vec<u64> {
    subscribe.seen.iter().flat_map(|seen| &seen.partitions).map(|seen| seen.next.0).collect()
}

/// What the client is told when it begins.
fn started(play: &mut Play, of: Use, from: u64) -> Subscribed {
    let partition = PartitionOf { topic: 0, partition: PartitionId(0) };
    let started = vec![Started { of: partition, from: Offset(from), tail: Offset(9) }];
    play.session.happened(of, 1, SubscriptionEvent::Started(started));
    match play.session.take_effects().pop() {
        Some(Effect::Send(_, ServerFrame::Subscribed(subscribed))) => subscribed,
        other => panic!("{other:?}"),
    }
}

fn refuse(play: &mut Play, of: Use, code: ErrorCode) {
    play.session.ended(of, &ServiceError::new(code, "not now"));
    play.session.take_effects();
}

#[test]
fn a_channel_goes_on_where_it_stood_though_it_was_refused_at_first() {
    let mut play = resumed();
    for code in [ErrorCode::Unavailable, ErrorCode::Busy] {
        let (of, subscribe) = followed(&mut play, "t");
        assert_eq!(nexts(&subscribe), [4]);
        refuse(&mut play, of, code);
    }
    let (of, subscribe) = followed(&mut play, "t");
    assert_eq!(nexts(&subscribe), [4]);
    assert!(started(&mut play, of, 4).recovered);
    // What it is used for afterwards begins anew.
    play.receive(CH, ClientFrame::Unsub(weir_protocol::ws::Unsub {}));
    let (of, subscribe) = followed(&mut play, "t");
    assert_eq!(nexts(&subscribe), [0u64; 0]);
    assert!(started(&mut play, of, 9).recovered);
}

#[test]
fn who_cannot_go_on_where_it_stood_is_told_that_something_may_be_missing() {
    for code in [ErrorCode::TopicNotFound, ErrorCode::BeyondTail, ErrorCode::OffsetTrimmed] {
        let mut play = resumed();
        let (of, _) = followed(&mut play, "t");
        refuse(&mut play, of, code);
        let (of, subscribe) = followed(&mut play, "t");
        assert_eq!(nexts(&subscribe), [0u64; 0], "{code:?}: it would be refused for ever");
        assert!(!started(&mut play, of, 9).recovered, "{code:?}");
    }
}

#[test]
fn a_place_is_one_of_what_was_followed_there() {
    let mut play = resumed();
    let (of, _) = followed(&mut play, "t");
    refuse(&mut play, of, ErrorCode::Unavailable);
    let (of, subscribe) = followed(&mut play, "another");
    assert_eq!(nexts(&subscribe), [0u64; 0]);
    assert!(started(&mut play, of, 9).recovered);
    // Nor is it of what its client has moved to.
    let mut play = resumed();
    let (_, subscribe) = followed(&mut play, "t");
    assert_eq!(nexts(&subscribe), [4]);
    let from = "latest".parse().unwrap();
    play.receive(CH, ClientFrame::Seek(weir_protocol::ws::Seek { from }));
    let moved = play.session.take_effects().into_iter().find_map(|effect| match effect {
        Effect::Subscribe { of, .. } => Some(of),
        _ => None,
    });
    refuse(&mut play, moved.unwrap(), ErrorCode::Unavailable);
    assert_eq!(nexts(&followed(&mut play, "t").1), [0u64; 0]);
}

#[test]
fn a_place_is_worth_nothing_without_the_life_that_it_belongs_to() {
    let seen = vec![Seen { p: 0, o: 3, ..Seen::default() }];
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    play.receive(Channel::CONNECTION, hello(ResumeChannel { ch: CH.0, seen, ..ResumeChannel::default() }));
    play.sent();
    let (of, subscribe) = followed(&mut play, "t");
    assert_eq!(subscribe.seen, None);
    assert!(!started(&mut play, of, 4).recovered);
}

#[test]
fn a_place_that_makes_no_sense_is_given_up() {
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    let seen = vec![Seen { p: 0, o: 3, term: Some(Term(1).0), firm: None }];
    let inc = Some(1);
    play.receive(
        Channel::CONNECTION,
        hello(ResumeChannel { ch: CH.0, inc, seen, ..ResumeChannel::default() }),
    );
    play.sent();
    let limit = Limit { msgs: 9, bytes: 9_000 };
    play.receive(CH, ClientFrame::Sub(Sub { topic: Some("t".into()), limit, ..Sub::default() }));
    assert!(matches!(play.sent()[..], [ServerFrame::Err(_)]));
    let (of, _) = followed(&mut play, "t");
    assert!(!started(&mut play, of, 9).recovered, "nobody knows where it stood");
}
