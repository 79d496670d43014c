//! What the X.509 certificates that are made here have in common.

use jiff::{Span, Timestamp, ToSpan as _, civil::Date, tz::TimeZone};
use rcgen::{CertificateParams, SerialNumber, date_time_ymd};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Parameters with a serial number of their own, for a certificate that is valid for so many days. It is valid from the day before,
/// since clocks differ.
///
/// # Errors
/// If there are no random numbers, or no date is so far away.
pub(crate) fn parameters(now: Timestamp, days: i64) -> Result<CertificateParams, ()> {
    let mut parameters = CertificateParams::default();
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(drop)?;
    // Positive, and not shorter than it looks.
    serial[0] = serial[0] & 0x7f | 0x40;
    parameters.serial_number = Some(SerialNumber::from_slice(&serial));
    let today = now.to_zoned(TimeZone::UTC).date();
    let days = Span::new().try_days(days).map_err(drop)?;
    let (from, until) = (today.checked_sub(1.day()), today.checked_add(days));
    let (from, until) = (from.map_err(drop)?, until.map_err(drop)?);
    parameters.not_before = date_time_ymd(from.year().into(), month(from), day(from));
    parameters.not_after = date_time_ymd(until.year().into(), month(until), day(until));
    Ok(parameters)
}

fn month(date: Date) -> u8 {
    date.month().unsigned_abs()
}

fn day(date: Date) -> u8 {
    date.day().unsigned_abs()
}
