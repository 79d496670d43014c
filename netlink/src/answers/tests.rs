use futures::stream::{self, BoxStream};
use rtnetlink::{
    packet_core::{DoneMessage, ErrorMessage, NLM_F_MULTIPART, NetlinkHeader},
    packet_route::address::AddressMessage,
};

use super::*;

/// The address with this prefix length.
fn address(length: u8) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.prefix_len = length;
    RouteNetlinkMessage::NewAddress(message)
}

fn message(payload: NetlinkPayload<RouteNetlinkMessage>, flags: u16) -> Message {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_MULTIPART | flags;
    NetlinkMessage::new(header, payload)
}

fn part(length: u8) -> Message {
    message(NetlinkPayload::InnerMessage(address(length)), 0)
}

fn end(code: i32, flags: u16) -> Message {
    let mut done = DoneMessage::default();
    done.code = code;
    message(NetlinkPayload::Done(done), flags)
}

fn answer(code: i32) -> Message {
    let mut answer = ErrorMessage::default();
    answer.code = NonZeroI32::new(code);
    message(NetlinkPayload::Error(answer), 0)
}

/// Makes these listings one after the other, the last one for ever, and returns the outcome and how many were made. Each ends
/// with the connection.
async fn list(listings: Vec<Vec<Message>>) -> (Result<Vec<RouteNetlinkMessage>, Error>, usize) {
    let mut made = 0;
    let outcome = whole_listing(|| {
        let listing = listings[made.min(listings.len() - 1)].clone();
        made += 1;
        Ok(stream::iter(listing))
    })
    .await;
    (outcome, made)
}

#[tokio::test(start_paused = true)]
async fn a_listing_has_the_kernels_own_end() {
    let whole = vec![part(1), part(2), end(0, 0)];
    assert_eq!(list(vec![whole]).await, (Ok(vec![address(1), address(2)]), 1));
    assert_eq!(list(vec![vec![end(0, 0)]]).await, (Ok(vec![]), 1));
    // the connection ended
    for cut_off in [vec![], vec![part(1)], vec![part(1), part(2)]] {
        assert_eq!(list(vec![cut_off]).await, (Err(Error::CutOff), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_in_which_something_changed_is_made_again() {
    let whole = vec![part(1), end(0, 0)];
    let in_the_middle = vec![message(NetlinkPayload::InnerMessage(address(1)), NLM_F_DUMP_INTR), end(0, 0)];
    let at_the_end = vec![part(1), end(0, NLM_F_DUMP_INTR)];
    let lost = vec![part(1), message(NetlinkPayload::Overrun(Vec::new()), 0)];
    let busy = vec![answer(-libc::EBUSY)];
    for interrupted in [in_the_middle, at_the_end, lost, busy] {
        let again = list(vec![interrupted.clone(), interrupted.clone(), whole.clone()]).await;
        assert_eq!(again, (Ok(vec![address(1)]), 3), "{interrupted:?}");
        assert_eq!(list(vec![interrupted]).await, (Err(Error::Unsteady), MAX_LISTINGS));
    }
}

#[tokio::test(start_paused = true)]
async fn a_listing_that_the_kernel_breaks_off_is_refused() {
    let refused = Err(Error::Refused { errno: libc::ENOMEM });
    assert_eq!(list(vec![vec![part(1), end(-libc::ENOMEM, 0)]]).await, (refused.clone(), 1));
    assert_eq!(list(vec![vec![part(1), answer(-libc::ENOMEM)]]).await, (refused, 1));
}

/// These messages, and then silence.
fn silent_after(messages: Vec<Message>) -> BoxStream<'static, Message> {
    stream::iter(messages).chain(stream::pending()).boxed()
}

#[tokio::test(start_paused = true)]
async fn every_answer_has_a_limit() {
    for heard in [vec![], vec![part(1)]] {
        let outcome = whole_listing(|| Ok(silent_after(heard.clone()))).await;
        assert_eq!(outcome, Err(Error::Silent));
    }
    assert_eq!(acknowledged(silent_after(vec![])).await, Err(Error::Silent));
    assert_eq!(single(silent_after(vec![])).await, Err(Error::Silent));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_made_only_when_the_kernel_says_so() {
    assert_eq!(acknowledged(stream::iter([answer(0)])).await, Ok(()));
    assert_eq!(acknowledged(stream::iter([part(1), answer(0)])).await, Ok(()));
    let refused = Error::Refused { errno: libc::EEXIST };
    assert_eq!(acknowledged(stream::iter([answer(-libc::EEXIST)])).await, Err(refused));
    assert_eq!(acknowledged(stream::iter([])).await, Err(Error::CutOff));
    assert_eq!(acknowledged(stream::iter([part(1)])).await, Err(Error::CutOff));
}

#[tokio::test(start_paused = true)]
async fn a_question_has_one_answer() {
    assert_eq!(single(stream::iter([part(7)])).await, Ok(address(7)));
    let refused = Error::Refused { errno: libc::ENETUNREACH };
    assert_eq!(single(stream::iter([answer(-libc::ENETUNREACH)])).await, Err(refused));
    assert_eq!(single(stream::iter([])).await, Err(Error::CutOff));
}
