//! Channels that consume a subscription: leases, settles, and who may not.

use super::*;

fn work(limit: Limit) -> ClientFrame {
    ClientFrame::Sub(Sub { sub: Some("work".into()), limit, ..Sub::default() })
}

fn leased(count: u32) -> Leased {
    let runs = vec![GrantRun { offset: 5, fence: 9, count, attempt: 1, expires_in_ms: 1_000 }];
    let (received, partition) = (Instant::now(), PartitionId(0));
    let (part, topic, slices) = (0, None, Vec::new());
    Leased { part, topic, partition, slices, runs, received, count: count.into(), bytes: 10 }
}

/// With a channel that consumes and has two deliveries.
fn consuming() -> (Play, Use) {
    let mut play = Play::welcomed();
    play.receive(CH, work(Limit { msgs: 2, bytes: 100 }));
    let Some(Effect::Consume { of, path, consume }) = play.session.take_effects().pop() else { panic!() };
    assert_eq!((path.subscription.as_str(), consume.limit.records), ("work", 2));
    play.session.consuming(of, Some(7), &[(None, PartitionId(0))], false);
    assert!(matches!(&play.sent()[..], [ServerFrame::Subscribed(it)] if it.inc == 7 && it.recovered));
    play.session.leased(of, leased(2));
    let delivered = play.session.take_effects();
    assert!(matches!(&delivered[..], [Effect::DeliverLeased { n: 1, .. }]), "{delivered:?}");
    (play, of)
}

fn ack(first: u64, last: u64) -> ClientFrame {
    let n = vec![weir_protocol::ws::NumberRange { first, last }];
    ClientFrame::Ack(weir_protocol::ws::Ack { n, ..Default::default() })
}

#[test]
fn acks_of_one_turn_are_one_settle_and_settled_is_told_when_it_is_committed() {
    let (mut play, of) = consuming();
    play.receive(CH, ack(1, 1));
    play.receive(CH, ack(2, 2));
    let effects = play.turn();
    let [Effect::Settle { sent, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((sent.runs.len(), sent.runs[0].count), (1, 2));
    play.session.settled(of, sent.call, Ok(Vec::new()));
    assert!(matches!(&play.sent()[..], [ServerFrame::Settled(settled)] if settled.upto == 2));
}

#[test]
fn only_the_clients_limit_raises_credit() {
    let (mut play, of) = consuming();
    play.receive(CH, ack(1, 2));
    let effects = play.turn();
    assert!(matches!(&effects[..], [Effect::Settle { .. }]), "{effects:?}");
    play.session.settled(of, 0, Ok(Vec::new()));
    assert!(!play.turn().iter().any(|effect| matches!(effect, Effect::Raise { .. })));
    play.receive(CH, ClientFrame::Limit(Limit { msgs: 3, bytes: 100 }));
    let effects = play.session.take_effects();
    assert!(matches!(&effects[..], [Effect::Raise { limit, .. }] if limit.records == 3), "{effects:?}");
    // More than that is a defect of the gateway, and ends the channel.
    play.session.leased(of, leased(2));
    assert!(matches!(&play.sent()[..], [ServerFrame::Err(_)]));
}

#[test]
fn who_unsubscribes_or_leaves_is_settled_first_and_then_gone() {
    let (mut play, of) = consuming();
    play.receive(CH, ack(1, 1));
    play.receive(CH, ClientFrame::Unsub(weir_protocol::ws::Unsub {}));
    let effects = play.turn();
    let [Effect::Settle { sent, .. }] = &effects[..] else { panic!("{effects:?}") };
    play.session.leased(of, leased(1));
    assert!(play.turn().is_empty(), "nothing more is delivered");
    play.session.settled(of, sent.call, Ok(Vec::new()));
    let effects = play.turn();
    assert!(
        matches!(&effects[..], [Effect::Send(_, ServerFrame::Settled(_)), Effect::Leave { of: gone }] if *gone == of),
        "{effects:?}"
    );
    let (mut play, _) = consuming();
    play.receive(CH, ack(1, 1));
    play.receive(Channel::CONNECTION, ClientFrame::Bye(weir_protocol::ws::Bye::default()));
    let effects = play.session.take_effects();
    assert!(matches!(&effects[..], [Effect::Settle { .. }, Effect::Close(Closing::Normal)]), "{effects:?}");
}

#[test]
fn a_session_that_is_continued_takes_its_leases_over() {
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    let (old, channels) = (ulid::Ulid::nil().to_string(), vec![]);
    let resume = Some(format!("rt_{old}"));
    let channel = weir_protocol::ws::ResumeChannel { ch: 1, n: Some(40), ..Default::default() };
    let channels = [channels, vec![channel]].concat();
    let client = Some("tab".to_owned());
    let hello = Hello { v: 1, resume, channels, client, ..Hello::default() };
    play.receive(Channel::CONNECTION, ClientFrame::Hello(hello));
    play.sent();
    play.receive(CH, work(Limit { msgs: 9, bytes: 99 }));
    let Some(Effect::Consume { of, consume, .. }) = play.session.take_effects().pop() else { panic!() };
    assert_eq!(consume.takes_over, Some(format!("tab ({old}/1/")));
    assert!(consume.holder.starts_with("tab (") && consume.grace_ms.is_none(), "{consume:?}");
    play.session.leased(of, leased(1));
    let effects = play.session.take_effects();
    assert!(matches!(&effects[..], [Effect::DeliverLeased { n: 41, .. }]), "{effects:?}");
    // Another channel of it is a new one.
    play.receive(Channel(2), work(Limit { msgs: 9, bytes: 99 }));
    let Some(Effect::Consume { consume, .. }) = play.session.take_effects().pop() else { panic!() };
    assert_eq!(consume.takes_over, None);
}

#[test]
fn what_makes_no_sense_is_refused_or_closes() {
    let (mut play, _) = consuming();
    play.receive(CH, ack(1, 3));
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::BadFrame)), "never delivered");
    let (mut play, _) = consuming();
    play.receive(Channel(9), ack(1, 1));
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::BadFrame)), "no channel");
    let (mut play, _) = consuming();
    let extend = |ms| {
        let n = vec![weir_protocol::ws::NumberRange { first: 1, last: 1 }];
        ClientFrame::Extend(weir_protocol::ws::Extend { n, ms, ..Default::default() })
    };
    play.receive(CH, extend(999));
    play.receive(CH, ClientFrame::Seek(weir_protocol::ws::Seek { from: "earliest".parse().unwrap() }));
    for sub in [
        Sub { sub: Some("work".into()), topic: Some("t".into()), ..Sub::default() },
        Sub { sub: Some("work".into()), p: Some(1), ..Sub::default() },
        Sub { sub: Some("work".into()), from: Some("earliest".parse().unwrap()), ..Sub::default() },
        Sub { sub: Some("work".into()), lease_ms: Some(1), ..Sub::default() },
        Sub { sub: Some("work".into()), filter: Some("key == 'a'".into()), ..Sub::default() },
        Sub { sub: Some("no name".into()), ..Sub::default() },
        Sub { topic: Some("t".into()), holder: Some("me".into()), ..Sub::default() },
    ] {
        play.receive(Channel(2), ClientFrame::Sub(sub));
    }
    let frames = play.sent();
    assert_eq!(frames.len(), 9);
    assert!(frames.iter().all(|frame| matches!(frame, ServerFrame::Err(_))), "{frames:?}");
    play.receive(CH, extend(1_000));
    assert!(matches!(&play.turn()[..], [Effect::Settle { .. }]));
}

#[test]
fn draining_delivers_nothing_more_and_waits_for_what_workers_hold() {
    let (mut play, of) = consuming();
    play.session.drain(play.now);
    let effects = play.turn();
    assert!(
        matches!(&effects[..], [Effect::Send(_, ServerFrame::Goaway(_)), Effect::Hold { on: true, .. }]),
        "{effects:?}"
    );
    play.receive(CH, ack(1, 2));
    let effects = play.turn();
    let [Effect::Settle { sent, .. }] = &effects[..] else { panic!("{effects:?}") };
    play.session.settled(of, sent.call, Ok(Vec::new()));
    let effects = play.turn();
    let [Effect::Send(_, ServerFrame::Settled(_)), Effect::Close(closing)] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(*closing, Closing::Code(CloseCode::GoingAway));
}

#[test]
fn a_settle_that_failed_ends_the_channel() {
    let (mut play, of) = consuming();
    play.receive(CH, ack(1, 1));
    play.turn();
    play.session.settled(of, 0, Err(ServiceError::new(ErrorCode::Unavailable, "no leader")));
    let effects = play.turn();
    assert!(matches!(&effects[..], [Effect::Send(_, ServerFrame::Err(_)), Effect::Forget { .. }]));
}

#[test]
fn a_gateway_that_goes_away_leases_nothing_more_whatever_its_clients_want() {
    let (mut play, of) = consuming();
    play.session.drain(play.now);
    let held = play.session.take_effects();
    let holds = |effects: &[Effect]| {
        effects.iter().any(|effect| matches!(effect, Effect::Hold { of: held, on: true } if *held == of))
    };
    assert!(holds(&held), "{held:?}");
    play.receive(CH, ClientFrame::Pause(weir_protocol::ws::Pause { on: false }));
    let effects = play.session.take_effects();
    assert!(holds(&effects) || effects.is_empty(), "{effects:?}");
}
