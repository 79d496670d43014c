//! Keeps the tags of a vCenter's objects up to date. vCenter does not push them.

use std::time::Duration;

use tokio::time::sleep;

use super::pauses::{BACKOFF, CREDENTIALS_PAUSE, jittered};
use crate::{inventory::Changes, tags::TagClient, vcenter::VCenter, vim::CallError};

/// Reads tags now, whenever something moves, and periodically. Never returns.
pub(super) async fn read_tags(vcenter: &VCenter, client: &TagClient) -> CallError {
    let Some(refresh) = vcenter.tag_refresh() else { return std::future::pending().await };
    let mut failures = 0u32;
    loop {
        match client.attached(&vcenter.taggable()).await {
            Ok(tags) => {
                failures = 0;
                let (mut is_news, mut had_trouble) = (false, false);
                vcenter.update(|state| {
                    had_trouble = state.tag_trouble.is_some();
                    is_news = !state.has_tags || state.tags != tags;
                    state.tags = tags;
                    state.has_tags = true;
                    state.tag_trouble = None;
                    Changes::default()
                });
                if had_trouble {
                    tracing::info!(vcenter = vcenter.name(), "reading tags again");
                }
                if is_news {
                    vcenter.push_all();
                }
                tokio::select! {
                    () = sleep(refresh) => {}
                    // treat several moves in a short time as one
                    () = vcenter.retag.notified() => sleep(Duration::from_millis(200)).await,
                }
            }
            Err(error) => {
                let is_refused = error.is_refused();
                if note_tag_trouble(vcenter, &error) {
                    tracing::warn!(vcenter = vcenter.name(), %error, "cannot read tags");
                }
                failures = failures.saturating_add(1);
                let pause = if is_refused { CREDENTIALS_PAUSE } else { jittered(BACKOFF.nominal(failures)) };
                sleep(pause).await;
            }
        }
    }
}

/// Keeps the error, and returns whether it differs from the previous one.
fn note_tag_trouble(vcenter: &VCenter, error: &CallError) -> bool {
    let mut is_news = false;
    vcenter.update(|state| {
        is_news = state.tag_trouble.as_ref() != Some(error);
        state.tag_trouble = Some(error.clone());
        Changes::default()
    });
    is_news
}

#[cfg(test)]
mod tests {
    use super::{super::tests::rig, *};

    #[test]
    fn trouble_with_tags_is_news_once() {
        let rig = rig(&[]);
        let refused = CallError::Refused { user: "ccm".into() };
        assert!(note_tag_trouble(&rig.vcenter, &refused) && !note_tag_trouble(&rig.vcenter, &refused));
        let other = CallError::Status { method: "get tag", status: 503 };
        assert!(note_tag_trouble(&rig.vcenter, &other) && note_tag_trouble(&rig.vcenter, &refused));
    }
}
