//! Settings whose values are words.

use std::fmt;

/// Types of settings whose values are words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($(#[$item:meta])* $variant:ident = $word:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$item])* $variant,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word of the configuration.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// The API of the Rancher server.
    ApiVersion:
    /// The one that the server has.
    Auto = "auto",
    /// The management API of Rancher 2.x.
    V3 = "v3",
    /// The API of Rancher 1.6.
    V2Beta = "v2-beta"
}

pub(super) use words;
