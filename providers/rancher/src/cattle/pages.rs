//! Listings, page by page.

use std::collections::BTreeSet;

use cloudprovider::Result;
use serde::de::DeserializeOwned;

use super::{client::Client, model::Collection, reply::unavailable};

/// More pages are no listing but a circle.
const MAX_PAGES: usize = 10_000;

impl Client {
    /// All objects of a collection, from all pages. The server ignores filters that it does not know, so the
    /// caller has to look at each object.
    ///
    /// # Errors
    /// If any page cannot be read. A part of a listing is never returned.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        collection: &str,
        filters: &[(&str, &str)],
    ) -> Result<Vec<T>> {
        let mut url = self.url(collection);
        url.query_pairs_mut().append_pair("limit", &self.page_size.to_string()).extend_pairs(filters);
        let operation = |page: usize| format!("list {collection} (page {page})");
        let (mut objects, mut seen) = (Vec::new(), BTreeSet::new());
        for page in 1..=MAX_PAGES {
            let answer: Collection<T> =
                self.get(url.clone()).await.map_err(|error| error.with_operation(operation(page)))?;
            if answer.kind != "collection" {
                return Err(unavailable("the answer is no collection").with_operation(operation(page)));
            }
            objects.extend(answer.data);
            let pagination = answer.pagination.unwrap_or_default();
            let Some(next) = pagination.next.filter(|next| !next.is_empty()) else {
                // The last page of several is partial too, but only the first one can be recognised.
                if page == 1 && pagination.partial == Some(true) {
                    let error = unavailable("the page is partial, and the server names no next one");
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
