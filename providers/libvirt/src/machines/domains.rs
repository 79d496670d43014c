//! The calls about the domains of machines at one hypervisor.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use cloudprovider::{Error, ErrorKind, PowerState, Result, machines::Mark};
use uuid::Uuid;
use virt::domain::Domain as Handle;
use virt::error::ErrorNumber;

use super::{capabilities::Capabilities, domain_xml::IGNITION_ENTRY, power::AskBy};
use crate::{
    calls::{Failure, Operation},
    domain::{AgentChannel, Domain, DomainState},
    sys,
    worker_pool::{Link, Work, WorkerPool},
};

/// Starting a domain takes seconds where the hypervisor is busy.
const MIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The domains of machines at one hypervisor.
#[derive(Debug)]
pub(crate) struct Domains {
    workers: Arc<WorkerPool>,
    capabilities: OnceLock<Capabilities>,
}

/// A domain that libvirt has now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) uuid: Uuid,
    pub(crate) name: String,
    pub(crate) mark: Option<Mark>,
    pub(crate) power: PowerState,
    /// Whether its guest agent is connected.
    pub(crate) has_agent: bool,
    /// Whether it has its bootstrap data as a configuration of Ignition.
    pub(crate) has_ignition: bool,
    /// A volume of the machine that it has as a disk.
    pub(crate) volume: Option<String>,
}

impl Domains {
    /// The domains of the hypervisor of these threads.
    pub(crate) fn new(workers: Arc<WorkerPool>) -> Self {
        Self { workers, capabilities: OnceLock::new() }
    }

    fn hypervisor(&self) -> &str {
        self.workers.hypervisor().name()
    }

    async fn run<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Link) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let limit = self.workers.hypervisor().settings.call_timeout.max(MIN_TIMEOUT);
        let answer = self.workers.run(Work::Short(limit), work).await;
        answer.map_err(|failure| {
            let words = format!("cannot {what} on hypervisor {:?}: {}", self.hypervisor(), failure.message);
            let kind = match failure.code {
                Some(ErrorNumber::NoNetwork) => ErrorKind::NotFound,
                // Such as a firmware that is not installed. Trying again at once does not help.
                Some(
                    ErrorNumber::ConfigUnsupported
                    | ErrorNumber::XmlDetail
                    | ErrorNumber::XmlError
                    | ErrorNumber::XmlInvalidSchema,
                ) => ErrorKind::InvalidConfiguration,
                // Whether a domain is missing is not said here: the callers ask for it.
                Some(ErrorNumber::NoDomain) => ErrorKind::Unavailable,
                _ => failure.kind,
            };
            Error::new(kind, words)
        })
    }

    /// What the hypervisor can run. Asked once, since it can take seconds.
    pub(crate) async fn capabilities(&self) -> Result<&Capabilities> {
        if let Some(known) = self.capabilities.get() {
            return Ok(known);
        }
        let what = "read the capabilities";
        let xml = self
            .run(what, |link| link.call(Operation::Capabilities, virt::connect::Connect::capabilities))
            .await?;
        let read = Capabilities::parse(&xml).map_err(|why| {
            Error::new(ErrorKind::Internal, format!("hypervisor {:?}: {why}", self.hypervisor()))
        })?;
        Ok(self.capabilities.get_or_init(|| read))
    }

    /// The domain with this UUID, or else with this name, as libvirt has it now.
    pub(crate) async fn find(&self, uuid: Uuid, name: Option<String>) -> Result<Option<Found>> {
        self.run("look for the domain", move |link| {
            let mut handle = find(link, uuid)?;
            if let (None, Some(name)) = (&handle, &name) {
                handle = absent(link.call(Operation::LookupDomain, |it| it.lookup_domain_by_name(name)))?;
            }
            let Some(handle) = handle else { return Ok(None) };
            let xml = absent(link.call(Operation::DomainXml, |_| handle.xml_desc(0)))?;
            let Some(xml) = xml else { return Ok(None) };
            let Some((state, reason)) = absent(link.call(Operation::DomainState, |_| sys::state(&handle)))?
            else {
                return Ok(None);
            };
            let internal = |why: String| Failure::of_provider(ErrorKind::Internal, why);
            let state = DomainState::from_raw(state, reason)
                .ok_or_else(|| internal(format!("libvirt gives the unknown state {state}")))?;
            let domain = Domain::parse(&xml, Ok(state)).map_err(internal)?;
            Ok(Some(Found {
                uuid: domain.uuid,
                name: domain.name.clone(),
                mark: domain.mark().cloned(),
                power: state.power,
                has_agent: domain.agent == AgentChannel::Connected,
                has_ignition: xml.contains(IGNITION_ENTRY),
                volume: domain.volume().map(str::to_owned),
            }))
        })
        .await
    }

    /// Defines a domain, and starts it.
    pub(crate) async fn define(&self, xml: String, autostart: bool) -> Result<()> {
        self.run("define the domain", move |link| {
            let validate = virt_sys::VIR_DOMAIN_DEFINE_VALIDATE;
            let defined = link.call(Operation::DefineDomain, |it| it.define_domain_xml_flags(&xml, validate));
            let handle = match defined {
                // libvirt's test driver cannot compare with the schema
                Err(failure) if failure.code == Some(ErrorNumber::InvalidArg) => {
                    link.call(Operation::DefineDomain, |it| it.define_domain_xml(&xml))
                }
                defined => defined,
            };
            start(link, &handle?, autostart)
        })
        .await
    }

    /// Starts a domain that is defined. Does nothing if it runs.
    pub(crate) async fn start(&self, uuid: Uuid, autostart: bool) -> Result<()> {
        self.run("start the domain", move |link| match find(link, uuid)? {
            Some(handle) => start(link, &handle, autostart),
            None => Ok(()),
        })
        .await
    }

    /// Asks the guest to shut down. Whether it does is seen by its state: a guest that still boots hears
    /// nothing.
    pub(crate) async fn shut_down(&self, uuid: Uuid, by: AskBy) -> Result<()> {
        self.run("shut down the domain", move |link| {
            let Some(handle) = find(link, uuid)? else { return Ok(()) };
            let mut asked = link.call(Operation::ShutdownDomain, |_| handle.shutdown_flags(by.flag()));
            // libvirt's test driver knows no flags.
            if asked.as_ref().is_err_and(|failure| failure.code == Some(ErrorNumber::InvalidArg)) {
                asked = link.call(Operation::ShutdownDomain, |_| handle.shutdown());
            }
            match asked {
                Err(failure) if failure.lost => Err(failure),
                Err(failure) => {
                    tracing::debug!(domain = %uuid, reason = failure.message, "the guest was not asked to shut down");
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        })
        .await
    }

    /// Resets a domain, or starts it if it is off, paused or has crashed. `false`: there is no such domain, and nothing was done.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] if the connection was lost during the reset, which may have been made.
    pub(crate) async fn reset(&self, uuid: Uuid, autostart: bool) -> Result<bool> {
        self.run("reset the domain", move |link| {
            let Some(handle) = find(link, uuid)? else { return Ok(false) };
            let state = absent(link.call(Operation::DomainState, |_| sys::state(&handle)))?;
            let Some((state, reason)) = state else { return Ok(false) };
            let power = DomainState::from_raw(state, reason).map(|state| state.power);
            if matches!(power, Some(PowerState::Crashed | PowerState::Paused)) {
                // A reset does not bring it back to life: a guest that is paused, such as when its disk was full, stays so.
                power_off(link, &handle)?;
            }
            if is_active(link, &handle)? {
                let reset = link.call(Operation::ResetDomain, |_| handle.reset());
                reset.map_err(Failure::in_doubt)?;
            } else {
                start(link, &handle, autostart).map_err(Failure::in_doubt)?;
            }
            Ok(true)
        })
        .await
    }

    /// Pauses a domain, as a full disk does.
    #[cfg(test)]
    pub(crate) async fn pause(&self, uuid: Uuid) -> Result<()> {
        self.run("pause the domain", move |link| match find(link, uuid)? {
            Some(handle) => link.call(Operation::ShutdownDomain, |_| handle.suspend()).map(drop),
            None => Ok(()),
        })
        .await
    }

    /// Powers a domain off. Does nothing if it is off.
    pub(crate) async fn power_off(&self, uuid: Uuid) -> Result<()> {
        self.run("power off the domain", move |link| match find(link, uuid)? {
            Some(handle) => power_off(link, &handle),
            None => Ok(()),
        })
        .await
    }

    /// Powers a domain off and removes its definition, with its NVRAM, snapshots and whatever else libvirt
    /// keeps of it. Succeeds only if libvirt confirms that there is no such domain.
    pub(crate) async fn remove(&self, uuid: Uuid) -> Result<()> {
        self.run("remove the domain", move |link| {
            let Some(handle) = find(link, uuid)? else { return Ok(()) };
            power_off(link, &handle)?;
            let all = virt_sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
                | virt_sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                | virt_sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
                | virt_sys::VIR_DOMAIN_UNDEFINE_NVRAM;
            // Drivers and old versions do not know all of the flags.
            let mut undefined = Ok(());
            for flags in [all, virt_sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE, 0] {
                undefined = link.call(Operation::UndefineDomain, |_| handle.undefine_flags(flags));
                match &undefined {
                    Err(failure) if failure.code == Some(ErrorNumber::InvalidArg) => {}
                    _ => break,
                }
            }
            match find(link, uuid)? {
                None => Ok(()),
                Some(_) => undefined
                    .and(Err(Failure::of_provider(ErrorKind::Unavailable, "it is still there".into()))),
            }
        })
        .await
    }
}

/// The answer, or `None` if libvirt confirmed that there is no such domain.
fn absent<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.is_no_domain() => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn find(link: &mut Link, uuid: Uuid) -> Result<Option<Handle>, Failure> {
    absent(link.call(Operation::LookupDomain, |connect| connect.lookup_domain_by_uuid(uuid)))
}

fn is_active(link: &mut Link, handle: &Handle) -> Result<bool, Failure> {
    Ok(absent(link.call(Operation::DomainState, |_| handle.is_active()))?.unwrap_or(false))
}

fn power_off(link: &mut Link, handle: &Handle) -> Result<(), Failure> {
    if !is_active(link, handle)? {
        return Ok(());
    }
    let destroyed = link.call(Operation::DestroyDomain, |_| handle.destroy());
    // It may have ended by itself.
    if destroyed.is_err() && is_active(link, handle)? { destroyed } else { Ok(()) }
}

fn start(link: &mut Link, handle: &Handle, autostart: bool) -> Result<(), Failure> {
    // Before the start: afterwards nothing would tell that it is missing.
    match link.call(Operation::SetAutostart, |_| handle.set_autostart(autostart)) {
        Err(failure) if !failure.is_unsupported() => return Err(failure),
        _ => {}
    }
    if is_active(link, handle)? {
        return Ok(());
    }
    let started = link.call(Operation::StartDomain, |_| handle.create());
    // Somebody else may have started it meanwhile.
    if started.is_err() && is_active(link, handle)? { Ok(()) } else { started }
}
