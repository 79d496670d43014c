//! Reads the kernel's answers, up to their end.

use std::{num::NonZeroI32, pin::pin, time::Duration};

use futures::{Stream, StreamExt as _};
use rtnetlink::{
    packet_core::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload},
    packet_route::RouteNetlinkMessage,
};
use tokio::time::{sleep, timeout};

use crate::{Error, TIMEOUT};

/// How long to wait before a listing is made again.
const LISTING_DELAY: Duration = Duration::from_millis(10);

/// How often a listing is made while something changes.
const MAX_LISTINGS: usize = 10;

type Message = NetlinkMessage<RouteNetlinkMessage>;

/// What a listing came to.
#[derive(Debug, PartialEq, Eq)]
enum Listing {
    Whole(Vec<RouteNetlinkMessage>),
    /// Something changed meanwhile, so parts may be missing.
    Interrupted,
}

/// All messages of a listing. `ask` begins one; it is made again while something changes.
pub(crate) async fn whole_listing<S: Stream<Item = Message>>(
    mut ask: impl FnMut() -> Result<S, Error>,
) -> Result<Vec<RouteNetlinkMessage>, Error> {
    for _ in 0..MAX_LISTINGS {
        if let Listing::Whole(messages) = listing(ask()?).await? {
            return Ok(messages);
        }
        sleep(LISTING_DELAY).await;
    }
    Err(Error::Unsteady)
}

async fn listing(answers: impl Stream<Item = Message>) -> Result<Listing, Error> {
    let mut answers = pin!(answers);
    let (mut messages, mut is_interrupted) = (Vec::new(), false);
    loop {
        let answer = next(&mut answers).await?;
        // The last message has the flag too, if something changed after the one before.
        is_interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => messages.push(message),
            NetlinkPayload::Done(end) if end.code < 0 => return Err(Error::Refused { errno: -end.code }),
            NetlinkPayload::Done(_) if is_interrupted => return Ok(Listing::Interrupted),
            NetlinkPayload::Done(_) => return Ok(Listing::Whole(messages)),
            NetlinkPayload::Error(error) => {
                return match errno(error.code.map_or(0, NonZeroI32::get)) {
                    // the listing before was given up, and the kernel is still at it
                    libc::EBUSY => Ok(Listing::Interrupted),
                    errno => Err(Error::Refused { errno }),
                };
            }
            // messages were lost
            NetlinkPayload::Overrun(_) => return Ok(Listing::Interrupted),
            _ => {}
        }
    }
}

/// Waits for the kernel's word that a change was made.
pub(crate) async fn acknowledged(answers: impl Stream<Item = Message>) -> Result<(), Error> {
    let mut answers = pin!(answers);
    loop {
        if let NetlinkPayload::Error(answer) = next(&mut answers).await?.payload {
            return match answer.code {
                None => Ok(()),
                Some(code) => Err(Error::Refused { errno: errno(code.get()) }),
            };
        }
    }
}

/// The answer to a question that has one.
pub(crate) async fn single(answers: impl Stream<Item = Message>) -> Result<RouteNetlinkMessage, Error> {
    let mut answers = pin!(answers);
    loop {
        match next(&mut answers).await?.payload {
            NetlinkPayload::InnerMessage(message) => return Ok(message),
            NetlinkPayload::Error(error) => {
                return Err(Error::Refused { errno: errno(error.code.map_or(0, NonZeroI32::get)) });
            }
            _ => {}
        }
    }
}

/// The kernel sends numbers of errors below zero.
fn errno(code: i32) -> i32 {
    code.saturating_abs()
}

async fn next(answers: &mut (impl Stream<Item = Message> + Unpin)) -> Result<Message, Error> {
    match timeout(TIMEOUT, answers.next()).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(Error::CutOff),
        Err(_) => Err(Error::Silent),
    }
}

#[cfg(test)]
mod tests;
