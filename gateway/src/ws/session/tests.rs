//! The session without sockets: what clients may rely on whatever the network does.

mod consuming;
mod resuming;

use proptest::prelude::*;
use tokio::sync::Semaphore;
use weir_protocol::ids::{Name, Offset, PartitionId};
use weir_protocol::limits::{INTEGER_MAX, PARTITIONS_MAX};
use weir_protocol::rpc::{GrantRun, Level, Placed};
use weir_protocol::ws::{Hello, Limit, Open, Pub, Sub};

use super::*;
use crate::auth::{Grant, Op, OpSet, Pattern};
use crate::service::ServiceError;
use crate::service::publish::Confirm;
use crate::service::read::{PartitionOf, Started, SubscriptionEvent};
use crate::service::subscriptions::Leased;
use crate::ws::pool::Sizes;
use crate::ws::publishing::Found;

const CH: Channel = Channel(1);

struct Play {
    session: Session,
    now: Now,
}

impl Play {
    fn as_principal(principal: Principal) -> Self {
        // A window of four messages, of which three are agreed.
        let sizes = Sizes {
            pool_max: 1 << 20,
            promised_max: 1 << 20,
            window_min: 4_000..=4_000,
            window_max: 4_000,
            bytes_per_msg: 1_000,
        };
        let pool = Pool::with_sizes(sizes, (Arc::new(Semaphore::new(0)), 0));
        Self::with_pool(principal, pool)
    }

    fn with_pool(principal: Principal, pool: Arc<Pool>) -> Self {
        let now = Now { instant: Instant::now(), epoch_ms: 7 };
        let config = SessionConfig { record_bytes_max: 1_000, pool };
        let authenticate: Authenticate = Arc::new(|_| Err(AuthError::Rejected));
        let id = ulid::Ulid::nil().to_string();
        Self { session: Session::new(now, id, config, principal, authenticate), now }
    }

    fn welcomed() -> Self {
        let mut play = Self::as_principal(Principal::all(Name::default_name()));
        play.receive(Channel::CONNECTION, ClientFrame::Hello(Hello { v: 1, ..Hello::default() }));
        assert!(matches!(play.sent()[..], [ServerFrame::Welcome(_)]));
        play
    }

    /// With a channel that publishes.
    fn opened() -> (Self, Use) {
        let mut play = Self::welcomed();
        play.receive(CH, ClientFrame::Open(Open { topic: "t".into(), ..Open::default() }));
        let of = match play.session.take_effects().pop() {
            Some(Effect::Open { of, .. }) => of,
            other => panic!("{other:?}"),
        };
        let levels = Level::Quorum.bit();
        let found = Found { incarnation: 1, partitions: 1, levels, ..Found::default() };
        play.session.opened(play.now, of, Ok(found));
        assert!(matches!(play.sent()[..], [ServerFrame::Opened(_)]));
        (play, of)
    }

    fn receive(&mut self, ch: Channel, frame: ClientFrame) {
        self.session.receive(self.now, ch, frame);
    }

    fn publish(&mut self, seq: u64) {
        let data = RawJson::from_text("1");
        self.receive(CH, ClientFrame::Pub(Pub { seq, data, ..Pub::default() }));
    }

    fn after(&mut self, duration: Duration) {
        self.now.instant += duration;
        self.session.tick(self.now, false);
    }

    /// The calls of the turn.
    fn calls(&mut self) -> Vec<u64> {
        self.session.finish_turn(self.now);
        let effects = self.session.take_effects();
        effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Publish { call, .. } => Some(call),
                _ => None,
            })
            .collect()
    }

    fn turn(&mut self) -> Vec<Effect> {
        self.session.finish_turn(self.now);
        self.session.take_effects()
    }

    fn sent(&mut self) -> Vec<ServerFrame> {
        self.session.finish_turn(self.now);
        let effects = self.session.take_effects();
        effects
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Send(_, frame) => Some(frame),
                _ => None,
            })
            .collect()
    }

    fn closing(&mut self) -> Option<Closing> {
        let effects = self.session.take_effects();
        effects.into_iter().find_map(|effect| match effect {
            Effect::Close(closing) => Some(closing),
            _ => None,
        })
    }

    fn confirm(&mut self, ticket: u64, offset: u64) {
        let placed = Placed { base_offset: offset, count: 1, is_final: true, ..Placed::default() };
        self.session.confirmed(
            self.now,
            Confirm {
                ticket,
                level: Level::Quorum,
                result: Ok(placed),
                stages: None,
                round_trip: Duration::ZERO,
                is_last: true,
            },
        );
    }
}

fn one_part() -> Vec<CallPart> {
    vec![CallPart { partition: 0, records: std::iter::once(0..1).collect() }]
}

#[test]
fn hello_is_due_and_silence_ends_a_session() {
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    assert_eq!(play.session.deadline(), play.now.instant + HELLO_TIME_MAX);
    play.after(HELLO_TIME_MAX);
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::HeartbeatTimeout)));

    let mut play = Play::welcomed();
    play.after(HEARTBEAT);
    assert!(matches!(play.sent()[..], [ServerFrame::Ping(_)]));
    play.receive(Channel::CONNECTION, ClientFrame::Pong(Pong { id: 1 }));
    play.after(HEARTBEAT);
    play.after(HEARTBEAT - Duration::from_millis(1));
    assert_eq!(play.closing(), None);
    play.after(Duration::from_millis(1));
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::HeartbeatTimeout)));
}

#[test]
fn nothing_but_hello_comes_first_and_only_once() {
    for frame in [
        ClientFrame::Open(Open { topic: "t".into(), ..Open::default() }),
        ClientFrame::Sub(Sub { topic: Some("t".into()), ..Sub::default() }),
        ClientFrame::Pub(Pub::default()),
        ClientFrame::Limit(Limit::default()),
        ClientFrame::Pong(Pong { id: 0 }),
        ClientFrame::Bye(weir_protocol::ws::Bye::default()),
    ] {
        let mut play = Play::as_principal(Principal::all(Name::default_name()));
        play.receive(CH, frame);
        assert_eq!(play.closing(), Some(Closing::Code(CloseCode::BadFrame)));
    }
    let mut play = Play::welcomed();
    play.receive(Channel::CONNECTION, ClientFrame::Hello(Hello { v: 1, ..Hello::default() }));
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::BadFrame)));
}

#[test]
fn every_open_and_sub_is_authorised() {
    let grants = Grant {
        namespaces: Pattern::any(),
        topics: Pattern::new("mine"),
        subscriptions: Pattern::any(),
        ops: OpSet::of(&[Op::Connect, Op::Publish]),
    };
    let mut play = Play::as_principal(Principal::with_grants(Name::default_name(), vec![grants]));
    play.receive(Channel::CONNECTION, ClientFrame::Hello(Hello { v: 1, ..Hello::default() }));
    play.sent();
    play.receive(Channel(1), ClientFrame::Open(Open { topic: "mine".into(), ..Open::default() }));
    assert!(matches!(play.session.take_effects()[..], [Effect::Open { .. }]));
    play.receive(Channel(2), ClientFrame::Open(Open { topic: "yours".into(), ..Open::default() }));
    play.receive(Channel(3), ClientFrame::Sub(Sub { topic: Some("mine".into()), ..Sub::default() }));
    play.receive(Channel(4), ClientFrame::Sub(Sub { sub: Some("mine".into()), ..Sub::default() }));
    let refused = play.sent();
    assert_eq!(refused.len(), 3);
    for frame in refused {
        let ServerFrame::Err(problem) = frame else { panic!("{frame:?}") };
        assert!(problem.problem.get().contains("\"forbidden\""), "{problem:?}");
    }
}

#[test]
fn a_token_that_does_not_verify_and_a_foreign_resume_token_end_the_session() {
    let hello = |token: Option<&str>, resume: Option<&str>| {
        let token = token.map(|token| weir_protocol::ws::Secret(token.into()));
        let mut play = Play::as_principal(Principal::all(Name::default_name()));
        let hello = Hello { v: 1, token, resume: resume.map(str::to_owned), ..Hello::default() };
        play.receive(Channel::CONNECTION, ClientFrame::Hello(hello));
        play.closing()
    };
    assert_eq!(hello(Some("x"), None), Some(Closing::Code(CloseCode::Unauthorized)));
    assert_eq!(hello(None, Some("rt_x")), Some(Closing::Code(CloseCode::ResumeExpired)));
    assert_eq!(hello(None, Some(&format!("rt_{}", ulid::Ulid::nil()))), None);
}

#[test]
fn a_token_of_somebody_who_may_not_connect_ends_the_session() {
    let silent = Principal::with_grants(Name::default_name(), Vec::new());
    let mut play = Play::as_principal(Principal::all(Name::default_name()));
    play.session.authenticate = Arc::new(move |_| Ok(silent.clone()));
    let token = Some(weir_protocol::ws::Secret("x".into()));
    play.receive(Channel::CONNECTION, ClientFrame::Hello(Hello { v: 1, token, ..Hello::default() }));
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::Unauthorized)));
}

#[test]
fn a_pause_outlives_a_seek() {
    let mut play = Play::welcomed();
    play.receive(CH, ClientFrame::Sub(Sub { topic: Some("t".into()), ..Sub::default() }));
    play.receive(CH, ClientFrame::Pause(weir_protocol::ws::Pause { on: true }));
    play.session.take_effects();
    play.receive(CH, ClientFrame::Seek(weir_protocol::ws::Seek { from: "earliest".parse().unwrap() }));
    let effects = play.session.take_effects();
    assert!(
        matches!(&effects[..], [Effect::Forget { .. }, Effect::Subscribe { of, .. }, Effect::Hold { of: held, on: true }] if of == held),
        "{effects:?}"
    );
}

#[test]
fn a_filter_is_checked_before_anything_is_followed_and_outlives_a_seek() {
    let mut play = Play::welcomed();
    let sub = |filter: &str| Sub { topic: Some("t".into()), filter: Some(filter.into()), ..Sub::default() };
    play.receive(CH, ClientFrame::Sub(sub("key = 'a'")));
    let frames = play.sent();
    let [ServerFrame::Err(refused)] = &frames[..] else { panic!("{frames:?}") };
    assert!(refused.problem.get().contains("\"field\":\"filter\""), "{}", refused.problem.get());
    let filter_of = |effects: &[Effect]| match effects.last() {
        Some(Effect::Subscribe { subscribe, .. }) => subscribe.filter.clone(),
        other => panic!("{other:?}"),
    };
    play.receive(CH, ClientFrame::Sub(sub("key == 'a'")));
    assert_eq!(filter_of(&play.session.take_effects()).as_deref(), Some("key == 'a'"));
    play.receive(CH, ClientFrame::Seek(weir_protocol::ws::Seek { from: "earliest".parse().unwrap() }));
    assert_eq!(filter_of(&play.session.take_effects()).as_deref(), Some("key == 'a'"));
}

#[test]
fn channels_that_ended_do_not_count_for_ever() {
    let mut play = Play::welcomed();
    for ch in 1..=2 * u16::try_from(weir_protocol::limits::WS_CHANNELS_MAX).unwrap() {
        play.receive(Channel(ch), ClientFrame::Sub(Sub { topic: Some("no topic".into()), ..Sub::default() }));
    }
    play.session.take_effects();
    play.receive(CH, ClientFrame::Sub(Sub { topic: Some("t".into()), ..Sub::default() }));
    let effects = play.session.take_effects();
    assert!(matches!(&effects[..], [Effect::Subscribe { .. }]), "{effects:?}");
}

#[test]
fn records_of_one_turn_are_one_call_and_a_refused_one_is_named() {
    let (mut play, _) = Play::opened();
    (0..3).for_each(|seq| play.publish(seq));
    assert_eq!(play.calls(), [0]);
    let refused = ServiceError::new(ErrorCode::TooLarge, "the second");
    let parts = [0, 2].map(|at| CallPart { partition: 0, records: std::iter::once(at..at + 1).collect() });
    play.session.sent(0, parts.into(), &[(1, refused)]);
    play.confirm(0, 10);
    play.confirm(1, 11);
    let frames = play.sent();
    let [ServerFrame::Reject(reject), ServerFrame::Confirm(confirm), ServerFrame::PubLimit(limit)] =
        &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!((reject.seq, reject.n, confirm.upto), (1, 1, Some(2)));
    assert_eq!(limit.msgs, 7, "three are done, four may be under way");
}

#[test]
fn a_number_that_was_not_taken_confirms_nothing() {
    // Sent before its turn: it is to be sent again.
    let (mut play, _) = Play::opened();
    play.publish(0);
    play.publish(2);
    assert_eq!(play.calls(), [0]);
    play.session.sent(0, one_part(), &[]);
    play.confirm(0, 10);
    play.publish(1);
    play.publish(2);
    assert_eq!(play.calls(), [1]);
    let parts = [0, 1].map(|at| CallPart { partition: 0, records: std::iter::once(at..at + 1).collect() });
    play.session.sent(1, parts.into(), &[]);
    play.confirm(1, 11);
    let upto = |frames: &[ServerFrame]| match frames {
        [ServerFrame::Confirm(confirm), ..] => confirm.upto,
        other => panic!("{other:?}"),
    };
    assert_eq!(upto(&play.sent()), Some(1), "2 is under way");
    play.confirm(2, 12);
    assert_eq!(upto(&play.sent()), Some(2));

    // Sent again, which nobody without a producer may: the first one is still under way.
    let (mut play, _) = Play::opened();
    (0..2).for_each(|seq| play.publish(seq));
    assert_eq!(play.calls(), [0]);
    let parts = [0, 1].map(|at| CallPart { partition: 0, records: std::iter::once(at..at + 1).collect() });
    play.session.sent(0, parts.into(), &[]);
    play.publish(1);
    assert!(matches!(&play.sent()[0], ServerFrame::Reject(reject) if reject.seq == 1));
    play.confirm(0, 10);
    assert_eq!(upto(&play.sent()), Some(0));

    // Beyond all numbers: nothing is added to it.
    let (mut play, _) = Play::opened();
    play.publish(u64::MAX);
    assert!(matches!(&play.sent()[0], ServerFrame::Reject(reject) if reject.seq == u64::MAX));
}

#[test]
fn what_is_refused_at_once_gives_its_credit_back_in_the_same_turn() {
    let (mut play, _) = Play::opened();
    (0..3).for_each(|seq| play.publish(seq));
    assert_eq!(play.calls(), [0]);
    assert!(!play.session.has_more());
    play.session.refused(0, &ServiceError::new(ErrorCode::TooLarge, "all of it"));
    assert!(play.session.has_more(), "nothing is under way that would wake the socket");
    let frames = play.sent();
    let [ServerFrame::Reject(reject), ServerFrame::PubLimit(limit)] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!((reject.n, limit.msgs), (3, 7));
    assert!(!play.session.has_more());
}

#[test]
fn a_closed_channel_is_forgotten_when_its_last_publish_is_confirmed() {
    let (mut play, of) = Play::opened();
    play.publish(0);
    play.receive(CH, ClientFrame::ClosePub(weir_protocol::ws::ClosePub {}));
    assert_eq!(play.calls(), [0]);
    play.session.sent(0, one_part(), &[]);
    play.confirm(0, 5);
    play.session.finish_turn(play.now);
    let effects = play.session.take_effects();
    assert!(
        matches!(&effects[..], [Effect::Send(_, ServerFrame::Confirm(_)), Effect::Forget { of: gone }] if *gone == of),
        "{effects:?}"
    );
}

#[test]
fn nothing_is_published_behind_the_end_of_a_channel() {
    let (mut play, _) = Play::opened();
    play.publish(0);
    play.receive(CH, ClientFrame::ClosePub(weir_protocol::ws::ClosePub {}));
    play.publish(1);
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::BadFrame)), "confirmed by then or not");
}

#[test]
fn draining_waits_for_what_is_under_way_and_takes_nothing_new() {
    let (mut play, _) = Play::opened();
    play.publish(0);
    assert_eq!(play.calls(), [0]);
    play.session.sent(0, one_part(), &[]);
    play.session.drain(play.now);
    play.receive(Channel(2), ClientFrame::Open(Open { topic: "t".into(), ..Open::default() }));
    play.receive(Channel(2), ClientFrame::Limit(Limit { msgs: 1, bytes: 1 }));
    let frames = play.sent();
    assert!(matches!(&frames[..], [ServerFrame::Goaway(_), ServerFrame::Err(_)]), "{frames:?}");
    play.confirm(0, 0);
    play.session.finish_turn(play.now);
    assert_eq!(play.closing(), Some(Closing::Code(CloseCode::GoingAway)));
}

#[test]
fn what_comes_late_for_another_use_of_a_channel_changes_nothing() {
    let mut play = Play::welcomed();
    let sub = || {
        ClientFrame::Sub(Sub {
            topic: Some("t".into()),
            limit: Limit { msgs: 9, bytes: 9 },
            ..Sub::default()
        })
    };
    play.receive(CH, sub());
    let Some(Effect::Subscribe { of: old, .. }) = play.session.take_effects().pop() else { panic!() };
    play.receive(CH, ClientFrame::Unsub(weir_protocol::ws::Unsub {}));
    play.receive(CH, sub());
    play.session.take_effects();
    let of = PartitionOf { topic: 0, partition: PartitionId(0) };
    let started = vec![Started { of, from: Offset(0), tail: Offset(0) }];
    play.session.happened(old, 1, SubscriptionEvent::Started(started));
    play.session.ended(old, &ServiceError::new(ErrorCode::Internal, ""));
    assert!(play.session.take_effects().is_empty());
}

#[test]
fn delivery_numbers_go_on_behind_none_that_could_not_be_told() {
    let hello = |n| {
        let mut play = Play::as_principal(Principal::all(Name::default_name()));
        let channel = weir_protocol::ws::ResumeChannel { ch: 1, n: Some(n), ..Default::default() };
        let hello = Hello { v: 1, channels: vec![channel], ..Hello::default() };
        play.receive(Channel::CONNECTION, ClientFrame::Hello(hello));
        play.closing()
    };
    assert_eq!(hello(INTEGER_MAX), None);
    for n in [INTEGER_MAX + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(hello(n), Some(Closing::Code(CloseCode::BadFrame)), "{n}");
    }
}

#[test]
fn of_what_a_client_says_to_resume_only_positions_are_kept_of_partitions_that_there_may_be() {
    let hello = |seen: u32| {
        let mut play = Play::as_principal(Principal::all(Name::default_name()));
        let seen = (0..seen).map(|p| weir_protocol::ws::Seen { p, ..Default::default() }).collect();
        let acked = vec![weir_protocol::ws::NumberRange { first: 1, last: 1 }; 1_000];
        let channel = weir_protocol::ws::ResumeChannel { ch: 1, seen, acked, ..Default::default() };
        let hello = Hello { v: 1, channels: vec![channel], ..Hello::default() };
        play.receive(Channel::CONNECTION, ClientFrame::Hello(hello));
        play
    };
    let play = hello(PARTITIONS_MAX);
    let kept = play.session.resume.kept(CH).unwrap();
    assert_eq!((kept.seen.len(), kept.acked.capacity()), (PARTITIONS_MAX as usize, 0));
    assert_eq!(hello(PARTITIONS_MAX + 1).closing(), Some(Closing::Code(CloseCode::BadFrame)));
}

#[test]
fn what_is_to_be_done_does_not_grow_with_what_is_asked_for() {
    let mut play = Play::welcomed();
    let ping = || ClientFrame::Ping(weir_protocol::ws::ClientPing { id: 1 });
    (1..EFFECTS_MAX).for_each(|_| play.receive(Channel::CONNECTION, ping()));
    assert!(!play.session.has_enough());
    play.receive(Channel::CONNECTION, ping());
    assert!(play.session.has_enough());
    assert_eq!(play.session.take_effects().len(), EFFECTS_MAX);
    assert!(!play.session.has_enough());
}

proptest! {
    #[test]
    fn a_client_within_its_credit_is_never_closed_and_one_beyond_it_always(
        steps in proptest::collection::vec(any::<bool>(), 1..120), cheats in any::<bool>(),
    ) {
        let (mut play, _) = Play::opened();
        let (mut limit, mut seq, mut under_way) = (3, 0, std::collections::VecDeque::new());
        for publishes in steps {
            if publishes && seq < limit {
                play.publish(seq);
                seq += 1;
            } else if let Some(ticket) = under_way.pop_front() {
                play.confirm(ticket, 0);
            }
            for effect in play.turn() {
                match effect {
                    Effect::Publish { call, .. } => {
                        under_way.push_back(play.session.next_ticket());
                        play.session.sent(call, one_part(), &[]);
                    }
                    Effect::Send(_, ServerFrame::PubLimit(raised)) => {
                        prop_assert!(raised.msgs > limit, "absolute limits only rise");
                        limit = raised.msgs;
                    }
                    _ => {}
                }
            }
            prop_assert!(!play.session.is_closed());
            prop_assert!(limit > seq || !under_way.is_empty(), "stuck");
        }
        if cheats {
            (seq..=limit).for_each(|seq| play.publish(seq));
            prop_assert_eq!(play.closing(), Some(Closing::Code(CloseCode::CreditViolation)));
        }
    }
}
