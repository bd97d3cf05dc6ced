//! A client that speaks frames in either form, and skips credit.

use std::time::Duration;

use tokio::time::timeout;
use weir_protocol::start::Start;
use weir_protocol::ws::{
    Channel, ClientFrame, CloseCode, Confirm, Hello, Limit, Open, Opened, Producer, ServerFrame, Sub,
};

use super::frames::{FrameSocket, SOON};

/// A client of either form.
pub(crate) struct Client(pub(crate) FrameSocket);

impl Client {
    pub(crate) async fn connect(address: &str, subprotocol: &'static str) -> Self {
        Self(FrameSocket::connect(address, subprotocol).await)
    }

    pub(crate) async fn welcomed(address: &str, subprotocol: &'static str) -> Self {
        let mut client = Self::connect(address, subprotocol).await;
        client.send(0, ClientFrame::Hello(Hello { v: 1, ..Hello::default() })).await;
        let (_, frame) = client.next().await;
        assert!(matches!(frame, ServerFrame::Welcome(_)), "{frame:?}");
        client
    }

    pub(crate) async fn send(&mut self, ch: u16, frame: ClientFrame) {
        self.0.send(ch, frame).await;
    }

    /// The next frame that is not credit: that comes whenever the gateway has some.
    pub(crate) async fn try_next(&mut self) -> Result<(Channel, ServerFrame), CloseCode> {
        loop {
            let next = self.0.try_next().await;
            if !matches!(next, Ok((_, ServerFrame::PubLimit(_)))) {
                return next;
            }
        }
    }

    pub(crate) async fn next(&mut self) -> (Channel, ServerFrame) {
        self.try_next().await.unwrap()
    }

    /// What comes until so many frames `count`, however long that takes, and from then on until nothing does
    /// for a second.
    pub(crate) async fn until_quiet(
        &mut self,
        count: usize,
        counts: impl Fn(&ServerFrame) -> bool,
    ) -> Vec<(Channel, ServerFrame)> {
        let (mut frames, mut counted) = (Vec::new(), 0);
        while let Ok(next) =
            timeout(if counted < count { SOON } else { Duration::from_secs(1) }, self.next()).await
        {
            counted += usize::from(counts(&next.1));
            frames.push(next);
            assert!(frames.len() < 50, "it goes round: {frames:?}");
        }
        frames
    }

    pub(crate) async fn closed(&mut self) -> (Vec<ServerFrame>, CloseCode) {
        let mut before = Vec::new();
        loop {
            match self.try_next().await {
                Ok((_, frame)) => before.push(frame),
                Err(code) => return (before, code),
            }
        }
    }

    pub(crate) async fn open(&mut self, ch: u16, topic: &str, producer: Option<&str>) -> Opened {
        let producer = producer.map(|id| Producer { id: id.into(), epoch: 0 });
        self.send(ch, ClientFrame::Open(Open { topic: topic.into(), producer, ..Open::default() })).await;
        match self.next().await {
            (Channel(number), ServerFrame::Opened(opened)) if number == ch => opened,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn sub(&mut self, ch: u16, topic: &str, from: &str, limit: Limit) {
        let from: Start = from.parse().unwrap();
        let sub = Sub { topic: Some(topic.into()), from: Some(from), limit, ..Sub::default() };
        self.send(ch, ClientFrame::Sub(sub)).await;
    }

    /// Confirms up to `seq`, all their frames.
    pub(crate) async fn confirmed(&mut self, seq: u64) -> Vec<Confirm> {
        let mut confirms = Vec::new();
        loop {
            match self.next().await {
                (_, ServerFrame::Confirm(confirm)) => confirms.push(confirm),
                other => panic!("{other:?}"),
            }
            if confirms.last().is_some_and(|confirm| confirm.upto == Some(seq)) {
                return confirms;
            }
        }
    }

    /// Offsets of the next `count` deliveries; their delivery numbers are checked to be consecutive from `n` on.
    pub(crate) async fn deliveries(&mut self, mut n: u64, count: usize) -> Vec<u64> {
        let mut offsets = Vec::new();
        while offsets.len() < count {
            match self.next().await.1 {
                ServerFrame::Msg(msg) => {
                    assert_eq!(msg.n, n);
                    offsets.push(msg.o);
                    n += 1;
                }
                ServerFrame::Msgs(msgs) => {
                    for msg in msgs.msgs {
                        assert_eq!(msg.n, n);
                        offsets.push(msg.o);
                        n += 1;
                    }
                }
                ServerFrame::Deliveries(frame) => {
                    assert_eq!(frame.n, n);
                    n += frame.count();
                    for slice in &frame.slices {
                        offsets.extend(slice.records().unwrap().map(|record| record.unwrap().offset.0));
                    }
                }
                ServerFrame::CaughtUp(_) => {}
                other => panic!("{other:?}"),
            }
        }
        offsets
    }
}
