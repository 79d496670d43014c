//! MAC addresses. They connect NICs, leases and the guest agent's interfaces.

use std::fmt;

/// The hardware address of a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Mac([u8; 6]);

impl Mac {
    /// The address with these bytes.
    pub(crate) fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }

    /// Reads `52:54:00:ab:cd:ef`, in either case and with one or two digits each.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
            *byte = u8::from_str_radix(part, 16).ok()?;
        }
        parts.next().is_none().then_some(Self(bytes))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_and_writing() {
        let mac = Mac::parse("52:54:00:AB:cd:1").expect("valid");
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:01");
        assert_eq!(Mac::parse(&mac.to_string()), Some(mac));
        for bad in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:ef:01", "52:54:00:ab:cd:xy", "52:54:00:ab:cd:001"] {
            assert_eq!(Mac::parse(bad), None, "{bad}");
        }
    }
}
