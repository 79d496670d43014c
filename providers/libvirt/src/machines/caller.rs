//! Whoever makes calls to libvirt: a thread with a connection.

use virt::{connect::Connect, error::Error};

use crate::{
    calls::{Failure, Operation},
    workers::Link,
};

/// Makes calls over a connection, one after the other.
pub(crate) trait Caller {
    /// Makes one call, which is counted.
    fn call<T>(
        &mut self,
        operation: Operation,
        call: impl FnOnce(&Connect) -> Result<T, Error>,
    ) -> Result<T, Failure>;
}

impl Caller for Link {
    fn call<T>(
        &mut self,
        operation: Operation,
        call: impl FnOnce(&Connect) -> Result<T, Error>,
    ) -> Result<T, Failure> {
        // the method of the type itself
        self.call(operation, call)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A caller for tests.

    use super::*;
    use crate::{calls::Calls, sys};

    /// libvirt's test driver inside this process.
    pub(crate) struct TestDriver(pub(crate) Connect);

    impl TestDriver {
        /// A connection of its own, to a hypervisor with the network `default` and nothing else.
        pub(crate) fn new(file: &tempfile::NamedTempFile) -> Self {
            sys::initialize().expect("libvirt");
            let uri = format!("test://{}", file.path().display());
            Self(sys::open(&uri, None).expect("connected"))
        }
    }

    impl Caller for TestDriver {
        fn call<T>(
            &mut self,
            operation: Operation,
            call: impl FnOnce(&Connect) -> Result<T, Error>,
        ) -> Result<T, Failure> {
            Calls::default().call(operation, || call(&self.0))
        }
    }
}
