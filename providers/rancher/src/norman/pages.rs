//! Listings, page by page.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Result};
use reqwest::Url;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

use super::{client::Client, reply::unavailable};

/// More pages are no listing but a circle.
const MAX_PAGES: usize = 10_000;

/// More objects are no project or cluster of Rancher, and would fill the memory.
const MAX_OBJECTS: usize = 100_000;

/// The time for all pages of a listing.
const LISTING_TIMEOUT: Duration = Duration::from_secs(120);

/// A page of a listing.
#[derive(Debug, Deserialize)]
pub(crate) struct Collection<T> {
    /// Always `collection`.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The objects. It must be there: an answer without it says nothing.
    pub(crate) data: Vec<T>,
    /// Where the listing goes on.
    #[serde(default)]
    pub(crate) pagination: Option<Pagination>,
}

/// The place of a page in its listing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pagination {
    /// The URL of the next page.
    pub(crate) next: Option<String>,
    /// Whether this page is not the whole listing.
    pub(crate) partial: Option<bool>,
    /// How many objects the whole listing has, if the server says it. Usually it does not.
    pub(crate) total: Option<Value>,
}

/// An object of a page, and its ID if it has one.
struct Entry<T> {
    id: Option<String>,
    object: T,
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Entry<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { id, object: serde_json::from_value(value).map_err(D::Error::custom)? })
    }
}

/// The objects of the pages so far, each once. If the first object of a page is deleted before the page is
/// read, the server begins anew, without a word.
struct Objects<T> {
    all: Vec<T>,
    ids: HashSet<String>,
}

impl<T> Objects<T> {
    fn new() -> Self {
        Self { all: Vec::new(), ids: HashSet::new() }
    }

    fn add(&mut self, page: Vec<Entry<T>>) {
        for Entry { id, object } in page {
            if id.is_none_or(|id| self.ids.insert(id)) {
                self.all.push(object);
            }
        }
    }
}

impl Client {
    /// All objects of a collection, from all pages, each once. The server ignores filters that it does not
    /// know, so the caller has to look at each object.
    ///
    /// # Errors
    /// If any page cannot be read. A part of a listing is never returned.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        collection: &str,
        filters: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        let mut url = self.url(collection);
        url.query_pairs_mut().extend_pairs(filters);
        self.list_at(url, &format!("list {collection}")).await
    }

    /// All objects of the collection at this URL, from all pages. `operation` is for messages.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(crate) async fn list_at<T: DeserializeOwned>(&self, url: Url, operation: &str) -> Result<Vec<T>> {
        let listing = self.list_pages(url, operation);
        tokio::time::timeout(LISTING_TIMEOUT, listing).await.unwrap_or_else(|_| {
            let error =
                Error::new(ErrorKind::Timeout, format!("not all pages were read within {LISTING_TIMEOUT:?}"));
            Err(error.with_operation(operation.to_owned()))
        })
    }

    async fn list_pages<T: DeserializeOwned>(&self, mut url: Url, operation: &str) -> Result<Vec<T>> {
        url.query_pairs_mut().append_pair("limit", &self.page_size.to_string());
        let operation = |page: usize| format!("{operation} (page {page})");
        let (mut objects, mut seen) = (Objects::new(), BTreeSet::new());
        for page in 1..=MAX_PAGES {
            let answer: Collection<Entry<T>> =
                self.get(url.clone()).await.map_err(|error| error.with_operation(operation(page)))?;
            if answer.kind != "collection" {
                return Err(unavailable("the answer is no collection").with_operation(operation(page)));
            }
            objects.add(answer.data);
            if objects.all.len() > MAX_OBJECTS {
                let error = unavailable(format!("there are more than {MAX_OBJECTS} objects"));
                return Err(error.with_operation(operation(page)));
            }
            if page > 1 && answer.pagination.is_none() {
                let error = unavailable("the page does not say whether it is the last one");
                return Err(error.with_operation(operation(page)));
            }
            let pagination = answer.pagination.unwrap_or_default();
            let Some(next) = pagination.next.filter(|next| !next.is_empty()) else {
                // The last page of several is partial too, but only the first one can be recognised.
                if page == 1 && pagination.partial == Some(true) {
                    let error = unavailable("the page is partial, and the server names no next one");
                    return Err(error.with_operation(operation(page)));
                }
                let total = pagination.total.as_ref().and_then(Value::as_u64);
                if let Some(total) = total.filter(|total| (objects.all.len() as u64) < *total) {
                    let came = objects.all.len();
                    let error = unavailable(format!("{came} objects came, and the server has {total}"));
                    return Err(error.with_operation(operation(page)));
                }
                return Ok(objects.all);
            };
            seen.insert(url.to_string());
            url = self.same_server(&next).map_err(|error| error.with_operation(operation(page)))?;
            if seen.contains(url.as_str()) {
                return Err(unavailable("the pages form a circle").with_operation(operation(page)));
            }
        }
        Err(unavailable("there are too many pages").with_operation(operation(MAX_PAGES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_comes_twice_counts_once() {
        let mut objects: Objects<Value> = Objects::new();
        for page in [
            r#"{"type": "collection", "data": [{"id": "c-1", "name": "a"}, {"id": "c-2", "name": "b"}, {"name": "c"}]}"#,
            r#"{"type": "collection", "data": [{"id": "c-1", "name": "a"}, {"id": "c-3", "name": "a"}, {"name": "c"}]}"#,
        ] {
            let page: Collection<Entry<Value>> = serde_json::from_str(page).expect("a page");
            objects.add(page.data);
        }
        let names: Vec<_> =
            objects.all.iter().map(|object| object["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["a", "b", "c", "a", "c"], "only what has an ID can be known");
    }
}
