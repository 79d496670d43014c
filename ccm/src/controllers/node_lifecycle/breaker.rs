//! The breaker: too many Nodes that would vanish at once are more likely a mistake of the cloud than the truth.

/// When the breaker opens: both limits must be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Nodes.
    pub count: usize,
    /// Percent of the Nodes that belong to this cloud.
    pub percent: u8,
}

/// How many Nodes the cloud says are gone, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vanishing {
    pub absent: usize,
    pub total: usize,
}

impl BreakerLimits {
    pub(super) fn opens(self, vanishing: Vanishing) -> bool {
        vanishing.absent > self.count && vanishing.absent * 100 > usize::from(self.percent) * vanishing.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_must_be_passed() {
        let limits = BreakerLimits { count: 3, percent: 20 };
        for (absent, total, opens) in [
            (0, 0, false),
            (3, 3, false),
            (4, 4, true),
            (4, 20, false),
            (5, 20, true),
            (4, 19, true),
            (1000, 5000, false),
            (1001, 5000, true),
        ] {
            assert_eq!(limits.opens(Vanishing { absent, total }), opens, "{absent} of {total}");
        }
    }
}
