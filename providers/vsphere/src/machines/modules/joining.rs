//! Puts machines into a module, all who wait in one call.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use crate::{cluster_modules::ClusterModules, moref::MoRef, vim::CallError};

/// A vCenter and the ID of a module.
type Key = (String, String);

/// The machines that wait to be put into modules.
#[derive(Debug, Default)]
pub(crate) struct Joining(Mutex<HashMap<Key, Arc<Queue>>>);

/// Those of one module.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<BTreeSet<MoRef>>,
    /// Those that the call of another one has put into it, and that have not seen it yet.
    joined: AsyncMutex<BTreeSet<MoRef>>,
}

/// What became of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// It is in the module.
    In,
    /// There is no such module.
    NoModule,
    /// vCenter does not put it into the module.
    Refused,
}

impl Joining {
    /// Puts a machine into a module, together with all others that wait at that moment and are still there.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn join(
        &self,
        calls: ClusterModules<'_>,
        (vcenter, module): (&str, &str),
        machine: &MoRef,
        is_there: impl Fn(&MoRef) -> bool,
    ) -> Result<Joined, CallError> {
        let queue = {
            let mut all = self.0.lock();
            Arc::clone(all.entry((vcenter.to_owned(), module.to_owned())).or_default())
        };
        queue.waiting.lock().insert(machine.clone());
        let mut joined = queue.joined.lock().await;
        joined.retain(&is_there);
        if joined.remove(machine) {
            return Ok(Joined::In);
        }
        let mut all = std::mem::take(&mut *queue.waiting.lock());
        all.retain(|one| one != machine && is_there(one));
        let all: Vec<_> = all.into_iter().chain([machine.clone()]).collect();
        // If not all can be put into it, nothing says whom that is about.
        for machines in [&all[..], std::slice::from_ref(machine)] {
            match calls.add(module, machines).await? {
                None => return Ok(Joined::NoModule),
                Some(true) => joined.extend(machines.iter().cloned()),
                Some(false) => match calls.members(module).await? {
                    None => return Ok(Joined::NoModule),
                    Some(members) => {
                        joined.extend(machines.iter().filter(|one| members.contains(one)).cloned());
                    }
                },
            }
            if joined.remove(machine) {
                return Ok(Joined::In);
            }
        }
        Ok(Joined::Refused)
    }

    /// The module is gone.
    pub(crate) fn forget(&self, vcenter: &str, module: &str) {
        let mut all = self.0.lock();
        all.remove(&(vcenter.to_owned(), module.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;
    use crate::{
        rest::{Dialect, RestSession},
        testing::rest::{RestServer, credentials},
    };

    const ADD: &str = "POST /api/vcenter/cluster/modules/vm/m-1/members?action=add";

    fn machine(number: usize) -> MoRef {
        MoRef::new("VirtualMachine", &format!("vm-{number}"))
    }

    async fn server(added: impl Fn(usize) -> (u16, bool) + Send + 'static) -> (RestServer, RestSession) {
        let server = RestServer::start(move |asked, before| match asked {
            "POST /api/session" => (201, "\"s\"".to_owned()),
            ADD => {
                let (status, success) = added(before);
                (status, format!("{{\"success\": {success}}}"))
            }
            _ => (200, r#"{"vms": ["vm-1", "vm-3"]}"#.to_owned()),
        })
        .await;
        let session = RestSession::new(server.http.clone(), credentials(), Arc::default(), Dialect::Modern);
        (server, session)
    }

    #[tokio::test]
    async fn who_is_refused_does_not_hold_up_the_others() {
        let (server, session) = server(|before| (200, before == 0)).await;
        let joining = Joining::default();
        let machines: Vec<_> = (1..=3).map(machine).collect();
        let all = machines
            .iter()
            .map(|one| joining.join(ClusterModules::new(&session), ("vc", "m-1"), one, |_: &MoRef| true));
        let all: Vec<_> = join_all(all).await.into_iter().map(|joined| joined.expect("answered")).collect();
        assert_eq!(all, [Joined::In, Joined::Refused, Joined::In]);
        // the first one alone, the others together, and the one that is not in it once more
        assert_eq!(server.count(ADD), 3);
    }

    #[tokio::test]
    async fn a_module_may_be_gone() {
        let (_server, session) = server(|_| (404, false)).await;
        let joining = Joining::default();
        let joined = joining.join(ClusterModules::new(&session), ("vc", "m-1"), &machine(1), |_| true).await;
        assert_eq!(joined.expect("answered"), Joined::NoModule);
    }
}
