//! Listings, page by page.

use std::{collections::BTreeSet, time::Duration};

use cloudprovider::{Error, ErrorKind, Result};
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
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

impl Client {
    /// All objects of a collection, from all pages. The server ignores filters that it does not know, so the
    /// caller has to look at each object.
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
        let (mut objects, mut seen) = (Vec::new(), BTreeSet::new());
        for page in 1..=MAX_PAGES {
            let answer: Collection<T> =
                self.get(url.clone()).await.map_err(|error| error.with_operation(operation(page)))?;
            if answer.kind != "collection" {
                return Err(unavailable("the answer is no collection").with_operation(operation(page)));
            }
            objects.extend(answer.data);
            if objects.len() > MAX_OBJECTS {
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
                if let Some(total) = total.filter(|total| (objects.len() as u64) < *total) {
                    let error =
                        unavailable(format!("{} objects came, and the server has {total}", objects.len()));
                    return Err(error.with_operation(operation(page)));
                }
                return Ok(objects);
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
