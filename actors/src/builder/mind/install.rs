//! The installer of an ISO image: it runs until it powers the guest off by itself. Then the discs are
//! taken out, and the guest boots from its disk.

use std::time::Duration;

use drover_model::fault::{Fault, FaultKind};
use drover_model::id::Upid;
use drover_model::image::ImageSource;
use drover_model::time::Now;

use super::{Mind, Out};
use crate::builder::state::{Install, State};

/// The pause between two looks at whether the installer has ended.
const LOOK_PAUSE: Duration = Duration::from_secs(10);

impl Mind {
    /// Whether the guest is installed from an ISO image.
    pub(super) fn installs(&self) -> bool {
        let source = self.birth.recipe.as_ref().and_then(|recipe| recipe.spec.source.as_ref());
        matches!(source, Some(ImageSource::Iso { .. }))
    }

    /// What to look at where an installer never ends.
    pub(super) fn how_installers_end(&self) -> &'static str {
        if !matches!(self.state, State::Installing(Install::Look { .. })) {
            return "";
        }
        ": the installer did not power the guest off. Its ISO image must boot with `autoinstall` \
         among the parameters of its kernel, and the user data must say `shutdown: poweroff`; the \
         guest's screen shows what it waits for"
    }

    /// The start of the installer was accepted, or not.
    pub(super) fn install_accepted(
        &mut self,
        result: Result<Option<Upid>, Fault>,
        now: Now,
        out: Out<'_>,
    ) {
        match result {
            Ok(Some(upid)) => self.enter(State::Installing(Install::Await(upid)), now, out),
            Ok(None) => self.enter(State::Installing(Install::Look { started: false }), now, out),
            Err(fault) if fault.kind == FaultKind::UnknownOutcome => {
                self.installer_may_run(&fault, now, out);
            }
            Err(fault) => self.failed(&fault, now, out),
        }
    }

    /// Whether the installer was started is not known: a guest that is off proves nothing yet.
    pub(super) fn installer_may_run(&mut self, fault: &Fault, now: Now, out: Out<'_>) {
        self.state = State::Installing(Install::Look { started: false });
        self.back_off(fault, now, out);
    }

    /// The installer's guest was looked at.
    pub(in crate::builder) fn install_looked(
        &mut self,
        running: Option<bool>,
        now: Now,
        out: Out<'_>,
    ) {
        let started = matches!(self.state, State::Installing(Install::Look { started: true }));
        match running {
            Some(false) if started => self.enter(State::Installing(Install::Eject), now, out),
            Some(false) => self.enter(State::Installing(Install::Start), now, out),
            Some(true) | None => {
                let started = started || running == Some(true);
                self.state = State::Installing(Install::Look { started });
                "the installer runs".clone_into(&mut self.detail);
                self.again_in(LOOK_PAUSE, now, out);
            }
        }
    }
}
