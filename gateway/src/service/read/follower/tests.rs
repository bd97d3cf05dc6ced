use std::time::Duration;

use futures_util::FutureExt;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{At, Credit};

use crate::service::read::played::{PLENTY, Played, told};
use crate::service::read::{ReadConfig, StartAt};

#[tokio::test(start_paused = true)]
async fn what_is_missing_after_a_lost_link_is_told_whenever_the_link_is_lost_and_others_come() {
    let mut node = Played::new(ReadConfig::default());
    let mut reader = node.follow(&["t"], StartAt::Offset(Offset(100)), PLENTY).await;
    let call = node.call(&mut [&mut reader]).await;
    call.at_end(100);
    assert_eq!(told(&mut reader).await, "from 100");
    assert_eq!(told(&mut reader).await, "end 100");

    // Retention advances meanwhile, and the gap is not there before the link is lost again.
    call.lose();
    let call = node.call(&mut [&mut reader]).await;
    call.started(150);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(reader.next().now_or_never().is_none());
    call.lose();
    let call = node.call(&mut [&mut reader]).await;
    assert_eq!(call.from(), At::Offset(100));

    // Nor before another reader comes, with whom it shares once it knows where the end is.
    call.started(150);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(reader.next().now_or_never().is_none());
    let _other = node.follow(&["t"], StartAt::Latest, PLENTY).await;
    reader.raise_limit(Credit { bytes: 2 << 40, ..PLENTY });
    assert!(reader.next().now_or_never().is_none());
    call.gap(100, 150);
    call.caught_up(150);
    assert_eq!(told(&mut reader).await, "gap 100..150");
    assert_eq!(told(&mut reader).await, "end 150");
    assert!(reader.next().now_or_never().is_none());
    assert_eq!(node.reader.feed_metrics().readers, 1);
    let feed = node.call(&mut [&mut reader]).await;
    assert_eq!(feed.from(), At::Offset(150));
    feed.at_end(150);
    feed.record(150, 10);
    assert_eq!(told(&mut reader).await, "150..151");
    assert!(reader.next().now_or_never().is_none(), "it was there before");
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_once_and_again_only_to_who_was_really_behind() {
    let mut node = Played::new(ReadConfig::default());
    let mut reader = node.follow(&["t"], StartAt::Offset(Offset(0)), PLENTY).await;
    let call = node.call(&mut [&mut reader]).await;
    call.at_end(0);
    assert_eq!([told(&mut reader).await, told(&mut reader).await], ["from 0", "end 0"]);
    for offset in 0..3 {
        call.record(offset, 10);
        assert_eq!(told(&mut reader).await, format!("{offset}..{}", offset + 1));
        assert!(reader.next().now_or_never().is_none(), "{offset}");
    }
    for offset in 3..2_000 {
        call.records_before_the_end(offset, 10);
        assert_eq!(told(&mut reader).await, format!("{offset}..{}", offset + 1));
    }
    call.caught_up(2_000);
    assert_eq!(told(&mut reader).await, "end 2000");
    call.caught_up(2_005);
    assert_eq!(told(&mut reader).await, "end 2005", "what was passed over is told");
    call.closed(2_005);
    assert_eq!(told(&mut reader).await, "closed 2005");
    call.caught_up(2_005);
    assert_eq!(told(&mut reader).await, "end 2005", "it is open again");
}

#[tokio::test(start_paused = true)]
async fn the_node_is_granted_a_window_and_told_how_much_credit_is_behind_it() {
    let mut node = Played::new(ReadConfig::default());
    let limit = |bytes| Credit { records: u64::MAX, bytes };
    let mut reader = node.follow(&["t"], StartAt::Offset(Offset(0)), limit(5 << 20)).await;
    let call = node.call(&mut [&mut reader]).await;
    assert_eq!((call.allowed_bytes(), call.request.reach_bytes), (1 << 20, Some(5 << 20)));
    call.started(0);
    assert_eq!(told(&mut reader).await, "from 0");
    reader.raise_limit(limit(9 << 20));
    call.record(0, 600 << 10);
    assert_eq!(told(&mut reader).await, "0..1");
    assert_eq!(told(&mut reader).await, "end 1");
    assert!(reader.next().now_or_never().is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let allowed = call.allowed_bytes();
    assert!(((3 << 19)..(2 << 20)).contains(&allowed), "{allowed}: another window");
    assert_eq!(call.reply.credit().latest().reach_bytes, Some(9 << 20));

    // A stream counts from where it begins.
    call.lose();
    let call = node.call(&mut [&mut reader]).await;
    let reach = call.request.reach_bytes.unwrap();
    assert!(
        ((8 << 20)..(9 << 20) - (600 << 10)).contains(&reach),
        "{reach} of 9 MiB, of which a record came"
    );
}
