//! Reservations, limits and shares of a machine.

use cloudprovider::{Error, ErrorKind, Result};

use crate::{
    machines::spec::{Quantity, ResourceAmounts, Resources},
    vim::machines::{AllocationInfo, SharesInfo},
};

/// A quantity of CPU is in Hz.
const MHZ: f64 = 1e6;

const MIB: f64 = 1_048_576.0;

/// The allocations of CPU, in MHz, and of memory, in MiB.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for what is no quantity.
pub(super) fn allocations(
    resources: Option<&Resources>,
) -> Result<(Option<AllocationInfo>, Option<AllocationInfo>)> {
    let Some(resources) = resources else { return Ok((None, None)) };
    let cpu = |amounts: &Option<ResourceAmounts>| amounts.as_ref().and_then(|one| one.cpu.clone());
    let memory = |amounts: &Option<ResourceAmounts>| amounts.as_ref().and_then(|one| one.memory.clone());
    let of =
        |name: &str, unit: f64, request: Option<Quantity>, limit: Option<Quantity>, shares: Option<i32>| {
            let amount = |list: &str, quantity: Option<Quantity>| {
                quantity
                    .map(|quantity| whole(&format!("spec.resources.{list}.{name}"), &quantity, unit))
                    .transpose()
            };
            let info = AllocationInfo {
                reservation: amount("requests", request)?,
                limit: amount("limits", limit)?,
                shares: shares
                    .and_then(|shares| u32::try_from(shares).ok())
                    .filter(|shares| *shares != 0)
                    .map(|shares| SharesInfo { shares, level: "custom" }),
            };
            let is_empty = info.reservation.is_none() && info.limit.is_none() && info.shares.is_none();
            Ok::<_, Error>((!is_empty).then_some(info))
        };
    let (requests, limits) = (&resources.requests, &resources.limits);
    let shares = resources.shares.as_ref();
    Ok((
        of("cpu", MHZ, cpu(requests), cpu(limits), shares.and_then(|shares| shares.cpu))?,
        of("memory", MIB, memory(requests), memory(limits), shares.and_then(|shares| shares.memory))?,
    ))
}

/// A quantity in whole units, rounded up.
fn whole(field: &str, quantity: &Quantity, unit: f64) -> Result<u64> {
    let value = match quantity {
        #[expect(clippy::cast_precision_loss, reason = "the result is rounded up to much larger units")]
        Quantity::Number(number) => Some(*number as f64),
        Quantity::Text(text) => parse(text),
    };
    match value.filter(|value| (0.0..1e18).contains(value)) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        Some(value) => Ok((value / unit).ceil() as u64),
        None => {
            let words = format!("{field}: {quantity:?} is no quantity such as 2G or 4Gi");
            Err(Error::new(ErrorKind::InvalidInput, words))
        }
    }
}

/// A quantity as Kubernetes writes it.
fn parse(text: &str) -> Option<f64> {
    let (number, factor) = match text.trim() {
        "" => return None,
        text => {
            let suffixes = [
                ("Ki", 2f64.powi(10)),
                ("Mi", 2f64.powi(20)),
                ("Gi", 2f64.powi(30)),
                ("Ti", 2f64.powi(40)),
                ("Pi", 2f64.powi(50)),
                ("n", 1e-9),
                ("u", 1e-6),
                ("m", 1e-3),
                ("k", 1e3),
                ("M", 1e6),
                ("G", 1e9),
                ("T", 1e12),
                ("P", 1e15),
            ];
            let found =
                suffixes.into_iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, factor)));
            found.unwrap_or((text, 1.0))
        }
    };
    number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(resources: serde_json::Value) -> Result<(Option<AllocationInfo>, Option<AllocationInfo>)> {
        let resources: Resources = serde_json::from_value(resources).expect("resources");
        allocations(Some(&resources))
    }

    #[test]
    fn quantities_become_mhz_and_mib() {
        let (cpu, memory) = of(json!({
            "requests": {"cpu": "2G", "memory": "4Gi"},
            "limits": {"cpu": 2_500_000_001_i64, "memory": "4.5Gi"},
            "shares": {"memory": 2000},
        }))
        .expect("good");
        let cpu = cpu.expect("CPU");
        assert_eq!((cpu.reservation, cpu.limit), (Some(2000), Some(2501)));
        assert!(cpu.shares.is_none());
        let memory = memory.expect("memory");
        assert_eq!((memory.reservation, memory.limit), (Some(4096), Some(4608)));
        assert_eq!(memory.shares.map(|shares| (shares.shares, shares.level)), Some((2000, "custom")));
        assert!(allocations(None).is_ok_and(|(cpu, memory)| cpu.is_none() && memory.is_none()));
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for wrong in [json!("many"), json!("-1"), json!(-1), json!("inf")] {
            let error = of(json!({"limits": {"memory": wrong}})).expect_err("wrong");
            assert!(error.to_string().starts_with("spec.resources.limits.memory: "), "{error}");
        }
    }
}
