//! The host: owner of Spots, their executor and their clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bursar::Runtime;

use crate::error::{SpotError, SpotErrorKind};
use crate::exec::Exec;
use crate::kind::{Kind, SpotWide, shared};
use crate::spot::Spot;
use crate::strand::{Common, Strand};

/// Owns Spots by name. Cheap to clone; every clone is the same host.
#[derive(Clone)]
pub struct Host {
    common: Arc<Common>,
}

impl Host {
    /// A host whose turns run in the tokio runtime of the caller and whose clock is that of `runtime`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    #[track_caller]
    #[expect(clippy::expect_used, reason = "said in the documentation")]
    pub fn new(runtime: &Runtime) -> Self {
        let exec = Exec::current().expect("a host is made inside of a tokio runtime");
        Self {
            common: Arc::new(Common {
                exec,
                clock: runtime.clock(),
                limit: 1024,
                send_timeout: Duration::from_secs(1),
                close_on_panic: false,
            }),
        }
    }

    /// Makes a Spot.
    ///
    /// # Errors
    /// The name is empty.
    pub fn create<S: Send + 'static>(&self, name: &str, state: S) -> Result<Spot<S>, SpotError> {
        self.create_as::<S, SpotWide>(name, state)
    }

    /// Makes a Spot of another kind.
    ///
    /// # Errors
    /// The name is empty.
    pub fn create_as<S: Send + 'static, K: Kind>(
        &self,
        name: &str,
        state: S,
    ) -> Result<Spot<S, K>, SpotError> {
        if name.is_empty() {
            return Err(SpotError::new(SpotErrorKind::InvalidOperation, name)
                .saying("a Spot needs a name that is not empty"));
        }
        let common = Arc::clone(&self.common);
        let strand = Strand::new(name.into(), common, shared::<K>(), Some(state));
        Ok(Spot::new(strand))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}
