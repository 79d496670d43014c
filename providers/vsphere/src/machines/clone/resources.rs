//! Reservations, limits and shares of a machine.

use cloudprovider::{Error, ErrorKind, Result};

use crate::{
    machines::spec::{Quantity, ResourceAmounts, Resources},
    vim::machines::{AllocationInfo, SharesInfo},
};

/// A quantity of CPU is in Hz.
const MHZ: u64 = 1_000_000;

const MIB: u64 = 1 << 20;

/// The allocations of CPU, in MHz, and of memory, in MiB.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for what is no quantity, and for a request above its limit.
pub(super) fn allocations(
    resources: Option<&Resources>,
) -> Result<(Option<AllocationInfo>, Option<AllocationInfo>)> {
    let Some(resources) = resources else { return Ok((None, None)) };
    let cpu = |amounts: &Option<ResourceAmounts>| amounts.as_ref().and_then(|one| one.cpu.clone());
    let memory = |amounts: &Option<ResourceAmounts>| amounts.as_ref().and_then(|one| one.memory.clone());
    let (requests, limits) = (&resources.requests, &resources.limits);
    let shares = resources.shares.as_ref();
    Ok((
        allocation("cpu", MHZ, cpu(requests), cpu(limits), shares.and_then(|shares| shares.cpu))?,
        allocation("memory", MIB, memory(requests), memory(limits), shares.and_then(|shares| shares.memory))?,
    ))
}

/// The allocation of one resource. Zero means none, as a limit of nothing cannot be meant.
fn allocation(
    name: &str,
    unit: u64,
    request: Option<Quantity>,
    limit: Option<Quantity>,
    shares: Option<i32>,
) -> Result<Option<AllocationInfo>> {
    let amount = |list: &str, quantity: Option<Quantity>| {
        let amount =
            quantity.map(|quantity| whole(&format!("spec.resources.{list}.{name}"), &quantity, unit));
        Ok::<_, Error>(amount.transpose()?.filter(|amount| *amount != 0))
    };
    let info = AllocationInfo {
        reservation: amount("requests", request)?,
        limit: amount("limits", limit)?,
        shares: shares
            .and_then(|shares| u32::try_from(shares).ok())
            .filter(|shares| *shares != 0)
            .map(|shares| SharesInfo { shares, level: "custom" }),
    };
    if let (Some(reservation), Some(limit)) = (info.reservation, info.limit)
        && reservation > limit
    {
        let words = format!("spec.resources.requests.{name}: more than spec.resources.limits.{name}");
        return Err(Error::new(ErrorKind::InvalidInput, words));
    }
    let is_empty = info.reservation.is_none() && info.limit.is_none() && info.shares.is_none();
    Ok((!is_empty).then_some(info))
}

/// A quantity in whole units, rounded up.
fn whole(field: &str, quantity: &Quantity, unit: u64) -> Result<u64> {
    let value = match quantity {
        Quantity::Number(number) => u64::try_from(*number).ok().map(|number| number.div_ceil(unit)),
        Quantity::Text(text) => parse(text, unit),
    };
    value.ok_or_else(|| {
        let words = match quantity {
            Quantity::Number(number) => number.to_string(),
            Quantity::Text(text) => format!("{text:?}"),
        };
        let words = format!("{field}: {words} is no quantity such as 2G or 4Gi");
        Error::new(ErrorKind::InvalidInput, words)
    })
}

/// A quantity as Kubernetes writes it, in whole units, rounded up. It is computed exactly: a fraction of a unit too many would be a
/// unit more. `None` for what is no quantity, is negative, or is more than vCenter counts.
fn parse(text: &str, unit: u64) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let (twos, tens) = scale(suffix)?;
    let tens = tens.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_u128.checked_pow(tens.unsigned_abs());
    let amount = digits.checked_mul(1 << twos)?;
    let amount = if tens < 0 {
        amount.div_ceil(u128::from(unit).checked_mul(power?)?)
    } else {
        amount.checked_mul(power?)?.div_ceil(u128::from(unit))
    };
    i64::try_from(amount).ok().and_then(|amount| u64::try_from(amount).ok())
}

/// What a suffix multiplies by: powers of two and of ten.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    let (twos, tens) = match suffix {
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "" => (0, 0),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        exponent => (0, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some((twos, tens))
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
    fn every_notation_of_a_quantity_is_read_exactly() {
        for (text, mhz) in [
            ("2300M", 2300),
            // 2.3 and 4.35 have no exact binary form.
            ("2.3G", 2300),
            ("4.35G", 4350),
            ("2300000000", 2300),
            ("2.3e9", 2300),
            ("23E8", 2300),
            ("+2.30G", 2300),
            ("2300000001", 2301),
            ("1", 1),
            ("1n", 1),
            ("2500k", 3),
            (".5G", 500),
            ("5.G", 5000),
            ("1E", 1_000_000_000_000),
            ("1Mi", 2),
        ] {
            assert_eq!(parse(text, MHZ), Some(mhz), "{text}");
        }
        for (text, mib) in
            [("4Gi", 4096), ("4.5Gi", 4608), ("1Ei", 1 << 40), ("1Ki", 1), ("1G", 954), ("128974848", 123)]
        {
            assert_eq!(parse(text, MIB), Some(mib), "{text}");
        }
    }

    #[test]
    fn zero_is_none() {
        let nothing = json!({"requests": {"cpu": 0, "memory": "0"}, "limits": {"cpu": "0G", "memory": ".0"}});
        assert!(of(nothing).is_ok_and(|(cpu, memory)| cpu.is_none() && memory.is_none()));
    }

    #[test]
    fn a_request_is_at_most_its_limit() {
        let error =
            of(json!({"requests": {"memory": "4Gi"}, "limits": {"memory": "4095Mi"}})).expect_err("more");
        assert_eq!(
            error.to_string(),
            "spec.resources.requests.memory: more than spec.resources.limits.memory"
        );
        let same = json!({"requests": {"cpu": "1G"}, "limits": {"cpu": "1000M"}});
        assert!(of(same).is_ok_and(|(cpu, _)| cpu.is_some()));
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for wrong in
            ["many", "-1", "inf", "", ".", "1.2.3", "1e", "1e1.5", "1Zi", "1e40", "99999999999999E", " 1"]
        {
            assert_eq!(parse(wrong, MIB), None, "{wrong:?}");
        }
        for wrong in [json!("many"), json!("-1"), json!(-1)] {
            let error = of(json!({"limits": {"memory": wrong}})).expect_err("wrong");
            assert!(error.to_string().starts_with("spec.resources.limits.memory: "), "{error}");
        }
    }
}
