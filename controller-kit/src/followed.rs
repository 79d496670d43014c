//! Single objects of the cluster that a provider follows.

use cloudprovider::{Error, error_chain};
use component::watching::watch;
use futures::{Stream, StreamExt as _, stream, stream::BoxStream};
use kube::{
    Api, Resource,
    runtime::watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use crate::api_errors::api_error;

/// Follows the object of this name: its content as `read` gives it, now and after each change; `None` while there is no such
/// object. `shown` names it in errors. The client of `api` comes from [`client`](component::watching::client).
///
/// A lost watch is started again with backoff. Each outage gives one error, however many tries it takes.
pub fn follow<K, T>(
    api: Api<K>,
    name: &str,
    shown: String,
    read: fn(K) -> T,
) -> BoxStream<'static, cloudprovider::Result<Option<T>>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watch(api, config).boxed();
    let following = Following { name: name.to_owned(), shown, read, events, listed: None, is_failing: false };
    stream::unfold(following, |mut following| async move {
        let version = following.next().await?;
        Some((version, following))
    })
    .boxed()
}

struct Following<K, T, S> {
    name: String,
    shown: String,
    read: fn(K) -> T,
    events: S,
    /// The object, as far as the current list has returned it.
    listed: Option<T>,
    is_failing: bool,
}

impl<K: Resource, T, S> Following<K, T, S>
where
    S: Stream<Item = watcher::Result<Event<K>>> + Unpin,
{
    async fn next(&mut self) -> Option<cloudprovider::Result<Option<T>>> {
        loop {
            let event = match self.events.next().await? {
                Ok(event) => event,
                Err(_) if self.is_failing => continue,
                Err(error) => {
                    self.is_failing = true;
                    return Some(Err(self.explain(&error)));
                }
            };
            match event {
                Event::Init => self.listed = None,
                Event::InitApply(object) => self.listed = self.content(object).or(self.listed.take()),
                Event::InitDone => {
                    self.is_failing = false;
                    return Some(Ok(self.listed.take()));
                }
                Event::Apply(object) => {
                    if let Some(content) = self.content(object) {
                        self.is_failing = false;
                        return Some(Ok(Some(content)));
                    }
                }
                Event::Delete(object) => {
                    if self.content(object).is_some() {
                        return Some(Ok(None));
                    }
                }
            }
        }
    }

    /// The object's content. `None` for another object, which an API server sends that ignores field selectors.
    fn content(&self, object: K) -> Option<T> {
        (object.meta().name.as_deref() == Some(&self.name)).then(|| (self.read)(object))
    }

    fn explain(&self, error: &watcher::Error) -> Error {
        use watcher::Error::{
            InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
        };
        let what = format!("{} cannot be read", self.shown);
        let hint = "the service account needs list and watch on it";
        match error {
            InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
                api_error(&what, hint, error)
            }
            WatchError(status) => api_error(&what, hint, &kube::Error::Api(status.clone())),
            NoResourceVersion => {
                Error::new(cloudprovider::ErrorKind::Unavailable, format!("{what}: {}", error_chain(error)))
            }
        }
    }
}
