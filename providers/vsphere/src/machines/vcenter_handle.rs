//! One vCenter, as a place for machines: its inventory, its tasks, and calls to it.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, Result, machines::Mark};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{places::Finder, tombstones::Tombstones};
use crate::{
    mark::{self, MARK},
    moref::MoRef,
    session::{CALL_DEADLINE, ServiceContent},
    tasks::{self, TASK, TASK_PATHS, Task},
    vcenter::VCenter,
    vim::{
        Call, CallError,
        element::Element,
        objects::{
            ContinueRetrievePropertiesEx, FindAllByUuid, ObjectSpec, PropertyFilterSpec, PropertySpec,
            RetrieveOptions, RetrievePropertiesEx,
        },
        property_collector::{ObjectUpdate, read_listing},
    },
    vm::VirtualMachine,
};

const EXTRA_CONFIG: &str = "config.extraConfig";
const POWER_STATE: &str = "runtime.powerState";

/// How soon a step looks again at a machine that is not taken over.
const FOREIGN_RETRY: Duration = Duration::from_secs(5);

/// A vCenter, with one user.
#[derive(Debug)]
pub(crate) struct VCenterHandle {
    pub(crate) vcenter: Arc<VCenter>,
    /// Set when the provider ends: no session is opened after that.
    pub(crate) stop: CancellationToken,
    /// Whether its credentials are those of the configuration.
    pub(crate) is_configured: bool,
    /// No other vCenter has it.
    pub(crate) number: u64,
    /// The machines that vCenter has not any more, also while the inventory shows them.
    pub(crate) tombstones: Tombstones,
}

impl Deref for VCenterHandle {
    type Target = VCenter;

    fn deref(&self) -> &VCenter {
        &self.vcenter
    }
}

impl VCenterHandle {
    /// Whether a `server` of a spec is this vCenter: its host, with a port unless that is 443.
    pub(crate) fn is_called(&self, server: &str) -> bool {
        let server =
            server.trim().trim_start_matches("https://").trim_end_matches("/sdk").trim_end_matches('/');
        let endpoint = &self.settings.endpoint;
        let has_port = server.rsplit_once(':').is_some_and(|(host, port)| {
            (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
        });
        let wanted = if has_port {
            server.to_owned()
        } else if server.contains(':') && !server.starts_with('[') {
            format!("[{server}]:443")
        } else {
            format!("{server}:443")
        };
        wanted.eq_ignore_ascii_case(&endpoint.authority())
    }

    /// An error unless its inventory is complete and live.
    pub(crate) fn check_live(&self) -> Result<()> {
        self.doubt(&self.state()).map_or(Ok(()), Err)
    }

    /// Does something with what is found in the inventory.
    pub(crate) fn with_finder<T>(&self, act: impl FnOnce(Finder<'_>) -> T) -> T {
        let state = self.state();
        let used: Vec<_> = self.datacenters(&state).into_iter().collect();
        let authority = self.settings.endpoint.authority();
        act(Finder::new(&authority, &state.inventory, &used).discreet(self.is_configured))
    }

    /// Makes a call in the current session, which is opened again if it has ended.
    ///
    /// # Errors
    /// The error of the call, or of the login.
    pub(crate) async fn call(&self, call: &Call) -> Result<Element, CallError> {
        let away = || CallError::Unreachable { method: call.method, reason: "not connected".into() };
        let session = self.session().clone().ok_or_else(away)?;
        let outcome = match session.call_once(call, CALL_DEADLINE).await {
            // It did not take place, so it can be made again.
            Err(error) if error.is_session_lost() && !self.stop.is_cancelled() => {
                session.call(call, CALL_DEADLINE).await
            }
            outcome => outcome,
        };
        outcome.inspect_err(|error| self.tombstones.note_error(call, error))
    }

    /// Makes a call whose error is that of the step.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Element> {
        self.call(call).await.map_err(|error| self.error_of(&error))
    }

    /// The references of vCenter's services.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] while there is no session.
    pub(crate) fn content(&self) -> Result<Arc<ServiceContent>> {
        let session = self.session().clone();
        session
            .and_then(|session| session.content())
            .ok_or_else(|| self.error(ErrorKind::Unavailable, "not connected"))
    }

    /// Reads the selected properties, all pages, and passes each page on.
    pub(crate) async fn read(
        &self,
        selection: PropertyFilterSpec,
        take: impl FnMut(&[ObjectUpdate<'_>]) + Send,
    ) -> Result<()> {
        self.content()?;
        self.try_read(selection, take).await.map_err(|error| self.error_of(&error))
    }

    /// The same, with the error of the call.
    pub(crate) async fn try_read(
        &self,
        selection: PropertyFilterSpec,
        mut take: impl FnMut(&[ObjectUpdate<'_>]) + Send,
    ) -> Result<(), CallError> {
        let away =
            |_| CallError::Unreachable { method: "RetrievePropertiesEx", reason: "not connected".into() };
        let collector = self.content().map_err(away)?.property_collector.clone();
        let options = RetrieveOptions { max_objects: None };
        let mut call = RetrievePropertiesEx { spec_set: vec![selection], options }.of(&collector);
        loop {
            let answer = self.call(&call).await?;
            let page = read_listing(call.method, &answer)?;
            take(&page.objects);
            match page.token {
                Some(token) => call = ContinueRetrievePropertiesEx { token }.of(&collector),
                None => return Ok(()),
            }
        }
    }

    /// The machines with this instance UUID, in all datacenters, as vCenter says when it is asked.
    pub(crate) async fn find(&self, uid: Uuid) -> Result<Vec<MoRef>> {
        let content = self.content()?;
        let Some(index) = &content.search_index else {
            return Err(self.error(ErrorKind::Unsupported, "it cannot be asked for a UUID"));
        };
        let call = FindAllByUuid {
            datacenter: None,
            uuid: uid.hyphenated().to_string(),
            vm_search: true,
            instance_uuid: Some(true),
        };
        let found = self.ask(&call.of(index)).await?;
        Ok(found.moref().into_iter().chain(found.all("returnval").filter_map(Element::moref)).collect())
    }

    /// Whether vCenter has this machine not any more, as it says when it is asked.
    ///
    /// # Errors
    /// Those of the call, but for the one that says so.
    pub(crate) async fn has_removed(&self, machine: &MoRef) -> Result<bool> {
        let selection = PropertyFilterSpec {
            prop_set: vec![PropertySpec { kind: "VirtualMachine", all: None, path_set: vec![POWER_STATE] }],
            object_set: vec![ObjectSpec { obj: machine.clone(), skip: Some(false), select_set: Vec::new() }],
            report_missing_objects_in_results: None,
        };
        match self.read(selection, |_| {}).await {
            Err(_) if self.tombstones.has(machine) => Ok(true),
            answer => answer.map(|()| false),
        }
    }

    /// The mark of a machine. It is read where the watch does not have it: vCenter may not be able to watch a single key
    /// of the extra configuration, or show a machine before its configuration.
    ///
    /// # Errors
    /// Those of the call, and [`ErrorKind::Unavailable`] if vCenter does not tell the configuration: such a machine may be
    /// anybody's.
    pub(crate) async fn mark_of(&self, vm: &VirtualMachine) -> Result<Option<Mark>> {
        if let Some(mark) = &vm.mark {
            return Ok(Some((**mark).clone()));
        }
        let selection = PropertyFilterSpec {
            prop_set: vec![PropertySpec { kind: "VirtualMachine", all: None, path_set: vec![EXTRA_CONFIG] }],
            object_set: vec![ObjectSpec { obj: vm.moref.clone(), skip: Some(false), select_set: Vec::new() }],
            report_missing_objects_in_results: None,
        };
        let (mut is_told, mut found) = (false, None);
        self.read(selection, |updates| {
            let values = updates.iter().flat_map(|update| &update.properties).filter_map(|(_, value)| *value);
            let values: Vec<_> = values.collect();
            is_told |= !values.is_empty();
            let mut options = values.iter().flat_map(|value| value.children.iter());
            let option = options.find(|option| option.text_of("key") == Some(MARK));
            found = option.and_then(|option| mark::read(option.text_of("value")?)).or(found.take());
        })
        .await?;
        if is_told {
            return Ok(found);
        }
        let words = format!(
            "it does not tell the configuration of {}, so it is not known whose it is",
            vm.moref.id()
        );
        Err(self.error(ErrorKind::Unavailable, &words))
    }

    /// The error about a machine that is another object's, or nobody's.
    pub(crate) fn conflict(&self, vm: &VirtualMachine, mark: &Mark, found: Option<&Mark>) -> Error {
        self.conflict_over(mark.name(), vm, mark, found)
    }

    /// The same where the object is to have this name in vCenter.
    pub(crate) fn conflict_over(
        &self,
        name: &str,
        vm: &VirtualMachine,
        mark: &Mark,
        found: Option<&Mark>,
    ) -> Error {
        // another name is not for everybody who reads the object
        let name = if *vm.name == *name { format!("{name:?} ") } else { String::new() };
        let what = format!("virtual machine {name}({}) in vCenter {:?}", vm.moref.id(), self.name());
        tracing::info!(%mark, machine = %vm.name, moref = vm.moref.id(), "a foreign virtual machine is in its way");
        mark.conflict(what, found)
    }

    /// The error about a machine without a mark that is not taken over.
    pub(crate) fn foreign(&self, vm: &VirtualMachine, mark: &Mark, why: &str) -> Error {
        let error = self.conflict(vm, mark, None);
        let words = format!("{}; it is not taken over: {why}", error.report());
        Error::new(error.kind(), words).with_retry_after(error.retry_after().unwrap_or(FOREIGN_RETRY))
    }

    /// The clones that are under way, of anybody, as vCenter says when it is asked.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn clones_under_way(&self) -> Result<HashSet<MoRef>> {
        self.tasks_that(Task::is_clone_under_way).await
    }

    /// The edits of a cluster of hosts that are under way, of anybody, as vCenter says when it is asked.
    ///
    /// # Errors
    /// Those of the call.
    pub(crate) async fn edits_under_way(&self, cluster: &MoRef) -> Result<HashSet<MoRef>> {
        self.tasks_that(|task| task.is_edit_under_way(cluster)).await
    }

    async fn tasks_that(&self, fulfils: impl Fn(&Task) -> bool + Send) -> Result<HashSet<MoRef>> {
        let all = self.recent_tasks().await?.into_iter();
        Ok(all.filter(|(_, task)| fulfils(task)).map(|(reference, _)| reference).collect())
    }

    /// The tasks that run and those that ended lately, of anybody, as vCenter says when it is asked.
    ///
    /// # Errors
    /// Those of the calls.
    pub(crate) async fn recent_tasks(&self) -> Result<HashMap<MoRef, Task>> {
        let content = self.content()?;
        let Some(manager) = &content.task_manager else { return Ok(HashMap::new()) };
        let mut found = HashMap::new();
        self.read(tasks::selection(manager), |updates| {
            for update in updates {
                let mut task = Task::default();
                task.apply(&update.properties);
                found.insert(update.object.clone(), task);
            }
        })
        .await?;
        Ok(found)
    }

    /// A task, as vCenter says when it is asked. `None` if it knows no such task: it has ended long ago, or vCenter
    /// was started again.
    pub(crate) async fn task(&self, task: &MoRef) -> Result<Option<Task>> {
        let selection = PropertyFilterSpec {
            prop_set: vec![PropertySpec { kind: TASK, all: None, path_set: TASK_PATHS.into() }],
            object_set: vec![ObjectSpec { obj: task.clone(), skip: Some(false), select_set: Vec::new() }],
            report_missing_objects_in_results: None,
        };
        let options = RetrieveOptions { max_objects: None };
        let collector = self.content()?.property_collector.clone();
        let call = RetrievePropertiesEx { spec_set: vec![selection], options }.of(&collector);
        let answer = match self.call(&call).await {
            Err(error) if error.is_fault("ManagedObjectNotFound") => return Ok(None),
            answer => answer.map_err(|error| self.error_of(&error))?,
        };
        let page = read_listing(call.method, &answer).map_err(|error| self.error_of(&error))?;
        Ok(page.objects.first().map(|update| {
            let mut task = Task::default();
            task.apply(&update.properties);
            task
        }))
    }
}

#[cfg(test)]
mod tests {
    use cloudprovider::InstanceChange;
    use tokio::sync::{broadcast, watch};

    use super::*;
    use crate::{endpoint::Endpoint, session::Choices, vcenter::Settings};

    fn vcenter(host: &str, port: u16) -> VCenterHandle {
        let endpoint =
            Endpoint { host: host.to_owned(), port, ca_files: Vec::new(), thumbprint: None, insecure: true };
        let settings = Settings {
            name: "vc".to_owned(),
            endpoint,
            datacenters: Vec::new(),
            access: Arc::new(|| Ok(Choices::default())),
            tag_refresh: None,
        };
        let (changes, _) = broadcast::channel::<InstanceChange>(1);
        let vcenter = Arc::new(VCenter::new(settings, changes, watch::channel(0).0));
        VCenterHandle {
            vcenter,
            stop: CancellationToken::new(),
            is_configured: true,
            number: 0,
            tombstones: Tombstones::default(),
        }
    }

    #[test]
    fn a_server_is_found_by_its_host_and_port() {
        for (host, port, word, is_called) in [
            ("vc1.example.org", 443, "vc1.example.org", true),
            ("vc1.example.org", 443, "VC1.example.org:443", true),
            ("vc1.example.org", 443, "https://vc1.example.org/sdk", true),
            ("vc1.example.org", 8443, "vc1.example.org", false),
            ("vc1.example.org", 8443, "vc1.example.org:8443", true),
            ("vc1.example.org", 443, "vc2.example.org", false),
            ("fd00::1", 443, "fd00::1", true),
            ("fd00::1", 8443, "[fd00::1]:8443", true),
            ("fd00::1", 443, "[fd00::1]", true),
            ("vc1.example.org", 443, "", false),
        ] {
            assert_eq!(vcenter(host, port).is_called(word), is_called, "{host} {port} {word}");
        }
    }
}
