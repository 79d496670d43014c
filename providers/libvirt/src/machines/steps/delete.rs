//! The step of a machine towards gone.

use std::time::Duration;

use cloudprovider::{
    Result,
    machines::{Deletion, Wait},
};
use jiff::Timestamp;
use uuid::Uuid;

use super::{MachineRecord, Request};
use crate::machines::{
    fleet::{Fleet, Host},
    names::VolumeNames,
    spec::PowerOffMode,
    storage::Removal,
};

impl Fleet {
    /// One step towards gone.
    pub(super) async fn delete(
        &self,
        uid: Uuid,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<Deletion> {
        for host in self.to_clear(uid, request, record)? {
            if let Some(wait) = self.clear(host, uid, request, record).await? {
                return Ok(Deletion::Deleting(wait));
            }
        }
        self.forget(uid);
        Ok(Deletion::Gone)
    }

    /// The hypervisors that may have parts of the machine: the one that was chosen, or else all.
    fn to_clear(&self, uid: Uuid, request: &Request, record: &MachineRecord) -> Result<Vec<&Host>> {
        let found = self.find(uid)?.filter(|(_, domain)| request.mark.owns(domain.mark()));
        let known = match found {
            Some((host, _)) => Some(host),
            None => {
                let recorded = record.status.hypervisor.as_deref().and_then(|name| self.host(name));
                recorded.or_else(|| self.host(&self.chosen(uid)?))
            }
        };
        Ok(known.map_or_else(|| self.hosts.iter().collect(), |host| vec![host]))
    }

    /// Removes what a hypervisor has of the machine. `None` if it confirmed that nothing is left.
    async fn clear(
        &self,
        host: &Host,
        uid: Uuid,
        request: &Request,
        record: &mut MachineRecord,
    ) -> Result<Option<Wait>> {
        host.check_live()?;
        let spec = &request.spec;
        // What has another mark is not ours to delete. It does not have our volumes either.
        let found = host.domains.find(uid, None).await?;
        if found.is_some_and(|found| request.mark.owns(found.mark.as_ref())) {
            if let Some(wait) = power_off_guest(host, uid, request, record).await? {
                return Ok(Some(wait));
            }
            host.domains.remove(uid).await?;
        }
        let names = VolumeNames::new(&request.mark);
        match self.storage.remove(&host.storage, &spec.pools(), &|volume| names.has(volume)).await? {
            Removal::Gone { .. } => Ok(None),
            Removal::Working(wait) => Ok(Some(wait)),
        }
    }
}

/// Lets the guest shut down, if the spec asks for it. `None` if the domain can be powered off.
async fn power_off_guest(
    host: &Host,
    uid: Uuid,
    request: &Request,
    record: &mut MachineRecord,
) -> Result<Option<Wait>> {
    let spec = &request.spec;
    if spec.power_off_mode == PowerOffMode::Hard || !host.domains.is_active(uid).await? {
        return Ok(None);
    }
    let now = Timestamp::now().as_second();
    let since = record.status.soft_power_off_since;
    let PowerOff::Ask(again) =
        power_off(spec.power_off_mode, spec.soft_power_off_timeout_seconds, since, now)
    else {
        return Ok(None);
    };
    record.status.soft_power_off_since.get_or_insert(now);
    // Again each time: a guest that still boots does not hear it.
    host.domains.shut_down(uid).await?;
    let words = format!("the guest of domain {:?} shuts down", request.mark.name());
    Ok(Some(Wait::task(words).with_reason("ShuttingDown").look_again_after(again)))
}

/// How soon a step looks again at a guest that was asked to shut down. An event comes earlier.
const SHUTDOWN_RETRY: Duration = Duration::from_secs(15);

/// What to do about a domain that runs and is to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PowerOff {
    /// Power it off.
    Now,
    /// Ask the guest to shut down, and look again after this time.
    Ask(Duration),
}

/// `asked` is when the guest was first asked, and `now` the time, in seconds since 1970.
fn power_off(mode: PowerOffMode, timeout_seconds: u32, asked: Option<i64>, now: i64) -> PowerOff {
    let timeout = i64::from(timeout_seconds);
    let waited = asked.map_or(0, |asked| now.saturating_sub(asked).max(0));
    match mode {
        PowerOffMode::Hard => PowerOff::Now,
        PowerOffMode::Soft => PowerOff::Ask(SHUTDOWN_RETRY),
        PowerOffMode::TrySoft if waited >= timeout => PowerOff::Now,
        PowerOffMode::TrySoft => {
            let left = Duration::from_secs(u64::try_from(timeout - waited).unwrap_or_default());
            PowerOff::Ask(left.min(SHUTDOWN_RETRY))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_asked_as_long_as_the_mode_says() {
        let seconds = |seconds| PowerOff::Ask(Duration::from_secs(seconds));
        for (mode, asked, expected) in [
            (PowerOffMode::Hard, None, PowerOff::Now),
            (PowerOffMode::Soft, None, seconds(15)),
            (PowerOffMode::Soft, Some(0), seconds(15)),
            (PowerOffMode::TrySoft, None, seconds(15)),
            (PowerOffMode::TrySoft, Some(1000), seconds(15)),
            (PowerOffMode::TrySoft, Some(945), seconds(5)),
            (PowerOffMode::TrySoft, Some(940), PowerOff::Now),
            // The clock was set back.
            (PowerOffMode::TrySoft, Some(2000), seconds(15)),
        ] {
            assert_eq!(power_off(mode, 60, asked, 1000), expected, "{mode:?} {asked:?}");
        }
    }
}
