//! The kinds of Spots, as types: which work shares a gate decides whether a turn can give its gate back.

/// Spot work, actors' work and timers share one gate, and a turn may yield it. The default.
#[derive(Clone, Copy, Debug)]
pub struct SpotWide;

/// The Spot, each of its actors and each of its timers have a gate of their own. Nothing yields.
#[derive(Clone, Copy, Debug)]
pub struct PerActor;

/// A Spot made by the first message to its id. It shares one gate as [`SpotWide`] does.
#[derive(Clone, Copy, Debug)]
pub struct Instance;

mod sealed {
    pub trait Sealed {
        /// Whether actors and timers share the Spot's gate.
        const SHARED: bool;
    }
}

use sealed::Sealed;

impl Sealed for SpotWide {
    const SHARED: bool = true;
}

impl Sealed for PerActor {
    const SHARED: bool = false;
}

impl Sealed for Instance {
    const SHARED: bool = true;
}

/// A kind of Spot: [`SpotWide`], [`PerActor`] or [`Instance`].
pub trait Kind: Sealed + Send + Sync + 'static {}

impl Kind for SpotWide {}
impl Kind for PerActor {}
impl Kind for Instance {}

/// A kind whose turns share one gate, and can return it while they wait.
#[diagnostic::on_unimplemented(
    message = "a turn of a `{Self}` Spot has a gate of its own, and none to give back",
    note = "only turns of `SpotWide` and `Instance` Spots can yield"
)]
pub trait SharedGate: Kind {}

impl SharedGate for SpotWide {}
impl SharedGate for Instance {}

/// Whether actors and timers of this kind share the Spot's gate.
pub(crate) const fn shared<K: Kind>() -> bool {
    K::SHARED
}

const _: () = assert!(shared::<SpotWide>() && shared::<Instance>() && !shared::<PerActor>());
