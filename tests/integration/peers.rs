//! Real peers that several tests share. They start when first needed and stop at the end of the run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use test_env::{ControlPlane, ControlPlaneOptions, StartError};

static CONTROL_PLANE: Mutex<Option<Arc<ControlPlane>>> = Mutex::new(None);
static TURN: Mutex<()> = Mutex::new(());

/// The shared control plane, for one test at a time: the controllers of another one would see its Nodes.
pub(crate) fn control_plane() -> Result<(Arc<ControlPlane>, MutexGuard<'static, ()>), StartError> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut shared = CONTROL_PLANE.lock().unwrap_or_else(PoisonError::into_inner);
    let control_plane = match &*shared {
        Some(running) => running.clone(),
        None => shared.insert(Arc::new(ControlPlane::start(&ControlPlaneOptions::default())?)).clone(),
    };
    Ok((control_plane, turn))
}

/// Stops what was started.
pub(crate) fn stop_all() {
    drop(CONTROL_PLANE.lock().unwrap_or_else(PoisonError::into_inner).take());
}
