//! Machines of a vCenter that is far away.

use std::time::Instant;

use serde_json::json;

use crate::{controller::*, support::*};

/// How many machines begin together.
const MACHINES: usize = 5;

/// How often it is tried: what would be missed depends on the moment.
const ROUNDS: usize = 5;

/// The tasks are followed from the first machine on, by a filter that is added while a wait for changes is under way. Their ends are
/// told all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ends_of_the_first_tasks_are_told() {
    for round in 0..ROUNDS {
        let Some(vcsim) = simulator(&factory_options()) else { return };
        vcsim.set_rules(&json!([{"methods": ["*"], "delayMillis": 20}])).expect("rules");
        let running = started(&vcsim).await;
        let began = Instant::now();
        let made = (0..MACHINES).map(|number| {
            let (mut controller, vcsim) = (Controller::new(&running).only_told(), &vcsim);
            async move {
                let mut object = Object::new(vcsim, number, &json!({}));
                controller.make(&mut object).await;
                assert!(controller.errors.is_empty(), "{:?}", controller.errors);
            }
        });
        futures::future::join_all(made).await;
        println!("round {round}: all are complete after {:?}", began.elapsed());
        running.stop().await;
    }
}
