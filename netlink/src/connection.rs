//! A connection to the kernel.

use std::sync::Arc;

use futures::Stream;
use parking_lot::{Mutex, MutexGuard};
use rtnetlink::{
    Handle,
    packet_core::{
        NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    },
    packet_route::RouteNetlinkMessage,
};
use tokio::{sync::Mutex as AsyncMutex, task::JoinHandle};

use crate::{
    Error,
    answers::{acknowledged, single, whole_listing},
};

/// A connection to the kernel, opened when it is needed, and again after an answer was lost. It reaches the network namespace
/// of the thread that opens it.
#[derive(Debug, Default)]
pub struct Netlink {
    open: Mutex<Option<Arc<Open>>>,
    /// The kernel makes one listing at a time for a socket.
    listing: AsyncMutex<()>,
}

#[derive(Debug)]
struct Open {
    handle: Handle,
    connection: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Open {
    fn new() -> Result<Self, Error> {
        let (mut connection, handle, _) =
            rtnetlink::new_connection().map_err(|error| Error::NotOpened { reason: error.to_string() })?;
        // Without these words an end of the connection looks like success.
        connection.set_forward_done(true);
        connection.set_forward_ack(true);
        Ok(Self { handle, connection: tokio::spawn(connection) })
    }

    fn ask(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<impl Stream<Item = NetlinkMessage<RouteNetlinkMessage>> + use<>, Error> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | flags;
        // it can only fail if the connection has ended
        self.handle.clone().request(request).map_err(|_| Error::CutOff)
    }
}

impl Netlink {
    /// Everything that the kernel lists for this message, such as `GetRoute`.
    ///
    /// # Errors
    /// See [`Error`]. A listing that may not be whole is one.
    pub async fn list(&self, what: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, Error> {
        let _one_at_a_time = self.listing.lock().await;
        let open = self.open()?;
        let answer = whole_listing(|| open.ask(what.clone(), NLM_F_DUMP)).await;
        self.note(&open, answer)
    }

    /// The kernel's answer to a question that has one, such as `GetRoute` with a destination.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, what: RouteNetlinkMessage) -> Result<RouteNetlinkMessage, Error> {
        let open = self.open()?;
        let answer = match open.ask(what, 0) {
            Ok(answers) => single(answers).await,
            Err(error) => Err(error),
        };
        self.note(&open, answer)
    }

    /// Makes something that must not exist.
    ///
    /// # Errors
    /// See [`Error`]. Of all but a refusal, nobody knows whether the change was made.
    pub async fn create(&self, what: RouteNetlinkMessage) -> Result<(), Error> {
        self.change(what, NLM_F_CREATE | NLM_F_EXCL).await
    }

    /// Makes something, or changes it if it exists.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub async fn set(&self, what: RouteNetlinkMessage) -> Result<(), Error> {
        self.change(what, NLM_F_CREATE | NLM_F_REPLACE).await
    }

    /// Deletes something.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub async fn delete(&self, what: RouteNetlinkMessage) -> Result<(), Error> {
        self.change(what, 0).await
    }

    async fn change(&self, what: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        let open = self.open()?;
        let answer = match open.ask(what, NLM_F_ACK | flags) {
            Ok(answers) => acknowledged(answers).await,
            Err(error) => Err(error),
        };
        self.note(&open, answer)
    }

    fn open(&self) -> Result<Arc<Open>, Error> {
        let mut open = self.lock();
        if let Some(open) = open.as_ref().filter(|open| !open.connection.is_finished()) {
            return Ok(Arc::clone(open));
        }
        Ok(Arc::clone(open.insert(Arc::new(Open::new()?))))
    }

    /// Gives up a connection that lost an answer. Requests that wait for theirs keep it until then.
    fn note<T>(&self, used: &Arc<Open>, answer: Result<T, Error>) -> Result<T, Error> {
        if answer.as_ref().is_err_and(Error::is_of_the_connection) {
            let mut open = self.lock();
            if open.as_ref().is_some_and(|open| Arc::ptr_eq(open, used)) {
                *open = None;
            }
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock()
    }
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_route::{address::AddressMessage, link::LinkMessage, route::RouteMessage};

    use super::*;

    #[tokio::test]
    async fn the_kernel_lists_its_interfaces_and_addresses() {
        let netlink = Netlink::default();
        for _ in 0..3 {
            let links = netlink.list(RouteNetlinkMessage::GetLink(LinkMessage::default())).await;
            assert!(links.is_ok_and(|links| !links.is_empty()), "there is a loopback interface");
            let addresses = RouteNetlinkMessage::GetAddress(AddressMessage::default());
            assert!(netlink.list(addresses).await.is_ok());
        }
    }

    #[tokio::test]
    async fn the_kernel_refuses_what_makes_no_sense() {
        let netlink = Netlink::default();
        let route = RouteNetlinkMessage::DelRoute(RouteMessage::default());
        let refused = netlink.delete(route).await.expect_err("no family");
        assert!(refused.errno().is_some(), "{refused:?}");
        // and the connection is as good as before
        assert!(netlink.list(RouteNetlinkMessage::GetLink(LinkMessage::default())).await.is_ok());
    }

    #[tokio::test]
    async fn a_connection_that_ended_is_opened_again() {
        let netlink = Netlink::default();
        let links = || RouteNetlinkMessage::GetLink(LinkMessage::default());
        netlink.list(links()).await.expect("a listing");
        let open = netlink.open().expect("a connection");
        let answers = open.ask(links(), NLM_F_DUMP).expect("a request");
        open.connection.abort();
        assert_eq!(acknowledged(answers).await, Err(Error::CutOff), "the end is no success");
        netlink.list(links()).await.expect("a listing by another connection");
    }
}
