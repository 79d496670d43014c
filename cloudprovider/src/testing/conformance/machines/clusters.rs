//! The rule about clusters.

use super::{
    super::run::{Checked, Run, ensure},
    driver::Driver,
};
use crate::machines::{ClusterRequest, Mark, Record};

/// Further steps of a cluster that exists.
const STEPS_MORE: usize = 3;

pub(super) async fn cluster(run: &Run<'_>) -> Checked {
    let driver = Driver::start(run).await?;
    let before = driver.things().await?;
    let mark = Mark { machine: None, ..driver.mark() };
    let uid = mark.uid.clone();
    let mut request = ClusterRequest::new(mark, driver.cases.cluster.clone()).with_object_uid(uid);
    let mut record = Record::default();
    driver.remove_cluster(&request, &mut record).await?;
    driver.has_only(&before, "with a cluster gone that never was").await?;

    let report = driver.finish_cluster(&mut request, &mut record).await?;
    let mut names: Vec<_> = report.failure_domains.iter().map(|domain| &domain.name).collect();
    let told = names.clone();
    names.sort();
    names.dedup();
    ensure(names == told, || format!("the failure domains are not sorted: {told:?}"))?;
    let things = driver.things().await?;
    let mut driver = driver;
    for number in 0..STEPS_MORE {
        if number + 1 == STEPS_MORE {
            driver = driver.restart().await?;
            record = Record::default();
        }
        let again = driver.finish_cluster(&mut request, &mut record).await?;
        ensure(again == report, || format!("a step says {report:?}, and a later one {again:?}"))?;
        driver.has_only(&things, "after a step with nothing to do").await?;
    }
    for _ in 0..2 {
        driver.remove_cluster(&request, &mut record).await?;
        driver.has_only(&before, "with the cluster gone").await?;
    }
    let endpoint = report.control_plane_endpoint.map_or("no endpoint".to_owned(), |one| one.to_string());
    Ok(format!("{endpoint}, {} failure domains", names.len()))
}
