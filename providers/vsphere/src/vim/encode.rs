//! How data objects and methods become fields of a request, in the order of the WSDL.

use crate::{
    moref::MoRef,
    vim::{Field, Value},
};

/// A value that can be put into a field.
pub(crate) trait Encode {
    /// Appends the field: once, several times for a list, or not at all if it is unset.
    fn encode(self, name: &'static str, into: &mut Vec<Field>);
}

/// Values whose text is what `Display` prints.
macro_rules! encode_as_text {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            fn encode(self, name: &'static str, into: &mut Vec<Field>) {
                into.push((name, Value::Text(self.to_string())));
            }
        }
    )*};
}

encode_as_text!(bool, u32, i32, u64, i64);

impl Encode for &str {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self.to_owned())));
    }
}

impl Encode for String {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Text(self)));
    }
}

impl Encode for MoRef {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, Value::Ref(self)));
    }
}

impl Encode for Value {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        into.push((name, self));
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        if let Some(value) = self {
            value.encode(name, into);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(self, name: &'static str, into: &mut Vec<Field>) {
        for value in self {
            value.encode(name, into);
        }
    }
}

/// A data object as a value, for a field that takes several types.
pub(crate) fn object(value: impl Encode) -> Value {
    let mut fields = Vec::with_capacity(1);
    value.encode("", &mut fields);
    fields.pop().map_or_else(|| Value::Object(None, Vec::new()), |(_, value)| value)
}

/// A data object as a value of the type `kind`.
pub(crate) fn object_as(kind: &'static str, value: impl Encode) -> Value {
    match object(value) {
        Value::Object(_, fields) => Value::Object(Some(kind), fields),
        other => other,
    }
}

/// A data object whose fields are sent in the order in which they are declared here. `as "Type"` marks one
/// that is sent where the WSDL declares a base type.
macro_rules! data_object {
    ($(#[$doc:meta])* $type:ident $(as $xsi:literal)? { $($field:ident: $kind:ty = $wire:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $type { $(pub(crate) $field: $kind),* }

        impl $type {
            /// The names of the fields on the wire, in their order.
            #[cfg(test)]
            pub(crate) const ORDER: &'static [&'static str] = &[$($wire),*];
        }

        impl $crate::vim::encode::Encode for $type {
            fn encode(self, name: &'static str, into: &mut Vec<$crate::vim::Field>) {
                #[allow(unused_mut, unused_assignments, reason = "only some types have another one declared")]
                let mut declared: Option<&'static str> = None;
                $(declared = Some($xsi);)?
                let mut fields = Vec::new();
                $($crate::vim::encode::Encode::encode(self.$field, $wire, &mut fields);)*
                into.push((name, $crate::vim::Value::Object(declared, fields)));
            }
        }
    };
}

/// A method whose arguments are sent in the order in which they are declared here.
macro_rules! method {
    ($(#[$doc:meta])* $type:ident = $method:literal { $($field:ident: $kind:ty = $wire:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $type { $(pub(crate) $field: $kind),* }

        impl $type {
            /// The names of the arguments on the wire, in their order.
            #[cfg(test)]
            pub(crate) const ORDER: &'static [&'static str] = &[$($wire),*];

            /// The call of this method of `this`.
            pub(crate) fn of(self, this: &$crate::moref::MoRef) -> $crate::vim::Call {
                #[allow(unused_mut, reason = "some methods have no arguments")]
                let mut arguments = Vec::new();
                $($crate::vim::encode::Encode::encode(self.$field, $wire, &mut arguments);)*
                $crate::vim::Call { this: this.clone(), method: $method, arguments, since: None }
            }
        }
    };
}

pub(crate) use {data_object, method};

/// Whether these names are in this order among all names of a WSDL type.
#[cfg(test)]
pub(crate) fn in_order(names: &[&str], wsdl: &str) -> bool {
    let all: Vec<_> = wsdl.split_whitespace().collect();
    let places: Vec<_> = names.iter().map(|name| all.iter().position(|one| one == name)).collect();
    places.iter().all(Option::is_some) && places.is_sorted()
}
