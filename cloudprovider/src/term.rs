//! Until when a provider may change the cloud, also in tasks of its own.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use crate::{Error, ErrorKind};

tokio::task_local! {
    static TERM: Term;
}

/// The term in which a call is made: the caller may change the cloud until it is over. A call itself is dropped then. A task that it has
/// spawned goes on, so a provider takes the term along for what is not sent yet.
///
/// ```
/// # use cloudprovider::Term;
/// # async fn send() {}
/// # async fn step() -> cloudprovider::Result<()> {
/// let term = Term::current();
/// let sent = tokio::spawn(async move { term.pass(send()).await });
/// # sent.await.expect("no panic")
/// # }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(step())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Term(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Term {
    /// A term that lasts as long as `lasts` says so.
    pub fn new(lasts: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(lasts)))
    }

    /// The term of the call that is made here. Outside of [`scope`](Self::scope) it has no end.
    pub fn current() -> Self {
        TERM.try_with(Clone::clone).unwrap_or_default()
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_some_and(|lasts| !lasts())
    }

    /// Makes a call in this term, which is [`current`](Self::current) for all that it does in its own task.
    pub async fn scope<T>(self, call: impl Future<Output = T>) -> T {
        TERM.scope(self, call).await
    }

    /// Does work while the term lasts. It is looked at each time the work goes on, so what waits is not sent later.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] once it is over. The work was dropped, wherever it was.
    pub async fn pass<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.is_over() {
                let words = "not sent: this process does not lead any more";
                return Poll::Ready(Err(Error::new(ErrorKind::Unavailable, words)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("is_over", &self.is_over()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_waits_in_a_task_of_its_own_is_not_sent_after_the_term() {
        for is_over in [false, true] {
            let (lasts, sent) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
            let place = Arc::new(Notify::new());
            let term = {
                let lasts = Arc::clone(&lasts);
                Term::new(move || lasts.load(Ordering::Relaxed))
            };
            let mut task = None;
            let call = term.scope(async {
                let (term, place, sent) = (Term::current(), Arc::clone(&place), Arc::clone(&sent));
                task = Some(tokio::spawn(async move {
                    let work = async {
                        place.notified().await;
                        sent.fetch_add(1, Ordering::Relaxed);
                    };
                    term.pass(work).await
                }));
            });
            call.await;
            tokio::task::yield_now().await;
            lasts.store(!is_over, Ordering::Relaxed);
            place.notify_one();
            let outcome = task.expect("it was spawned").await.expect("no panic");
            assert_eq!((outcome.is_err(), sent.load(Ordering::Relaxed)), (is_over, usize::from(!is_over)));
        }
    }

    #[tokio::test]
    async fn outside_of_a_call_there_is_no_end() {
        assert!(!Term::current().is_over());
        assert_eq!(Term::current().pass(async { 1 }).await.ok(), Some(1));
    }
}
